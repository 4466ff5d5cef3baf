"""Many journals in one lake: the costs of their ingest, and of jobs over all of them, by this machine and by a cluster.

    python benchmarks/pipeline_fleet.py DIR --journals 50 --events 1000000 [--only PART]

Each journal has the traffic of pipeline.py with a seed of its own. One process ingests them; then Spark's tasks do it
again, into another lake, whose rows must be the same, on a stand-alone cluster (spark_cluster.py) of a master and two
workers with one core each. Then jobs over the first lake: all nodes together, by DuckDB, each in a process of its own,
and on the cluster in one session (`leveret pipeline serve`), whose answers must be the same. Journals and lakes stay
for the next time.
"""

import argparse
import json
import os
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
from leveret.pipeline.schemas import TABLES, stored

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


def differing_tables(one: Path, other: Path) -> list[str]:
    """The tables of which two lakes do not have the same rows, by the number and the sum of hashes for each node."""
    found = []
    for table in TABLES:
        files = [committed_files(str(lake), table) for lake in (one, other)]
        names = ", ".join(column.name for column in stored(table))
        sums = f"SELECT node, count(*), sum(hash({names})) FROM read_parquet({{}}) GROUP BY node ORDER BY node"
        answers = [duckdb.execute(sums.format(paths)).fetchall() if paths else [] for paths in files]
        found += [table] if answers[0] != answers[1] else []
    return found


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """A cluster with two workers. Yields the URL of its master."""
    program = [sys.executable, str(HERE / "spark_cluster.py"), str(directory), "--memory", "1g"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


def ingest_here(root: Path) -> None:
    """Fill a lake by one process."""
    say("one process", ingest(root / "brokers", root / "lake", 1))
    with measured() as costs:
        words = ["ingest", "--journal", str(root / "brokers"), "--lake", str(root / "lake")]
        subprocess.run([*PIPELINE, *words], check=True, stdout=-3, stderr=-3)
    say("nothing new", costs)


def ingest_on_cluster(root: Path) -> None:
    """Fill another lake by the tasks of a cluster, and compare the rows."""
    with cluster(root / "cluster") as url:
        say("cluster", ingest(root / "brokers", root / "lake-by-spark", 1, url, OF_SPARK))
    say("rows", {"differing_tables": differing_tables(root / "lake", root / "lake-by-spark")})


def jobs_here(root: Path) -> None:
    """Run each job by DuckDB, in a process."""
    for job in JOBS:
        with measured() as costs:
            done = subprocess.run([*PIPELINE, *words_of(job, root, "local")], capture_output=True, text=True)
        more = {"code": done.returncode, **facts_of(done.stdout)}
        say(job, {**costs, **more, "load_average": os.getloadavg()[0]})


def jobs_on_cluster(root: Path) -> None:
    """Run the jobs on a cluster, in one session."""
    with cluster(root / "cluster") as url:
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
                more = {"code": json.loads(told[-1])["exit"], **facts_of(told[0])}
                say(f"{job} on the cluster", {**costs, **more, "load_average": os.getloadavg()[0]})


def compare_answers(root: Path) -> None:
    """Compare the rows of both engines."""
    for job in JOBS:
        answers = [answer_of(job, root, engine) for engine in ("local", "spark")]
        say(f"{job}, rows", {"differing": differing_rows(answers[0], answers[1])})


#: What is measured, in this order.
PARTS = {
    "ingest": ingest_here,
    "cluster-ingest": ingest_on_cluster,
    "jobs": jobs_here,
    "cluster-jobs": jobs_on_cluster,
    "compare": compare_answers,
}


def words_of(job: str, root: Path, engine: str) -> list[str]:
    """A job as it is typed; its rows are written to a file."""
    return [job, "--lake", f"{root}/lake", "--engine", engine, "--out", place_of(job, root, engine)]


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
    parser.add_argument("--only", action="append", default=[], choices=list(PARTS), help="may be repeated")
    options = parser.parse_args()
    root: Path = options.directory
    brokers = root / "brokers"
    for number in range(options.journals):
        if not (path := brokers / f"broker-{number:02}").exists():
            json_lines_of(HERE / "pipeline.py", "journal", path, "--events", str(options.events), "--seed", str(number))
    octets = sum(path.stat().st_size for path in brokers.glob("*/*.log"))
    say("journals", {"count": options.journals, "octets": octets})
    for name, part in PARTS.items():
        if not options.only or name in options.only:
            part(root)


def say(what: str, figures: dict[str, Any]) -> None:
    """Print a line of JSON."""
    print(json.dumps({what: figures}), flush=True)


if __name__ == "__main__":
    main()
