"""What operators set by `leveret ctl` is there after a restart and after kill -9: a real process, a real journal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess, leveret_serve
from rawclient import Client, Eof

from leveret.__main__ import main
from leveret.cli.control_client import ControlFailed, request


class Operated:
    """A broker on a data directory, ruled over AMQP."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process

    def ctl(self, command: str, action: str, *, who: str = "guest:guest", **arguments: Any) -> Any:
        """One command; underscores of the arguments' names stand for dashes."""
        named = {key.replace("_", "-"): value for key, value in arguments.items()}
        return request(f"amqp://{who}@127.0.0.1:{self.process.port}/", command, {"action": action, **named})


@contextmanager
def operated(directory: Path, configuration: str = "", end: signal.Signals = signal.SIGTERM) -> Iterator[Operated]:
    """A broker that ends by `end`."""
    file = directory / "leveret.toml"
    file.touch(mode=0o600)
    with leveret_serve(directory, config=configuration, data=directory / "data") as process:
        yield Operated(process)
        process.process.send_signal(end)
        process.process.wait(timeout=60)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_all_of_it_is_there_again(end: signal.Signals, tmp_path: Path) -> None:
    """Users, permissions, topic permissions, limits, virtual hosts, policies, parameters: as answered, and in force."""
    with operated(tmp_path, end=end) as broker:
        ctl = broker.ctl
        ctl("vhosts", "add", name="shop")
        ctl("vhosts", "limits", name="shop", max_queues=7)
        ctl("vhosts", "default-queue-type", name="shop", type="quorum")
        ctl("vhosts", "add", name="typed", default_queue_type="stream")
        ctl("users", "add", name="ann", password="first", tags="monitoring,management")
        ctl("users", "passwd", name="ann", password="second")
        ctl("users", "limits", name="ann", max_connections=3)
        ctl("permissions", "set", user="ann", vhost="shop", configure="^a", write=".*", read="")
        ctl("topic-permissions", "set", user="ann", vhost="shop", exchange="t", write="^w", read="^r")
        ctl("users", "add", name="gone", password="x")
        ctl("users", "delete", name="gone")
        ctl("users", "tags", name="guest", tags="administrator,policymaker")
        ctl("policies", "set", name="p", pattern="^jobs", definition={"max-length": 2}, priority=3)
        ctl("policies", "set", name="q", pattern="^x", definition={"expires": 5})
        ctl("policies", "clear", name="q")
        ctl("vhosts", "describe", name="shop", description="of the shop", tags="a,b")
        ctl("parameters", "set", component="federation-upstream", name="up", vhost="shop", value={"uri": "amqp://x"})
        ctl("parameters", "set", component="federation-upstream", name="away", value={"uri": "amqp://y"})
        ctl("parameters", "clear", component="federation-upstream", name="away")
        ctl("global-parameters", "set", name="any", value=[1, "\u00e9", {"a": None}])
        request(f"amqp://guest:guest@127.0.0.1:{broker.process.port}/", "cluster-name", {"name": "ours"})
        ctl("operator-policies", "set", name="p", vhost="shop", pattern="", definition={"max-length": 5})
        client = Client.open("127.0.0.1", broker.process.port)
        client.call("queue.declare", queue="jobs", durable=True)
        for body in (b"1", b"2", b"3"):
            client.publish("", "jobs", body, delivery_mode=2)
        client.wait_for_ready("jobs", 2)
        kept = ("parameters", "global-parameters")
        commands = ("users", "permissions", "topic-permissions", "vhosts", "policies", "operator-policies", *kept)
        before = {command: _by_name(ctl(command, "list")) for command in commands}
    for again in (signal.SIGKILL, signal.SIGTERM):  # from what was recorded, and from a checkpoint
        with operated(tmp_path, end=again) as broker:
            after = {command: _by_name(broker.ctl(command, "list")) for command in before}
            assert after == before
            assert broker.ctl("vhosts", "about", name="shop") == {"description": "of the shop", "tags": ["a", "b"]}
            assert {"name": "cluster_name", "value": "ours"} in after["global-parameters"]
            client = Client.open("127.0.0.1", broker.process.port)
            assert client.count("jobs")[0] == 2
            client.close()
            client = Client.open("127.0.0.1", broker.process.port, response=b"\0ann\0second", vhost="shop")
            client.close()
            with pytest.raises((Eof, AssertionError)):
                Client.open("127.0.0.1", broker.process.port, response=b"\0gone\0x")


def _by_name(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    passing = ("connections", "queues")
    rows = [{key: value for key, value in row.items() if key not in passing} for row in listed]
    return sorted(rows, key=str)


def test_a_deleted_guest_stays_away(tmp_path: Path) -> None:
    """The default user is for brokers without users."""
    with operated(tmp_path, end=signal.SIGKILL) as broker:
        broker.ctl("users", "add", name="root", password="secret", tags="administrator")
        broker.ctl("permissions", "set", user="root", configure=".*", write=".*", read=".*")
        broker.ctl("users", "delete", name="guest", who="root:secret")
    with operated(tmp_path) as broker:
        assert [one["name"] for one in broker.ctl("users", "list", who="root:secret")] == ["root"]
        with pytest.raises(ControlFailed):
            broker.ctl("users", "list")


CONFIGURED = """
[[user]]
name = "conf"
password = "first"
tags = ["administrator"]
[[user.permission]]
configure = ".*"
write = ".*"
read = ".*"

[[vhost]]
name = "/"
max-queues = 9

[[policy]]
name = "p"
pattern = ""
definition = { max-length = 4 }
"""


def test_the_configurations_own_is_the_configurations(tmp_path: Path) -> None:
    """What it says holds at each start, whatever was changed by hand; what it drops is gone with the next start."""
    rule = {"who": "conf:first"}
    with operated(tmp_path, CONFIGURED) as broker:
        broker.ctl("users", "tags", name="conf", tags="administrator,management", **rule)
        broker.ctl("policies", "set", name="p", pattern="", definition={"max-length": 1}, **rule)
        broker.ctl("users", "add", name="byhand", password="x", tags="administrator", **rule)
        broker.ctl("permissions", "set", user="byhand", configure=".*", write=".*", read=".*", **rule)
    with operated(tmp_path, CONFIGURED) as broker:
        users = {one["name"]: one["tags"] for one in broker.ctl("users", "list", **rule)}
        assert users == {"conf": ["administrator"], "byhand": ["administrator"]}
        (policy,) = broker.ctl("policies", "list", **rule)
        assert policy["definition"] == {"max-length": 4}
    with operated(tmp_path) as broker:
        rule = {"who": "byhand:x"}
        assert [one["name"] for one in broker.ctl("users", "list", **rule)] == ["byhand"]
        assert broker.ctl("policies", "list", **rule) == []
        (vhost,) = broker.ctl("vhosts", "list", **rule)
        assert vhost["max_queues"] is None


def test_no_hash_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`leveret journal cat` and the broker's log tell who, never the password or its hash."""
    with operated(tmp_path) as broker:
        broker.ctl("users", "add", name="ann", password="opensesame")
    assert main(["journal", "cat", str(tmp_path / "data")]) == 0
    assert main(["journal", "verify", str(tmp_path / "data")]) == 0
    text = capsys.readouterr().out + (tmp_path / "log").read_text()
    assert '"object": "user"' in text and '"ann"' in text
    assert '"password_hash"' not in text and "opensesame" not in text
