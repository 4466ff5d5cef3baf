"""The lines of a Java properties file, and keys that are paths.

Source: java.util.Properties; address-settings page 6.2.
"""

import re
from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def logical_lines(content: str) -> Iterator[tuple[int, str, str]]:
    """(line, key, value) of each entry; a backslash at the end of a line continues it on the next."""
    lines = content.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    position = 0
    while position < len(lines):
        first = position
        text = lines[position].lstrip()
        position += 1
        if not text or text[0] in "#!":
            continue
        parts = [text]
        while _goes_on(parts[-1]) and position < len(lines):
            parts[-1] = parts[-1][:-1]
            parts.append(lines[position].lstrip())
            position += 1
        key, value = _split("".join(parts))
        yield first + 1, key, value


def _goes_on(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _split(text: str) -> tuple[str, str]:
    """At the first `=`, `:` or space that is neither escaped nor quoted."""
    at, is_quoted = 0, False
    while at < len(text):
        character = text[at]
        if character == "\\":
            at += 2
            continue
        if character == '"':
            is_quoted = not is_quoted
        elif character in "=: \t\f" and not is_quoted:
            break
        at += 1
    value = text[at:].lstrip(" \t\f")
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(" \t\f")
    return _unescaped(text[:at]), _unescaped(value).rstrip()


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text, flags=re.DOTALL)


def split_key(key: str, surround: str = '"') -> list[str] | None:
    """`a."b.c".d` -> a, b.c, d; None when a quotation does not end or a name is empty."""
    names: list[str] = []
    at = 0
    while True:
        if key.startswith(surround, at):
            end = key.find(surround, at + len(surround))
            if end < 0:
                return None
            names.append(key[at + len(surround) : end])
            at = end + len(surround)
        else:
            end = key.find(".", at)
            end = len(key) if end < 0 else end
            names.append(key[at:end])
            at = end
        if not names[-1]:
            return None
        if at == len(key):
            return names
        if key[at] != ".":
            return None
        at += 1
