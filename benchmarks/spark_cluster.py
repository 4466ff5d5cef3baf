"""A stand-alone cluster of Spark on this machine: a master and workers, each a process with its own Java.

    python benchmarks/spark_cluster.py DIR [--workers 2] [--memory 1g]

Prints the URL of the master when all workers have registered, and ends with its stdin. DIR gets the logs, and the
directories in which executors work. Executors that outlive their worker end with this program.
"""

import argparse
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pyspark

from leveret.pipeline.java import find_java

PR_SET_CHILD_SUBREAPER = 36
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"
START_SECONDS_MAX = 240


def start(running: ExitStack, environment: dict[str, str], log: Path, awaited: str, *arguments: str) -> str:
    """Start a part of the cluster, and wait until its log says what is awaited. Returns what the pattern finds.

    running: ends the process. Raises: SystemExit (it did not start).
    """
    stream = running.enter_context(log.open("w"))
    process = subprocess.Popen([str(SPARK_CLASS), *arguments], env=environment, stdout=stream, stderr=stream)
    running.callback(process.wait)
    running.callback(process.terminate)
    with subprocess.Popen(["tail", "-n", "+1", "-F", log], stdout=-1, stderr=-3, text=True) as tail:
        alarm = threading.Timer(START_SECONDS_MAX, tail.kill)
        alarm.start()
        try:
            for line in tail.stdout or ():
                if match := re.search(awaited, line):
                    return match[0]
        finally:
            alarm.cancel()
            tail.kill()
    raise SystemExit(f"{log} does not say {awaited!r}:\n{log.read_text()}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--workers", type=int, default=2, help="each with one core")
    parser.add_argument("--memory", default="1g", help="of each worker, for its executors")
    options = parser.parse_args()
    directory: Path = options.directory
    directory.mkdir(parents=True, exist_ok=True)
    # Python workers of an executor that was killed become children of this program, so that their CPU time is known.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment |= {"JAVA_HOME": find_java(os.environ, directory), "SPARK_WORKER_DIR": str(directory / "work")}
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as running:
        log = directory / "master.log"
        url = start(
            running, environment, log, r"spark://127\.0\.0\.1:\d+", f"{DEPLOY}.master.Master", *here, "--port", "0"
        )
        worker = (f"{DEPLOY}.worker.Worker", *here, "--cores", "1", "--memory", options.memory, url)
        for number in range(1, options.workers + 1):
            log = directory / f"worker-{number}.log"
            start(running, environment, log, "Successfully registered with master", *worker)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        print(url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
