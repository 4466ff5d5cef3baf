"""`[[policy]]` and `[[operator-policy]]` of native configuration files. Source: behaviour page 3.12."""

from typing import Any

from ..policies.policies import APPLY_TO, PolicyFault, make_policy
from ..policies.policy_keys import POLICY_KEYS
from ..values import LONG_MAX, integer, name_text, text, word
from .toml_lines import Path
from .toml_source import TomlSource

KEYS = ("name", "vhost", "pattern", "apply-to", "priority", "definition")


def read_policy(source: TomlSource, path: Path, item: dict[str, Any], *, is_operator: bool) -> None:
    """One of either table."""
    draft, where = source.draft, f"[[{path[0]}]]"
    for key in item:
        if key not in KEYS:
            draft.unknown(source.at(*path, key), key, where, KEYS)
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
