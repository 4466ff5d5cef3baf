"""Measure how long a change of the leader stops the clients of docs/clients-cluster.md, and that no message is lost.

    python -m leveret.interop.takeovers [--only pika,amqplib] [--subjects leveret,rabbitmq]
                                        [--changes takeover,handover] [--rounds 3]
                                        [--write benchmarks/results/cluster-clients.md]

A publisher with confirms and a consumer from that page run while the leader of three nodes is killed (takeover) or
stopped (handover), or while no node leads for ten seconds. They have all addresses, a follower's first. RabbitMQ's
queue is a quorum queue, whose leader is killed or stopped; for ten seconds it and another node are stopped by SIGSTOP.
Exit code 1: Leveret lost a message, or sent it again without `redelivered`. 2: nothing could be run.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from ..brokers.processes import PeerFailed, unwind_on_sigterm
from ..running.foreign import among
from ..running.toolchains import NotHere
from .programs import PROGRAMS
from .subjects import CHANGES, Subject, leveret_cluster, three_rabbitmqs
from .trial import Outcome, run

SUBJECTS: dict[str, Callable[[], AbstractContextManager[Subject]]] = {
    "leveret": leveret_cluster,
    "rabbitmq": three_rabbitmqs,
}
Found = dict[tuple[str, str, str], list[Outcome]]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    unwind_on_sigterm()
    commands: dict[str, list[str]] = {}
    for client in options.only:
        try:
            commands[client] = PROGRAMS[client].prepare(options.work, lambda text: print(text, flush=True))
        except NotHere as why:
            print(f"{client} is left out: {why}", file=sys.stderr)
    found: Found = {}
    try:
        for name in options.subjects:
            try:
                with SUBJECTS[name]() as subject:
                    _measure(subject, commands, options, found)
            except (FileNotFoundError, PeerFailed) as why:
                print(f"{name} is left out from here on: {why}", file=sys.stderr)
    finally:  # even if the run is stopped
        table = "\n".join(rows(found)) + "\n"
        print(table)
        if options.write:
            options.write.write_text(table)
    if not found:
        return 2
    ours = [outcome for (name, *_), outcomes in found.items() if name == "leveret" for outcome in outcomes]
    return 0 if all(outcome.is_well for outcome in ours) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m leveret.interop.takeovers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", type=among(PROGRAMS), default=list(PROGRAMS), help="clients, by comma")
    parser.add_argument("--subjects", type=among(SUBJECTS), default=list(SUBJECTS), help="brokers, by comma")
    parser.add_argument("--changes", type=among(CHANGES), default=list(CHANGES), help="of the leader, by comma")
    parser.add_argument("--rounds", type=int, default=1, help="of each (default: 1)")
    parser.add_argument("--work", type=Path, default=Path(".peers/takeovers"), help="where programs are built")
    parser.add_argument("--write", type=Path, help="write the table there")
    return parser.parse_args(arguments)


def _measure(subject: Subject, commands: dict[str, list[str]], options: argparse.Namespace, found: Found) -> None:
    numbers = itertools.count()
    for client, command in commands.items():
        for change in [change for change in options.changes for _ in range(options.rounds)]:
            with tempfile.TemporaryDirectory(prefix="leveret-takeovers-", ignore_cleanup_errors=True) as directory:
                try:
                    act = partial(CHANGES[change], subject)
                    outcome = run(command, subject.urls(), act, Path(directory), next(numbers))
                except PeerFailed as failure:
                    print(f"{subject.name} {client} {change}: {failure}", file=sys.stderr, flush=True)
                else:
                    print(f"{subject.name} {client} {change}: {outcome}", flush=True)
                    found.setdefault((subject.name, client, change), []).append(outcome)
            subject.heal()


def rows(found: Found) -> Iterable[str]:
    """The lines of the table: a row for each client and change, with medians of seconds and sums of messages."""
    brokers = [name for name in SUBJECTS if any(key[0] == name for key in found)]
    yield (
        "| client | what | "
        + " | ".join(f"{name}: longest time without a confirm, a message | lost; twice" for name in brokers)
        + " |"
    )
    yield "|---|---|" + "---|---|" * len(brokers)
    for client, change in dict.fromkeys((client, change) for _, client, change in found):
        cells = [cell for name in brokers for cell in _cells(found.get((name, client, change), []))]
        yield f"| {client} | {change} | {' | '.join(cells)} |"


def _cells(runs: list[Outcome]) -> tuple[str, str]:
    if not runs:
        return "not run", ""
    published, consumed = (
        statistics.median(seconds) for seconds in zip(*((one.published_s, one.consumed_s) for one in runs))
    )
    lost, twice, unflagged = (sum(counts) for counts in zip(*((one.lost, one.twice, one.unflagged) for one in runs)))
    remark = f", {unflagged} of them without a flag" if unflagged else ""
    return f"{published:.1f} s, {consumed:.1f} s", f"{lost}; {twice}{remark}"


if __name__ == "__main__":
    sys.exit(main())
