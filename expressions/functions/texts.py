"""Functions of texts. They count code points; only ASCII letters have case. NULL gives NULL, except in CONCAT, and as
the new text of REPLACE and REGEXP_REPLACE.

The cost of a result is charged before it is made. Source: queues page B.4, B.2 (choice 8).
"""

import hashlib
from collections.abc import Callable
from string import ascii_lowercase, ascii_uppercase

from ..patterns.searching import Charge, Searcher
from ..subject import Subject
from ..values import Value, number_of, text_of

_UPPER = str.maketrans(ascii_lowercase, ascii_uppercase)
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_CODE_MAX = 0x10FFFF
#: Cost of each octet of a checksum that is computed in Python, in units.
_CHECKSUM_COST = 20


def _text(subject: Subject, value: Value) -> str | None:
    text = text_of(value)
    if text is not None:
        subject.charge(len(text) + 10)
    return text


def _count(value: Value) -> int | None:
    """A number of characters or a position; None if it is not a number."""
    number = number_of(value)
    if number is None or number != number:
        return None
    return int(max(-1e9, min(1e9, number)))


def concat(subject: Subject, *values: Value) -> Value:
    """All arguments joined, NULL as an empty text."""
    parts = [text_of(value) or "" for value in values]
    subject.charge(sum(map(len, parts)) + 10)
    return "".join(parts)


def _of_text(compute: Callable[[str], Value]) -> Callable[[Subject, Value], Value]:
    def function(subject: Subject, value: Value) -> Value:
        text = _text(subject, value)
        return None if text is None else compute(text)

    return function


def _of_two_texts(compute: Callable[[str, str], Value]) -> Callable[[Subject, Value, Value], Value]:
    def function(subject: Subject, value: Value, other_value: Value) -> Value:
        text, other = _text(subject, value), _text(subject, other_value)
        return None if text is None or other is None else compute(text, other)

    return function


def _upper(text: str) -> str:
    return text.upper() if text.isascii() else text.translate(_UPPER)


def _lower(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_LOWER)


def _position(text: str, part: str) -> int:
    """The position of the first occurrence of a part, from 1; 0: none."""
    return text.find(part) + 1


def substr(subject: Subject, value: Value, start: Value, count: Value = 1e9) -> Value:
    """The text from a position on, counted from 1, or from -1 at the end. A position before the beginning means the
    beginning; after the end the result is NULL.
    """
    text, first, size = _text(subject, value), _count(start), _count(count)
    if text is None or first is None or size is None:
        return None
    at = len(text) + first if first < 0 else first - 1
    at = max(at, 0)
    return text[at : at + size] if at < len(text) and size > 0 else None


def left(subject: Subject, value: Value, count: Value) -> Value:
    text, size = _text(subject, value), _count(count)
    return None if text is None or size is None else text[: max(size, 0)]


def right(subject: Subject, value: Value, count: Value) -> Value:
    text, size = _text(subject, value), _count(count)
    return None if text is None or size is None else text[max(len(text) - max(size, 0), 0) :]


def _trimmed(strip: Callable[[str, str], str]) -> Callable[..., Value]:
    """A function that removes characters, by default blanks, at one end or both."""

    def trim(subject: Subject, value: Value, characters: Value = " \t\r\n\f\v") -> Value:
        text, wanted = _text(subject, value), text_of(characters)
        return None if text is None or wanted is None else strip(text, wanted)

    return trim


def replace(subject: Subject, value: Value, old: Value, new: Value) -> Value:
    """Replace each occurrence of a text; an empty text has none."""
    text, wanted, other = _text(subject, value), _text(subject, old), text_of(new) or ""
    if text is None:
        return None
    if not wanted:
        return text
    subject.charge(text.count(wanted) * (len(other) + 1))
    return text.replace(wanted, other)


def regexp_replace(searcher: Searcher, subject: Subject, value: Value, new: Value) -> Value:
    r"""Replace each match of a pattern; in the new text \0 is the match, \1 to \9 are its groups."""
    text, other = _text(subject, value), text_of(new) or ""
    if text is None:
        return None
    parts: list[str] = []
    position = 0
    for slots in searcher.spans(text, subject.charge):
        parts.append(text[position : slots[0]])
        parts.append(_filled(other, text, slots, subject.charge))
        position = slots[1]
    parts.append(text[position:])
    return "".join(parts)


def _filled(template: str, text: str, slots: list[int], charge: Charge) -> str:
    if "\\" not in template:
        charge(len(template))
        return template
    parts: list[str] = []
    position = 0
    while position < len(template):
        character = template[position]
        following = template[position + 1 : position + 2]
        if character == "\\" and following in tuple("0123456789"):
            group = 2 * int(following)
            part = text[slots[group] : slots[group + 1]] if group < len(slots) and slots[group + 1] >= 0 else ""
            position += 2
        elif character == "\\" and following == "\\":
            part = "\\"
            position += 2
        else:
            part = character
            position += 1
        charge(len(part) + 10)
        parts.append(part)
    return "".join(parts)


def char_value(subject: Subject, value: Value) -> Value:
    """The character with this code point."""
    code = _count(value)
    return chr(code) if code is not None and 0 < code <= _CODE_MAX else None


def _md5(text: str) -> str:
    """The MD5 of the octets in UTF-8, in hexadecimal."""
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def crc32(subject: Subject, value: Value) -> Value:
    """CRC-32C (Castagnoli) of the octets in UTF-8."""
    text = _text(subject, value)
    if text is None:
        return None
    octets = text.encode("utf-8", "surrogatepass")
    subject.charge(_CHECKSUM_COST * len(octets))
    remainder = 0xFFFFFFFF
    for octet in octets:
        remainder = _CASTAGNOLI[(remainder ^ octet) & 0xFF] ^ (remainder >> 8)
    return remainder ^ 0xFFFFFFFF


def _castagnoli(octet: int) -> int:
    for _ in range(8):
        octet = (octet >> 1) ^ (0x82F63B78 if octet & 1 else 0)
    return octet


_CASTAGNOLI = [_castagnoli(octet) for octet in range(256)]

TEXTS: dict[str, Callable[..., Value]] = {
    "CONCAT": concat,
    "UPPER": _of_text(_upper),
    "LOWER": _of_text(_lower),
    "LENGTH": _of_text(len),
    "INSTR": _of_two_texts(_position),
    "INSTR_I": _of_two_texts(lambda text, part: _position(_lower(text), _lower(part))),
    "STREQUAL_I": _of_two_texts(lambda text, other: int(_lower(text) == _lower(other))),
    "SUBSTR": substr,
    "LEFT": left,
    "RIGHT": right,
    "TRIM": _trimmed(str.strip),
    "LTRIM": _trimmed(str.lstrip),
    "RTRIM": _trimmed(str.rstrip),
    "REPLACE": replace,
    "REVERSE": _of_text(lambda text: text[::-1]),
    "CHAR_VALUE": char_value,
    "MD5": _of_text(_md5),
    "CRC32": crc32,
}
