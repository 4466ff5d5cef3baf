"""The keys that forms of the page offer are keys that the broker takes, with the examples that they begin with.

Source: management page 15.
"""

import json
import re
from typing import Any

import pytest
from api_client import ApiClient

from leveret.console.static_pages import FOLDER

ROW = re.compile(r'^  \["([^"]+)", (.+), "[^"]+"\],$', re.MULTILINE)


#: Arguments that another one needs, as their help says.
BESIDE: dict[str, dict[str, object]] = {
    "x-dead-letter-routing-key": {"x-dead-letter-exchange": ""},
    "x-delivery-limit": {"x-queue-type": "quorum"},
}


def _table(name: str) -> str:
    """The text of one table of keys.js."""
    text = (FOLDER / "js" / "keys.js").read_text(encoding="utf-8")
    table = text[text.index(f"const {name} = [") :]
    return table[: table.index("];")]


def _rows(name: str) -> list[tuple[str, Any]]:
    """The keys and examples of one table."""
    return [(key, json.loads(example)) for key, example in ROW.findall(_table(name))]


def _arguments() -> list[tuple[str, Any]]:
    """The arguments of queues: some keys of policies, and others."""
    shared = re.findall(r'"([^"]+)"', _table("QUEUES_HAVE"))
    rows = [row for row in _rows("POLICY_KEYS") if row[0] in shared] + _rows("QUEUE_ONLY")
    return [(f"x-{key}", example) for key, example in rows]


@pytest.mark.parametrize("key, example", _rows("POLICY_KEYS"))
def test_keys_of_policies(api: ApiClient, key: str, example: object) -> None:
    """Each is a policy that the broker accepts."""
    answer = api.ask("PUT", "policies/%2F/offered", {"pattern": "^none$", "definition": {key: example}})
    assert answer.status in (201, 204), answer.body


@pytest.mark.parametrize("key", ["message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit"])
def test_keys_of_operator_policies(api: ApiClient, key: str) -> None:
    """Of those of policies these are offered."""
    definition = {key: dict(_rows("POLICY_KEYS"))[key]}
    answer = api.ask("PUT", "operator-policies/%2F/offered", {"pattern": "^none$", "definition": definition})
    assert answer.status in (201, 204), answer.body
    assert f'"{key}"' in (FOLDER / "js" / "keys.js").read_text().partition("LIMITS = [")[2].partition("]")[0]


@pytest.mark.parametrize("key, example", _arguments())
def test_arguments_of_queues(api: ApiClient, key: str, example: object) -> None:
    """Each is an argument that is kept."""
    arguments = {key: example, **BESIDE.get(key, {})}
    answer = api.ask("PUT", f"queues/%2F/with-{key}", {"durable": True, "arguments": arguments})
    assert answer.status == 201, answer.body
    assert api.get(f"queues/%2F/with-{key}")["arguments"] == arguments


def test_there_are_some() -> None:
    """The tables are read as they are written."""
    assert len(_rows("POLICY_KEYS")) > 10 and len(_arguments()) > 10
