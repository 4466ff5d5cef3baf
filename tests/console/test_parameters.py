"""Parameters as tools set and clear them: of plug-ins, limits, operator policies; and links, of which there are none.

RabbitMQ 3.10.8 was asked the same.
"""

from typing import Any

import pytest
from api_client import ApiClient

from leveret.cli.control_client import ControlFailed, request
from leveret.testing import RunningBroker

FAILED = "Validation failed\n\n"
AMQP_1 = {"src-protocol": "amqp10", "src-uri": "amqp://", "dest-protocol": "amqp10", "dest-uri": "amqp://"}
NEITHER = "Must specify 'src-exchange' or 'src-queue'\n"
NO_PRIORITY = 'Key "priority" not found in top\n'
BOTH = "Cannot specify 'src-exchange' and 'src-queue'\n"


def _no_uri(text: str) -> str:
    return f'"{text}" not a valid URI: {{{{unable_to_parse_uri,no_scheme}},"{text}"}}\n'


@pytest.mark.parametrize(
    "value, reason",
    [
        ({"uri": None}, "uri should be list, actually was null\n"),
        ({"uri": 5}, "uri should be list, actually was 5\n"),
        ({"uri": "x"}, _no_uri("x")),
        ({"uri": ["amqp://a", "y"]}, _no_uri("y")),
    ],
)
def test_upstreams_that_are_refused(value: dict[str, Any], reason: str, api: ApiClient) -> None:
    """What stands for the other broker must be a URI, or several."""
    refused = api.ask("PUT", "parameters/federation-upstream/%2F/wrong", {"value": value})
    assert (refused.status, refused.reason) == (400, FAILED + reason)


def test_reasons_about_parameters_are_escaped(api: ApiClient, broker: RunningBroker) -> None:
    """All of the reason, as RabbitMQ does for pages that show it; `ctl` shows it as it is."""
    refused = api.ask("PUT", "parameters/<b>/%2F/wrong", {"value": {}})
    assert refused.reason == "Validation failed\n\ncomponent &lt;b&gt; not found\n"
    refused = api.ask("PUT", "parameters/federation-upstream/%2F/<b>", {"value": {"<i>": "x"}})
    assert 'Key "uri" not found in &lt;b&gt;\n' in refused.reason
    assert 'Unrecognised terms [{&lt;&lt;"&lt;i&gt;"&gt;&gt;,&lt;&lt;"x"&gt;&gt;}] in &lt;b&gt;\n' in refused.reason
    given = {"action": "set", "component": "federation-upstream", "name": "n", "value": {"i": 1}}
    with pytest.raises(ControlFailed, match='Unrecognised terms \\[{<<"i">>,1}] in n'):
        request(broker.url, "parameters", given)


@pytest.mark.parametrize("uri", [[], "amqp://nowhere", ["amqp://a", "amqps://b"]])
def test_upstreams_that_are_kept(uri: Any, api: ApiClient) -> None:
    """One URI, several, or none."""
    path = "parameters/federation-upstream/%2F/right"
    assert api.ask("PUT", path, {"value": {"uri": uri}}).status in (201, 204)
    assert api.ask("GET", path).json["value"] == {"uri": uri}


@pytest.mark.parametrize(
    "value, reason",
    [
        (AMQP_1 | {"dest-address": "b"}, 'Key "src-address" not found in wrong\n'),
        (AMQP_1 | {"src-address": "a"}, 'Key "dest-address" not found in wrong\n'),
        ({"src-uri": "amqp://", "dest-uri": "amqp://"}, NEITHER),
        ({"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "src-exchange": "e"}, BOTH),
        ({"src-uri": "amqp://", "dest-uri": 5, "src-queue": "q"}, "dest-uri should be list, actually was 5\n"),
    ],
)
def test_shovels_that_are_refused(value: dict[str, Any], reason: str, api: ApiClient) -> None:
    """Each end is a queue or an exchange, or an address of AMQP 1.0."""
    refused = api.ask("PUT", "parameters/shovel/%2F/wrong", {"value": value})
    assert (refused.status, refused.reason) == (400, FAILED + reason)


def test_a_shovel_of_amqp_1_is_kept(api: ApiClient) -> None:
    """With addresses instead of queues."""
    value = AMQP_1 | {"src-address": "a", "dest-address": "b"}
    assert api.ask("PUT", "parameters/shovel/%2F/one", {"value": value}).status == 201
    assert api.ask("GET", "parameters/shovel/%2F/one").json["value"] == value
    assert api.ask("DELETE", "parameters/shovel/%2F/one").status == 204


def test_limits_are_parameters(api: ApiClient) -> None:
    """Set, listed and cleared as one: what a client that clears all parameters does."""
    path = "parameters/vhost-limits/%2F/limits"
    api.ask("PUT", "vhost-limits/%2F/max-queues", {"value": 1000})
    assert api.ask("GET", path).json["value"] == {"max-queues": 1000}
    assert api.ask("PUT", path, {"value": {"max-connections": 500}}).status == 204
    assert api.ask("GET", "vhost-limits/%2F").json[0]["value"] == {"max-connections": 500}
    assert api.ask("DELETE", path).status == 204
    assert api.ask("GET", "vhost-limits/%2F").json == []
    assert api.ask("DELETE", path).status == 404
    assert api.ask("PUT", path, {"value": {"max-queues": 9}}).status == 201
    assert api.ask("DELETE", path).status == 204


def test_limits_have_one_name(api: ApiClient) -> None:
    """By another one nothing is set."""
    refused = api.ask("PUT", "parameters/vhost-limits/%2F/top", {"value": {"max-queues": 9}})
    assert (refused.status, refused.reason) == (400, "name: expected limits, not 'top'")
    assert api.ask("GET", "vhost-limits/%2F").json == []


def test_operator_policies_are_parameters(api: ApiClient) -> None:
    """The same."""
    path = "parameters/operator_policy/%2F/top"
    value = {"pattern": "^a", "definition": {"max-length": 1}, "priority": 0}
    assert api.ask("PUT", path, {"value": value}).status == 201
    assert api.ask("GET", "operator-policies/%2F/top").json["definition"] == {"max-length": 1}
    assert api.ask("DELETE", path).status == 204
    assert api.ask("GET", "operator-policies/%2F/top").status == 404


def test_policies_are_shown_as_parameters_but_not_set(api: ApiClient) -> None:
    """Where that component is asked for, and nowhere else."""
    api.ask("PUT", "policies/%2F/seen", {"pattern": "^a", "definition": {"max-length": 1}})
    assert [row["name"] for row in api.ask("GET", "parameters/policy").json] == ["seen"]
    assert "seen" not in [row["name"] for row in api.ask("GET", "parameters").json]
    refused = api.ask("PUT", "parameters/policy/%2F/seen", {"value": {}})
    assert (refused.status, refused.reason) == (400, "policies may not be set using this method")
    assert api.ask("DELETE", "parameters/policy/%2F/seen").status == 400
    assert api.ask("DELETE", "policies/%2F/seen").status == 204


@pytest.mark.parametrize(
    "component, value, reason",
    [
        ("vhost-limits", None, "top not a list null\n"),
        ("vhost-limits", "abc", 'top not a list &lt;&lt;"abc"&gt;&gt;\n'),
        ("vhost-limits", [1], "Unrecognised terms [1] in top\n"),
        ("vhost-limits", {"b": 1, "a": "x"}, '''\
Unrecognised terms [{&lt;&lt;"a"&gt;&gt;,&lt;&lt;"x"&gt;&gt;},{&lt;&lt;"b"&gt;&gt;,1}] in top
'''),
        ("vhost-limits", {"max-queues": "a"}, 'max-queues should be a number, actually was &lt;&lt;"a"&gt;&gt;\n'),
        ("operator_policy", 5, "top not a list 5\n"),
        ("operator_policy", [], 'Key "definition" not found in top\nKey "pattern" not found in top\n' + NO_PRIORITY),
        ("operator_policy", {"pattern": "a"}, 'Key "definition" not found in top\n' + NO_PRIORITY),
        ("federation-upstream", [], 'Key "uri" not found in top\n'),
        ("federation-upstream", {"b": 1, "a": 2}, '''\
Unrecognised terms [{&lt;&lt;"a"&gt;&gt;,2},{&lt;&lt;"b"&gt;&gt;,1}] in top
Key "uri" not found in top
'''),
        ("shovel", [], f'{NEITHER}Key "dest-uri" not found in top\nKey "src-uri" not found in top\n'),
    ],
)  # fmt: skip
def test_values_that_are_none(component: str, value: Any, reason: str, api: ApiClient) -> None:
    """Each fault on a line, unknown keys in order."""
    refused = api.ask("PUT", f"parameters/{component}/%2F/top", {"value": value})
    assert (refused.status, refused.reason) == (400, FAILED + reason)


@pytest.mark.parametrize("method, body", [("PUT", {"value": {}}), ("DELETE", None)])
def test_a_policymaker_does_not_change_them(method: str, body: Any, api: ApiClient) -> None:
    """Limits are an administrator's, also by this path."""
    api.ask("PUT", "users/maker", {"password": "maker", "tags": "policymaker"})
    api.ask("PUT", "permissions/%2F/maker", {"configure": ".*", "write": ".*", "read": ".*"})
    api.ask("PUT", "vhost-limits/%2F/max-queues", {"value": 1000})
    refused = api.ask(method, "parameters/vhost-limits/%2F/limits", body, user="maker")
    assert (refused.status, refused.reason) == (401, "User not authorised to access object")
    assert api.ask("DELETE", "vhost-limits/%2F/max-queues").status == 204


@pytest.mark.parametrize(
    "path, status",
    [
        ("shovels/%2F", 200),
        ("shovels/nope", 404),
        ("federation-links/%2F", 200),
        ("federation-links/nope", 404),
        ("federation-links/state/down", 200),
        ("federation-links/%2F/state/down", 200),
        ("stream/connections/%2F", 200),
        ("stream/connections", 200),
        ("stream/publishers", 200),
        ("stream/publishers/%2F", 200),
        ("stream/publishers/nope", 404),
        ("stream/publishers/%2F/nope", 404),
        ("stream/consumers", 200),
        ("stream/consumers/%2F", 200),
        ("stream/consumers/nope", 404),
    ],
)
def test_links_of_plug_ins_that_are_not_there(path: str, status: int, api: ApiClient) -> None:
    """An empty list, where the virtual host is there."""
    answer = api.ask("GET", path)
    assert answer.status == status
    assert status == 404 or answer.json == []


def test_tags_of_a_user_keep_their_order(api: ApiClient) -> None:
    """A client that compares what it set with what it reads finds no difference."""
    for tags in (["policymaker", "management"], "b,a,b"):
        api.ask("PUT", "users/tagged", {"password": "p", "tags": tags})
        found = api.ask("GET", "users/tagged").json["tags"]
        assert found == (tags if isinstance(tags, list) else ["b", "a"])
        assert [one["tags"] for one in api.ask("GET", "definitions").json["users"] if one["name"] == "tagged"] == [
            found
        ]
