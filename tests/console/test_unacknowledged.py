"""Which consumer has had a message for longest. Source: management page 16."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import pika
import pytest
from api_client import ApiClient

from leveret.console.sampler import Sampler
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


def test_monitors_see_their_virtual_hosts(
    broker: RunningBroker, api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the lists of queues and consumers; administrators see all, or the one that the page shows alone."""
    api.ask("PUT", "users/watch", {"password": "watch", "tags": "monitoring"})
    api.ask("PUT", "permissions/%2F/watch", {"configure": "", "write": "", "read": ""})
    monkeypatch.setattr(Sampler, "growth", lambda self, queue: 60 if queue.name.startswith("in-") else 0)
    with ExitStack() as stack:
        for vhost in ("/", "apart"):
            api.ask("PUT", f"vhosts/{quote(vhost, '')}")
            parameters = pika.ConnectionParameters(port=broker.port, virtual_host=vhost)
            channel = stack.enter_context(pika.BlockingConnection(parameters)).channel()
            channel.queue_declare(name := f"in-{vhost}")
            channel.basic_consume(name, lambda *delivery: None)
            channel.basic_publish("", name, b"x")
            channel.connection.process_data_events(0)
        watch: dict[str, Any] = {"user": "watch", "password": "watch"}
        for path in ("leveret/growing", "leveret/unacknowledged"):
            seen = api.get(path, **watch)
            assert ({one["vhost"] for one in seen["items"]}, seen["total"]) == ({"/"}, 1)
            assert {one["vhost"] for one in api.get(path)["items"]} == {"/", "apart"}
            alone = api.get(path, headers={"x-vhost": "apart"})
            assert [one["vhost"] for one in alone["items"]] == ["apart"]
            assert api.get(path, headers={"x-vhost": "nowhere"})["items"] == []
    api.ask("DELETE", "vhosts/apart")


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
