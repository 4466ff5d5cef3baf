"""The permission matrix: every operation, without each of the permissions that it needs, is refused and does nothing.

Source: behaviour page 3.14. The users are those of definitions.json: `no-write-p.m.q` may do everything but write to
p.m.q, `no-topic-read` everything but read keys of p.m.t. With LEVERET_SPEC_PEER=rabbitmq RabbitMQ 3.10 is asked; its
texts lack the verb.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from rawclient import Client
from spec_broker import SpecBroker, expect_channel_close

Q, X, Y, T = "p.m.q", "p.m.x", "p.m.y", "p.m.t"  # a queue, exchanges: direct, fanout, topic
KEY = "somebody.else"
CONFIGURE, WRITE, READ = "configure", "write", "read"
QUEUE, EXCHANGE, TOPIC = "queue", "exchange", "topic"

Need = tuple[str, str, str]  # action, kind, name


@dataclass(frozen=True)
class Operation:
    """`needs` in the order in which they are asked for; `answer` comes when nothing is missing (None: none does)."""

    do: Callable[[Client], None]
    ids: tuple[int, int]
    needs: tuple[Need, ...]
    is_new: bool = False  # what it declares is not there before
    answer: str | None = None


def send(method: str, **values: object) -> Callable[[Client], None]:
    """One method."""
    return lambda client: client.send(method, **values)


def publish(exchange: str, key: str) -> Callable[[Client], None]:
    """One message."""
    return lambda client: client.publish(exchange, key, b"never")


TOPIC_READ = (READ, TOPIC, T)
BIND = ((WRITE, QUEUE, Q), (READ, EXCHANGE, X))
BIND_X = ((WRITE, EXCHANGE, Y), (READ, EXCHANGE, X))
Q_BY_KEY = {"queue": Q, "exchange": T, "routing_key": KEY}
X_BY_KEY = {"destination": Y, "source": T, "routing_key": KEY}
AE = {"alternate-exchange": Y}
DLX = {"x-dead-letter-exchange": Y}

OPERATIONS: dict[str, Operation] = {
    "exchange.declare": Operation(
        send("exchange.declare", exchange=X, type="direct"), (40, 10), ((CONFIGURE, EXCHANGE, X),), True
    ),
    "exchange.declare again": Operation(
        send("exchange.declare", exchange=X, type="direct"), (40, 10), ((CONFIGURE, EXCHANGE, X),)
    ),
    "exchange.declare with alternate": Operation(
        send("exchange.declare", exchange=X, type="direct", arguments=AE),
        (40, 10),
        ((CONFIGURE, EXCHANGE, X), (READ, EXCHANGE, X), (WRITE, EXCHANGE, Y)),
        True,
    ),
    "exchange.delete": Operation(send("exchange.delete", exchange=X), (40, 20), ((CONFIGURE, EXCHANGE, X),)),
    "exchange.bind": Operation(send("exchange.bind", destination=Y, source=X), (40, 30), BIND_X),
    "exchange.bind by key": Operation(send("exchange.bind", **X_BY_KEY), (40, 30), (TOPIC_READ,)),
    "exchange.unbind": Operation(send("exchange.unbind", destination=Y, source=X), (40, 40), BIND_X),
    "exchange.unbind by key": Operation(send("exchange.unbind", **X_BY_KEY), (40, 40), (TOPIC_READ,)),
    "queue.declare": Operation(send("queue.declare", queue=Q), (50, 10), ((CONFIGURE, QUEUE, Q),), True),
    "queue.declare again": Operation(send("queue.declare", queue=Q), (50, 10), ((CONFIGURE, QUEUE, Q),)),
    "queue.declare with DLX": Operation(
        send("queue.declare", queue=Q, arguments=DLX),
        (50, 10),
        ((CONFIGURE, QUEUE, Q), (READ, QUEUE, Q), (WRITE, EXCHANGE, Y)),
        True,
    ),
    "queue.delete": Operation(send("queue.delete", queue=Q), (50, 40), ((CONFIGURE, QUEUE, Q),)),
    "queue.purge": Operation(send("queue.purge", queue=Q), (50, 30), ((READ, QUEUE, Q),)),
    "queue.bind": Operation(send("queue.bind", queue=Q, exchange=X, routing_key="k"), (50, 20), BIND),
    "queue.bind by key": Operation(send("queue.bind", **Q_BY_KEY), (50, 20), (TOPIC_READ,)),
    "queue.unbind": Operation(send("queue.unbind", queue=Q, exchange=X, routing_key="k"), (50, 50), BIND),
    "queue.unbind by key": Operation(send("queue.unbind", **Q_BY_KEY), (50, 50), (TOPIC_READ,)),
    "basic.consume": Operation(send("basic.consume", queue=Q, consumer_tag="t"), (60, 20), ((READ, QUEUE, Q),)),
    "basic.get": Operation(send("basic.get", queue=Q), (60, 70), ((READ, QUEUE, Q),)),
    "basic.publish": Operation(publish(X, "k"), (60, 40), ((WRITE, EXCHANGE, X),)),
    "basic.publish to the default": Operation(publish("", Q), (60, 40), ((WRITE, EXCHANGE, "amq.default"),)),
    "basic.publish by key": Operation(publish(T, KEY), (60, 40), ((WRITE, TOPIC, T),)),
}
CELLS = [(name, need) for name, operation in OPERATIONS.items() for need in operation.needs]


def as_user(broker: SpecBroker, user: str) -> Client:
    """A connection of one of the users, with channel 1 open."""
    return broker.open(response=f"\0{user}\0p".encode())


def furnish(broker: SpecBroker, *, without: str) -> Client:
    """Queue and exchanges, bound to each other where a binding may be taken away, a message in the queue."""
    guest = broker.open()
    declared = {Q: "queue", X: "direct", Y: "fanout", T: "topic"}
    for name, kind in declared.items():
        if name == without:
            continue
        if kind == "queue":
            guest.call("queue.declare", queue=name)
        else:
            guest.call("exchange.declare", exchange=name, type=kind)
    return guest


def bound(guest: Client, *, with_queue: bool, with_x: bool) -> None:
    """X to Q by k, T to Q by KEY, both to Y as well."""
    if with_queue:
        guest.call("queue.bind", queue=Q, exchange=T, routing_key=KEY)
    if with_x:
        guest.call("exchange.bind", destination=Y, source=X)
    if with_queue and with_x:
        guest.call("queue.bind", queue=Q, exchange=X, routing_key="k")
    guest.call("exchange.bind", **X_BY_KEY)


def state(guest: Client) -> dict[str, object]:
    """What there is, as far as AMQP shows it: objects, ready messages, consumers, and which bindings lead to Q."""
    found: dict[str, object] = {}
    for kind, name in (("queue", Q), ("exchange", X), ("exchange", Y), ("exchange", T)):
        guest.send(f"{kind}.declare", passive=True, **{kind: name}, **({"type": ""} if kind == "exchange" else {}))
        answer = guest.read()
        found[name] = answer.name == f"{kind}.declare-ok"
        if answer.name == "channel.close":
            guest.send("channel.close-ok")
            guest.call("channel.open")
        elif kind == "queue":
            found["ready"], found["consumers"] = answer["message_count"], answer["consumer_count"]
    for source, key in ((X, "k"), (T, KEY)):
        if found[Q] and found[source]:
            guest.publish(source, key, b"probe", mandatory=True)
            guest.send("basic.get", queue=Q, no_ack=True)
            answers = {guest.read().name}
            if "basic.return" in answers:
                answers.add(guest.read().name)
            found[f"{source} leads to {Q}"] = "basic.return" not in answers
    return found


@pytest.mark.parametrize("name, need", CELLS, ids=[f"{name}-without-{need[0]}-{need[2]}" for name, need in CELLS])
def test_without_a_permission_it_is_refused_and_nothing_happens(
    broker: SpecBroker, name: str, need: tuple[str, str, str]
) -> None:
    """403 on the channel, with the text that names what is missing; all is as it was."""
    operation = OPERATIONS[name]
    action, kind, resource = need
    declares = Q if "queue.declare" in name else X
    guest = furnish(broker, without=declares if operation.is_new else "")
    if "unbind" in name:
        bound(guest, with_queue=True, with_x=True)
    before = state(guest)
    user = f"no-topic-{action}" if kind == TOPIC else f"no-{action}-{resource}"
    client = as_user(broker, user)
    operation.do(client)
    what = f"topic '{KEY}' in exchange '{T}'" if kind == TOPIC else f"{kind} '{resource}'"
    verb = "" if broker.is_rabbitmq else f"{action} "
    text = f"ACCESS_REFUSED - {verb}access to {what} in vhost '/' refused for user '{user}'"
    expect_channel_close(client, 403, text, operation.ids)
    client.call("channel.open")  # the connection lives
    assert state(guest) == before


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "md5"])
def test_imported_password_hashes(broker: SpecBroker, algorithm: str) -> None:
    """Users of definitions.json whose hashes RabbitMQ takes log in with their password, and with no other."""
    client = as_user(broker, f"hashed-{algorithm}")
    client.call("queue.declare", queue="p.mine")
    other = broker.connect()
    other.start()
    other.start_ok(response=f"\0hashed-{algorithm}\0q".encode())
    assert other.expect("connection.close", channel=0)["reply_code"] == 403


def test_server_named_queues_are_checked_by_their_name(broker: SpecBroker) -> None:
    """amq.gen-... is a name like any other: it needs configure."""
    client = as_user(broker, "conf")
    client.send("queue.declare", queue="")
    close = client.expect("channel.close")
    assert close["reply_code"] == 403
    assert "access to queue 'amq.gen-" in close["reply_text"]


def test_topic_patterns_know_the_user(broker: SpecBroker) -> None:
    """`{username}` in a topic pattern is the name of who publishes."""
    guest = furnish(broker, without="")
    guest.call("queue.bind", queue=Q, exchange=T, routing_key="#")
    client = as_user(broker, "no-topic-write")
    client.publish(T, "no-topic-write.ok", b"mine")
    guest.wait_for_ready(Q, 1)


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_keys_of_copies_are_checked(header: str, broker: SpecBroker) -> None:
    """A key of CC or BCC is a way into a topic exchange like the first; RabbitMQ 3.10 looks at the first alone."""
    guest = furnish(broker, without="")
    guest.call("queue.bind", queue=Q, exchange=T, routing_key="#")
    client = as_user(broker, "no-topic-write")
    client.publish(T, "no-topic-write.ok", b"m", headers={header: ["another.key"]})
    if broker.is_rabbitmq:
        guest.wait_for_ready(Q, 1)
        return
    close = client.expect("channel.close")
    assert close["reply_code"] == 403 and "access to topic 'another.key'" in close["reply_text"]
    assert guest.count(Q) == (0, 0)


def test_passive_declarations_need_nothing(broker: SpecBroker) -> None:
    """As RabbitMQ 3.10; 4.x wants any one of the three."""
    furnish(broker, without="")
    client = as_user(broker, "noperm")
    client.call("queue.declare", queue=Q, passive=True)
    client.call("exchange.declare", exchange=X, type="direct", passive=True)


def test_a_user_without_permissions_in_the_virtual_host(broker: SpecBroker) -> None:
    """530 with the name of both."""
    client = broker.connect()
    client.tune_ok(client.log_in(response=b"\0novhost\0p"))
    client.send("connection.open", channel=0, virtual_host="/")
    close = client.expect("connection.close", channel=0)
    client.running = False
    assert (close["reply_code"], close["reply_text"]) == (
        530,
        "NOT_ALLOWED - access to vhost '/' refused for user 'novhost'",
    )


def test_channels_of_a_user_are_limited(broker: SpecBroker) -> None:
    """max-channels counts over all connections of the user."""
    as_user(broker, "lc")
    other = broker.connect()
    other.handshake(response=b"\0lc\0p")
    other.send("channel.open", channel=1)
    close = other.expect("connection.close", channel=0)
    other.running = False
    assert (close["reply_code"], close["reply_text"]) == (
        530,
        "NOT_ALLOWED - number of channels opened for user 'lc' has reached the maximum allowed user limit of (1)",
    )
    assert (close["class_id"], close["method_id"]) == (0, 0)
