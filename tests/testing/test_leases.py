"""Leased queues in a test broker: virtual time turns leases, and a test tells who holds what and how leases ended.

Source: queues page A.4, A.5, A.6.
"""

import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from consumers import channel_of

from leveret.testing import RunningBroker, start_broker
from leveret.testing.remote.operations import Operations
from leveret.testing.typos import LEASE_ENDS


@pytest.fixture(scope="module")
def one_broker() -> Iterator[RunningBroker]:
    """One for all tests here; each begins with an empty one."""
    with start_broker(clock="virtual") as broker:
        yield broker


@pytest.fixture
def broker(one_broker: RunningBroker) -> RunningBroker:
    one_broker.reset()
    return one_broker


@pytest.fixture
def channel(broker: RunningBroker) -> Iterator[Any]:
    """A client called "shop", with the leased queue `q` (a minute, two deliveries) and two messages in it."""
    with channel_of(broker.url, client_properties={"connection_name": "shop"}) as channel:
        arguments = {"x-queue-type": "amps", "x-lease-period": 60_000, "x-max-deliveries": 2, "x-max-backlog-total": 9}
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.basic_publish("", "q", b'{"n": 1}')
        channel.basic_publish("", "q", b'{"n": 2}')
        yield channel


def test_time_ends_a_lease_and_the_message_is_there_again(broker: RunningBroker, channel: Any) -> None:
    """An hour passes at once: the lease ends at its minute, twice, and then the message has expired."""
    broker.clock.advance(seconds=5)
    channel.basic_get("q")
    (lease,) = broker.assert_leased("q", {"n": 1}, consumer="", connection="shop")
    assert (lease.until, lease.deliveries, lease.cancels, lease.consumer) == (65, 1, 0, "")
    assert broker.leases() == broker.leases("q") == (lease,)
    broker.assert_queue("q", ready=[{"n": 2}], unacked=[{"n": 1}])
    broker.clock.advance(seconds=59)
    broker.assert_lease_ended("q", count=0)
    broker.clock.advance(hours=1)
    broker.assert_leased("q", count=0)
    (ended,) = broker.assert_lease_ended("q", "deadline", message=lease.message.id)
    assert ended.at == pytest.approx(65, abs=0.05)
    broker.assert_queue("q", ready=[{"n": 1}, {"n": 2}], unacked=0)
    channel.basic_get("q")
    broker.clock.advance(hours=1)
    broker.assert_lease_ended("q", "deadline", count=2)
    kinds = [event.kind for event in broker.history(message=lease.message.id, queue="q")]
    assert kinds == ["enqueued", "delivered", "lease_ended", "delivered", "lease_ended", "killed"]
    broker.assert_queue("q", ready=[{"n": 2}])


def test_how_leases_end(broker: RunningBroker, channel: Any) -> None:
    """A nack, a consumer that is cancelled, an acknowledgement by somebody else, a connection that is gone."""
    tag = channel.basic_get("q")[0].delivery_tag
    channel.basic_nack(tag)
    broker.assert_lease_ended("q", "nacked", count=1)
    channel.basic_consume("q", lambda *_: None, consumer_tag="mine")
    (lease,) = broker.assert_leased("q", consumer="mine", within=60)
    assert (lease.message.json(), lease.deliveries, lease.cancels) == ({"n": 1}, 2, 1)
    broker.faults.cancel_consumers("q")  # the client itself would reject the message first
    broker.assert_lease_ended("q", "unsubscribed", within=60)
    broker.assert_queue("q", ready=[{"n": 2}])  # that was the second delivery, and there are no more than two
    with channel_of(broker.url, client_properties={"connection_name": "other"}) as other:
        other.basic_get("q")
        broker.assert_leased("q", {"n": 2}, connection="other", count=1)
        broker.assert_leased("q", connection="shop", count=0)
        properties = pika.BasicProperties(headers={"queue": "q", "filter": "/n = 2"})
        channel.basic_publish("amps.control", "sow_delete", b"", properties)
        broker.assert_lease_ended("q", "taken_over", within=60)
        other.basic_publish("", "q", b'{"n": 3}')
        other.basic_get("q")
        broker.assert_leased("q", {"n": 3})
    broker.assert_lease_ended("q", "closed", within=60)
    broker.assert_lease_ended("q", count=4)
    assert {event.detail["why"] for event in broker.history("lease_ended")} <= set(LEASE_ENDS)


def test_an_acknowledged_lease_did_not_end(broker: RunningBroker, channel: Any) -> None:
    """It was settled by who held it; a late acknowledgement counts, too."""
    channel.basic_ack(channel.basic_get("q")[0].delivery_tag)
    broker.assert_lease_ended("q", count=0)
    late = channel.basic_get("q")[0].delivery_tag
    broker.clock.advance(minutes=2)
    broker.assert_queue("q", ready=1)
    channel.basic_ack(late)
    broker.assert_queue("q", ready=0, unacked=0)
    assert [event.kind for event in broker.history("acked", "lease_ended", queue="q")] == [
        "acked",
        "lease_ended",
        "acked",
    ]


def test_what_failures_say(broker: RunningBroker, channel: Any) -> None:
    """Who holds what, what is ready, how leases ended; misspelt and misplaced questions are errors."""
    channel.basic_get("q")
    with pytest.raises(AssertionError) as failed:
        broker.assert_leased("q", {"n": 7}, consumer="mine", connection="shop")
    assert str(failed.value) == (
        "expected a lease of {\"n\": 7} by consumer 'mine' of a connection called 'shop' in queue 'q', but:\nleased:\n"
        "  'q': a get of shop holds " + str(broker.leases("q")[0].message) + ", until 60 s, delivery 1, 0 cancels\n"
        "ready: 1"
    )
    with pytest.raises(AssertionError) as failed:
        broker.assert_lease_ended("q", "deadline", count=2)
    assert "expected 2 leases of queue 'q' to have ended by 'deadline', but:\nno lease has ended" in str(failed.value)
    assert "running:\n  'q': a get of shop holds" in str(failed.value)
    channel.queue_declare("plain")
    for look in (broker.leases, broker.assert_leased, broker.assert_lease_ended):
        with pytest.raises(
            ValueError, match="queue 'plain' is not a leased queue, expected one with x-queue-type = amps"
        ):
            look("plain")
        with pytest.raises(LookupError, match="no queue 'plan'.*did you mean 'plain'"):
            look("plan")
    with pytest.raises(ValueError, match="why: 'deadlin' is invalid, did you mean 'deadline'"):
        broker.assert_lease_ended("q", "deadlin")


def test_snapshots_and_reset(broker: RunningBroker, channel: Any) -> None:
    """Plain values say how the queue was declared and what is leased; a lease without a period has no end."""
    channel.queue_declare("endless", durable=True, arguments={"x-queue-type": "amps"})
    channel.basic_publish("", "endless", b"x")
    channel.basic_get("endless")
    assert [lease.until for lease in broker.leases("endless")] == [None]
    broker.clock.advance(minutes=20)
    broker.assert_leased("endless", b"x", count=1)
    (plain,) = [one for one in broker.plain()["queues"] if one["name"] == "endless"]
    assert plain["arguments"] == {"x-queue-type": "amps"}
    assert [one["body"] for one in plain["unacked"]] == ["x"]
    assert broker.queue("endless").counters["delivered"] == 1


def test_over_the_interface_for_other_languages(broker: RunningBroker, channel: Any) -> None:
    """The same questions in JSON."""
    channel.basic_get("q")
    ask = Operations(broker).call
    (lease,) = json.loads(json.dumps(ask("assert_leased", {"queue": "q", "body": {"n": 1}})))
    assert (lease["connection"], lease["until"], lease["message"]["body"]) == ("shop", 60, '{"n": 1}')
    assert len(ask("leases", {})) == 1
    assert ask("assert_lease_ended", {"queue": "q", "count": 0}) == []
