"""Address-settings as TOML text, written short."""

import json
from typing import Any


def settings(*entries: str, broker: dict[str, Any] | None = None, **matches: Any) -> str:
    """`settings("[broker]...", **{"#": {"max_delivery_attempts": 3}})`: entries by match, underscores for dashes."""
    parts = list(entries)
    if broker:
        parts.append("[broker]\n" + _lines(broker))
    for match, values in matches.items():
        parts.append(f"[[address-setting]]\nmatch = {json.dumps(match)}\n" + _lines(values))
    return "\n".join(parts)


def _lines(values: dict[str, Any]) -> str:
    return "".join(f"{key.replace('_', '-')} = {json.dumps(value)}\n" for key, value in values.items())
