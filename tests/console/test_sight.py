"""What a monitor sees of virtual hosts in which it has no permissions: nothing, where an administrator sees all.

Source: management page 1.5.
"""

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from api_client import ApiClient
from sent_events import streaming, until

from leveret.testing import RunningBroker, start_broker

SETTINGS = """
[[address-setting]]
match = "full.#"
max-size-bytes = 1
address-full-policy = "BLOCK"
"""
#: Virtual host in a URL -> a part of the names of its queues.
HOSTS = {"%2F": "mine", "hidden": "theirs"}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """In both virtual hosts a connection waits for room, and dead letters lie in a queue or found none."""
    with start_broker(management=True, config=SETTINGS) as running:
        api = ApiClient(running.management_url)
        api.ask("PUT", "vhosts/hidden", {})
        api.ask("PUT", "users/watcher", {"password": "watcher", "tags": "monitoring"})
        api.ask("PUT", "permissions/%2F/watcher", {"configure": "", "write": "", "read": ""})
        connections = [
            pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{running.port}/{path}"))
            for path in HOSTS
        ]
        for connection, name in zip(connections, HOSTS.values()):
            channel = connection.channel()
            for key, queue in (("dead", "corpse"), ("nowhere", "lost")):
                letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{key}-{name}"}
                channel.queue_declare(f"{queue}-{name}", arguments=letters)
            channel.queue_declare(f"dead-{name}")
            for queue in (f"corpse-{name}", f"lost-{name}"):
                channel.basic_publish("", queue, b"x")
                channel.basic_nack(channel.basic_get(queue)[0].delivery_tag, requeue=False)
            channel.queue_declare(f"full.{name}")
            for _ in range(3):
                channel.basic_publish("", f"full.{name}", b"x")
            connection.process_data_events(0)
        yield running
        for connection in connections:
            connection.close()


def _named(value: Any) -> set[str]:
    """The parts of names that are in an answer."""
    return {name for name in HOSTS.values() if name in str(value)}


@pytest.mark.parametrize("part", ["trouble", "usage", "blocked", "dead_letters_unroutable"])
def test_the_status(api: ApiClient, part: str) -> None:
    """It names what is full, who waits for it, and where dead letters are."""
    assert _named(api.get("leveret/status")[part]) == {"mine", "theirs"}
    assert _named(api.get("leveret/status", user="watcher")[part]) == {"mine"}


def test_what_waits_for_room(api: ApiClient) -> None:
    """The same of `blocked`."""
    for part in ("usage", "blocked"):
        assert _named(api.get("leveret/blocked")[part]) == {"mine", "theirs"}
        assert _named(api.get("leveret/blocked", user="watcher")[part]) == {"mine"}
    waits = "1 connection is waiting to publish"
    assert any(waits in one for one in api.get("leveret/status", user="watcher")["trouble"])
    assert any("2 dead letters found no queue" in one for one in api.get("leveret/status")["trouble"])
    assert any("1 dead letter found no queue" in one for one in api.get("leveret/status", user="watcher")["trouble"])


def test_events(api: ApiClient) -> None:
    """As a list and as a stream; users and parameters are an administrator's, connections every monitor's."""
    following = api.get("leveret/events")["next"]
    with streaming(api, "?kind=declared", user="watcher") as events:
        until(events, "totals")
        for path in ("queues/hidden/declared-theirs", "users/somebody", "queues/%2F/declared-mine"):
            assert api.ask("PUT", path, {"tags": ""} if "users" in path else {}).status == 201
        assert until(events, "event")["subject"] == "declared-mine"
    query = f"leveret/events?since={following}&kind=declared"
    assert [row["subject"] for row in api.get(query)["items"]] == ["declared-theirs", "somebody", "declared-mine"]
    found = api.get(query, user="watcher")
    assert [row["subject"] for row in found["items"]] == ["declared-mine"]
    assert found["next"] == api.get(query)["next"]


def test_events_of_connections(api: ApiClient, broker: RunningBroker) -> None:
    """RabbitMQ shows monitors the connections of all virtual hosts."""
    following = api.get("leveret/events")["next"]
    pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{broker.port}/hidden")).close()
    found = api.get(f"leveret/events?since={following}&kind=connection_opened", user="watcher")["items"]
    assert [row["vhost"] for row in found] == ["hidden"]


def test_jobs(api: ApiClient) -> None:
    """They name queues."""
    job = api.ask("POST", "leveret/queues/hidden/dead-theirs/discard", {}).json["job"]
    own = api.ask("POST", "leveret/queues/%2F/dead-mine/discard", {"limit": 1}).json["job"]
    assert [row["id"] for row in api.get("leveret/jobs")] == [own, job]
    assert [row["id"] for row in api.get("leveret/jobs", user="watcher")] == [own]
    refused = api.ask("GET", f"leveret/jobs/{job}", user="watcher")
    assert (refused.status, refused.reason) == (401, "User not authorised to access virtual host")
