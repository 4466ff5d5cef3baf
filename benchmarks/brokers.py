"""Brokers as processes: starting one by a command line, and reading its figures from /proc."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pamqp import commands, frame

LOOPBACK = "127.0.0.1"
LEVERET = f"{shlex.quote(sys.executable)} -m leveret serve --management off --memory --listen {LOOPBACK}:{{port}}"
PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0
POLL_SECONDS = 0.005
OUTPUT_SHOWN = 4000


class BrokerFailed(Exception):
    """It did not speak AMQP on its port in time, or ended by itself; contains the end of its output."""


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that answers; `pid` is the process to measure."""

    name: str
    port: int
    pid: int

    @property
    def url(self) -> str:
        """AMQP URL of the default user."""
        return f"amqp://guest:guest@{LOOPBACK}:{self.port}/"


@contextmanager
def started(command: str, *, name: str = "leveret", wait: bool = True) -> Iterator[Running]:
    """Run a broker's command line, `{port}` and `{data}` in it replaced by a free port and an empty directory.

    Ended by SIGTERM, then SIGKILL.

    Without `wait` the body runs at once. Raises: BrokerFailed, also when it had ended by the time the body was done.
    """
    port = free_port()
    data = tempfile.mkdtemp(prefix="leveret-bench-")
    arguments = [part.replace("{port}", str(port)).replace("{data}", data) for part in shlex.split(command)]
    # Without stored byte code a broker compiles itself at every start, which an installed one does not.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            arguments, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            if wait:
                _wait_until_answering(process, port, output)
            yield Running(name, port, process.pid)
            if process.poll() is not None:
                raise BrokerFailed(_story(process, output))
        finally:
            _end(process)
            shutil.rmtree(data, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL if it does not end."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until_answering(process: subprocess.Popen[bytes], port: int, output: IO[str]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            server_properties(port)
            return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            raise BrokerFailed(_story(process, output))
        time.sleep(POLL_SECONDS)


def _story(process: subprocess.Popen[bytes], output: IO[str]) -> str:
    output.seek(0)
    what = "did not answer" if process.returncode is None else f"ended with {process.returncode}"
    return f"{process.args!r} {what}; the end of its output:\n{output.read()[-OUTPUT_SHOWN:]}"


def server_properties(port: int) -> dict[str, Any]:
    """The server properties of connection.start. Raises: OSError: it does not answer."""
    with socket.create_connection((LOOPBACK, port), timeout=5) as connection:
        connection.sendall(PROTOCOL_HEADER)
        data = b""
        while len(data) < 7 or len(data) < 8 + int.from_bytes(data[3:7]):
            more = connection.recv(65536)
            if not more:
                raise ConnectionError("closed before connection.start")
            data += more
    start = frame.unmarshal(data)[2]
    if not isinstance(start, commands.Connection.Start):
        raise ConnectionError(f"{start!r} instead of connection.start")
    return dict(start.server_properties or {})


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as holder:
        holder.bind((LOOPBACK, 0))
        return int(holder.getsockname()[1])


def rss_kb(pid: int) -> int:
    """Resident memory of a process, KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def descriptor_count(pid: int) -> int:
    """Open file descriptors of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def machine() -> dict[str, str | int | float]:
    """Facts about the machine for the figures, without its name or any path."""
    return {
        "cores": os.cpu_count() or 0,
        "cpu": _cpu_model(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}",
        "python_profile_guided": profile_guided(),
        "interpreter_ns_per_step": round(interpreter_ns_per_step(), 1),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else "unknown"


def profile_guided() -> str:
    """Whether this Python was built with profile-guided optimisation, as far as that is known."""
    if "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS")):
        return "yes (--enable-optimizations)"
    try:
        distribution = platform.freedesktop_os_release()
    except OSError:
        return "no (by sysconfig)"
    family = {distribution.get("ID", ""), *distribution.get("ID_LIKE", "").split()}
    # Debian's rules run `make profile-opt` themselves: nothing in sysconfig shows it.
    if "debian" in family and sys.base_prefix == "/usr":
        return "yes (Debian's package)"
    return "no (by sysconfig)"


def interpreter_ns_per_step() -> float:
    """A fixed loop of calls, slices and dict hits, best of five: compares Python builds whatever their flags say."""

    def step(data: bytes, routes: dict[bytes, int]) -> int:
        return routes[data[4:8]] + len(data)

    data, routes, steps = b"0123456789abcdef", {b"4567": 1}, 100_000
    best = float("inf")
    for _ in range(5):
        begin = time.process_time_ns()
        for _ in range(steps):
            step(data, routes)
        best = min(best, (time.process_time_ns() - begin) / steps)
    return best


def portable(command: Sequence[str]) -> str:
    """A command line for a published record: of absolute paths only the last part."""
    return re.sub(r"(?<![^\s'\"=])(?:/[^\s/'\"]+)+/", "", shlex.join(command))
