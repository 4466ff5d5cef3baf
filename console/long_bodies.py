"""Parses long JSON in steps: a step parses some entries of the outermost list, or of a list in the outermost object.

It accepts the same texts as `bodies.parsed`. Source: management page 1.3, 20.
"""

import json
import re
from collections.abc import Generator
from time import perf_counter
from typing import Any

from ..settings.json_values import checked_constant, checked_float, checked_integer
from . import steps
from .bodies import DEPTH_MAX, is_deep, parsed, without_duplicates
from .http_messages import bad_request

#: Maximum octets that are parsed in one step, which takes about 2 ms.
AT_ONCE_MAX = 128 * 1024
_SPACE = re.compile(r"[ \t\n\r]*")

#: Steps that return a value and the position after it.
_Read = Generator[None, None, tuple[Any, int]]


def parsed_in_steps(body: bytes, fault: str = "not_json", *, is_strict: bool = False) -> Generator[None, None, Any]:
    """As `bodies.parsed`, in steps. Raises: Refusal."""
    if len(body) <= AT_ONCE_MAX:
        return parsed(body, fault, is_strict=is_strict)
    try:
        text = body.decode()
        yield
        reader = _Reader(text, is_strict=is_strict)
        value, at = yield from reader.read(reader.space(0))
        if reader.space(at) != len(text):
            raise ValueError
    except (ValueError, RecursionError):
        raise bad_request(fault) from None
    return value


class _Reader:
    """Parses a text. The methods raise ValueError or RecursionError for invalid JSON."""

    def __init__(self, text: str, *, is_strict: bool) -> None:
        self._text = text
        self._is_strict = is_strict
        self._has_escapes = "\\u" in text
        hook = without_duplicates if is_strict else None
        decoder = json.JSONDecoder(
            parse_int=checked_integer,
            parse_float=checked_float,
            parse_constant=checked_constant,
            object_pairs_hook=hook,
        )
        self._decode = decoder.raw_decode
        self._until = perf_counter() + steps.STEP_S

    def space(self, at: int) -> int:
        """The position after white space."""
        found = _SPACE.match(self._text, at)
        assert found is not None
        return found.end()

    def read(self, at: int, *, is_outermost: bool = True) -> _Read:
        """The value at a position. Only the outermost object is parsed field by field."""
        first = self._text[at : at + 1]
        depth = 0 if is_outermost else 1
        if first == "[":
            return (yield from self._list(at + 1, depth + 1))
        if first == "{" and is_outermost:
            return (yield from self._object(at + 1))
        return self._at_once(at, depth)

    def _at_once(self, at: int, depth: int) -> tuple[Any, int]:
        value, end = self._decode(self._text, at)
        if self._has_escapes:
            json.dumps(value, ensure_ascii=False).encode()  # raises for lone surrogates, which are not text
        if isinstance(value, dict | list) and is_deep(value, DEPTH_MAX - depth):
            raise ValueError
        return value, end

    def _object(self, at: int) -> _Read:
        found: dict[str, Any] = {}
        at = self.space(at)
        if self._text[at : at + 1] == "}":
            return found, at + 1
        while True:
            name, at = self._at_once(self.space(at), 1)
            at = self.space(at)
            if not isinstance(name, str) or (self._is_strict and name in found):
                raise ValueError
            found[name], at = yield from self.read(self.space(self._after(":", at)), is_outermost=False)
            at = self.space(at)
            if self._text[at : at + 1] == "}":
                return found, at + 1
            at = self._after(",", at)

    def _list(self, at: int, depth: int) -> _Read:
        found: list[Any] = []
        at = self.space(at)
        if self._text[at : at + 1] == "]":
            return found, at + 1
        while True:
            value, at = self._at_once(self.space(at), depth)
            found.append(value)
            if perf_counter() > self._until:
                yield
                self._until = perf_counter() + steps.STEP_S
            at = self.space(at)
            if self._text[at : at + 1] == "]":
                return found, at + 1
            at = self._after(",", at)

    def _after(self, sign: str, at: int) -> int:
        if self._text[at : at + 1] != sign:
            raise ValueError
        return at + 1
