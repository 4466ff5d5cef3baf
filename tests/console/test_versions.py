"""Earlier versions of policies, users and limits: kept with their authors, compared, put back. Source: management page
15.
"""

from pathlib import Path
from typing import Any

from api_client import ApiClient

from leveret.cli.control_client import request
from leveret.testing import start_broker


def versions(api: ApiClient, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"leveret/versions{query}")
    return found


def policy(api: ApiClient, length: int) -> None:
    assert api.ask("PUT", "policies/%2F/p", {"pattern": "^q$", "definition": {"max-length": length}}).status < 300


def test_a_policy(api: ApiClient) -> None:
    """Each change with both values and who made it; the one before, and the one that was deleted, are put back."""
    policy(api, 5)
    policy(api, 7)
    policy(api, 7)
    api.ask("DELETE", "policies/%2F/p")
    deleted, changed, added = versions(api, "?kind=policy&name=p")
    assert [one["change"] for one in (added, changed, deleted)] == ["added", "changed", "deleted"]
    assert changed["differs"] == [{"key": "definition", "now": {"max-length": 5}, "then": {"max-length": 7}}]
    assert (changed["by"], changed["command"]) == ("guest by HTTP", "policies set")
    assert [one["is_current"] for one in (deleted, changed, added)] == [True, False, False]
    assert api.ask("POST", f"leveret/versions/{deleted['id']}/restore", {}).json == {"restored": [deleted["id"]]}
    assert api.get("policies/%2F/p")["definition"] == {"max-length": 7}
    api.ask("POST", f"leveret/versions/{changed['id']}/restore", {})
    assert api.get("policies/%2F/p")["definition"] == {"max-length": 5}
    api.ask("POST", f"leveret/versions/{added['id']}/restore", {})
    assert api.get("policies") == []
    assert versions(api)[0]["command"] == "versions restore"
    assert api.ask("POST", "leveret/versions/999999/restore", {}).status == 400


def test_what_restoring_would_drop(api: ApiClient) -> None:
    """The preview is that of the policy that would be in force again."""
    api.ask("PUT", "queues/%2F/q", {})
    policy(api, 1)
    api.ask("DELETE", "policies/%2F/p")
    for _ in range(3):
        body = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
        api.ask("POST", "exchanges/%2F/amq.default/publish", body)
    newest = versions(api, "?kind=policy")[0]
    found = api.ask("POST", f"leveret/preview/versions/{newest['id']}", {}).json
    assert found["says"] == ["2 of 3 messages are dropped from 1 queue"]
    api.ask("DELETE", "queues/%2F/q")


def test_a_user(api: ApiClient) -> None:
    """Password, tags, limits and permissions come back with a deleted user; no hash is shown."""
    api.ask("PUT", "users/ann", {"password": "first", "tags": "management"})
    api.ask("PUT", "permissions/%2F/ann", {"configure": "^c", "write": "^w", "read": "^r"})
    hashed = api.get("users/ann")["password_hash"]
    api.ask("PUT", "users/ann", {"password": "second", "tags": "management"})
    again = versions(api, "?kind=user&name=ann")[0]
    assert again["differs"] == [{"key": "password", "now": "set", "then": "set"}] and hashed not in str(versions(api))
    api.ask("DELETE", "users/ann")
    api.ask("POST", f"leveret/versions/{versions(api)[0]['id']}/restore", {})
    assert api.get("whoami", user="ann", password="second")["tags"] == ["management"]
    api.ask("POST", f"leveret/versions/{again['id']}/restore", {})
    assert api.get("users/ann")["password_hash"] == hashed
    assert api.get("permissions/%2F/ann")["write"] == "^w"
    assert api.ask("GET", "leveret/versions", user="ann", password="first").status == 401
    api.ask("DELETE", "users/ann")


def test_an_import_is_put_back_as_a_whole(api: ApiClient) -> None:
    """All that one command changed; limits too. Versions are no parameters that tools see."""
    given = {
        "users": [{"name": name, "password": "x", "tags": ""} for name in ("one", "two")],
        "parameters": [{"component": "vhost-limits", "vhost": "/", "name": "limits", "value": {"max-queues": 9}}],
        "policies": [{"name": "p", "vhost": "/", "pattern": "q", "definition": {"max-length": 1}}],
    }
    before = api.get("definitions")
    assert api.ask("POST", "definitions", given).status == 204
    rows = [one for one in versions(api) if one["command"] == "definitions import"]
    assert sorted(one["kind"] for one in rows) == ["limits", "policy", "user", "user"]
    assert len({one["batch"] for one in rows}) == 1
    api.ask("POST", f"leveret/versions/{rows[0]['id']}/restore", {"all": True})
    assert api.get("definitions") == before
    assert [one["name"] for one in api.get("global-parameters")] == ["cluster_name", "internal_cluster_id"]


def test_they_outlive_a_restart(tmp_path: Path) -> None:
    """With the journal, as what they are about; and `ctl` says who asked."""
    with start_broker(data=tmp_path / "data", management=True) as running:
        policy(ApiClient(running.management_url), 5)
    with start_broker(data=tmp_path / "data", management=True) as running:
        api = ApiClient(running.management_url)
        (row,) = versions(api)
        assert (row["kind"], row["name"], row["by"]) == ("policy", "p", "guest by HTTP")
        request(running.url, "policies", {"action": "clear", "name": "p"})
        newest, older = versions(api)
        assert (newest["id"], newest["by"], newest["change"]) == (row["id"] + 1, "guest by ctl", "deleted")
        assert older["id"] == row["id"]
