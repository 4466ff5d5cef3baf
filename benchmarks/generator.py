"""The load generator as a function: build it, run it, read its output."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scenarios import Scenario

SOURCE = Path(__file__).parent / "load" / "amqp_load.c"
PROGRAM = Path(__file__).parent / "bin" / "amqp_load"
COMPILER = "gcc"
RUN_SECONDS_MAX = 300.0
WITHOUT_COMPILER = f"no {COMPILER} on this machine: the load generator cannot be built"


class CheckFailed(Exception):
    """The generator found missing, repeated, reordered or damaged messages, or could not finish; the message says
    which."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run. Rates per second, CPU in seconds per million messages, latency in microseconds."""

    elapsed_s: float
    messages: int
    rate: float
    cpu_s_per_million: float
    generator_cpu_s: float
    p50_us: float | None = None
    p99_us: float | None = None
    rss_bytes_per_message: float | None = None

    def as_json(self) -> dict[str, float]:
        """Without the fields that this scenario does not have."""
        return {name: round(value, 4) for name, value in asdict(self).items() if value is not None}


def build() -> None:
    """Compile the generator unless the program is newer than its source; with TLS where OpenSSL's headers are.

    Raises: FileNotFoundError: no compiler. CalledProcessError.
    """
    if PROGRAM.exists() and PROGRAM.stat().st_mtime >= SOURCE.stat().st_mtime:
        return
    if shutil.which(COMPILER) is None:
        raise FileNotFoundError(WITHOUT_COMPILER)
    PROGRAM.parent.mkdir(exist_ok=True)
    unfinished = PROGRAM.with_suffix(".new")  # two test runs may build at once: the last rename wins
    warnings = ["-Wall", "-Wno-misleading-indentation"]
    command = [COMPILER, "-O2", *warnings, "-o", str(unfinished), str(SOURCE), "-lpthread"]
    if subprocess.run([*command, "-DWITH_TLS", "-lssl", "-lcrypto"], stderr=subprocess.DEVNULL).returncode:
        subprocess.run(command, check=True)
    unfinished.replace(PROGRAM)


def run(scenario: Scenario, port: int, pid: int, *, count: int = 0, seconds: float = 0.0) -> Figures:
    """One run of `count` messages, or of `seconds` if it is a paced load. Raises: CheckFailed."""
    length = ["--time", f"{seconds:.3f}"] if scenario.paced else ["--count", str(count)]
    raw = call([*scenario.flags, *length, "--port", str(port), "--pid", str(pid)])
    if raw["mode"] == "backlog":
        elapsed = raw["fill_s"] + raw["drain_s"]
        return Figures(
            elapsed_s=elapsed,
            messages=raw["count"],
            rate=raw["count"] / elapsed,
            cpu_s_per_million=raw["fill_cpu_s_per_M"] + raw["cpu_s_per_M"],
            generator_cpu_s=raw["gen_cpu_s"],
            rss_bytes_per_message=raw["rss_bytes_per_msg"],
        )
    churn = "per_s" in raw
    latency = raw["latency_us"]
    return Figures(
        elapsed_s=raw["elapsed_s"],
        messages=raw["iterations"] if churn else raw["delivered"],
        rate=raw["per_s"] if churn else raw["msgs_per_s"],
        cpu_s_per_million=raw["cpu_s_per_M"],
        generator_cpu_s=raw["gen_cpu_s"],
        p50_us=latency["p50"],
        p99_us=latency["p99"],
    )


def call(flags: Sequence[str]) -> dict[str, Any]:
    """The generator's JSON line. Raises: CheckFailed: exit status not 0, or no line."""
    try:
        done = subprocess.run([str(PROGRAM), *flags], capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise CheckFailed(f"{' '.join(flags)}: not finished after {RUN_SECONDS_MAX:g} s") from None
    try:
        raw: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    except (IndexError, ValueError):
        raise CheckFailed(f"{' '.join(flags)}: {done.stderr.strip()[-300:] or 'no output'}") from None
    if done.returncode != 0:
        faults = {name: value for name, value in raw.get("errors", {}).items() if value}
        raise CheckFailed(f"{' '.join(flags)}: {faults}")
    return raw
