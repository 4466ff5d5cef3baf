"""What only Leveret has: explain, scheduled, leases, blocked, search. Source: management page 16."""

from pathlib import Path

import pika
import pytest
from api_client import ApiClient

from leveret.console.offset_pages import MESSAGES_MAX
from leveret.testing import RunningBroker, start_broker


def test_explain(api: ApiClient) -> None:
    """Each setting with the rule that gave it; only where the user may see."""
    api.ask("PUT", "queues/%2F/explained", {"arguments": {"x-max-length": 7}})
    (found,) = api.get("leveret/explain/%2F/explained")
    rows = {row["name"]: (row["value"], row["rule"]) for row in found["rows"]}
    assert rows["x-max-length"] == (7, "queue argument")
    assert api.ask("GET", "leveret/explain/nope/explained").status == 404


def test_scheduled_with_a_key_behind_many_others(api: ApiClient) -> None:
    """The messages with the key are found, however many are due before them."""
    api.ask("PUT", "exchanges/%2F/long", {"type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}})
    api.ask("PUT", "queues/%2F/long", {})
    assert api.ask("POST", "bindings/%2F/e/long/q/long", {}).status == 201
    for number in range(MESSAGES_MAX + 2):
        key, delay = ("rare", 7_200_000) if number < 2 else ("k", 3_600_000)
        properties = {"headers": {"x-delay": delay}}
        body = {"routing_key": key, "properties": properties, "payload": "x", "payload_encoding": "string"}
        assert api.ask("POST", "exchanges/%2F/long/publish", body).json == {"routed": True}
    for query, count in (("", MESSAGES_MAX), ("&routing_key=rare", 2), ("&routing_key=k", MESSAGES_MAX)):
        assert len(api.get(f"leveret/scheduled?queue=long{query}")["items"]) == count, query
    assert api.ask("DELETE", "queues/%2F/long").status == 204


def test_scheduled(api: ApiClient) -> None:
    """What is delayed is listed, fired, moved and cancelled; what is asked wrongly changes nothing."""
    api.ask("PUT", "exchanges/%2F/later", {"type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}})
    api.ask("PUT", "queues/%2F/due", {})
    assert api.ask("POST", "bindings/%2F/e/later/q/due", {}).status == 201
    for _ in range(2):
        properties = {"headers": {"x-delay": 3_600_000}}
        body = {"routing_key": "k", "properties": properties, "payload": "x", "payload_encoding": "string"}
        assert api.ask("POST", "exchanges/%2F/later/publish", body).json == {"routed": True}
    found = api.get("leveret/scheduled")
    assert (found["total"], found["queues"]) == (2, 1)
    first, second = found["items"]
    assert (first["queue"], first["vhost"]) == ("due", "/") and first["due_in_ms"] > 3_000_000
    for query, count in (("queue=DU", 2), ("queue=other", 0), ("routing_key=k", 2), ("routing_key=j", 0)):
        assert len(api.get(f"leveret/scheduled?{query}")["items"]) == count
    place = f"leveret/scheduled/%2F/due/{first['id']}"
    for wrong in ({}, {"action": "explode"}, {"action": "reschedule"}, {"action": "reschedule", "delay": -1}):
        assert api.ask("POST", place, wrong).status == 400
    assert api.ask("POST", place, {"action": "reschedule", "delay": 7_200_000}).status == 200
    assert [one["id"] for one in api.get("leveret/scheduled")["items"]] == [second["id"], first["id"]]
    assert api.ask("POST", place, {"action": "cancel"}).status == 200
    assert api.ask("POST", place, {"action": "cancel"}).status == 400
    assert api.ask("POST", f"leveret/scheduled/%2F/due/{second['id']}", {"action": "fire"}).status == 200
    assert api.get("leveret/scheduled")["total"] == 0
    assert api.get("queues/%2F/due")["messages"] == 1

    # several at once; those that wait no longer are named, and only if none waits it is refused
    for _ in range(4):
        api.ask("POST", "exchanges/%2F/later/publish", body)
    ids = [one["id"] for one in api.get("leveret/scheduled")["items"]]
    place = "leveret/scheduled/%2F/due"
    for wrong in ({"action": "cancel"}, {"action": "cancel", "ids": []}, {"action": "cancel", "ids": ["x"]}):
        assert api.ask("POST", place, wrong).status == 400
    done = api.ask("POST", place, {"action": "cancel", "ids": [*ids[:2], first["id"]]}).json
    assert done == {"done": "cancel", "ids": ids[:2], "missing": [first["id"]]}
    assert api.ask("POST", place, {"action": "cancel", "ids": ids[:2]}).status == 400
    assert api.ask("POST", place, {"action": "reschedule", "ids": ids[2:], "delay": 7_200_000}).json["ids"] == ids[2:]
    assert all(one["due_in_ms"] > 7_000_000 for one in api.get("leveret/scheduled")["items"])
    assert api.ask("POST", place, {"action": "fire", "ids": ids[2:]}).status == 200
    assert api.get("queues/%2F/due")["messages"] == 3
    too_many = api.ask("POST", place, {"action": "fire", "ids": [*range(501)]})
    assert too_many.status == 400 and "at most 500 messages at once" in too_many.reason


def test_leases(api: ApiClient, broker: RunningBroker) -> None:
    """Who has which message of a leased queue; a lease is broken by its bookmark, and nothing else is."""
    body = {"durable": True, "arguments": {"x-queue-type": "amps", "x-lease-period": 600_000}}
    assert api.ask("PUT", "queues/%2F/leased", body).status == 201
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.basic_publish("", "leased", b"x")
    _, _, message = next(channel.consume("leased", inactivity_timeout=60))
    assert message == b"x"
    (queue,) = api.get("leveret/leases")["items"]
    (lease,) = queue["leases"]
    assert (queue["queue"], queue["vhost"], queue["leased"]) == ("leased", "/", 1)
    assert api.get("leveret/leases?queue=nothing")["items"] == []
    assert api.ask("POST", "leveret/leases/%2F/nope/discard", {"bookmark": "1"}).status == 404
    assert api.ask("POST", "leveret/leases/%2F/leased/discard", {"bookmark": 1}).status == 400
    api.ask("PUT", "queues/%2F/no-leases", {})
    channel.basic_publish("", "no-leases", b"x")
    refused = api.ask("POST", "leveret/leases/%2F/no-leases/discard", {})
    assert (refused.status, refused.reason) == (400, "queue 'no-leases' is not a leased queue")
    assert channel.queue_declare("no-leases", passive=True).method.message_count == 1
    answer = api.ask("POST", "leveret/leases/%2F/leased/discard", {"bookmark": lease["bookmark"], "option": "cancel"})
    assert answer.status == 200, answer.body
    (again,) = api.get("leveret/leases")["items"][0]["leases"]
    assert (lease["deliveries"], again["deliveries"]) == (1, 2)
    connection.close()


def test_browse(api: ApiClient, broker: RunningBroker) -> None:
    """Messages are seen by position, page by page; nothing is taken, marked or counted."""
    api.ask("PUT", "queues/%2F/seen", {})
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(7):
            channel.basic_publish("", "seen", b"%d" % number, pika.BasicProperties(headers={"n": number}))
        place = "leveret/queues/%2F/seen/browse"
        first = api.ask("POST", place, {"count": 4}).json
        assert [one["payload"] for one in first["items"]] == ["0", "1", "2", "3"] and first["total"] == 7
        assert first["items"][1]["properties"]["headers"] == {"n": 1}
        rest = api.ask("POST", place, {"count": 4, "after": first["next"]}).json
        assert ([one["payload"] for one in rest["items"]], rest["next"]) == (["4", "5", "6"], None)
        method, _, body = channel.basic_get("seen")
        assert (method.redelivered, body) == (False, b"0")
        unacked = api.ask("POST", place, {"state": "unacked"}).json
        assert ([one["payload"] for one in unacked["items"]], unacked["total"]) == (["0"], 1)
        assert api.get("queues/%2F/seen")["messages_ready"] == 6
    for wrong in ({"count": "a"}, {"after": -1}, {"state": "lost"}, {"state": 1}, {"encoding": "hex"}):
        assert api.ask("POST", place, wrong).status == 400
    api.ask("PUT", "users/blind", {"password": "blind", "tags": "management"})
    api.ask("PUT", "permissions/%2F/blind", {"configure": "", "write": "", "read": ""})
    assert api.ask("POST", place, {}, user="blind").reason == "Access refused."


def test_address_settings_say_how_much_a_browse_shows() -> None:
    """How many messages, and how much of each property; bodies are cut by whoever asks."""
    settings = [
        {"match": "#", "management-browse-page-size": 2, "management-message-attribute-size-limit": 3},
        {"match": "whole", "management-browse-page-size": -1, "management-message-attribute-size-limit": -1},
    ]
    with start_broker(management=True, config={"address-setting": settings}) as broker:
        api = ApiClient(broker.management_url)
        for queue in ("cut", "whole"):
            api.ask("PUT", f"queues/%2F/{queue}", {})
            for _ in range(3):
                broker.inject(
                    routing_key=queue, body="hares", type="hares", headers={"h": ["hares", {"k": "hare"}], "n": 7}
                )
        found = api.ask("POST", "leveret/queues/%2F/cut/browse", {"count": 9}).json
        properties = found["items"][1]["properties"]
        assert (len(found["items"]), found["next"] is None, found["total"]) == (2, False, 3)
        assert found["items"][0]["payload"] == "hares"
        assert (properties["type"], properties["headers"]["n"]) == ("har, + 2 more", 7)
        assert properties["headers"]["h"] == ["har, + 2 more", {"k": "har, + 1 more"}]
        found = api.ask("POST", "leveret/queues/%2F/whole/browse", {"count": 9}).json
        assert [one["properties"]["type"] for one in found["items"]] == ["hares"] * 3 and found["next"] is None


def test_blocked(api: ApiClient) -> None:
    """Nobody is; for monitors only, as the status is."""
    found = api.get("leveret/blocked")
    assert (found["blocked"], found["alarm"]) == ([], None)
    api.ask("PUT", "users/plain", {"password": "plain", "tags": "management"})
    for path in ("leveret/blocked", "leveret/status", "leveret/leases", "leveret/scheduled"):
        answer = api.ask("GET", path, user="plain")
        assert (answer.status, answer.reason) == (401, "Not monitor user")


def test_search(api: ApiClient, broker: RunningBroker) -> None:
    """Names of all kinds, whatever their case, as far as the user may see them; at most so many."""
    for number in range(60):
        api.ask("PUT", f"queues/%2F/Needle-{number}", {})
    api.ask("PUT", "exchanges/%2F/needles", {"type": "fanout"})
    api.ask("PUT", "users/needle", {"password": "needle", "tags": "management"})
    found = api.get("leveret/search?q=NEEDLE")
    assert len(found["queues"]) == 50 and found["queues"][0] == {"vhost": "/", "name": "Needle-0"}
    assert found["exchanges"] == [{"vhost": "/", "name": "needles"}]
    assert found["users"] == ["needle"]
    with pika.BlockingConnection(pika.URLParameters(broker.url)):
        assert api.get("leveret/search?q=127.0.0.1")["connections"]
    hidden = api.get("leveret/search?q=needle", user="needle")
    assert (hidden["queues"], hidden["users"]) == ([], [])


@pytest.mark.parametrize("query", ["", "?q="])
def test_search_for_nothing(api: ApiClient, query: str) -> None:
    """Says what it wants."""
    assert api.ask("GET", f"leveret/search{query}").reason == "q: expected text"


def test_browse_what_is_on_disk(tmp_path: Path) -> None:
    """Messages that were paged out are read for it, and stay where they are."""
    setting = {"match": "deep", "max-size-messages": 10, "address-full-policy": "PAGE"}
    with start_broker(management=True, data=tmp_path, config={"address-setting": [setting]}) as broker:
        api = ApiClient(broker.management_url)
        api.ask("PUT", "queues/%2F/deep", {"durable": True})
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(300):
                channel.basic_publish("", "deep", b"%d" % number, pika.BasicProperties(delivery_mode=2))
        paged = api.get("queues/%2F/deep")["messages_paged_out"]
        assert paged > 0
        seen, after = [], 0
        while after is not None:
            found = api.ask("POST", "leveret/queues/%2F/deep/browse", {"count": 70, "after": after}).json
            seen += [int(one["payload"]) for one in found["items"]]
            after = found["next"]
        assert seen == list(range(300))
        assert api.get("queues/%2F/deep")["messages_ready"] == 300
