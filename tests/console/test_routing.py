"""Dry routing: where a message would go and why not elsewhere. Source: management page 16."""

from typing import Any

import pytest
from api_client import ApiClient

from leveret.testing import RunningBroker


def ask(api: ApiClient, vhost: str = "%2F", **given: Any) -> Any:
    answer = api.ask("POST", f"leveret/route/{vhost}", given)
    assert answer.status == 200, answer.body
    return answer.json


def bind(api: ApiClient, source: str, queue: str, key: str, **arguments: object) -> None:
    body = {"routing_key": key, "arguments": arguments}
    assert api.ask("POST", f"bindings/%2F/e/{source}/q/{queue}", body).status == 201


@pytest.fixture(scope="module", autouse=True)
def topology(broker: RunningBroker) -> None:
    """Exchanges of each type, with queues."""
    api = ApiClient(broker.management_url)
    for name, kind in (("keys", "direct"), ("words", "topic"), ("heads", "headers"), ("any", "x-random")):
        body = {"type": kind, "arguments": {"alternate-exchange": "rest"} if name == "words" else {}}
        assert api.ask("PUT", f"exchanges/%2F/{name}", body).status == 201
    assert api.ask("PUT", "exchanges/%2F/rest", {"type": "fanout"}).status == 201
    for queue, arguments in {
        "one": {},
        "two": {"x-max-length": 1, "x-overflow": "reject-publish"},
        "ring": {"x-ring-size": 1},
        "short": {"x-message-ttl": 500},
        "rest": {},
    }.items():
        assert api.ask("PUT", f"queues/%2F/{queue}", {"arguments": arguments}).status == 201
    bind(api, "keys", "one", "a")
    bind(api, "keys", "two", "b")
    bind(api, "words", "one", "a.*")
    bind(api, "words", "short", "a.#")
    bind(api, "words", "two", "b.#")
    bind(api, "heads", "one", "", **{"x-match": "all", "kind": "x", "n": 1})
    bind(api, "heads", "two", "", **{"x-match": "any", "kind": "y", "n": 2})
    bind(api, "rest", "rest", "")
    bind(api, "any", "one", "")
    bind(api, "any", "ring", "")


def names(found: Any) -> list[str]:
    return sorted(row["queue"] for row in found["queues"])


def test_bindings_that_match_and_those_that_do_not(api: ApiClient) -> None:
    """Each queue with its bindings, each other binding with the reason; nothing was published."""
    found = ask(api, exchange="words", routing_key="a.b")
    assert (found["fate"], names(found)) == ("routed", ["one", "short"])
    (one,) = (row for row in found["queues"] if row["queue"] == "one")
    assert [row["routing_key"] for row in one["bindings"]] == ["a.*"]
    assert [(row["destination"], row["why"]) for row in found["others"]] == [
        ("two", "the pattern 'b.#' does not match 'a.b'")
    ]
    assert {row["ttl_ms"] for row in found["queues"]} == {None, 500}
    assert api.get("exchanges/%2F/words").get("message_stats", {}).get("publish_in", 0) == 0
    assert api.get("queues/%2F/one")["messages"] == 0


@pytest.mark.parametrize(
    "given, queues, why",
    [
        ({"exchange": "keys", "routing_key": "a"}, ["one"], "the routing key is 'a', not 'b'"),
        (
            {"exchange": "heads", "headers": {"kind": "x", "n": 1}},
            ["one"],
            "none of these headers matches: 'kind', 'n'",
        ),
        ({"exchange": "heads", "headers": {"kind": "x", "n": 2}}, ["two"], "the header 'n' has another value"),
        ({"exchange": "heads", "properties": {"headers": {"n": 2}}}, ["two"], "there is no header 'kind'"),
        ({"exchange": "words", "routing_key": "c"}, ["rest"], "the pattern 'a.*' does not match 'c'"),
        (
            {"exchange": "keys", "routing_key": "c", "headers": {"CC": ["a"]}},
            ["one"],
            "the routing key is 'c' or 'a', not 'b'",
        ),
    ],
)
def test_why_not(api: ApiClient, given: dict[str, object], queues: list[str], why: str) -> None:
    """Whatever an exchange looks at; copies and alternate exchanges count."""
    found = ask(api, **given)
    assert names(found) == queues
    assert why in [row["why"] for row in found["others"]]


def test_the_way_and_chance(api: ApiClient) -> None:
    """An alternate exchange is named as such; a random exchange may take any."""
    found = ask(api, exchange="words", routing_key="c")
    assert [(one["name"], one["alternate"]) for one in found["exchanges"]] == [("words", "rest"), ("rest", None)]
    found = ask(api, exchange="any")
    assert (names(found), found["exchanges"][0]["by_chance"]) == (["one", "ring"], True)


def test_what_queues_would_do(api: ApiClient) -> None:
    """A full queue refuses, a full ring drops its oldest; both take it while there is room."""
    for queue, before, after in (("two", "ready", "refused"), ("ring", "ready", "evicts the oldest")):
        (row,) = ask(api, routing_key=queue)["queues"]
        assert (row["how"], row["outcome"], row["messages"]) == ("by its name", before, 0)
        message = {"properties": {}, "routing_key": queue, "payload": "x", "payload_encoding": "string"}
        assert api.ask("POST", "exchanges/%2F/amq.default/publish", message).status == 200
        (row,) = ask(api, routing_key=queue)["queues"]
        assert (row["outcome"], row["messages"]) == (after, 1)


def test_unroutable_and_delayed(api: ApiClient) -> None:
    """Nobody gets it, and what would become of it; a delayed one says for how long."""
    found = ask(api, exchange="keys", routing_key="nobody")
    assert (found["fate"], found["queues"]) == ("unroutable: dropped, or returned if it is mandatory", [])
    api.ask("PUT", "exchanges/%2F/later", {"type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}})
    bind(api, "later", "one", "k")
    found = ask(api, exchange="later", routing_key="k", headers={"x-delay": 60_000})
    assert names(found) == ["one"] and 59_000 < found["delay_ms"] <= 60_000


@pytest.mark.parametrize(
    "given",
    [
        {"exchange": 5},
        {"routing_key": None},
        {"properties": []},
        {"headers": "x"},
        {"properties": {"expiration": "abc"}},
        {"headers": {"CC": "a"}},
        {"payload_encoding": "hex"},
        {"routing_key": "k" * 256},
    ],
)
def test_bad_input(api: ApiClient, given: dict[str, object]) -> None:
    """400, and a reason."""
    answer = api.ask("POST", "leveret/route/%2F", given)
    assert answer.status == 400 and answer.reason


def test_who_may(api: ApiClient) -> None:
    """As with a publish: what the user may not write to is refused; an exchange that is not there is not found."""
    api.ask("PUT", "users/reader", {"password": "reader", "tags": "management"})
    api.ask("PUT", "permissions/%2F/reader", {"configure": "", "write": "^keys$", "read": ""})
    for exchange, status in (("keys", 200), ("words", 401)):
        body = {"exchange": exchange}
        assert api.ask("POST", "leveret/route/%2F", body, user="reader", password="reader").status == status
    assert api.ask("POST", "leveret/route/%2F", {"exchange": "nope"}).status == 404
    assert api.ask("POST", "leveret/route/nope", {}).status == 404
