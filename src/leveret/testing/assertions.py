"""Assertions about messages. Texts of failures show the difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..settings.printable import printable
from .history import PublishedMessage
from .matching import (
    Body,
    Wanted,
    aligned,
    is_body,
    is_condition,
    is_json,
    is_like,
    projected,
    shown_expected,
    shown_json,
    shown_wanted,
    why_not,
)
from .plain_form import plain_body
from .snapshots import MessageSnapshot, QueueSnapshot, json_content, plain, shown_body

OMITTED: Any = object()
#: Maximum characters that a failure shows of a long body: before the first difference, and in all.
BEFORE_MAX, AROUND_MAX = 60, 180
#: Maximum messages that a failure lists.
SHOWN_MAX = 20

#: The expected messages of a queue in one state: their number, their bodies in this order, or a condition on the list
#: of bodies (as plain values).
Contents = Any


@dataclass(slots=True, frozen=True)
class Expected:
    """A pattern for messages. Omitted fields match any value.

    `headers`: those that a message must have, or a condition on the whole table. `properties`: by name, as in
    `Properties`.
    """

    exchange: Wanted = None
    routing_key: Wanted = None
    body: Body = OMITTED
    headers: Wanted = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_body(self) -> bool:
        return self.body is not OMITTED

    def differences(self, message: PublishedMessage) -> list[str]:
        """The differences of a message from the pattern, each in one line or more; []: it matches."""
        found: list[str] = []
        for name, wanted, actual in (
            ("exchange", self.exchange, message.exchange),
            ("routing key", self.routing_key, message.routing_key),
        ):
            if wanted is not None and not is_like(wanted, actual):
                found.append(f"{name}: {actual!r}, expected {_expected_text(wanted, actual)}")
        if not isinstance(self.headers, Mapping):
            table = {name: plain(value) for name, value in message.headers.items()}
            if not is_like(self.headers, table):
                found.append(f"headers: {table!r}, expected {_expected_text(self.headers, table)}")
        for name, wanted in self._named_headers.items():
            actual = message.headers.get(name, OMITTED)
            if actual is OMITTED:
                found.append(f"header {name!r}: is missing, expected {shown_wanted(wanted)}")
            elif not is_like(wanted, plain(actual)):
                found.append(f"header {name!r}: {plain(actual)!r}, expected {_expected_text(wanted, plain(actual))}")
        for name, wanted in self.properties.items():
            actual = getattr(message.properties, name)
            if not is_like(wanted, actual):
                found.append(f"property {name}: {actual!r}, expected {_expected_text(wanted, actual)}")
        if self.has_body and not is_body(self.body, message.body):
            found += body_difference(self.body, message.body)
        return found

    @property
    def _named_headers(self) -> Mapping[str, Any]:
        return self.headers if isinstance(self.headers, Mapping) else {}

    def among(self, messages: Sequence[PublishedMessage]) -> list[PublishedMessage]:
        return [message for message in messages if not self.differences(message)]

    def __str__(self) -> str:
        parts = []
        if self.exchange is not None:
            parts.append(f"exchange {shown_wanted(self.exchange)}")
        if self.routing_key is not None:
            parts.append(f"routing key {shown_wanted(self.routing_key)}")
        parts += [f"header {name}={shown_wanted(value)}" for name, value in self._named_headers.items()]
        if not isinstance(self.headers, Mapping):
            parts.append(f"headers {shown_wanted(self.headers)}")
        parts += [f"{name}={shown_wanted(value)}" for name, value in self.properties.items()]
        if self.has_body:
            parts.append(f"body {shown_expected(self.body)}")
        return ", ".join(parts) or "any message"


def body_difference(wanted: Body, body: bytes) -> list[str]:
    """The difference between two bodies: line by line for JSON and for text of several lines, else both bodies."""
    if isinstance(wanted, bytes | bytearray | memoryview | str):
        raw = wanted.encode() if isinstance(wanted, str) else bytes(wanted)
        text, found = raw.decode("utf-8", "backslashreplace"), body.decode("utf-8", "backslashreplace")
        if "\n" not in text and "\n" not in found:
            if max(len(text), len(found)) <= AROUND_MAX:
                return [f"body: {shown_body(body)}, expected {shown_body(raw)}"]
            return [f"body: {_around(found, text)}, expected {_around(text, found)}"]
        return ["body:", *_line_difference(text.split("\n"), found.split("\n"))]
    if is_condition(wanted):
        return [f"body: {shown_body(body)}, expected {_expected_text(wanted, body)}"]
    actual = json_content(body, OMITTED)
    if not is_json(wanted):
        return [f"body: {shown_body(body)}, expected {shown_wanted(wanted)}"]
    if actual is OMITTED:
        return [f"body: {shown_body(body)}, which is no JSON; expected {shown_expected(wanted)}"]
    pretty = [shown_json(one, 2).splitlines() for one in (aligned(wanted, actual), projected(wanted, actual))]
    return ["body:", *_line_difference(*pretty)]


def _expected_text(wanted: Wanted, value: Any) -> str:
    """The expected value as text, with the reason why a condition is not met."""
    return f"{shown_wanted(wanted)}, which {why_not(wanted, value)}" if is_condition(wanted) else shown_wanted(wanted)


def _around(text: str, other: str) -> str:
    """A part of a long text around its first difference from the other."""
    index = next(
        (index for index, pair in enumerate(zip(text, other)) if pair[0] != pair[1]), min(len(text), len(other))
    )
    first = max(0, index - BEFORE_MAX)
    last = min(len(text), first + AROUND_MAX)
    before, after = "..." if first else "", "..." if last < len(text) else ""
    return f"{before}{text[first:last]!r}{after} ({len(text)} characters)"


def _line_difference(wanted: Sequence[str], actual: Sequence[str]) -> list[str]:
    """Both texts as one list of lines: `-` marks expected ones, `+` found ones. Invisible characters are escaped."""
    import difflib  # loaded only for failures

    lines = [line for line in difflib.ndiff(wanted, actual) if not line.startswith("?")]
    return [f"  {_visible(line)}" for line in lines]


def _visible(line: str) -> str:
    mark, text = line[:2], line[2:]
    shown = repr(text) if mark != "  " and text != text.rstrip() else printable(text)
    return f"{mark}{shown}".rstrip()


def publish_failure(
    expected: Expected, count: int | None, published: Sequence[PublishedMessage], matching: int, dropped: int
) -> str:
    """The text of a failure of `assert_published`: the nearest message, its differences, and the other messages."""
    wanted = f"{count} messages" if count is not None and count != 1 else "a message"
    lines = [f"expected {wanted} published like this: {expected}"]
    lines.append(f"but {matching} of {len(published)} published were like it")
    candidates = [(len(expected.differences(message)), -index) for index, message in enumerate(published)]
    if matching == 0 and candidates:
        nearest = -min(candidates)[1]
        lines.append(f"nearest is number {nearest + 1}, where this differs:")
        lines += [f"  {line}" for line in expected.differences(published[nearest])]
    lines.append("published, oldest first:" if published else "nothing was published")
    first = max(0, len(published) - SHOWN_MAX)
    if first:
        lines.append(f"  (the first {first} are not shown)")
    lines += [f"  {number}. {message}" for number, message in enumerate(published[first:], first + 1)]
    if dropped:
        lines.append(f"  (and the {dropped} oldest events were not kept)")
    return "\n".join(lines)


def unexpected_failure(
    expected: Expected, published: Sequence[PublishedMessage], like: Sequence[PublishedMessage]
) -> str:
    """The text of a failure of `assert_not_published`."""
    lines = [f"expected no message published like this: {expected}"]
    lines.append(f"but {len(like)} of {len(published)} published were like it:")
    for message in like[:SHOWN_MAX]:
        to = ", ".join(map(repr, message.queues)) or "no queue"
        lines.append(f"  {message} (at {message.at:g} s, to {to})")
    return "\n".join(lines)


def queue_failure(queue: QueueSnapshot, expected: Mapping[str, Contents], consumers: int | None) -> str:
    """The text of a failure of `assert_queue`; "" when it does not fail."""
    lines: list[str] = []
    for state, wanted in expected.items():
        if wanted is None:
            continue
        messages: tuple[MessageSnapshot, ...] = getattr(queue, state)
        if isinstance(wanted, int) and not isinstance(wanted, bool):
            if len(messages) != wanted:
                lines.append(f"{state}: {len(messages)} messages, expected {wanted}")
                lines += [f"    {message}" for message in messages[:SHOWN_MAX]]
        elif not isinstance(wanted, list | tuple):
            bodies = [plain_body(message.body) for message in messages]
            if not is_like(wanted, bodies):
                lines.append(f"{state}: {bodies!r}, expected {_expected_text(wanted, bodies)}")
        elif len(wanted) != len(messages) or not all(map(is_body, wanted, (each.body for each in messages))):
            lines.append(f"{state}: (- expected, + in the queue)")
            bodies_there = [message.body for message in messages]
            shown = [_spelled_as_found(each, bodies_there[index:] + bodies_there) for index, each in enumerate(wanted)]
            lines += [f"  {line}" for line in _line_difference(shown, list(map(shown_body, bodies_there)))]
    if consumers is not None and len(queue.consumers) != consumers:
        lines.append(f"consumers: {len(queue.consumers)}, expected {consumers}")
        lines += [f"    {printable(consumer.tag)} on {printable(consumer.connection)}" for consumer in queue.consumers]
    if not lines:
        return ""
    return "\n".join([f"queue {queue.name!r} in virtual host {queue.vhost!r} is not as expected:", *lines, str(queue)])


def _spelled_as_found(wanted: Body, bodies: Sequence[bytes]) -> str:
    """The text of an expected body. If an equal body is in the queue, its text is used, so that no line differs."""
    return next((shown_body(body) for body in bodies if is_body(wanted, body)), shown_expected(wanted))
