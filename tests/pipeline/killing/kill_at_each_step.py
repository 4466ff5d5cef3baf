"""Does one thing to a lake again and again, killed at another operation on files each time; then again, unharmed.

    LD_PRELOAD=faults.so python kill_at_each_step.py DIRECTORY ingest|compact|retain|fill|follow FIRST STRIDE

DIRECTORY has `journal` and `lake` as they are before; to fill, `other` has what the journal has lost; to follow,
`stages` has what brokers have recorded at several times. After each kill every table must have its rows of before or of
after (of `follow`: none twice), and once more run to its end all must be as if nothing had happened. Prints how many
operations there are.
What is dropped is what is older than the last day; jobs must read as if all tables had followed `events`.
"""

import ctypes
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
import pyarrow.parquet  # noqa: F401  (before the fork: each child is spared it)
from lakes import fill, in_journal, in_lake

from leveret.pipeline.follow_command import JournalFollower
from leveret.pipeline.lake import compact as compacting
from leveret.pipeline.lake import parts, retention  # noqa: F401
from leveret.pipeline.lake.compact import compact
from leveret.pipeline.lake.lake import COMMIT_ORDER, retained_in
from leveret.pipeline.lake.retention import retain
from leveret.pipeline.lazy_engines import LazyEngines
from leveret.pipeline.options import parse
from leveret.pipeline.progress import Progress

FAULTS = ctypes.CDLL(None)
LAST_DAY = date(2023, 11, 15)


def in_a_child(work: Callable[[], None]) -> int:
    """How it ended: 0, or the signal with a minus. (A fork, so that no thread of a library is there twice.)"""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        work()
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def follow(work: Path) -> None:
    """From the stage at hand to the last one; then, as on the next day, once more what is too old goes."""
    stages = [work / "stages" / str(at) for at in range(len(list((work / "stages").iterdir())))]
    brokers = work / "brokers"
    options = parse(["follow", "--journal", str(brokers), "--lake", str(work / "lake"), "--retain", "1d"])
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    def go_on() -> None:
        at = stages.index(brokers.resolve()) + 1
        if at == len(stages):
            raise KeyboardInterrupt
        (work / "next").unlink(missing_ok=True)
        (work / "next").symlink_to(stages[at])
        (work / "next").replace(brokers)

    JournalFollower(LazyEngines(options), options, go_on).follow()
    retain(options.lake, LAST_DAY, Progress("retain"))


def main() -> None:
    """See the module."""
    directory, what, first, stride = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    work = directory / "work"
    journal, lake = work / "journal", work / "lake"

    def act() -> None:
        with open(os.devnull, "w") as nowhere:
            progress = Progress(what, nowhere)
            if what == "ingest":
                fill(journal, lake)
            elif what == "follow":
                follow(work)
            elif what == "fill":
                fill(journal, lake, copies=(str(directory / "other"),))
            elif what == "compact":
                compact(str(lake), progress, 0)
            else:
                retain(str(lake), LAST_DAY, progress, 0)

    def act_until(step: int) -> None:
        FAULTS.fault_at(step)
        act()
        FAULTS.fault_at(0)

    def check_after_a_kill() -> None:
        for table in COMMIT_ORDER:
            rows = in_lake(lake, table)
            if what == "follow":
                assert rows <= every[table], (step, table)
                continue
            assert rows in (in_lake(directory / "lake", table), wanted(table)), (step, table)
            assert what != "fill" or not COMMIT_ORDER.index(table) or rows == wanted(table) or in_lake(lake, "holes")
            assert retained_in(str(lake)) is not None or table == "events" or rows != wanted(table) or what != "retain"

    def check_at_the_end() -> None:
        act()
        for table in COMMIT_ORDER:
            assert in_lake(lake, table) == wanted(table), (step, table)

    def wanted(table: str) -> Any:
        if what == "fill":
            return in_journal(directory / "other", table)
        if what not in ("retain", "follow"):
            return in_journal(journal, table)
        return in_lake(directory / "retained", table)

    def prepare() -> None:
        shutil.rmtree(work, ignore_errors=True)
        for name in ("journal", "lake", "stages"):
            if (directory / name).exists():
                shutil.copytree(directory / name, work / name)
        if what == "follow":
            (work / "brokers").symlink_to(work / "stages" / "0")

    every = {}
    if what == "follow":
        compacting.SMALL_MAX = 2
        retention.today = lambda: LAST_DAY + timedelta(1)
        newest = {path.name: path for path in sorted((directory / "stages").glob("*/*"))}.values()
        every = {table: sum((in_journal(path, table) for path in newest), Counter()) for table in COMMIT_ORDER}
        prepare()
        assert in_a_child(act) == 0
        lake.rename(directory / "retained")
    if what == "retain":
        shutil.copytree(directory / "lake", lake)
        assert in_a_child(act) == 0
        lake.rename(directory / "retained")

    step = first
    while True:
        prepare()
        ended = in_a_child(partial(act_until, step))
        if ended == 0:
            print(step)
            return
        assert ended == -signal.SIGKILL, (step, ended)
        assert in_a_child(check_after_a_kill) == 0, step
        assert in_a_child(check_at_the_end) == 0, step
        step += stride


main()
