"""How long others wait while one client has a long job done: the latency of a probe, idle and during each job.

    python benchmarks/probe.py [--journal | --memory] [--quick] [--out FILE] [JOB ...]

Each job has a broker process of its own, in memory and with a journal. The probe is a client that publishes a message
every 2 ms to a queue of its own and gets it back; with a journal it publishes a persistent one as well, and waits for
its confirm. The goal is a p99 during the job of at most that of the idle probe, just before, and 20 ms. "Work" is the
CPU of the broker's thread while a message was on its way: what it waited for, without what the machine did otherwise.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from brokers import LOOPBACK, machine, rss_kb, started
from probe_client import Latency, latency_between, probing
from probe_jobs import JOBS, Stage

SERVE = f"{shlex.quote(sys.executable)} -m leveret serve --management off --listen {LOOPBACK}:{{port}}"
#: What the p99 during a job may be more than when idle.
GOAL_MS = 20.0
#: Before and after the job; what a job leaves to do belongs to it.
SETTLE_SECONDS, IDLE_SECONDS, AFTER_SECONDS = 1.0, 4.0, 1.0
#: A job is looked at for so long at least: the broker may free much after it has answered.
DURING_NS_MIN = 100_000_000
QUICK = 0.01


@dataclass(slots=True, frozen=True)
class Figures:
    """Of one job. `confirm_...`: of the probe's persistent messages, with a journal only."""

    job: str
    has_journal: bool
    seconds: float
    rss_mb: int
    idle: Latency
    during: Latency
    after: Latency
    work_idle: Latency
    work_during: Latency
    confirm_idle: Latency | None
    confirm_during: Latency | None

    @property
    def is_met(self) -> bool:
        """Whether the probe waited no longer than it should."""
        return self.during.p99 <= self.idle.p99 + GOAL_MS

    @property
    def is_met_by_work(self) -> bool:
        """The same of what the broker did meanwhile, as on a machine that has nothing else to do."""
        return self.work_during.p99 <= self.work_idle.p99 + GOAL_MS


def measure(job: str, command: str, *, has_journal: bool, scale: float, idle_seconds: float) -> Figures:
    """Run a job beside a probe."""
    with tempfile.TemporaryDirectory(prefix="leveret-probe-") as directory:
        config = Path(directory) / "probe.toml"
        stage = Stage(0, config, scale, has_journal)
        stage.configure(3)
        where = "--data {data}" if has_journal else "--memory"
        with started(f"{command} {where} --config {shlex.quote(str(config))}") as broker:
            stage = Stage(broker.port, config, scale, has_journal)
            run = JOBS[job](stage)
            time.sleep(SETTLE_SECONDS * min(1.0, idle_seconds))
            with probing(broker.port, broker.pid, confirms=has_journal) as probe:
                marks = [time.monotonic_ns()]
                time.sleep(idle_seconds)
                marks.append(time.monotonic_ns())
                run()
                done_ns = time.monotonic_ns()
                marks.append(max(done_ns, marks[-1] + DURING_NS_MIN))
                rss = rss_kb(broker.pid)
                time.sleep(min(AFTER_SECONDS, idle_seconds) + DURING_NS_MIN / 1e9)
                marks.append(time.monotonic_ns())
            stage.close()
    idle, during, after = (latency_between(probe.samples.deliveries, *marks[at : at + 2]) for at in range(3))
    work = [latency_between(probe.samples.work, *marks[at : at + 2]) for at in range(2)]
    confirms = [latency_between(probe.samples.confirms, *marks[at : at + 2]) for at in range(2)]
    assert idle.count and during.count, "the probe was silent"
    return Figures(
        job,
        has_journal,
        round((done_ns - marks[1]) / 1e9, 3),
        rss // 1024,
        idle,
        during,
        after,
        work[0],
        work[1],
        confirms[0] if has_journal else None,
        confirms[1] if has_journal else None,
    )


def shown(one: Latency | None) -> str:
    """p50, p99 and maximum."""
    return f"{'':26}" if one is None else f"{one.p50:8.2f} {one.p99:8.2f} {one.max:8.2f}"


def _verdict(one: Figures) -> str:
    return "met" if one.is_met else "missed; met by work" if one.is_met_by_work else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(JOBS))
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--memory", action="store_true", help="without a journal only")
    kinds.add_argument("--journal", action="store_true", help="with a journal only")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:g} of the size, to see that it runs")
    parser.add_argument(
        "--command", default=SERVE, help="the broker's command line, to which --memory or --data is added"
    )
    parser.add_argument("--out", type=Path, help="write the figures there, as JSON")
    given = parser.parse_args()
    scale, idle_seconds = (QUICK, 0.1) if given.quick else (1.0, IDLE_SECONDS)
    heads = ("idle: p50, p99, max", "during", "work during", "confirms idle", "confirms during")
    print(f"{'(milliseconds)':32} {'seconds':>8}" + "".join(f"{head:>27}" for head in heads))
    taken = []
    for job in given.jobs or JOBS:
        for has_journal in [False] * (not given.journal) + [True] * (not given.memory):
            one = measure(job, given.command, has_journal=has_journal, scale=scale, idle_seconds=idle_seconds)
            taken.append(one)
            kind = "journal" if has_journal else "memory"
            print(
                f"{job:24} {kind:7} {one.seconds:8.3f} {shown(one.idle)} {shown(one.during)} {shown(one.work_during)}"
                f" {shown(one.confirm_idle)} {shown(one.confirm_during)} {_verdict(one)}",
                flush=True,
            )
    if given.out is not None:
        figures = {
            "date": date.today().isoformat(),
            "scale": scale,
            "machine": machine(),
            "jobs": [{**asdict(one), "is_met": one.is_met, "is_met_by_work": one.is_met_by_work} for one in taken],
        }
        given.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
