"""Many journals in one lake: the costs of their ingest, and of jobs over all of them, by this machine and by a cluster.

    python benchmarks/pipeline_fleet.py DIR --journals 50 --events 1000000 [--cluster] [--only ingest]

Each journal has the traffic of pipeline.py with a seed of its own. One process ingests them; with --cluster Spark's
tasks do it again, into another lake, whose rows must be the same, on a stand-alone cluster (spark_cluster.py) of a
master and two workers with one core each. Then jobs over the first lake: all nodes together, by DuckDB, each in a
process of its own, and on the cluster in one session (`leveret pipeline serve`), whose answers must be the same.
Journals and lakes stay for the next time.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from pipeline_all import json_lines_of
from pipeline_costs import ingest, measured

from leveret.pipeline.lake.lake import committed_files
from leveret.pipeline.schemas import TABLES

HERE = Path(__file__).parent
PIPELINE = (sys.executable, "-m", "leveret.pipeline")
JOBS = ("audit", "latency", "depth", "redelivery", "loss", "fairness", "deadletters")
#: The rest of a worker's memory is for its processes of Python.
OF_SPARK = ("--driver-memory", "1g", "--conf", "spark.executor.memory=1g", "--conf", "spark.executor.cores=1")


def differing_rows(one: str, other: str) -> int:
    """The number of rows that only one of two queries has."""
    found = 0
    for left, right in ((one, other), (other, one)):
        (count,) = duckdb.execute(f"SELECT count(*) FROM ({left} EXCEPT ALL {right})").fetchone() or (0,)
        found += count
    return found


def differing_rows_of_lakes(one: Path, other: Path) -> int:
    """The number of rows of any table that only one of two lakes has, by all of their columns."""
    found = 0
    for table in TABLES:
        files = [committed_files(str(lake), table) for lake in (one, other)]
        if not all(files):
            found += any(files)
            continue
        names = ", ".join(column.name for column in TABLES[table])
        queries = [f"SELECT {names}, node, count(*) AS n FROM read_parquet({paths}) GROUP BY ALL" for paths in files]
        found += differing_rows(queries[0], queries[1])
    return found


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """A cluster with two workers. Yields the URL of its master."""
    program = [sys.executable, str(HERE / "spark_cluster.py"), str(directory), "--memory", "1g"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


def run_ingests(root: Path, url: str) -> None:
    """Fill the lakes. `url`: of a cluster, or ""."""
    brokers, lake, by_spark = root / "brokers", root / "lake", root / "lake-by-spark"
    say("one process", ingest(brokers, lake, 1))
    with measured() as costs:
        subprocess.run([*PIPELINE, "ingest", "--journal", brokers, "--lake", lake], check=True, stdout=-3, stderr=-3)
    say("nothing new", costs)
    if url:
        costs = ingest(brokers, by_spark, 1, url, OF_SPARK)
        say("cluster", {**costs, "differing_rows": differing_rows_of_lakes(lake, by_spark)})


def run_jobs(root: Path, url: str) -> None:
    """Run the jobs on DuckDB and, if there is a cluster, on that."""
    for job in JOBS:
        with measured() as costs:
            done = subprocess.run([*PIPELINE, *words_of(job, root, "local")], capture_output=True, text=True)
        say(job, {**costs, "code": done.returncode, **facts_of(done.stdout)})
    if not url:
        return
    program = [*PIPELINE, "serve", "--master", url, *OF_SPARK]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        for job in JOBS:
            with measured(until_ended=False) as costs:
                print(" ".join(words_of(job, root, "spark")), file=process.stdin, flush=True)
                told = [process.stdout.readline()]
                while '"exit"' not in told[-1]:
                    assert told[-1], "serve has ended"
                    told.append(process.stdout.readline())
            answers = [answer_of(job, root, engine) for engine in ("local", "spark")]
            more = {
                "code": json.loads(told[-1])["exit"],
                **facts_of(told[0]),
                "differing_rows": differing_rows(*answers),
            }
            say(f"{job} on the cluster", {**costs, **more})


def words_of(job: str, root: Path, engine: str) -> list[str]:
    """A job as it is typed; its rows are written to a file."""
    return [job, "--lake", f"{root}/lake", "--engine", engine, "--format", "json", "--out", place_of(job, root, engine)]


def place_of(job: str, root: Path, engine: str) -> str:
    """The file, or directory of files, with the rows of an answer."""
    return f"{root}/{job}-{engine}.parquet"


def answer_of(job: str, root: Path, engine: str) -> str:
    """SQL of the rows of an answer."""
    place = place_of(job, root, engine)
    return f"SELECT * FROM read_parquet('{place}{'/*.parquet' if Path(place).is_dir() else ''}')"


def facts_of(line: str) -> dict[str, Any]:
    """What the line of JSON with a job's answer says of all nodes together."""
    return {name: value for name, value in json.loads(line).items() if name in ("rows", "fates", "faults")}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--journals", type=int, default=50)
    parser.add_argument("--events", type=int, default=100_000, help="of each journal")
    parser.add_argument("--cluster", action="store_true", help="also by Spark")
    parser.add_argument("--only", choices=("ingest", "jobs"))
    options = parser.parse_args()
    root: Path = options.directory
    brokers = root / "brokers"
    for number in range(options.journals):
        if not (path := brokers / f"broker-{number:02}").exists():
            json_lines_of(HERE / "pipeline.py", "journal", path, "--events", str(options.events), "--seed", str(number))
    octets = sum(path.stat().st_size for path in brokers.glob("*/*.log"))
    say("journals", {"count": options.journals, "octets": octets})
    for name, part in {"ingest": run_ingests, "jobs": run_jobs}.items():
        if options.only in (None, name):
            if not options.cluster:
                part(root, "")
                continue
            with cluster(root / "cluster") as url:
                part(root, url)


def say(what: str, figures: dict[str, Any]) -> None:
    """Print a line of JSON."""
    print(json.dumps({what: figures}), flush=True)


if __name__ == "__main__":
    main()
