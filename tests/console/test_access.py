"""Users, virtual hosts, permissions, policies, parameters and definitions over the API.

Source: management page 7, 8.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest
from api_client import ApiClient, Response

from leveret.testing import RunningBroker, start_broker


def test_a_user_who_is_made_here_can_log_in_there(api: ApiClient, broker: RunningBroker) -> None:
    """User, virtual host, permissions: then AMQP lets them in; a changed password counts at once."""
    assert api.ask("PUT", "vhosts/made", {"description": "d", "tags": "a,b"}).status == 201
    assert api.ask("PUT", "users/made", {"password": "one", "tags": "management"}).status == 201
    assert api.ask("PUT", "permissions/made/made", {"configure": ".*", "write": ".*", "read": ".*"}).status == 201
    url = f"amqp://made:one@127.0.0.1:{broker.port}/made"
    with pika.BlockingConnection(pika.URLParameters(url)):
        shown = api.get("connections/username/made")
        assert [one["vhost"] for one in shown] == ["made"]
        assert api.get("whoami", user="made", password="one") == {"name": "made", "tags": ["management"]}
    assert api.ask("PUT", "users/made", {"password": "two", "tags": "management"}).status == 204
    assert api.ask("GET", "whoami", user="made", password="one").status == 401
    assert api.get("vhosts/made")["metadata"] == {"description": "d", "tags": ["a", "b"]}
    assert api.get("users/made/permissions")[0]["vhost"] == "made"
    assert api.ask("DELETE", "vhosts/made").status == 204
    assert api.get("users/made/permissions") == []


@pytest.mark.parametrize("name", [".", "..", "\0.", "\0\0..", "...", "\0", "\0x"])
def test_names_of_dots(api: ApiClient, name: str) -> None:
    """A client that takes . and .. for steps sends a NUL before them; other names with NULs are as they are."""
    sent = quote(f"\0{name}" if name.strip("\0") in (".", "..") else name, safe="")
    assert api.ask("PUT", f"queues/%2F/{sent}", {}).status == 201
    assert api.get(f"queues/%2F/{sent}")["name"] == name
    assert name in {one["name"] for one in api.get("queues")}
    assert api.ask("DELETE", f"queues/%2F/{sent}").status == 204


def test_a_user_and_permissions_in_one_request(api: ApiClient) -> None:
    """All of it or nothing: without the virtual host, or with a bad pattern, there is no user."""
    given = {"name": "both", "password": "both", "tags": "management", "configure": "^a$", "write": "", "read": ".*"}
    assert api.ask("POST", "leveret/vhosts/none/users", given).status == 404
    refused = api.ask("POST", "leveret/vhosts/%2F/users", {**given, "read": "("})
    assert refused.status == 400 and "users add: read" in refused.reason
    assert api.ask("GET", "users/both").status == 404
    assert api.ask("POST", "leveret/vhosts/%2F/users", given).status == 201
    (found,) = api.get("users/both/permissions")
    assert found == {"user": "both", "vhost": "/", "configure": "^a$", "write": "", "read": ".*"}
    assert api.get("whoami", user="both", password="both")["tags"] == ["management"]
    again = api.ask("POST", "leveret/vhosts/%2F/users", {**given, "password": "other"})
    assert again.status == 400 and "exists already" in again.reason
    assert api.ask("POST", "leveret/vhosts/%2F/users", {**given, "name": "c"}, user="both").status == 401
    api.ask("DELETE", "users/both")


def test_all_limits_in_one_request(api: ApiClient) -> None:
    """Of a virtual host and of a user; those that are left out stay, -1 removes one."""
    assert api.ask("PUT", "leveret/vhosts/%2F/limits", {"max_connections": 50, "max_queues": 900}).status == 204
    assert api.get("vhost-limits/%2F")[0]["value"] == {"max-connections": 50, "max-queues": 900}
    assert api.ask("PUT", "leveret/vhosts/%2F/limits", {"max_connections": -1}).status == 204
    assert api.get("vhost-limits/%2F")[0]["value"] == {"max-queues": 900}
    assert api.ask("PUT", "leveret/vhosts/%2F/limits", {"max_queues": -1}).status == 204
    assert api.ask("PUT", "leveret/users/guest/limits", {"max_channels": 9}).status == 204
    assert api.get("users/guest")["limits"] == {"max-channels": 9}
    assert api.ask("PUT", "leveret/users/guest/limits", {"max_channels": -1}).status == 204
    assert api.ask("PUT", "leveret/users/nobody/limits", {"max_channels": 9}).status == 404


def test_lists_show_what_a_user_may_see(api: ApiClient) -> None:
    """One without a permission in a virtual host does not see its objects (management page 1.5)."""
    assert api.ask("PUT", "vhosts/hidden", {}).status == 201
    assert api.ask("PUT", "queues/hidden/secret", {}).status == 201
    assert api.ask("PUT", "users/half", {"password": "half", "tags": "monitoring"}).status == 201
    for headers in ({}, {"x-vhost": "hidden"}):
        shown = api.ask("GET", "queues", user="half", headers=headers).json
        assert "secret" not in [one["name"] for one in shown]
    assert "secret" in [one["name"] for one in api.get("queues")]
    answer = api.ask("GET", "queues/hidden", user="half")
    assert (answer.status, answer.reason) == (401, "User not authorised to access virtual host")
    assert api.ask("GET", "queues/nowhere", user="half").status == 404  # whoever asks, as in RabbitMQ


def test_topic_permissions_for_the_default_exchange(api: ApiClient) -> None:
    """They have no effect there; tools that export and import users set them all the same."""
    given = {"exchange": "", "write": ".*", "read": "^a"}
    assert api.ask("PUT", "topic-permissions/%2F/guest", given).status == 201
    assert api.get("topic-permissions/%2F/guest") == [{"user": "guest", "vhost": "/", **given}]
    assert api.ask("DELETE", "topic-permissions/%2F/guest").status == 204


def test_policies(api: ApiClient) -> None:
    """One that is set holds for queues, and both are shown."""
    definition = {"max-length": 3}
    assert api.ask("PUT", "policies/%2F/p", {"pattern": "^ruled", "definition": definition}).status == 201
    api.ask("PUT", "queues/%2F/ruled", {})
    shown = api.get("queues/%2F/ruled")
    assert (shown["policy"], shown["effective_policy_definition"]) == ("p", definition)
    assert api.get("policies/%2F/p")["apply-to"] == "all"
    assert api.ask("DELETE", "policies/%2F/p").status == 204


@pytest.mark.parametrize("value", [1, "text", None, [1, "a"], {"a": {"b": None}}, True])
def test_global_parameters_take_any_json(api: ApiClient, value: object) -> None:
    """And give it back."""
    assert api.ask("PUT", "global-parameters/any", {"value": value}).status in (201, 204)
    assert api.get("global-parameters/any") == {"name": "any", "value": value}


def test_what_is_kept_is_there_after_a_restart(tmp_path: Path) -> None:
    """Parameters, the cluster's name, and what virtual hosts are about; with a virtual host its own are gone."""
    upstream = {"value": {"uri": "amqp://elsewhere"}}
    with start_broker(management=True, data=tmp_path) as first:
        api = ApiClient(first.management_url)
        assert api.ask("PUT", "cluster-name", {"name": "ours"}).status == 204
        for name in ("", "x" * 256):
            refused = api.ask("PUT", "cluster-name", {"name": name})
            assert refused.status == 400 and "usage" not in refused.json["reason"]
        assert api.get("overview")["cluster_name"] == "ours"
        for vhost in ("shop", "gone"):
            assert api.ask("PUT", f"vhosts/{vhost}", {"description": "d", "tags": "a,b"}).status == 201
            assert api.ask("PUT", f"parameters/federation-upstream/{vhost}/up", upstream).status == 201
        assert api.ask("PUT", "user-limits/guest/max-channels", {"value": 77}).status == 204
        assert api.ask("DELETE", "vhosts/gone").status == 204
    with start_broker(management=True, data=tmp_path) as second:
        api = ApiClient(second.management_url)
        assert api.get("cluster-name") == {"name": "ours"}
        assert api.get("global-parameters/cluster_name") == {"name": "cluster_name", "value": "ours"}
        assert api.get("vhosts/shop")["metadata"] == {"description": "d", "tags": ["a", "b"]}
        assert [one["vhost"] for one in api.get("parameters/federation-upstream")] == ["shop"]
        assert api.get("user-limits/guest") == [{"user": "guest", "value": {"max-channels": 77}}]
        assert api.ask("PUT", "vhosts/gone").status == 201
        assert api.get("vhosts/gone")["metadata"] == {"description": "", "tags": []}


def _publish(api: ApiClient, **given: object) -> Response:
    message = {"properties": {}, "routing_key": "got", "payload": "x", "payload_encoding": "string", **given}
    return api.ask("POST", "exchanges/%2F/amq.default/publish", message)


def test_publish_and_get(api: ApiClient) -> None:
    """What is put back is in its place and redelivered; octets that are not text come in base64."""
    api.ask("PUT", "queues/%2F/got", {})
    headers = {"h": 1, "t": [1, "a", True, 1.5], "n": {"z": "é"}}
    assert _publish(api, payload="hé", properties={"headers": headers, "message_id": "7"}).json == {"routed": True}
    assert _publish(api, payload="/wD+", payload_encoding="base64").json == {"routed": True}
    assert _publish(api, routing_key="nobody").json == {"routed": False}
    wanted = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
    first, second = api.ask("POST", "queues/%2F/got/get", wanted).json
    assert first == {
        "payload_bytes": 3,
        "redelivered": False,
        "exchange": "",
        "routing_key": "got",
        "message_count": 1,
        "properties": {"headers": headers, "message_id": "7"},
        "payload": "hé",
        "payload_encoding": "string",
    }
    assert (second["payload"], second["payload_encoding"]) == ("/wD+", "base64")
    again = api.ask("POST", "queues/%2F/got/get", {**wanted, "ackmode": "ack_requeue_false", "truncate": 2}).json
    assert [(one["redelivered"], one["payload_bytes"]) for one in again] == [(True, 3), (True, 3)]
    assert again[0]["payload_encoding"] == "base64"  # a character was cut
    assert api.ask("POST", "queues/%2F/got/get", wanted).json == []


def test_definitions_go_out_and_come_back(api: ApiClient) -> None:
    """What one broker exports another takes, and exports alike; a fault is named, and changes nothing on request."""
    api.ask("PUT", "exchanges/%2F/ex", {"type": "topic", "durable": True})
    api.ask("PUT", "queues/%2F/defined", {"durable": True, "arguments": {"x-max-length": 7}})
    api.ask("POST", "bindings/%2F/e/ex/q/defined", {"routing_key": "a.#", "arguments": {"k": "v"}})
    document = api.get("definitions")
    with start_broker(management=True) as broker:
        other = ApiClient(broker.management_url)
        wrong = {"queues": [{"name": "q", "vhost": "nope"}, {"name": "right", "vhost": "/"}]}
        fault = other.ask("POST", "definitions?all-or-nothing=true", wrong)
        assert fault.status == 400 and "queues[0]: no virtual host 'nope'" in fault.reason
        assert other.get("queues") == []
        fault = other.ask("POST", "definitions", wrong)
        assert fault.status == 400
        assert fault.reason == "imported: 1 queues; not imported:\nqueues[0]: no virtual host 'nope'"
        assert [queue["name"] for queue in other.get("queues")] == ["right"]
        assert other.ask("DELETE", "queues/%2F/right").status == 204
        bom = "\ufeff{}".encode()
        assert other.ask("POST", "definitions", bom, headers={"content-type": "application/json"}).status == 204
        assert other.ask("POST", "definitions", document).status == 204
        back = other.get("definitions")
        for section in ("queues", "exchanges", "bindings"):
            assert [one for one in back[section] if one["vhost"] == "/"] == [
                one for one in document[section] if one["vhost"] == "/"
            ]
        part = other.get("definitions/%2F")
        assert "vhost" not in part["queues"][0]
        assert other.ask("PUT", "vhosts/copy", {}).status == 201
        assert other.ask("POST", "definitions/copy", part).status == 204
        assert len(other.get("queues/copy")) == len(part["queues"])


def test_a_form_with_a_file(api: ApiClient) -> None:
    """As the page of RabbitMQ sends definitions."""
    body = (
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="x.json"\r\n'
        b'Content-Type: application/json\r\n\r\n{"vhosts":[{"name":"formed"}]}\r\n--B--\r\n'
    )
    answer = api.ask("POST", "definitions", body, headers={"content-type": "multipart/form-data; boundary=B"})
    assert answer.status == 204
    assert api.get("vhosts/formed")["name"] == "formed"
    answer = api.ask("POST", "definitions", b"nothing", headers={"content-type": "multipart/form-data; boundary=B"})
    assert (answer.status, answer.reason) == (400, "failed_to_parse_json")


@pytest.mark.parametrize(
    "place, status",
    [
        ("#/queues?page=1", 303), ("/doc/stats.html", 303), ("../#/definitions", 303), ("", 204),
        ("https://example.org/", 204), ("//example.org/", 204), ("/\\example.org", 204), ("javascript:alert(1)", 204),
        ("/a\r\nset-cookie: a=b", 204), ("/ä", 204),
    ],
)  # fmt: skip
def test_where_a_form_goes_then(place: str, status: int, api: ApiClient) -> None:
    """Its field `redirect`, in any order of fields, but never to another site (management page 1.3)."""
    fields = [b'name="redirect"\r\n\r\n' + place.encode(), b'name="file"; filename="x.json"\r\n\r\n{"queues":[]}']
    for some in (fields, fields[::-1]):
        body = b"".join(b"--B\r\nContent-Disposition: form-data; " + field + b"\r\n" for field in some) + b"--B--\r\n"
        answer = api.ask("POST", "definitions", body, headers={"content-type": "multipart/form-data; boundary=B"})
        assert (answer.status, answer.headers.get("location")) == (status, place if status == 303 else None)


def test_what_is_kept_of_a_virtual_host_goes_with_it(api: ApiClient) -> None:
    """One that is made again begins without a description and without parameters."""
    upstream = {"value": {"uri": "amqp://127.0.0.1:1"}}
    assert api.ask("PUT", "vhosts/twice", {"description": "old"}).status == 201
    assert api.ask("PUT", "parameters/federation-upstream/twice/up", upstream).status == 201
    assert api.ask("DELETE", "vhosts/twice").status == 204
    assert api.ask("PUT", "vhosts/twice", {}).status == 201
    assert api.get("vhosts/twice")["description"] == ""
    assert api.get("parameters/federation-upstream/twice") == []


@pytest.mark.parametrize(
    "method, path, body, status, reason",
    [
        ("POST", "users/bulk-delete", {"users": ["nobody"]}, 400, ["no_such_user", "nobody"]),
        ("GET", "topic-permissions/%2F/guest", None, 404, "Not Found"),
        ("DELETE", "topic-permissions/%2F/guest", None, 404, "Not Found"),
        ("GET", "users/nobody/permissions", None, 404, "Not Found"),
        ("PUT", "user-limits/nobody/max-channels", {"value": 1}, 400, ["no_such_user", "nobody"]),
        (
            "PUT",
            "permissions/%2F/nobody",
            dict.fromkeys(("configure", "write", "read"), ""),
            400,
            "vhost_or_user_not_found",
        ),
    ],
)
def test_users_and_permissions_that_are_not_there(
    api: ApiClient, method: str, path: str, body: object, status: int, reason: object
) -> None:
    """A request for them is refused; none is made up (management page 8.3, 8.4)."""
    answer = api.ask(method, path, body)
    assert (answer.status, answer.reason) == (status, reason)


def test_one_topic_permission_is_cleared_alone(api: ApiClient) -> None:
    """That of the exchange in the path; without one all of the virtual host go."""
    assert api.ask("PUT", "users/topics", {"password": "x", "tags": ""}).status == 201
    for exchange in ("amq.topic", "other", "third"):
        patterns = {"exchange": exchange, "write": "^a", "read": "^b"}
        assert api.ask("PUT", "topic-permissions/%2F/topics", patterns).status in (201, 204)
    assert api.ask("DELETE", "topic-permissions/%2F/topics/other").status == 204
    assert api.ask("DELETE", "topic-permissions/%2F/topics/other").status == 204  # as in RabbitMQ
    assert [one["exchange"] for one in api.get("topic-permissions/%2F/topics/third")] == ["third"]
    assert [row["exchange"] for row in api.get("topic-permissions/%2F/topics")] == ["amq.topic", "third"]
    assert api.ask("DELETE", "topic-permissions/%2F/topics").status == 204
    assert api.ask("GET", "topic-permissions/%2F/topics").status == 404


def test_a_virtual_host_gets_another_default_queue_type(api: ApiClient) -> None:
    """By a second PUT; one that names none leaves it."""
    for given, status in (({}, 201), ({"default_queue_type": "quorum"}, 204), ({"description": "d"}, 204)):
        assert api.ask("PUT", "vhosts/typed", given).status == status
    assert api.get("vhosts/typed")["default_queue_type"] == "quorum"


def test_a_virtual_host_is_traced_until_a_put_ends_it(api: ApiClient) -> None:
    """One that does not speak of it leaves it as it is."""
    for given, traced in (({"tracing": True}, True), ({"description": "d"}, True), ({"tracing": False}, False)):
        assert api.ask("PUT", "vhosts/traced", given).status in (201, 204)
        assert api.get("vhosts/traced")["tracing"] is traced
    assert api.ask("DELETE", "vhosts/traced").status == 204


def test_a_virtual_host_of_an_export_without_a_default_queue_type(api: ApiClient) -> None:
    """RabbitMQ writes "undefined" then; what is no type is refused."""
    assert api.ask("PUT", "vhosts/exported", {"default_queue_type": "undefined"}).status == 201
    assert api.ask("PUT", "vhosts/exported", {"default_queue_type": "mirrored"}).status == 400
    assert api.ask("PUT", "queues/exported/q", {}).status == 201
    assert api.get("queues/exported/q")["type"] == "classic"
    assert api.ask("DELETE", "vhosts/exported").status == 204


def test_who_changes_a_virtual_host_gets_no_permissions_by_that(api: ApiClient) -> None:
    """Only the user who makes it does."""
    assert api.ask("PUT", "vhosts/kept", {}).status == 201
    assert api.ask("PUT", "users/changer", {"password": "changer", "tags": "administrator"}).status == 201
    assert api.ask("PUT", "vhosts/kept", {"description": "d"}, user="changer").status == 204
    assert api.get("users/changer/permissions") == []
    for path in ("users/changer", "vhosts/kept"):
        assert api.ask("DELETE", path).status == 204


def test_limits_of_a_virtual_host_are_replaced_as_a_whole(api: ApiClient) -> None:
    """As a parameter; 201 for the first ones."""
    path = "parameters/vhost-limits/%2F/limits"
    for value, status in (({"max-queues": 5}, 201), ({"max-connections": 3}, 204)):
        assert api.ask("PUT", path, {"value": value}).status == status
        assert api.get(path)["value"] == value
    assert api.ask("DELETE", path).status == 204
    assert api.get("vhost-limits/%2F") == []


def test_topic_permissions_of_one_exchange(api: ApiClient) -> None:
    """By its path; the others are not shown."""
    assert api.ask("PUT", "users/topical", {"password": "x", "tags": ""}).status == 201
    for exchange in ("amq.topic", "other"):
        given = {"exchange": exchange, "write": "w", "read": "r"}
        assert api.ask("PUT", "topic-permissions/%2F/topical", given).status in (201, 204)
    for path, exchanges in (("", ["amq.topic", "other"]), ("/other", ["other"])):
        assert sorted(row["exchange"] for row in api.get(f"topic-permissions/%2F/topical{path}")) == exchanges
    assert api.ask("GET", "topic-permissions/%2F/topical/third").status == 404
    assert api.ask("DELETE", "users/topical").status == 204


def test_the_location_of_a_binding_is_its_own(api: ApiClient) -> None:
    """Also beside another one with the same key and other arguments."""
    api.ask("PUT", "queues/%2F/located", {})
    path = "bindings/%2F/e/amq.headers/q/located"
    for number in (1, 2, 1):
        answer = api.ask("POST", path, {"routing_key": "k", "arguments": {"n": number}})
        assert answer.status == 201
        found = api.get(f"{path}/{answer.headers['location'].rpartition('/')[2]}")
        assert found["arguments"] == {"n": number}


def test_lists_in_parts(api: ApiClient) -> None:
    """Pages, the order where a value is missing, and fields that lead nowhere (management page 1.6)."""
    assert api.ask("PUT", "vhosts/parts", {}).status == 201
    for name, size in (("a", 5), ("b", None), ("c", 3)):
        api.ask("PUT", f"queues/parts/{name}", {"arguments": {} if size is None else {"x-max-length": size}})
    shown = api.get("queues/parts?page=2&page_size=2&columns=name,messages.none.more,name.none")
    assert (shown["items"], shown["page_count"], shown["total_count"]) == ([{"name": "c", "messages": 0}], 2, 3)
    shown = api.get("queues/parts?page=1&page_size=2&name=B")
    assert (shown["filtered_count"], shown["total_count"], shown["item_count"]) == (1, 3, 1)
    assert api.get("queues/parts?page=1&page_size=3")["page_count"] == 1
    assert api.ask("GET", "queues/parts?page=2&page_size=3").status == 400
    answer = api.ask("GET", "queues/parts?page=3&page_size=2")
    assert (answer.status, answer.json["error"]) == (400, "page_out_of_range")
    shown = api.get("queues/parts?sort=arguments.x-max-length&columns=name")
    assert [one["name"] for one in shown] == ["b", "c", "a"]
    assert api.ask("DELETE", "vhosts/parts").status == 204


def test_only_some_tags_open_the_api(api: ApiClient) -> None:
    """Another one, of which a broker knows nothing, does not."""
    assert api.ask("PUT", "users/tagged", {"password": "x", "tags": "impersonator"}).status == 201
    assert api.ask("GET", "whoami", user="tagged", password="x").status == 401
    assert api.ask("DELETE", "users/tagged").status == 204


def test_a_new_user_with_its_permissions(api: ApiClient) -> None:
    """Of an existing one they stay as they are, and are not looked at, as in RabbitMQ."""
    everything, nothing = (dict.fromkeys(("configure", "write", "read"), text) for text in (".*", ""))
    body = {"password": "x", "tags": "", "permissions": {"/": everything}}
    assert api.ask("PUT", "users/whole", body).status == 201
    assert api.get("users/whole/permissions") == [{"user": "whole", "vhost": "/", **everything}]
    for permissions in ({"/": nothing}, {"none": nothing}, {"/": {}}, []):
        assert api.ask("PUT", "users/whole", {**body, "permissions": permissions}).status == 204
    assert api.get("users/whole/permissions") == [{"user": "whole", "vhost": "/", **everything}]
    assert api.ask("DELETE", "users/whole").status == 204


@pytest.mark.parametrize(
    "permissions, reason",
    [
        ({"none": {"configure": "", "write": "", "read": ""}}, ["no_such_vhost", "none"]),
        ({"/": {"configure": ""}}, "[{key_missing,write},{key_missing,read}]"),
        ({"/": {"configure": "", "write": "(", "read": ""}}, ["invalid_regexp", "(", "missing ) at character 2"]),
        ({"/": {"configure": "", "write": 5, "read": ""}}, ["not_string", "write"]),
        ({"/": []}, "permissions: expected an object with an object for each virtual host"),
        (None, "permissions: expected an object with an object for each virtual host"),
    ],
)
def test_a_new_user_with_wrong_permissions_is_not_made(permissions: Any, reason: Any, api: ApiClient) -> None:
    """In RabbitMQ it is there without them."""
    refused = api.ask("PUT", "users/never", {"password": "x", "tags": "", "permissions": permissions})
    assert (refused.status, refused.reason) == (400, reason)
    assert api.ask("GET", "users/never").status == 404


def test_limits_without_a_password(api: ApiClient) -> None:
    """They are set, though the password goes."""
    assert api.ask("PUT", "users/short", {"password": "x", "tags": ""}).status == 201
    assert api.ask("PUT", "users/short", {"tags": "", "limits": {"max-channels": 4}}).status == 204
    found = api.get("users/short")
    assert (found["limits"], found["password_hash"]) == ({"max-channels": 4}, "")
    assert api.ask("DELETE", "users/short").status == 204


def test_users_without_permissions_are_those_that_have_none(api: ApiClient) -> None:
    """Not those that may do all there is."""
    assert api.ask("PUT", "users/bare", {"password": "x", "tags": ""}).status == 201
    names = [one["name"] for one in api.get("users/without-permissions")]
    assert "bare" in names and "guest" not in names
    assert api.ask("DELETE", "users/bare").status == 204


def test_permissions_of_one_virtual_host(api: ApiClient) -> None:
    """Those of others are not listed with it."""
    grant = {"configure": ".*", "write": "", "read": ""}
    assert api.ask("PUT", "users/granted", {"password": "x", "tags": ""}).status == 201
    for vhost in ("one", "two"):
        assert api.ask("PUT", f"vhosts/{vhost}", {}).status == 201
        assert api.ask("PUT", f"permissions/{vhost}/granted", grant).status == 201
    found = [row for row in api.get("vhosts/one/permissions") if row["user"] == "granted"]
    assert found == [{"user": "granted", "vhost": "one", **grant}]
    for path in ("users/granted", "vhosts/one", "vhosts/two"):
        assert api.ask("DELETE", path).status == 204


def test_a_limit_of_a_user_is_a_number(api: ApiClient) -> None:
    """true is none."""
    answer = api.ask("PUT", "user-limits/guest/max-connections", {"value": True})
    assert (answer.status, answer.reason) == (400, "max-connections should be a number, actually was true")
    assert api.get("user-limits/guest") == []


def test_bindings_to_a_queue_and_to_an_exchange_of_its_name(api: ApiClient) -> None:
    """Each list has its own."""
    api.ask("PUT", "queues/%2F/same", {})
    api.ask("PUT", "exchanges/%2F/same", {"type": "direct"})
    for kind, key in (("q", "to.queue"), ("e", "to.exchange")):
        assert api.ask("POST", f"bindings/%2F/e/amq.direct/{kind}/same", {"routing_key": key}).status == 201
        assert [one["routing_key"] for one in api.get(f"bindings/%2F/e/amq.direct/{kind}/same")] == [key]
    for path in ("queues/%2F/same", "exchanges/%2F/same"):
        assert api.ask("DELETE", path).status == 204


def test_a_monitor_sees_parameters_of_its_virtual_hosts_alone(api: ApiClient) -> None:
    """Though it sees that others exist."""
    assert api.ask("PUT", "vhosts/limited", {}).status == 201
    assert api.ask("PUT", "vhost-limits/limited/max-queues", {"value": 9}).status == 204
    assert api.ask("PUT", "users/watcher", {"password": "x", "tags": "monitoring,policymaker"}).status == 201
    as_watcher = {"user": "watcher", "password": "x"}
    assert [row["vhost"] for row in api.get("parameters/vhost-limits")] == ["limited"]
    assert api.get("parameters/vhost-limits", **as_watcher) == []
    grant = {"configure": "", "write": "", "read": ""}
    assert api.ask("PUT", "permissions/limited/watcher", grant).status == 201
    assert [row["vhost"] for row in api.get("parameters/vhost-limits", **as_watcher)] == ["limited"]
    for path in ("users/watcher", "vhosts/limited"):
        assert api.ask("DELETE", path).status == 204


def test_definitions_have_a_global_parameter_once(api: ApiClient) -> None:
    """Also one that was set here; and users without tags are no matter of a virtual host's definitions."""
    assert api.ask("PUT", "global-parameters/mine", {"value": {"a": 1}}).status == 201
    names = [one["name"] for one in api.get("definitions")["global_parameters"]]
    assert names.count("mine") == 1 and len(names) == len(set(names))
    assert api.ask("DELETE", "global-parameters/mine").status == 204
    assert api.ask("POST", "definitions", {"users": [{"name": "u"}]}).reason == "tags_not_present"
    assert api.ask("POST", "definitions/%2F", {"users": [{"name": "u"}]}).status == 204


def test_a_user_is_put_as_it_was_read(api: ApiClient) -> None:
    """With its limits; a body without limits, or with empty ones, leaves them as they are."""
    api.ask("PUT", "users/limited", {"tags": "", "password": "p", "limits": {"max-connections": 5, "max-channels": 9}})
    found = api.get("users/limited")
    assert found["limits"] == {"max-connections": 5, "max-channels": 9}
    api.ask("DELETE", "users/limited")
    assert api.ask("PUT", "users/limited", found).status == 201
    assert api.get("users/limited") == found
    for more in ({}, {"limits": []}, {"limits": {}}, {"limits": {"max-channels": -1}}):
        api.ask("PUT", "users/limited", {"tags": "", "password": "p", **more})
        assert api.get("users/limited")["limits"]["max-connections"] == 5
    assert api.get("users/limited")["limits"] == {"max-connections": 5}


def test_limits_below_zero_are_none(api: ApiClient) -> None:
    """RabbitMQ keeps and shows them."""
    for path, name in (("user-limits/guest", "max-channels"), ("vhost-limits/%2F", "max-queues")):
        for value in (5, -1):
            assert api.ask("PUT", f"{path}/{name}", {"value": value}).status == 204
        assert api.get(path) == []


def test_a_user_without_a_password_has_no_hash(api: ApiClient) -> None:
    """RabbitMQ shows the hash of something with which nobody can log in."""
    assert api.ask("PUT", "users/nobody-logs-in", {"tags": ""}).status == 201
    assert api.get("users/nobody-logs-in")["password_hash"] == ""
    assert api.ask("DELETE", "users/nobody-logs-in").status == 204


def test_who_declared_an_exchange_is_not_kept(api: ApiClient) -> None:
    """RabbitMQ shows the user."""
    assert api.ask("PUT", "exchanges/%2F/declared", {}).status == 201
    assert api.get("exchanges/%2F/declared")["user_who_performed_action"] == "none"


@pytest.mark.parametrize("value, tags", [(True, ["administrator"]), ("true", ["administrator"]), (False, [])])
def test_users_of_releases_before_tags(value: bool | str, tags: list[str], api: ApiClient) -> None:
    """Administrators or not, as RabbitMQ 2 wrote it, and RabbitMQ 3 still reads it."""
    user = {"password": "p", "administrator": value}
    assert api.ask("PUT", "users/of-2", user).status == 201
    assert api.get("users/of-2")["tags"] == tags
    api.ask("DELETE", "users/of-2")
    assert api.ask("POST", "definitions", {"users": [{"name": "of-2", **user}]}).status == 204
    assert api.get("users/of-2")["tags"] == tags
    api.ask("DELETE", "users/of-2")
