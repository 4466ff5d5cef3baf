"""`[[user]]` and `[[vhost]]` of native configuration files. Source: interfaces page, "Configuration keys"."""

from typing import TYPE_CHECKING, Any

from .access_declarations import (
    USER_TAGS,
    LimitsDeclaration,
    PermissionDeclaration,
    TopicPermissionDeclaration,
    UserDeclaration,
)
from .pattern_syntax import PatternFault
from .patterns import permission_pattern
from .toml_lines import Path
from .values import INT_MAX, boolean, integer, name_text, text, texts, word

if TYPE_CHECKING:
    from .toml_loader import Loader

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
VHOST_KEYS = ("name", "max-connections", "max-queues")
_LIMIT = integer(-1, INT_MAX)


def user_tags(value: object) -> frozenset[str]:
    """A list of tags, or one text with commas or spaces between them."""
    words = [one for said in texts(value) for one in said.replace(",", " ").split()]
    if any(one not in USER_TAGS for one in words):
        raise ValueError(f"a list of {', '.join(USER_TAGS)}")
    return frozenset(words)


def pattern_text(value: object) -> str:
    """A permission pattern; empty text matches no name."""
    said = text(value)
    try:
        permission_pattern(said)
    except PatternFault as fault:
        raise ValueError(f"a regular expression; this one {fault}") from None
    return said


def read_user(loader: "Loader", path: Path, item: dict[str, Any]) -> None:
    """One `[[user]]`."""
    name = loader.required(path, item, "name")
    _refuse_unknown(loader, path, item, USER_KEYS, "[[user]]")
    if "password" in item and "password-hash" in item:
        loader.draft.fault(loader.at(*path, "password"), "password", "password-hash is given as well")
    secret = "password" if "password" in item else "password-hash"
    for key in ("password", "password-hash"):
        if key in item and (not isinstance(item[key], str) or not item[key]):  # never shown
            loader.draft.fault(loader.at(*path, key), key, "is not right, expected text that is not empty")
            item = {other: value for other, value in item.items() if other != key}
    permissions = [_permission(loader, *one) for one in _tables(loader, path, item, "permission")]
    topics = [_topic_permission(loader, *one) for one in _tables(loader, path, item, "topic-permission")]
    if name is not None:
        loader.draft.add_user(
            UserDeclaration(
                name,
                item.get("password", ""),
                item.get("password-hash", ""),
                loader.optional(path, item, "hashing-algorithm", word(*ALGORITHMS), ALGORITHMS[0]),
                loader.optional(path, item, "tags", user_tags, frozenset()),
                loader.optional(path, item, "loopback-only", boolean, False),
                _limit(loader, path, item, "max-connections"),
                _limit(loader, path, item, "max-channels"),
                tuple(permissions),
                tuple(topics),
                loader.at(*path),
                loader.at(*path, secret),
            )
        )


def read_vhost(loader: "Loader", path: Path, item: dict[str, Any]) -> None:
    """One `[[vhost]]`."""
    name = loader.required(path, item, "name")
    _refuse_unknown(loader, path, item, VHOST_KEYS, "[[vhost]]")
    limits = LimitsDeclaration(_limit(loader, path, item, "max-connections"), _limit(loader, path, item, "max-queues"))
    if name is not None:
        loader.draft.add_vhost(name)
        loader.draft.limit_vhost(loader.at(*path), name, limits)


def _permission(loader: "Loader", path: Path, item: dict[str, Any]) -> PermissionDeclaration:
    _refuse_unknown(loader, path, item, ("vhost", "configure", "write", "read"), "[[user.permission]]")
    configure, write, read = (
        loader.optional(path, item, key, pattern_text, "") for key in ("configure", "write", "read")
    )
    return PermissionDeclaration(loader.optional(path, item, "vhost", name_text, "/"), configure, write, read)


def _topic_permission(loader: "Loader", path: Path, item: dict[str, Any]) -> TopicPermissionDeclaration:
    _refuse_unknown(loader, path, item, ("vhost", "exchange", "write", "read"), "[[user.topic-permission]]")
    exchange = loader.required(path, item, "exchange") or ""
    write, read = (loader.optional(path, item, key, pattern_text, ".*") for key in ("write", "read"))
    return TopicPermissionDeclaration(loader.optional(path, item, "vhost", name_text, "/"), exchange, write, read)


def _tables(loader: "Loader", path: Path, item: dict[str, Any], key: str) -> list[tuple[Path, dict[str, Any]]]:
    tables = item.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        loader.draft.fault(loader.at(*path, key), key, f"expected tables [[user.{key}]]")
        return []
    return [((*path, key, index), table) for index, table in enumerate(tables)]


def _limit(loader: "Loader", path: Path, item: dict[str, Any], key: str) -> int | None:
    limit = loader.optional(path, item, key, _LIMIT, -1)
    return None if limit < 0 else int(limit)


def _refuse_unknown(loader: "Loader", path: Path, item: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in item:
        if key not in known:
            loader.draft.unknown(loader.at(*path, key), key, where, known)
