"""Earlier versions of policies, users and limits: each change with its time, its command and its user.

The broker is compared before and after each step of a command, so an import or a reload is recorded like a single
change. The records are parameters without a virtual host, so that they outlive a restart. A version has the values
before and after a change; restoring it puts the earlier value in force. Source: management page 15, 20.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ..engine import Broker, User, VirtualHostLimits
from .command_error import CommandError

#: The component of the parameters that hold versions, and the maximum number of versions; older ones are forgotten.
VERSIONS, VERSIONS_MAX = "versions", 1000
#: Maximum octets of all versions as JSON. Beyond it the object with the most octets loses versions: a user with
#: permissions in many virtual hosts has long ones.
OCTETS_MAX = 4 * 1024 * 1024
POLICY, OPERATOR_POLICY, USER, LIMITS = "policy", "operator policy", "user", "limits"
#: (kind, virtual host, name)
Key = tuple[str, str, str]
_SECRETS = ("password_hash", "hashing_algorithm")


class Versions:
    """The recorded changes of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        found = [value for (vhost, component, _), value in broker.parameters if not vhost and component == VERSIONS]
        self._rows: dict[int, dict[str, Any]] = {row["id"]: row for row in found if isinstance(row, dict)}
        self._last = max(self._rows, default=0)
        self._last_batch = max((row["batch"] for row in self._rows.values()), default=0)
        self._sizes = {id_: _size(row) for id_, row in self._rows.items()}
        self._octets = sum(self._sizes.values())
        self._note_values()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All versions, the newest first."""
        yield from reversed(list(self._rows.values()))

    def find(self, id_: int) -> dict[str, Any]:
        """One version. Raises: CommandError."""
        if id_ not in self._rows:
            raise CommandError(f"no version {id_}: at most the last {VERSIONS_MAX} are kept")
        return self._rows[id_]

    def now(self, kind: str, vhost: str, name: str) -> Any:
        """The value in force; None: there is no such object."""
        broker = self._broker
        if kind in (POLICY, OPERATOR_POLICY):
            policy = broker.context.policies.find(vhost, name, is_operator=kind == OPERATOR_POLICY)
            return None if policy is None else policy.value()
        if kind == USER:
            user = broker.users.find(name)
            return None if user is None else _user_value(user)
        host = broker.virtual_hosts.get(vhost)
        return None if host is None else _limits_value(host.context.limits)

    def _note_values(self) -> None:
        """Note the values in force. They are replaced as a whole, so another identity is a change."""
        broker = self._broker
        self._policies = broker.context.policies
        self._counts = broker.users.changes, broker.virtual_hosts.changes
        self._users = {user.name: user for user in broker.users}
        self._limits = {name: vhost.context.limits for name, vhost in broker.virtual_hosts.items()}

    def note(self, command: str, caller: str, batch: int) -> None:
        """Record the changes since the last call. `batch`: the common number of all changes of one command."""
        broker = self._broker
        counts = broker.users.changes, broker.virtual_hosts.changes
        if counts == self._counts and self._policies is broker.context.policies:
            return
        old_policies, old_users, old_limits = self._policies, self._users, self._limits
        self._note_values()
        if self._policies is not old_policies:
            for policy in self._policies.changed_since(old_policies):
                old = old_policies.find(policy.vhost, policy.name, is_operator=policy.is_operator)
                kind = OPERATOR_POLICY if policy.is_operator else POLICY
                value = None if old is None else old.value()
                self._record((kind, policy.vhost, policy.name), value, command, caller, batch)
        for name in old_users.keys() | self._users.keys():
            user = old_users.get(name)
            if user is not self._users.get(name):
                self._record((USER, "", name), None if user is None else _user_value(user), command, caller, batch)
        for name in old_limits.keys() & self._limits.keys():
            if old_limits[name] is not self._limits[name]:
                self._record((LIMITS, name, ""), _limits_value(old_limits[name]), command, caller, batch)

    def next_batch(self) -> int:
        """A new number, for the changes of one command."""
        self._last_batch += 1
        return self._last_batch

    def _record(self, key: Key, before: Any, command: str, caller: str, batch: int) -> None:
        after = self.now(*key)
        if before == after:
            return
        kind, vhost, name = key
        self._last += 1
        row = {
            "id": self._last,
            "batch": batch,
            "at_ms": self._broker.context.clock.wall_ms(),
            "by": caller,
            "command": command,
            "kind": kind,
            "vhost": vhost,
            "name": name,
            "before": before,
            "after": after,
        }
        self._rows[self._last] = row
        self._broker.parameters.set(_identity(self._last), row)
        self._sizes[self._last] = _size(row)
        self._octets += self._sizes[self._last]
        while len(self._rows) > VERSIONS_MAX:
            self._forget(next(iter(self._rows)))
        while self._octets > OCTETS_MAX and len(self._rows) > 1:
            self._forget(self._oldest_of_the_longest())

    def _forget(self, id_: int) -> None:
        del self._rows[id_]
        self._octets -= self._sizes.pop(id_)
        self._broker.parameters.remove(_identity(id_))

    def _oldest_of_the_longest(self) -> int:
        """The oldest version of the object with the most octets, but never the newest version of all."""
        octets: Counter[Key] = Counter()
        for id_, row in self._rows.items():
            octets[_key(row)] += self._sizes[id_]
        longest = octets.most_common(1)[0][0]
        found = next(id_ for id_, row in self._rows.items() if _key(row) == longest)
        return found if found != self._last else next(iter(self._rows))


def shown(row: Mapping[str, Any], *, is_current: bool) -> dict[str, Any]:
    """A version without secrets. `is_current`: whether the object was not changed since."""
    before, after = row["before"] or {}, row["after"] or {}
    differs = [
        {"key": key, "now": before.get(key), "then": after.get(key)}
        for key in dict.fromkeys([*before, *after])
        if key not in _SECRETS and before.get(key) != after.get(key)
    ]
    if any(before.get(key) != after.get(key) for key in _SECRETS):
        differs.append({"key": "password", "now": _has_password(before), "then": _has_password(after)})
    change = "added" if row["before"] is None else "deleted" if row["after"] is None else "changed"
    plain = {key: value for key, value in row.items() if key not in ("before", "after")}
    return {**plain, "change": change, "differs": differs, "is_current": is_current}


def _has_password(value: Mapping[str, Any]) -> str:
    return "set" if value.get("password_hash") else "none"


def _identity(id_: int) -> tuple[str, str, str]:
    return ("", VERSIONS, f"{id_:012}")


def _key(row: Mapping[str, Any]) -> Key:
    return row["kind"], row["vhost"], row["name"]


def _size(row: Mapping[str, Any]) -> int:
    import json

    return len(json.dumps(row))


def _limits_value(limits: VirtualHostLimits) -> dict[str, Any]:
    return {
        "max-connections": limits.max_connections,
        "max-queues": limits.max_queues,
        "default-queue-type": limits.default_queue_type,
    }


def _user_value(user: User) -> dict[str, Any]:
    return {
        "tags": list(user.tags),
        "max-connections": user.max_connections,
        "max-channels": user.max_channels,
        "loopback-only": user.loopback_only,
        "permissions": None
        if user.permissions is None
        else {
            vhost: {"configure": one.grant.configure, "write": one.grant.write, "read": one.grant.read}
            for vhost, one in user.permissions.items()
        },
        "topics": [[vhost, exchange, topic.write, topic.read] for vhost, exchange, topic in user.topics()],
        "password_hash": user.password.text(),
        "hashing_algorithm": user.password.algorithm,
    }
