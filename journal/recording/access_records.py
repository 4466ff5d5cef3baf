"""Users, policies, parameters and limits in `declared` records: JSON in place of an argument table.

A user with its permissions is one record; so are a policy, a parameter, and a virtual host with its limits. Of the
password of a user only the salted hash is recorded; URIs in parameters have theirs in clear.
"""

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ...engine import Grant, Permissions, TopicPermission, User, VirtualHostLimits, read_password_hash
from ...settings import Policy, make_policy
from ..format.errors import BadRecord
from ..format.record import OPERATOR_POLICY

#: A password in the query of a URI, as that of a TLS key.
_PASSWORD_IN_QUERY = re.compile(r"([?&;]password=)[^&;#]*", re.IGNORECASE)
#: What may precede the last "@" of a URI without a password: host, port and the beginning of a path.
_HOST_AND_PATH = re.compile(r"[^:@/?#]*:[0-9]{0,5}[/?#][^:@]*")


def user_octets(user: User) -> bytes:
    """JSON of a user."""
    grants = None
    if user.permissions is not None:
        grants = {vhost: _grant_value(permissions.grant) for vhost, permissions in user.permissions.items()}
    value = {
        "password_hash": user.password.text(),
        "hashing_algorithm": user.password.algorithm,
        "tags": list(user.tags),
        "loopback_only": user.loopback_only,
        "max_connections": user.max_connections,
        "max_channels": user.max_channels,
        "permissions": grants,
        # The key keeps the older name of the attribute: files have it.
        "waiting_topics": {vhost: _topics_value(topics) for vhost, topics in user.topics_before_permissions.items()},
    }
    return _octets(value)


def user_of(name: str, octets: bytes) -> User:
    """Inverse of `user_octets`. Raises: BadRecord."""
    value = _value(octets)
    try:
        permissions = value["permissions"]
        return User(
            name,
            read_password_hash(value["password_hash"], value["hashing_algorithm"]),
            tuple(value["tags"]),
            bool(value["loopback_only"]),
            None if permissions is None else _permissions(name, permissions),
            value["max_connections"],
            value["max_channels"],
            topics_before_permissions=MappingProxyType(
                {vhost: _topics(one) for vhost, one in value.get("waiting_topics", {}).items()}
            ),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadRecord(f"the record of a user cannot be read: {type(error).__name__}") from None


def _grant_value(grant: Grant) -> dict[str, Any]:
    topics = _topics_value(grant.topics)
    return {"configure": grant.configure, "write": grant.write, "read": grant.read, "topics": topics}


def _topics_value(topics: Mapping[str, TopicPermission]) -> dict[str, Any]:
    return {exchange: [topic.write, topic.read] for exchange, topic in topics.items()}


def _topics(value: dict[str, Any]) -> MappingProxyType[str, TopicPermission]:
    return MappingProxyType({exchange: TopicPermission(write, read) for exchange, (write, read) in value.items()})


def _permissions(user: str, value: dict[str, Any]) -> MappingProxyType[str, Permissions]:
    found: dict[str, Permissions] = {}
    for vhost, one in value.items():
        grant = Grant(one["configure"], one["write"], one["read"], _topics(one["topics"]))
        found[vhost] = Permissions(grant, user=user, vhost=vhost)
    return MappingProxyType(found)


def policy_octets(policy: Policy) -> bytes:
    """JSON of a policy."""
    return _octets(
        {
            "pattern": policy.pattern,
            "apply-to": policy.apply_to,
            "priority": policy.priority,
            "definition": dict(policy.definition),
        }
    )


def policy_of(kind: int, vhost: str, name: str, octets: bytes) -> Policy:
    """Inverse of `policy_octets`. Raises: BadRecord."""
    value = _value(octets)
    try:
        return make_policy(
            name,
            vhost,
            value["pattern"],
            value["definition"],
            apply_to=value["apply-to"],
            priority=value["priority"],
            is_operator=kind == OPERATOR_POLICY,
            is_stored=True,
        )
    except (KeyError, ValueError) as error:
        raise BadRecord(f"the record of a policy cannot be read: {error}") from None


def limits_octets(limits: VirtualHostLimits) -> bytes:
    """JSON of the limits and the default queue type that operators set for a virtual host.

    Empty: none are set, or the configuration sets them.
    """
    if limits.is_configured or limits == VirtualHostLimits():
        return b""
    limited = {"max-connections": limits.max_connections, "max-queues": limits.max_queues}
    if limits.default_queue_type is not None:
        return _octets({**limited, "default-queue-type": limits.default_queue_type})
    return _octets(limited)


def limits_of(octets: bytes) -> VirtualHostLimits:
    """Inverse of `limits_octets`. Raises: BadRecord."""
    if not octets:
        return VirtualHostLimits()
    value = _value(octets)
    return VirtualHostLimits(value.get("max-connections"), value.get("max-queues"), value.get("default-queue-type"))


def parameter_name(component: str, name: str) -> str:
    """Component and name in one name, as a JSON list, because either may hold any character."""
    return json.dumps([component, name])


def parameter_names(name: str) -> tuple[str, str]:
    """Inverse of `parameter_name`: component and name. Raises: BadRecord."""
    try:
        component, own = json.loads(name)
    except (ValueError, TypeError, RecursionError):
        component = own = None
    if not isinstance(component, str) or not isinstance(own, str):
        raise BadRecord("the name of a parameter is no JSON list of component and name")
    return component, own


def parameter_octets(value: object) -> bytes:
    """JSON of a parameter's value."""
    return json.dumps({"value": value}).encode()  # ASCII only: a lone surrogate cannot be encoded as UTF-8


def parameter_of(octets: bytes) -> object:
    """Inverse of `parameter_octets`. Raises: BadRecord."""
    return _value(octets).get("value")


def fields_without_secrets(octets: bytes) -> dict[str, Any]:
    """The fields of a record that may be shown: without password hashes, also in the earlier versions of users that a
    parameter holds, and without passwords in URIs. Raises: BadRecord.
    """
    return _value(octets, _without_secrets) if octets else {}


def _without_secrets(value: dict[str, Any]) -> dict[str, Any]:
    return {key: _without_password(one) for key, one in value.items() if key != "password_hash"}


def _without_password(value: object) -> object:
    """The URI of a federation upstream or a shovel, or its list of URIs, without passwords; else the value."""
    if isinstance(value, list):
        return [_without_password(one) for one in value]
    return _without_uri_passwords(value) if isinstance(value, str) and "://" in value else value


def _without_uri_passwords(uri: str) -> str:
    """The URI without all that may be part of a password, which may have characters that should have been escaped.

    It takes linear time, since the length of a URI has no limit.
    """
    scheme, separator, rest = uri.partition("://")
    rest = _PASSWORD_IN_QUERY.sub(lambda found: found[1] + ("***@" if "@" in found[0] else "***"), rest)
    before, at, host = rest.rpartition("@")
    user, colon, _ = before.partition(":")
    if colon and not _HOST_AND_PATH.fullmatch(before):
        rest = f"{user}:***{at}{host}"
    return f"{scheme}{separator}{rest}"


def _octets(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True).encode()


def _value(octets: bytes, each: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> dict[str, Any]:
    """The JSON object. `each`: replaces each object in it, from the inside out."""
    try:
        value = json.loads(octets, object_hook=each)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BadRecord("a record of a user, policy, parameter or limits is no JSON object")
    return value
