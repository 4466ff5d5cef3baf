"""Exports definitions from one broker and imports them into the other, in both directions, by rabbitmqadmin."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..wire.loopback import LOOPBACK
from .brokers import HttpBroker, http_broker
from .http import ask
from .results import Result, Run

#: The objects that are declared on the first broker.
OBJECTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("vhosts/moved", {"description": "from there", "tags": "a,b"}),
    ("users/mover", {"password": "secret", "tags": "monitoring,policymaker"}),
    ("permissions/moved/mover", {"configure": "^m", "write": ".*", "read": ""}),
    ("permissions/moved/guest", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("topic-permissions/moved/mover", {"exchange": "amq.topic", "write": "^a", "read": ".*"}),
    ("exchanges/moved/topics", {"type": "topic", "durable": True}),
    ("exchanges/moved/inner", {"type": "headers", "internal": True, "arguments": {"alternate-exchange": "topics"}}),
    ("queues/moved/typed", {"durable": True, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 3}}),
    ("queues/moved/bounded", {"durable": True, "arguments": {"x-max-length": 7, "x-dead-letter-exchange": "topics"}}),
    ("queues/moved/ranked", {"durable": False, "arguments": {"x-max-priority": 5, "x-message-ttl": 60000}}),
    ("queues/moved/log", {"durable": True, "arguments": {"x-queue-type": "stream", "x-max-age": "1D"}}),
    ("policies/moved/lengths", {"pattern": "^b", "definition": {"max-length": 9}, "priority": 2, "apply-to": "queues"}),
    ("operator-policies/moved/top", {"pattern": ".*", "definition": {"max-length": 99}, "apply-to": "queues"}),
    ("vhost-limits/moved/max-queues", {"value": 50}),
    ("user-limits/mover/max-connections", {"value": 5}),
    ("parameters/federation-upstream/moved/up", {"value": {"uri": "amqp://nowhere", "expires": 3600000}}),
    ("global-parameters/colour", {"value": {"is": ["blue", 1, 2.5, None]}}),
)
BINDINGS = (
    ("bindings/moved/e/topics/q/typed", {"routing_key": "a.#", "arguments": {}}),
    ("bindings/moved/e/topics/q/bounded", {"routing_key": "sp ace~%2F", "arguments": {}}),
    ("bindings/moved/e/inner/q/ranked", {"routing_key": "", "arguments": {"x-match": "all", "n": 1, "t": {"u": "v"}}}),
    ("bindings/moved/e/topics/e/inner", {"routing_key": "e2e", "arguments": {}}),
)
#: Predeclared exchanges.
PREDECLARED = ("amq.", "leveret.control")
#: List of the API -> the fields that must be the same afterwards.
SHOWN: dict[str, tuple[str, ...]] = {
    "vhosts/moved": ("name", "description", "tags"),
    "users/mover": ("name", "tags", "password_hash", "hashing_algorithm", "limits"),
    "permissions/moved/mover": ("configure", "write", "read"),
    "topic-permissions/moved/mover": ("exchange", "write", "read"),
    "exchanges/moved": ("name", "type", "durable", "auto_delete", "internal", "arguments"),
    "queues/moved": ("name", "durable", "auto_delete", "arguments", "type"),
    "bindings/moved": ("source", "destination", "destination_type", "routing_key", "arguments"),
    "policies/moved": ("name", "pattern", "definition", "priority", "apply-to"),
    "operator-policies/moved": ("name", "pattern", "definition", "priority", "apply-to"),
    "vhost-limits/moved": ("vhost", "value"),
    "parameters/federation-upstream/moved": ("name", "value"),
    "global-parameters/colour": ("name", "value"),
}


def run_exchange(first: HttpBroker, directory: Path, work: Path, *, admin: str, other: str) -> Run:
    """Export from `first`, and import into a fresh `other`. Each kind of object is a check."""
    for path, body in OBJECTS:
        ask(first.url, "PUT", path, body)
    for path, body in BINDINGS:
        ask(first.url, "POST", path, body)
    run, file = Run(), directory / "definitions.json"
    _admin(admin, first, "export", file)
    with http_broker(other) as second:
        try:
            _admin(admin, second, "import", file)
        except subprocess.CalledProcessError as error:
            run.results["import"] = Result(False, reason=str(error.output)[-300:])
            return run
        run.results["import"] = Result(True)
        for path, fields in SHOWN.items():
            wanted, got = _rows(first, path, fields), _rows(second, path, fields)
            same = wanted == got
            text = "" if same else f"exported {wanted}, imported {got}"
            run.results[path] = Result(same and bool(wanted), reason=text[:600])
    return run


def _admin(program: str, at: HttpBroker, verb: str, file: Path) -> None:
    command = [sys.executable, program, "-H", LOOPBACK, "-P", str(at.management), verb, str(file)]
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _rows(at: HttpBroker, path: str, fields: tuple[str, ...]) -> list[str]:
    answer = json.loads(ask(at.url, "GET", path))
    rows = answer if isinstance(answer, list) else [answer]
    rows = [
        row
        for row in rows
        if not (path.startswith("exchanges/") and (not row["name"] or row["name"].startswith(PREDECLARED)))
    ]
    return sorted(json.dumps({field: row.get(field) for field in fields}, sort_keys=True) for row in rows)
