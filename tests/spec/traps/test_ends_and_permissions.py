"""Permissions, and how connections end: where naive brokers differ from RabbitMQ."""

from __future__ import annotations

import re

import pytest
from rawclient import Client, Eof
from spec_broker import SpecBroker, close_of
from traps import Q, not_found, trap


def as_user(broker: SpecBroker, user: str) -> Client:
    """A client of one of the users of definitions.json."""
    return broker.open(response=f"\0{user}\0p".encode())


def refused(client: Client, what: str, ids: tuple[int, int]) -> None:
    """403 on the channel, which is opened again; our text begins with the verb."""
    code, text, *found = close_of(client.expect("channel.close"))
    assert (code, found) == (403, list(ids))
    assert f"access to {what} in vhost '/' refused for user" in text
    client.send("channel.close-ok")
    client.call("channel.open")


@trap(69)
def test_permission_comes_before_existence(broker: SpecBroker) -> None:
    """What is not there is 403, not 404, for who may not; the default exchange is called amq.default."""
    client = as_user(broker, "no-read-p.m.q")
    client.send("basic.get", queue="p.m.q")
    refused(client, "queue 'p.m.q'", (60, 70))
    client = as_user(broker, "no-write-amq.default")
    client.publish("", "p.nowhere", b"x")
    refused(client, "exchange 'amq.default'", (60, 40))


@trap(70)
def test_what_arguments_need(broker: SpecBroker) -> None:
    """A dead-letter exchange: read on the queue, write on the exchange; an alternate one: read on the first."""
    dead_letters = {"x-dead-letter-exchange": "p.m.y"}
    for user, what in (("no-read-p.m.q", "queue 'p.m.q'"), ("no-write-p.m.y", "exchange 'p.m.y'")):
        client = as_user(broker, user)
        client.send("queue.declare", queue="p.m.q", arguments=dead_letters)
        refused(client, what, (50, 10))
    for user, what in (("no-read-p.m.x", "exchange 'p.m.x'"), ("no-write-p.m.y", "exchange 'p.m.y'")):
        client = as_user(broker, user)
        client.send("exchange.declare", exchange="p.m.x", type="direct", arguments={"alternate-exchange": "p.m.y"})
        refused(client, what, (40, 10))


@trap(71)
def test_topic_permissions_take_binding_keys_as_text(broker: SpecBroker) -> None:
    """A binding key is looked at letter by letter: its wildcards mean nothing there."""
    guest = broker.open()
    guest.call("exchange.declare", exchange="p.m.t", type="topic")
    guest.call("queue.declare", queue="p.m.q")
    client = as_user(broker, "no-topic-read")
    client.call("queue.bind", queue="p.m.q", exchange="p.m.t", routing_key="no-topic-read.ok")
    for key in ("#", "*.ok", "no-topic-read.*"):
        client.send("queue.bind", queue="p.m.q", exchange="p.m.t", routing_key=key)
        refused(client, f"topic '{key}' in exchange 'p.m.t'", (50, 20))


@trap(76)
@pytest.mark.parametrize("what", ["user", "vhost"])
def test_deleting_ends_connections(what: str, broker: SpecBroker) -> None:
    """320, whichever of user and virtual host was deleted."""
    name = f"p-trap-{what}"
    broker.rule(f"add_{what}", *([name, "p"] if what == "user" else [name]))
    user, vhost = (name, "/") if what == "user" else ("guest", name)
    broker.rule("set_permissions", "-p", vhost, user, ".*", ".*", ".*")
    client = broker.connect()
    client.handshake(vhost=vhost, response=f"\0{user}\0{'p' if what == 'user' else 'guest'}".encode())
    broker.rule_meanwhile(f"delete_{what}", name)
    client.running = False
    code, text, *ids = close_of(client.expect("connection.close", channel=0))
    assert (code, ids) == (320, [0, 0])
    assert re.fullmatch(f"CONNECTION_FORCED - {what} '{name}' is (deleted|down)", text)
    client.abort()


@trap(77)
def test_who_closes_the_socket(broker: SpecBroker) -> None:
    """After the client's close the broker leaves the socket to the client; after the client's close-ok it closes."""
    client = broker.open()
    client.running = False
    client.send("connection.close", channel=0)
    client.expect("connection.close-ok", channel=0)
    with pytest.raises(TimeoutError):
        client.read_frame(0.3)
    client = broker.open()
    client.send("channel.close-ok")
    client.expect("connection.close", channel=0)
    client.send("connection.close-ok", channel=0)
    with pytest.raises(Eof):
        client.read_frame(25)  # less than the 30 s that a broker waits for whoever does not answer
    client.running = False


@trap(78)
def test_exclusive_queues_are_gone_with_close_ok(broker: SpecBroker) -> None:
    """When close-ok arrives another connection can already declare the name."""
    owner, other = broker.open(), broker.open()
    owner.call("queue.declare", queue=Q, exclusive=True)
    owner.close()
    not_found(other, Q)
    other.call("queue.declare", queue=Q, durable=True)
