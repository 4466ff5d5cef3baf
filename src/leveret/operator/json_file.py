"""A JSON file that people write: read, or refused with the position and the reason of a fault."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..configured.input_files import open_input
from ..settings.json_values import DIGITS_MAX, value_of_json

_SPACE = re.compile(r"[ \t\r\n]*")
#: Maximum characters of invalid text that a message shows.
_SHOWN_MAX = 20


class JsonFault(ValueError):
    """A text is not JSON. `line` and `column` are 1-based; `reason` is for people."""

    def __init__(self, reason: str, line: int = 1, column: int = 1) -> None:
        super().__init__(f"is not JSON: {reason} (column {column})")
        self.line = line


@dataclass(slots=True, frozen=True)
class JsonFile:
    """A file and its value."""

    name: str
    text: str
    value: Any

    def placed(self, lines: Iterable[str]) -> list[str]:
        """Lines like `users[2]: why` as `FILE:LINE: users[2]: why`, in the order of the file's lines."""
        found = list(lines)
        known = _lines_of_entries(self.text) if found else {}
        numbered = [(known.get(line.partition(":")[0], 1), line) for line in found]
        return [f"{self.name}:{number}: {line}" for number, line in sorted(numbered, key=lambda one: one[0])]


def read_json_file(name: str) -> JsonFile:
    """Read a file. Raises: OSError; JsonFault."""
    with open(name, "rb", opener=open_input) as file:
        text = _text_of(file.read())
    return JsonFile(name, text, _value_of(text))


def _text_of(octets: bytes) -> str:
    """The text of UTF-8, UTF-16 or UTF-32, without a byte order mark. Raises: JsonFault."""
    try:
        return octets.decode(json.detect_encoding(octets)).removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise JsonFault("is not UTF-8 text") from None


def _value_of(text: str) -> Any:
    """The value of a text. Raises: JsonFault."""
    try:
        return value_of_json(text)
    except json.JSONDecodeError as error:
        reason, position = _reason(error)
        line_start = text.rfind("\n", 0, position) + 1
        raise JsonFault(reason, text.count("\n", 0, position) + 1, position - line_start + 1) from None
    except RecursionError:
        raise JsonFault("is too deep") from None
    except ValueError:
        raise JsonFault(f"a number of more than {DIGITS_MAX} digits or too large, NaN, or Infinity") from None


def _lines_of_entries(text: str) -> dict[str, int]:
    """The line of each entry of the lists in the outermost object: `users[2]` -> 17. `text` is JSON."""
    decode, found = json.JSONDecoder().raw_decode, {}
    line, counted = 1, 0

    def space(position: int) -> int:
        match = _SPACE.match(text, position)
        assert match is not None
        return match.end()

    position = space(0)
    if text[position : position + 1] != "{":
        return {}
    position = space(position + 1)
    while text[position] != "}":
        section, position = decode(text, position)
        position = space(space(position) + 1)  # after the colon
        if text[position] == "[":
            index, position = 0, space(position + 1)
            while text[position] != "]":
                line, counted = line + text.count("\n", counted, position), position
                found[f"{section}[{index}]"] = line
                _, position = decode(text, position)
                position = space(position)
                if text[position] == ",":
                    position = space(position + 1)
                index += 1
            position += 1
        else:
            line, counted = line + text.count("\n", counted, position), position
            found[section] = line
            _, position = decode(text, position)
        position = space(position)
        if text[position] == ",":
            position = space(position + 1)
    return found


def _reason(error: json.JSONDecodeError) -> tuple[str, int]:
    """The reason for people, and the offset of the fault in the text."""
    text, position = error.doc, error.pos
    if error.msg.startswith("Invalid control character"):
        return "a tab or the end of a line inside of text: expected \\t or \\n", position
    rest = text[position:].lstrip()
    position = len(text) - len(rest)
    before = text[:position].rstrip()
    if rest[:1] == "," and rest[1:].lstrip()[:1] in ("}", "]"):
        return "a comma after the last entry", position
    if before[-1:] == "," and rest[:1] in ("}", "]"):
        return "a comma after the last entry", len(before) - 1
    if not rest:
        return "it ends before it is complete" if before else "the file is empty", len(before)
    shown = json.dumps(rest.split("\n", 1)[0].rstrip()[:_SHOWN_MAX], ensure_ascii=False)
    if rest[:2] in ("//", "/*") or rest[0] == "#":
        return f"{shown}: JSON has no comments", position
    if rest[0] == "'":
        return f"{shown}: text needs double quotation marks", position
    if "delimiter" in error.msg and ":" in error.msg:
        return f"a colon is missing before {shown}", position
    if "delimiter" in error.msg:
        return f"a comma is missing before {shown}", position
    if error.msg.startswith("Extra data"):
        return f"there is more text after its end: {shown}", position
    if "property name" in error.msg:
        return f"expected a name between double quotation marks, not {shown}", position
    if error.msg.startswith("Expecting value"):
        return f"expected a value, not {shown}", position
    return error.msg[:1].lower() + error.msg[1:], position
