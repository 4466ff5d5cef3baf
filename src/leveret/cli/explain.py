"""`leveret explain` and `leveret diff`: what configuration files mean, without a broker. Source: interfaces page."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ..settings import Configuration
from ..settings.difference import differences
from ..settings.explain import Explanation, Row, explain
from ..settings.printable import printable, printable_lines
from ..settings.values import value_text

EXIT_SAME, EXIT_CHANGED, EXIT_UNUSABLE = 0, 1, 2

Load = Callable[[Sequence[str]], tuple[Configuration, list[str]]]


def add_commands(verbs: Any, load: Load) -> None:
    """Add both commands to a parser; `load` reads files: (configuration, faults)."""
    why = verbs.add_parser("explain", help="every setting of a queue or address, and which rule gave it")
    why.add_argument("file", metavar="FILE")
    why.add_argument("name", metavar="NAME")
    why.add_argument("--vhost", default=None, help="only in this virtual host")
    why.add_argument("--json", action="store_true", help="print JSON")
    why.set_defaults(run=lambda options: _explain(options, load))

    diff = verbs.add_parser("diff", help="what another configuration would change")
    diff.add_argument("files", nargs="+", metavar="FILE", help="OLD and NEW, or with --live all files of the new one")
    diff.add_argument("--live", action="store_true", help="instead of OLD: a running broker, and its queues")
    diff.add_argument("--url", default=None, help="with --live: amqp[s]://USER:PASSWORD@HOST:PORT of an administrator")
    diff.add_argument("--json", action="store_true", help="with --live: print JSON")
    diff.set_defaults(run=lambda options: _diff(options, load))


def _explain(options: argparse.Namespace, load: Load) -> int:
    configuration, faults = load([options.file])
    if faults:
        print("\n".join(map(printable, faults)), file=sys.stderr)
        return EXIT_UNUSABLE
    explanations = explain(configuration, options.name, options.vhost)
    if options.json:
        print(json.dumps([asdict(one) for one in explanations]))
    else:
        print("\n\n".join(explanation_text(one) for one in explanations))
    return EXIT_SAME


def explanation_of(answer: dict[str, Any]) -> Explanation:
    """An explanation from the JSON of a running broker's answer."""
    rows = tuple(Row(**row) for row in answer["rows"])
    return Explanation(
        **{**answer, "matches": tuple(answer["matches"]), "policies": tuple(answer["policies"]), "rows": rows}
    )


def explanation_text(one: Explanation) -> str:
    """As text: the object, the matches, then each setting with its rule."""
    declared = f", declared at {one.declared_at}" if one.declared_at else ""
    lines = [f"{one.kind} {one.name} (address {one.address}, vhost {one.vhost}){declared}"]
    lines.append("matches, most specific first: " + (", ".join(one.matches) or "none"))
    if one.policies:
        lines.append("policies: " + ", ".join(one.policies))
    lines.append("flow control: " + one.flow)
    lines.append("paged out: " + one.paging)
    settings = [printable(f"{row.name} = {_text(row.value)}") for row in one.rows]
    width = min(max(map(len, settings), default=0), 60)
    lines += [f"  {setting:{width}}  {row.rule}" for setting, row in zip(settings, one.rows)]
    return "\n".join(map(printable, lines))


def _text(value: object) -> str:
    return "unset" if value is None else value_text(value)


def _diff(options: argparse.Namespace, load: Load) -> int:
    if options.live:
        return _live(options, load)
    if len(options.files) != 2:
        print("leveret diff: expected OLD and NEW, or --live", file=sys.stderr)
        return EXIT_UNUSABLE
    (old, faults), (new, more) = (load([name]) for name in options.files)
    if faults + more:
        print("\n".join(map(printable, faults + more)), file=sys.stderr)
        return EXIT_UNUSABLE
    changes = differences(old, new)
    print("\n".join(printable(str(change)) for change in changes) if changes else "no change")
    return EXIT_CHANGED if changes else EXIT_SAME


def _live(options: argparse.Namespace, load: Load) -> int:
    """The broker compares, since it knows its queues; the files are read here, where the command is given."""
    from .control_client import DEFAULT_URL, ControlFailed, request

    new, faults = load(options.files)
    if faults:
        print("\n".join(map(printable, faults)), file=sys.stderr)
        return EXIT_UNUSABLE
    arguments: dict[str, Any] = {"files": [[name, _read(name)] for name in options.files]}
    if new.included:
        arguments["included"] = {name: _read(name) for name in new.included}
    try:
        answer = request(options.url or DEFAULT_URL, "diff", arguments)
    except ControlFailed as error:
        print(f"leveret diff: {printable_lines(str(error))}", file=sys.stderr)
        return EXIT_UNUSABLE
    if options.json:
        print(json.dumps(answer))
    else:
        print("\n".join(map(printable, _live_lines(answer))) or "no change")
    return EXIT_CHANGED if answer["changes"] or answer["queues"] else EXIT_SAME


def _live_lines(answer: dict[str, Any]) -> list[str]:
    lines = list(answer["changes"])
    for one in answer["queues"]:
        where = "" if one["vhost"] == "/" else f" in vhost {one['vhost']!r}"
        lines += [f"queue {one['queue']!r}{where}, which is there:", *(f"  {change}" for change in one["changes"])]
    if answer["more"]:
        lines.append(f"... and {answer['more']} more queues")
    return lines


def _read(name: str) -> str:
    with open(name, encoding="utf-8") as file:
        return file.read()
