"""Assertions: what they accept as "like this", and failures that explain themselves."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pika
import pytest
from consumers import channel_of

from leveret.testing import NotSettled, Partial, QueueMissing, RunningBroker, WouldBlockTheLoop
from leveret.testing.matching import is_body, is_like


class Even:
    """Decides by `==`, as matchers of other libraries do."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and other % 2 == 0

    def __repr__(self) -> str:
        return "Even()"


class ClassThatDecides(type):
    """As the classes of dirty-equals are."""

    def __eq__(cls, other: object) -> bool:
        return cls is other or isinstance(other, str)

    __hash__ = type.__hash__


class AnyText(metaclass=ClassThatDecides):
    """Equal to all texts, also without parentheses."""


def fails(value: Any) -> bool:
    """A condition that raises."""
    raise KeyError("id")


@pytest.mark.parametrize(
    "wanted, value, answer",
    [
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, True),
        ([1], [1, 1], False),
        ((1, 2), [1, 2], True),
        ({"a": 1}, [("a", 1)], False),
        (1, True, False),
        (True, 1, False),
        (True, True, True),
        (1, 1.0, True),
        (mock.ANY, "x", True),
        ({"a": mock.ANY}, {"a": [1]}, True),
        ({"a": mock.ANY}, {}, False),
        (Even(), 2, True),
        ({"a": Even()}, {"a": 3}, False),
        (AnyText, "x", True),
        ({"a": AnyText}, {"a": 1}, False),
        (int, 7, True),
        ({"a": dict}, {"a": []}, False),
        (lambda value: value > 3, 4, True),
        ({"a": lambda value: value > 3}, {"a": 3}, False),
        (fails, 4, False),
        (Partial({"a": 1}), {"a": 1, "b": 2}, True),
        (Partial({"a": 1}), {"b": 2}, False),
        (Partial({"a": 1}), [1], False),
        (Partial({"a": {"b": Even()}}), {"a": {"b": 2, "c": 3}, "d": 4}, True),
        (Partial({"a": [{"b": 1}]}), {"a": [{"b": 1, "c": 3}]}, True),
        (Partial({"a": [{"b": 1}]}), {"a": [{"b": 1}, {"b": 2}]}, False),
        ({"a": Partial({"b": 1})}, {"a": {"b": 1, "c": 2}}, True),
        ({"a": Partial({"b": 1})}, {"a": {"b": 1, "c": 2}, "d": 3}, False),
    ],
)
def test_what_a_value_is_like(wanted: Any, value: Any, answer: bool) -> None:
    """Plain values as in JSON, in part, conditions, whatever decides by `==`."""
    assert is_like(wanted, value) is answer


@pytest.mark.parametrize(
    "wanted, body, answer",
    [
        (b"\xff", b"\xff", True),
        (bytearray(b"x"), b"x", True),
        ("é", "é".encode(), True),
        ("x", b"\xff", False),
        (mock.ANY, b"\xff", True),
        (mock.ANY, b"", True),
        (None, b"null", True),
        (None, b"", False),
        ({"a": 1}, b'{"a": 1}', True),
        ({"a": 1}, b"[" * 100_000, False),
        (AnyText, b"no json", True),
        (AnyText, b"\xff", False),
        (Even(), b"4", True),
        (Partial({"a": 1}), b'{"a": 1, "b": 2}', True),
        (Partial({"a": 1}), b"no json", False),
        (lambda body: body.startswith(b"x"), b"xyz", True),
        (lambda body: body["id"], b"{}", False),
        (dict, b"{}", True),
        (bytes, b"{}", True),
        (list, b"{}", False),
    ],
)
def test_what_a_body_is_like(wanted: Any, body: bytes, answer: bool) -> None:
    """Octets, text, JSON, a condition on the octets; others meet its JSON, its text or its octets."""
    assert is_body(wanted, body) is answer


def failure(call: Any) -> str:
    """The text of an assertion's failure."""
    with pytest.raises(AssertionError) as caught:
        call()
    return str(caught.value)


def test_matchers_everywhere(broker: RunningBroker) -> None:
    """In exchange, routing key, body, headers, properties, and in the contents of a queue."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.queue_bind("q", "amq.topic", "order.*")
        broker.inject("amq.topic", "order.new", json={"id": 7, "at": "now"}, headers={"v": 2}, priority=4)
        broker.inject("amq.topic", "order.new", body="text")
        broker.assert_published(
            AnyText,
            lambda key: key.startswith("order."),
            Partial({"id": 7}),
            headers={"v": Even()},
            priority=Even(),
            content_type=mock.ANY,
        )
        broker.assert_queue("q", ready=[{"id": 7, "at": mock.ANY}, "text"])
        broker.assert_queue("q", ready=lambda bodies: len(bodies) == 2)
        broker.assert_queue("q", ready=mock.ANY, unacked=0)
        broker.assert_not_published("amq.topic", body={"id": 7})
        broker.assert_not_published(priority=3)
        for headers in (Partial({"v": int}), {"v": 2}, lambda table: table["v"] == 2, mock.ANY):
            broker.assert_published(headers=headers)
        broker.assert_not_published(headers=Partial({"v": 3}))
        assert "headers: {'v': 2}, expected Partial({'v': 3})" in failure(
            lambda: broker.assert_published(body=Partial({"id": 7}), headers=Partial({"v": 3}))
        )


def test_a_failed_match_shows_only_what_differs(broker: RunningBroker) -> None:
    """What a matcher accepts is no difference; a condition says why it is not met; of `Partial` only what it names."""
    broker.inject("amq.topic", "k", json={"id": 7, "at": "now", "more": [1, 2]}, headers={"v": 1})
    text = failure(lambda: broker.assert_published(body={"id": 8, "at": mock.ANY, "more": list}))
    assert text.splitlines()[3:11] == [
        "  body:",
        "      {",
        '        "at": "now",',
        "    -   \"id\": 8,",
        "    +   \"id\": 7,",
        '        "more": [',
        "          1,",
        "          2",
    ]  # fmt: skip
    text = failure(lambda: broker.assert_published(body=Partial({"id": 8})))
    assert "more" not in text.split("published, oldest first:")[0]
    assert 'body with at least {"id": 8}' in text
    text = failure(lambda: broker.assert_published(body=fails, headers={"v": lambda value: value > 3}))
    assert "which raised KeyError: 'id'" in text
    assert "header 'v': 1, expected what <lambda> (test_assertions.py:" in text and "which returned false" in text
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        broker.inject(routing_key="q", body="x")
        assert "ready: ['x'], expected ['y', 'x']" not in failure(lambda: broker.assert_queue("q", ready=["y", "x"]))
        assert "ready: ['x'], expected what <lambda>" in failure(
            lambda: broker.assert_queue("q", ready=lambda b: not b)
        )


@pytest.mark.parametrize(
    "wanted, body, lines",
    [
        ("a", "a ", ["body: 'a ', expected a"]),
        ("a", "a\x1b[31m", [r"body: 'a\x1b[31m', expected a"]),
        ("a", "a\u202e", [r"body: 'a\u202e', expected a"]),
        ("a\nb", "a\r\nb", ["body:", "  - a", r"  + 'a\r'", "    b"]),
        ("a\nb \n", "a\nb\n", ["body:", "    a", "  - 'b '", "  + b"]),
        ("x" * 300 + "a", "x" * 300 + "b", ["'" + "x" * 60 + "b' (301 characters)"]),
        (b"\xff", b"\xfe", [r"body: b'\xfe', expected b'\xff'"]),
    ],
)
def test_what_cannot_be_seen_is_escaped(
    broker: RunningBroker, wanted: "str | bytes", body: "str | bytes", lines: list[str]
) -> None:
    """Control characters, spaces at an end, carriage returns; and long bodies are cut where they differ."""
    broker.inject(body=body)
    text = failure(lambda: broker.assert_published(body=wanted))
    shown = [line.removeprefix("  ") for line in text.splitlines()]
    assert all(any(line in one for one in shown) for line in lines), text
    assert "\x1b" not in text and "\u202e" not in text and "\r" not in text


def test_not_published(broker: RunningBroker) -> None:
    """Which was, when, and where it went; `within` waits whether it still comes."""
    broker.assert_not_published("amq.topic")
    broker.assert_not_published("amq.topic", within=0.01)
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        broker.inject(routing_key="q", json={"id": 1})
        with pytest.raises(LookupError, match="no queue 'other'"):
            broker.inject(routing_key="other", json={"id": 2})
    text = failure(lambda: broker.assert_not_published("", body=Partial({})))
    assert text.startswith("expected no message published like this: exchange '', body with at least {}\n")
    assert "but 2 of 2 published were like it:" in text
    assert "routing key 'q': {\"id\": 1} (at " in text and ", to 'q')" in text and ", to no queue)" in text


def test_a_missing_queue_explains_itself(broker: RunningBroker) -> None:
    """Which there are, that it was deleted, and what reached no queue, and why."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("order")
        channel.exchange_declare("events", "topic")
        channel.exchange_declare("empty", "fanout")
        channel.queue_bind("order", "events", "order.gone")
        channel.basic_publish("events", "order.new", b"1")
        channel.basic_publish("empty", "", b"2")
        channel.basic_publish("", "orders", b"3")
        channel.basic_publish("", "late", b"4")
        channel.queue_declare("late")
        channel.queue_declare("gone")
        channel.queue_delete("gone")
        with pytest.raises(QueueMissing) as caught:
            broker.assert_queue("orders", ready=1)
        assert isinstance(caught.value, LookupError)
        assert str(caught.value).splitlines() == [
            "no queue 'orders' in virtual host '/', did you mean 'order'? (there are: 'order', 'late')",
            "published messages that reached no queue: 4",
            "  exchange 'events', routing key 'order.new': 1",
            "    no binding of topic exchange 'events' matched: 'order.gone' to queue 'order'",
            "  exchange 'empty', routing key '': 2",
            "    fanout exchange 'empty' has no bindings",
            "  exchange '', routing key 'orders': 3",
            "    no queue is called 'orders', did you mean 'order'?",
            "  exchange '', routing key 'late': 4",
            "    queue 'late' was declared afterwards",
        ]
        assert "queue 'gone' was deleted at " in failure(lambda: broker.assert_queue("gone"))


def test_a_queue_that_has_too_little_explains_itself(broker: RunningBroker) -> None:
    """By bindings that came too late, too, and headers that do not match; not when it has too much."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.basic_publish("amq.direct", "k", b"1")
        channel.queue_bind("q", "amq.direct", "k")
        channel.queue_bind("q", "amq.headers", "", {"x-match": "all", "v": 1})
        channel.basic_publish("amq.headers", "", b"2", pika.BasicProperties(headers={"v": 2}))
        text = failure(lambda: broker.assert_queue("q", ready=["1"]))
        assert "no binding of direct exchange 'amq.direct' matched: 'k' to queue 'q' (bound afterwards)" in text
        assert "headers x-match='all', v=1 to queue 'q'" in text
        channel.basic_publish("", "q", b"3")
        assert "that reached no queue" not in failure(lambda: broker.assert_queue("q", ready=0))


def test_assert_queue_waits_for_the_queue_too(broker: RunningBroker) -> None:
    """`within`: another thread is about to declare it."""
    import threading

    def declare() -> None:
        with channel_of(broker.url) as channel:
            channel.queue_declare("soon")

    thread = threading.Thread(target=declare)
    thread.start()
    broker.assert_queue("soon", ready=0, within=60)
    thread.join()


def test_a_condition_may_ask_the_broker(broker: RunningBroker) -> None:
    """Where it is called in the broker's own thread (`within`) that is an error, not a wait for ever."""
    broker.inject(body="x")
    broker.assert_published(body=lambda body: broker.published()[0].body == body)
    broker.assert_published(body=lambda body: broker.published()[0].body == body, within=0.01)
    with pytest.raises(WouldBlockTheLoop, match="from inside one of its own answers"):
        broker.ask(broker.queues)


def test_tracebacks_end_in_the_test(tmp_path: Path) -> None:
    """Nothing of ours is between the test and the message."""
    (tmp_path / "test_it.py").write_text(
        """
import pytest

def test_published(amqp_broker):
    amqp_broker.assert_published("amq.topic")

def test_not_published(amqp_broker):
    amqp_broker.inject(body="x")
    amqp_broker.assert_not_published()

def test_queue(amqp_broker):
    amqp_broker.vhost().assert_queue("q")

def test_blocked(amqp_broker):
    amqp_broker.assert_blocked()

def test_missing(amqp_broker):
    amqp_broker.queue("q")

def test_misspelt(amqp_broker):
    amqp_broker.faults.drop_connection("basic.pubish")

def test_real_time(amqp_broker):
    amqp_broker.clock.advance(hours=1)

def test_options():
    from leveret.testing import start_broker
    with start_broker(profile="rabitmq-3.13"):
        pass

def test_worker(amqp_worker):
    amqp_worker(["no-such-command"])
"""
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert "9 failed" in done.stdout, done.stdout
    for inside in ("leveret/testing", "concurrent/futures", "contextlib.py"):
        assert inside not in done.stdout, done.stdout
    assert "no-such-command: it can't be started" in done.stdout
    command += ["--full-trace", "-k", "test_missing"]
    assert (
        "leveret/testing" in subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180).stdout
    )


def test_settled_fails_in_the_test(broker: RunningBroker) -> None:
    """Its error is raised where it was called, not in the broker's thread."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x")
        with pytest.raises(NotSettled, match="queue 'q': 1 ready, 0 consumers") as caught:
            broker.settled(timeout=0.01)
        assert caught.value.__cause__ is None and not any("loop_thread" in str(one.path) for one in caught.traceback)


def test_plain_form(broker: RunningBroker) -> None:
    """Built-in values only, and equal in each run: no ids, times, names of connections."""
    seen = []
    for _ in range(2):
        broker.reset()
        with channel_of(broker.url) as channel:
            dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
            channel.queue_declare("q", durable=True, arguments=dead)
            channel.queue_declare("dead")
            broker.inject(routing_key="q", json={"id": 7}, message_id="m", timestamp=5, headers={"when": [1, b"\xff"]})
            broker.inject(routing_key="q", body=b"\xff")
            channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=False)
            seen.append(broker.plain())
    assert seen[0] == seen[1]
    message = {
        "exchange": "",
        "routing_key": "q",
        "body": {"id": 7},
        "properties": {
            "content_type": "application/json",
            "headers": {"when": [1, b"\xff"]},
            "message_id": "m",
        },
    }
    published, (q, letters) = seen[0]["published"], seen[0]["queues"]
    assert published == [message, {"exchange": "", "routing_key": "q", "body": b"\xff"}]
    assert q == {"name": "q", "durable": True, "arguments": dead, "ready": [published[1]]}
    (death,) = letters["ready"][0]["properties"]["headers"]["x-death"]
    assert (death["queue"], "time" in death) == ("q", False)
    assert eval(repr(seen[0])) == seen[0]  # built-in values only, written as Python reads them
    assert broker.published()[0].plain() == message
