"""The difference between a document of definitions and what a broker has, object by object.

An import replaces users, policies, limits and parameters as a whole. So their states before and after it are compared,
also in keys that the document leaves out. Existing queues, exchanges and bindings stay as they are. Of passwords, also
those in URIs of parameters, it is only shown that they differ. Source: management page 7.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ..engine import Broker, VirtualHostLimits
from .definitions_reader import LIMITS_COMPONENT, OPERATOR_POLICY_COMPONENT, Plan
from .parameters import ABOUT, about_vhost
from .steps import VALUES_A_STEP, Steps

#: Maximum objects in an answer, and maximum characters of a value in it.
LISTED_MAX, SHOWN_MAX = 500, 200
#: Section -> the keys that identify an object in it.
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
#: Keys and values of an object.
Facts = Mapping[str, Any]


def difference(broker: Broker, exported: Mapping[str, Any], given: Any, plan: Plan) -> Steps:
    """Compare what the broker has, `exported`, with the document `given`, whose import would follow `plan`.

    Returns {"sections": [{"section", "new", "changed", "stays", "same"}], "objects": [{"section", "name", "state",
    "differs": [{"key", "now", "then"}]}], "unlisted": number}. "objects" omits equal objects, and `LISTED_MAX` others
    are listed at most: "unlisted" counts the rest of these. Entries that are not imported do not count.
    """
    sections: list[dict[str, Any]] = []
    objects: list[dict[str, Any]] = []
    unlisted = 0
    compared = _Compared(broker, plan)
    for section, keys in KEYS.items():
        rows = given.get(section)
        if not isinstance(rows, list) or not rows:
            continue
        known = {_name(one, keys): one for one in exported.get(section, ())}
        counts = dict.fromkeys(("new", "changed", "stays", "same"), 0)
        for number, row in enumerate(rows, 1):
            if number % VALUES_A_STEP == 0:
                yield
            if f"{section}[{number - 1}]" in plan.skipped:
                continue
            now, then = compared.facts(section, row) or (known.get(_name(row, keys)), row)
            differs = [] if now is None else list(_differing(now, then, keys))
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
    """The keys whose values differ."""
    for key, value in then.items():
        if key not in keys and key in now and not _is_same(now[key], value):
            yield {"key": key, "now": _shown(now[key]), "then": _shown(value)}


def _is_same(now: Any, then: Any) -> bool:
    """Whether both are the same JSON; Python's == takes true for 1."""
    import json

    return now == then and json.dumps(now, sort_keys=True) == json.dumps(then, sort_keys=True)


class _Compared:
    """The broker's objects now and after the import."""

    def __init__(self, broker: Broker, plan: Plan) -> None:
        self._broker = broker
        self._plan = plan
        self._policies = {policy.identity: policy for policy in plan.policies}

    def facts(self, section: str, row: Mapping[str, Any]) -> tuple[Facts | None, Facts] | None:
        """Facts of an object now (None: there is none) and after the import; None: they are the document's own keys."""
        name, vhost = str(row.get("name")), str(row.get("vhost"))
        if section == "users":
            return self._user(name)
        if section == "vhosts":
            return self._vhost(name, row)
        if section == "policies":
            return self._policy((vhost, False, name))
        if section == "parameters" and row.get("component") == OPERATOR_POLICY_COMPONENT:
            return self._policy((vhost, True, name))
        if section == "parameters" and row.get("component") == LIMITS_COMPONENT:
            return self._limits(vhost)
        if section == "parameters":
            return self._parameter((vhost, str(row.get("component")), name))
        if section == "global_parameters":
            return self._parameter(("", "", name))
        return None

    def _user(self, name: str) -> tuple[Facts | None, Facts]:
        before, after = self._broker.users.find(name), self._plan.users[name]
        password = self._plan.passwords.get(name)
        if before is None:
            return None, {}
        now, then = (
            {
                "tags": list(one.tags),
                "max-connections": one.max_connections,
                "max-channels": one.max_channels,
                "password": "set" if one.password.octets else "none",
            }
            for one in (before, after)
        )
        is_same = before.password == after.password if password is None else before.password.is_right(password)
        then["password"] = now["password"] if is_same else "another" if password or after.password.octets else "none"
        return now, then

    def _vhost(self, name: str, row: Mapping[str, Any]) -> tuple[Facts | None, Facts]:
        host, plan = self._broker.virtual_hosts.get(name), self._plan
        if host is None:
            return None, {}
        limits, about = host.context.limits, about_vhost(self._broker, name)
        now = {**about, "default_queue_type": limits.default_queue_type, **_limit_facts(limits)}
        then = {**now, **plan.parameters.get((name, "", ABOUT), {})}
        if name in plan.default_types:
            then["default_queue_type"] = plan.default_types[name]
        if row.get("limits") and name in plan.limits:
            then |= _limit_facts(plan.limits[name])
        return now, then

    def _limits(self, vhost: str) -> tuple[Facts | None, Facts]:
        host = self._broker.virtual_hosts.get(vhost)
        return None if host is None else _limit_facts(host.context.limits), _limit_facts(self._plan.limits[vhost])

    def _policy(self, identity: tuple[str, bool, str]) -> tuple[Facts | None, Facts]:
        vhost, is_operator, name = identity
        now = self._broker.context.policies.find(vhost, name, is_operator=is_operator)
        return None if now is None else now.value(), self._policies[identity].value()

    def _parameter(self, identity: tuple[str, str, str]) -> tuple[Facts | None, Facts]:
        now = {"value": self._broker.parameters.get(identity)} if identity in self._broker.parameters else None
        return now, {"value": self._plan.parameters[identity]}


def _limit_facts(limits: VirtualHostLimits) -> dict[str, Any]:
    return {"max-connections": limits.max_connections, "max-queues": limits.max_queues}


def _shown(value: Any) -> str:
    """Text of a value, perhaps cut; without the passwords of its URIs, such as a shovel has."""
    import json

    from ..journal.recording.access_records import fields_without_secrets, parameter_octets

    value = fields_without_secrets(parameter_octets(value))["value"]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
