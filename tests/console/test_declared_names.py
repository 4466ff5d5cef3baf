"""What the API declares, binds and publishes has the names, arguments and octets that the same over AMQP would have.

Source: behaviour page 0.7; management page 1.8, 6, 8.4.
"""

from typing import Any

import pytest
from api_client import ApiClient


def test_line_ends_are_no_part_of_a_declared_name(api: ApiClient) -> None:
    """As over AMQP: else the object could not be deleted there, nor have a reserved name refused."""
    assert api.ask("PUT", "queues/%2F/line%0D%0Aend", {}).status == 201
    assert api.ask("PUT", "exchanges/%2F/line%0Aend", {"type": "fanout"}).status == 201
    assert api.get("queues/%2F/lineend?columns=name") == {"name": "lineend"}
    bound = api.ask("POST", "bindings/%2F/e/line%0Aend/q/line%0Aend", {"routing_key": "k"})
    assert (bound.status, bound.headers["location"]) == (201, "lineend/k")
    bound = api.ask("POST", "bindings/%2F/e/line%0Aend/e/amq.%0Afanout", {})
    assert (bound.status, bound.headers["location"]) == (201, "amq.fanout/~")
    assert api.ask("PUT", "queues/%2F/amq%0A.own", {}).status == 401
    assert api.ask("PUT", "exchanges/%2F/%0A", {"type": "fanout"}).status == 401
    assert api.ask("PUT", "queues/%2F/%0A", {}).reason == "declare-queue: queue: expected more than line ends"
    assert api.ask("DELETE", "queues/%2F/line%0Aend").status == 404
    assert api.ask("DELETE", "queues/%2F/lineend").status == 204


def test_a_binding_is_deleted_though_another_one_has_equal_arguments(api: ApiClient) -> None:
    """In Python, true is 1, and 1.0; in JSON and for a headers exchange these are different."""
    path = "bindings/%2F/e/amq.headers/q/alike"
    values: list[Any] = [1, True, 1.0, "1", [True], [1]]
    assert api.ask("PUT", "queues/%2F/alike", {}).status == 201
    places = [api.ask("POST", path, {"arguments": {"x": value}}).headers["location"] for value in values]
    again = [api.ask("POST", path, {"arguments": {"x": value}}).headers["location"] for value in values]
    assert again == places and len(set(places)) == len(values)
    while values:
        value, place = values.pop(), places.pop()
        assert api.ask("DELETE", f"bindings/%2F/e/amq.headers/q/{place}").status == 204, value
        assert sorted(str(one["arguments"]["x"]) for one in api.get(path)) == sorted(map(str, values))


@pytest.mark.parametrize("payload", ["YWJj\n", "YW\nJj", " YWJj\r\n", "Y\tWJj"], ids=repr)
def test_base64_may_have_line_ends(payload: str, api: ApiClient) -> None:
    """As the command `base64` writes it."""
    api.ask("PUT", "queues/%2F/wrapped", {})
    body = {"properties": {}, "routing_key": "wrapped", "payload": payload, "payload_encoding": "base64"}
    assert api.ask("POST", "exchanges/%2F/amq.default/publish", body).json == {"routed": True}
    wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert [one["payload"] for one in api.ask("POST", "queues/%2F/wrapped/get", wanted).json] == ["abc"]


def test_a_hash_of_a_password_may_have_line_ends(api: ApiClient) -> None:
    """It is shown without them."""
    text = "VDzWGEYZ3sPXw6LRQrPBWPKzSHaOIZ5mgnjnWvpIMJwEqBg0"
    assert api.ask("PUT", "users/hashed", {"tags": "", "password_hash": f"{text[:20]}\n{text[20:]}\n"}).status == 201
    assert api.get("users/hashed")["password_hash"] == text
