"""Where the time of a takeover goes: from the leader's end by SIGKILL to the first confirm by the next, part by part.

    python benchmarks/takeover.py [--ready 100000] [--kills 5]

The times are those of the next leader's log, so in steps of a millisecond; messages as in cluster.py.

| part | ends when |
|---|---|
| noticed | the next leader has seen that the process is gone, and campaigns |
| elected | etcd has made it the leader |
| recovered | its journal is recovered, and its broker restored |
| leads | it serves clients, or holds their publishes |
| confirmed | a client that has connected again gets its first confirm |
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generator
from cluster_subjects import Cluster, fill, publishing

PARTS = ("noticed", "elected", "recovered", "leads", "confirmed")
LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) \w+ [\w.]+: (.*)")
#: What the log says at the end of a part.
SAID = (
    ("noticed", re.compile(r"\w+: CAMPAIGNING ")),
    ("elected", re.compile(r"\w+: TAKING_OVER ")),
    ("recovered", re.compile(r".* messages, \d+ objects restored")),
    ("leads", re.compile(r"\w+: (LEADING|HELD) ")),
)


def lines_since(log: Path, since_s: float) -> Iterator[tuple[float, str]]:
    """(wall time in seconds, text) of the lines of a log from a time on."""
    for line in log.read_text().splitlines():
        found = LINE.match(line)
        if found is not None:
            at_s = time.mktime(time.strptime(found[1], "%Y-%m-%d %H:%M:%S")) + int(found[2]) / 1000
            if at_s >= since_s - 0.001:
                yield at_s, found[3]


def parts_of(log: Path, killed_s: float, confirmed_s: float) -> dict[str, float]:
    """Seconds of each part."""
    ends: dict[str, float] = {}
    for at_s, text in lines_since(log, killed_s):
        for part, said in SAID:
            if said.match(text):
                ends.setdefault(part, at_s)
    ends["confirmed"] = confirmed_s
    before_s, parts = killed_s, {}
    for part in PARTS:
        parts[part] = ends[part] - before_s
        before_s = ends[part]
    return parts


def kill_leader(subject: Cluster, ready: int) -> dict[str, float]:
    """Kill the leader, and start it again."""
    nodes = subject.nodes()
    subject.await_in_sync()
    fill(subject, nodes[0], ready)
    wall_s = time.time() - time.monotonic()
    with publishing(subject, nodes) as publisher:
        since_s = time.monotonic()
        os.kill(subject.pid(nodes[0]), signal.SIGKILL)
        while (gap := publisher.longest_gap(since_s)) < 0.1:
            time.sleep(0.01)
        publisher.await_confirms(20)
        confirmed_s = max(later for one, later in zip(publisher.times, publisher.times[1:]) if later - one == gap)
    leader = subject.nodes()[0]
    parts = parts_of(subject.local.log(leader), since_s + wall_s, confirmed_s + wall_s)
    subject.start(nodes[0])
    subject.await_in_sync()
    return parts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ready", type=int, default=2_000, help="messages that wait (%(default)s)")
    parser.add_argument("--kills", type=int, default=5, help="of the leader (%(default)s)")
    options = parser.parse_args()
    generator.build()
    values: dict[str, list[float]] = {part: [] for part in (*PARTS, "all")}
    with ExitStack() as stack:
        subject = Cluster(stack)
        for _ in range(options.kills):
            parts = kill_leader(subject, options.ready)
            for part, seconds in (*parts.items(), ("all", sum(parts.values()))):
                values[part].append(seconds)
            print(", ".join(f"{part} {seconds:.3f}" for part, seconds in parts.items()), flush=True)
    print("| part | median s | worst s |")
    print("|---|---|---|")
    for part, each in values.items():
        print(f"| {part} | {statistics.median(each):.3f} | {max(each):.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
