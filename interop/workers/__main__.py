"""Run real workers of task frameworks against a fresh RabbitMQ and a fresh leveret, and compare the outcomes.

    python -m leveret.interop.workers [--only celery,dramatiq] [--broker leveret|rabbitmq|both] [-k SCENARIO]
                                      [--follower]

Each framework has a small application (`work_celery.py`, ...) and its own environment with pinned versions in the work
directory. Its scenarios run by the same code on both brokers: with real worker processes, with workers that are killed
during a task, and with a broker that is killed during a task and started again with its files (with `--follower`: the
leader of a cluster, while clients are connected to a follower). Exit code 1: an outcome differs from RabbitMQ's, or a
scenario failed on leveret. 2: something could not be run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..brokers.follower import leveret_follower
from ..brokers.peers import Peer, durable_leveret, rabbitmq
from ..brokers.processes import PeerFailed, kill_group
from ..running.foreign import Environment, parse, parser
from .frameworks import FRAMEWORKS
from .outcomes import Run, differences, render, word

HERE = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser("workers", __doc__ or "", FRAMEWORKS, ".peers/workers", "workers.json")
    made.add_argument("-k", default="", help="only these scenarios, by comma")
    options, brokers = parse(made, arguments)
    results: dict[str, dict[str, Run]] = {}
    for name in options.only or FRAMEWORKS:
        try:
            python = Environment(options.work.resolve() / name, *FRAMEWORKS[name]).install()
            results[name] = {
                broker: run(name, python, broker, options.k, is_follower=options.follower) for broker in brokers
            }
        except (PeerFailed, subprocess.CalledProcessError) as error:
            print(f"{name} could not be run: {error}", file=sys.stderr)
            return 2
    out = options.out or options.work / "workers.json"
    data = {name: {broker: asdict(run) for broker, run in runs.items()} for name, runs in results.items()}
    out.write_text(json.dumps(data, indent=1) + "\n")
    differing = [line for name, runs in results.items() for line in differences(name, runs)]
    print("", render(results), *differing, sep="\n")
    return 1 if differing else 0


def run(name: str, python: Path | str, broker: str, scenarios: str = "", *, is_follower: bool = False) -> Run:
    """Run an application's scenarios, all or those named, on a fresh broker with a journal.

    `is_follower`: leveret is a cluster, and its clients are connected to a follower.

    Raises: PeerFailed: the broker did not start. subprocess.CalledProcessError: the application did not run.
    """
    ours = leveret_follower if is_follower else durable_leveret
    with rabbitmq() if broker == "rabbitmq" else ours() as peer:
        return run_on(peer, name, python, scenarios)


def run_on(peer: Peer, name: str, python: Path | str, scenarios: str = "") -> Run:
    """Run an application's scenarios on a broker, in an empty directory."""
    found = Run()
    with tempfile.TemporaryDirectory(prefix="leveret-workers-", ignore_cleanup_errors=True) as directory:
        for file in ("trial.py", f"work_{name}.py"):
            shutil.copy(HERE / file, directory)
        command = [python, "trial.py", f"work_{name}", *(scenarios.split(",") if scenarios else ())]
        process = subprocess.Popen(
            command, cwd=directory, env=_environment(peer, directory), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            for line in process.stdout:
                entry = json.loads(line)
                if "restart" in entry:
                    peer.restart(kill=True)
                    print("back", file=process.stdin, flush=True)
                elif "versions" in entry:
                    found.versions = entry["versions"]
                else:
                    found.outcomes[entry["scenario"]] = entry
                    print(f"{name} on {peer.name}: {entry['scenario']} {word(entry)}", flush=True)
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, process.args)
        finally:
            kill_group(process)
    return found


def _environment(peer: Peer, directory: str) -> dict[str, str]:
    """The environment of an application: the variables for its broker and modules, and our search path."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": directory,
        "LANG": "C.UTF-8",
        "PYTHONPATH": directory,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "BROKER_URL": peer.url,
        "LEDGER": str(Path(directory) / "ledger"),
    }


if __name__ == "__main__":
    sys.exit(main())
