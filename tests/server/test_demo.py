"""`leveret demo`: all that its tour names is there to see, and nothing of it is left."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from leveret.__main__ import main
from leveret.cli import demo_command
from leveret.demo.tour import STOPS
from leveret.demo.traffic import PROGRAMS

pytest.importorskip("h11", reason="the console is not installed")
START = [sys.executable, "-m", "leveret", "demo", "--listen", "127.0.0.1:0", "--management", "127.0.0.1:0"]
#: Seconds in which all of the tour is to be seen; a busy machine needs most of them.
PATIENCE_S = 120


class Demo:
    """The process, and its console's API."""

    def __init__(self, temporary: Path) -> None:
        environment = {"TMPDIR": str(temporary), "PATH": ""}
        self.process = subprocess.Popen(START, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        self.told = ""
        for line in self.process.stdout:
            self.told += line
            if line.startswith("Ctrl-C"):
                break
        found = re.match(r"The console is (http://\S+/) .* connect to amqp://([\d.]+):(\d+)/", self.told)
        assert found is not None, self.told
        self.console, self.place = found[1], (found[2], int(found[3]))

    def ask(self, method: str, path: str) -> bytes:
        login = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}
        with urlopen(Request(f"{self.console}api/{path}", headers=login, method=method), timeout=60) as answer:
            body: bytes = answer.read()
            return body

    def get(self, path: str) -> Any:
        return json.loads(self.ask("GET", path))

    def wait_for(self, what: Callable[[], object]) -> None:
        """Until it is true."""
        end, pause = time.monotonic() + PATIENCE_S, threading.Event()
        while not what():
            assert time.monotonic() < end, what
            pause.wait(0.2)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    yield demo
    demo.process.terminate()
    demo.process.communicate()


def test_what_the_tour_names_is_there(demo: Demo) -> None:
    def queue(name: str) -> dict[str, Any]:
        return next((one for one in demo.get("queues/%2F") if one["name"] == name), {})

    assert all(stop.title in demo.told and stop.page in demo.told for stop in STOPS)
    demo.wait_for(lambda: {one["user_provided_name"] for one in demo.get("connections")} == set(PROGRAMS))
    demo.wait_for(lambda: queue("quotes.last").get("messages_ready") == 100)
    demo.wait_for(lambda: any(one["state"] == "blocked" for one in demo.get("connections")))
    demo.wait_for(lambda: demo.get("leveret/scheduled/%2F/jobs.mail")["items"])
    demo.wait_for(lambda: any(one["consumer"] == "robot-2" for one in demo.get("leveret/leases/%2F/parcels")["items"]))
    demo.wait_for(lambda: queue("parcels")["message_stats"].get("redeliver"))
    demo.wait_for(lambda: queue("too-late").get("messages", 0) >= 1000)
    demo.wait_for(lambda: queue("failed").get("messages", 0) > 0)


def test_a_client_that_an_operator_disconnects_comes_back(demo: Demo) -> None:
    """A newcomer tries the button, and the demo goes on."""

    def ports() -> dict[str, int]:
        return {one["user_provided_name"]: one["peer_port"] for one in demo.get("connections")}

    demo.wait_for(lambda: set(ports()) == set(PROGRAMS))
    before = ports()
    for one in demo.get("connections"):
        demo.ask("DELETE", f"connections/{quote(one['name'])}")
    demo.wait_for(lambda: all(ports().get(name, port) != port for name, port in before.items()))


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_nothing_of_it_is_left(stop: signal.Signals, demo: Demo, tmp_path: Path) -> None:
    (directory,) = tmp_path.iterdir()
    demo.process.send_signal(stop)
    assert demo.process.wait(PATIENCE_S) == 0
    assert not directory.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(demo.place)


def test_a_broker_that_ends_is_told_with_its_log(demo: Demo, tmp_path: Path) -> None:
    """The clients end with it."""
    (pid,) = subprocess.run(
        ["pgrep", "-P", str(demo.process.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    subprocess.run(["kill", pid], check=True)
    assert demo.process.wait(PATIENCE_S) == 1


def test_an_address_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run([*START, "--listen", address], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert f"the broker did not start; its log ends with:\nleveret: cannot listen on {address}" in done.stderr


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "x"])
def test_a_time_that_is_none(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused before a broker is started; it was a traceback beside one."""
    with pytest.raises(SystemExit):
        main(["demo", "--seconds", seconds])
    assert f"'{seconds}' is not a number of seconds above 0" in capsys.readouterr().err


def test_without_the_console(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo_command, "find_spec", lambda name: None)
    assert demo_command.run(None) == 2  # type: ignore[arg-type]
    assert 'expected: pip install "leveret[console]"' in capsys.readouterr().err
