"""Run tools for RabbitMQ's HTTP API against a real RabbitMQ and a leveret, and compare the answers.

    python -m leveret.interop.tools [--only pyrabbit2,Nagios] [--broker leveret|rabbitmq|both] [--write PAGE]
                                    [--follower]

With --only the page keeps the rows of other tools from earlier runs; each row has its date.
Each tool runs by the same commands on fresh brokers. With --follower leveret is a cluster of three nodes, and the tool
asks a follower. A tool that is neither on this machine nor in its package registry is left out, with the reason. Exit
code 1: an answer differs from RabbitMQ's, and `known.toml` has no reason for it. 2: nothing could be run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from ..brokers.processes import PeerFailed
from ..running.at_once import at_once
from ..running.foreign import parse, parser
from ..running.toolchains import NotHere
from ..suites.comparison import read_known
from .brokers import http_broker, http_follower
from .page import Entry, entry_of, render
from .pinned import TOOLS
from .results import Run, compare
from .scene import scene
from .tool import Tool

KNOWN_FILE = Path(__file__).with_name("known.toml")
#: Reasons why a tool is left out.
LEFT_OUT = (NotHere, PeerFailed, FileNotFoundError)


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser("tools", __doc__ or "", TOOLS, ".peers/tools", "tools.json")
    made.add_argument("--write", type=Path, help="draw the page there")
    options, brokers = parse(made, arguments)
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    known = read_known(KNOWN_FILE, '"check" = "reason"')
    out = options.out or work / "tools.json"
    data = json.loads(out.read_text()) if options.only and out.exists() else {}
    entries: list[Entry] = []
    for name in options.only or TOOLS:
        entries.append(_entry(TOOLS[name], brokers, work, known.get(name, {}), options.follower))
        _tell(entries[-1])
        data[name] = entries[-1].as_data()
        out.write_text(json.dumps(data, indent=1) + "\n")  # after each tool, because a long run may be interrupted
    if options.write:
        shown = [
            entry_of(tool, data[name], known) if name in data else Entry(tool, "", {}, [], "not built where this ran")
            for name, tool in TOOLS.items()
        ]
        options.write.write_text(render(shown))
    if not any(entry.runs for entry in entries):
        return 2
    return 1 if any(difference.reason is None for entry in entries for difference in entry.differences) else 0


def run_on(broker: str, name: str, work: Path, *, is_follower: bool = False) -> Run:
    """All checks of a tool on a fresh broker. Raises: PeerFailed, NotHere."""
    tool = TOOLS[name]
    with ExitStack() as stack:
        at = stack.enter_context(http_follower() if is_follower and broker == "leveret" else http_broker(broker))
        if tool.needs_scene:
            stack.enter_context(scene(at))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leveret-tool-")))
        return tool.run(at, directory, work)


def _entry(tool: Tool, brokers: Sequence[str], work: Path, known: Mapping[str, str], is_follower: bool) -> Entry:
    try:
        version = tool.version(work)
        run = partial(run_on, name=tool.name, work=work, is_follower=is_follower)
        runs = at_once(run, brokers, LEFT_OUT)  # because suites sleep most of their time
    except LEFT_OUT as error:
        return Entry(tool, "", {}, [], str(error).splitlines()[0])
    both = len(runs) > 1
    return Entry(tool, version, runs, compare(runs["leveret"], runs["rabbitmq"], known) if both else [])


def _tell(entry: Entry) -> None:
    if entry.left_out:
        print(f"{entry.tool.name} is left out: {entry.left_out}", flush=True)
        return
    figures = ", ".join(f"{broker} {run.figures()}" for broker, run in entry.runs.items())
    print(f"{entry.tool.name} {entry.version}: {figures}", flush=True)
    for difference in entry.differences:
        print(f"  {difference.check}: {difference.text} [{difference.reason or 'NOT EXPLAINED'}]", flush=True)


if __name__ == "__main__":
    sys.exit(main())
