"""Environments and options of foreign programs (suites, workers) that run on a fresh RabbitMQ and a fresh leveret."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ..brokers.peers import WITHOUT_RABBITMQ, find_rabbitmq
from ..brokers.processes import unwind_on_sigterm

BROKERS = ("rabbitmq", "leveret")


def among(names: Collection[str]) -> Callable[[str], list[str]]:
    """The type of an option that takes some of these names, by comma."""

    def parsed(text: str) -> list[str]:
        unknown = [name for name in text.split(",") if name not in names]
        if unknown:
            raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)} (there are {', '.join(names)})")
        return text.split(",")

    return parsed


def parser(module: str, description: str, names: Collection[str], work: str, out: str) -> argparse.ArgumentParser:
    """The options that `python -m leveret.interop.MODULE` has in common with others. `names`: for `--only`."""
    made = argparse.ArgumentParser(prog=f"python -m leveret.interop.{module}", description=description.split("\n")[0])
    made.add_argument("--only", type=among(names), help=f"some of them, by comma: {', '.join(names)}")
    made.add_argument("--broker", choices=(*BROKERS, "both"), default="both")
    made.add_argument("--follower", action="store_true", help="leveret is a cluster, reached through a follower")
    made.add_argument("--work", type=Path, default=Path(work), help="environments, sources and results")
    made.add_argument("--out", type=Path, help=f"where the report goes (default: {out} in the work directory)")
    return made


def parse(made: argparse.ArgumentParser, arguments: Sequence[str] | None) -> tuple[argparse.Namespace, tuple[str, ...]]:
    """The options of a `parser`, and the requested brokers. Also makes SIGTERM end child processes.

    Raises: SystemExit, with 2: the options are invalid, or RabbitMQ is requested and not installed.
    """
    options = made.parse_args(arguments)
    brokers = BROKERS if options.broker == "both" else (options.broker,)
    if "rabbitmq" in brokers and find_rabbitmq() is None:
        made.error(WITHOUT_RABBITMQ)
    unwind_on_sigterm()
    return options, brokers


class Environment:
    """A Python environment in `home` with these requirements. `is_made`: whether it exists."""

    def __init__(self, home: Path, *requirements: str) -> None:
        self.home, self.python = home, home / "venv" / "bin" / "python"
        self._requirements = requirements
        self._stamp = home / "installed"
        self._wanted = f"{sys.executable} {sys.version}\n" + "\n".join(requirements)

    @property
    def is_made(self) -> bool:
        return self._stamp.exists() and self._stamp.read_text() == self._wanted

    def install(self) -> Path:
        """Install the requirements, unless they are installed. Returns the path of its Python.

        Raises: subprocess.CalledProcessError: pip failed (its output is on stderr).
        """
        if not self.is_made:
            self.begin(", ".join(self._requirements))
            self.pip("install", *self._requirements)
            self.finish()
        return self.python

    def begin(self, what: str) -> None:
        """Create an empty environment. Raises: subprocess.CalledProcessError."""
        shutil.rmtree(self.home, ignore_errors=True)
        print(f"installing {what} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", self.home / "venv"], check=True)

    def pip(self, *arguments: str | Path) -> None:
        """Run pip. Raises: subprocess.CalledProcessError; pip's output is on stderr."""
        subprocess.run([self.python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)

    def finish(self) -> None:
        """Mark the environment as complete, for later runs."""
        self._stamp.write_text(self._wanted)
