"""The cost of jobs on a lake that `pipeline.py ingest` filled: audit, latency, depth, redelivery, loss, one session.

    python benchmarks/pipeline_jobs.py LAKE [LAKE ...]         # such as of 1, 3 and 10 million events

One line of JSON per lake: seconds of each job, their sum, and CPU seconds of this program and its Java. The clock
starts when Spark has answered its first query, which takes some 10 s once, whatever the lake's size.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leveret.pipeline.engines.local import LocalEngine
from leveret.pipeline.engines.protocol import Engine, value
from leveret.pipeline.engines.spark import SparkEngine
from leveret.pipeline.jobs.audit import audit
from leveret.pipeline.jobs.backlog import depth
from leveret.pipeline.jobs.failures import loss, redelivery
from leveret.pipeline.jobs.lives import lives_of
from leveret.pipeline.jobs.opening import open_tables
from leveret.pipeline.jobs.timing import latency
from leveret.pipeline.session import SessionOptions, open_session


def processor_seconds() -> float:
    """CPU seconds of this process, its Java, and their children."""
    ticks, group = 0, os.getpgrp()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended
        if int(fields[2]) == group:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(engine: Engine, lake: str) -> dict[str, Any]:
    """Run each job to its last row and drop the rows."""
    tables = open_tables(lake, engine)
    engine.view(tables.lives_view(), lives_of("events"), cached=True)  # all jobs begin with these
    jobs: dict[str, Callable[[], str]] = {
        "audit": lambda: audit(tables).faults,
        "latency": lambda: latency(tables),
        "depth": lambda: depth(tables),
        "redelivery": lambda: redelivery(tables),
        "loss": lambda: loss(tables),
    }
    figures: dict[str, Any] = {
        "lake": Path(lake).name,
        "engine": engine.name,
        "events": value(engine, "SELECT count(*) FROM events"),
    }
    began, processor = time.monotonic(), processor_seconds()
    for name, job in jobs.items():
        start = time.monotonic()
        if isinstance(engine, SparkEngine):
            engine.session.sql(job()).write.format("noop").mode("overwrite").save()
        else:
            engine.view("measured", job(), cached=True)
        figures[name] = round(time.monotonic() - start, 1)
    figures["seconds"] = round(time.monotonic() - began, 1)
    figures["processor_seconds"] = round(processor_seconds() - processor, 1)
    engine.close()
    return figures


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lakes", nargs="+")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--engine", choices=("spark", "local"), default="spark")
    options = parser.parse_args()
    if options.engine == "local":
        for lake in options.lakes:
            print(json.dumps(measure(LocalEngine(threads=options.cores), lake)), flush=True)
        return
    spark = open_session(SessionOptions(f"local[{options.cores}]", "jobs", "4g"))
    try:
        for lake in options.lakes:
            print(json.dumps(measure(SparkEngine(spark), lake)), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
