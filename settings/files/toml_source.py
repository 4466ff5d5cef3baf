"""One native configuration file while it is read: the lines of its keys, names and values of its tables."""

from collections.abc import Mapping
from typing import Any

from ..faults import Origin
from ..values import Reader, name_text, shown
from .draft import Draft
from .toml_lines import Path


class TomlSource:
    """A file, the lines of its keys, and the draft that collects faults and declarations."""

    def __init__(self, draft: Draft, file: str, lines: Mapping[Path, int]) -> None:
        self.draft = draft
        self.file = file
        self.lines = lines

    def at(self, *path: str | int) -> Origin:
        """The line of a key, or of the nearest table around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return Origin(self.file, self.lines.get(path, 1))

    def required(self, path: Path, item: dict[str, Any], key: str) -> str | None:
        """A required name; None, with a fault, when it is missing."""
        if key not in item:
            self.draft.fault(self.at(*path), key, f"is missing in [[{path[-2]}]]")
            return None
        value = item[key]
        if not isinstance(value, str) or not value:
            self.draft.fault(self.at(*path, key), key, f"{shown(value)} is not right, expected a name")
            return None
        return self.optional(path, item, key, name_text, None) or None

    def optional(self, path: Path, item: dict[str, Any], key: str, read: Reader, default: Any) -> Any:
        """An optional value."""
        if key not in item:
            return default
        try:
            return read(item[key])
        except ValueError as error:
            self.draft.wrong(self.at(*path, key), key, item[key], error)
            return default
