"""What a question to a lake costs: our jobs on DuckDB and on Spark, beside queries written by hand for either.

    python benchmarks/pipeline.py journal J --events 811000        # some 200,000 messages
    python -m leveret.pipeline ingest --journal J --lake LAKE --payloads
    python benchmarks/pipeline_engines.py LAKE [--rounds 3] [--only JOB] [--spark [ROUNDS]]

Each figure is the CPU time (user and system) of a whole process, with its start, its imports and all of its children,
in seconds: the median of the rounds. By hand: what somebody would type who knows the tables, in a process that imports
nothing but DuckDB (or Spark) and prints the result; it answers less than the job does (no sentences about faults, no
checkpoints and no order within queues in the audit, no ages of what was lost, no windows without events, no leases and
no names of connections in fairness).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipeline_costs import measured

from leveret.pipeline.lake.lake import committed_files

TERMINAL = "('acked','expired','dead_lettered','killed','evicted','replaced','dropped','purged','deleted','cancelled')"
#: In SQL that DuckDB and Spark take.
BY_HAND = {
    "trace": "SELECT * FROM events WHERE msg_id = 77 ORDER BY lsn",
    "loss": (
        "SELECT e.vhost, e.queue, e.kind, date_trunc('minute', e.ts) AS slot, count(*) AS n, sum(q.size_bytes) AS bytes"
        " FROM events e JOIN events q ON q.msg_id = e.msg_id AND q.queue = e.queue AND q.kind = 'enqueued'"
        " WHERE e.kind IN ('evicted','replaced','expired','dropped','killed')"
        " GROUP BY e.vhost, e.queue, e.kind, date_trunc('minute', e.ts)"
    ),
    "audit": (
        "SELECT * FROM (SELECT msg_id, vhost, queue, count_if(kind = 'enqueued') AS came,"
        f" count_if(kind IN {TERMINAL}) AS went, min(IF(kind = 'enqueued', lsn, NULL)) AS first_lsn,"
        f" min(IF(kind IN {TERMINAL}, lsn, NULL)) AS last_lsn"
        " FROM events WHERE msg_id > 0 AND queue <> '' GROUP BY msg_id, vhost, queue) AS folded"
        " WHERE came <> 1 OR went > 1 OR last_lsn < first_lsn"
    ),
    "depth": (
        "SELECT vhost, queue, date_trunc('minute', ts) AS slot, min(level) AS least, max(level) AS most,"
        " max_by(level, lsn) AS depth FROM ("
        "SELECT *, sum(IF(kind = 'enqueued', 1, -1)) OVER (PARTITION BY vhost, queue ORDER BY lsn) AS level"
        f" FROM events WHERE msg_id > 0 AND queue <> '' AND (kind = 'enqueued' OR kind IN {TERMINAL})) AS levels"
        " GROUP BY vhost, queue, date_trunc('minute', ts) ORDER BY vhost, queue, slot"
    ),
    "fairness": (
        "SELECT vhost, queue, consumer, conn_id, sum(n) AS n, count(acked) AS acks,"
        " percentile_cont(0.5) WITHIN GROUP (ORDER BY unix_micros(acked) - unix_micros(delivered)) AS p50,"
        " percentile_cont(0.95) WITHIN GROUP (ORDER BY unix_micros(acked) - unix_micros(delivered)) AS p95,"
        " max(unix_micros(acked) - unix_micros(delivered)) AS longest FROM ("
        "SELECT vhost, queue, consumer, conn_id, msg_id, count_if(kind = 'delivered') AS n,"
        " max(IF(kind = 'delivered', ts, NULL)) AS delivered, max(IF(kind = 'acked', ts, NULL)) AS acked"
        " FROM events WHERE kind IN ('delivered', 'acked') GROUP BY vhost, queue, consumer, conn_id, msg_id) AS handed"
        " GROUP BY vhost, queue, consumer, conn_id ORDER BY vhost, queue, consumer, conn_id"
    ),
}
JOBS: dict[str, list[str]] = {
    "trace": ["77"],
    "loss": [],
    "audit": [],
    "depth": [],
    "latency": [],
    "redelivery": [],
    "fairness": [],
    "blocked": [],
    "deadletters": [],
    "replay": ["--where", "kind = 'dead_lettered'"],
    "report": [],
}
IN_DUCKDB = """
import duckdb, sys
duckdb.execute("SET TimeZone = 'UTC'")
duckdb.execute("CREATE MACRO unix_micros(t) AS epoch_us(t)")
duckdb.execute("CREATE VIEW events AS SELECT * FROM read_parquet(" + sys.argv[1] + ")")
print(duckdb.execute(sys.argv[2]).fetchall()[:20])
"""
IN_SPARK = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.read.parquet(*json.loads(sys.argv[1])).createOrReplaceTempView("events")
print(spark.sql(sys.argv[2]).collect()[:20])
spark.stop()
"""


def processor_seconds(command: list[str]) -> float:
    """CPU seconds of a process and all that it starts. Raises: CalledProcessError."""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with measured() as found:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    return found["cpu_seconds"]


def measure(lake: str, rounds: int, only: list[str], rounds_of_spark: int) -> dict[str, Any]:
    """By job: seconds of each way. `only`: these jobs; none: all."""
    files = committed_files(lake, "events")
    listed = "[" + ", ".join("'" + path.replace("'", "''") + "'" for path in files) + "]"
    found: dict[str, Any] = {}
    for job, more in JOBS.items():
        if only and job not in only:
            continue
        if job == "report":
            more = ["--out", str(Path(lake).parent / "measured-report.html")]
        ours = [sys.executable, "-m", "leveret.pipeline", job, *more, "--lake", lake, "--rows", "20", "--engine"]
        ways = {"local": [*ours, "local"]}
        if job in BY_HAND:
            ways["duckdb_by_hand"] = [sys.executable, "-c", IN_DUCKDB, listed, BY_HAND[job]]
        if rounds_of_spark:
            ways["spark"] = [*ours, "spark", "--master", "local[2]"]
            if job in BY_HAND:
                ways["spark_by_hand"] = [sys.executable, "-c", IN_SPARK, json.dumps(files), BY_HAND[job]]
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(max(rounds, rounds_of_spark)):
            for way, command in ways.items():
                if number < (rounds_of_spark if "spark" in way else rounds):
                    taken[way].append(processor_seconds(command))
        found[job] = {way: round(statistics.median(seconds), 2) for way, seconds in taken.items()}
        if job in BY_HAND:
            found[job]["times_by_hand"] = round(found[job]["local"] / found[job]["duckdb_by_hand"], 1)
            if rounds_of_spark:
                found[job]["times_by_hand_of_spark"] = round(found[job]["spark"] / found[job]["spark_by_hand"], 2)
        print(json.dumps({job: found[job]}), flush=True)
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lake")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], choices=list(JOBS), help="may be repeated")
    text = "also what Spark takes, in so many rounds (1): a minute a job and round"
    parser.add_argument("--spark", type=int, nargs="?", const=1, default=0, metavar="ROUNDS", help=text)
    parser.add_argument("--out", type=Path, help="write the figures there, as JSON")
    options = parser.parse_args()
    found = measure(options.lake, options.rounds, options.only, options.spark)
    if options.out:
        load = {"load_average": round(os.getloadavg()[0], 1)}
        options.out.write_text(json.dumps({"jobs": found, **load}, indent=1) + "\n")


if __name__ == "__main__":
    main()
