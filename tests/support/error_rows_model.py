"""Rows of exchanges, queues, basic, confirms and transactions."""

from __future__ import annotations

from functools import partial
from typing import Any

from error_rows import Rows
from rawclient import Client
from spec_broker import SpecBroker

ROWS = Rows()
row, one, ok = ROWS.row, ROWS.one, ROWS.ok

# ---------------------------------------------------------------------------------------------------------- exchanges

one("exchange-passive-missing", "exchange.declare", exchange="p.none", passive=True)
one("exchange-type-unknown", "exchange.declare", exchange="p.x", type="foo")
one("exchange-type-not-exchange", "exchange.declare", exchange="p.x", type="classic")
one("exchange-reserved", "exchange.declare", exchange="amq.foo", type="direct")
one("exchange-default-declare", "exchange.declare", exchange="", type="direct", durable=True)
one("exchange-default-passive", "exchange.declare", exchange="", type="direct", passive=True)
one("exchange-inequiv-amq-direct", "exchange.declare", exchange="amq.direct", type="topic", durable=True)
one("exchange-delete-default", "exchange.delete", exchange="")
one("exchange-delete-amq", "exchange.delete", exchange="amq.direct")
one("exchange-delete-amq-missing", "exchange.delete", exchange="amq.nothing")
one("exchange-bind-missing-source", "exchange.bind", source="p.nosrc", destination="amq.direct")
one("exchange-bind-missing-dest", "exchange.bind", source="amq.direct", destination="p.nodst")
one("exchange-bind-both-missing", "exchange.bind", source="p.nosrc", destination="p.nodst")
one("exchange-bind-default", "exchange.bind", source="", destination="amq.direct")
one("exchange-bind-default-destination", "exchange.bind", source="amq.direct", destination="")
one("exchange-ae-type", "exchange.declare", exchange="p.xb", type="direct", arguments={"alternate-exchange": 5})
ok("exchange-delete-missing", "exchange.delete", exchange="p.none")
ok("exchange-unbind-missing-exch", "exchange.unbind", source="p.nosrc", destination="amq.direct")
ok("exchange-unbind-missing-binding", "exchange.unbind", source="amq.topic", destination="amq.direct")
ok("exchange-redeclare-amq", "exchange.declare", exchange="amq.direct", type="direct", durable=True)


def redeclare(client: Client, broker: SpecBroker, *, kind: str, name: str, first: Any, then: Any) -> None:
    """Declare, then send the declaration that the case is about."""
    fixed: dict[str, Any] = {"exchange": name, "type": "direct"} if kind == "exchange" else {"queue": name}
    client.call(f"{kind}.declare", **fixed, **first)
    client.send(f"{kind}.declare", **{**fixed, **then})


EXCHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "exchange-inequiv-type": ("p.x", {"type": "fanout"}),
    "exchange-inequiv-durable": ("p.xd", {"durable": True}),
    "exchange-inequiv-autodelete": ("p.xa", {"auto_delete": True}),
    "exchange-inequiv-internal": ("p.xi", {"internal": True}),
    "exchange-inequiv-ae": ("p.xae", {"arguments": {"alternate-exchange": "ae"}}),
}
for name, (exchange, change) in EXCHANGES.items():
    row(name)(partial(redeclare, kind="exchange", name=exchange, first={}, then=change))


@row("exchange-other-args-ignored")
def _(client: Client, broker: SpecBroker) -> None:
    for number in (1, 2):
        client.call("exchange.declare", exchange="p.x", type="direct", arguments={"x-foo": number})


@row("exchange-passive-other-fields")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("exchange.declare", exchange="p.x", type="direct")
    client.call("exchange.declare", exchange="p.x", type="nonsense", passive=True, durable=True, internal=True)


@row("exchange-delete-in-use")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("exchange.declare", exchange="p.xu", type="direct")
    client.call("queue.declare", queue="p.q")
    client.call("queue.bind", queue="p.q", exchange="p.xu", routing_key="k")
    client.send("exchange.delete", exchange="p.xu", if_unused=True)


@row("exchange-delete-in-use-destination")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("exchange.declare", exchange="p.xu", type="direct")
    client.call("exchange.bind", source="amq.fanout", destination="p.xu")
    client.call("exchange.delete", exchange="p.xu", if_unused=True)


@row("exchange-publish-internal")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("exchange.declare", exchange="p.xint", type="direct", internal=True)
    client.publish("p.xint", "k")


@row("exchange-publish-missing")
def _(client: Client, broker: SpecBroker) -> None:
    client.publish("p.nox", "k")


def bind_headers(client: Client, broker: SpecBroker, *, x_match: Any) -> None:
    client.call("queue.declare", queue="p.qh")
    client.send("queue.bind", queue="p.qh", exchange="amq.headers", arguments={"x-match": x_match})


row("exchange-headers-bad-xmatch")(partial(bind_headers, x_match="foo"))
row("exchange-headers-bad-xmatch-type")(partial(bind_headers, x_match=1))


@row("exchange-delayed-not-installed")
def _(client: Client, broker: SpecBroker) -> None:
    """We have it built in."""
    arguments = {"x-delayed-type": "direct"}
    client.send("exchange.declare", exchange="p.xdelay", type="x-delayed-message", arguments=arguments)
    if not broker.is_rabbitmq:
        client.expect("exchange.declare-ok")


def bind_weight(client: Client, broker: SpecBroker, *, weight: str) -> None:
    client.call("exchange.declare", exchange="p.xhash", type="x-consistent-hash")
    client.call("queue.declare", queue="p.q")
    client.send("queue.bind", queue="p.q", exchange="p.xhash", routing_key=weight)


row("exchange-chash-bad-weight")(partial(bind_weight, weight="abc"))
row("exchange-chash-zero-weight")(partial(bind_weight, weight="0"))
one(
    "exchange-chash-both-headers",
    "exchange.declare",
    exchange="p.xhash",
    type="x-consistent-hash",
    arguments={"hash-header": "h", "hash-property": "message_id"},
)

# ------------------------------------------------------------------------------------------------------------- queues

one("queue-passive-missing", "queue.declare", queue="p.none", passive=True)
one("queue-passive-empty-name", "queue.declare", queue="", passive=True)
one("queue-reserved", "queue.declare", queue="amq.foo")
one("queue-passive-amq-missing", "queue.declare", queue="amq.foo", passive=True)
one("queue-purge-missing", "queue.purge", queue="p.nq")
one("queue-purge-no-last", "queue.purge", queue="")
one("queue-delete-no-last", "queue.delete", queue="")
one("queue-bind-missing-queue", "queue.bind", queue="p.nq", exchange="amq.direct", routing_key="k")
one("queue-bind-both-missing", "queue.bind", queue="p.nq", exchange="p.nox", routing_key="k")
one("queue-bind-no-last", "queue.bind", queue="", exchange="amq.direct", routing_key="k")
ok("queue-delete-missing", "queue.delete", queue="p.nq")
ok("queue-unbind-missing-queue", "queue.unbind", queue="p.nq", exchange="amq.direct", routing_key="k")

QUEUES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "queue-inequiv-durable": ("p.qi-durable", {}, {"durable": True}),
    "queue-inequiv-auto-delete": ("p.qi-auto-delete", {}, {"auto_delete": True}),
    "queue-inequiv-exclusive": ("p.qi-exclusive", {}, {"exclusive": True}),
    "queue-inequiv-arg-order-of-checks": ("p.qi-order", {}, {"auto_delete": True, "durable": True}),
    "queue-inequiv-qtype-quorum": (
        "p.qt1",
        {"durable": True},
        {"durable": True, "arguments": {"x-queue-type": "quorum"}},
    ),
}
QUEUE_ARGUMENTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "ttl-added": ("p.qa-ttl-added", {}, {"x-message-ttl": 1000}),
    "ttl-removed": ("p.qa-ttl-removed", {"x-message-ttl": 1000}, {}),
    "ttl-type-class": (
        "p.qa-ttl-type-class",
        {"x-message-ttl": ("I", 1000)},
        {"x-max-length": 5, "x-message-ttl": ("I", 1000)},
    ),
    "value": ("p.qa-value", {"x-message-ttl": 1000}, {"x-message-ttl": 2000}),
    "maxprio": ("p.qa-maxprio", {"x-max-priority": 5}, {}),
    "overflow": ("p.qa-overflow", {"x-overflow": "drop-head"}, {}),
    "qmode": ("p.qa-qmode", {}, {"x-queue-mode": "lazy"}),
    "sac": ("p.qa-sac", {}, {"x-single-active-consumer": True}),
}
for name, (queue, first, then) in QUEUE_ARGUMENTS.items():
    QUEUES[f"queue-inequiv-arg-{name}"] = queue, {"arguments": first}, {"arguments": then}
for name, (queue, first, then) in QUEUES.items():
    row(name)(partial(redeclare, kind="queue", name=queue, first=first, then=then))


def equivalent(client: Client, broker: SpecBroker, *, first: Any, then: Any) -> None:
    client.call("queue.declare", queue="p.qa", arguments=first)
    client.call("queue.declare", queue="p.qa", arguments=then)


EQUIVALENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "queue-inequiv-arg-ttl-int-width": ({"x-message-ttl": ("I", 1000)}, {"x-message-ttl": ("l", 1000)}),
    "queue-inequiv-arg-qtype": ({}, {"x-queue-type": "classic"}),
    "queue-inequiv-arg-unknown-arg": ({"x-foo": 1}, {"x-foo": 2}),
}
for name, (first, then) in EQUIVALENT.items():
    row(name)(partial(equivalent, first=first, then=then))

BAD_ARGUMENTS: dict[str, dict[str, Any]] = {
    "ttl-string": {"x-message-ttl": "abc"},
    "ttl-negative": {"x-message-ttl": -1},
    "ttl-float": {"x-message-ttl": 1.5},
    "ttl-bool": {"x-message-ttl": True},
    "ttl-void": {"x-message-ttl": None},
    "ttl-huge": {"x-message-ttl": ("l", 2**40)},
    "expires-zero": {"x-expires": 0},
    "expires-negative": {"x-expires": -5},
    "expires-huge": {"x-expires": ("l", 2**40)},
    "expires-string": {"x-expires": "a"},
    "maxlen-negative": {"x-max-length": -1},
    "maxlen-string": {"x-max-length": "x"},
    "maxlenbytes-negative": {"x-max-length-bytes": -1},
    "overflow-type": {"x-overflow": 1},
    "overflow-bad": {"x-overflow": "foo"},
    "dlx-type": {"x-dead-letter-exchange": 5},
    "dlrk-no-dlx": {"x-dead-letter-routing-key": "k"},
    "dlrk-type": {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": 5},
    "maxprio-negative": {"x-max-priority": -1},
    "maxprio-string": {"x-max-priority": "a"},
    "maxprio-large": {"x-max-priority": 256},
    "sac-type": {"x-single-active-consumer": "yes"},
    "qtype-bad": {"x-queue-type": "foo"},
    "qtype-type": {"x-queue-type": 5},
    "qmode-bad": {"x-queue-mode": "foo"},
    "qmode-type": {"x-queue-mode": 1},
    "qversion-bad": {"x-queue-version": 3},
    "master-locator-bad": {"x-queue-master-locator": "foo"},
    "leader-locator-bad": {"x-queue-leader-locator": "foo"},
    "maxage-classic": {"x-max-age": "1D"},
    "dlstrategy-classic": {"x-dead-letter-strategy": "at-most-once"},
    "group-size-classic": {"x-quorum-initial-group-size": 3},
}
for name, arguments in BAD_ARGUMENTS.items():
    one(f"queue-badarg-{name}", "queue.declare", queue="p.qb", arguments=arguments)
ok("queue-badarg-delivery-limit-unknown", "queue.declare", queue="p.qb", arguments={"x-foo-bar": 3})
ok("queue-name-long", "queue.declare", queue="p." + "q" * 253)


def locked(client: Client, broker: SpecBroker, *, queue: str, method: str, **values: Any) -> None:
    """Another connection owns the exclusive queue; this one touches it."""
    owner = broker.open()
    owner.call("queue.declare", queue=queue, exclusive=True)
    client.send(method, queue=queue, **values)
    if method == "queue.unbind":
        client.expect("queue.unbind-ok")


LOCKED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "declare": ("p.ex", "queue.declare", {}),
    "declare-excl": ("p.exl", "queue.declare", {"exclusive": True}),
    "passive": ("p.exl", "queue.declare", {"passive": True}),
    "get": ("p.exl", "basic.get", {}),
    "consume": ("p.exl", "basic.consume", {}),
    "purge": ("p.exl", "queue.purge", {}),
    "delete": ("p.exl", "queue.delete", {}),
    "bind": ("p.exl", "queue.bind", {"exchange": "amq.direct", "routing_key": "k"}),
    "unbind": ("p.exl", "queue.unbind", {"exchange": "amq.direct", "routing_key": "k"}),
}
for name, (queue, method, values) in LOCKED.items():
    row(f"queue-excl-locked-{name}")(partial(locked, queue=queue, method=method, **values))


@row("queue-excl-locked-publish")
def _(client: Client, broker: SpecBroker) -> None:
    owner = broker.open()
    owner.call("queue.declare", queue="p.exl", exclusive=True)
    client.call("confirm.select")
    client.publish("", "p.exl", b"from outside")
    client.expect("basic.ack")
    assert owner.take("p.exl", no_ack=True).body == b"from outside"


def on_a_queue(client: Client, broker: SpecBroker, *, method: str, **values: Any) -> None:
    """With the queue p.q there."""
    client.call("queue.declare", queue="p.q")
    client.send(method, queue="p.q", **values)


row("queue-bind-missing-exchange")(partial(on_a_queue, method="queue.bind", exchange="p.nox", routing_key="k"))
row("queue-bind-default")(partial(on_a_queue, method="queue.bind", exchange="", routing_key="k"))
row("queue-unbind-default")(partial(on_a_queue, method="queue.unbind", exchange="", routing_key="k"))


@row("queue-unbind-missing-binding")
def _(client: Client, broker: SpecBroker) -> None:
    on_a_queue(client, broker, method="queue.unbind", exchange="amq.direct", routing_key="k")
    client.expect("queue.unbind-ok")


@row("queue-unbind-missing-exchange")
def _(client: Client, broker: SpecBroker) -> None:
    on_a_queue(client, broker, method="queue.unbind", exchange="p.nox", routing_key="k")
    client.expect("queue.unbind-ok")


@row("queue-bind-twice")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.q")
    for _ in range(2):
        client.call("queue.bind", queue="p.q", exchange="amq.direct", routing_key="p.twice")
    client.publish("amq.direct", "p.twice", b"once")
    assert client.bodies("p.q") == [b"once"]


@row("queue-delete-in-use")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.iu")
    client.call("basic.consume", queue="p.iu")
    client.send("queue.delete", queue="p.iu", if_unused=True)


@row("queue-delete-not-empty")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.ne")
    client.publish("", "p.ne", b"1")
    client.send("queue.delete", queue="p.ne", if_empty=True)


@row("queue-delete-in-use-and-not-empty")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.iue")
    client.call("channel.open", channel=2)
    client.call("basic.qos", channel=2, prefetch_count=1)
    client.call("basic.consume", channel=2, queue="p.iue", consumer_tag="c")
    for body in (b"1", b"2"):
        client.publish("", "p.iue", body)
    client.expect("basic.deliver", channel=2)
    client.send("queue.delete", queue="p.iue", if_unused=True, if_empty=True)


# -------------------------------------------------------------------------------------------------------------- basic

one("basic-qos-prefetch-size", "basic.qos", prefetch_size=1)
one("basic-consume-missing", "basic.consume", queue="p.nq")
one("basic-consume-no-last", "basic.consume", queue="")
one("basic-get-missing", "basic.get", queue="p.nq")
one("basic-get-no-last", "basic.get", queue="")
one("basic-ack-unknown", "basic.ack", delivery_tag=99)
one("basic-ack-unknown-multiple", "basic.ack", delivery_tag=5, multiple=True)
one("basic-ack-zero", "basic.ack", delivery_tag=0)
one("basic-nack-unknown", "basic.nack", delivery_tag=99)
one("basic-reject-unknown", "basic.reject", delivery_tag=99)
one("basic-ack-zero-multiple", "basic.ack", delivery_tag=0, multiple=True)
one("basic-recover-no-requeue", "basic.recover", requeue=False)
one("basic-recover-async-no-requeue", "basic.recover-async", requeue=False)
ok("basic-recover-nothing", "basic.recover", requeue=True)
ok("basic-cancel-unknown", "basic.cancel", consumer_tag="nobody")
for name, value in {
    "basic-expiration-bad": "abc",
    "basic-expiration-negative": "-1",
    "basic-expiration-float": "1.5",
    "basic-expiration-suffix": "10s",
    "basic-expiration-empty": "",
    "basic-expiration-huge": "99999999999999",
}.items():
    row(name)(lambda client, broker, value=value: client.publish("", "p.nowhere", expiration=value))
row("basic-userid-mismatch")(lambda client, broker: client.publish("", "p.nowhere", user_id="other"))


@row("tx-commit-overflow-reject")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.publish("", "p.full", b"fills it")
    client.wait_for_ready("p.full", 1)
    client.call("tx.select")
    client.publish("", "p.full", b"too much")
    client.send("tx.commit")


for header in ("CC", "BCC"):
    row(f"basic-{header.lower()}-not-array")(
        lambda client, broker, header=header: client.publish("", "p.nowhere", headers={header: "abc"})
    )

REPLY_TO = "amq.rabbitmq.reply-to"
one("basic-reply-to-declare-missing", "queue.declare", queue=f"{REPLY_TO}.bogus", passive=True)
one("basic-reply-to-get", "basic.get", queue=REPLY_TO)
ok("basic-reply-to-declare", "queue.declare", queue=REPLY_TO)
row("basic-reply-to-no-consumer")(lambda client, broker: client.publish("", "p.nowhere", reply_to=REPLY_TO))


@row("basic-reply-to-consume-twice")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("basic.consume", queue=REPLY_TO, no_ack=True)
    client.send("basic.consume", queue=REPLY_TO, no_ack=True)


@row("basic-consume-tag-of-reply-consumer")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("basic.consume", queue=REPLY_TO, consumer_tag="t", no_ack=True)
    client.call("queue.declare", queue="p.ct")
    client.send("basic.consume", queue="p.ct", consumer_tag="t")


row("basic-publish-immediate")(lambda client, broker: client.publish("", "p.nowhere", immediate=True))


@row("basic-consume-excl-second")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.ce")
    client.call("basic.consume", queue="p.ce", exclusive=True)
    client.send("basic.consume", queue="p.ce")


@row("basic-consume-excl-when-used")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.ce2")
    client.call("basic.consume", queue="p.ce2")
    client.send("basic.consume", queue="p.ce2", exclusive=True)


@row("basic-consume-excl-get")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.ce")
    client.call("basic.consume", queue="p.ce", exclusive=True)
    assert client.get("p.ce") is None


@row("basic-consume-tag-reused")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.q")
    client.call("basic.consume", queue="p.q", consumer_tag="t1")
    client.send("basic.consume", queue="p.q", consumer_tag="t1")


@row("basic-consume-tag-other-channel")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.q")
    client.call("channel.open", channel=2)
    for channel in (1, 2):
        client.call("basic.consume", channel=channel, queue="p.q", consumer_tag="t1")


def consume_with(client: Client, broker: SpecBroker, *, queue: str, arguments: Any, nowait: bool = False) -> None:
    client.call("queue.declare", queue=queue)
    client.send("basic.consume", queue=queue, arguments=arguments, nowait=nowait)


row("basic-consume-priority-type")(partial(consume_with, queue="p.cp", arguments={"x-priority": "a"}))
row("basic-consume-stream-offset-classic")(partial(consume_with, queue="p.cp2", arguments={"x-stream-offset": "first"}))
row("basic-consume-failover-type")(partial(consume_with, queue="p.cp3", arguments={"x-cancel-on-ha-failover": 5}))
row("basic-consume-credit-type")(partial(consume_with, queue="p.cp5", arguments={"x-credit": "a"}, nowait=True))
row("basic-consume-two-faults")(
    partial(consume_with, queue="p.cp4", arguments={"x-stream-offset": "first", "x-priority": "a"})
)


@row("basic-ack-noack")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.q")
    client.publish("", "p.q", b"1")
    assert client.take("p.q", no_ack=True)["delivery_tag"] == 1
    client.send("basic.ack", delivery_tag=1)


@row("basic-ack-twice")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.q")
    client.publish("", "p.q", b"1")
    client.take("p.q")
    for _ in range(2):
        client.send("basic.ack", delivery_tag=1)


@row("basic-ack-other-channel")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.q")
    client.call("channel.open", channel=2)
    client.publish("", "p.q", b"1")
    client.wait_for_ready("p.q", 1)
    client.take("p.q", channel=2)
    client.send("basic.ack", delivery_tag=1)


@row("basic-ack-multiple-settled-tag")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.q")
    for body in (b"1", b"2", b"3"):
        client.publish("", "p.q", body)
        client.take("p.q")
    client.send("basic.ack", delivery_tag=2)
    client.send("basic.ack", delivery_tag=2, multiple=True)


# ----------------------------------------------------------------------------------------------- confirms, transactions

one("tx-commit-no-select", "tx.commit")
one("tx-rollback-no-select", "tx.rollback")


def after(client: Client, broker: SpecBroker, *, first: str, then: str) -> None:
    client.call(first)
    client.send(then)


row("tx-after-confirm")(partial(after, first="confirm.select", then="tx.select"))
row("confirm-after-tx")(partial(after, first="tx.select", then="confirm.select"))


def twice(client: Client, broker: SpecBroker, *, method: str) -> None:
    client.call(method)
    client.call(method)


row("tx-select-twice")(partial(twice, method="tx.select"))
row("confirm-select-twice")(partial(twice, method="confirm.select"))


@row("tx-ack-unknown")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("tx.select")
    client.send("basic.ack", delivery_tag=9)


@row("tx-publish-missing-exchange")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("tx.select")
    client.publish("p.nox", "k")


@row("confirm-publish-missing-exchange")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("confirm.select")
    client.publish("p.missing", "k")


# --------------------------------------------------------------------------------------------------- quorum and stream


def typed(queue_type: str, queue: str, *, arguments: dict[str, Any] | None = None, **properties: Any) -> dict[str, Any]:
    """Arguments of queue.declare for a durable queue of a type."""
    named = {"x-queue-type": queue_type, **(arguments or {})}
    return {"queue": queue, "durable": True, "arguments": named, **properties}


TYPED: dict[str, dict[str, Any]] = {
    "quorum-nondurable": typed("quorum", "p.qq", durable=False),
    "quorum-exclusive": typed("quorum", "p.qq", exclusive=True),
    "quorum-autodelete": typed("quorum", "p.qq", auto_delete=True),
    "quorum-qmode": typed("quorum", "p.qq", arguments={"x-queue-mode": "lazy"}),
    "quorum-group-size-str": typed("quorum", "p.qq", arguments={"x-quorum-initial-group-size": "a"}),
    "quorum-dlstrategy-bad": typed("quorum", "p.qq", arguments={"x-dead-letter-strategy": "foo"}),
    "quorum-server-named": typed("quorum", ""),
    "quorum-maxage": typed("quorum", "p.qq", arguments={"x-max-age": "1D"}),
    "stream-nondurable": typed("stream", "p.st", durable=False),
    "stream-exclusive": typed("stream", "p.st", exclusive=True),
    "stream-autodelete": typed("stream", "p.st", auto_delete=True),
    "stream-maxage-zero": typed("stream", "p.st", arguments={"x-max-age": "0D"}),
    "stream-maxage-bad": typed("stream", "p.st", arguments={"x-max-age": "a week"}),
    "stream-maxage-type": typed("stream", "p.st", arguments={"x-max-age": 5}),
    "stream-ttl": typed("stream", "p.st", arguments={"x-message-ttl": 5}),
    "stream-sac": typed("stream", "p.st", arguments={"x-single-active-consumer": True}),
    "stream-overflow": typed("stream", "p.st", arguments={"x-overflow": "drop-head"}),
    "stream-dlx": typed("stream", "p.st", arguments={"x-dead-letter-exchange": ""}),
    "stream-expires": typed("stream", "p.st", arguments={"x-expires": 10000}),
    "stream-maxprio": typed("stream", "p.st", arguments={"x-max-priority": 2}),
    "stream-server-named": typed("stream", ""),
}
for name, values in TYPED.items():
    one(name, "queue.declare", **values)
for name, arguments in {
    "overflow-dlx": {"x-overflow": "reject-publish-dlx"},
    "delivery-limit-neg": {"x-delivery-limit": -1},
    "ttl": {"x-message-ttl": 1000},
}.items():
    ok(f"quorum-{name}", "queue.declare", **typed("quorum", "p.qq", arguments=arguments))


@row("quorum-delivery-limit-str")
def _(client: Client, broker: SpecBroker) -> None:
    client.send("queue.declare", **typed("quorum", "p.qq", arguments={"x-delivery-limit": "a"}))
    if broker.is_rabbitmq:
        client.expect("queue.declare-ok")


@row("quorum-global-qos")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", **typed("quorum", "p.qq2"))
    client.call("basic.qos", prefetch_count=5, global_=True)
    client.send("basic.consume", queue="p.qq2")


@row("quorum-if-empty")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", **typed("quorum", "p.qq2"))
    client.send("queue.delete", queue="p.qq2", if_empty=True)


@row("quorum-sac-get")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", **typed("quorum", "p.qsac", arguments={"x-single-active-consumer": True}))
    client.send("basic.get", queue="p.qsac")


@row("stream-purge")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", **typed("stream", "p.st2"))
    client.send("queue.purge", queue="p.st2")


def consume_stream(client: Client, broker: SpecBroker, *, qos: Any = None, ok: bool = False, **values: Any) -> None:
    client.call("queue.declare", **typed("stream", "p.st2"))
    if qos is not None:
        client.call("basic.qos", **qos)
    client.send("basic.consume", queue="p.st2", **values)
    if ok:
        client.expect("basic.consume-ok")


TEN = {"prefetch_count": 10}
row("stream-consume-noqos")(partial(consume_stream))
row("stream-consume-noack")(partial(consume_stream, qos=TEN, no_ack=True))
row("stream-consume-excl")(partial(consume_stream, qos=TEN, ok=True, exclusive=True))
row("stream-consume-priority")(partial(consume_stream, qos=TEN, arguments={"x-priority": 1}))
row("stream-consume-two-faults")(
    partial(consume_stream, qos=TEN, arguments={"x-cancel-on-ha-failover": 5, "x-priority": "a"})
)
row("stream-offset-negative")(partial(consume_stream, qos=TEN, ok=True, arguments={"x-stream-offset": -1}))
row("stream-offset-array")(partial(consume_stream, qos=TEN, arguments={"x-stream-offset": [1]}))
row("stream-offset-boolean")(partial(consume_stream, qos=TEN, arguments={"x-stream-offset": True}))
row("stream-global-qos")(partial(consume_stream, qos={**TEN, "global_": True}))
