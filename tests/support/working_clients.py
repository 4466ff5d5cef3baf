"""Clients of several libraries that publish with confirms while something happens to a cluster; what was confirmed.

Each is a program in the folder working_clients, of the form PROGRAM QUEUE PORT..., which prints the number of each
message that was confirmed, and takes the next port when it loses its connection.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent / "working_clients"
NODE_PACKAGES = Path(__file__).parents[2] / "interop/drivers/node"
PYTHON = ("pika", "aio_pika", "amqp", "kombu")


def programs(directory: Path) -> dict[str, list[str]]:
    """Command by name: Python's clients, and those of Go and Node where their packages are on this machine already."""
    found = {name: [sys.executable, str(HERE / f"{name}_client.py")] for name in PYTHON}
    if shutil.which("go"):
        program = directory / "go-client"
        environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOPROXY": "off"}
        shutil.copytree(HERE / "go", directory / "go")
        if _has_built(["go", "build", "-o", str(program), "."], directory / "go", environment):
            found["amqp091-go"] = [str(program)]
    if shutil.which("npm"):
        shutil.copytree(HERE / "node", directory / "node")
        for name in ("package.json", "package-lock.json"):
            shutil.copy(NODE_PACKAGES / name, directory / "node")
        if _has_built(["npm", "ci", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"], directory / "node"):
            found["amqplib"] = ["node", str(directory / "node/client.js")]
    return found


def _has_built(command: list[str], where: Path, environment: dict[str, str] | None = None) -> bool:
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, timeout=300).returncode == 0


class WorkingClient:
    """One that runs. `confirmed`: (number, seconds of the monotonic clock when it said so), in that order."""

    def __init__(self, name: str, command: list[str], queue: str, ports: list[int]) -> None:
        self.name, self.queue = name, queue
        self.confirmed: list[tuple[int, float]] = []
        self._process = subprocess.Popen(
            [*command, queue, *map(str, ports)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.confirmed.append((int(line), time.monotonic()))

    @property
    def has_ended(self) -> bool:
        """Whether its program gave up."""
        return self._process.poll() is not None

    def errors(self) -> str:
        """What it wrote of itself, once it has ended."""
        assert self._process.stderr is not None
        return self._process.stderr.read()

    def longest_gap_s(self, since_s: float, until_s: float) -> float:
        """The longest time without a confirm that touches this stretch."""
        times = [at_s for _, at_s in self.confirmed]
        pairs = zip(times, times[1:])
        return max((after - before for before, after in pairs if after >= since_s and before <= until_s), default=0.0)

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._reader.join()


@contextmanager
def working_clients(commands: dict[str, list[str]], ports: list[int]) -> Iterator[list[WorkingClient]]:
    """All at once, each with a queue of its own name, and beginning with another node."""
    clients: list[WorkingClient] = []
    try:
        for index, (name, command) in enumerate(commands.items()):
            turned = [ports[(index + step) % len(ports)] for step in range(len(ports))]
            clients.append(WorkingClient(name, command, name, turned))
        yield clients
    finally:
        for client in clients:
            client.stop()
