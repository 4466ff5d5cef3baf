"""The clients: the source of each driver, its requirements, and how it is built and started.

Sources are copied to a work directory, built there with the versions of their lock files, and started from there;
nothing is written beside the sources. A build is repeated when a source changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "drivers"
BUILD_SECONDS_MAX = 1200


class NotHere(Exception):
    """A program cannot run on this machine. The message says what is missing."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """How a client's driver is built and started.

    `programs`: have to be on the PATH. `modules`: have to be importable by this Python. `checks`: commands that have to
    pass, and the messages if they fail. `build`: commands that run in the copy of `folder`. `command`: starts the
    driver there.
    """

    client: str
    folder: str
    command: tuple[str, ...]
    programs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    checks: tuple[tuple[tuple[str, ...], str], ...] = ()
    build: tuple[tuple[str, ...], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> str:
        """The missing requirement; "": there is none."""
        programs = [program for program in self.programs if shutil.which(program) is None]
        if programs:
            return f"no {', '.join(programs)} on the PATH"
        modules = [module for module in self.modules if not _importable(module)]
        if modules:
            return f"no Python module {', '.join(modules)} (pip install 'leveret[interop]')"
        for command, remark in self.checks:
            if subprocess.run(command, capture_output=True).returncode != 0:
                return remark
        return ""

    def prepare(self, work: Path, tell: Callable[[str], None]) -> list[str]:
        """Build the driver if necessary. Returns the command that starts it.

        Raises: NotHere: something is missing, or the build failed (its output is kept in the work directory).
        """
        missing = self.missing()
        if missing:
            raise NotHere(missing)
        source, copy = SOURCES / self.folder, (work / self.folder).resolve()
        if not self.build:
            return self._started(source)
        stamp, wanted = copy / ".built", _fingerprint(source, repr(self.build))
        if not (stamp.exists() and stamp.read_text() == wanted):
            tell(f"building the driver for {self.client} ...")
            stamp.unlink(missing_ok=True)
            shutil.copytree(source, copy, dirs_exist_ok=True)
            log = copy / "build.log"
            with log.open("wb") as output:
                for command in self.build:
                    self._build(command, copy, output.fileno(), log)
            stamp.write_text(wanted)
        return self._started(copy)

    def _build(self, command: tuple[str, ...], copy: Path, output: int, log: Path) -> None:
        try:
            done = subprocess.run(
                command,
                cwd=copy,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=BUILD_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            raise NotHere(f"{' '.join(command)} took more than {BUILD_SECONDS_MAX} s") from None
        if done.returncode != 0:
            tail = log.read_text(errors="replace")[-1500:]
            raise NotHere(f"{' '.join(command)} failed; the end of {log}:\n{tail}")

    def _started(self, folder: Path) -> list[str]:
        return [part.format(folder=folder, python=sys.executable) for part in self.command]


def _importable(module: str) -> bool:
    """Whether a module can be imported. Imported modules may have no spec, like kombu."""
    return module in sys.modules or find_spec(module) is not None


def _fingerprint(folder: Path, more: str) -> str:
    digest = hashlib.sha256(more.encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def _python(client: str, file: str, *modules: str) -> Toolchain:
    return Toolchain(client, "python", ("{python}", f"{{folder}}/{file}"), modules=modules)


GO = (("go", "build", "-mod=readonly", "-trimpath", "-o", "driver", "."),)
MAVEN = (("mvn", "--batch-mode", "--quiet", "compile"),)
JAVA = ("java", "-cp", "{folder}/target/classes:{folder}/target/dependency/*", "Driver")
BUNNY = ((("ruby", "-e", "require 'bunny'"), "no bunny for ruby (Debian: apt install ruby-bunny)"),)
C_SOURCES = ("driver.c", "operations.c", "session.c", "values.c")
GCC = (("gcc", "-std=gnu11", "-O2", "-Wall", "-o", "driver", *C_SOURCES, "-lrabbitmq", "-lcjson", "-lm"),)
HEADERS = ("gcc", "-fsyntax-only", "-x", "c", "-include", "amqp.h", "-include", "cjson/cJSON.h", "/dev/null")
LIBRABBITMQ = ((HEADERS, "no librabbitmq or cJSON for C (Debian: apt install librabbitmq-dev libcjson-dev)"),)
PHP_AMQPLIB = (
    (
        ("php", "-r", "exit((int) !@include 'PhpAmqpLib/autoload.php');"),
        "no php-amqplib (Debian: apt install php-amqplib)",
    ),
)
CARGO = (("cargo", "build", "--release", "--locked"),)
NPM = (("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"),)


def _node(client: str, file: str) -> Toolchain:
    return Toolchain(client, "node", ("node", f"{{folder}}/{file}"), programs=("node", "npm"), build=NPM)


CLIENTS = {
    chain.client: chain
    for chain in (
        _python("pika", "pika_driver.py", "pika"),
        _python("amqp", "amqp_driver.py", "amqp"),
        _python("kombu", "kombu_driver.py", "kombu"),
        _python("aio-pika", "aio_pika_driver.py", "aio_pika"),
        _python("amqpstorm", "amqpstorm_driver.py", "amqpstorm"),
        _node("amqplib", "amqplib_driver.js"),
        _node("rabbitmq-client", "rabbitmq_client_driver.js"),
        Toolchain("lapin", "rust", ("{folder}/target/release/driver",), programs=("cargo",), build=CARGO),
        Toolchain("bunny", "ruby", ("ruby", "{folder}/bunny_driver.rb"), programs=("ruby",), checks=BUNNY),
        Toolchain("librabbitmq", "c", ("{folder}/driver",), programs=("gcc",), checks=LIBRABBITMQ, build=GCC),
        Toolchain("php-amqplib", "php", ("php", "{folder}/driver.php"), programs=("php",), checks=PHP_AMQPLIB),
        Toolchain("amqp-client", "java", JAVA, programs=("java", "mvn"), build=MAVEN),
        Toolchain("amqp091-go", "go", ("{folder}/driver",), programs=("go",), build=GO),
    )
}
