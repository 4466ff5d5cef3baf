"""Sender-selected distribution, the headers CC and BCC: behaviour page 2.10 and 3.9, by the wire."""

from __future__ import annotations

from typing import Any

import pytest
from rawclient import Client
from spec_broker import SpecBroker, expect_channel_close


def queues(client: Client, *names: str, exchange: str = "") -> None:
    """Queues p.NAME, bound with the keys NAME to p.x of the type `exchange` where one is named."""
    if exchange:
        client.call("exchange.declare", exchange="p.x", type=exchange)
    for name in names:
        client.call("queue.declare", queue=f"p.{name}")
        if exchange:
            client.call("queue.bind", queue=f"p.{name}", exchange="p.x", routing_key=name)


ROUTES: dict[str, tuple[str, str, dict[str, Any], set[str]]] = {
    # name: (type of exchange, "" is the default exchange; routing key; headers; queues that get one copy)
    "cc": ("direct", "a", {"CC": ["b"]}, {"a", "b"}),
    "bcc": ("direct", "a", {"BCC": ["b"]}, {"a", "b"}),
    "cc-and-bcc": ("direct", "a", {"CC": ["b"], "BCC": ["c"]}, {"a", "b", "c"}),
    "same-queue-twice": ("direct", "a", {"CC": ["a", "b", "b"], "BCC": ["b"]}, {"a", "b"}),
    "cc-alone-routes": ("direct", "nowhere", {"CC": ["b"]}, {"b"}),
    "bcc-alone-routes": ("direct", "nowhere", {"BCC": ["b"]}, {"b"}),
    "empty-array": ("direct", "a", {"CC": []}, {"a"}),
    "others-than-strings-are-skipped": ("direct", "a", {"CC": [5, "b", None, True]}, {"a", "b"}),
    "default-exchange": ("", "p.a", {"CC": ["p.b"], "BCC": ["p.c", "p.a"]}, {"a", "b", "c"}),
    "topic": ("topic", "a", {"CC": ["b", "x"]}, {"a", "b"}),
    "fanout": ("fanout", "x", {"CC": ["a"]}, {"a", "b", "c"}),
    "lower-case-is-no-copy": ("direct", "a", {"cc": ["b"]}, {"a"}),
    "missing-queues": ("direct", "a", {"CC": ["none"], "BCC": ["neither"]}, {"a"}),
}


@pytest.mark.parametrize(("kind", "key", "headers", "expected"), ROUTES.values(), ids=list(ROUTES))
def test_copies(kind: str, key: str, headers: dict[str, Any], expected: set[str], broker: SpecBroker) -> None:
    """Each key of CC and BCC is one more routing key for the same exchange; a queue gets one copy."""
    client = broker.open()
    queues(client, "a", "b", "c", exchange=kind)
    client.publish("p.x" if kind else "", key, b"m", headers=headers, mandatory=True)
    for name in expected:
        client.wait_for_ready(f"p.{name}", 1)
    for name in "abc":
        assert client.bodies(f"p.{name}") == ([b"m"] if name in expected else [])


def test_delivered_copies(broker: SpecBroker) -> None:
    """CC stays as it was, BCC is gone; every copy carries the exchange and the key that it was published with."""
    client = broker.open()
    queues(client, "a", "b", "c", exchange="direct")
    client.publish("p.x", "a", b"m", headers={"CC": ["b"], "BCC": ["c"], "h": "1"}, content_type="t", message_id="i")
    for name in "abc":
        client.wait_for_ready(f"p.{name}", 1)
        got = client.take(f"p.{name}", no_ack=True)
        assert got.content is not None
        assert got.content.properties == {
            "headers": {"CC": ("A", [("S", b"b")]), "h": ("S", b"1")},
            "content_type": "t",
            "message_id": "i",
        }
        assert (got["exchange"], got["routing_key"]) == ("p.x", "a")


def test_returned_message_has_no_bcc(broker: SpecBroker) -> None:
    """mandatory: returned once, when no key leads anywhere, without its BCC."""
    client = broker.open()
    queues(client, exchange="direct")
    client.call("confirm.select")
    client.publish("p.x", "a", b"m", headers={"CC": ["b"], "BCC": ["c"]}, mandatory=True)
    returned = client.expect("basic.return")
    assert returned.content is not None and list(returned.content.headers) == ["CC"]
    assert (returned.body, returned["routing_key"]) == (b"m", "a")
    assert client.expect("basic.ack")["delivery_tag"] == 1


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize(
    ("value", "word"), [("b", "longstr"), (5, "signedint"), (None, "void"), ({"a": "b"}, "table"), (True, "bool")]
)
def test_wrong_types(header: str, value: Any, word: str, broker: SpecBroker) -> None:
    """CC and BCC are arrays; a message that says otherwise is refused, those before it are taken."""
    client = broker.open()
    queues(client, "a", exchange="direct")
    client.publish("p.x", "a", b"before")
    client.publish("p.x", "a", b"refused", headers={header: value})
    text = f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{header}",{word}}}'
    expect_channel_close(client, 406, text, (60, 40))
    client.call("channel.open")
    client.wait_for_ready("p.a", 1)
    assert client.bodies("p.a") == [b"before"]


def test_the_good_ones_of_a_run_are_published(broker: SpecBroker) -> None:
    """Of messages alike but for their headers, those before the bad one are there, and confirmed."""
    client = broker.open()
    queues(client, "a", "b", exchange="direct")
    client.call("confirm.select")
    client.publish("p.x", "a", b"1", headers={"CC": ["b"]})
    client.expect("basic.ack")
    client.publish("p.x", "a", b"2", headers={"CC": ["b"]})
    client.publish("p.x", "a", b"3", headers={"CC": "b"})
    client.publish("p.x", "a", b"4", headers={"CC": ["b"]})
    seen = [client.read()]
    while seen[-1].name != "channel.close":
        seen.append(client.read())
    client.send("channel.close-ok")
    client.call("channel.open")
    client.wait_for_ready("p.b", 2)
    assert (client.bodies("p.a"), client.bodies("p.b")) == ([b"1", b"2"], [b"1", b"2"])


def test_copies_in_a_transaction(broker: SpecBroker) -> None:
    """They come with the commit; a wrong type is refused at once."""
    client = broker.open()
    queues(client, "a", "b", exchange="direct")
    client.call("tx.select")
    client.publish("p.x", "a", b"m", headers={"BCC": ["b"]})
    assert client.count("p.b") == (0, 0)
    client.call("tx.commit")
    client.wait_for_ready("p.b", 1)
    assert (client.bodies("p.a"), client.bodies("p.b")) == ([b"m"], [b"m"])
    client.publish("p.x", "a", b"m", headers={"CC": 5})
    text = 'PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"CC",signedint}'
    expect_channel_close(client, 406, text, (60, 40))


@pytest.mark.parametrize("own_key", [False, True])
def test_copies_and_dead_letters(own_key: bool, broker: SpecBroker) -> None:
    """A dead letter goes by all its keys and tells of those that CC names; a key of the queue's own replaces them."""
    client = broker.open()
    client.call("exchange.declare", exchange="p.dlx", type="direct")
    arguments = {"x-dead-letter-exchange": "p.dlx"} | ({"x-dead-letter-routing-key": "own"} if own_key else {})
    client.call("queue.declare", queue="p.dying", arguments=arguments)
    for name in ("p.dying", "cc", "bcc", "own"):
        client.call("queue.declare", queue=f"p.of.{name}")
        client.call("queue.bind", queue=f"p.of.{name}", exchange="p.dlx", routing_key=name)
    client.publish("", "p.dying", b"m", headers={"CC": ["cc"], "BCC": ["bcc"]})
    client.wait_for_ready("p.dying", 1)
    client.take("p.dying")
    client.send("basic.reject", delivery_tag=1, requeue=False)
    expected = {"own"} if own_key else {"p.dying", "cc", "bcc"}
    for name in expected:
        client.wait_for_ready(f"p.of.{name}", 1)
        got = client.take(f"p.of.{name}", no_ack=True)
        assert got.content is not None
        headers = got.content.headers
        assert ("CC" in headers, "BCC" in headers) == (not own_key, False)
        tag, deaths = headers["x-death"]
        assert (tag, deaths[0][1]["routing-keys"]) == ("A", ("A", [("S", b"p.dying"), ("S", b"cc")]))
    for name in {"p.dying", "cc", "bcc", "own"} - expected:
        assert client.bodies(f"p.of.{name}") == []


def test_copies_that_no_binding_matches_go_to_the_alternate_exchange(broker: SpecBroker) -> None:
    """Once, if no key at all matches; not at all, if one does."""
    client = broker.open()
    client.call("exchange.declare", exchange="p.x", type="direct", arguments={"alternate-exchange": "p.ae"})
    client.call("exchange.declare", exchange="p.ae", type="fanout")
    queues(client, "a", "unrouted")
    client.call("queue.bind", queue="p.a", exchange="p.x", routing_key="a")
    client.call("queue.bind", queue="p.unrouted", exchange="p.ae")
    client.publish("p.x", "x", b"1", headers={"CC": ["a"]})
    client.publish("p.x", "x", b"2", headers={"CC": ["y", "z"]})
    client.wait_for_ready("p.unrouted", 1)
    assert (client.bodies("p.a"), client.bodies("p.unrouted")) == ([b"1"], [b"2"])
