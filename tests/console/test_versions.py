"""Earlier versions of policies, users and limits: kept with their authors, compared, put back. Source: management page
15.
"""

from pathlib import Path
from typing import Any

import pytest
from api_client import ApiClient

from leveret.cli.control_client import request
from leveret.configured.configured import Report
from leveret.operator import parameters
from leveret.operator import versions as kept
from leveret.operator.command_error import CommandError
from leveret.operator.control import ControlTable
from leveret.settings import Policies, make_policy
from leveret.testing import start_broker
from leveret.testing.harness import Harness


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


@pytest.fixture
def table() -> ControlTable:
    """The commands of a broker on virtual time."""
    found = ControlTable()
    found.operator.attach(Harness().broker)
    found.load()
    return found


def set_policy(table: ControlTable, name: str, length: int = 1, vhost: str = "/") -> None:
    value = {"pattern": "x", "definition": {"max-length": length}, "vhost": vhost}
    table.run("policies", {"action": "set", "name": name, **value})


def test_commands_at_the_same_time(table: ControlTable) -> None:
    """Their changes have different batches: putting back all of one leaves those of the other."""
    users = [{"name": f"u{n}", "password_hash": "", "tags": ""} for n in range(60)]
    slow = table.steps("definitions", {"action": "import", "definitions": {"users": users}})
    next(slow)
    set_policy(table, "mine")
    for _ in slow:
        pass
    batches = {row["name"]: row["batch"] for row in table.operator.versions}
    assert len(batches) == 61 and set(batches.values()) == {batches["u0"], batches["mine"]}
    assert batches["u0"] != batches["mine"]
    again = ControlTable()
    again.operator.attach(table.broker)
    assert again.operator.versions.next_batch() > max(batches.values())


def test_a_command_that_fails_has_made_its_changes(table: ControlTable) -> None:
    """A reload that ends in the middle is not taken for the next command."""

    def reload() -> Report:
        table.broker.reloading.replace_policies(Policies([make_policy("p", "/", "x", {"max-length": 1})]))
        raise OSError("in the middle")

    table.operator.reload = reload
    with pytest.raises(OSError):
        table.run("reload", {"here": True})
    set_policy(table, "mine")
    assert [(row["name"], row["command"]) for row in table.operator.versions] == [
        ("mine", "policies set"),
        ("p", "reload"),
    ]


def test_all_or_nothing(table: ControlTable) -> None:
    """A version whose virtual host is gone refuses the whole, as its preview does."""
    for vhost in ("one", "two"):
        table.run("vhosts", {"action": "add", "name": vhost})
    policies = [
        {"vhost": vhost, "name": "p", "pattern": "x", "definition": {"max-length": 1}} for vhost in ("one", "two")
    ]
    table.run("definitions", {"action": "import", "definitions": {"policies": policies}})
    table.run("vhosts", {"action": "delete", "name": "one"})
    (row,) = table.run("versions", {"action": "list", "vhost": "two"})
    for command, action in (("versions", "restore"), ("preview", "version")):
        with pytest.raises(CommandError, match="virtual host 'one' .* was deleted"):
            table.run(command, {"action": action, "id": row["id"], "all": True})
    assert [policy.vhost for policy in table.broker.context.policies] == ["two"]


def test_their_octets_are_bounded(table: ControlTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first; the newest stays, however long."""
    monkeypatch.setattr(kept, "OCTETS_MAX", 1000)
    for length in range(1, 20):
        set_policy(table, "p", length)
    ids = [row["id"] for row in table.operator.versions]
    assert ids == list(range(19, 19 - len(ids), -1)) and 1 < len(ids) < 5
    assert sum(component == kept.VERSIONS for (_, component, _), _ in table.broker.parameters) == len(ids)
    set_policy(table, "p" * 200)
    monkeypatch.setattr(kept, "OCTETS_MAX", 1)
    set_policy(table, "p", 99)
    assert [row["id"] for row in table.operator.versions] == [21]


def test_an_object_with_long_versions_forgets_its_own(table: ControlTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with permissions in very many virtual hosts pushes out no version of anything else."""
    set_policy(table, "p")
    table.run("users", {"action": "add", "name": "ann", "password": "x"})
    monkeypatch.setattr(kept, "OCTETS_MAX", 20_000)
    for number in range(30):
        table.run("vhosts", {"action": "add", "name": f"v{number}"})
        patterns = dict.fromkeys(("configure", "write", "read"), ".*")
        table.run("permissions", {"action": "set", "user": "ann", "vhost": f"v{number}", **patterns})
    rows = list(table.operator.versions)
    assert {row["name"] for row in rows} == {"ann", "p"} and 2 < len(rows) < 10
    assert sum(kept._size(row) for row in rows) <= 20_000
    assert [row["id"] for row in rows[:-1]] == list(range(32, 33 - len(rows), -1))
    table.run("users", {"action": "add", "name": "b" * 200, "password": "x"})
    assert next(iter(table.operator.versions))["name"] == "b" * 200


def test_they_take_no_place_of_parameters(table: ControlTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import may set as many parameters as one that is set by itself."""
    monkeypatch.setattr("leveret.operator.definitions_reader.KEPT_MAX", 3)
    for length in range(1, 5):
        set_policy(table, "p", length)
    given = {"global_parameters": [{"name": f"g{n}", "value": 1} for n in range(4)]}
    found = table.run("definitions", {"action": "import", "definitions": given})
    assert found["faults"] == ["global_parameters[3]: no more than 3 parameters are kept"]
    assert parameters.parameter_count(table.broker) == 3


def test_what_changes_nothing_looks_at_nothing(table: ControlTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that touches no policy, user or virtual host compares none of them."""
    noted = table.operator.versions
    monkeypatch.setattr(noted, "_note_values", lambda: pytest.fail("looked"))
    table.run("declare-queue", {"queue": "q"})
