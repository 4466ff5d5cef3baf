"""Many journals in one lake: the cost of their ingest, and jobs over all of them.

    python benchmarks/pipeline_fleet.py DIR --journals 50 --events 100000 [--master 'local-cluster[2,1,1024]']

Each journal has the traffic of pipeline.py with a seed of its own. One process ingests them; with --master Spark's
tasks do it again, into another lake, whose rows must be the same. Then jobs on DuckDB over the first lake: all nodes
together, CPU seconds with the start of the process. Journals stay for the next time.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
from pipeline_all import json_lines_of
from pipeline_engines import processor_seconds

from leveret.pipeline.lake.lake import committed_files
from leveret.pipeline.schemas import TABLES

HERE = Path(__file__).parent
JOBS = ("audit", "latency", "depth", "redelivery", "loss", "fairness", "deadletters")


def differing_rows(one: Path, other: Path) -> int:
    """The number of rows of any table that only one of two lakes has, by all of their columns."""
    found = 0
    for table in TABLES:
        files = [committed_files(str(lake), table) for lake in (one, other)]
        if not all(files):
            found += any(files)
            continue
        names = ", ".join(column.name for column in TABLES[table])
        queries = [f"SELECT {names}, node, count(*) AS n FROM read_parquet({paths}) GROUP BY ALL" for paths in files]
        for left, right in (queries, queries[::-1]):
            (count,) = duckdb.execute(f"SELECT count(*) FROM ({left} EXCEPT ALL {right})").fetchone() or (0,)
            found += count
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--journals", type=int, default=50)
    parser.add_argument("--events", type=int, default=100_000, help="of each journal")
    parser.add_argument("--master", help="also by Spark")
    options = parser.parse_args()
    root: Path = options.directory
    brokers, lake, by_spark = root / "brokers", root / "lake", root / "lake-by-spark"
    for number in range(options.journals):
        if not (path := brokers / f"broker-{number:02}").exists():
            json_lines_of(HERE / "pipeline.py", "journal", path, "--events", str(options.events), "--seed", str(number))
    octets = sum(path.stat().st_size for path in brokers.glob("*/*.log"))
    say("journals", {"count": options.journals, "octets": octets})
    one_process = json_lines_of(HERE / "pipeline.py", "ingest", brokers, "--lake", lake, "--cores", "1")
    say("one process", one_process[-1])
    again = processor_seconds([*command("ingest"), "--journal", str(brokers), "--lake", str(lake)])
    say("nothing new", {"cpu_seconds": round(again, 2)})
    if options.master:
        read = json_lines_of(HERE / "pipeline.py", "ingest", brokers, "--lake", by_spark, "--master", options.master)
        say("spark", {**read[-1], "differing_rows": differing_rows(lake, by_spark)})
    for job in JOBS:
        words = [*command(job), "--lake", str(lake), "--engine", "local", "--rows", "20"]
        say(job, {"cpu_seconds": round(processor_seconds(words), 2)})
    done = subprocess.run([*command("audit"), "--lake", str(lake), "--format", "json"], capture_output=True, text=True)
    facts = json.loads(done.stdout)
    say("audit over all", {"code": done.returncode, "fates": facts["fates"], "nodes": len(facts["nodes"])})


def command(job: str) -> list[str]:
    """The beginning of the command of a job."""
    return [sys.executable, "-m", "leveret.pipeline", job]


def say(what: str, figures: dict[str, Any]) -> None:
    """Print a line of JSON."""
    print(json.dumps({what: figures}), flush=True)


if __name__ == "__main__":
    main()
