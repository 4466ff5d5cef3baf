"""Settings and policies that are not in force, and the rules that are. Source: management page 15, 16."""

from collections.abc import Iterator
from typing import Any

import pytest
from api_client import ApiClient

from leveret.testing import RunningBroker, start_broker

CONFIG = """
[[address-setting]]
match = "#"
redelivery-delay = 100
max-delivery-attempts = 7

[[address-setting]]
match = "jobs.#"
redelivery-delay = 200

[[policy]]
name = "configured"
pattern = "^jobs"
definition = { max-length = 10 }
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """With settings, and queues that they are for."""
    with start_broker(management=True, config=CONFIG) as running:
        api = ApiClient(running.management_url)
        api.ask("PUT", "queues/%2F/jobs.a", {})
        api.ask("PUT", "queues/%2F/mine", {"arguments": {"x-max-length": 3, "x-redelivery-delay": 50}})
        yield running


def draft(api: ApiClient, vhost: str = "%2F", **given: Any) -> Any:
    answer = api.ask("POST", f"leveret/draft/{vhost}", given)
    assert answer.status == 200, answer.body
    return answer.json


MORE = '[[address-setting]]\nmatch = "jobs.a"\nredelivery-delay = 5000\n'


def test_settings_that_are_added(api: ApiClient) -> None:
    """What one queue would have, with both values and the rule; what changes for all; nothing is changed."""
    before = api.get("leveret/explain/%2F/jobs.a")
    found = draft(api, name="jobs.a", text=MORE)
    (row,) = (row for row in found["differs"] if row["name"] == "redelivery-delay")
    assert row == {
        "vhost": "/",
        "name": "redelivery-delay",
        "now": 200,
        "draft": 5000,
        "rule": "draft:3: match 'jobs.a'",
    }
    (explained,) = found["explained"]
    values = {row["name"]: row["value"] for row in explained["rows"]}
    assert (values["redelivery-delay"], values["max-delivery-attempts"], values["x-max-length"]) == (5000, 7, 10)
    assert explained["matches"] == ["jobs.a", "jobs.#", "#"]
    assert [one["queue"] for one in found["queues"]] == ["jobs.a"]
    assert api.get("leveret/explain/%2F/jobs.a") == before


def test_settings_instead_of_those_in_force(api: ApiClient) -> None:
    """As a reload with these files would have it: what they do not say is gone, the policy too."""
    found = draft(api, name="jobs.a", text=MORE, adds=False)
    differs = {row["name"]: (row["now"], row["draft"]) for row in found["differs"]}
    assert differs["redelivery-delay"] == (200, 5000)
    assert differs["max-delivery-attempts"] == (7, 10) and differs["x-max-length"] == (10, None)
    assert any("match '#'" in change for change in found["changes"])


def test_a_match_that_is_there_is_replaced(api: ApiClient) -> None:
    """Not declared twice."""
    found = draft(api, name="jobs.a", text='[[address-setting]]\nmatch = "jobs.#"\nredelivery-delay = 9\n')
    assert [(row["now"], row["draft"]) for row in found["differs"] if row["name"] == "redelivery-delay"] == [(200, 9)]


def test_policies(api: ApiClient) -> None:
    """In RabbitMQ's JSON, also an operator's; of an address that nobody declared as well."""
    policy = {"name": "p", "pattern": "^mine$", "definition": {"max-length": 2}, "priority": 1}
    found = draft(api, name="mine", policies=[policy])
    (row,) = found["differs"]
    assert (row["name"], row["now"], row["draft"]) == ("x-max-length", 3, 2)
    assert row["rule"].startswith("policy 'p'")
    assert found["queues"][0]["queue"] == "mine"
    other = {"name": "o", "pattern": "", "definition": {"message-ttl": 5}, "operator": True}
    (row,) = draft(api, name="nobody", policies=[other])["differs"]
    assert (row["name"], row["now"], row["draft"]) == ("x-message-ttl", None, 5)
    assert "explained" not in draft(api, policies=[other])
    assert api.get("operator-policies") == []


def test_rules_in_the_order_in_which_they_win(api: ApiClient) -> None:
    """All of them; and those of one queue, with what each gives and what it loses."""
    api.ask("PUT", "operator-policies/%2F/cap", {"pattern": "^mine$", "definition": {"max-length": 2}})
    rows = api.get("leveret/rules/%2F")
    assert [(row["kind"], row["name"]) for row in rows] == [
        ("operator policy", "cap"),
        ("policy", "configured"),
        ("match", "jobs.#"),
        ("match", "#"),
    ]
    assert rows[2]["settings"] == {"redelivery-delay": "200"} and rows[2]["origin"].endswith(":7")
    of_jobs = {row["name"]: (row["gives"], row["loses"]) for row in api.get("leveret/rules/%2F?name=jobs.a")}
    assert of_jobs == {
        "configured": (["max-length"], []),
        "jobs.#": (["redelivery-delay"], []),
        "#": (["max-delivery-attempts"], ["redelivery-delay"]),
    }
    own, cap, *_ = api.get("leveret/rules/%2F?name=mine")
    assert (own["kind"], own["gives"], own["loses"]) == ("arguments", ["redelivery-delay"], ["max-length"])
    assert (cap["kind"], cap["gives"], cap["loses"]) == ("operator policy", ["max-length"], [])
    assert api.ask("DELETE", "operator-policies/%2F/cap").status == 204


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"text": 5},
        {"text": "[[address-setting"},
        {"text": '[[address-setting]]\nmatch = "#"\nredelivery-delai = 1\n'},
        {"text": "", "adds": "maybe"},
        {"files": "x"},
        {"files": [["a"]]},
        {"policies": {}},
        {"policies": [1]},
        {"policies": [{"pattern": "(", "definition": {}}]},
        {"policies": [{"pattern": "", "definition": {"max-length": "a"}}]},
        {"policies": [{"pattern": "", "definition": {"max-length": 1}, "vhost": "nowhere"}]},
        {"policies": [], "name": 5},
    ],
)
def test_bad_input(api: ApiClient, given: dict[str, Any]) -> None:
    """400, with what is wrong and where."""
    answer = api.ask("POST", "leveret/draft/%2F", given)
    assert answer.status == 400 and answer.reason


def test_who_may(api: ApiClient) -> None:
    """Drafts are for administrators, rules for those who make policies."""
    api.ask("PUT", "users/maker", {"password": "maker", "tags": "policymaker"})
    api.ask("PUT", "permissions/%2F/maker", {"configure": "", "write": "", "read": ""})
    assert api.ask("GET", "leveret/rules/%2F", user="maker").status == 200
    assert api.ask("POST", "leveret/draft/%2F", {"text": ""}, user="maker").status == 401
    assert api.ask("GET", "leveret/rules/nowhere").status == 404
