"""Listening on a Unix socket: it is loopback, it is ours alone, and what a killed broker leaves is taken over."""

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import leveret_serve
from pamqp import commands, frame

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets on this system")


def login(path: Path) -> str:
    """Name of the method that answers a login as guest."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.settimeout(60)
        wire.connect(str(path))
        wire.sendall(b"AMQP\x00\x00\x09\x01")
        assert b"".join(iter(lambda: wire.recv(1), b"\xce"))[:3] == b"\x01\0\0"
        wire.sendall(frame.marshal(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0))
        return frame.unmarshal(wire.recv(4096))[2].name


def test_guest_may_log_in(tmp_path: Path) -> None:
    """It counts as loopback, whatever proxies are listed; and the socket is gone when the broker is."""
    path = tmp_path / "s"
    config = "[broker]\nproxy-protocol-from = ['0.0.0.0/0', '::/0']\n"
    with leveret_serve(tmp_path, config=config, listen=(f"unix:{path}",)) as broker:
        assert login(path) == "Connection.Tune"
        assert broker.stop() == 0
        assert not path.exists()


def test_its_owner_alone_may_connect(tmp_path: Path) -> None:
    """Connecting needs the right to write: with the usual umask nobody else has it."""
    before = os.umask(0o022)
    try:
        with leveret_serve(tmp_path, listen=(f"unix:{tmp_path}/s",)):
            assert stat.S_IMODE((tmp_path / "s").stat().st_mode) & 0o022 == 0
    finally:
        os.umask(before)


def test_what_a_killed_broker_leaves(tmp_path: Path) -> None:
    """Is taken over by the next one."""
    path = tmp_path / "s"
    with leveret_serve(tmp_path, listen=(f"unix:{path}",)) as broker:
        broker.process.send_signal(signal.SIGKILL)
        broker.process.wait()
        assert path.exists()
    with leveret_serve(tmp_path, listen=(f"unix:{path}",)):
        assert login(path) == "Connection.Tune"


def test_what_belongs_to_others_is_left_alone(tmp_path: Path) -> None:
    """A running broker's socket, and any other file: exit 1 and one sentence; the file is as it was."""
    file = tmp_path / "precious"
    file.write_text("precious")
    with leveret_serve(tmp_path, listen=(f"unix:{tmp_path}/s",)):
        for path in (tmp_path / "s", file):
            second = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "leveret",
                    "serve",
                    "--memory",
                    "--management",
                    "off",
                    "--listen",
                    f"unix:{path}",
                ],
                capture_output=True,
                text=True,
                cwd=tmp_path,
            )
            assert second.returncode == 1
            assert second.stderr == f"leveret: cannot listen on unix:{path}: Address already in use\n"
        assert login(tmp_path / "s") == "Connection.Tune"
    assert file.read_text() == "precious"
