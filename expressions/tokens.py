"""Splits a text into tokens. Source: queues page B.1 (strings), B.2 (dialect flags), B.3.

A `/` directly before the character of a name begins a path; before other characters it divides.
"""

import re
from typing import NamedTuple

from .errors import ExpressionError
from .syntax import AMPS, JMS, Constant, Dialect, Step

TEXT_OCTETS_MAX = 8 * 1024
#: Range of integers; larger and smaller numbers are floating (queues page B.2, choice 7).
INTEGER_MIN, INTEGER_MAX = -(1 << 63), 1 << 64

_SPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
PLAIN_WORD = re.compile(r"[^\W\d][\w$.]*|\$[\w$.]*")
_HYPHENATED = re.compile(r"(?:[^\W\d]|\$)[\w$.-]*")
PLAIN_STEP = re.compile(r"[\w\-.:@]+")
_STEP = re.compile(r"/([\w\-.:@]+)(?:\[([0-9]{1,9})\])?")
_BRACKETED = re.compile(r"\[/([^\]]*)\]")
_COMMENT = re.compile(r"--[^\n]*|/\*(?:[^*]|\*(?!/))*\*/")
_OPERATOR = re.compile(r"==|!=|<>|<=|>=|[=<>+\-*/%(),]")
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|([0-7]{3})|(.))", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}

NUMBER, STRING, RAW, WORD, QUOTED, PATH, OPERATOR, END = (
    "number", "string", "raw string", "word", "name", "path", "operator", "the end"
)  # fmt: skip


class Token(NamedTuple):
    """A token. `text`: a word, an operator, a name without its quotes, or a string as the text of a pattern."""

    kind: str
    position: int
    text: str
    value: Constant = None
    steps: tuple[Step, ...] = ()


def tokens_of(text: str, dialect: Dialect, position: int = 0, *, hyphenated: bool = False) -> list[Token]:
    """All tokens from a position on, with the end as the last one. `hyphenated`: words may have hyphens (jms).

    Raises: ExpressionError.
    """
    lexer = _Lexer(text, dialect, hyphenated)
    found: list[Token] = []
    while (token := lexer.next(position)) is not None:
        one, position = token
        if one is not None:
            found.append(one)
    found.append(Token(END, len(text), ""))
    return found


def number_of_digits(digits: str) -> int | float:
    """The value of a number. Integers above INTEGER_MAX are floating."""
    if len(digits) <= 20 and digits.isdigit():
        value = int(digits)
        if value <= INTEGER_MAX:
            return value
    return float(digits)


class _Lexer:
    def __init__(self, text: str, dialect: Dialect, hyphenated: bool) -> None:
        self.text = text
        self.dialect = dialect
        self.word = _HYPHENATED if hyphenated else PLAIN_WORD

    def next(self, position: int) -> tuple[Token | None, int] | None:
        """The token at a position (None for blanks and comments), and where it ends. At the end of the text None."""
        text = self.text
        if position >= len(text):
            return None
        character = text[position]
        if (found := _SPACE.match(text, position)) is not None:
            return None, found.end()
        if self.dialect is JMS and (found := _COMMENT.match(text, position)) is not None:
            return None, found.end()
        if character in "'\"":
            return self.quoted(position, position)
        if character in "rR" and text[position + 1 : position + 2] in ("'", '"'):
            return self.quoted(position, position + 1)
        if (found := _NUMBER.match(text, position)) is not None:
            if found.end() < len(text) and (text[found.end()].isalnum() or text[found.end()] == "_"):
                raise ExpressionError(text, found.end(), "expected an operator after the number")
            return Token(NUMBER, position, found[0], number_of_digits(found[0])), found.end()
        if (found := self.word.match(text, position)) is not None:
            return Token(WORD, position, found[0]), found.end()
        if self.dialect is AMPS and (character == "[" or _STEP.match(text, position) is not None):
            return self.path(position)
        if (found := _OPERATOR.match(text, position)) is not None:
            return Token(OPERATOR, position, found[0]), found.end()
        raise ExpressionError(text, position, f"unexpected character {character!r}")

    def path(self, position: int) -> tuple[Token, int]:
        text = self.text
        steps: list[Step] = []
        end = position
        if text[position] == "[":
            found = _BRACKETED.match(text, position)
            if found is None:
                raise ExpressionError(text, position, "expected a path in brackets, as in [/unit price]")
            names = found[1].split("/")
            if not all(names):
                raise ExpressionError(text, position, "a name of the path is empty")
            steps = [Step(name) for name in names]
            end = found.end()
        else:
            while (found := _STEP.match(text, end)) is not None:
                steps.append(Step(found[1], None if found[2] is None else int(found[2])))
                end = found.end()
            if text[end : end + 1] == "[":
                raise ExpressionError(text, end + 1, "expected the number of an element, from 0, and ]")
        return Token(PATH, position, text[position:end], steps=tuple(steps)), end

    def quoted(self, start: int, position: int) -> tuple[Token, int]:
        """A string whose quote is at `position`. `start`: the same, or the position of the `r` before the quote."""
        text, quote = self.text, self.text[position]
        is_raw = start < position
        is_name = self.dialect is JMS and quote == '"'
        escapes = self.dialect is AMPS and not is_raw
        at = position + 1
        value: list[str] = []
        pattern: list[str] = []  # the same, but with the backslashes, which the pattern interprets
        while True:
            if at >= len(text):
                raise ExpressionError(text, start, f"the string has no closing {quote}")
            character = text[at]
            if character == quote:
                if text[at + 1 : at + 2] != quote:
                    break
                at += 2
                value.append(quote)
                pattern.append(quote)
            elif character == "\\" and escapes:
                found = _ESCAPE.match(text, at)
                if found is None:
                    raise ExpressionError(text, start, f"the string has no closing {quote}")
                value.append(_escaped(found))
                pattern.append(found[3] if found[3] in ("'", '"') else found[0])
                at = found.end()
            else:
                value.append(character)
                pattern.append(character)
                at += 1
        joined = "".join(value)
        if is_name:
            if is_raw or not joined:
                raise ExpressionError(text, start, "expected a name within the quotes")
            return Token(QUOTED, start, joined), at + 1
        return Token(RAW if is_raw else STRING, start, "".join(pattern), joined), at + 1


def _escaped(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    if found[2]:
        return chr(int(found[2], 8) & 0xFF)
    return _CONTROLS.get(found[3], found[3])
