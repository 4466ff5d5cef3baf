"""The message that expressions are asked about: what they read of it is read once, when the first of them asks.

One `Subject` serves all filters that look at a message. The engine derives one from it that knows its messages.
Source: queues page B.5, A.3.1 (bodies that are no JSON).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from json import JSONDecoder
from typing import Any, Final

from .values import TooCostly, Value

#: A body that is larger is not read: every path into it is NULL.
DOCUMENT_OCTETS_MAX = 1024 * 1024
#: Nor is one whose arrays and objects are deeper in each other.
DOCUMENT_DEPTH_MAX = 256
#: What one evaluation may take, in units of about 10 ns: 50 ms (queues page B.2, choice 10).
COST_MAX = 5_000_000

_READ = JSONDecoder().decode


class _Unread:
    """Nobody has asked yet."""


UNREAD: Final = _Unread()


class Subject(ABC):
    """A message. `routing_key`, `exchange`: as it was published.

    `document`: its body as JSON: use `read()` while it is `UNREAD`. `is_unreadable`: somebody asked, and it is none.
    """

    __slots__ = ("document", "exchange", "is_unreadable", "routing_key", "spent")

    def __init__(self, exchange: str, routing_key: str) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.document: Value | _Unread = UNREAD
        self.is_unreadable = False
        self.spent = 0  # by the evaluation that is under way

    @abstractmethod
    def body(self) -> bytes:
        """As it was published."""

    @abstractmethod
    def headers(self) -> Mapping[str, Value]:
        """Its headers table, in values of this room."""

    @abstractmethod
    def property(self, name: str) -> "int | str | None":
        """One of `PROPERTY_NAMES`, in signatures.py; None: it has none."""

    def fact(self, name: str) -> Value:
        """What only some surroundings know: BOOKMARK, LEASE_COUNT, LAST_LEASED. NULL where they do not."""
        return None

    def charge(self, units: int) -> None:
        """The evaluation takes so many units. Raises: TooCostly."""
        self.spent += units
        if self.spent > COST_MAX:
            raise TooCostly

    def read(self) -> Value:
        """Its body as JSON; None if it is none."""
        document = _document(self.body())
        self.is_unreadable = document is None
        self.document = document
        return document

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
    """JSON in UTF-8; of a name that is there twice the last one counts. None: no such thing, or nothing but null."""
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
    """Once more, if what was wrong may have been a number with more digits than Python reads."""
    try:
        document: Value = JSONDecoder(parse_int=_whole_or_more).decode(body.decode())
    except (ValueError, RecursionError):
        return None
    return document


def _whole_or_more(digits: str) -> int | float:
    return int(digits) if len(digits) < 100 else float(digits)


def _may_be_deep(body: bytes) -> bool:
    """Whether it has so many brackets. Cut, not counted: 0.2 us for 1 KiB instead of 1.6 us."""
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
