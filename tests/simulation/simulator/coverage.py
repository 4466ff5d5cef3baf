"""What happened in worlds, counted by kind; and of all kinds that there are, which never happened.

A kind is a group and a name: "fault: kill". The product's tables are counted as they are looked into: transitions of
connections and channels, methods, rows of refusals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from leveret.amqp_frontend.session import handling
from leveret.amqp_frontend.wire import replies
from leveret.amqp_frontend.wire.states import CHANNEL_NEXT, CONNECTION_NEXT, PARKING_NEXT
from leveret.engine import EventKind

from .clients import KINDS
from .faults import FAULTS
from .flow_rows import ROWS, counting_rows

#: How lives of the broker end.
ENDINGS = ("killed", "power cut", "struck", "struck while it started", "stopped", "directory lost", "unreadable")


def _transition(state: Any, step: Any) -> str:
    return f"{state.name} {step.name}"


def _method(of: type) -> str:
    """As it is written: basic.publish."""
    return str(getattr(of, "name", of.__name__)).lower()


def known() -> dict[str, set[str]]:
    """Group -> the names of all that could be met."""
    return {
        "fault": set(FAULTS),
        "client": set(KINDS),
        "broker": set(ENDINGS),
        "event": {kind.value for kind in EventKind},
        "connection": {_transition(state, step) for state, row in CONNECTION_NEXT.items() for step in row},
        "channel": {_transition(state, step) for state, row in CHANNEL_NEXT.items() for step in row},
        "method": {_method(of) for of in (*handling.HANDLERS, *handling.CONNECTION_HANDLERS, *handling.EVENT_HANDLERS)},
        "holding": {_transition(state, step) for state, row in PARKING_NEXT.items() for step in row},
        "flow row": set(ROWS),
        "refusal": {error.__name__ for error in replies.REPLY},
    }


def never_met(counts: Counter[str]) -> dict[str, list[str]]:
    """Group -> what of it did not happen."""
    missing = {
        group: sorted(name for name in names if not counts[f"{group}: {name}"]) for group, names in known().items()
    }
    return {group: names for group, names in missing.items() if names}


class _Counted(dict[Any, Any]):
    """A table that counts which of its rows are looked up."""

    def __init__(self, table: dict[Any, Any], group: str, name_of: Callable[[Any], str], counts: Counter[str]) -> None:
        super().__init__(table)
        self._names = {key: f"{group}: {name_of(key)}" for key in table}
        self._counts = counts

    def __getitem__(self, key: Any) -> Any:
        self._counts[self._names[key]] += 1
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            return default
        return self[key]


@contextmanager
def counting(counts: Counter[str]) -> Iterator[None]:
    """Meanwhile the product's tables count."""
    with ExitStack() as stack:
        for group, table in (("connection", CONNECTION_NEXT), ("channel", CHANNEL_NEXT), ("holding", PARKING_NEXT)):
            rows = {state: _Counted(row, group, _named(state), counts) for state, row in table.items()}
            stack.enter_context(patch.dict(table, rows))
        for name in ("HANDLERS", "CONNECTION_HANDLERS", "EVENT_HANDLERS"):
            stack.enter_context(
                patch.object(handling, name, _Counted(getattr(handling, name), "method", _method, counts))
            )
        refusals = _Counted(replies.REPLY, "refusal", lambda error: str(error.__name__), counts)
        stack.enter_context(patch.object(replies, "REPLY", refusals))
        stack.enter_context(counting_rows(counts))
        yield


def _named(state: Any) -> Callable[[Any], str]:
    return lambda step: _transition(state, step)


def described(counts: Counter[str]) -> Iterator[str]:
    """Lines: how often each kind happened, by group, and what was never met."""
    groups: dict[str, list[str]] = {}
    for kind in sorted(counts):
        group, colon, name = kind.partition(": ")
        groups.setdefault(group if colon else "others", []).append(f"{name if colon else kind} {counts[kind]:,}")
    for group, entries in groups.items():
        yield from _wrapped(f"{group}: ", entries)
    for group, names in never_met(counts).items():
        yield from _wrapped(f"never met: {group}: ", names)


def _wrapped(title: str, entries: Iterable[str], width: int = 120) -> Iterator[str]:
    line = title
    for entry in entries:
        if len(line) + len(entry) > width and line != title:
            yield line.rstrip()
            line = "    "
        line += f"{entry}, "
    yield line.removesuffix(", ")
