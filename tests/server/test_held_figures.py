"""What operators hear of publishers that wait: by what, since when, and how much of theirs is held where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from configured_broker import load
from peer import publish
from rawclient import Client
from socket_broker import SocketBroker

from leveret.cli.ctl_command import as_text
from leveret.journal.recording.temp_store import FileTempStore

CONFIG = """
[system-usage]
memory = "1000000"

[flow]
hold-bytes = "64KiB"
hold-spool = "200KiB"

[[address-setting]]
match = "q"
memory-limit = "1KiB"
cursor = "vm"
"""
SIZE = 20_000
NOTHING = {"connections": 0, "publishes": 0, "bytes": 0, "bytes_max": 50_000, "spooled_bytes": 0, "unread": 0}

Ctl = Callable[..., Any]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SocketBroker]:
    """With a temp store."""
    temp = FileTempStore(str(tmp_path))
    with SocketBroker(load(CONFIG)) as running:
        running.do(lambda: setattr(running.broker.context.storage, "open_temp", lambda: temp))
        yield running
    temp.close()


@pytest.fixture
def ctl(broker: SocketBroker) -> Ctl:
    """A command of the table."""
    return lambda command, **arguments: broker.do(lambda: broker.control.run(command, arguments))


def open_client(broker: SocketBroker) -> Client:
    return Client.open("127.0.0.1", int(broker.url.rpartition(":")[2].partition("/")[0]))


def test_nobody_waits(broker: SocketBroker, ctl: Ctl) -> None:
    client = open_client(broker)
    (row,) = ctl("connections")
    assert (row["blocked_by"], row["held"]) == ([], {})
    status = ctl("status")
    assert (status["blocked"], status["held"]) == ([], NOTHING)
    assert "blocked_by" not in as_text([row], "connections")
    client.close()


def test_who_waits_for_what_and_how_much_is_held(broker: SocketBroker, ctl: Ctl) -> None:
    """In memory first, then in the temp store; beyond that the connection is unread."""
    client, other = open_client(broker), open_client(broker)
    client.call("queue.declare", queue="q")
    client.publish("", "q", bytes(2_000))
    other.wait_for_ready("q", 1)
    client.publish("", "q", bytes(SIZE))
    client.publish("", "q", bytes(SIZE))
    while (status := ctl("status"))["held"]["publishes"] != 2:
        pass
    broker.advance_ms(1500)
    (blocked,) = ctl("status")["blocked"]
    why = {"destination": "queue 'q' in vhost '/'", "limit": "memory", "waiting_ms": 1500}
    row = next(row for row in ctl("connections") if row["name"] == blocked["connection"])
    assert row["blocked_by"] == [why]
    named = {"connection": "", "connection_name": None, "vhost": "", "held": {}}
    assert {**blocked, "connection": "", "vhost": "", "held": {}} == {**named, **why}
    held = row["held"]
    assert held == blocked["held"] and held["publishes"] == 2 and not held["unread"]
    assert 2 * SIZE <= held["bytes"] < 2 * SIZE + 100 and held["spooled_bytes"] == 0
    assert ctl("status")["held"] == {**NOTHING, "connections": 1, "publishes": 2, "bytes": held["bytes"]}
    assert status["held"]["bytes"] == held["bytes"]
    text = as_text([row], "connections")
    assert '"spooled_bytes": 0' in text and "waiting_ms" in text

    client.send_octets(b"".join(publish(1, "q", bytes(SIZE), mandatory=bool(n % 2)) for n in range(20)))
    while not (held := ctl("status")["blocked"][0]["held"])["unread"]:
        pass
    assert held["bytes"] >= 40_000 and held["spooled_bytes"] >= 200 * 1024
    assert ctl("status")["held"]["unread"] == 1

    assert len(other.bodies("q")) == 23
    status = ctl("status")
    assert (status["blocked"], status["held"]) == ([], NOTHING)
    client.close()
    other.close()


def test_who_waits_for_an_alarm(broker: SocketBroker, ctl: Ctl) -> None:
    """Is listed as one that waits for a limit."""
    client = open_client(broker)
    client.call("queue.declare", queue="other")
    ctl("block")
    client.publish("", "other", b"x")
    client.expect("connection.blocked", channel=0)
    (row,) = ctl("connections")
    assert row["blocked_by"] == [{"destination": "broker", "limit": "alarm", "waiting_ms": 0}]
    assert row["held"]["publishes"] == 1
    ctl("unblock")
    (row,) = ctl("connections")
    assert (row["blocked_by"], row["held"]) == ([], {})
    client.close()
