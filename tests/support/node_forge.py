"""Starts `leveret serve` by a fork of a process that has imported it: the imports cost more than a node's start.

The child does what the command does, with its own standard output and log. `make cluster` and the tests of the command
start it in the long way.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import IO

#: Octets of a request or an answer at most.
SIZE_MAX = 65536


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
        theirs.close()

    def start(self, arguments: list[str], log: Path, directory: Path) -> ForgedProcess:
        """`leveret ARGUMENTS`, with its standard error behind what is in `log` already."""
        reads, writes = os.pipe()
        with log.open("a") as errors, os.fdopen(writes, "wb") as output:
            request = json.dumps([arguments, str(directory)]).encode()
            socket.send_fds(self._ours, [request], [output.fileno(), errors.fileno()])
            pid = int(self._answer())
        return ForgedProcess(self, pid, os.fdopen(reads))

    def reap(self, pid: int) -> int:
        """The exit code of a child that has ended."""
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


def _serve_requests(ours: socket.socket) -> None:
    """A list of arguments and a directory forks; a number waits for that child. Until the other side closes."""
    from leveret.serving.served_node import CONSOLE_MODULES, LEADING_MODULES

    for name in ("leveret.cli.serve_command", "leveret.serving.app", *LEADING_MODULES, *CONSOLE_MODULES):
        import_module(name)
    children: set[int] = set()
    while True:
        request, descriptors, _, _ = socket.recv_fds(ours, SIZE_MAX, 2)
        if not request:
            break
        if not descriptors:
            pid = int(request)
            children.discard(pid)
            answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        elif (answer := os.fork()) == 0:
            ours.close()
            os._exit(_become(*json.loads(request), *descriptors))
        else:
            children.add(answer)
            for one in descriptors:
                os.close(one)
        ours.send(str(answer).encode())
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become(arguments: list[str], directory: str, output: int, errors: int) -> int:
    """In the child. Returns the exit code."""
    import random

    from leveret.__main__ import main

    os.dup2(output, 1)
    os.dup2(errors, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    os.chdir(directory)
    os.setsid()
    random.seed()
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    _serve_requests(socket.socket(fileno=int(sys.argv[1])))
