"""`leveret diff`: the changes that another configuration would make. Source: interfaces page."""

import argparse
import json
import sys
from typing import Any

from ..settings.difference import differences
from ..settings.printable import printable, printable_lines
from ..settings.values import in_vhost
from .configuration_files import EXIT_UNUSABLE, load, load_with_texts, print_faults
from .tls_arguments import add_tls_arguments, context_of

EXIT_SAME, EXIT_CHANGED = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="OLD and NEW, or with --live all files of the new one")
    parser.add_argument("--live", action="store_true", help="instead of OLD: a running broker, and its queues")
    parser.add_argument(
        "--url", default=None, help="with --live: amqp[s]://USER:PASSWORD@HOST:PORT of an administrator"
    )
    add_tls_arguments(parser)
    parser.add_argument("--json", action="store_true", help="with --live: print JSON")


def run(options: argparse.Namespace) -> int:
    if options.live:
        return _live(options)
    if len(options.files) != 2:
        print("leveret diff: expected OLD and NEW, or --live", file=sys.stderr)
        return EXIT_UNUSABLE
    (old, faults), (new, more) = (load([name]) for name in options.files)
    if faults + more:
        return print_faults(faults + more)
    changes = differences(old, new)
    print("\n".join(printable(str(change)) for change in changes) if changes else "no change")
    return EXIT_CHANGED if changes else EXIT_SAME


def _live(options: argparse.Namespace) -> int:
    """Send the files' texts to the broker, which compares them with its configuration and its queues."""
    from .control_client import DEFAULT_URL, ControlFailed, request

    new, faults, texts = load_with_texts(options.files)
    if faults:
        return print_faults(faults)
    arguments: dict[str, Any] = {"files": [[name, text] for name, text in texts]}
    if new.included:
        arguments["included"] = {name: _read(name) for name in new.included}
    try:
        answer = request(options.url or DEFAULT_URL, "diff", arguments, context=context_of(options))
        try:
            lines, is_changed = _live_lines(answer), bool(answer["changes"] or answer["queues"])
        except (LookupError, TypeError, ValueError):  # from a broker of another version
            raise ControlFailed("the answer is not one that this program understands") from None
    except ControlFailed as error:
        print(f"leveret diff: {printable_lines(str(error))}", file=sys.stderr)
        return EXIT_UNUSABLE
    print(json.dumps(answer) if options.json else "\n".join(map(printable, lines)) or "no change")
    return EXIT_CHANGED if is_changed else EXIT_SAME


def _live_lines(answer: dict[str, Any]) -> list[str]:
    lines = list(map(str, answer["changes"]))
    for one in answer["queues"]:
        lines.append(f"queue {one['queue']!r}{in_vhost(one['vhost'])}, which is there:")
        lines += [f"  {change}" for change in one["changes"]]
    if answer["more"]:
        lines.append(f"... and {answer['more']} more queues")
    return lines


def _read(name: str) -> str:
    with open(name, encoding="utf-8") as file:
        return file.read()
