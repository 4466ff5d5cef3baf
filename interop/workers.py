"""Run real workers of task frameworks against a fresh RabbitMQ and a fresh leveret, and compare what came out.

    python -m leveret.interop.workers [--only celery,dramatiq] [--broker leveret|rabbitmq|both] [-k SCENARIO]

Each framework is a small application (`work_celery.py`, ...) with pinned versions in an environment of its own under
the work directory (made once). Its scenarios run by the same code against either broker: real worker processes, workers
killed in the middle of a job, the broker killed in the middle and started again on its files. Exit code 1: an outcome
differs from RabbitMQ's, or a scenario failed on leveret. Exit code 2: something could not be run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .foreign import BROKERS, Environment, chosen, parser
from .peers import Peer, PeerFailed, durable_leveret, kill_group, rabbitmq

HERE = Path(__file__).parent

#: Framework -> what its environment has, pinned. Each has an application `work_NAME.py` beside this file.
FRAMEWORKS = {
    "celery": ("celery==5.7.0", "kombu==5.7.0", "amqp==5.4.2", "billiard==4.3.2"),
    "dramatiq": ("dramatiq[rabbitmq]==2.2.1", "pika==1.4.4"),
    "faststream": ("faststream[rabbit,cli]==0.7.8", "aio-pika==10.2.1", "aiormq==7.2.4", "pamqp==4.0.1"),
    "taskiq": ("taskiq==0.13.0", "taskiq-aio-pika==0.6.1", "aio-pika==10.2.1", "aiormq==7.2.4", "pamqp==4.0.1"),
    "nameko": ("nameko==2.14.1", "kombu==5.7.0", "amqp==5.4.2", "eventlet==0.41.3"),
}


@dataclass(slots=True)
class Run:
    """What an application's scenarios did on one broker: outcomes by scenario, as `trial.py` prints them."""

    versions: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        names, brokers = chosen(options, list(FRAMEWORKS))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    results: dict[str, dict[str, Run]] = {}
    for name in names:
        try:
            python = install(name, options.work.resolve())
            results[name] = {broker: run(name, python, broker, options.k) for broker in brokers}
        except (PeerFailed, subprocess.CalledProcessError) as error:
            print(f"{name} could not be run: {error}", file=sys.stderr)
            return 2
    out = options.out or options.work / "workers.json"
    out.write_text(json.dumps({name: _as_data(runs) for name, runs in results.items()}, indent=1) + "\n")
    differing = [line for name, runs in results.items() for line in differences(name, runs)]
    print("", render(results), *differing, sep="\n")
    return 1 if differing else 0


def _parser() -> argparse.ArgumentParser:
    made = parser("workers", __doc__ or "", FRAMEWORKS, ".peers/workers", "workers.json")
    made.add_argument("-k", default="", help="only these scenarios, by comma")
    return made


def install(name: str, work: Path) -> Path:
    """The Python of the framework's environment; nothing is done when that stands already.

    Raises: subprocess.CalledProcessError: pip failed (its output is on stderr).
    """
    environment = Environment(work / name, *FRAMEWORKS[name])
    if not environment.is_made:
        environment.begin(", ".join(FRAMEWORKS[name]))
        environment.pip("install", *FRAMEWORKS[name])
        environment.finish()
    return environment.python


def run(name: str, python: Path | str, broker: str, scenarios: str = "") -> Run:
    """Run the application's scenarios (all, or those named by comma) on a fresh broker that keeps a journal.

    Raises: PeerFailed: the broker did not come up. subprocess.CalledProcessError: the application did not run.
    """
    with rabbitmq() if broker == "rabbitmq" else durable_leveret() as peer:
        return run_on(peer, name, python, scenarios)


def run_on(peer: Peer, name: str, python: Path | str, scenarios: str = "") -> Run:
    """Run the application's scenarios on this broker, in a directory of its own."""
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
                said = json.loads(line)
                if "restart" in said:
                    peer.restart(kill=True)
                    print("back", file=process.stdin, flush=True)
                elif "versions" in said:
                    found.versions = said["versions"]
                else:
                    found.outcomes[said["scenario"]] = said
                    print(f"{name} on {peer.name}: {said['scenario']} {_word(said)}", flush=True)
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, process.args)
        finally:
            kill_group(process)
    return found


def _environment(peer: Peer, directory: str) -> dict[str, str]:
    """Where an application finds its broker and its modules; of our own environment only the search path."""
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


def differences(name: str, runs: dict[str, Run]) -> list[str]:
    """What is not as it should be: scenarios that failed on leveret, and outcomes that are not RabbitMQ's."""
    lines = []
    ours, theirs = runs.get("leveret"), runs.get("rabbitmq")
    for label, outcome in (ours.outcomes if ours else {}).items():
        peer = theirs.outcomes.get(label, {}) if theirs else {}
        if "failed" in outcome and "failed" not in peer:
            lines.append(f"{name}: {label} failed on leveret: {outcome['failed']}\n{outcome['detail']}")
        elif theirs and outcome.get("facts") != peer.get("facts"):
            lines.append(f"{name}: {label}: leveret {outcome.get('facts')}, rabbitmq {peer.get('facts', peer)}")
    return lines


def render(results: dict[str, dict[str, Run]]) -> str:
    """The table of docs/workers.md: a row a scenario, with the seconds on each broker."""
    lines = ["| | scenario | RabbitMQ | Leveret |", "|---|---|---|---|"]
    for runs in results.values():
        some = next(iter(runs.values()))
        versions = ", ".join(f"{one} {number}" for one, number in some.versions.items())
        for index, (label, outcome) in enumerate(some.outcomes.items()):
            words = [_word(runs[broker].outcomes.get(label)) if broker in runs else "" for broker in BROKERS]
            about = f"`{label}`: {outcome['about']}"
            lines.append(f"| {versions if index == 0 else ''} | {about} | {words[0]} | {words[1]} |")
    return "\n".join(lines)


def _word(outcome: dict[str, Any] | None) -> str:
    if outcome is None:
        return "not run"
    return f"{'FAILED' if 'failed' in outcome else 'as told'} ({outcome['seconds']:.1f} s)"


def _as_data(runs: dict[str, Run]) -> dict[str, Any]:
    return {broker: {"versions": run.versions, "outcomes": run.outcomes} for broker, run in runs.items()}


if __name__ == "__main__":
    sys.exit(main())
