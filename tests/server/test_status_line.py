"""`ctl status` begins with one line: all is well, or what is not, since when, and what to do."""

from collections.abc import Callable, Generator
from unittest.mock import Mock

import pytest
from rawclient import Client
from socket_broker import SocketBroker

from leveret.cli.ctl_command import as_text
from leveret.engine import Broker, ManualClock
from leveret.operator.trouble import trouble

CONFIGURATION = """
[[address-setting]]
match = "jobs"
max-delivery-attempts = 1
dead-letter-address = "failed"

[[address-setting]]
match = "small"
max-size-messages = 1
address-full-policy = "BLOCK"
"""


@pytest.fixture
def configuration() -> str:
    return CONFIGURATION


@pytest.fixture
def line(broker: SocketBroker) -> Callable[[], str]:
    """The first line that is printed."""
    return lambda: as_text(broker.do(lambda: broker.control.run("status", {})), "status").splitlines()[0]


def raw(broker: SocketBroker) -> Client:
    """A bare client with channel 1 open."""
    return Client.open("127.0.0.1", int(broker.url.rpartition(":")[2].partition("/")[0]))


def test_all_is_well(line: Callable[[], str], broker: SocketBroker) -> None:
    """With messages and consumers or without, as long as nothing is held, lost or full."""
    assert line() == "all is well"
    client = raw(broker)
    client.call("queue.declare", queue="plain")
    client.publish("", "plain", b"waits")
    client.call("queue.declare", queue="plain", passive=True)
    assert line() == "all is well"
    client.close()


def test_too_few_nodes_in_sync(line: Callable[[], str], broker: SocketBroker) -> None:
    """Since when, why, and where to look."""
    broker.do(lambda: broker.broker.flow.raise_replication("replication: 1 of 2 nodes in sync"))
    assert line().startswith("NOT WELL: publishers are blocked since 20")
    assert "(replication: 1 of 2 nodes in sync): start the missing nodes, see `ctl cluster`" in line()


def test_an_alarm_by_hand(line: Callable[[], str], broker: SocketBroker) -> None:
    """Since when, and how it ends."""
    broker.do(lambda: broker.control.run("block", {"reason": "upgrade"}))
    assert line().startswith("NOT WELL: publishers are blocked by an operator since 20")
    assert line().endswith("(upgrade): `ctl unblock` ends it")
    broker.do(lambda: broker.control.run("unblock", {}))
    assert line() == "all is well"


def test_dead_letters_that_nobody_gets(line: Callable[[], str], broker: SocketBroker) -> None:
    """How many are where; with a consumer there they are somebody's."""
    client = raw(broker)
    client.call("queue.declare", queue="jobs")
    client.call("queue.declare", queue="failed")
    client.publish("", "jobs", b"bad")
    client.call("queue.declare", queue="jobs", passive=True)
    tag = client.call("basic.get", queue="jobs")["delivery_tag"]
    client.send("basic.nack", delivery_tag=tag, requeue=True)
    client.call("queue.declare", queue="failed", passive=True)
    assert line() == "NOT WELL: dead letters without a consumer: 1 in 'failed'; see `ctl dead-letters`"
    client.call("basic.consume", queue="failed", consumer_tag="c")
    assert line() == "all is well"
    client.close()


@pytest.mark.parametrize(
    "is_lost, said",
    [
        (False, "the disk is full since 2023-11-14 22:13:20 UTC: persistent publishes are refused or wait;"),
        (True, "the journal failed since 2023-11-14 22:13:20 UTC and stores nothing durable:"),
    ],
)
def test_the_journal(is_lost: bool, said: str) -> None:
    """Since when it takes nothing, and what to do; `test_disk_full.py` has a real one."""
    broker = Broker(ManualClock())
    broker.context.storage.durability = Mock(has_failed=True, failed_ms=1_700_000_000_000, is_lost=is_lost)
    (sentence,) = drained(trouble(broker))
    assert sentence.startswith(said)


@pytest.mark.parametrize(
    "row, etcd, said",
    [
        ({}, "answers", []),
        ({"is-drained": True, "state": "drained"}, "answers", []),
        (
            {"state": "absent", "is-linked": None},
            "answers",
            ["1 of 2 nodes is not in sync (node b is absent): see `ctl"],
        ),
        (
            {"state": "following", "is-in-sync": False, "lag": 7},
            "etcd is not reached: refused",
            [
                "1 of 2 nodes is not in sync (node b is following, 7 records behind): see `ctl cluster`",
                "etcd is not reached: refused: no other node can lead",
            ],
        ),
    ],
)
def test_the_nodes_of_a_cluster(row: dict[str, object], etcd: str, said: list[str]) -> None:
    """Not all is well while one is missing: when the next one is lost, publishers are blocked."""
    nodes = [{"name": name, "state": "in_sync", "is-linked": True, "is-in-sync": True, "lag": 0} for name in "ab"]
    nodes[1] |= row
    found = drained(trouble(Broker(ManualClock()), {"leader": "a", "etcd": etcd, "nodes": nodes}))
    assert [one[: len(wanted)] for one, wanted in zip(found, said, strict=True)] == said


@pytest.mark.parametrize(
    "count, said", [(1, "1 dead letter found no queue and was"), (3, "3 dead letters found no queue and were")]
)
def test_dead_letters_without_a_queue(count: int, said: str) -> None:
    """How many were dropped, of which queue, and for which address."""
    broker = Broker(ManualClock())
    for _ in range(count):
        broker.context.unroutable_letters.note("/", "jobs", "failed")
    (sentence,) = drained(trouble(broker))
    assert sentence == f"{said} dropped since the start: {count} of queue 'jobs' for 'failed'; bind a queue there"


def drained(steps: Generator[None, None, list[str]]) -> list[str]:
    """What it comes to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return list(end.value)


def test_limits_and_who_waits(line: Callable[[], str], broker: SocketBroker) -> None:
    """Which limit of what is reached, and how many wait for it."""
    client = raw(broker)
    client.call("queue.declare", queue="small")
    for body in (b"1", b"2"):
        client.publish("", "small", body)
    while "waiting to publish" not in line():
        pass
    assert "limits are reached: max-size-messages of address 'small' in vhost '/' (1 of 1); consume" in line()
    assert "1 connection is waiting to publish, the longest for 0 s: see `ctl connections`" in line()
    client.abort()
