"""Clients by the names that they give themselves: in lists, filters and search, and from a message or queue to them.

Source: management page 4, 15.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pika
import pytest
from api_client import ApiClient

from leveret.testing import RunningBroker, start_broker

FULL = {"match": "full", "max-size-messages": 1, "address-full-policy": "BLOCK"}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """With an address that blocks publishers."""
    with start_broker(management=True, config={"address-setting": [FULL]}) as running:
        yield running


@pytest.fixture
def clients(broker: RunningBroker, api: ApiClient) -> Iterator[dict[str, Any]]:
    """One publishes to a queue, and waits for room in another; one has two messages of the first."""
    found = {}
    for name in ("shop", "billing"):
        parameters = pika.URLParameters(broker.url)
        parameters.client_properties = {"connection_name": name}
        found[name] = pika.BlockingConnection(parameters)
    channel = found["shop"].channel()
    channel.queue_declare("orders")
    channel.queue_declare("full")
    for number in range(3):
        channel.basic_publish("", "orders", b"x", pika.BasicProperties(message_id=f"order-{number}"))
    billing = found["billing"].channel()
    billing.basic_qos(prefetch_count=2)
    billing.basic_consume("orders", lambda *delivery: None, consumer_tag="bill")
    found["billing"].process_data_events(0)
    yield found
    api.ask("DELETE", "queues/%2F/full")
    for one in found.values():
        one.close()
    api.ask("DELETE", "queues/%2F/orders")


@pytest.mark.usefixtures("clients")
def test_lists_and_search(api: ApiClient) -> None:
    """The name is beside RabbitMQ's everywhere, and filters find either."""
    name = next(one["name"] for one in api.get("connections") if one["user_provided_name"] == "shop")
    for part in ("sho", name[:-3]):
        page = api.get(f"connections?page=1&name={quote(part)}")
        assert [one["user_provided_name"] for one in page["items"]] == ["shop"]
        page = api.get(f"channels?page=1&name={quote(part)}")
        assert [one["connection_details"]["user_provided_name"] for one in page["items"]] == ["shop"]
    assert api.get("connections?page=1&use_regex=true&name=^shop$")["item_count"] == 1
    assert api.get("connections?page=1&name=nobody")["items"] == []
    found = api.get("leveret/search?q=shop")
    assert (found["connections"], found["connection_names"]) == ([name], {name: "shop"})
    assert [one["channel_details"]["user_provided_name"] for one in api.get("consumers")] == ["billing"]
    assert [one["connection_name"] for one in api.get("leveret/unacknowledged")["items"]] == ["billing"]


@pytest.mark.usefixtures("clients")
def test_from_a_message_to_its_client(api: ApiClient) -> None:
    """An unacknowledged message names its consumer, channel and connection; the connection has its messages."""
    answer = api.ask("POST", "leveret/queues/%2F/orders/browse", {"state": "unacked"})
    holders = [one["holder"] for one in answer.json["items"]]
    assert [(one["connection_name"], one["consumer"], one["channel"]) for one in holders] == [
        ("billing", "bill", 1)
    ] * 2
    found = api.get(f"leveret/connections/{quote(holders[0]['connection'])}")
    assert [(one["queue"], one["tag"], one["unacked"]) for one in found["consumers"]] == [("orders", "bill", 2)]
    assert [(one["message_id"], one["delivery_tag"], one["consumer"]) for one in found["messages"]] == [
        ("order-0", 1, "bill"),
        ("order-1", 2, "bill"),
    ]
    assert (found["unacked"], found["blocked_by"]) == (2, [])
    assert api.ask("GET", "leveret/connections/nobody").status == 400


def test_from_a_queue_to_its_publishers(clients: dict[str, Any], api: ApiClient) -> None:
    """By exchange and key, as the last publishes went."""
    (row,) = api.get("leveret/queues/%2F/orders/publishers")
    assert (row["connection_name"], row["published"], row["blocked"]) == ("shop", 3, False)
    assert row["by"] == [{"exchange": "", "routing_key": "orders"}]
    assert api.get("leveret/queues/%2F/full/publishers") == []


def test_why_a_connection_is_blocked(clients: dict[str, Any], api: ApiClient) -> None:
    """Which limit of which address, and how many publishes wait."""
    channel = clients["shop"].channel()
    for _ in range(3):
        channel.basic_publish("", "full", b"x")
    clients["shop"].process_data_events(0)
    (row,) = api.get("leveret/blocked")["blocked"]
    assert row["connection_name"] == "shop"
    found = api.get("leveret/connections/shop")
    assert [one["destination"] for one in found["blocked_by"]] == [row["destination"]]
    assert found["held"]["publishes"] == 2
