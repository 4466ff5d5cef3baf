"""The difference between a document of definitions and what a broker has, object by object.

Users, policies, limits and parameters of the document replace those of the same name; queues, exchanges and bindings
that are there stay as they are. Secrets are never shown, only whether they differ. Source: management page 7.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from .steps import VALUES_A_STEP, Steps

#: Objects that an answer lists, and characters of a value in it.
LISTED_MAX, SHOWN_MAX = 500, 200
#: Section -> what names an object in it.
KEYS: Mapping[str, tuple[str, ...]] = {
    "users": ("name",),
    "vhosts": ("name",),
    "permissions": ("user", "vhost"),
    "topic_permissions": ("user", "vhost", "exchange"),
    "parameters": ("component", "vhost", "name"),
    "global_parameters": ("name",),
    "policies": ("vhost", "name"),
    "exchanges": ("vhost", "name"),
    "queues": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination_type", "destination", "routing_key"),
}
#: Sections whose objects are never replaced.
STAYING = frozenset({"exchanges", "queues", "bindings"})
_SECRETS = frozenset({"password", "password_hash"})


def difference(here: Mapping[str, Any], given: Any) -> Steps:
    """Returns {"sections": [{"section", "new", "changed", "stays", "same"}], "objects": [{"section", "name", "state",
    "differs": [{"key", "now", "then"}]}], "unlisted": number of other objects}; "objects" has none that are the same.
    """
    sections: list[dict[str, Any]] = []
    objects: list[dict[str, Any]] = []
    unlisted = 0
    for section, keys in KEYS.items():
        rows = given.get(section)
        if not isinstance(rows, list) or not rows:
            continue
        known = {_name(one, keys): one for one in here.get(section, ())}
        counts = dict.fromkeys(("new", "changed", "stays", "same"), 0)
        for number, row in enumerate(rows, 1):
            if number % VALUES_A_STEP == 0:
                yield
            if not isinstance(row, dict):
                continue
            now = known.get(_name(row, keys))
            differs = [] if now is None else list(_differing(now, row, keys))
            state = "new" if now is None else "same" if not differs else "stays" if section in STAYING else "changed"
            counts[state] += 1
            if state == "same":
                continue
            if len(objects) < LISTED_MAX:
                objects.append({"section": section, "name": _name(row, keys), "state": state, "differs": differs})
            else:
                unlisted += 1
        sections.append({"section": section, **counts})
    return {"sections": sections, "objects": objects, "unlisted": unlisted}


def _name(row: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(row.get(key, "/" if key == "vhost" else "")) for key in keys)


def _differing(now: Mapping[str, Any], then: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The keys of the document with other values."""
    for key, value in then.items():
        if key in keys or key not in now or _plain(now[key]) == _plain(value):
            continue
        if key in _SECRETS:
            yield {"key": "password", "now": "set" if now[key] else "none", "then": "another" if value else "none"}
        else:
            yield {"key": key, "now": _shown(now[key]), "then": _shown(value)}


def _plain(value: Any) -> Any:
    """Tags as a list of words; text with commas is RabbitMQ's older form."""
    if isinstance(value, str) and "," in value:
        return [one.strip() for one in value.split(",")]
    return [value] if isinstance(value, str) else value


def _shown(value: Any) -> str:
    import json

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
