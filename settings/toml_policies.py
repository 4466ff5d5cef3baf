"""`[[policy]]` and `[[operator-policy]]` of native configuration files. Source: behaviour page 3.12."""

from typing import TYPE_CHECKING, Any

from .policies import APPLY_TO, PolicyFault, make_policy
from .policy_keys import POLICY_KEYS
from .toml_lines import Path
from .values import LONG_MAX, integer, name_text, text, word

if TYPE_CHECKING:
    from .toml_loader import Loader

KEYS = ("name", "vhost", "pattern", "apply-to", "priority", "definition")


def read_policy(loader: "Loader", path: Path, item: dict[str, Any], *, is_operator: bool) -> None:
    """One of either table."""
    draft, where = loader.draft, f"[[{path[0]}]]"
    for key in item:
        if key not in KEYS:
            draft.unknown(loader.at(*path, key), key, where, KEYS)
    name = loader.required(path, item, "name")
    vhost = loader.optional(path, item, "vhost", name_text, "/")
    apply_to = loader.optional(path, item, "apply-to", word(*APPLY_TO), "all")
    priority = loader.optional(path, item, "priority", integer(-LONG_MAX, LONG_MAX), 0)
    if "pattern" not in item:
        draft.fault(loader.at(*path), "pattern", f"is missing in {where}")
    pattern = loader.optional(path, item, "pattern", text, None)
    definition = item.get("definition", {})
    if not isinstance(definition, dict):
        draft.wrong(loader.at(*path, "definition"), "definition", definition, "a table of policy keys")
        return
    known = [key for key in POLICY_KEYS if not is_operator or POLICY_KEYS[key].is_for_operators]
    unknown = [key for key in definition if key not in known]
    for key in unknown:
        draft.unknown(loader.at(*path, "definition", key), key, where, known)
    if name is None or pattern is None or unknown:
        return
    try:
        policy = make_policy(
            name,
            vhost,
            pattern,
            definition,
            apply_to=apply_to,
            priority=priority,
            is_operator=is_operator,
            origin=loader.at(*path),
        )
    except PolicyFault as fault:
        key = "pattern" if str(fault).startswith("pattern") else "definition"
        draft.fault(loader.at(*path, key), key, str(fault))
    else:
        draft.add_policy(policy, loader.at(*path))
