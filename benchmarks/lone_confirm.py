"""Where the time of a lone confirm of a cluster goes: 500 messages a second, one unconfirmed at a time.

    python benchmarks/lone_confirm.py [--seconds 5] [--rounds 3]

Each node notes when it passes some points, by the clock that all processes of a machine share. Beside that stands what
the disk takes right after for as many octets in a file of one process, and of three at once: the middle one of these,
for which a majority waits, and the slowest, for which nodes in sync do. Parts of the confirm, in this order:

| part | from, to |
|---|---|
| turn | from its first record until the leader's journal may take them |
| journal's thread | until it begins to write |
| write | until the block is in the file |
| send | until both followers' sockets have it |
| follower reads | until the last follower has read it |
| follower writes | until it is in that one's file |
| follower fsyncs | until that one has fsynced it |
| acknowledgement | until the leader has it, and all others |
| own fsync | until the leader has fsynced it, if that comes later |
| confirm | until it is sent |
"""

from __future__ import annotations

import argparse
import atexit
import json
import multiprocessing
import os
import statistics
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import generator
from cluster_subjects import Cluster

from leveret.interop.brokers.local_cluster import NAMES, LocalCluster

STAMPS = "LEVERET_STAMPS"
PARTS = (
    ("turn", "read", "turned"),
    ("journal's thread", "turned", "taken"),
    ("write", "taken", "written"),
    ("send", "written", "sent"),
    ("follower reads", "sent", "f-read"),
    ("follower writes", "f-read", "f-written"),
    ("follower fsyncs", "f-written", "f-synced"),
    ("acknowledgement", "f-synced", "acknowledged"),
    ("own fsync", "acknowledged", "agreed"),
    ("confirm", "agreed", "confirmed"),
)
FSYNCED_OCTETS, FSYNCS = 1_300, 300


# -- in a node ---------------------------------------------------------------------------------------------------------


def stamp_node() -> None:
    """Note when this process passes the points, and write that to a file at its end."""
    from leveret.cluster.leading import Leading
    from leveret.cluster.link import follower_links, open_link
    from leveret.journal.copying.copied_journal import CopiedJournal
    from leveret.journal.disk.segment_file import SegmentFile
    from leveret.journal.disk.writer import Writer

    stamps: list[tuple[str, int]] = []
    now = time.monotonic_ns

    def wrap(
        owner: Any, name: str, before: str = "", after: str = "", takes: Callable[..., bool] | None = None
    ) -> None:
        inner = getattr(owner, name)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            if before:
                stamps.append((before, now()))
            result = inner(*arguments, **named)
            if after and (takes is None or takes(result, *arguments, **named)):
                stamps.append((after, now()))
            return result

        setattr(owner, name, wrapped)

    wrap(Writer, "begin_turn", before="read")
    wrap(Writer, "end_turn", after="turned", takes=lambda _, self, is_awaited=True: is_awaited)
    wrap(Writer, "commit_taken", before="taken")
    wrap(follower_links.FollowerLinks, "written", before="written", after="sent")
    wrap(SegmentFile, "sync", before="sync", after="synced")
    wrap(open_link.OpenLink, "_read", after="f-read", takes=lambda data, _: data is not None)
    wrap(CopiedJournal, "append", after="f-written")
    wrap(CopiedJournal, "sync", after="f-synced")
    wrap(follower_links._FollowerLink, "_handle", before="acknowledged")
    wrap(Leading, "agree", before="agreed", after="confirmed")
    atexit.register(lambda: Path(f"{os.environ[STAMPS]}/{os.getpid()}.json").write_text(json.dumps(stamps)))


# -- outside -----------------------------------------------------------------------------------------------------------


class StampedCluster(LocalCluster):
    """Its nodes note when they pass the points."""

    def _run(self, name: str, command: Sequence[str]) -> Any:
        if name in NAMES:
            os.environ[STAMPS] = str(self.directory)
            command = [command[0], "-P", __file__, "--serve", *command[command.index("serve") + 1 :]]
        return super()._run(name, command)


def cycles(leader: dict[str, list[int]], followers: Sequence[dict[str, list[int]]]) -> list[dict[str, int]]:
    """When each lone message passed each point."""

    def after(times: list[int], at: int) -> int:
        found = bisect_left(times, at)
        return times[found] if found < len(times) else 0

    found = []
    for turned, following in zip(leader["turned"], leader["turned"][1:]):
        cycle = {"turned": turned, "read": leader["read"][bisect_left(leader["read"], turned) - 1]}
        at = turned
        for point in ("taken", "written", "sent"):
            at = cycle[point] = after(leader[point], at)
        rows = []
        for one in followers:
            read = after(one["f-read"], cycle["written"])
            written = after(one["f-written"], read)
            rows.append({"f-read": read, "f-written": written, "f-synced": after(one["f-synced"], written)})
        last = max(rows, key=lambda row: row["f-synced"])
        cycle |= last
        cycle["synced"] = after(leader["synced"], cycle["written"])
        cycle["acknowledged"] = after(leader["acknowledged"], last["f-synced"])
        cycle["confirmed"] = after(leader["confirmed"], max(cycle["acknowledged"], cycle["synced"]))
        cycle["agreed"] = leader["agreed"][bisect_left(leader["agreed"], cycle["confirmed"]) - 1]
        if all(cycle.values()) and cycle["confirmed"] <= following:
            found.append(cycle)
    return found


def fsync(path: Path, begins: Any, ended: Any) -> None:
    """What each fsync of one message takes in this process, in microseconds, beside those of the others."""
    took = []
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(handle, 0, FSYNCS * FSYNCED_OCTETS)
    for number in range(FSYNCS):
        begins.wait()
        os.pwrite(handle, os.urandom(FSYNCED_OCTETS), number * FSYNCED_OCTETS)
        since = time.monotonic_ns()
        os.fdatasync(handle)
        took.append((time.monotonic_ns() - since) / 1e3)
        time.sleep(0.001)
    os.close(handle)
    ended.put(took)


def fsyncs(directory: Path, processes: int) -> list[float]:
    """The medians of the quickest fsync, the next and so on of some processes that begin together."""
    context = multiprocessing.get_context("fork")
    begins, ended = context.Barrier(processes), context.Queue()
    running = [
        context.Process(target=fsync, args=(directory / f"alone{number}", begins, ended)) for number in range(processes)
    ]
    for process in running:
        process.start()
    took = [ended.get() for _ in running]
    for process in running:
        process.join()
    return [statistics.median(one) for one in zip(*(sorted(together) for together in zip(*took)))]


def measure(seconds: float) -> dict[str, float]:
    """Medians in microseconds of one run of a new cluster."""
    with ExitStack() as stack:
        subject = Cluster(stack, StampedCluster)
        nodes = subject.nodes()
        pids = {name: subject.pid(name) for name in nodes}
        began = time.monotonic_ns()
        raw = subject.run(nodes[0], pids.values(), paced_s=seconds)
        ended = time.monotonic_ns()
        subject.local.stop()
        (alone,) = fsyncs(subject.local.directory, 1)
        _, middle, slowest = fsyncs(subject.local.directory, 3)
        stamps: dict[str, dict[str, list[int]]] = {}
        for name, pid in pids.items():
            points: dict[str, list[int]] = {}
            for point, at in json.loads((subject.local.directory / f"{pid}.json").read_text()):
                if began <= at <= ended:
                    points.setdefault(point, []).append(at)
            stamps[name] = points
    leader, followers = stamps[nodes[0]], [stamps[name] for name in nodes[1:]]
    found = cycles(leader, followers)
    values = {part: statistics.median((one[end] - one[begin]) / 1e3 for one in found) for part, begin, end in PARTS}
    values["read to confirm"] = statistics.median((one["confirmed"] - one["read"]) / 1e3 for one in found)
    values["leader's own fsync, beside"] = statistics.median((one["synced"] - one["sent"]) / 1e3 for one in found)
    values["client's p50"] = raw["confirm_us"]["p50"]
    values["fsync alone"] = alone
    values["of three fsyncs at once the middle one"] = middle
    values["of three fsyncs at once the slowest"] = slowest
    values["messages"] = len(found)
    return values


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        stamp_node()
        from leveret.__main__ import main as leveret

        return leveret(["serve", *sys.argv[2:]])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of load (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="%(default)s")
    options = parser.parse_args()
    generator.build()
    rounds = [measure(options.seconds) for _ in range(options.rounds)]
    print("| part | us, a value a round |")
    print("|---|---|")
    for part in rounds[0]:
        print(f"| {part} | {', '.join(f'{values[part]:.0f}' for values in rounds)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
