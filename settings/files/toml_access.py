"""`[[user]]`, `[[vhost]]`, `[[policy]]` and `[[operator-policy]]` of native configuration files.

Source: interfaces page, "Configuration keys"; behaviour page 3.12.
"""

from typing import Any

from ...expressions.patterns.pattern_syntax import PatternFault
from ...expressions.patterns.patterns import permission_pattern
from ..declared.declarations import (
    USER_TAGS,
    LimitsDeclaration,
    PermissionDeclaration,
    TopicPermissionDeclaration,
    UserDeclaration,
)
from ..policies.policies import APPLY_TO, PolicyFault, make_policy
from ..policies.policy_keys import POLICY_KEYS
from ..values import INT_MAX, LONG_MAX, boolean, integer, name_text, text, texts, word
from .toml_source import Path, TomlSource

ALGORITHMS = tuple(f"rabbit_password_hashing_{name}" for name in ("sha256", "sha512", "md5"))
USER_KEYS = (
    "name",
    "password",
    "password-hash",
    "hashing-algorithm",
    "tags",
    "loopback-only",
    "max-connections",
    "max-channels",
    "permission",
    "topic-permission",
)
VHOST_KEYS = ("name", "max-connections", "max-queues", "default-queue-type")
_LIMIT = integer(-1, INT_MAX)


def user_tags(value: object) -> frozenset[str]:
    """A list of tags, or one text with commas or spaces between them."""
    words = [one for part in texts(value) for one in part.replace(",", " ").split()]
    if any(one not in USER_TAGS for one in words):
        raise ValueError(f"a list of {', '.join(USER_TAGS)}")
    return frozenset(words)


def pattern_text(value: object) -> str:
    """A permission pattern; empty text matches no name."""
    pattern = text(value)
    try:
        permission_pattern(pattern)
    except PatternFault as fault:
        raise ValueError(f"a regular expression; this one {fault}") from None
    return pattern


def read_user(source: TomlSource, path: Path, item: dict[str, Any]) -> None:
    """One `[[user]]`."""
    name = source.required(path, item, "name")
    _refuse_unknown(source, path, item, USER_KEYS, "[[user]]")
    if "password" in item and "password-hash" in item:
        source.draft.fault(source.at(*path, "password"), "password", "password-hash is given as well")
    secret = "password" if "password" in item else "password-hash"
    for key in ("password", "password-hash"):
        if key in item and (not isinstance(item[key], str) or not item[key]):  # never shown
            source.draft.fault(source.at(*path, key), key, "is not right, expected text that is not empty")
            item = {other: value for other, value in item.items() if other != key}
    permissions = [_permission(source, *one) for one in _tables(source, path, item, "permission")]
    topics = [_topic_permission(source, *one) for one in _tables(source, path, item, "topic-permission")]
    if name is not None:
        source.draft.add_user(
            UserDeclaration(
                name,
                item.get("password", ""),
                item.get("password-hash", ""),
                source.optional(path, item, "hashing-algorithm", word(*ALGORITHMS), ALGORITHMS[0]),
                source.optional(path, item, "tags", user_tags, frozenset()),
                source.optional(path, item, "loopback-only", boolean, False),
                _limit(source, path, item, "max-connections"),
                _limit(source, path, item, "max-channels"),
                tuple(permissions),
                tuple(topics),
                source.at(*path),
                source.at(*path, secret),
            )
        )


def read_vhost(source: TomlSource, path: Path, item: dict[str, Any]) -> None:
    """One `[[vhost]]`."""
    name = source.required(path, item, "name")
    _refuse_unknown(source, path, item, VHOST_KEYS, "[[vhost]]")
    limits = LimitsDeclaration(
        _limit(source, path, item, "max-connections"),
        _limit(source, path, item, "max-queues"),
        source.optional(path, item, "default-queue-type", word("classic", "quorum", "stream"), None),
    )
    if name is not None:
        source.draft.add_vhost(name)
        source.draft.limit_vhost(source.at(*path), name, limits)


def _permission(source: TomlSource, path: Path, item: dict[str, Any]) -> PermissionDeclaration:
    _refuse_unknown(source, path, item, ("vhost", "configure", "write", "read"), "[[user.permission]]")
    configure, write, read = (
        source.optional(path, item, key, pattern_text, "") for key in ("configure", "write", "read")
    )
    return PermissionDeclaration(source.optional(path, item, "vhost", name_text, "/"), configure, write, read)


def _topic_permission(source: TomlSource, path: Path, item: dict[str, Any]) -> TopicPermissionDeclaration:
    _refuse_unknown(source, path, item, ("vhost", "exchange", "write", "read"), "[[user.topic-permission]]")
    exchange = source.required(path, item, "exchange") or ""
    write, read = (source.optional(path, item, key, pattern_text, ".*") for key in ("write", "read"))
    return TopicPermissionDeclaration(source.optional(path, item, "vhost", name_text, "/"), exchange, write, read)


def _tables(source: TomlSource, path: Path, item: dict[str, Any], key: str) -> list[tuple[Path, dict[str, Any]]]:
    tables = item.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        source.draft.fault(source.at(*path, key), key, f"expected tables [[user.{key}]]")
        return []
    return [((*path, key, index), table) for index, table in enumerate(tables)]


def _limit(source: TomlSource, path: Path, item: dict[str, Any], key: str) -> int | None:
    limit = source.optional(path, item, key, _LIMIT, -1)
    return None if limit < 0 else int(limit)


def _refuse_unknown(source: TomlSource, path: Path, item: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in item:
        if key not in known:
            source.draft.unknown(source.at(*path, key), key, where, known)


OWN_KEYS = ("name", "vhost", "pattern", "apply-to", "priority", "definition")


def read_policy(source: TomlSource, path: Path, item: dict[str, Any], *, is_operator: bool) -> None:
    """One of either table."""
    draft, where = source.draft, f"[[{path[0]}]]"
    for key in item:
        if key not in OWN_KEYS:
            draft.unknown(source.at(*path, key), key, where, OWN_KEYS)
    name = source.required(path, item, "name")
    vhost = source.optional(path, item, "vhost", name_text, "/")
    apply_to = source.optional(path, item, "apply-to", word(*APPLY_TO), "all")
    priority = source.optional(path, item, "priority", integer(-LONG_MAX, LONG_MAX), 0)
    if "pattern" not in item:
        draft.fault(source.at(*path), "pattern", f"is missing in {where}")
    pattern = source.optional(path, item, "pattern", text, None)
    definition = item.get("definition", {})
    if not isinstance(definition, dict):
        draft.wrong(source.at(*path, "definition"), "definition", definition, "a table of policy keys")
        return
    known = [key for key in POLICY_KEYS if not is_operator or POLICY_KEYS[key].is_for_operators]
    unknown = [key for key in definition if key not in known]
    for key in unknown:
        draft.unknown(source.at(*path, "definition", key), key, where, known)
    if name is None or pattern is None:
        return
    try:
        policy = make_policy(
            name,
            vhost,
            pattern,
            {key: value for key, value in definition.items() if key in known},
            apply_to=apply_to,
            priority=priority,
            is_operator=is_operator,
            origin=source.at(*path),
        )
    except PolicyFault as fault:
        key = "pattern" if str(fault).startswith("pattern") else "definition"
        if key == "definition" and len(unknown) == len(definition) > 0:
            return  # nothing is left of it, which is no other fault
        draft.fault(source.at(*path, key), key, str(fault))
    else:
        draft.add_policy(policy, source.at(*path))
