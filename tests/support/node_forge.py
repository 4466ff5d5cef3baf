"""Runs the command `leveret` by a fork of a process that has imported it: the imports cost more than all else.

The child does what the command does, with its own streams, environment and directory. `make cluster` and the tests of
the command start it in the long way.
"""

import atexit
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO

#: Octets of a request or an answer at most.
SIZE_MAX = 65536
#: Linux: a child ends with the forge, also where that was killed.
PR_SET_PDEATHSIG = 1


class ForgedProcess:
    """A child of the forge, with the verbs of `subprocess.Popen` that tests use."""

    def __init__(self, forge: "Forge", pid: int, stdout: IO[str]) -> None:
        self.pid, self.stdout = pid, stdout
        self._forge = forge
        self._pidfd = os.pidfd_open(pid)
        self.returncode: int | None = None

    def send_signal(self, number: signal.Signals) -> None:
        """As the shell's kill."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        if self.returncode is None and select.select([self._pidfd], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises: subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._pidfd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = self._forge.reap(self.pid)
            os.close(self._pidfd)
            self.stdout.close()
        return self.returncode


class Forge:
    """The process that forks. One for many nodes; its children end with it."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self._lock = threading.Lock()
        theirs.close()

    def start(self, arguments: list[str], log: Path, directory: Path, descriptors: int | None = None) -> ForgedProcess:
        """`leveret ARGUMENTS`, with its standard error behind what is in `log` already.

        `descriptors`: how many it may have open, if not as many as this process.
        """
        reads, writes = os.pipe()
        with log.open("ab") as errors, os.fdopen(writes, "wb") as output, open(os.devnull, "rb") as typed:
            pid = self._fork(arguments, directory, dict(os.environ), descriptors, [typed, output, errors])
        return ForgedProcess(self, pid, os.fdopen(reads))

    def run(
        self, arguments: list[str], directory: Path, environment: Mapping[str, str], typed: str, timeout_s: float
    ) -> "subprocess.CompletedProcess[str]":
        """`leveret ARGUMENTS` to its end, with `typed` as its standard input."""
        with ExitStack() as stack:
            streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            streams[0].write(typed.encode())
            streams[0].seek(0)
            pid = self._fork(arguments, directory, environment, None, streams)
            code = ForgedProcess(self, pid, stack.enter_context(open(os.devnull))).wait(timeout_s)
            for stream in streams[1:]:
                stream.seek(0)
            output, errors = (stream.read().decode() for stream in streams[1:])
        return subprocess.CompletedProcess(["leveret", *arguments], code, output, errors)

    def _fork(
        self,
        arguments: list[str],
        directory: Path,
        environment: Mapping[str, str],
        descriptors: int | None,
        streams: list[IO[bytes]],
    ) -> int:
        """The id of a new child."""
        request = json.dumps([arguments, str(directory), dict(environment), descriptors]).encode()
        with self._lock:
            socket.send_fds(self._ours, [request], [one.fileno() for one in streams])
            return int(self._answer())

    def reap(self, pid: int) -> int:
        """The exit code of a child that has ended."""
        with self._lock:
            self._ours.send(str(pid).encode())
            return int(self._answer())

    def _answer(self) -> bytes:
        answer = self._ours.recv(SIZE_MAX)
        assert answer, "the forge has ended"
        return answer

    def close(self) -> None:
        """Kill the children that are left, and the forge."""
        self._ours.close()
        self._process.wait()


@cache
def forge() -> Forge:
    """The forge of this process; it ends with it."""
    made = Forge()
    atexit.register(made.close)
    return made


def leveret(
    *arguments: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None, typed: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run one command to its end. `environment`: what it has beside, or instead of, variables of this process."""
    return forge().run(list(arguments), cwd or Path.cwd(), {**os.environ, **(environment or {})}, typed, 180)


def _serve_requests(ours: socket.socket) -> None:
    """What begins a child, with descriptors, forks; a number waits for that child. Until the other side closes."""
    from leveret.serving.served_node import CONSOLE_MODULES, LEADING_MODULES

    commands = ("serve_command", "ctl_command", "check_command", "explain", "diff_command", "control_client")
    names = (*(f"leveret.cli.{name}" for name in commands), "leveret.serving.app", *LEADING_MODULES, *CONSOLE_MODULES)
    for name in names:
        import_module(name)
    children: set[int] = set()
    while True:
        request, descriptors, _, _ = socket.recv_fds(ours, SIZE_MAX, 3)
        if not request:
            break
        if not descriptors:
            pid = int(request)
            children.discard(pid)
            answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        elif (answer := os.fork()) == 0:
            ours.close()
            arguments, directory, environment, limit = json.loads(request)
            os._exit(_become(arguments, directory, environment, limit, descriptors))
        else:
            children.add(answer)
            for one in descriptors:
                os.close(one)
        ours.send(str(answer).encode())
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become(
    arguments: list[str], directory: str, environment: dict[str, str], descriptors: int | None, streams: list[int]
) -> int:
    """In the child. Returns the exit code."""
    import random

    from leveret import __main__ as command

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    sys.argv = [str(command.__file__), *arguments]
    os.environ.clear()
    os.environ.update(environment)
    if descriptors is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    os.chdir(directory)
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    random.seed()
    try:
        code = command.main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    _serve_requests(socket.socket(fileno=int(sys.argv[1])))
