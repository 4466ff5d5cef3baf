"""The command: python -m leveret.interop.differential --operations N --seed S [--peer URL]
[--subject URL | --follower]."""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any

from ..brokers.processes import unwind_on_sigterm
from . import brokers, regressions
from .comparison import Tally
from .regressions import Regression
from .search import Found, Search
from .side import Side

Message = tuple[int, str, Any]
LANE_SILENT_SECONDS_MAX = 600.0  # minimising a program may take minutes


class LaneFailed(Exception):
    """A lane was ended by an exception, such as a broker that has ended or does not speak AMQP."""


def main() -> int:
    """Exit code 0: no unknown difference. 1: some were saved. 2: no reference. 3: a broker stopped answering."""
    options = _options()
    unwind_on_sigterm()
    print(f"seed {options.seed}", flush=True)
    try:
        with (
            brokers.reference(options.peer, options.lanes) as reference,
            brokers.subject(options.subject, options.lanes, is_follower=options.follower) as subject,
        ):
            try:
                tally, found = _run(options, list(zip(reference.urls, subject.urls)))
            except LaneFailed as failed:
                for words in (str(failed), reference.diagnosis(), subject.diagnosis()):
                    print(words, file=sys.stderr)
                return 3
    except FileNotFoundError as absent:
        print(f"{absent}; or name one with --peer", file=sys.stderr)
        return 2
    print(report(tally))
    return 1 if found else 0


def _save(one: Found, directory: Path) -> None:
    """Save a finding at once, so that an interrupted run keeps it."""
    print(f"seed {one.seed}, {one.difference}")
    path = directory / f"seed-{one.seed}.json"
    regressions.save(path, Regression(f"found with seed {one.seed}", "RabbitMQ", one.program, one.expected))
    print(f"saved {path}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m leveret.interop.differential", description=__doc__)
    parser.add_argument("--operations", type=int, default=10_000, help="how many to compare (default: 10000)")
    parser.add_argument("--seed", type=int, default=None, help="which programs (default: any; it is printed)")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--peer", metavar="URL", help="the reference (default: a RabbitMQ of our own)")
    parser.add_argument("--subject", metavar="URL", help="the broker under test (default: a leveret of our own)")
    parser.add_argument("--follower", action="store_true", help="our leveret is a cluster, reached through a follower")
    parser.add_argument("--lanes", type=int, default=4, help="virtual hosts at once; 1 with a URL (default: 4)")
    parser.add_argument("--out", default=".", metavar="DIR", help="where differences are saved (default: here)")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    if options.peer or options.subject:
        options.lanes = 1
    return options


def _run(options: argparse.Namespace, lanes: list[tuple[str, str]]) -> tuple[Tally, list[Found]]:
    """Run the lanes, each in its own process, because a lane waits for round trips most of the time."""
    messages: Queue[Message] = multiprocessing.Queue()
    share = -(-options.operations // len(lanes))
    processes = [
        multiprocessing.Process(
            target=_lane,
            args=(lane, urls, share, options.minutes * 60, options.seed * 100 + lane, messages),
            daemon=True,
        )
        for lane, urls in enumerate(lanes)
    ]
    for process in processes:
        process.start()
    try:
        return _gather(messages, len(lanes), Path(options.out))
    finally:
        for process in processes:
            process.terminate()  # before its broker, whose end would look like a failure
            process.join()


def _gather(messages: Queue[Message], running: int, out: Path) -> tuple[Tally, list[Found]]:
    """The findings and counts of the lanes, until all are done. Raises: LaneFailed."""
    found: list[Found] = []
    tally, progress = Tally(), dict.fromkeys(range(running), 0)
    began, reported = time.monotonic(), 0.0
    while running:
        try:
            lane, kind, value = messages.get(timeout=LANE_SILENT_SECONDS_MAX)
        except Empty:
            raise LaneFailed(f"no lane reported anything for {LANE_SILENT_SECONDS_MAX} s") from None
        if kind == "progress":
            progress[lane] = value
        elif kind == "found":
            _save(value, out)
            found.append(value)
        elif kind == "failed":
            raise LaneFailed(f"lane {lane} after {sum(progress.values())} operations: {value}")
        else:
            running -= 1
            tally.add(value)
        if time.monotonic() - reported > 10:
            reported = time.monotonic()
            print(f"{sum(progress.values())} operations after {reported - began:.0f} s", flush=True)
    return tally, found


def _lane(
    lane: int, urls: tuple[str, str], operations: int, seconds: float, seed: int, messages: Queue[Message]
) -> None:
    search = Search(Side(urls[0]), Side(urls[1]))
    try:
        search.until(operations, seed, lambda kind, value: messages.put((lane, kind, value)), seconds)
    except Exception as failure:
        messages.put((lane, "failed", f"{failure!r} in the program of seed {search.number}"))
        raise
    messages.put((lane, "done", search.tally))


def report(tally: Tally) -> str:
    """The figures of a run, as text."""
    lines = [
        f"{tally.operations} operations in {tally.programs} programs sent to both brokers and compared",
        f"steps of several operations without waiting: {tally.batches}",
        f"differed only until given time (races of a broker with itself): {tally.races} programs",
        "known differences met: " + (_counts(tally.known) or "none"),
        "operations: " + _counts(tally.methods),
        "errors answered by both: " + _counts(tally.errors),
    ]
    return "\n".join(lines)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


if __name__ == "__main__":
    sys.exit(main())
