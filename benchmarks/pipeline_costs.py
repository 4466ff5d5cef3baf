"""The costs of the processes that a benchmark of the pipeline starts: seconds, CPU seconds, memory."""

import ctypes
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PAUSE_SECONDS = 0.2


@contextmanager
def measured(*, until_ended: bool = True) -> Iterator[dict[str, float]]:
    """Measure all processes below this one. The dictionary is filled at the end: seconds, cpu_seconds, peak_rss_mb.

    Processes that were started before count with what they do meanwhile. Orphans become children of this process:
    Spark's Java outlives the Python that has started it. The CPU time is the larger one of two that both lack some:
    what the kernel has added up (without processes that nobody waited for), and samples of all processes.
    until_ended: first wait until all processes have ended that were started within.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    known, began, before = {pid: own_seconds(pid) for pid in descendants()}, time.monotonic(), cpu_seconds()
    found: dict[str, float] = {}
    sampled, peak, ended = dict(known), [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(PAUSE_SECONDS):
            running = descendants()
            peak[0] = max(peak[0], sum(rss_mb(pid) for pid in running))
            sampled.update({pid: max(sampled.get(pid, 0), own_seconds(pid)) for pid in running})

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield found
        while until_ended and (left := set(descendants()) - known.keys()):
            for pid in left:
                with suppress(ChildProcessError):  # not a child of this process
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(PAUSE_SECONDS)
    finally:
        ended.set()
        watching.join()
    found["seconds"] = round(time.monotonic() - began, 1)
    found["cpu_seconds"] = round(max(cpu_seconds() - before, sum(sampled.values()) - sum(known.values())), 2)
    found["peak_rss_mb"] = round(peak[0])


def ingest(journal: Path, lake: Path, cores: int, master: str = "", more: Sequence[str] = ()) -> dict[str, float]:
    """Measure one ingest in a process of its own, as people run it.

    master: of Spark; "": processes read the journal. more: further options.
    """
    if lake.exists():
        shutil.rmtree(lake)
    command = [sys.executable, "-m", "leveret.pipeline", "ingest", "--journal", str(journal), "--lake", str(lake)]
    with measured() as found:
        subprocess.run([*command, "--master", master or f"local[{cores}]", *more], check=True)
    size = sum(path.stat().st_size for path in (lake / "events").rglob("*.parquet"))
    return {**found, "lake_mb": round(size / 1e6, 1), "load_average": os.getloadavg()[0]}


def descendants() -> list[int]:
    """The processes below this one."""
    found = [os.getpid()]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*"):
            with suppress(OSError):  # it has ended
                found += [int(child) for child in (task / "children").read_text().split()]
    return found[1:]


def cpu_seconds() -> float:
    """CPU seconds of all processes below this one, also of those that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(sum(map(int, _stat(pid)[11:15])) for pid in descendants()) / TICKS


def own_seconds(pid: int) -> float:
    """CPU seconds of a process alone; 0 if it has ended."""
    return sum(map(int, _stat(pid)[11:13])) / TICKS


def rss_mb(pid: int) -> float:
    """Memory of a process; 0 if it has ended."""
    return int(_stat(pid)[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6


TICKS = os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name; zeros if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 50
