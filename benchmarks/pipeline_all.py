"""All measurements of the data pipeline, into one file of results.

    python benchmarks/pipeline_all.py .bench-pipeline --out benchmarks/results/pipeline.json

Journals of one and of ten million events (kept in the directory for the next time), ingested; five jobs on each lake;
a streaming query over a running broker, both killed; the same for stream queues by offset. Some 4 GB of disk. Goals are
listed beside the figures. `--only ingest,jobs` replaces only those figures in the file; `--only scale` has fifty
million, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from brokers import machine

from leveret.interop.brokers.peers import find_rabbitmq

HERE = Path(__file__).parent
EVENTS = {"1m": 1_000_000, "10m": 10_000_000}
SCALE = {"3m": 3_000_000, "10m": 10_000_000, "50m": 50_000_000}
INGEST_SECONDS_MAX, JOBS_SECONDS_MAX = 45, 60


def json_lines_of(*arguments: str | Path) -> list[dict[str, Any]]:
    """The lines of JSON that a benchmark prints. Raises: CalledProcessError."""
    done = subprocess.run([sys.executable, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        done.check_returncode()
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def ingests(where: Path) -> dict[str, Any]:
    """Ingest each journal into a lake."""
    return {"goal_seconds_of_10m": INGEST_SECONDS_MAX, **_ingested(where, EVENTS)}


def scale(where: Path) -> dict[str, Any]:
    """The same of larger ones, some 7 GB of disk, and what a thousand million events would take by the slope."""
    found = _ingested(where, SCALE)
    small, large = (found[name]["cpu_seconds"] for name in ("10m", "50m"))
    a_million = (large - small) / ((SCALE["50m"] - SCALE["10m"]) / 1e6)
    more = {"cpu_seconds_of_a_million": round(a_million, 2), "cpu_seconds_of_1000m": round(large + 950 * a_million)}
    return {**found, "by_slope": more}


def _ingested(where: Path, wanted: dict[str, int]) -> dict[str, Any]:
    """Figures by name; a journal that does not exist is written."""
    found = {}
    for name, events in wanted.items():
        journal = where / f"journal-{name}"
        if not (journal / "format").exists():
            json_lines_of(HERE / "pipeline.py", "journal", journal, "--events", str(events))
        found[name] = json_lines_of(HERE / "pipeline.py", "ingest", journal, "--lake", where / f"lake-{name}")[-1]
    return found


def jobs(where: Path) -> dict[str, Any]:
    """The jobs on each lake, each in a process of its own for equal conditions."""
    found: dict[str, Any] = {"goal_seconds_of_10m": JOBS_SECONDS_MAX}
    for name in EVENTS:
        (found[name],) = json_lines_of(HERE / "pipeline_jobs.py", where / f"lake-{name}")
        found[name]["load_average"] = os.getloadavg()[0]
    return found


def live(where: Path) -> dict[str, Any]:
    """Queries that are killed."""
    program, directory = HERE / "pipeline_live.py", where / "live"
    found = {
        "query_killed": json_lines_of(program, directory, "--kills", "3")[-1],
        "broker_killed_too": json_lines_of(program, directory, "--kills", "2", "--broker-kills", "1")[-1],
        "stream_queue_of_leveret": json_lines_of(program, directory, "--kills", "2", "--source", "amqp")[-1],
    }
    if find_rabbitmq() is not None:
        more = ("--kills", "2", "--source", "amqp", "--peer", "rabbitmq")
        found["stream_queue_of_rabbitmq"] = json_lines_of(program, directory, *more)[-1]
    return found


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {"ingest": ingests, "jobs": jobs, "live": live, "scale": scale}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="ingest,jobs,live", help="of " + ", ".join(PARTS))
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.only.split(","):
        figures = PARTS[name](options.directory)
        stamp = {"date": datetime.now(UTC).date().isoformat(), "command": f"pipeline_all.py --only {name}"}
        stamp["nice"] = str(os.nice(0))
        results = {**results, "machine": machine(), name: {**stamp, **figures}}
        options.out.write_text(json.dumps(results, indent=1) + "\n")
        print(json.dumps({name: figures}), flush=True)


if __name__ == "__main__":
    main()
