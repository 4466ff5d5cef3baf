"""Compares the permissions and topic permissions of a user after setting and clearing them in several orders."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path
from typing import Any

from .brokers import HttpBroker
from .http import ask
from .results import Result, Run

_USER = ("PUT", "users/u", {"password": "secret", "tags": ""})
_ALL = {"configure": ".*", "write": ".*", "read": ".*"}
_VHOST: tuple[str, str, Any] = ("PUT", "vhosts/v", {})
_PERMIT, _FORBID = ("PUT", "permissions/v/u", _ALL), ("DELETE", "permissions/v/u", None)
_TOPIC = ("PUT", "topic-permissions/v/u", {"exchange": "amq.topic", "write": "^a", "read": ".*"})
_OTHER_TOPIC = ("PUT", "topic-permissions/v/u", {"exchange": "missing", "write": "^b", "read": ""})
_NO_TOPICS = ("DELETE", "topic-permissions/v/u", None)

#: Description of a step -> its request. Steps follow each other.
STEPS: dict[str, tuple[str, str, Any]] = {
    "virtual host": _VHOST,
    "user": _USER,
    "topic permissions without permissions": _TOPIC,
    "a second exchange": _OTHER_TOPIC,
    "permissions after topic permissions": _PERMIT,
    "permissions cleared": _FORBID,
    "permissions cleared again": _FORBID,
    "topic permissions changed meanwhile": _TOPIC,
    "permissions set again": _PERMIT,
    "one exchange cleared": ("DELETE", "topic-permissions/v/u/missing", None),
    "topic permissions cleared": _NO_TOPICS,
    "topic permissions cleared again": _NO_TOPICS,
    "topic permissions set again": _TOPIC,
    "the virtual host deleted": ("DELETE", "vhosts/v", None),
    "a virtual host of that name": _VHOST,
    "topic permissions alone": _TOPIC,
    "the virtual host deleted with those": ("DELETE", "vhosts/v", None),
    "another one of that name": _VHOST,
    "permissions there": _PERMIT,
    "topic permissions there": _TOPIC,
    "the user deleted": ("DELETE", "users/u", None),
    "a user of that name": _USER,
    "topic permissions of the new user": _TOPIC,
    "the user deleted with those": ("DELETE", "users/u", None),
    "another user of that name": _USER,
}


def run_permissions(broker: HttpBroker, directory: Path, work: Path) -> Run:
    """Run the steps. Each is a check: its status, and the permissions and topic permissions after it."""
    run = Run()
    for number, (name, (method, path, body)) in enumerate(STEPS.items(), 1):
        status = _status(broker, method, path, body)
        shown = {what: _shown(broker, what) for what in ("permissions", "topic-permissions")}
        run.results[f"{number}. {name}"] = Result(True, {"done": status, **shown})
    return run


def _status(broker: HttpBroker, method: str, path: str, body: Any) -> str:
    try:
        ask(broker.url, method, path, body)
    except urllib.error.HTTPError as error:
        return str(error.code)
    return "done"


def _shown(broker: HttpBroker, what: str) -> list[dict[str, str]]:
    """The permissions of the user."""
    rows: list[dict[str, str]] = json.loads(ask(broker.url, "GET", what))
    return sorted((row for row in rows if row["user"] == "u"), key=lambda row: row.get("exchange", ""))
