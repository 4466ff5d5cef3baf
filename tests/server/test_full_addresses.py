"""A policy for full addresses that changes while four publishers go on: what each of them sees on its socket.

Address-settings page 3.3; the same without sockets: tests/engine/test_full_addresses.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pika
import pika.exceptions
import pytest
from configured_broker import load
from rawclient import Client
from socket_broker import SocketBroker
from toml_text import settings

from leveret.engine import reconfigure

FOUR = range(4)
TIMEOUT_SECONDS = 60.0


@pytest.fixture
def broker(broker: SocketBroker) -> Iterator[SocketBroker]:
    """With a queue `q` whose address has no limits."""
    client = connected(broker)
    client.call("queue.declare", queue="q")
    yield broker
    client.close()


def connected(broker: SocketBroker) -> Client:
    """A bare client with channel 1 open."""
    return Client.open("127.0.0.1", int(broker.url.rpartition(":")[2].partition("/")[0]))


class Publisher:
    """One connection with confirms: messages `NUMBER:COUNT`."""

    def __init__(self, broker: SocketBroker, number: int) -> None:
        self.client = connected(broker)
        self.client.call("confirm.select")
        self._number = number
        self._sent = self._confirmed = 0

    def publish(self, count: int) -> None:
        """Without waiting for confirms."""
        for _ in range(count):
            self.client.publish("", "q", b"%d:%d" % (self._number, self._sent))
            self._sent += 1

    def outcomes(self) -> tuple[int, int]:
        """Acks and nacks, when all have come; tags rise."""
        acks = nacks = 0
        while self._confirmed < self._sent:
            confirm = self.client.read()
            tag = confirm["delivery_tag"]
            assert tag > self._confirmed
            assert confirm["multiple"] or tag == self._confirmed + 1
            if confirm.name == "basic.ack":
                acks += tag - self._confirmed
            else:
                assert confirm.name == "basic.nack"
                nacks += tag - self._confirmed
            self._confirmed = tag
        return acks, nacks

    def published(self, count: int) -> tuple[int, int]:
        """Publish, and wait for all confirms."""
        self.publish(count)
        return self.outcomes()


def full(broker: SocketBroker, policy: str) -> None:
    """At 40 messages, from now on."""
    broker.apply(load(settings(q={"max_size_messages": 40, "address_full_policy": policy})))


def test_a_policy_that_changes_live(broker: SocketBroker) -> None:
    """FAIL nacks what is too much, DROP confirms and drops it, PAGE takes all, BLOCK holds, a ring keeps the newest."""
    consumer = connected(broker)
    publishers = [Publisher(broker, number) for number in FOUR]
    got: list[bytes] = []
    with ThreadPoolExecutor(4) as threads:

        def at_once(count: int) -> list[tuple[int, int]]:
            return list(threads.map(lambda one: one.published(count), publishers))

        full(broker, "FAIL")
        outcomes = at_once(20)
        assert (sum(acks for acks, _ in outcomes), sum(nacks for _, nacks in outcomes)) == (40, 40)
        assert consumer.count("q")[0] == 40
        full(broker, "DROP")
        assert at_once(20) == [(20, 0)] * 4
        assert consumer.count("q")[0] == 40
        full(broker, "PAGE")
        assert at_once(20) == [(20, 0)] * 4
        assert consumer.count("q")[0] == 120
        full(broker, "BLOCK")
        for one in publishers:
            one.publish(20)
        assert [[told.name for told in one.client.collect()] for one in publishers] == [["connection.blocked"]] * 4
        assert consumer.count("q")[0] == 120
        while len(got) < 200:
            got += consumer.bodies("q")
        assert [one.outcomes() for one in publishers] == [(20, 0)] * 4
        broker.do(lambda: reconfigure.set_ring_size(broker.broker.virtual_hosts["/"].queues.named("q"), 1000))
        broker.apply(load(""))
        assert at_once(500) == [(500, 0)] * 4
    kept = consumer.bodies("q")
    assert len(kept) == 1000
    for number in FOUR:
        ours, theirs = of(got, number), of(kept, number)
        assert ours == sorted(set(ours))
        assert not set(ours) & set(range(20, 40))  # dropped
        assert set(range(40, 80)) <= set(ours)  # paged, then held
        assert theirs == list(range(580 - len(theirs), 580))
    for client in (consumer, *(one.client for one in publishers)):
        client.close()


def test_pika_gives_up_what_waits_too_long(broker: SocketBroker) -> None:
    """Its confirms have no time limit of their own: `blocked_connection_timeout` begins with the first held publish."""
    full(broker, "BLOCK")
    parameters = pika.URLParameters(broker.url)
    parameters.blocked_connection_timeout = 0.2
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    for _ in range(40):
        channel.basic_publish("", "q", b"x")
    with pytest.raises(pika.exceptions.ConnectionBlockedTimeout):
        channel.basic_publish("", "q", b"x")


def of(bodies: list[bytes], number: int) -> list[int]:
    """The counts of one publisher's messages, in order."""
    return [int(body[2:]) for body in bodies if body.startswith(b"%d:" % number)]


@pytest.mark.parametrize(("policy", "outcome"), [("FAIL", (0, 20)), ("DROP", (20, 0)), ("PAGE", (20, 0))])
def test_what_is_held_meets_the_next_policy(broker: SocketBroker, policy: str, outcome: tuple[int, int]) -> None:
    """Confirmed or refused as the policy says that holds then, in order."""
    full(broker, "BLOCK")
    publishers = [Publisher(broker, number) for number in FOUR]
    assert publishers[0].published(40) == (40, 0)
    for one in publishers:
        one.publish(20)
    assert [[told.name for told in one.client.collect()] for one in publishers] == [["connection.blocked"]] * 4
    full(broker, policy)
    assert [one.outcomes() for one in publishers] == [outcome] * 4
    assert publishers[0].client.count("q")[0] == (120 if policy == "PAGE" else 40)
    for one in publishers:
        one.client.close()
