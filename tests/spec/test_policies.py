"""Policies and operator policies on queues and exchanges that exist: behaviour page 3.12, by the wire.

They are set by `leveret ctl`'s commands here, and by rabbitmqctl with LEVERET_SPEC_PEER=rabbitmq.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from rawclient import Client
from spec_broker import SpecBroker, expect_channel_close
from traps import trap

Q = "p.policy"


class Ruler:
    """Sets policies; what a case set is cleared behind it."""

    def __init__(self, broker: SpecBroker) -> None:
        self.broker = broker
        self._set: list[tuple[str, str]] = []

    def set(
        self, *options: str, name: str = "p", pattern: str = r"^p\.policy", operator: bool = False, **keys: Any
    ) -> None:
        """`keys`: the definition; their underscores stand for dashes."""
        kind = "operator_policy" if operator else "policy"
        definition = json.dumps({key.replace("_", "-"): value for key, value in keys.items()})
        self.broker.rule(f"set_{kind}", name, pattern, definition, *options)
        if (kind, name) not in self._set:
            self._set.append((kind, name))

    def clear(self, name: str = "p", *, operator: bool = False) -> None:
        """One that was set."""
        kind = "operator_policy" if operator else "policy"
        self.broker.rule(f"clear_{kind}", name)
        self._set.remove((kind, name))

    def clear_all(self) -> None:
        """What is left."""
        for kind, name in self._set:
            self.broker.rule(f"clear_{kind}", name)


@pytest.fixture
def ruler(broker: SpecBroker) -> Iterator[Ruler]:
    """Of a broker that somebody else started nobody is asked to set policies."""
    if broker.peer is None:
        pytest.skip("nobody rules this broker")
    ruler = Ruler(broker)
    yield ruler
    ruler.clear_all()


def declare(client: Client, name: str = Q, **arguments: Any) -> None:
    """A durable queue; underscores of the arguments' names stand for dashes."""
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.call("queue.declare", queue=name, durable=True, arguments=named)


def publish(client: Client, *bodies: bytes, queue: str = Q) -> list[str]:
    """Each confirmed: ack or nack."""
    client.call("confirm.select")
    outcomes = []
    for body in bodies:
        client.publish("", queue, body)
        outcomes.append(client.read().name.removeprefix("basic."))
    return outcomes


def test_a_smaller_limit_drops_at_once(broker: SpecBroker, ruler: Ruler) -> None:
    """The oldest go; clearing lifts it."""
    client = broker.open()
    declare(client)
    publish(client, *[b"%d" % number for number in range(8)])
    ruler.set(max_length=3)
    client.wait_for_ready(Q, 3)
    assert client.bodies(Q) == [b"5", b"6", b"7"]
    ruler.clear()
    publish(client, *[b"%d" % number for number in range(8)])
    client.wait_for_ready(Q, 8)


def test_octets(broker: SpecBroker, ruler: Ruler) -> None:
    """max-length-bytes: of bodies, of those that were there before as well."""
    client = broker.open()
    declare(client)
    publish(client, b"aaaa", b"bbbb", b"cccc")
    ruler.set(max_length_bytes=9)
    client.wait_for_ready(Q, 2)
    publish(client, b"dddd")
    client.wait_for_ready(Q, 2)
    assert client.bodies(Q) == [b"cccc", b"dddd"]


def test_what_a_policys_limit_drops_is_a_dead_letter(broker: SpecBroker, ruler: Ruler) -> None:
    """Of one definition: the reason is maxlen."""
    client = broker.open()
    client.call("queue.declare", queue="p.dead")
    declare(client)
    publish(client, b"old", b"new")
    ruler.set(max_length=1, dead_letter_exchange="", dead_letter_routing_key="p.dead")
    client.wait_for_ready("p.dead", 1)
    dead = client.take("p.dead", no_ack=True)
    assert dead.content is not None and dead.content.body == b"old"
    assert dead.content.headers["x-death"][1][0][1]["reason"] == ("S", b"maxlen")


@pytest.mark.parametrize("declared, policy, holds", [(2, 5, 2), (5, 2, 2)])
def test_the_smaller_of_argument_and_policy(
    declared: int, policy: int, holds: int, broker: SpecBroker, ruler: Ruler
) -> None:
    """max-length."""
    client = broker.open()
    ruler.set(max_length=policy)
    declare(client, x_max_length=declared)
    publish(client, *[b"x"] * 8)
    client.wait_for_ready(Q, holds)
    declare(client, x_max_length=declared)  # what is compared is what was declared


def test_an_operators_policy_caps(broker: SpecBroker, ruler: Ruler) -> None:
    """Neither argument nor policy reaches above it; the rest of the policy holds beside it."""
    client = broker.open()
    client.call("queue.declare", queue="p.dead")
    declare(client, x_max_length=6)
    ruler.set(max_length=5, dead_letter_exchange="", dead_letter_routing_key="p.dead")
    ruler.set("--apply-to", "queues", operator=True, max_length=4)
    publish(client, *[b"x"] * 8)
    client.wait_for_ready(Q, 4)
    client.wait_for_ready("p.dead", 4)
    ruler.clear(operator=True)
    publish(client, *[b"x"] * 2)
    client.wait_for_ready(Q, 5)


def test_one_policy_holds(broker: SpecBroker, ruler: Ruler) -> None:
    """The one of the highest priority, alone: they are not merged."""
    client = broker.open()
    client.call("queue.declare", queue="p.dead")
    declare(client)
    ruler.set("--priority", "1", name="a", max_length=2)
    ruler.set("--priority", "2", name="b", dead_letter_exchange="", dead_letter_routing_key="p.dead")
    publish(client, *[b"x"] * 4)
    client.wait_for_ready(Q, 4)
    ruler.clear("b")
    client.wait_for_ready(Q, 2)
    assert client.count("p.dead") == (0, 0)


@pytest.mark.parametrize(
    "pattern, options, holds",
    [
        ("policy", (), True),  # anywhere in the name
        ("^policy", (), False),
        (r"^p\.policy$", (), True),
        ("", (), True),
        (r"^p\.", ("--apply-to", "exchanges"), False),
        (r"^p\.", ("--apply-to", "queues"), True),
        (r"^p\.(?!policy)", (), False),
    ],
)
def test_patterns(pattern: str, options: tuple[str, ...], holds: bool, broker: SpecBroker, ruler: Ruler) -> None:
    """On names, unanchored."""
    client = broker.open()
    declare(client)
    ruler.set(*options, pattern=pattern, max_length=1)
    publish(client, b"x", b"x")
    client.wait_for_ready(Q, 1 if holds else 2)


def test_a_policy_with_a_key_for_other_types_is_for_others(broker: SpecBroker, ruler: Ruler) -> None:
    """delivery-limit is for quorum queues: a classic queue has none of that policy, but the next one."""
    client = broker.open()
    declare(client)
    ruler.set("--priority", "5", name="quorum", max_length=1, delivery_limit=1)
    ruler.set(name="any", max_length=2)
    publish(client, *[b"x"] * 4)
    client.wait_for_ready(Q, 2)


def test_exclusive_and_server_named_queues(broker: SpecBroker, ruler: Ruler) -> None:
    """Match as others do."""
    client = broker.open()
    ruler.set(pattern="^amq.gen", max_length=1)
    name = client.call("queue.declare", queue="", exclusive=True)["queue"]
    publish(client, b"x", b"y", queue=name)
    client.wait_for_ready(name, 1)


@trap(86)
def test_a_new_ttl_is_for_new_messages(broker: SpecBroker, ruler: Ruler) -> None:
    """An old one stays, and those behind it that are over are seen to when it is gone."""
    client = broker.open()
    declare(client)
    publish(client, b"old")
    ruler.set(message_ttl=0)
    publish(client, b"new")
    assert client.take(Q, no_ack=True).content.body == b"old"  # type: ignore[union-attr]
    assert client.get(Q) is None


def test_expires(broker: SpecBroker, ruler: Ruler) -> None:
    """A queue that nobody uses goes, though nobody said so when it was declared."""
    client = broker.open()
    declare(client)
    client.call("queue.declare", queue="p.last", arguments={"x-expires": 60_000})
    ruler.set(pattern=r"^p\.(policy|last)", expires=1)
    for name in (Q, "p.last"):
        while True:
            client.send("queue.declare", queue=name, passive=True)
            answer = client.read()
            if answer.name == "channel.close":
                break
        assert answer["reply_code"] == 404
        client.send("channel.close-ok")
        client.call("channel.open")


def test_a_dead_letter_exchange_comes_and_goes(broker: SpecBroker, ruler: Ruler) -> None:
    """It holds for what is rejected from now on."""
    client = broker.open()
    client.call("queue.declare", queue="p.dead")
    declare(client)
    publish(client, b"1", b"2", b"3")
    for expected in (0, 1, 1):
        client.send("basic.reject", delivery_tag=client.take(Q)["delivery_tag"], requeue=False)
        if expected == 0:
            ruler.set(dead_letter_exchange="", dead_letter_routing_key="p.dead")
        elif client.count(Q)[0] == 1:
            client.wait_for_ready("p.dead", 1)
            ruler.clear()
    client.wait_for_ready(Q, 0)
    assert client.bodies("p.dead") == [b"2"]


def test_a_declared_dead_letter_exchange_wins(broker: SpecBroker, ruler: Ruler) -> None:
    """And takes the policy's routing key."""
    client = broker.open()
    for name in ("p.one", "p.other"):
        client.call("queue.declare", queue=name)
    client.call("exchange.declare", exchange="p.x", type="direct")
    client.call("queue.bind", queue="p.other", exchange="p.x", routing_key="p.one")
    declare(client, x_dead_letter_exchange="")
    ruler.set(dead_letter_exchange="p.x", dead_letter_routing_key="p.one")
    publish(client, b"dead")
    client.send("basic.reject", delivery_tag=client.take(Q)["delivery_tag"], requeue=False)
    client.wait_for_ready("p.one", 1)
    assert client.count("p.other") == (0, 0)


def test_overflow(broker: SpecBroker, ruler: Ruler) -> None:
    """reject-publish: what is there stays, what comes is refused."""
    client = broker.open()
    declare(client)
    assert publish(client, b"1", b"2", b"3") == ["ack"] * 3
    ruler.set(overflow="reject-publish")
    ruler.set(max_length=2, overflow="reject-publish")
    assert publish(client, b"4") == ["nack"]
    assert client.bodies(Q) == [b"1", b"2", b"3"]
    assert publish(client, b"5", b"6", b"7") == ["ack", "ack", "nack"]


def test_overflow_and_a_limit_at_once(broker: SpecBroker, ruler: Ruler) -> None:
    """RabbitMQ takes one key after the other, and drops before it knows that it is to refuse; nothing is lost here."""
    client = broker.open()
    declare(client)
    publish(client, b"1", b"2", b"3")
    ruler.set(max_length=2, overflow="reject-publish")
    client.wait_for_ready(Q, 2 if broker.is_rabbitmq else 3)
    assert publish(client, b"4") == ["nack"]


def test_an_alternate_exchange_comes_and_goes(broker: SpecBroker, ruler: Ruler) -> None:
    """Of an exchange that exists; one that was declared wins."""
    client = broker.open()
    client.call("exchange.declare", exchange="p.x", type="direct")
    client.call("exchange.declare", exchange="p.own", type="direct", arguments={"alternate-exchange": "p.x"})
    client.call("exchange.declare", exchange="p.ae", type="fanout")
    client.call("queue.declare", queue="p.q")
    client.call("queue.bind", queue="p.q", exchange="p.ae")
    client.publish("p.x", "nowhere", b"lost")
    ruler.set(pattern=r"^p\.(x|own)$", alternate_exchange="p.ae")
    client.publish("p.x", "nowhere", b"found")
    client.publish("p.own", "nowhere", b"over p.x")
    client.wait_for_ready("p.q", 2)
    assert sorted(client.bodies("p.q")) == [b"found", b"over p.x"]
    ruler.clear()
    client.publish("p.x", "nowhere", b"back", mandatory=True)
    returned = client.expect("basic.return")
    assert returned["reply_code"] == 312


def test_a_delivery_limit(broker: SpecBroker, ruler: Ruler) -> None:
    """Of a quorum queue that declared none."""
    client = broker.open()
    client.call("queue.declare", queue="p.dead")
    ruler.set(delivery_limit=1, dead_letter_exchange="", dead_letter_routing_key="p.dead")
    declare(client, x_queue_type="quorum")
    publish(client, b"poison")
    for _ in range(2):
        client.wait_for_ready(Q, 1)
        client.send("basic.nack", delivery_tag=client.take(Q)["delivery_tag"], requeue=True)
    client.wait_for_ready("p.dead", 1)


def test_a_policy_is_not_compared(broker: SpecBroker, ruler: Ruler) -> None:
    """A redeclaration says what the declaration said, or is refused."""
    client = broker.open()
    ruler.set(max_length=5)
    declare(client)
    declare(client)
    client.send("queue.declare", queue=Q, durable=True, arguments={"x-max-length": 5})
    text = (
        f"PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '{Q}' in vhost '/': "
        "received the value '5' of type 'signedint' but current is none"
    )
    expect_channel_close(client, 406, text, (50, 10))


REFUSED = [
    (("p", "^x", "{}"), "Validation failed no policy provided"),
    (("p", "^x", '{"foo":1}'), 'Validation failed [{<<"foo">>,1}] are not recognised policy settings'),
    (
        ("p", "^x", '{"max-priority":5}'),
        'Validation failed [{<<"max-priority">>,5}] are not recognised policy settings',
    ),
    (("p", "^x", '{"max-length":-1}'), "Validation failed -1 is not a valid maximum length"),
    (("p", "^x", '{"overflow":"x"}'), 'Validation failed <<"x">> is not a valid overflow value'),
    (("p", "^x", '{"expires":0}'), "Validation failed 0 is not a valid queue expiry"),
    (
        ("p", "^x", '{"max-length":1}', "--apply-to", "foo"),
        "Validation failed apply-to 'foo' unrecognised; should be 'queues', 'exchanges' or 'all'",
    ),
]


@pytest.mark.parametrize("words, text", REFUSED)
def test_refusals(words: tuple[str, ...], text: str, broker: SpecBroker, ruler: Ruler) -> None:
    """Word for word; tests/settings/test_policies.py has more of them."""
    assert broker.refusal("set_policy", *words) == text
    assert broker.refusal("clear_policy", "p") == "Parameter does not exist"


def test_what_operators_may_not_say(broker: SpecBroker, ruler: Ruler) -> None:
    """Only what caps; and a pattern that is none says so."""
    said = broker.refusal("set_operator_policy", "o", "^x", '{"dead-letter-exchange":"x"}')
    assert said == 'Validation failed [{<<"dead-letter-exchange">>,<<"x">>}] are not recognised policy settings'
    said = broker.refusal("set_policy", "p", "[", '{"max-length":1}')
    assert said.startswith("Validation failed pattern should be regular expression but is invalid: ")
