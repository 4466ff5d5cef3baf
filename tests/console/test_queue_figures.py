"""What the API and the metrics say of messages, deliveries and channels. Source: management page 4, 5, 12."""

from dataclasses import replace
from typing import Any

import pika
import pytest
from api_client import ApiClient

from leveret.console.cluster import Replicas
from leveret.console.counters import (
    DELIVERIES,
    PUBLISHES,
    QUEUE_NAMES,
    SESSION_NAMES,
    queue_values,
    session_values,
    vhost_values,
)
from leveret.console.metrics.sums import ChannelSums, channel_sums, queue_sums
from leveret.console.views.queues import EMPTY_QUEUE_OCTETS, MESSAGE_OCTETS, plain_queue_view, queue_view, totals_view
from leveret.engine import Queue
from leveret.operator.steps import finished
from leveret.testing import RunningBroker
from leveret.testing.harness import Harness

REPLICAS = Replicas("n", ["n"], ["n"])


def shown(queue: Queue) -> dict[str, Any]:
    return queue_view(queue, REPLICAS)


def test_what_is_in_memory_and_what_is_paged_out() -> None:
    """One of six messages is out at a client, one on disk, which takes no memory."""
    harness = Harness(memory=100_000)
    queue = harness.queue()
    harness.publish(*["p" * 100] * 6, delivery_mode=2)
    harness.get(no_ack=False)
    assert queue.pageable is not None
    queue.pageable.page_out(100)
    view = shown(queue)
    assert {name: view[name] for name in view if name.startswith("message")} == {
        "messages": 6,
        "messages_ready": 5,
        "messages_unacknowledged": 1,
        "messages_ram": 5,
        "messages_ready_ram": 4,
        "messages_unacknowledged_ram": 1,
        "messages_paged_out": 1,
        "messages_persistent": 6,
        "message_bytes": 600,
        "message_bytes_ready": 500,
        "message_bytes_unacknowledged": 100,
        "message_bytes_ram": 500,
        "message_bytes_paged_out": 100,
        "message_bytes_persistent": 600,
    }
    assert view["memory"] == EMPTY_QUEUE_OCTETS + 5 * MESSAGE_OCTETS + 500
    sums = finished(queue_sums(harness.broker))
    assert (sums.ready, sums.unacked, sums.paged) == (5, 1, 1)
    assert sums.octets == (500, 100, 600, 6, 100)


def test_messages_that_a_restart_loses_are_not_persistent() -> None:
    """By number and by octets, ready or not."""
    harness = Harness()
    queue = harness.queue()
    harness.publish("p" * 100, delivery_mode=2)
    harness.publish(*["t" * 10] * 3)
    for _ in range(2):
        harness.get(no_ack=False)
    view = shown(queue)
    assert (view["messages_persistent"], view["message_bytes_persistent"], view["message_bytes"]) == (1, 100, 130)


def test_messages_that_are_all_out_have_octets() -> None:
    """In the sums of the metrics, too."""
    harness = Harness()
    queue = harness.queue()
    harness.publish(*["x" * 10] * 3)
    for _ in range(3):
        harness.get(no_ack=False)
    assert shown(queue)["message_bytes_unacknowledged"] == 30
    assert finished(queue_sums(harness.broker)).octets.unacked == 30


def test_which_consumer_is_the_only_one() -> None:
    """The active one of several, or one that wants to be alone; else none is named."""
    harness = Harness()
    single, alone, plain = (
        harness.queue("single", x_single_active_consumer=True),
        harness.queue("alone"),
        harness.queue("plain"),
    )
    harness.consume("single", tag="first")
    harness.consume("single", tag="second")
    harness.consume("alone", tag="exclusive", exclusive=True)
    harness.consume("plain", tag="one")
    names = ("single_active_consumer_tag", "exclusive_consumer_tag", "consumers")
    assert [tuple(shown(queue)[name] for name in names) for queue in (single, alone, plain)] == [
        ("first", None, 2),
        (None, "exclusive", 1),
        (None, None, 1),
    ]


def test_the_active_consumer_of_a_quorum_queue() -> None:
    """RabbitMQ has another name for it there."""
    harness = Harness()
    queue = harness.queue(x_queue_type="quorum", x_single_active_consumer=True)
    harness.consume(tag="first")
    view = shown(queue)
    assert view["single_active_consumer_ctag"] == "first" and "single_active_consumer_tag" not in view
    for of in (view, plain_queue_view(queue, REPLICAS)):
        assert (of["leader"], of["members"], of["online"]) == ("n", ["n"], ["n"])


def test_a_queue_with_numbers_runs() -> None:
    """As RabbitMQ says with `enable_queue_totals`; without them it is live."""
    harness = Harness()
    queue = harness.queue()
    harness.publish("a", "b")
    harness.get(no_ack=False)
    totals = totals_view(queue, REPLICAS)
    assert (totals["messages"], totals["messages_ready"], totals["messages_unacknowledged"]) == (2, 1, 1)
    assert (totals["state"], plain_queue_view(queue, REPLICAS)["state"]) == ("running", "live")


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_an_exclusive_queue_names_its_connection(api: ApiClient, broker: RunningBroker, *, is_exclusive: bool) -> None:
    """As operators look for who has it."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_declare("owned", exclusive=is_exclusive)
        (row,) = api.get("connections")
        owner = {"name": row["name"], "peer_host": row["peer_host"], "peer_port": row["peer_port"]}
        assert api.get("queues/%2F/owned").get("owner_pid_details") == (owner if is_exclusive else None)


def test_each_delivery_is_counted_once_by_its_kind() -> None:
    """Of a queue, of a channel; and of a virtual host when the channel is closed."""
    harness = Harness()
    queue, other = harness.queue(), harness.queue("other")
    harness.publish(*"abcdefgh")
    harness.get(no_ack=False)
    for _ in range(2):
        harness.get(no_ack=True)
    harness.get("other")
    harness.consume("other", "second", no_ack=True)
    harness.publish("x", "y", key="other")
    harness.consume(prefetch=3, total=True)
    harness.session.ack(1, multiple=False)
    harness.session.reject(6, multiple=False, requeue=True)
    harness.end_turn()
    harness.publish("dropped", key="nowhere")
    harness.publish("returned", key="nowhere", mandatory=True)
    of_queue, of_other = (dict(zip(QUEUE_NAMES, queue_values(one))) for one in (queue, other))
    assert [of_queue[name] for name in ("publish", *DELIVERIES)] == [8, 1, 4, 7, 0, 1, 0, 2, 1]
    assert [of_other[name] for name in ("publish", *DELIVERIES)] == [2, 0, 0, 2, 2, 0, 1, 0, 0]
    of_session = dict(zip(SESSION_NAMES, session_values(harness.session)))
    assert [of_session[name] for name in DELIVERIES] == [1, 4, 9, 2, 1, 1, 2, 1]
    assert [of_session[name] for name in PUBLISHES] == [12, 0, 1, 1]
    elsewhere = harness.broker.virtual_hosts.create("elsewhere")
    for ends in (False, True):
        if ends:
            harness.session.close()
        clients = list(harness.broker.connections)
        here, there = (finished(vhost_values(vhost, clients, (0, 0))) for vhost in (harness.vhost, elsewhere))
        assert here[: len(SESSION_NAMES)] == tuple(of_session.values())
        assert set(there) == {0}


def test_what_channels_have_under_way() -> None:
    """Confirms, transactions and deliveries of those that are open; what closed ones had confirmed stays counted."""
    harness = Harness()
    harness.queue()
    client = harness.session.client
    confirming, committing = client.open_session(5), client.open_session(6)
    confirming.select_confirms()
    committing.select_transactions()
    harness.publish("a", "b", by=confirming)
    waiting = finished(channel_sums(harness.broker))
    assert (waiting.confirmable, waiting.confirmed, waiting.unconfirmed, waiting.publishers) == (2, 0, 2, 1)
    assert harness.confirms(confirming) == "AA"
    harness.publish("c", "d", "e", by=committing)
    harness.consume(by=committing, prefetch=3)
    harness.settle()
    committing.ack(1)
    under_way = ChannelSums(
        connections=1,
        channels=3,
        consumers=1,
        unacked=1,
        uncommitted=3,
        acks_uncommitted=1,
        prefetch=3,
        publishers=1,
        confirmable=2,
        confirmed=2,
    )
    assert finished(channel_sums(harness.broker)) == under_way
    confirming.close()
    assert finished(channel_sums(harness.broker)) == replace(under_way, channels=2, publishers=0)
