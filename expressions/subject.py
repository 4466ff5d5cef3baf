"""The message of an expression: each part is read once, when the first expression needs it.

One `Subject` serves all filters that test a message. The engine derives a class from it for its messages.
Source: queues page B.5, A.3.1 (bodies that are no JSON).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from json import JSONDecoder
from typing import Any, Final

from .values import TooCostly, Value

#: Maximum octets of a body that is parsed; every path into a larger one is NULL.
DOCUMENT_OCTETS_MAX = 1024 * 1024
#: Maximum nesting of arrays and objects in a body that is parsed.
DOCUMENT_DEPTH_MAX = 256
#: Maximum cost of one evaluation, in units of about 10 ns: 50 ms (queues page B.2, choice 10).
COST_MAX = 5_000_000

_READ = JSONDecoder().decode


class _Unread:
    """The body was not parsed yet."""


UNREAD: Final = _Unread()


class Subject(ABC):
    """A message. `routing_key`, `exchange`: as published.

    `document`: its body as JSON: use `read()` while it is `UNREAD`. None: the body is no JSON.
    """

    __slots__ = ("document", "exchange", "routing_key", "spent")

    def __init__(self, exchange: str, routing_key: str) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.document: Value | _Unread = UNREAD
        self.spent = 0  # by the current evaluation

    @abstractmethod
    def body(self) -> bytes:
        """The body as published."""

    @abstractmethod
    def headers(self) -> Mapping[str, Value]:
        """The headers table, with values of expressions."""

    @abstractmethod
    def property(self, name: str) -> "int | str | None":
        """The value of one of `PROPERTY_NAMES` (signatures.py); None: the message does not have it."""

    def charge(self, units: int) -> None:
        """Count the cost of the evaluation. Raises: TooCostly."""
        self.spent += units
        if self.spent > COST_MAX:
            raise TooCostly

    def read(self) -> Value:
        """The body of the message as JSON; None if it is no JSON."""
        self.document = _document(self.body())
        return self.document

    def header(self, name: str) -> Value:
        """A header; `a.b` is also b in the table a."""
        headers = self.headers()
        if name in headers or "." not in name:
            return headers.get(name)
        first, *parts = name.split(".")
        value = headers.get(first)
        for part in parts:
            if not isinstance(value, dict):
                return None
            value = value.get(part)
        return value


def _document(body: bytes) -> Value:
    """JSON in UTF-8; of duplicate names the last one counts. None: no JSON, or null."""
    if not body or len(body) > DOCUMENT_OCTETS_MAX:
        return None
    try:
        text = body.decode()
        document: Value = _READ(text if text[0] != "\ufeff" else text[1:])
    except RecursionError:
        return None
    except ValueError:
        document = _with_huge_numbers(body)
    if _may_be_deep(body) and _is_deep(document):
        return None
    return document


def _with_huge_numbers(body: bytes) -> Value:
    """Parse again, in case the error was a number with more digits than Python reads."""
    try:
        document: Value = JSONDecoder(parse_int=_whole_or_more).decode(body.decode())
    except (ValueError, RecursionError):
        return None
    return document


def _whole_or_more(digits: str) -> int | float:
    return int(digits) if len(digits) < 100 else float(digits)


def _may_be_deep(body: bytes) -> bool:
    """Whether there are enough brackets for more than the maximum nesting.

    It splits instead of counting: 0.2 us for 1 KiB instead of 1.6 us.
    """
    return len(body.split(b"[", DOCUMENT_DEPTH_MAX)) + len(body.split(b"{", DOCUMENT_DEPTH_MAX)) > DOCUMENT_DEPTH_MAX


def _is_deep(document: Value) -> bool:
    level: list[Any] = [document]
    for _ in range(DOCUMENT_DEPTH_MAX):
        following: list[Any] = []
        for one in level:
            if type(one) is list:
                following += [inner for inner in one if type(inner) in (list, dict)]
            elif type(one) is dict:
                following += [inner for inner in one.values() if type(inner) in (list, dict)]
        if not following:
            return False
        level = following
    return True
