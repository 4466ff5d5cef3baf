"""`leveret explain`: settings of a queue, an address or a table in a configuration file. Source: interfaces page."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..settings.explain import Explained, Explanation, explain, explain_table
from ..settings.printable import printable
from ..settings.rows.broker_keys import KEYS
from ..settings.values import text_or_unset
from .configuration_files import load, print_faults

EXIT_OK = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("name", metavar="NAME", help='a queue or address, or a table: "[cluster]"')
    parser.add_argument("--vhost", default=None, help="only in this virtual host")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    configuration, faults = load([options.file])
    if faults:
        return print_faults(faults)
    table = options.name[1:-1] if options.name.startswith("[") and options.name.endswith("]") else ""
    if table in KEYS and not any(queue.name == options.name for queue in configuration.queues):
        rows = explain_table(configuration, table)
        if options.json:
            print(json.dumps([asdict(row) for row in rows], default=str))
        else:
            print("\n".join([options.name, *_lines(rows)]))
        return EXIT_OK
    explanations = explain(configuration, options.name, options.vhost)
    if options.json:
        print(json.dumps([asdict(one) for one in explanations]))
    else:
        print("\n\n".join(explanation_text(one) for one in explanations))
    return EXIT_OK


def explanation_of(answer: dict[str, Any]) -> Explanation:
    """The explanation in a running broker's answer."""
    rows = tuple(Explained(**row) for row in answer["rows"])
    return Explanation(
        **{**answer, "matches": tuple(answer["matches"]), "policies": tuple(answer["policies"]), "rows": rows}
    )


def explanation_text(one: Explanation) -> str:
    """The text of an explanation: the object, the matches, then each setting with its rule."""
    declared = f", declared at {one.declared_at}" if one.declared_at else ""
    lines = [f"{one.kind} {one.name} (address {one.address}, vhost {one.vhost}){declared}"]
    lines.append("matches, most specific first: " + (", ".join(one.matches) or "none"))
    if one.policies:
        lines.append("policies: " + ", ".join(one.policies))
    lines.append("flow control: " + one.flow)
    lines.append("paged out: " + one.paging)
    return "\n".join([*map(printable, lines), *_lines(one.rows)])


def _lines(rows: Sequence[Explained]) -> list[str]:
    """A line for each setting with its value and its rule."""
    settings = [printable(f"{row.name} = {text_or_unset(row.value)}") for row in rows]
    width = min(max(map(len, settings), default=0), 60)
    return [printable(f"  {setting:{width}}  {row.rule}") for setting, row in zip(settings, rows)]
