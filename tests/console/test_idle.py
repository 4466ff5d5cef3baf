"""What an idle console does without, until somebody connects or asks. Source: management page 21."""

import subprocess
import sys

import pytest

from leveret.testing import start_broker

#: What is imported with the composition root anyway, and then by a console that listens.
_LISTENING = "import leveret.serving.app, leveret.serving.console_parts, leveret.console.server, sys"


@pytest.mark.parametrize(
    "module",
    ["h11", "json", "leveret.console.connection", "leveret.console.options", "leveret.console.sampler"]
    + ["leveret.console.metrics.aggregated", "leveret.serving.console", "leveret.serving.metrics_facts"],
)
def test_is_not_imported(module: str) -> None:
    """Half a megabyte of an idle broker's 35."""
    code = f"{_LISTENING}\nsys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_console_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Its clients are closed, and the broker serves on."""
    import socket

    import pika

    from leveret.console import server

    def load(options: object) -> None:
        raise ImportError("no such module")

    monkeypatch.setattr(server, "_load", load)
    with start_broker(management=True) as broker:
        port = int(broker.management_url.rstrip("/").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
            assert peer.recv(100) == b""
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            assert connection.channel().is_open
    assert "the console cannot be loaded" in caplog.text
