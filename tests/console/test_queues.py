"""Queues over the API: what they show, declaring and deleting, pages. Source: management page 1.6, 2, 10."""

from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pika
import pytest
from api_client import ApiClient

from leveret.testing import RunningBroker


def test_a_queue_from_its_declaration_to_its_end(api: ApiClient, broker: RunningBroker) -> None:
    """201, 204 once more, counts as AMQP has them at the same moment, 404 behind its end."""
    assert api.ask("PUT", "queues/%2F/life", {"durable": True}).status == 201
    assert api.ask("PUT", "queues/%2F/life", {"durable": True}).status == 204
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in (b"1", b"22", b"333"):
            channel.basic_publish("", "life", body)
        channel.basic_get("life")
        shown = api.get("queues/%2F/life")
        counts = [shown[name] for name in ("messages", "messages_ready", "messages_unacknowledged", "message_bytes")]
        assert counts == [3, 2, 1, 6]
    assert api.ask("DELETE", "queues/%2F/life?if-empty=true").reason == "queue 'life' in vhost '/' not empty"
    assert api.ask("DELETE", "queues/%2F/life/contents").status == 204
    assert api.ask("DELETE", "queues/%2F/life?if-empty=true").status == 204
    assert api.ask("GET", "queues/%2F/life").status == 404


@pytest.mark.parametrize(
    "query, names",
    [
        ("page=1&page_size=2", ["p1", "p2"]),
        ("page=2&page_size=2", ["p3", "x1"]),
        ("page=1&name=P", ["p1", "p2", "p3"]),
        ("page=1&name=%5Ep%5B12%5D$&use_regex=true", ["p1", "p2"]),
        ("page=1&name=(a%2B)%2B$&use_regex=true", []),
        ("page=1&sort=name&sort_reverse=true&page_size=1", ["x1"]),
    ],
)
def test_pages(api: ApiClient, query: str, names: list[str]) -> None:
    """Filter, order, then the page (management page 1.6)."""
    assert api.ask("PUT", "queues/pages/x1", {}).status in (201, 204, 404)
    vhost = "%2F"
    for name in ("p1", "p2", "p3", "x1"):
        assert api.ask("PUT", f"queues/{vhost}/{name}", {}).status in (201, 204)
    page = api.get(f"queues/{vhost}?{query}&columns=name")
    assert [row["name"] for row in page["items"]] == names


def test_columns_go_into_objects(api: ApiClient) -> None:
    """Dots; what is not there is left out (management page 1.6)."""
    api.ask("PUT", "queues/%2F/columns", {"arguments": {"x-max-length": 5}})
    shown = api.get("queues/%2F/columns?columns=name,backing_queue_status.len,nope,name.nope")
    assert shown == {"name": "columns", "backing_queue_status": {"len": 0}}


@pytest.mark.parametrize(
    "columns, shown",
    [
        ("name.nope.more", {"name": "columns"}),
        ("name.", {"name": "columns"}),
        (".name", {"name": "columns"}),
        (".", {}),
        ("backing_queue_status.nope", {"backing_queue_status": {}}),
        ("policy.nope", {"policy": None}),
    ],
)
def test_columns_that_lead_nowhere(api: ApiClient, columns: str, shown: Any) -> None:
    """What has no fields is shown whole, an object without the wanted ones is empty, as in RabbitMQ."""
    api.ask("PUT", "queues/%2F/columns", {"arguments": {"x-max-length": 5}})
    assert api.get(f"queues/%2F/columns?columns={columns}") == shown


def test_columns_that_lead_into_arguments(api: ApiClient) -> None:
    """RabbitMQ shows all arguments; here only those that are asked for."""
    api.ask("PUT", "queues/%2F/columns", {"arguments": {"x-max-length": 5}})
    assert api.get("queues/%2F/columns?columns=arguments.nope") == {"arguments": {}}


def test_columns_go_into_lists(api: ApiClient) -> None:
    """Also those of a single object, of definitions, and of who asks. No depth makes trouble (management page 1.6)."""
    api.ask("PUT", "queues/%2F/columns", {"arguments": {"x-max-length": 5}})
    assert {"name": "columns"} in api.get("definitions?columns=queues.name,rabbit_version")["queues"]
    assert {"name": "direct"} in api.get("overview?columns=exchange_types.name")["exchange_types"]
    overview = api.get("overview")
    assert api.get("overview?columns=exchange_types.nope,node.nope") == {
        "exchange_types": [{}] * len(overview["exchange_types"]),
        "node": overview["node"],
    }
    assert api.get("whoami?columns=tags.nope") == {"tags": ["administrator"]}
    assert api.get("whoami?columns=name") == {"name": "guest"}
    both = api.get("queues/%2F/columns?columns=arguments,arguments.nope")
    assert both == {"arguments": {"x-max-length": 5}} == api.get("queues/%2F/columns?columns=arguments.nope,arguments")
    assert api.get(f"queues/%2F/columns?columns=name,{'.'.join(['arguments'] * 500)}") == {
        "name": "columns",
        "arguments": {},
    }


def test_the_order_of_bindings(api: ApiClient) -> None:
    """By source, destination, whatever it is, and routing key, in each list (management page 1.6)."""
    assert api.ask("PUT", "vhosts/bound", {}).status == 201
    for name in ("s", "b"):
        assert api.ask("PUT", f"exchanges/bound/{name}", {"type": "topic"}).status == 201
    for name in ("c", "a"):
        assert api.ask("PUT", f"queues/bound/{name}", {}).status == 201
    for place in ("q/c", "e/b", "q/a"):
        for key in ("z", "y"):
            assert api.ask("POST", f"bindings/bound/e/s/{place}", {"routing_key": key}).status == 201
    found = [(one["destination"], one["routing_key"]) for one in api.get("exchanges/bound/s/bindings/source")]
    assert found == [(name, key) for name in "abc" for key in "yz"]
    assert [one["destination"] for one in api.get("bindings/bound")] == ["a", "c", *"aabbcc"]
    assert [one["routing_key"] for one in api.get("exchanges/bound/b/bindings/destination")] == ["y", "z"]
    assert [one["routing_key"] for one in api.get("queues/bound/c/bindings")] == ["c", "y", "z"]
    assert [one["destination"] for one in api.get("exchanges/bound/amq.default/bindings/source")] == ["a", "c"]


def test_values_that_json_has_not(api: ApiClient, broker: RunningBroker) -> None:
    """RabbitMQ says "undefined", "Not UTF-8, base64 is: //4=", 2.314, and shows the second of a key's values."""
    odd = {"void": None, "octets": b"\xff\xfe", "decimal": Decimal("3.14")}
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("odd")
        channel.basic_publish("", "odd", b"", pika.BasicProperties(headers=odd))
        given = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
        (got,) = api.ask("POST", "queues/%2F/odd/get", given).json
    assert got["properties"] == {"headers": {"void": None, "octets": "\ufffd\ufffd", "decimal": 3.14}}


def test_without_statistics(api: ApiClient) -> None:
    """Only what is known without a sum (management page 1.7)."""
    api.ask("PUT", "queues/%2F/plain", {})
    (row,) = [one for one in api.get("queues?disable_stats=true") if one["name"] == "plain"]
    assert row["state"] == "live" and "messages" not in row
    (row,) = [one for one in api.get("queues?disable_stats=true&enable_queue_totals=true") if one["name"] == "plain"]
    assert row["messages"] == 0


def test_single_objects_without_statistics(api: ApiClient, broker: RunningBroker) -> None:
    """As RabbitMQ shows them; a channel and a consumer are nothing but statistics."""
    plain = "disable_stats=true"
    api.ask("PUT", "queues/%2F/single", {"arguments": {"x-max-length": 10}})
    bad_range = "lengths_age=60000&lengths_incr=5"  # is not looked at
    assert api.get(f"queues/%2F/single?{plain}&enable_queue_totals=true&{bad_range}") == {
        "arguments": {"x-max-length": 10},
        "auto_delete": False,
        "durable": False,
        "exclusive": False,
        "name": "single",
        "node": api.get("overview")["node"],
        "state": "live",
        "type": "classic",
        "vhost": "/",
    }
    vhost = api.get("vhosts/%2F")
    about = {"name", "description", "tags", "default_queue_type", "metadata", "tracing", "cluster_state"}
    assert api.get(f"vhosts/%2F?{plain}") == {name: vhost[name] for name in about}
    node = api.get("overview")["node"]
    assert api.get(f"nodes/{node}?{plain}") == {"name": node, "type": "disc", "running": True}
    assert api.get(f"nodes?{plain}") == [{"name": node, "type": "disc", "running": True}]
    assert "binary" in api.get(f"nodes/{node}?{plain}&memory=true")["memory"]
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel()
        (name,) = [one["name"] for one in api.get("connections")]
        path = quote(name, safe="")
        assert api.get(f"connections/{path}?{plain}") == {"name": name}
        assert "channel_max" in api.get(f"vhosts/%2F/connections?{plain}")[0]
        for of_channels in (
            f"channels/{path}%20(1)",
            "channels/nope",
            "vhosts/%2F/channels",
            "consumers",
            "consumers/%2F",
        ):
            refused = api.ask("GET", f"{of_channels}?{plain}")
            assert (refused.status, refused.reason) == (400, "Stats in management UI are disabled on this node")


def test_the_overview_says_what_was_asked_for(api: ApiClient) -> None:
    """Tools look there before they ask for lists. Without statistics a range is not looked at, as in RabbitMQ."""
    for query, expected in (
        ("", (False, False)),
        ("enable_queue_totals=true", (False, True)),
        ("disable_stats=true&enable_queue_totals=true&lengths_age=60000&lengths_incr=5", (True, True)),
    ):
        found = api.get(f"overview?{query}")
        assert (found["disable_stats"], found["enable_queue_totals"]) == expected


def test_octets_of_many_messages_are_taken_from_the_first(api: ApiClient, broker: RunningBroker) -> None:
    """Exact up to a number of messages; above it as much for each as for those that were looked at."""
    from leveret.console.views.queues import COUNTED_MAX

    api.ask("PUT", "queues/%2F/deep", {})
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        for _ in range(COUNTED_MAX):
            channel.basic_publish("", "deep", b"1234")
        channel.queue_declare("deep", passive=True)
        assert api.get("queues/%2F/deep")["message_bytes"] == 4 * COUNTED_MAX
        for _ in range(10):
            channel.basic_publish("", "deep", b"")
        channel.queue_declare("deep", passive=True)
        assert api.get("queues/%2F/deep")["message_bytes"] == 4 * (COUNTED_MAX + 10)


@pytest.mark.trap(83)
def test_declared_again(api: ApiClient) -> None:
    """Trap 83: as it is: 204; otherwise 400 with AMQP's words; a boolean that is missing is false."""
    assert api.ask("PUT", "queues/%2F/again", {}).status == 201
    assert api.ask("PUT", "queues/%2F/again", {"durable": False, "auto_delete": "false"}).status == 204
    answer = api.ask("PUT", "queues/%2F/again", {"durable": True})
    text = "inequivalent arg 'durable' for queue 'again' in vhost '/': received 'true' but current is 'false'"
    assert (answer.status, answer.reason) == (400, text)


@pytest.mark.trap(84)
def test_an_empty_key_has_a_name(api: ApiClient) -> None:
    """Trap 84: in paths it is a tilde."""
    api.ask("PUT", "queues/%2F/keyless", {})
    assert api.ask("POST", "bindings/%2F/e/amq.direct/q/keyless", {}).headers["location"] == "keyless/~"
    assert api.get("bindings/%2F/e/amq.direct/q/keyless/~")["properties_key"] == "~"
    assert api.ask("DELETE", "bindings/%2F/e/amq.direct/q/keyless/~").status == 204


@pytest.mark.parametrize("query", ["name=mixedcase", "name=MIXEDC", "name=%5emixedc&use_regex=true"])
def test_the_filter_of_a_page_ignores_case(query: str, api: ApiClient) -> None:
    """A part of the name, or a pattern."""
    api.ask("PUT", "queues/%2F/MixedCase", {})
    assert [one["name"] for one in api.get(f"queues?page=1&{query}")["items"]] == ["MixedCase"]


def test_a_missing_value_sorts_as_zero(api: ApiClient) -> None:
    """As in RabbitMQ: before all that are larger."""
    api.ask("PUT", "queues/%2F/some%20limit", {"arguments": {"x-max-length": 5}})
    api.ask("PUT", "queues/%2F/any%20length", {})
    names = [one["name"] for one in api.get("queues?sort=arguments.x-max-length&columns=name")]
    assert names.index("any length") < names.index("some limit")


def test_keys_of_bindings_with_arguments(api: ApiClient) -> None:
    """The key depends on the arguments: another for others, the same again."""
    api.ask("PUT", "queues/%2F/argued", {"durable": True})
    path = "bindings/%2F/e/amq.headers/q/argued"
    keys = []
    for arguments in ({"n": 1}, {"n": 2}, {"n": "1"}, {"n": 1}):
        made = api.ask("POST", path, {"routing_key": "a.b", "arguments": arguments})
        keys.append(made.headers["location"].partition("/")[2])
        assert api.get(f"{path}/{keys[-1]}")["arguments"] == arguments
    assert keys[0] == keys[3] and len(set(keys)) == 3
    assert [api.ask("DELETE", f"{path}/{keys[0]}").status for _ in range(2)] == [204, 404]
    assert len(api.get(path)) == 2


def test_bindings_are_listed_in_order_with_those_of_the_default_exchange(api: ApiClient) -> None:
    """As in RabbitMQ: each queue has one of the default exchange; by source, destination and key."""
    for queue, key in (("listed-b", "2"), ("listed-a", "1")):
        api.ask("PUT", f"queues/%2F/{queue}", {})
        assert api.ask("POST", f"bindings/%2F/e/amq.direct/q/{queue}", {"routing_key": key}).status == 201
    for path in ("bindings", "bindings/%2F"):
        found = [(one["source"], one["destination"], one["routing_key"]) for one in api.get(path)]
        assert [one for one in found if one[1].startswith("listed-")] == [
            ("", "listed-a", "listed-a"),
            ("", "listed-b", "listed-b"),
            ("amq.direct", "listed-a", "1"),
            ("amq.direct", "listed-b", "2"),
        ]


def test_bindings_from_two_exchanges_by_one_key(api: ApiClient) -> None:
    """Each exchange shows its own, and the other one stays when it is deleted."""
    api.ask("PUT", "queues/%2F/twice", {})
    paths = [f"bindings/%2F/e/{exchange}/q/twice" for exchange in ("amq.direct", "amq.topic")]
    for path in paths:
        assert api.ask("POST", path, {"routing_key": "same"}).status == 201
    for path, exchange in zip(paths, ("amq.direct", "amq.topic")):
        assert [one["source"] for one in api.get(path)] == [exchange]
        assert api.get(f"{path}/same")["source"] == exchange
    assert api.ask("DELETE", f"{paths[1]}/same").status == 204
    assert len(api.get(paths[0])) == 1 and api.get(paths[1]) == []


@pytest.mark.trap(85)
def test_who_makes_a_virtual_host_may_use_it(api: ApiClient) -> None:
    """Trap 85: the user who creates it over HTTP, alone or in a file of definitions, gets all permissions there."""
    assert api.ask("PUT", "users/maker", {"password": "maker", "tags": "administrator"}).status == 201
    assert api.ask("PUT", "vhosts/his", {}, user="maker").status == 201
    assert api.get("permissions/his/maker")["configure"] == ".*"
    assert api.ask("PUT", "queues/his/q", {}, user="maker").status == 201
    assert api.ask("PUT", "queues/%2F/q", {}, user="maker").status == 401
    granted = {"user": "maker", "vhost": "given", "configure": "c", "write": "w", "read": "r"}
    document = {"vhosts": [{"name": "his"}, {"name": "imported"}, {"name": "given"}], "permissions": [granted]}
    assert api.ask("DELETE", "permissions/his/maker").status == 204
    assert api.ask("POST", "definitions", document, user="maker").status == 204
    found = {row["vhost"]: row["configure"] for row in api.get("users/maker/permissions")}
    assert found == {"imported": ".*", "given": "c"}  # of new ones, unless the file says another thing


def test_virtual_hosts_without_statistics(api: ApiClient) -> None:
    """Only what is known without a sum over all queues."""
    (row,) = [one for one in api.get("vhosts?disable_stats=true") if one["name"] == "/"]
    assert "messages" not in row and row["default_queue_type"] == "undefined"
    assert "messages" in next(one for one in api.get("vhosts") if one["name"] == "/")
    totals = api.get("overview?disable_stats=true")["object_totals"]
    assert totals["queues"] == api.get("overview")["object_totals"]["queues"] and "consumers" not in totals


def test_ranges_say_when_samples_began(api: ApiClient) -> None:
    """What they show before is not known; without a range nothing is said."""
    api.ask("PUT", "queues/%2F/ranged", {})
    ranged = "lengths_age=60&lengths_incr=5"
    assert api.get(f"queues/%2F/ranged?{ranged}")["leveret"]["sampled_since_ms"] is None
    assert "sampled_since_ms" not in api.get("queues/%2F/ranged")["leveret"]
    assert "sampled_since_ms" in api.get(f"overview?{ranged}")["leveret"]
    assert "leveret" not in api.get("overview")
