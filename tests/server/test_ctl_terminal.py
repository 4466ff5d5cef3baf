"""`leveret ctl` at a terminal: `--watch`, its size, and Ctrl-C at any moment. Source: interfaces page; ruling 24."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from leveret.__main__ import main
from leveret.cli import ctl_command
from leveret.cli.control_client import request
from leveret.testing import RunningBroker, start_broker

#: Sends an interrupt when the module is imported.
INTERRUPTED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
from leveret.__main__ import main
sys.exit(main({words!r}))
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """With more queues than a terminal has lines."""
    with start_broker() as running:
        for number in range(40):
            request(running.url, "declare-queue", {"queue": f"queue-{number:02}"})
        yield running


def _at_terminal() -> None:
    """Of the new process: its terminal, and Ctrl-C, which a shell in the background ignores."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """What a program writes to a terminal of this size, and keys that are pressed."""

    def __init__(self, words: list[str], lines: int, columns: int) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key not in ("LINES", "COLUMNS")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "leveret", *words],
            stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
            preexec_fn=_at_terminal,
        )  # fmt: skip
        os.close(slave)
        self.shown = ""

    def until(self, is_there: Callable[[str], bool]) -> str:
        """Read until this is shown, or the program has ended."""
        while not is_there(self.shown):
            try:
                data = os.read(self._master, 65536)
            except OSError:  # EIO: it has ended
                break
            self.shown += data.decode()
        return self.shown

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextmanager
def terminal(*words: str, lines: int = 24, columns: int = 80) -> Iterator[Terminal]:
    """A program at a terminal."""
    one = Terminal(list(words), lines, columns)
    try:
        yield one
    finally:
        one.close()


def test_watch_at_a_terminal(broker: RunningBroker) -> None:
    """Each look overwrites the one before and fits the screen; Ctrl-C ends it without a word."""
    with terminal("ctl", "--url", broker.url, "--watch", "0.1", "queues", lines=20, columns=60) as one:
        shown = one.until(lambda text: text.count("\x1b[H") >= 3)
        first, second, *_ = shown.split("\x1b[H")[1:]
        for look in (first, second):
            rows = look.removesuffix("\x1b[J").split("\r\n")
            assert len(rows) <= 20 and all(row.endswith("\x1b[K") for row in rows if row)
            plain = [re.sub(r"\x1b\[[KJ]", "", row) for row in rows]
            assert max(map(len, plain)) <= 60
            assert re.match(r"\d{4}-\d\d-\d\d .*  queues$", plain[0]) and plain[1].startswith("name")
            assert re.search(r"\(\d+ more lines\)", look)
        request(broker.url, "purge", {"queue": "queue-00"})
        one.press("\x03")
        assert one.process.wait(60) == 0
        assert "Traceback" not in one.until(lambda text: False)


def test_a_password_is_not_shown(broker: RunningBroker) -> None:
    """It is asked for, and typed without an echo."""
    with terminal("ctl", "--url", broker.url, "users", "add", "typed") as one:
        one.until(lambda text: "Password:" in text)
        one.press("hush-hush\n")
        assert one.process.wait(60) == 0
        assert "hush-hush" not in one.until(lambda text: False)
    assert "typed" in {user["name"] for user in request(broker.url, "users", {"action": "list"})}


@pytest.mark.parametrize(
    "words",
    [
        ("purge", "queue-00"),
        ("publish", "", "queue-00", "body"),
        ("get", "queue-00"),
        ("users", "delete", "guest"),
        ("drain", "node"),
        ("purge_queue", "queue-00"),
        ("cluster-name",),
    ],
)
def test_watch_repeats_nothing_that_changes_something(
    words: tuple[str, ...],
    broker: RunningBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is refused in words, before the broker is asked."""

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ctl_command, "time", SimpleNamespace(sleep=interrupted))
    request(broker.url, "publish", {"exchange": "", "routing-key": "queue-00", "payload": "kept"})
    before = len(broker.queue("queue-00", vhost="/").ready)
    assert main(["ctl", "--url", broker.url, "--watch", "1", *words]) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and "--watch repeats commands that only show something" in shown.err
    assert len(broker.queue("queue-00", vhost="/").ready) == before > 0


@pytest.mark.parametrize(
    "module",
    [
        "importlib", "argparse", "leveret.cli.ctl_command", "leveret.operator.command_table",
        "leveret.operator.policies", "leveret.cli.parser", "leveret.cli.control_client", "json",
    ],
)  # fmt: skip
def test_an_interrupt_while_it_starts(module: str) -> None:
    """Whichever module is being imported: the code of an interrupt, and no traceback."""
    program = INTERRUPTED.format(module=module, words=["ctl", "--url", "amqp://127.0.0.1:1/", "status"])
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, timeout=60, env={
        **os.environ, "PYTHONPATH": os.pathsep.join(sys.path),
    })  # fmt: skip
    assert done.stderr == "" and done.returncode in (0, 130), (done.returncode, done.stderr)
