"""Under systemd and in containers: what the manager is told, and the files that we give to both."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path

import pytest
import trio
import trio.testing
from broker_process import leveret_serve

from leveret.__main__ import main
from leveret.pipeline.options import parse
from leveret.serving.service_manager import ServiceManager

DEPLOY = Path(__file__).parents[2] / "deploy"
pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this system has no Unix sockets")


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket where a manager listens, named in the environment."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listener


def heard(listener: socket.socket) -> dict[str, str]:
    """The next message that is no sign of life."""
    while True:
        lines = listener.recv(4096).decode().split("\n")
        if lines != ["WATCHDOG=1"]:
            return dict(line.split("=", 1) for line in lines)


def test_a_life_with_a_manager(manager: socket.socket, tmp_path: Path) -> None:
    """Ready when clients are served, reloading and ready again, stopping; exit code 0."""
    with leveret_serve(tmp_path, config="[limits]\n", data=tmp_path / "data") as broker:
        ready = heard(manager)
        assert (ready["READY"], ready["MAINPID"]) == ("1", str(broker.process.pid))
        assert ready["STATUS"].startswith("amqp://127.0.0.1:")
        broker.process.send_signal(signal.SIGHUP)
        reloading = heard(manager)
        assert reloading["RELOADING"] == "1" and int(reloading["MONOTONIC_USEC"]) > 0
        assert heard(manager)["READY"] == "1"
        assert broker.stop() == 0
        assert heard(manager)["STOPPING"] == "1"


def test_signs_of_life(manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice in a period, when the period is meant for this process."""
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    with leveret_serve(tmp_path):
        for _ in range(4):
            while manager.recv(4096) != b"WATCHDOG=1":
                pass


def test_twice_in_a_period(manager: socket.socket) -> None:
    """A sign of life that is a little late does not end the process."""

    async def lives() -> None:
        with trio.move_on_after(3.9):
            await ServiceManager(os.environ["NOTIFY_SOCKET"], watchdog_s=2.0).report_alive()

    trio.run(lives, clock=trio.testing.MockClock(autojump_threshold=0))
    manager.settimeout(0)
    assert [manager.recv(4096) for _ in range(4)] == [b"WATCHDOG=1"] * 4


@pytest.mark.parametrize(
    "environment, watchdog_s",
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_whom_the_watchdog_watches(environment: dict[str, str], watchdog_s: float | None) -> None:
    """Another process' period is not ours; nonsense is no period."""
    manager = ServiceManager.from_environment({"NOTIFY_SOCKET": "/run/x", **environment})
    assert manager is not None and manager.watchdog_s == watchdog_s


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1234"])
def test_addresses_that_nobody_can_be_told_at(address: str) -> None:
    """As if there were no manager."""
    assert ServiceManager.from_environment({"NOTIFY_SOCKET": address}) is None


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
def test_an_abstract_name() -> None:
    """@ stands for the octet 0."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0leveret-test-{os.getpid()}")
        ServiceManager(f"@leveret-test-{os.getpid()}").ready("here")
        assert heard(listener)["STATUS"] == "here"


def test_a_manager_that_is_gone_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The broker serves on."""
    manager = ServiceManager(str(tmp_path / "nobody"))
    manager.ready("")
    manager.stopping()
    assert len(caplog.records) == 1 and "cannot be told" in caplog.text


def test_without_a_manager_nothing_of_it_is_imported(tmp_path: Path) -> None:
    """An idle broker has no use for it."""
    program = "import sys, leveret.serving.app as app; print(app._service_manager(), *sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert "service_manager" not in done.stdout and done.stdout.startswith("None ")


def test_the_unit() -> None:
    """Its command line is one that `leveret` takes; a configuration that is unusable does not start again and again."""
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "leveret.service")
    service = unit["Service"]
    assert (service["Type"], service["RestartPreventExitStatus"]) == ("notify", "2")
    arguments = service["ExecStart"].split()[1:]
    with pytest.raises(SystemExit) as help_shown:
        main([*arguments, "--help"])
    assert help_shown.value.code == 0


def test_the_unit_of_the_pipeline() -> None:
    """Its command line is one that the pipeline takes, with paths that the unit may write."""
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "leveret-follow.service")
    service = unit["Service"]
    program, pipeline, *words = service["ExecStart"].split()
    found = parse(words)
    assert (program.rpartition("/")[2], pipeline, found.job, found.retain) == ("leveret", "pipeline", "follow", 90)
    assert found.lake == f"/var/lib/{service['StateDirectory']}" and found.journal == [service["ReadWritePaths"]]


@pytest.mark.parametrize("name", ["leveret.service", "leveret-follow.service"])
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_the_unit(name: str, tmp_path: Path) -> None:
    """Every key is known, every value has its form."""
    text = (DEPLOY / name).read_text(encoding="utf-8")
    unit = tmp_path / name
    unit.write_text(text.replace("/opt/leveret/bin/leveret", sys.executable).replace("=leveret\n", "=root\n"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert name not in done.stderr, done.stderr


def test_the_configuration_of_the_container(capsys: pytest.CaptureFixture[str]) -> None:
    """It is one that the broker takes."""
    assert main(["check", str(DEPLOY / "container.toml")]) == 0


def test_the_container(tmp_path: Path) -> None:
    """Its files are there, its arguments are known, and its health check tells a live broker from none."""
    lines = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    sources = [rest.split()[0] for word, rest in steps if word == "COPY"]
    assert sources == ["dist/leveret-*.whl", "deploy/container.toml"]
    (check,) = (rest for word, rest in steps if word == "HEALTHCHECK")
    command = json.loads(check[check.index("CMD") + 4 :])
    with leveret_serve(tmp_path, management="127.0.0.1:0", config='[management]\nmetrics = "127.0.0.1:0"\n') as broker:
        assert broker.process.stdout is not None
        line = broker.process.stdout.readline().strip()
        port = line.removesuffix("/metrics").rpartition(":")[2]
        program = command[2].replace("15692", port)
        assert "15692" not in program
        assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0
        assert broker.stop() == 0
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30).returncode != 0
