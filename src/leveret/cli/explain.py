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
from ..settings.printable import printable
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
    diff.add_argument("old", metavar="OLD")
    diff.add_argument("new", metavar="NEW")
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
    settings = [printable(f"{row.name} = {value_text(row.value)}") for row in one.rows]
    width = min(max(map(len, settings), default=0), 60)
    lines += [f"  {setting:{width}}  {row.rule}" for setting, row in zip(settings, one.rows)]
    return "\n".join(map(printable, lines))


def _diff(options: argparse.Namespace, load: Load) -> int:
    old, faults = load([options.old])
    new, more = load([options.new])
    if faults + more:
        print("\n".join(map(printable, faults + more)), file=sys.stderr)
        return EXIT_UNUSABLE
    changes = differences(old, new)
    print("\n".join(printable(str(change)) for change in changes) if changes else "no change")
    return EXIT_CHANGED if changes else EXIT_SAME
