"""Users, virtual hosts and policies in native files: `[[user]]`, `[[vhost]]`, `[[policy]]`, `[[operator-policy]]`.

Source: interfaces page, "Configuration keys"; behaviour page 3.12.
"""

from typing import Any

from ..declared.declarations import (
    LimitsDeclaration,
    PermissionDeclaration,
    TopicPermissionDeclaration,
    UserDeclaration,
)
from ..declared.tables import PERMISSION, POLICY, TOPIC_PERMISSION, USER, VHOST, Table
from ..policies.policy import PolicyFault, make_policy
from ..policies.policy_keys import POLICY_KEYS, fault_of_mirroring
from .toml_source import Path, TomlSource, table_name


def read_user(source: TomlSource, path: Path, item: dict[str, Any]) -> None:
    secrets = {key: item[key] for key in ("password", "password-hash") if key in item}
    if len(secrets) == 2:
        source.builder.fault(source.origin_of(*path, "password"), "password", "password-hash is given as well")
    invalid = [key for key, value in secrets.items() if not isinstance(value, str) or not value]
    for key in invalid:  # the value is never shown
        source.builder.fault(source.origin_of(*path, key), key, "is invalid, expected text that is not empty")
    rest = {key: value for key, value in item.items() if key not in invalid}
    values = source.values(path, rest, USER, "permission", "topic-permission")

    def tables(key: str, rows: Table) -> list[dict[str, Any]]:
        inner = source.tables((*path, key), f"user.{key}", item.get(key, []))
        return [source.values(*one, rows) for one in inner]

    permissions = tuple(PermissionDeclaration(**one) for one in tables("permission", PERMISSION))
    topic_permissions = tuple(
        TopicPermissionDeclaration(**{**one, "exchange": one["exchange"] or ""})
        for one in tables("topic-permission", TOPIC_PERMISSION)
    )
    if values["name"] is not None:
        source.builder.add_user(
            UserDeclaration(
                **values,
                permissions=permissions,
                topic_permissions=topic_permissions,
                origin=source.origin_of(*path),
                password_origin=source.origin_of(*path, next(iter(secrets), "password-hash")),
            )
        )


def read_vhost(source: TomlSource, path: Path, item: dict[str, Any]) -> None:
    values = source.values(path, item, VHOST)
    name = values.pop("name")
    if name is not None:
        source.builder.add_vhost(name)
        source.builder.limit_vhost(source.origin_of(*path), name, LimitsDeclaration(**values))


def read_policy(source: TomlSource, path: Path, item: dict[str, Any], *, is_operator: bool) -> None:
    """One policy of either table."""
    builder, table = source.builder, table_name(path)
    values = source.values(path, {key: value for key, value in item.items() if key != "definition"}, POLICY)
    name, pattern = values["name"], values["pattern"]
    if "pattern" not in item:
        builder.fault(source.origin_of(*path), "pattern", f"is missing in {table}")
    definition = item.get("definition", {})
    if not isinstance(definition, dict):
        builder.invalid(source.origin_of(*path, "definition"), "definition", definition, "a table of policy keys")
        return
    known = [key for key in POLICY_KEYS if not is_operator or POLICY_KEYS[key].is_for_operators]
    unknown = [key for key in definition if key not in known]
    for key in unknown:
        builder.unknown(source.origin_of(*path, "definition", key), key, table, known)
    if name is None or pattern is None:
        return
    try:
        policy = make_policy(
            name,
            values["vhost"],
            pattern,
            {key: value for key, value in definition.items() if key in known},
            apply_to=values["apply_to"],
            priority=values["priority"],
            is_operator=is_operator,
            origin=source.origin_of(*path),
            is_stored=True,
        )
    except PolicyFault as fault:
        is_emptied = bool(unknown) and len(unknown) == len(definition)  # and each key has its fault already
        for line in str(fault).splitlines():
            key = "pattern" if line.startswith("pattern") else "definition"
            if key == "pattern" or not is_emptied:
                builder.fault(source.origin_of(*path, key), key, line)
    else:
        if mirroring := fault_of_mirroring(policy.definition):  # a warning: earlier releases accepted it
            builder.warn(source.origin_of(*path, "definition"), "definition", f"{mirroring}; it has no effect")
        builder.add_policy(policy, source.origin_of(*path))
