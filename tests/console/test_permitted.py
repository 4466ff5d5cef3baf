"""Refusals say what was wanted, and the page can ask before: by tags, virtual hosts and patterns.

Source: management page 1.5, 15.
"""

from collections.abc import Iterator

import pytest
from api_client import ApiClient

from leveret.testing import RunningBroker

TAGS = ("administrator", "monitoring", "policymaker", "management", "")


@pytest.fixture(scope="module")
def users(broker: RunningBroker) -> Iterator[ApiClient]:
    """One user for each tag; each may configure a..., write to b..., and read c... in /, and nothing elsewhere."""
    api = ApiClient(broker.management_url)
    assert api.ask("PUT", "vhosts/hidden", {}).status == 201
    for tag in TAGS:
        name = tag or "untagged"
        assert api.ask("PUT", f"users/{name}", {"password": name, "tags": tag}).status == 201
        assert api.ask("PUT", f"permissions/%2F/{name}", {"configure": "^a", "write": "^b", "read": "^c"}).status == 201
    for queue in ("%2F/a", "%2F/b", "%2F/c", "hidden/h"):
        assert api.ask("PUT", f"queues/{queue}", {}).status == 201
    yield api


def _tag(wanted: str, user: str) -> str:
    return f"this needs the tag {wanted}; user '{user}' has {user}"


def _nowhere(user: str, vhost: str = "hidden") -> str:
    return f"user '{user}' has no permissions in vhost '{vhost}'"


def _access(action: str, queue: str) -> str:
    return f"{action} access to queue '{queue}' in vhost '/' refused for user 'management'"


REFUSED, OBJECT = "Access refused.", "User not authorised to access object"
FIRE = {"action": "fire"}


@pytest.mark.parametrize(
    "user, method, path, body, reason, detail",
    [
        (
            "management",
            "GET",
            "leveret/blocked",
            None,
            "Not monitor user",
            _tag("monitoring or administrator", "management"),
        ),
        ("policymaker", "GET", "users", None, "Not administrator user", _tag("administrator", "policymaker")),
        ("management", "GET", "policies/%2F/p", None, OBJECT, _tag("policymaker or administrator", "management")),
        ("policymaker", "GET", "policies/hidden/p", None, OBJECT, _nowhere("policymaker")),
        (
            "monitoring",
            "GET",
            "queues/hidden",
            None,
            "User not authorised to access virtual host",
            _nowhere("monitoring"),
        ),
        (
            "monitoring",
            "GET",
            "leveret/queues/hidden/h/publishers",
            None,
            "User not authorised to access virtual host",
            _nowhere("monitoring"),
        ),
        ("management", "PUT", "queues/%2F/x", {}, REFUSED, _access("configure", "x")),
        (
            "administrator",
            "PUT",
            "queues/hidden/x",
            {},
            REFUSED,
            "access to vhost 'hidden' refused for user 'administrator'",
        ),
        ("management", "DELETE", "queues/%2F/b", None, REFUSED, _access("configure", "b")),
        ("management", "DELETE", "queues/%2F/a/contents", None, REFUSED, _access("read", "a")),
        ("management", "POST", "leveret/queues/%2F/a/browse", {}, REFUSED, _access("read", "a")),
        ("management", "GET", "leveret/scheduled/%2F/a", None, REFUSED, _access("read", "a")),
        ("management", "POST", "leveret/scheduled/%2F/a/1", FIRE, REFUSED, _access("write", "a")),
        ("management", "PUT", "queues/%2F/amq.a", {}, REFUSED, "queue name 'amq.a' contains reserved prefix 'amq.*'"),
    ],
)
def test_a_refusal_says_what_was_wanted(
    users: ApiClient, user: str, method: str, path: str, body: object, reason: str, detail: str
) -> None:
    """Beside the reason, which is RabbitMQ's."""
    answer = users.ask(method, path, body, user=user)
    assert (answer.status, answer.json["error"]) == (401, "not_authorised")
    assert (answer.reason, answer.json["detail"]) == (reason, detail)


def test_refusals_of_gets_and_publishes(users: ApiClient) -> None:
    """RabbitMQ asks a channel, and gives its words."""
    given = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    refused = users.ask("POST", "queues/%2F/a/get", given, user="management")
    assert (refused.status, refused.reason) == (401, f"ACCESS_REFUSED - {_access('read', 'a')}")
    wanted = "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'management'"
    refused = users.ask("GET", "aliveness-test/%2F", user="management")
    assert (refused.status, refused.reason) == (401, wanted)
    sent = {"properties": {}, "routing_key": "a", "payload": "", "payload_encoding": "string"}
    refused = users.ask("POST", "exchanges/%2F/amq.default/publish", sent, user="management")
    assert (refused.status, refused.reason) == (400, f"403 {wanted}")


def test_a_user_without_a_tag(users: ApiClient) -> None:
    """Is told which tags there are."""
    detail = users.ask("GET", "overview", user="untagged").json["detail"]
    wanted = "management, policymaker, monitoring or administrator"
    assert detail == f"this needs the tag {wanted}; user 'untagged' has no tag"


def test_other_refusals_have_no_detail(users: ApiClient) -> None:
    """They are as RabbitMQ's."""
    assert users.ask("GET", "queues/%2F/nope").json == {"error": "Object Not Found", "reason": "Not Found"}
    assert users.ask("GET", "whoami", password="wrong").json == {"error": "not_authorized", "reason": "Login failed"}


@pytest.mark.parametrize(
    "query, may",
    [
        ("queue=a1", (True, False, False)),
        ("queue=b1", (False, True, False)),
        ("exchange=c1", (False, False, True)),
        ("exchange=", (True, False, False)),  # amq.default
        ("queue=", (False, False, False)),
    ],
)
def test_what_a_user_may(users: ApiClient, query: str, may: tuple[bool, bool, bool]) -> None:
    """By the patterns, of what is there and of what is not; the patterns are told."""
    found = users.get(f"leveret/may/%2F?{query}", user="management")
    assert (found["configure"], found["write"], found["read"]) == may
    assert found["patterns"] == {"configure": "^a", "write": "^b", "read": "^c"}


def test_who_may_ask(users: ApiClient) -> None:
    """Administrators see virtual hosts in which they may nothing; others do not."""
    found = users.get("leveret/may/hidden?queue=a", user="administrator")
    assert found == {"configure": False, "write": False, "read": False, "patterns": None}
    assert users.get("leveret/may/hidden?queue=a")["configure"] is True  # guest may everything everywhere
    assert users.ask("GET", "leveret/may/hidden?queue=a", user="monitoring").status == 401
    assert users.ask("GET", "leveret/may/nope?queue=a").status == 404
    assert users.ask("GET", "leveret/may/%2F").status == 400


@pytest.mark.parametrize("user, hidden", [("administrator", 0), ("monitoring", 1), ("management", 1)])
def test_how_much_is_hidden(users: ApiClient, user: str, hidden: int) -> None:
    """So that an empty list says whether there is nothing, or nothing that the user may see."""
    assert users.get("leveret/may", user=user) == {"hidden_vhosts": hidden}


@pytest.mark.parametrize("user, messages", [("administrator", 3), ("monitoring", 3), ("management", 1)])
def test_totals_are_of_what_a_user_may_see(users: ApiClient, user: str, messages: int) -> None:
    """Monitors see those of all virtual hosts; others could tell from them what happens elsewhere."""
    for vhost, queue, count in (("%2F", "a", 1), ("hidden", "h", 2)):
        users.ask("DELETE", f"queues/{vhost}/{queue}/contents")
        body = {"routing_key": queue, "properties": {}, "payload": "x", "payload_encoding": "string"}
        for _ in range(count):
            assert users.ask("POST", f"exchanges/{vhost}/amq.default/publish", body).json == {"routed": True}
    found = users.get("overview", user=user)
    assert found["queue_totals"]["messages"] == messages
    whole = users.get("overview")["message_stats"]["publish"]
    assert (found["message_stats"]["publish"] == whole) is (user != "management")
