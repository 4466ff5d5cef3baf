"""Refusals of policies, limits and bindings: status and reason as RabbitMQ 3.10.8 gives them."""

from typing import Any

import pytest
from api_client import ApiClient

FAILED = "Validation failed\n\n"
RIGHT = {"pattern": "^a", "definition": {"max-length": 1}, "priority": 0, "apply-to": "queues"}
NO_SUCH_OBJECTS = "apply-to '{}' unrecognised; should be 'queues', 'exchanges' or 'all'\n"


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
@pytest.mark.parametrize(
    "wrong, reason",
    [
        ({"pattern": None}, "pattern should be a binary but was null\n"),
        ({"pattern": True}, "pattern should be a binary but was true\n"),
        ({"pattern": 1.5}, "pattern should be a binary but was 1.5\n"),
        ({"pattern": {}}, "pattern should be a binary but was #{}\n"),
        ({"apply-to": None}, NO_SUCH_OBJECTS.format("null")),
        ({"apply-to": True}, NO_SUCH_OBJECTS.format("true")),
        ({"apply-to": ""}, NO_SUCH_OBJECTS.format("")),
        ({"apply-to": "nothing"}, NO_SUCH_OBJECTS.format("nothing")),
        ({"priority": None}, "priority should be a number, actually was null\n"),
        ({"priority": True}, "priority should be a number, actually was true\n"),
        ({"priority": [1]}, "priority should be a number, actually was [1]\n"),
        ({"priority": 1.5}, "priority should be a 64-bit integer, actually was 1.5\n"),  # RabbitMQ takes it
        ({"definition": {"max-length": -1, "message-ttl": "x", "foo": 1}}, "-1 is not a valid maximum length\n"),
        (
            {"definition": {"expires": 0}, "apply-to": "x", "pattern": 5, "priority": None},
            f"0 is not a valid queue expiry\n{NO_SUCH_OBJECTS.format('x')}pattern should be a binary but was 5\n"
            "priority should be a number, actually was null\n",
        ),
    ],
)
def test_policies(kind: str, wrong: dict[str, Any], reason: str, api: ApiClient) -> None:
    """Each fault on a line: of the definition, of what it applies to, of the pattern, of the priority."""
    refused = api.ask("PUT", f"{kind}/%2F/wrong", RIGHT | wrong)
    assert (refused.status, refused.reason) == (400, FAILED + reason)
    assert api.ask("GET", f"{kind}/%2F/wrong").status == 404


@pytest.mark.parametrize("priority, shown", [("\\", "\\"), ("5", "5")])
def test_a_priority_that_is_text(priority: str, shown: str, api: ApiClient) -> None:
    """Policies escape what they show, operator policies do not."""
    for kind, text in (("policies", f'&lt;&lt;"{shown}"&gt;&gt;'), ("operator-policies", f'<<"{shown}">>')):
        refused = api.ask("PUT", f"{kind}/%2F/wrong", RIGHT | {"priority": priority})
        assert refused.reason == f"{FAILED}priority should be a number, actually was {text}\n"


def test_a_priority_that_is_a_whole_number(api: ApiClient) -> None:
    """Written as a float, it is the integer."""
    assert api.ask("PUT", "policies/%2F/whole", RIGHT | {"priority": 3.0}).status == 201
    assert api.ask("GET", "policies/%2F/whole").json["priority"] == 3


@pytest.mark.parametrize(
    "key, value, reason",
    [
        ("federation-upstream", 5, "5 is not a valid federation upstream name"),
        ("federation-upstream-set", None, "null is not a valid federation upstream set name"),
        ("queue-version", 1.0, "1.0 is not a valid queue-version value"),
        ("queue-version", True, "true is not a valid queue-version value"),
    ],
)
def test_values_of_keys(key: str, value: Any, reason: str, api: ApiClient) -> None:
    """In RabbitMQ's words."""
    refused = api.ask("PUT", "policies/%2F/wrong", {"pattern": "a", "definition": {key: value}})
    assert (refused.status, refused.reason) == (400, f"{FAILED}{reason}\n")


def test_limits_that_are_unknown_are_not_set(api: ApiClient) -> None:
    """Clearing one that nobody can set changes nothing, and is no error; of a user or host that is missing it is."""
    api.ask("PUT", "users/limited", {"password": "limited", "tags": ""})
    assert api.ask("DELETE", "vhost-limits/%2F/max-channels").status == 204
    assert api.ask("DELETE", "user-limits/limited/max-queues").status == 204
    assert api.ask("DELETE", "vhost-limits/missing/max-channels").status == 404
    assert api.ask("DELETE", "user-limits/missing/max-queues").status == 404


@pytest.mark.parametrize("path", ["e/amq.topic/e/amq.default", "e/amq.default/e/amq.topic"])
def test_bindings_of_the_default_exchange(path: str, api: ApiClient) -> None:
    """It is bound to each queue by its name, and to nothing else."""
    refused = api.ask("POST", f"bindings/%2F/{path}", {"routing_key": "r"})
    assert (refused.status, refused.reason) == (401, "Access refused.")


@pytest.mark.parametrize("path", ["%2F/e/amq.topic/q/no", "%2F/e/no/q/no", "%2F/e/no/e/amq.topic", "no/e/x/q/q"])
def test_there_are_no_bindings_between_what_is_missing(path: str, api: ApiClient) -> None:
    """Libraries list them to find out whether a queue is bound: an empty list, as in RabbitMQ, is no error."""
    assert api.get(f"bindings/{path}") == []
    assert api.ask("GET", f"bindings/{path}/key").status == 404
    assert api.ask("DELETE", f"bindings/{path}/key").status == 404


@pytest.mark.parametrize(
    "path, body, reason",
    [
        ("exchanges/%2F/empty-type", {"type": ""}, "invalid exchange type ''"),
        ("exchanges/%2F/" + "n" * 256, {}, "exchange should be less than 255 bytes, actually was 256\n"),
        ("queues/%2F/elsewhere", {"node": "nope"}, "Node nope@localhost could not be contacted"),
        ("queues/%2F/elsewhere", {"node": "nope@there"}, "Node nope@there could not be contacted"),
    ],
)
def test_declarations(path: str, body: Any, reason: str, api: ApiClient) -> None:
    """RabbitMQ makes an exchange with a name of any length, which no client can name."""
    refused = api.ask("PUT", path, body)
    assert (refused.status, refused.reason) == (400, reason)


def test_a_node_without_its_host(api: ApiClient) -> None:
    """Is on the host of the one that was asked."""
    assert api.ask("PUT", "queues/%2F/here", {"node": "rabbit"}).status == 201


@pytest.mark.parametrize(
    "wrong, reason",
    [
        ({"routing_key": 5}, ["not_string", "routing_key"]),
        ({"routing_key": "k" * 256}, "publish: exchange and routing-key: longer than 255 octets"),
        ({"properties": {"priority": 256}}, "publish: priority: expected a number from 0 to 255"),
        ({"properties": {"message_id": "k" * 256}}, "publish: message_id: expected text of at most 255 octets"),
    ],
)
def test_publishes_of_what_amqp_has_not(wrong: Any, reason: Any, api: ApiClient) -> None:
    """RabbitMQ takes it, and cuts it or makes text of it."""
    given = {"properties": {}, "routing_key": "nowhere", "payload": "", "payload_encoding": "string"}
    refused = api.ask("POST", "exchanges/%2F/amq.default/publish", given | wrong)
    assert (refused.status, refused.reason) == (400, reason)


def test_a_publish_to_an_internal_exchange(api: ApiClient) -> None:
    """Errors of the channel come with their code: the confirm is waited for, and the channel closes instead."""
    given = {"properties": {}, "routing_key": "", "payload": "", "payload_encoding": "string"}
    refused = api.ask("POST", "exchanges/%2F/amq.rabbitmq.trace/publish", given)
    reason = "403 ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'"
    assert (refused.status, refused.reason) == (400, reason)


def test_a_publish_that_a_queue_rejects(api: ApiClient) -> None:
    """By its overflow."""
    full = {"arguments": {"x-max-length": 0, "x-overflow": "reject-publish"}}
    assert api.ask("PUT", "queues/%2F/full", full).status == 201
    given = {"properties": {}, "routing_key": "full", "payload": "", "payload_encoding": "string"}
    refused = api.ask("POST", "exchanges/%2F/amq.default/publish", given)
    assert (refused.status, refused.reason) == (400, "rejected Unable to publish message. Check queue limits.")


def test_headers_that_are_empty_are_kept(api: ApiClient) -> None:
    """A table without keys is not the same as no table."""
    assert api.ask("PUT", "queues/%2F/headed", {}).status == 201
    given = {"routing_key": "headed", "payload": "", "payload_encoding": "string"}
    for properties in ({"headers": {}}, {}):
        assert api.ask("POST", "exchanges/%2F/amq.default/publish", {**given, "properties": properties}).status == 200
    wanted = {"count": 2, "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert [one["properties"] for one in api.ask("POST", "queues/%2F/headed/get", wanted).json] == [{"headers": {}}, {}]


@pytest.mark.parametrize("count, got", [(1.9, 1), (2.5, 2), (0.5, 0), (-1.5, 3), (1e3, 3), ("+2", 2)])
def test_counts_with_a_fraction(count: Any, got: int, api: ApiClient) -> None:
    """The fraction is dropped; below 0 it is all there are."""
    if api.ask("PUT", "queues/%2F/counted", {}).status == 201:
        given = {"properties": {}, "routing_key": "counted", "payload": "p", "payload_encoding": "string"}
        for _ in range(3):
            assert api.ask("POST", "exchanges/%2F/amq.default/publish", given).json == {"routed": True}
    given = {"count": count, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 0.5}
    answer = api.ask("POST", "queues/%2F/counted/get", given)
    assert [one["payload"] for one in answer.json] == [""] * got


def test_a_get_in_a_missing_virtual_host(api: ApiClient) -> None:
    """As a publish there, and unlike most requests, it is refused, after its keys were looked at."""
    given = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    refused = api.ask("POST", "queues/missing/q/get", given)
    assert (refused.status, refused.reason) == (401, "Access refused.")
    assert api.ask("POST", "queues/missing/q/get", {}).status == 400
    assert api.ask("POST", "queues/%2F/q/get", given).status == 404


def test_nobody_unbinds_a_queue_from_the_default_exchange(api: ApiClient) -> None:
    """It is refused, and not unknown: lists show this binding."""
    api.ask("PUT", "queues/%2F/bound", {})
    path = "bindings/%2F/e/amq.default/q/bound/bound"
    assert api.get(path)["destination"] == "bound"
    refused = api.ask("DELETE", path)
    assert (refused.status, refused.reason) == (401, "Access refused.")


@pytest.mark.parametrize(
    ("age", "step", "status"),
    [(500, 1, 200), (501, 1, 400), (1001, 2, 200), (1002, 2, 400), (60, 0, 400), (-60, 5, 400)],
)
def test_a_range_has_five_hundred_points_at_most(age: int, step: int, status: int, api: ApiClient) -> None:
    """More would take the broker's time, and its clients'."""
    assert api.ask("GET", f"overview?lengths_age={age}&lengths_incr={step}").status == status


@pytest.mark.parametrize(
    "body, reason",
    [
        (b"", None),
        (b"null", None),
        (b"\xef\xbb\xbf{}\n", None),  # as editors write it
        (b" ", "not_json"),
        (b"{} x", "not_json"),
        (b"[]", "not_json"),
        (b"{'a': 1}", "not_json"),
        (b'{"a": NaN}', "not_json"),
        (b"\xff", "not_json"),
        (b'{"a": "\xff"}', "not_json"),  # RabbitMQ takes it
        ('{"a": 1}'.encode("utf-16"), "not_json"),
    ],
)
def test_bodies_that_are_no_json(body: bytes, reason: str | None, api: ApiClient) -> None:
    """What is no object is refused; no body is an empty object, but white space is not."""
    answer = api.ask("PUT", "vhosts/bodied", body)
    assert answer.status == (400 if reason else 201)
    assert answer.reason == reason if reason else api.ask("DELETE", "vhosts/bodied").status == 204


_HASH = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIj"


@pytest.mark.parametrize(
    "given, reason",
    [
        ({"password": None}, "password: expected text"),  # RabbitMQ: 500, as for the next one and the last
        ({"password": 5}, "password: expected text"),
        ({"password_hash": None}, ["not_base64", None]),
        ({"password_hash": 5}, ["not_base64", 5]),
        ({"password_hash": "%"}, ["not_base64", "%"]),
        ({"password_hash": _HASH, "password": None}, "both_password_and_password_hash_are_provided"),
        ({"password_hash": _HASH, "hashing_algorithm": 5}, "hashing_algorithm: expected text"),
    ],
)
def test_passwords_that_are_no_text(given: dict[str, Any], reason: Any, api: ApiClient) -> None:
    """A script whose variable is empty makes no user whom nobody can log in as."""
    refused = api.ask("PUT", "users/odd", {"tags": "", **given})
    assert (refused.status, refused.reason) == (400, reason)
    assert api.ask("GET", "users/odd").status == 404


@pytest.mark.parametrize(
    "limits, reason",
    [
        ({"max-queues": 1}, 'Unrecognised terms [{<<"max-queues">>,1}] in user-limits'),
        ({"max-channels": "1"}, 'max-channels should be a number, actually was <<"1">>'),
        ({"max-channels": True}, "max-channels should be a number, actually was true"),
        ("x", 'user-limits not a list <<"x">>'),
    ],
)
def test_limits_of_a_user_that_is_put(limits: Any, reason: str, api: ApiClient) -> None:
    """As at the path of one limit; no user is made."""
    refused = api.ask("PUT", "users/odd", {"tags": "", "limits": limits})
    assert (refused.status, refused.reason) == (400, reason)
    assert api.ask("GET", "users/odd").status == 404


@pytest.mark.parametrize("users", [["bulk", 5], ["bulk", None], [["bulk"]], "bulk", None])
def test_bulk_deletion_of_what_is_no_name(users: Any, api: ApiClient) -> None:
    """Nobody is deleted."""
    assert api.ask("PUT", "users/bulk", {"password": "bulk", "tags": ""}).status < 300
    assert api.ask("POST", "users/bulk-delete", {"users": users}).status == 400
    assert api.ask("GET", "users/bulk").status == 200


@pytest.mark.parametrize("body", [b"", b'{"queues": [], "queues": []}', b'{"a": "\xff"}'])
def test_definitions_that_are_no_json(body: bytes, api: ApiClient) -> None:
    """An empty file is no file of definitions."""
    refused = api.ask("POST", "definitions", body, headers={"content-type": "application/json"})
    assert (refused.status, refused.reason) == (400, "failed_to_parse_json")


@pytest.mark.parametrize("number", ["1e999", "-1e999", "[1, 1e999]", '{"a": 1e400}'])
def test_numbers_that_no_float_can_hold(number: str, api: ApiClient) -> None:
    """Python reads infinity, which is no JSON: it would make every list and export with it unreadable."""
    body = f'{{"value": {number}}}'.encode()
    for path in ("global-parameters/large", "parameters/any/%2F/large"):
        refused = api.ask("PUT", path, body)
        assert (refused.status, refused.reason) == (400, "not_json")
        assert api.ask("GET", path).status == 404


@pytest.mark.parametrize(
    "method, path, body",
    [
        ("POST", "queues/%2F/none/get", {"count": "1" * 5000, "ackmode": "ack_requeue_true", "encoding": "auto"}),
        ("GET", f"leveret/events?since={'1' * 5000}", None),
        ("GET", f"leveret/jobs/{'1' * 5000}", None),
    ],
)
def test_numbers_of_thousands_of_digits(method: str, path: str, body: Any, api: ApiClient) -> None:
    """As text, Python refuses them with an error of its own, which was a 500."""
    refused = api.ask(method, path, body)
    assert (refused.status, refused.reason[0]) == (400, "not_integer")


@pytest.mark.parametrize("header", ["message-id: <", "from: <", "to: a@["])
def test_forms_with_headers_that_are_malformed(header: str, api: ApiClient) -> None:
    """Headers of a part that mean nothing here are not parsed: Python's parser of addresses failed, which was a 500."""
    part = f'--x\r\n{header}\r\ncontent-disposition: form-data; name="file"\r\n\r\n{{}}\r\n--x--\r\n'
    form = {"content-type": "multipart/form-data; boundary=x"}
    assert api.ask("POST", "definitions", part.encode(), headers=form).status == 204
