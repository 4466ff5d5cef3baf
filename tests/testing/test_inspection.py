"""Looking into a broker and acting behind its clients' backs."""

import threading
from datetime import UTC, datetime
from decimal import Decimal

import pika
import pytest
from consumers import channel_of, consuming, keep

from leveret.testing import MessageSnapshot, NotSettled, RunningBroker, start_broker


def test_a_queue_is_shown_with_decoded_properties(broker: RunningBroker) -> None:
    """Text is text, tables are read-only dicts, tags do not show."""
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    with channel_of(broker.url) as channel:
        channel.queue_declare("q", durable=True, arguments={"x-max-length": 10})
        headers = {"n": 1, "b": True, "when": when, "list": [1, "two"], "table": {"a": None}, "price": Decimal("1.5")}
        properties = pika.BasicProperties(
            content_type="application/json", headers=headers, delivery_mode=2, priority=3, correlation_id="c",
            reply_to="r", expiration="60000", message_id="m", timestamp=1, type="t", user_id="guest", app_id="a",
        )  # fmt: skip
        channel.basic_publish("", "q", b'{"n": 1}', properties)
        queue = broker.queue("q")
    assert (queue.name, queue.vhost, queue.durable, queue.exclusive) == ("q", "/", True, False)
    assert queue.arguments == {"x-max-length": 10}
    assert len(queue) == 1
    (message,) = queue.ready
    assert (message.exchange, message.routing_key, message.text, message.json()) == ("", "q", '{"n": 1}', {"n": 1})
    said = message.properties
    assert (said.content_type, said.delivery_mode, said.priority, said.timestamp) == ("application/json", 2, 3, 1)
    assert (said.correlation_id, said.reply_to, said.message_id, said.app_id) == ("c", "r", "m", "a")
    assert message.headers == {**headers, "list": (1, "two")}
    with pytest.raises(TypeError):
        message.headers["new"] = 1  # type: ignore[index]
    with pytest.raises(AttributeError):
        queue.name = "other"  # type: ignore[misc]


def test_properties_are_also_attributes_of_the_class() -> None:
    """What documents or mocks a class looks at each of them."""
    assert {name for name in dir(MessageSnapshot) if not hasattr(MessageSnapshot, name)} == set()


def test_the_three_states_of_a_message(virtual_broker: RunningBroker) -> None:
    """Ready, unacked (with who has it), scheduled (with its time)."""
    broker = virtual_broker
    with channel_of(broker.url) as channel:
        channel.queue_declare("q", arguments={"x-redelivery-delay": 5000})
        for body in (b"1", b"2", b"3"):
            channel.basic_publish("", "q", body)
        method, _, _ = channel.basic_get("q")
        channel.basic_nack(method.delivery_tag)
        channel.basic_get("q")
        queue = broker.assert_queue("q", ready=[b"3"], unacked=["2"], scheduled=[b"1"], consumers=0)
        assert queue.scheduled[0].due_at == 5.0
        assert queue.scheduled[0].deliveries == 1
        assert queue.unacked[0].consumer == ""
        assert queue.unacked[0].connection is not None
        assert [message.body for message in queue.messages] == [b"2", b"3", b"1"]


def test_published_says_what_clients_published(broker: RunningBroker) -> None:
    """By exchange and routing key, oldest first; dead letters only when asked for."""
    with channel_of(broker.url) as channel:
        channel.exchange_declare("events", "topic")
        channel.queue_declare("dead")
        channel.queue_declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
        channel.basic_publish("events", "a.b", b"nowhere")
        channel.basic_publish("", "q", b"x")
        channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=False)
        broker.assert_queue("dead", ready=[b"x"])
        assert [message.body for message in broker.published()] == [b"nowhere", b"x"]
        assert [message.routing_key for message in broker.published("events")] == ["a.b"]
        assert len(broker.published(exchange="", routing_key="other")) == 0
        copies = broker.published(copies=True)
        assert (copies[2].cause, copies[2].body) == ("rejected", b"x")
        assert copies[2].headers["x-death"][0]["queue"] == "q"


def test_assert_published_finds_a_message(broker: RunningBroker) -> None:
    """By body (bytes, text, JSON), headers, properties; it returns the newest."""
    broker.inject("amq.topic", "order.new", json={"id": 7, "total": 10}, headers={"v": 2}, message_id="m-7")
    broker.inject("amq.topic", "order.new", json={"total": 10, "id": 7}, headers={"v": 2}, message_id="m-8")
    found = broker.assert_published("amq.topic", "order.new", {"id": 7, "total": 10}, headers={"v": 2}, count=2)
    assert found is not None and found.properties.message_id == "m-8"
    assert broker.assert_published(body=b'{"id": 7, "total": 10}', message_id="m-7") is not None
    assert broker.assert_published("amq.fanout", count=0) is None
    with pytest.raises(TypeError, match="did you mean 'message_id'"):
        broker.assert_published(mesage_id="m")


def test_assert_published_says_what_is_different(broker: RunningBroker) -> None:
    """The nearest message, field by field, JSON line by line; then all that was published."""
    broker.inject("amq.topic", "order.new", json={"id": 7, "total": 10}, headers={"v": 1})
    broker.inject("amq.topic", "order.gone", json={"id": 8})
    with pytest.raises(AssertionError) as caught:
        broker.assert_published("amq.topic", "order.new", {"id": 7, "total": 11}, headers={"v": 2})
    assert str(caught.value).splitlines() == [
        "expected a message published like this: exchange 'amq.topic', routing key 'order.new', header v=2, "
        'body {"id": 7, "total": 11}',
        "but 0 of 2 published were like it",
        "nearest is number 1, where this differs:",
        "  header 'v': 1, expected 2",
        "  body:",
        "      {",
        '        "id": 7,',
        '    -   "total": 11',
        '    +   "total": 10',
        "      }",
        "published, oldest first:",
        "  1. exchange 'amq.topic', routing key 'order.new': {\"id\": 7, \"total\": 10}",
        "  2. exchange 'amq.topic', routing key 'order.gone': {\"id\": 8}",
    ]


def test_assert_published_when_nothing_was(broker: RunningBroker) -> None:
    """That, too, reads well."""
    with pytest.raises(AssertionError, match="nothing was published"):
        broker.assert_published("orders")


def test_assertions_wait_when_asked(broker: RunningBroker) -> None:
    """`within`: for what another thread is about to do."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
    publisher = threading.Timer(0.05, lambda: broker.inject(routing_key="q", body="late"))
    publisher.start()
    assert broker.assert_published(routing_key="q", body="late", within=20) is not None
    broker.assert_queue("q", ready=["late"], within=20)
    publisher.join()


def test_assert_queue_says_what_is_different(broker: RunningBroker) -> None:
    """Expected and actual bodies as one list, then the whole queue."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        for body in (b"a", b"c", b'{"n": 1}'):
            channel.basic_publish("", "q", body)
        with pytest.raises(AssertionError) as caught:
            broker.assert_queue("q", ready=["a", "b", {"n": 1}], unacked=1, consumers=2)
    assert str(caught.value).splitlines()[:9] == [
        "queue 'q' in virtual host '/' is not as expected:",
        "ready: (- expected, + in the queue)",
        "      a",
        "    - b",
        "    + c",
        '      {"n": 1}',
        "unacked: 0 messages, expected 1",
        "consumers: 0, expected 2",
        "queue 'q' in virtual host '/', 0 consumers",
    ]


def test_a_missing_queue_is_told_with_a_hint(broker: RunningBroker) -> None:
    """And with what is there."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("orders")
        with pytest.raises(LookupError, match=r"did you mean 'orders'\? \(there are: 'orders'\)"):
            broker.queue("order")


def test_history_tells_a_messages_life(virtual_broker: RunningBroker) -> None:
    """In the words of the engine's events, with the broker's time."""
    broker = virtual_broker
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x")
        broker.clock.advance(seconds=3)
        channel.basic_ack(channel.basic_get("q")[0].delivery_tag)
        (published,) = broker.published()
        life = broker.history(message=published.id)
        assert [(event.kind, event.at) for event in life] == [
            ("published", 0), ("enqueued", 0), ("delivered", 3), ("acked", 3),
        ]  # fmt: skip
        assert life[0].detail == {"exchange": "", "routing_key": "q"}
        kinds = {event.kind for event in broker.history()}
        assert {"connection_opened", "declared"} <= kinds
        assert "3.000 s  delivered" in str(life)


def test_the_history_is_bounded_and_says_so() -> None:
    """The oldest go; how many is told, also in what is printed."""
    with start_broker(config={"limits": {"history-events": 100}}) as broker, channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.confirm_delivery()  # one by one: of a run that is read at once the last events may be all enqueued
        for number in range(200):
            channel.basic_publish("", "q", b"%d" % number)
        history = broker.history()
        assert len(history) == 100
        assert history.dropped > 0
        assert f"the {history.dropped} oldest events were not kept" in str(history)
        assert broker.published()[-1].body == b"199"


def test_inject_and_remove(broker: RunningBroker) -> None:
    """A message comes and goes without a client."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.queue_declare("priorities", arguments={"x-max-priority": 5})
        assert broker.inject(routing_key="q", body="one")
        assert broker.inject(routing_key="q", json={"two": 2}, delivery_mode=2)
        with pytest.raises(LookupError, match="no queue 'nowhere'"):
            broker.inject(routing_key="nowhere", body="lost")
        with pytest.raises(LookupError, match="no exchange"):
            broker.inject("nowhere", "x")
        method, properties, body = channel.basic_get("q", auto_ack=True)
        assert body == b"one"
        (removed,) = broker.remove("q", lambda message: message.json() == {"two": 2})
        assert removed.properties.content_type == "application/json"
        broker.assert_queue("q", ready=0)
        for number in range(6):
            broker.inject(routing_key="priorities", body=str(number), priority=number % 3)
        broker.remove("priorities", lambda message: message.text in "14")
        broker.assert_queue("priorities", ready=["2", "5", "0", "3"])
        assert len(broker.remove("priorities")) == 4


def test_remove_takes_scheduled_messages_too(virtual_broker: RunningBroker) -> None:
    """A pending delay is cancelled."""
    broker = virtual_broker
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"later", pika.BasicProperties(headers={"x-delay": 60_000}))
        (message,) = broker.queue("q").scheduled
        assert broker.remove("q", message.id) == (message,)
        broker.clock.advance(hours=1)
        broker.assert_queue("q", ready=0, scheduled=0)


def test_settled_waits_for_consumers(broker: RunningBroker) -> None:
    """Ten messages, a consumer: settled when all are acked."""
    with consuming(broker.url, "q", durable=True):
        for number in range(10):
            broker.inject(routing_key="q", body=str(number))
        broker.settled()
        broker.assert_queue("q", ready=0, unacked=0)


def test_settled_prints_what_is_pending(virtual_broker: RunningBroker) -> None:
    """Ready, unacked and scheduled, with who has it and when it is due."""
    broker = virtual_broker
    with consuming(broker.url, "held", keep, durable=True) as seen, channel_of(broker.url) as channel:
        channel.queue_declare("ready")
        channel.queue_declare("waiting")
        channel.basic_publish("", "ready", b"x")
        channel.basic_publish("", "held", b"x")
        channel.basic_publish("", "waiting", b"x", pika.BasicProperties(headers={"x-delay": 60_000}))
        seen.next()
        with pytest.raises(NotSettled) as caught:
            broker.settled(timeout=0.1)
        text = str(caught.value)
        assert "queue 'ready': 1 ready, 0 consumers" in text
        assert "queue 'held': 1 unacked, held by 127.0.0.1:" in text
        assert "queue 'waiting': 1 scheduled, the next is due in 60 s" in text
        broker.settled(ignore=["rea*", "held", "waiting"])


def test_reset_makes_everything_new(broker: RunningBroker) -> None:
    """Queues, connections, history, virtual hosts; the port stays."""
    port = broker.port
    with channel_of(broker.vhost("other").url) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x")
        assert len(broker.published(vhost="other")) == 1
        broker.reset()
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            channel.queue_declare("q")
    assert broker.port == port
    assert broker.queues() == ()
    assert len(broker.published()) == 0
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{port}/other"))


def test_virtual_hosts_do_not_see_each_other(broker: RunningBroker) -> None:
    """Each has its own queues, messages and history; odd names are fine in URLs."""
    one, two = broker.vhost("one"), broker.vhost("two/ %2f")
    for vhost in (one, two):
        with channel_of(vhost.url) as channel:
            channel.queue_declare("q")
            channel.basic_publish("", "q", vhost.name)
    assert one.queue("q").bodies == [b"one"]
    assert broker.queue("q", vhost="two/ %2f").bodies == [b"two/ %2f"]
    assert len(one.published()) == 1
    assert broker.queues() == ()


def test_leaks_are_named(broker: RunningBroker) -> None:
    """Connections with their consumers, and unacked messages by what they are; queues when they are asked for."""
    assert broker.leaks() == []
    with channel_of(broker.url, client_properties={"connection_name": "mine"}) as channel:
        channel.queue_declare("q")
        channel.queue_declare("r")
        broker.inject(routing_key="q", json={"id": 7}, message_id="m")
        broker.inject(routing_key="r", body="got")
        tag = channel.basic_consume("q", keep)
        channel.basic_nack(channel.basic_get("r")[0].delivery_tag)
        channel.basic_get("r")
        leaks = [
            "connection 'mine' is open (1 channel, 1 consumer, 2 unacked messages)",
            f"  consumer {tag!r} of queue 'q' on connection 'mine'",
            f"unacked, delivered to consumer {tag!r} of connection 'mine': exchange '', routing key 'q': "
            "{\"id\": 7} (content_type='application/json', message_id='m')",
            "unacked, delivered to a get of connection 'mine', delivered 2 times: exchange '', routing key 'r': got",
        ]
        assert broker.leaks(timeout=0) == leaks
        assert broker.leaks(timeout=0, queues=True) == [
            *leaks,
            "queue 'q' was left behind (1 unacked, 1 consumers)",
            "queue 'r' was left behind (1 unacked)",
        ]
    assert broker.leaks() == []
    assert broker.leaks(queues=True) == ["queue 'q' was left behind (1 ready)", "queue 'r' was left behind (1 ready)"]


def test_many_unacked_messages_are_cut(broker: RunningBroker) -> None:
    """Ten are named."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        for number in range(13):
            broker.inject(routing_key="q", body=str(number))
            channel.basic_get("q")
        leaks = broker.leaks(timeout=0)
        assert len(leaks) == 12 and leaks[-1] == "... and 3 more unacked messages"
