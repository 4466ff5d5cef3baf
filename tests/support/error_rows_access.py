"""Rows of permissions, limits, and connections that an operator ends. The users are those of spec/definitions.json."""

from __future__ import annotations

from typing import Any

from error_rows import Rows
from rawclient import Client
from spec_broker import SpecBroker

ROWS = Rows()
row = ROWS.row


def plain(user: str) -> bytes:
    """The PLAIN response of one of the users."""
    return f"\0{user}\0p".encode()


def log_in(client: Client, user: str, *, vhost: str = "/") -> None:
    """The case's client is this user, and has channel 1 open."""
    client.handshake(response=plain(user), vhost=vhost)
    client.call("channel.open")


def one(name: str, user: str, method: str, **values: Any) -> None:
    """A row of one method of a user."""

    def send(client: Client, broker: SpecBroker) -> None:
        log_in(client, user)
        client.send(method, **values)

    row(name, bare=True)(send)


def publish(name: str, user: str, exchange: str, routing_key: str) -> None:
    """A row of one publish of a user."""

    def send(client: Client, broker: SpecBroker) -> None:
        log_in(client, user)
        client.publish(exchange, routing_key)

    row(name, bare=True)(send)


one("perm-declare-queue", "noperm", "queue.declare", queue="p.z")
one("perm-declare-exchange", "noperm", "exchange.declare", exchange="p.z", type="direct")
one("perm-delete-missing", "noperm", "queue.delete", queue="q.z")
one("perm-dlx-read", "conf", "queue.declare", queue="p.zd", arguments={"x-dead-letter-exchange": "p.dlx"})
one(
    "perm-ae-read",
    "conf",
    "exchange.declare",
    exchange="p.zae",
    type="direct",
    arguments={"alternate-exchange": "p.ae"},
)
publish("perm-publish-default", "noperm", "", "p.q")
publish("perm-publish-amq-direct", "noperm", "amq.direct", "k")
publish("perm-publish-missing-exchange", "noperm", "p.nox", "k")
publish("perm-topic-publish", "topic", "amq.topic", "bad.x")


def on_own_queue(name: str, user: str, queue: str, method: str, **values: Any) -> None:
    """A row of one method about a queue that the user has declared."""

    def send(client: Client, broker: SpecBroker) -> None:
        log_in(client, user)
        client.call("queue.declare", queue=queue)
        client.send(method, queue=queue, **values)

    row(name, bare=True)(send)


on_own_queue("perm-get", "conf", "p.zg", "basic.get")
on_own_queue("perm-purge", "conf", "p.zp", "queue.purge")
on_own_queue("perm-bind-write", "conf", "p.zb", "queue.bind", exchange="amq.direct", routing_key="k")
on_own_queue("perm-bind-read", "cw", "p.zb", "queue.bind", exchange="amq.direct", routing_key="k")

# ------------------------------------------------------------------------------------------------------------- limits


def opening(client: Client, *, vhost: str = "/", **options: Any) -> None:
    """As far as connection.open, whose outcome is the case's."""
    client.tune_ok(client.log_in(**options))
    client.send("connection.open", channel=0, virtual_host=vhost)


@row("open-vhost-connection-limit", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    opening(client, vhost="limc")


@row("limit-user-connections", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    broker.open(response=plain("lu"))
    opening(client, response=plain("lu"))


@row("queue-limit-vhost", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    client.handshake(vhost="lim")
    client.call("channel.open")
    client.call("queue.declare", queue="p.l1", exclusive=True)  # gone with the connection
    client.call("queue.declare", queue="p.l1", exclusive=True)  # one that is there is no further one
    client.send("queue.declare", queue="p.l2")


# ------------------------------------------------------------------------------------------------------------- forced


@row("forced-user-deleted", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    log_in(client, "tmpu")
    broker.rule_meanwhile("delete_user", "tmpu")


@row("forced-vhost-deleted", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    client.handshake(vhost="tmpv")
    client.call("channel.open")
    client.call("queue.declare", queue="p.tmp")
    broker.rule_meanwhile("delete_vhost", "tmpv")
