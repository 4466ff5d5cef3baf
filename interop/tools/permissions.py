"""Permissions and topic permissions of a user, set and cleared in any order: what of each is left after each step."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path
from typing import Any

from .asking import ask
from .places import Place
from .results import Result, Run

_USER = ("PUT", "users/u", {"password": "secret", "tags": ""})
_ALL = {"configure": ".*", "write": ".*", "read": ".*"}
_VHOST: tuple[str, str, Any] = ("PUT", "vhosts/v", {})
_PERMIT, _FORBID = ("PUT", "permissions/v/u", _ALL), ("DELETE", "permissions/v/u", None)
_TOPIC = ("PUT", "topic-permissions/v/u", {"exchange": "amq.topic", "write": "^a", "read": ".*"})
_OTHER_TOPIC = ("PUT", "topic-permissions/v/u", {"exchange": "missing", "write": "^b", "read": ""})
_NO_TOPICS = ("DELETE", "topic-permissions/v/u", None)

#: What a step shows -> the request. Each goes on from where the one before ended.
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


def run_permissions(place: Place, directory: Path, work: Path) -> Run:
    """Each step is a check: its status, and the permissions and topic permissions that are there then."""
    run = Run()
    for number, (name, (method, path, body)) in enumerate(STEPS.items(), 1):
        status = _status(place, method, path, body)
        shown = {what: _shown(place, what) for what in ("permissions", "topic-permissions")}
        run.results[f"{number}. {name}"] = Result(True, {"done": status, **shown})
    return run


def _status(place: Place, method: str, path: str, body: Any) -> str:
    try:
        ask(place.url, method, path, body)
    except urllib.error.HTTPError as error:
        return str(error.code)
    return "done"


def _shown(place: Place, what: str) -> list[dict[str, str]]:
    """Those of the user."""
    rows: list[dict[str, str]] = json.loads(ask(place.url, "GET", what))
    return sorted((row for row in rows if row["user"] == "u"), key=lambda row: row.get("exchange", ""))
