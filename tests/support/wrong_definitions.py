"""Files of definitions with one wrong part each, what a broker answers to them, and what it has then.

Each file is `RIGHT` but for one part: a section, an entry, or the value of a key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import quote

from api_client import ApiClient

Document = dict[str, Any]
#: Status, reason, and by section what is there otherwise than after `RIGHT`: rows that are missing, and more.
Answer = list[Any]

#: One entry a section. All names are `w`.
RIGHT: Document = {
    "users": [
        {
            "name": "w",
            "password_hash": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIj",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["monitoring"],
            "limits": {"max-channels": 9},
        }
    ],
    "vhosts": [{"name": "w"}],
    "permissions": [{"user": "w", "vhost": "w", "configure": "c", "write": "w", "read": "r"}],
    "topic_permissions": [{"user": "w", "vhost": "w", "exchange": "w", "write": "w", "read": "r"}],
    "parameters": [{"vhost": "w", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 9}}],
    "global_parameters": [{"name": "w", "value": {"a": 1}}],
    "policies": [
        {"vhost": "w", "name": "w", "pattern": "w", "apply-to": "all", "definition": {"max-length": 9}, "priority": 1}
    ],
    "exchanges": [
        {
            "name": "w",
            "vhost": "w",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
    ],
    "queues": [{"name": "w", "vhost": "w", "durable": True, "auto_delete": False, "arguments": {}}],
    "bindings": [
        {
            "source": "w",
            "vhost": "w",
            "destination": "w",
            "destination_type": "queue",
            "routing_key": "w",
            "arguments": {},
        }
    ],
}
_OPERATOR_POLICY = {
    "vhost": "w",
    "component": "operator_policy",
    "name": "w",
    "value": {"pattern": "w", "apply-to": "queues", "definition": {"max-length": 9}, "priority": 1},
}
#: Values that stand for that of a key, where the right one is of another type.
_VALUES: tuple[Any, ...] = (None, 5, "x", [], {})


def cases() -> Iterator[tuple[str, Document]]:
    """Their names, each once, and the files."""
    yield "nothing wrong", RIGHT
    for section, (entry,) in RIGHT.items():
        for value in (None, "x", {}):
            yield f"{section} = {json.dumps(value)}", RIGHT | {section: value}
        for value in (5, [], {}):
            yield f"{section}[0] = {json.dumps(value)}", RIGHT | {section: [value]}
        yield f"{section} twice", RIGHT | {section: [entry, entry]}
        yield f"{section}[0] with an unknown key", _with(section, entry | {"unknown": 1})
        for key in entry:
            yield f"{section}[0] without {key}", _with(section, {k: v for k, v in entry.items() if k != key})
            for value in _VALUES:
                if type(value) is not type(entry[key]):
                    yield f"{section}[0].{key} = {json.dumps(value)}", _with(section, entry | {key: value})
    for name, section, more in _more():
        yield name, _with(section, *more)
    yield "an unknown section", RIGHT | {"unknown": [{"name": "w"}]}
    for section in RIGHT:
        yield f"without {section}", {k: v for k, v in RIGHT.items() if k != section}


def _with(section: str, *entries: Any) -> Document:
    return RIGHT | {section: deepcopy(list(entries))}


def _more() -> Iterator[tuple[str, str, list[Any]]]:
    """Name, section, entries."""
    queue, exchange, policy, binding, user, vhost, limits = (
        RIGHT[section][0]
        for section in ("queues", "exchanges", "policies", "bindings", "users", "vhosts", "parameters")
    )
    for arguments in _QUEUE_ARGUMENTS:
        yield f"queue with {json.dumps(arguments)}", "queues", [queue | {"arguments": arguments}]
    for arguments in (
        {"alternate-exchange": 5},
        {"alternate-exchange": "w"},
        {"alternate-exchange": "none"},
        {"x": None},
    ):
        yield f"exchange with {json.dumps(arguments)}", "exchanges", [exchange | {"arguments": arguments}]
    for kind in ("x-consistent-hash", "x-delayed-message", "Topic"):
        yield f"exchange of type {kind}", "exchanges", [exchange | {"type": kind}]
    for name in ("amq.direct", "amq.w", "amq.gen-w", "w" * 256, " w", "w\n", "\u00e9"):
        yield f"exchange {name!r:.20}", "exchanges", [exchange, exchange | {"name": name}]
        yield f"queue {name!r:.20}", "queues", [queue, queue | {"name": name}]
    yield "queue twice, other arguments", "queues", [queue, queue | {"arguments": {"x-max-length": 1}}]
    yield "queue twice, other durability", "queues", [queue, queue | {"durable": False}]
    yield "exchange twice, another type", "exchanges", [exchange, exchange | {"type": "fanout"}]
    yield "user twice, other tags", "users", [user, user | {"tags": ["management"]}]
    yield "policy twice, another priority", "policies", [policy, policy | {"priority": 2}]
    for definition in _POLICIES:
        yield f"policy of {json.dumps(definition)}", "policies", [policy | {"definition": definition}]
    for pattern in ("(", "[", "*", "w" * 300):
        yield f"policy for {pattern:.9}", "policies", [policy | {"pattern": pattern}]
    for applied in ("queues", "exchanges", "streams", "Queues"):
        yield f"policy applied to {applied}", "policies", [policy | {"apply-to": applied}]
    yield "policy with apply_to", "policies", [policy | {"apply_to": "queues"}]
    for value in ({"max-queues": "9"}, {"max-queues": -1}, {"max-queues": 0}, {"max-connections": 1.5}, {"other": 1}):
        yield f"limits of a virtual host {json.dumps(value)}", "parameters", [limits | {"value": value}]
    for value in ({"max-channels": "9"}, {"max-connections": -1}, {"max-connections": 0}, {"other": 1}, [["a", 1]]):
        yield f"limits of a user {json.dumps(value)}", "users", [user | {"limits": value}]
    for value in ({"max-queues": "9"}, {"other": 1}, [["max-queues", 5]]):
        yield f"limits in the virtual host {json.dumps(value)}", "vhosts", [vhost | {"limits": value}]
    for value in ("none", "quorum", "rabbit_quorum_queue", 5):
        yield f"default type {value}", "vhosts", [vhost | {"default_queue_type": value}]
        about = {"default_queue_type": value, "description": "d", "tags": ["t"]}
        yield f"metadata {value}", "vhosts", [vhost | {"metadata": about}]
    for value in ({"description": 5}, {"tags": "a,b"}, {"tags": 5}, {"tags": [5]}, {"x": 1}):
        yield f"metadata {json.dumps(value)}", "vhosts", [vhost | {"metadata": value}]
        yield f"virtual host with {json.dumps(value)}", "vhosts", [vhost | value]
    for change in (
        *({"password": "p"}, {"password": ""}, {"password": 5}, {"password": None}, {"password_hash": "%"}),
        *({"password_hash": "aGFyZQ=="}, {"hashing_algorithm": "rabbit_password_hashing_md5"}, {"tags": "a, b"}),
        *({"tags": "policymaker,administrator"}, {"tags": ["no tag"]}, {"tags": [""]}, {"name": "w" * 256}),
    ):
        yield f"user with {json.dumps(change):.70}", "users", [user | change]
    plain = {k: v for k, v in user.items() if k not in ("password_hash", "hashing_algorithm")}
    for change in ({"password": "p"}, {"password": ""}, {"password": 5}, {"password": None}):
        yield f"user with {json.dumps(change)} alone", "users", [plain | change]
    for section in ("permissions", "topic_permissions"):
        (entry,) = RIGHT[section]
        for change in ({"user": "none"}, {"vhost": "none"}, {"read": "("}, {"write": "*"}, {"exchange": "none"}):
            yield f"{section} with {json.dumps(change)}", section, [entry | change]
    for section in ("policies", "exchanges", "queues", "bindings", "parameters"):
        (entry,) = RIGHT[section]
        yield f"{section} of no virtual host", section, [entry | {"vhost": "none"}]
        yield f"{section}, and one of no virtual host", section, [entry | {"vhost": "none"}, entry]
    for change in (
        *({"source": "none"}, {"destination": "none"}, {"destination_type": "exchange"}, {"destination_type": "Queue"}),
        *({"source": ""}, {"source": "amq.direct"}, {"routing_key": "w" * 256}, {"arguments": {"x": None}}),
        *({"destination_type": "exchange", "destination": ""}, {"properties_key": "w"}),
    ):
        yield f"binding with {json.dumps(change):.60}", "bindings", [binding | change]
    cycle = [exchange | {"name": name} for name in ("w", "w2")]
    yield (
        "exchanges in a cycle of alternates",
        "exchanges",
        [one | {"arguments": {"alternate-exchange": other["name"]}} for one, other in zip(cycle, reversed(cycle))],
    )
    for name, component, value in (
        *(("w", "shovel", {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}),),
        *(("w", "federation-upstream", {"uri": "amqp://x"}), ("w", "none", {"a": 1}), ("w", "vhost-limits", {})),
        *(("other", "vhost-limits", {"max-queues": 1}),),
    ):
        entry = {"vhost": "w", "component": component, "name": name, "value": value}
        yield f"parameter {name} of {component}", "parameters", [entry]
    value = _OPERATOR_POLICY["value"]
    assert isinstance(value, dict)
    yield "operator policy", "parameters", [_OPERATOR_POLICY]
    for change in (
        *({"pattern": "("}, {"pattern": 5}, {"apply-to": "exchanges"}, {"priority": "1"}, {"priority": 1.5}),
        *({"definition": {}}, {"definition": {"overflow": "x"}}, {"definition": {"max-length": -1}}, {"unknown": 1}),
    ):
        yield f"operator policy with {json.dumps(change)}", "parameters", [_OPERATOR_POLICY | {"value": value | change}]
    for key in value:
        left = {k: v for k, v in value.items() if k != key}
        yield f"operator policy without {key}", "parameters", [_OPERATOR_POLICY | {"value": left}]
    for name, what in (("cluster_name", "w"), ("cluster_name", 5), ("w", None), ("w", "x"), ("mqtt_port", [])):
        yield f"global {name} = {json.dumps(what)}", "global_parameters", [{"name": name, "value": what}]


_QUEUE_ARGUMENTS: tuple[dict[str, Any], ...] = (
    *({"x-message-ttl": value} for value in (-1, 0, "5", 1.5, None, 2**40, True, [1])),
    *({"x-expires": value} for value in (-1, 0, "5", 10_000)),
    *({"x-max-length": value} for value in (-1, 0, "5", 1.5)),
    *({"x-max-priority": value} for value in (-1, 0, 5, 256, "5")),
    *({"x-overflow": value} for value in ("drop-head", "x", 5, "reject-publish-dlx")),
    *({"x-queue-type": value} for value in ("quorum", "stream", "x", 5, None, "Quorum")),
    *({"x-queue-mode": value} for value in ("lazy", "x", 5)),
    *({"x-dead-letter-exchange": value} for value in ("", 5, "w")),
    *({"x-single-active-consumer": value} for value in (True, "true", 1)),
    *({"x-queue-master-locator": value} for value in ("min-masters", "x", 5)),
    {"x-dead-letter-routing-key": "k"},
    {"x-dead-letter-routing-key": "k", "x-dead-letter-exchange": "w"},
    {"x-queue-type": "quorum", "x-max-priority": 5},
    {"x-queue-type": "stream", "x-max-age": "1x"},
    {"x-queue-type": "stream", "x-max-age": "1h"},
    {"x-unknown": 1},
    {"x-unknown": {"a": [1, None, {"b": 1.5}]}},
)
_POLICIES: tuple[dict[str, Any], ...] = (
    *({"max-length": value} for value in (-1, "5", 1.5, None, 0)),
    *({"message-ttl": value} for value in (-1, "5", 2**40)),
    *({"ha-mode": value} for value in ("all", "exactly", "x", 5)),
    *({"ha-mode": "exactly", "ha-params": value} for value in (2, "2", ["a"])),
    *({"queue-mode": value} for value in ("lazy", "x")),
    *({"alternate-exchange": value} for value in ("w", 5)),
    {"unknown": 1},
    {"max-length": 5, "unknown": 1},
    {"federation-upstream-set": "all"},
    {"dead-letter-exchange": "w", "dead-letter-routing-key": 5},
)
_NAMES = {"name", "vhost", "user", "component", "source", "destination"}


def answers(api: ApiClient) -> Iterator[tuple[str, Answer]]:
    """Of each case. Its names are its own, for RabbitMQ keeps some objects that cannot be deleted."""
    before = _rows(api)
    right: dict[str, set[str]] = {}
    for number, (name, document) in enumerate(cases()):
        own = f"w{number}"
        answer = api.ask("POST", "definitions", _renamed(document, "w", own))
        body = answer.json if answer.headers.get("content-type", "").startswith("application/json") else None
        reason = body.get("reason") if isinstance(body, dict) else None
        rows = _rows(api)
        there = {section: {row.replace(own, "w") for row in rows[section] - before[section]} for section in RIGHT}
        right = right or there
        changes = {
            section: {"missing": sorted(right[section] - found), "more": sorted(found - right[section])}
            for section, found in there.items()
            if found != right[section]
        }
        yield name, [answer.status, json.loads(json.dumps(reason).replace(own, "w")), changes]
        _clear(api, {section: rows[section] - before[section] for section in RIGHT})
        before = _rows(api)


def _renamed(value: Any, name: str, own: str) -> Any:
    """With each text that is the name alone changed."""
    if isinstance(value, dict):
        return {key: _renamed(one, name, own) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, name, own) for one in value]
    return own if value == name else value


def _rows(api: ApiClient) -> dict[str, set[str]]:
    """Those of an export, by section; without what each import makes anew."""
    found = api.get("definitions")
    return {section: {json.dumps(_plain(row), sort_keys=True) for row in found[section]} for section in RIGHT}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Without hashes, with empty objects as `{}`."""
    row = {key: value for key, value in row.items() if key != "password_hash"}
    for key in ("limits", "arguments", "value", "definition", "metadata"):
        if row.get(key) == []:
            row[key] = {}
    return row


def _clear(api: ApiClient, there: dict[str, set[str]]) -> None:
    """Remove what an import added."""

    def rows(section: str) -> Iterator[dict[str, str]]:
        for text in there[section]:
            row = json.loads(text)
            if all(isinstance(value, str) for key, value in row.items() if key in _NAMES):
                yield {key: quote(value, safe="") for key, value in row.items() if isinstance(value, str)}

    gone = {row["name"] for row in rows("vhosts")}
    paths = [f"vhosts/{name}" for name in sorted(gone)]
    paths += [f"users/{row['name']}" for row in rows("users")]
    paths += [f"global-parameters/{row['name']}" for row in rows("global_parameters")]
    for section, path in (
        ("queues", "queues/{vhost}/{name}"),
        ("exchanges", "exchanges/{vhost}/{name}"),
        ("policies", "policies/{vhost}/{name}"),
        ("parameters", "parameters/{component}/{vhost}/{name}"),
        ("permissions", "permissions/{vhost}/{user}"),
        ("topic_permissions", "topic-permissions/{vhost}/{user}"),
    ):
        paths += [path.format(**row) for row in rows(section) if row["vhost"] not in gone]
    for path in paths:
        api.ask("DELETE", path)
