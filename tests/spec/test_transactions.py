"""What may happen between a publish in a transaction and its commit: the queues are chosen, and rights asked for, at
the publish. Source: behaviour page 2.15; probed on 3.10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from rawclient import Client
from spec_broker import SpecBroker, expect_channel_close

EXCHANGE, Q, USER = "p.tx.x", "p.tx.q", "p-tx"
Step = Callable[[Client], object]


def uncommitted(broker: SpecBroker, *, user: str = "guest", exchange: str = EXCHANGE) -> tuple[Client, Client]:
    """An operator's client, and one with a mandatory message in a transaction, bound for the queue."""
    guest = broker.open()
    guest.call("exchange.declare", exchange=EXCHANGE, type="topic")
    guest.call("queue.declare", queue=Q)
    guest.call("queue.bind", queue=Q, exchange=EXCHANGE, routing_key="k")
    client = broker.open(response=f"\0{user}\0{user}".encode())
    client.call("tx.select")
    client.publish(exchange, "k" if exchange else Q, b"message", mandatory=True)
    assert client.collect() == []
    return guest, client


def _declare_anew(guest: Client) -> None:
    guest.call("queue.delete", queue=Q)
    guest.call("queue.declare", queue=Q)


def _declare_another_exchange(guest: Client) -> None:
    guest.call("exchange.delete", exchange=EXCHANGE)
    guest.call("exchange.declare", exchange=EXCHANGE, type="fanout")


@pytest.mark.parametrize(
    "happens",
    [
        lambda guest: guest.call("queue.unbind", queue=Q, exchange=EXCHANGE, routing_key="k"),
        lambda guest: guest.call("exchange.delete", exchange=EXCHANGE),
        _declare_another_exchange,
        _declare_anew,
    ],
    ids=["unbound", "exchange deleted", "another exchange of its name", "another queue of its name"],
)
def test_a_commit_puts_the_message_where_the_publish_found_a_queue(happens: Step, broker: SpecBroker) -> None:
    """Whatever became of bindings and exchanges meanwhile; the queue is found by its name."""
    guest, client = uncommitted(broker)
    happens(guest)
    client.call("tx.commit")
    guest.wait_for_ready(Q, 1)


@pytest.mark.parametrize("exchange", ["", EXCHANGE])
def test_a_commit_returns_what_no_queue_takes_any_more(exchange: str, broker: SpecBroker) -> None:
    """The queue is gone: a mandatory message comes back, before commit-ok."""
    guest, client = uncommitted(broker, exchange=exchange)
    guest.call("queue.delete", queue=Q)
    client.send("tx.commit")
    returned = client.expect("basic.return")
    assert (returned["reply_code"], returned["exchange"], returned.body) == (312, exchange, b"message")
    client.expect("tx.commit-ok")


@pytest.fixture
def user(broker: SpecBroker) -> Iterator[str]:
    """One who may do everything, for now."""
    broker.rule("add_user", USER, USER)
    broker.rule("set_permissions", "-p", "/", USER, ".*", ".*", ".*")
    yield USER
    broker.rule_meanwhile("delete_user", USER)


@pytest.mark.parametrize("left", [(".*", "^$", ".*"), ("^$", "^$", "^$")], ids=["write", "all"])
def test_a_commit_asks_for_no_permission(left: tuple[str, str, str], user: str, broker: SpecBroker) -> None:
    """What was published while it was allowed is committed; the next publish is refused, and takes the rest with it."""
    guest, client = uncommitted(broker, user=user)
    broker.rule("set_permissions", "-p", "/", user, *left)
    client.call("tx.commit")
    guest.wait_for_ready(Q, 1)
    client.publish(EXCHANGE, "k")
    access = "access" if broker.is_rabbitmq else "write access"
    text = f"ACCESS_REFUSED - {access} to exchange '{EXCHANGE}' in vhost '/' refused for user '{user}'"
    expect_channel_close(client, 403, text, (60, 40))


def test_a_refused_publish_takes_the_transaction_with_it(user: str, broker: SpecBroker) -> None:
    """One was allowed, the next one is not: the channel ends, and neither is there."""
    guest, client = uncommitted(broker, user=user)
    broker.rule("set_permissions", "-p", "/", user, ".*", "^$", ".*")
    client.publish(EXCHANGE, "k", b"refused")
    client.expect("channel.close")
    client.send("channel.close-ok")
    client.call("channel.open")
    assert guest.count(Q) == (0, 0)


def test_a_commit_acknowledges_whoever_may_not_read_any_more(user: str, broker: SpecBroker) -> None:
    """The delivery was allowed, so is its end."""
    guest = broker.open()
    guest.call("queue.declare", queue=Q)
    guest.publish("", Q, b"message")
    guest.wait_for_ready(Q, 1)
    client = broker.open(response=f"\0{user}\0{user}".encode())
    client.call("tx.select")
    client.send("basic.ack", delivery_tag=client.take(Q)["delivery_tag"])
    broker.rule("set_permissions", "-p", "/", user, "^$", "^$", "^$")
    client.call("tx.commit")
    client.close()
    assert guest.call("queue.delete", queue=Q)["message_count"] == 0
