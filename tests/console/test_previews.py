"""What a deed would do, told before it is done: the page's second step. Source: management page 15."""

import json
from typing import Any
from urllib.parse import quote

import pika
import pytest
from api_client import ApiClient

from leveret.operator.control import ControlTable
from leveret.testing import RunningBroker
from leveret.testing.harness import Harness

SHORT = {"pattern": "^drops$", "definition": {"max-length": 5}}


@pytest.fixture
def filled(broker: RunningBroker, api: ApiClient) -> Any:
    """A queue with 300 messages, of which a client has 2."""
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": "shop"}
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("drops")
        channel.queue_declare("mine", exclusive=True)
        channel.confirm_delivery()
        for _ in range(302):
            channel.basic_publish("", "drops", b"x")
        channel.basic_qos(prefetch_count=2)
        channel.basic_consume("drops", lambda *delivery: None)
        connection.process_data_events(0)
        yield connection
        channel.queue_delete("drops")


def preview(api: ApiClient, path: str, given: Any = None) -> Any:
    answer = api.ask("GET" if given is None else "POST", f"leveret/preview/{path}", given)
    assert answer.status == 200, answer.body
    return answer.json


@pytest.mark.usefixtures("filled")
def test_a_policy(api: ApiClient) -> None:
    """The number of messages that it drops, from which queues; and it drops as many, and none before."""
    found = preview(api, "policies/%2F/short", SHORT)
    assert found["says"] == ["295 of 300 messages are dropped from 1 queue"]
    assert (found["dropped"], found["dead_lettered"], found["more"]) == (295, 0, 0)
    assert found["concerned"][0]["queue"] == "drops"
    assert api.get("leveret/preview/queues/%2F/drops")["ready"] == 300
    letters = {"pattern": "^drops$", "definition": {"max-length": 299, "dead-letter-exchange": "amq.fanout"}}
    assert preview(api, "policies/%2F/short", letters)["says"] == [
        "1 of 300 messages is dead-lettered from 1 queue to amq.fanout"
    ]
    refuses = {"pattern": "", "definition": {"max-length": 5, "overflow": "reject-publish"}}
    assert (
        preview(api, "operator-policies/%2F/short", {"pattern": "^drops", "definition": {"max-length": 1}})["dropped"]
        == 299
    )
    assert preview(api, "policies/%2F/short", refuses)["says"] == ["1 queue is full then: new messages are refused"]
    assert preview(api, "policies/%2F/short", {"pattern": "^other", "definition": {"max-length": 5}})["says"] == []
    assert api.get("policies") == []
    assert api.ask("PUT", "policies/%2F/short", SHORT).status == 201
    assert api.get("leveret/preview/queues/%2F/drops")["ready"] == 5
    assert preview(api, "policies/%2F/short", {"clear": True})["says"] == []
    api.ask("DELETE", "policies/%2F/short")


def test_a_policy_with_a_fault(api: ApiClient) -> None:
    """It is refused as it would be if it were set; and nobody below a policymaker may ask."""
    answer = api.ask("POST", "leveret/preview/policies/%2F/short", {"pattern": "(", "definition": {"max-length": 5}})
    assert answer.status == 400 and "pattern should be regular expression" in answer.reason
    api.ask("PUT", "users/looks", {"password": "looks", "tags": "monitoring"})
    assert api.ask("POST", "leveret/preview/policies/%2F/short", SHORT, user="looks").status == 401
    assert api.ask("POST", "leveret/preview/reload", {}, user="looks").status == 401
    api.ask("DELETE", "users/looks")


@pytest.mark.usefixtures("filled")
def test_deletions(api: ApiClient) -> None:
    """What goes with a queue, a connection, a user, a virtual host; and what stays."""
    queue = preview(api, "queues/%2F/drops")
    assert queue["says"] == [
        "302 messages are deleted (300 ready, 2 unacknowledged, 0 scheduled)",
        "1 consumer is ended, of shop",
    ]
    assert queue["purge"] == [
        "300 messages are deleted (300 ready, 0 scheduled)",
        "2 unacknowledged messages are not touched",
    ]
    closed = [
        "1 connection is closed: shop",
        "1 consumer is ended",
        "2 unacknowledged messages are returned to the queues, and delivered again",
        "1 exclusive queue is deleted, with 0 messages",
    ]
    (name,) = (one["name"] for one in api.get("connections"))
    assert preview(api, f"connections/{name.replace(' ', '%20')}")["says"] == closed
    assert preview(api, "users/guest")["says"] == closed
    assert preview(api, "vhosts/%2F")["says"][:2] == [
        "2 queues are deleted, with 302 messages",
        "0 policies are deleted, and the permissions of 0 users",
    ]
    assert preview(api, "exchanges/%2F/amq.fanout")["says"] == ["nothing is bound to it"]
    limits = preview(api, "vhost-limits/%2F", {"max_queues": 1, "max_connections": 5})
    assert limits["says"] == ["2 queues are there: none is deleted, new ones are refused"]


def test_what_goes_with_its_last_user(broker: RunningBroker, api: ApiClient) -> None:
    """The auto-delete queues of clients that are closed, with messages; the auto-delete exchange of a last binding."""
    last, stays = (pika.URLParameters(broker.url) for _ in range(2))
    last.client_properties = {"connection_name": "last"}
    with pika.BlockingConnection(last) as connection, pika.BlockingConnection(stays) as other:
        channel = connection.channel()
        channel.exchange_declare("feed", "fanout", auto_delete=True)
        for queue in ("alone", "shared"):
            channel.queue_declare(queue, auto_delete=True)
            channel.queue_bind(queue, "feed")
            channel.basic_publish("", queue, b"x")
            channel.basic_publish("", queue, b"x")
        channel.basic_qos(prefetch_count=1)
        for queue in ("alone", "shared"):
            channel.basic_consume(queue, lambda *delivery: None)
        taker = other.channel()
        taker.basic_qos(prefetch_count=1)
        taker.basic_consume("shared", lambda *delivery: None, consumer_tag="other")
        connection.process_data_events(0)
        assert preview(api, "connections/last")["says"] == [
            "1 connection is closed: last",
            "2 consumers are ended",
            "1 unacknowledged message is returned to the queues, and delivered again",
            "1 auto-delete queue is deleted, with 2 messages: alone",
        ]
        both = "2 auto-delete queues are deleted, with 4 messages: alone, shared"
        assert preview(api, "users/guest")["says"][-1] == both
        assert len(preview(api, "queues/%2F/alone")["says"]) == 3
        taker.basic_cancel("other")
        channel.queue_unbind("shared", "feed")
        feed = "1 auto-delete exchange is deleted with its last binding: feed"
        assert preview(api, "queues/%2F/alone")["says"][-1] == feed


@pytest.mark.usefixtures("filled")
def test_a_connection_of_ones_own(broker: RunningBroker, api: ApiClient) -> None:
    """Without a tag for those of others, of which nothing is told."""
    api.ask("PUT", "users/mine", {"password": "mine", "tags": "management"})
    api.ask("PUT", "permissions/%2F/mine", {"configure": ".*", "write": ".*", "read": ".*"})
    parameters = pika.URLParameters(broker.url.replace("guest:guest", "mine:mine"))
    parameters.client_properties = {"connection_name": "of mine"}
    parameters.credentials = pika.PlainCredentials("mine", "mine")
    with pika.BlockingConnection(parameters):
        path = "leveret/preview/connections"
        assert api.get(f"{path}/of%20mine", user="mine")["says"] == ["1 connection is closed: of mine"]
        refused, absent = (api.ask("GET", f"{path}/{name}", user="mine") for name in ("shop", "shp"))
        assert (refused.status, absent.status) == (401, 404)
        assert b"shop" not in absent.body
        (own,) = [one["name"] for one in api.get("connections") if one["user"] == "mine"]
        theirs = pika.URLParameters(broker.url)
        theirs.client_properties = {"connection_name": own}
        with pika.BlockingConnection(theirs):
            said = api.get(f"{path}/{quote(own, safe='')}", user="mine")["says"]
            assert said == ["1 connection is closed: of mine"]
    api.ask("DELETE", "users/mine")


@pytest.mark.usefixtures("filled")
def test_definitions(api: ApiClient) -> None:
    """Each object of the file: new, replaced with both values, another one that stays, the same; no secret is shown."""
    api.ask("PUT", "users/ann", {"password": "a", "tags": "monitoring"})
    users = [one for one in api.get("definitions")["users"] if one["name"] == "ann"]
    given = {
        "users": [{**users[0], "tags": "administrator"}, {"name": "bob", "password": "secret", "tags": ""}],
        "queues": [{"name": "drops", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}],
        "policies": [{"name": "short", "vhost": "/", "apply-to": "queues", "priority": 0, **SHORT}],
        "vhosts": [{"name": "/"}],
    }
    found = preview(api, "definitions", given)
    assert "secret" not in str(found) and users[0]["password_hash"] not in str(found)
    assert {row["section"]: [row[key] for key in ("new", "changed", "stays", "same")] for row in found["sections"]} == {
        "users": [1, 1, 0, 0],
        "vhosts": [0, 0, 0, 1],
        "policies": [1, 0, 0, 0],
        "queues": [0, 0, 1, 0],
    }
    differs = {tuple(one["name"]): one["differs"] for one in found["objects"]}
    assert differs["ann",] == [{"key": "tags", "now": '["monitoring"]', "then": '["administrator"]'}]
    assert differs["/", "drops"] == [{"key": "durable", "now": "false", "then": "true"}]
    assert found["says"] == ["295 of 300 messages are dropped from 1 queue"]
    assert api.get("policies") == [] and api.ask("GET", "users/bob").status == 404
    api.ask("DELETE", "users/ann")


USER = {"name": "ann", "tags": "monitoring"}
SAME = {**USER, "password": "a"}
SHOVEL = {"component": "shovel", "vhost": "v", "name": "s"}
LIMITED = {"component": "vhost-limits", "vhost": "v", "name": "limits"}


@pytest.mark.parametrize(
    "section, row, differs",
    [
        ("users", SAME, {}),
        ("users", {**USER, "password": "b"}, {"password": ("set", "another")}),
        ("users", USER, {"password": ("set", "none")}),
        ("users", {**SAME, "limits": {"max-channels": 3}}, {"max-channels": ("null", "3")}),
        ("vhosts", {"name": "v"}, {}),
        ("vhosts", {"name": "v", "default_queue_type": "quorum"}, {"default_queue_type": ("null", "quorum")}),
        ("vhosts", {"name": "v", "metadata": {"tags": ["t"]}}, {"tags": ("[]", '["t"]')}),
        ("vhosts", {"name": "v", "limits": {"max-queues": 1}}, {"max-queues": ("null", "1")}),
        ("parameters", {**LIMITED, "value": {}}, {}),
        ("parameters", {**LIMITED, "value": {"max-queues": 1}}, {"max-queues": ("null", "1")}),
        ("global_parameters", {"name": "g", "value": 1}, {}),
        ("global_parameters", {"name": "g", "value": True}, {"value": ("1", "true")}),
        (
            "parameters",
            {**SHOVEL, "value": {"src-uri": ["amqp://u:new@h"], "src-queue": "b"}},
            {
                "value": (
                    '{"src-uri": "amqp://u:***@h", "src-queue": "a"}',
                    '{"src-uri": ["amqp://u:***@h"], "src-queue": "b"}',
                )
            },
        ),
        (
            "parameters",
            {**SHOVEL, "value": {"src-uri": "amqp://u:new@h", "src-queue": "a"}},
            {"value": ('{"src-uri": "amqp://u:***@h", "src-queue": "a"}',) * 2},
        ),
        (
            "permissions",
            {"user": "ann", "vhost": "v", "configure": "a, b", "write": "", "read": ""},
            {"configure": ("a,b", "a, b")},
        ),
        ("policies", {"vhost": "v", "name": "p", **SHORT}, {"priority": ("2", "0")}),
    ],
)
def test_what_an_import_replaces(section: str, row: dict[str, Any], differs: dict[str, tuple[str, str]]) -> None:
    """What would be in force is compared: also keys that either side leaves out; the import changes nothing else."""
    table = ControlTable()
    table.operator.attach(Harness().broker)
    table.load()
    before = {
        "vhosts": [{"name": "v"}],
        "users": [SAME],
        "permissions": [{"user": "ann", "vhost": "v", "configure": "a,b", "write": "", "read": ""}],
        "global_parameters": [{"name": "g", "value": 1}],
        "parameters": [{**SHOVEL, "value": {"src-uri": "amqp://u:old@h", "src-queue": "a"}}],
        "policies": [{"vhost": "v", "name": "p", "priority": 2, **SHORT}],
    }
    table.run("definitions", {"action": "import", "definitions": before})
    given = {section: [row]}
    found = table.run("preview", {"action": "definitions", "definitions": given})
    told = [one["differs"] for one in found["objects"]]
    assert told == (
        [[{"key": key, "now": now, "then": then} for key, (now, then) in differs.items()]] if differs else []
    )
    exported = json.dumps(table.run("definitions", {"action": "export"}))
    table.run("definitions", {"action": "import", "definitions": given})
    assert (json.dumps(table.run("definitions", {"action": "export"})) == exported) == (not differs)


def test_entries_that_are_not_imported_do_not_count() -> None:
    """Wrong entries, those that are left out, and those that every broker has are neither new nor changed."""
    table = ControlTable()
    table.operator.attach(Harness().broker)
    to_queue = {"vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": "q"}
    given = {
        "permissions": [{"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""}],
        "policies": [{"vhost": "/", "name": "p", "pattern": "(", "definition": {"max-length": 1}}],
        "exchanges": [
            {"name": "wrong", "vhost": "/"},
            {"name": "amq.topic", "vhost": "/", "type": "topic"},
            {"name": "amq.own", "vhost": "/", "type": "topic"},
        ],
        "queues": [{"name": "q", "vhost": "/"}, {"name": "q", "vhost": "/"}, "no object"],
        "bindings": [{**to_queue, "source": ""}, {**to_queue, "source": "none"}, {**to_queue, "source": "amq.topic"}],
    }
    found = table.run("preview", {"action": "definitions", "definitions": given})
    assert [(one["section"], one["name"], one["state"]) for one in found["objects"]] == [
        ("queues", ("/", "q"), "new"),
        ("bindings", ("/", "amq.topic", "queue", "q", "q"), "new"),
    ]
    assert {row["section"]: row["new"] for row in found["sections"]} == {
        **dict.fromkeys(("permissions", "policies", "exchanges"), 0),
        **dict.fromkeys(("queues", "bindings"), 1),
    }


def test_definitions_into_one_virtual_host(api: ApiClient) -> None:
    """Compared with what that one has, whatever virtual host the entries name."""
    api.ask("PUT", "vhosts/target", {})
    api.ask("PUT", "policies/target/p", {"pattern": "^a", "definition": {"max-length": 5}})
    policy = {"name": "p", "pattern": "^a", "definition": {"max-length": 9}}
    given = {"policies": [policy], "queues": [{"name": "a", "vhost": "other"}], "users": [{"name": "left-out"}]}
    found = api.ask("POST", "leveret/preview/definitions/target", given).json
    assert [(one["section"], one["name"], one["state"]) for one in found["objects"]] == [
        ("policies", ["target", "p"], "changed"),
        ("queues", ["target", "a"], "new"),
    ]
    assert found["faults"] == []
    assert api.ask("POST", "leveret/preview/definitions/none", given).status == 404
    assert api.ask("GET", "queues/target/a").status == 404  # nothing was done
    api.ask("DELETE", "vhosts/target")
