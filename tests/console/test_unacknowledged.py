"""Which consumer has had a message for longest. Source: management page 16."""

from collections.abc import Iterator

import pika
import pytest
from api_client import ApiClient

from leveret.testing import RunningBroker, start_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """On virtual time: messages become old at once."""
    with start_broker(management=True, clock="virtual") as running:
        yield running


def test_the_oldest_first(broker: RunningBroker, api: ApiClient) -> None:
    """With its queue, connection, and since when, to a minute; who has nothing is not listed."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        for name in ("early", "late", "none"):
            channel.queue_declare(name)
            channel.basic_consume(name, lambda *delivery: None, consumer_tag=f"of-{name}")
        channel.basic_publish("", "early", b"x")
        connection.process_data_events(0)
        broker.clock.advance(minutes=10)
        channel.basic_publish("", "late", b"x")
        connection.process_data_events(0)
        broker.clock.advance(minutes=5)
        found = api.get("leveret/unacknowledged")
        assert [(one["queue"], one["tag"], one["unacked"]) for one in found["items"]] == [
            ("early", "of-early", 1),
            ("late", "of-late", 1),
        ]
        ages = [one["oldest_unacked_ms"] / 60_000 for one in found["items"]]
        assert 13 <= ages[0] <= 15 and 3 <= ages[1] <= 5
        assert found["total"] == 2
    api.ask("PUT", "users/plain", {"password": "plain", "tags": "management"})
    assert api.ask("GET", "leveret/unacknowledged", user="plain").reason == "Not monitor user"


def test_the_first_of_two_of_the_same_minute_stands_first(broker: RunningBroker, api: ApiClient) -> None:
    """Ages are known to ten seconds."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        for name in ("young", "zz-old"):
            channel.queue_declare(name)
            channel.basic_consume(name, lambda *delivery: None)
        channel.basic_publish("", "zz-old", b"x")
        connection.process_data_events(0)
        broker.clock.advance(seconds=12)
        channel.basic_publish("", "young", b"x")
        connection.process_data_events(0)
        broker.clock.advance(seconds=12)
        found = api.get("leveret/unacknowledged")["items"]
    assert [one["queue"] for one in found] == ["zz-old", "young"]
    assert [24_000 - 10_000 <= found[0]["oldest_unacked_ms"] <= 24_000, found[1]["oldest_unacked_ms"] <= 12_000] == [
        True,
        True,
    ]
