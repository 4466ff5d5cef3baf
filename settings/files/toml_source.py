"""One native configuration file during loading: the lines of its keys, names and values of its tables.

tomllib does not return line numbers, so the documents that it has accepted are scanned for them.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from ..declared.tables import Table
from ..faults import Origin
from ..queue_types import ADDED_TYPES
from ..rows.address_settings import BY_KEY
from ..rows.broker_keys import KEYS
from ..rows.queue_attributes import QUEUE_ATTRIBUTES
from ..rows.row import REQUIRED
from ..values import Reader, name_text, shown
from .builder import ConfigurationBuilder

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BASIC, _LITERAL = re.compile(r'"(?:[^\\"\n]|\\.)*"'), re.compile(r"'[^'\n]*'")
_STRINGS = (
    re.compile(r'"""(?:[^\\"]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    re.compile(r"'''(?:[^']|'(?!''))*'{3,5}", re.DOTALL),
    _BASIC,
    _LITERAL,
)
_SCALAR = re.compile(r"[^,\]}\n#\"']+")


def lines_of(text: str) -> dict[Path, int]:
    """Path -> line (from 1). A path goes through tables by key and through arrays by index."""
    return _Scanner(text.replace("\r\n", "\n")).run()


class _Scanner:
    """Finds the line of each key of a document. `position`: of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.lines: dict[Path, int] = {}
        self.counts: dict[Path, int] = {}  # array of tables -> its tables so far
        self._line = 1
        self._line_at = 0

    def run(self) -> dict[Path, int]:
        table: Path = ()
        while True:
            self._skip(_BLANK)
            if self.position >= len(self.text):
                return self.lines
            if self.text[self.position] == "[":
                table = self._header()
            elif not self._pair(table):
                self.position += 1  # does not occur in a valid document

    def _header(self) -> Path:
        line = self._here()
        is_array = self.text.startswith("[[", self.position)
        self.position += 2 if is_array else 1
        keys = self._keys()
        self.position += 2 if is_array else 1
        path: Path = ()
        for position, key in enumerate(keys, 1):
            path += (key,)
            if is_array and position == len(keys):  # a further table of this array
                self.lines.setdefault(path, line)
                self.counts[path] = self.counts.get(path, 0) + 1
            if path in self.counts:  # the last table so far
                path += (self.counts[path] - 1,)
            self.lines.setdefault(path, line)
        return path

    def _pair(self, table: Path) -> bool:
        line = self._here()
        keys = self._keys()
        if not keys or not self.text.startswith("=", self.position):
            return False
        self.position += 1
        path = table
        for key in keys:
            path += (key,)
            self.lines.setdefault(path, line)
        self._value(path)
        return True

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip(_SPACE)
            if match := _BARE.match(self.text, self.position):
                keys.append(match[0])
            elif match := (_BASIC.match(self.text, self.position) or _LITERAL.match(self.text, self.position)):
                keys.append(_unquoted(match[0]))
            else:
                return keys
            self.position = match.end()
            self._skip(_SPACE)
            if not self.text.startswith(".", self.position):
                return keys
            self.position += 1

    def _value(self, path: Path) -> None:
        self._skip(_SPACE)
        first = self.text[self.position : self.position + 1]
        if first == "{":
            self._inside("}", path)
        elif first == "[":
            self._inside("]", path)
        elif first in ('"', "'"):
            for pattern in _STRINGS:
                if match := pattern.match(self.text, self.position):
                    self.position = match.end()
                    return
            self.position += 1
        else:
            match = _SCALAR.match(self.text, self.position)
            self.position = match.end() if match else self.position + 1

    def _inside(self, end: str, path: Path) -> None:
        self.position += 1
        index = 0
        while self.position < len(self.text):
            self._skip(_BLANK)
            here = self.text[self.position : self.position + 1]
            if here == end:
                self.position += 1
                return
            if here == ",":
                self.position += 1
            elif end == "}":
                if not self._pair(path):
                    self.position += 1
            else:
                self.lines.setdefault((*path, index), self._here())
                self._value((*path, index))
                index += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()

    def _here(self) -> int:
        self._line += self.text.count("\n", self._line_at, self.position)
        self._line_at = self.position
        return self._line


def _unquoted(quoted: str) -> str:
    if quoted[0] == "'" or "\\" not in quoted:
        return quoted[1:-1]
    (key,) = tomllib.loads(f"{quoted} = 0")
    return key


def tables_with(key: str) -> str:
    """The tables that have this key, in a file's notation: "[[address-setting]]"; "" if none has it."""
    if key in BY_KEY:
        return "[[address-setting]]"
    if key in QUEUE_ATTRIBUTES or any(key in added.attributes for added in ADDED_TYPES.values()):
        return "[[queue]] and [[address.queue]]"
    return " and ".join(f"[{table}]" for table, rows in KEYS.items() if key in rows)


def table_name(path: Path) -> str:
    """The name in a file's notation: `[[user.permission]]`."""
    return f"[[{'.'.join(part for part in path if isinstance(part, str))}]]"


class TomlSource:
    """A file, the lines of its keys, and the builder that collects faults and declarations."""

    def __init__(self, builder: ConfigurationBuilder, file: str, lines: Mapping[Path, int]) -> None:
        self.builder = builder
        self.file = file
        self.lines = lines

    def origin_of(self, *path: str | int) -> Origin:
        """The line of a key, or of the nearest table around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return Origin(self.file, self.lines.get(path, 1))

    def tables(self, path: Path, name: str, content: object) -> list[tuple[Path, dict[str, Any]]]:
        """The tables of an array with their paths; none, with a fault, if it is not an array of tables."""
        if not isinstance(content, list) or not all(isinstance(table, dict) for table in content):
            self.builder.fault(self.origin_of(*path), str(path[-1]), f"expected tables [[{name}]]")
            return []
        return [((*path, index), table) for index, table in enumerate(content)]

    def required(self, path: Path, item: dict[str, Any], key: str, read: Reader = name_text) -> str | None:
        """A required name; None, with a fault, when it is missing or invalid."""
        if key not in item:
            self.builder.fault(self.origin_of(*path), key, f"is missing in {table_name(path)}")
            return None
        value = item[key]
        if read is name_text and (not isinstance(value, str) or not value):
            self.builder.fault(self.origin_of(*path, key), key, f"{shown(value)} is invalid, expected a name")
            return None
        name: str | None = self.optional(path, item, key, read, None)
        return name

    def values(
        self, path: Path, item: dict[str, Any], table: Table, *others: str, suggests_table: bool = False
    ) -> dict[str, Any]:
        """Attribute -> value or default of each row; None for a required name that is missing. Other keys are faults.

        `others`: keys that are not in the table, and are read elsewhere. `suggests_table`: the fault of an unknown key
        names another table that has it.
        """
        known = (*(row.key for row in table), *others)
        for key in item:
            if key not in known:
                owner = tables_with(key) if suggests_table else ""
                self.builder.unknown(self.origin_of(*path, key), key, table_name(path), known, owner)
        return {
            row.attribute: self.required(path, item, row.key, row.read)
            if row.default is REQUIRED
            else self.optional(path, item, row.key, row.read, row.default)
            for row in table
        }

    def optional(self, path: Path, item: dict[str, Any], key: str, read: Reader, default: Any) -> Any:
        """The value of a key; the default if it is missing, or, with a fault, if it is invalid."""
        if key not in item:
            return default
        try:
            return read(item[key])
        except ValueError as error:
            self.builder.invalid(self.origin_of(*path, key), key, item[key], error)
            return default
