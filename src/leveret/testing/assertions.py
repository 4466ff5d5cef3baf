"""Assertions about messages, and texts for when they fail that say where the difference is."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..settings.printable import printable
from .history import PublishedMessage
from .snapshots import MessageSnapshot, QueueSnapshot, plain, shown_body

#: A body as tests write it: octets, text, or anything else to be compared as JSON.
Body = Any

_UNSAID: Any = object()
SHOWN_MAX = 20


@dataclass(slots=True, frozen=True)
class Expected:
    """What a message should be like; what is not given may be anything.

    `headers`: these must be there, more may be. `properties`: by name, as `Properties` has them.
    """

    exchange: str | None = None
    routing_key: str | None = None
    body: Body = _UNSAID
    headers: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def says_body(self) -> bool:
        """Whether a certain body is expected."""
        return self.body is not _UNSAID

    def differences(self, message: PublishedMessage) -> list[str]:
        """Where a message is other than expected, a line or more each; none: it is as expected."""
        found: list[str] = []
        for name, wanted, is_now in (
            ("exchange", self.exchange, message.exchange),
            ("routing key", self.routing_key, message.routing_key),
        ):
            if wanted is not None and wanted != is_now:
                found.append(f"{name}: {is_now!r}, expected {wanted!r}")
        for name, wanted in self.headers.items():
            is_now = message.headers.get(name, _UNSAID)
            if is_now is _UNSAID:
                found.append(f"header {name!r}: is missing, expected {wanted!r}")
            elif plain(is_now) != wanted:
                found.append(f"header {name!r}: {plain(is_now)!r}, expected {wanted!r}")
        for name, wanted in self.properties.items():
            is_now = getattr(message.properties, name)
            if is_now != wanted:
                found.append(f"property {name}: {is_now!r}, expected {wanted!r}")
        if self.says_body and not is_body(self.body, message.body):
            found += body_difference(self.body, message.body)
        return found

    def __str__(self) -> str:
        parts = []
        if self.exchange is not None:
            parts.append(f"exchange {self.exchange!r}")
        if self.routing_key is not None:
            parts.append(f"routing key {self.routing_key!r}")
        parts += [f"header {name}={value!r}" for name, value in self.headers.items()]
        parts += [f"{name}={value!r}" for name, value in self.properties.items()]
        if self.says_body:
            parts.append(f"body {shown_expected(self.body)}")
        return ", ".join(parts) or "any message"


def is_body(wanted: Body, body: bytes) -> bool:
    """Whether a body is the one that a test means."""
    if isinstance(wanted, bytes):
        return wanted == body
    if isinstance(wanted, str):
        return wanted.encode() == body
    try:
        return bool(json.loads(body) == wanted)
    except ValueError:
        return False


def shown_expected(wanted: Body) -> str:
    """A body that a test expects, as it would be shown if it were there."""
    if isinstance(wanted, bytes):
        return shown_body(wanted)
    return shown_body(wanted.encode()) if isinstance(wanted, str) else json.dumps(wanted, default=repr)


def body_difference(wanted: Body, body: bytes) -> list[str]:
    """Line by line for JSON and for text of several lines, else both bodies."""
    if isinstance(wanted, bytes | str):
        text = wanted.decode("utf-8", "replace") if isinstance(wanted, bytes) else wanted
        was = body.decode("utf-8", "replace")
        if "\n" not in text and "\n" not in was:
            return [f"body: {shown_body(body)}, expected {shown_expected(wanted)}"]
        return ["body:", *_line_difference(text.splitlines(), was.splitlines())]
    try:
        is_now = json.loads(body)
    except ValueError:
        return [f"body: {shown_body(body)}, which is no JSON; expected {shown_expected(wanted)}"]
    pretty = [json.dumps(one, indent=2, sort_keys=True, default=repr).splitlines() for one in (wanted, is_now)]
    return ["body:", *_line_difference(*pretty)]


def _line_difference(wanted: Sequence[str], is_now: Sequence[str]) -> list[str]:
    """Both as one list: `-` only expected, `+` only there."""
    import difflib  # only when something fails

    lines = [line for line in difflib.ndiff(wanted, is_now) if not line.startswith("?")]
    return [f"  {printable(line).rstrip()}" for line in lines]


def publish_failure(
    expected: Expected, count: int | None, published: Sequence[PublishedMessage], matching: int, dropped: int
) -> str:
    """Why `assert_published` fails: what came nearest, what differs there, and what else was published."""
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


def queue_failure(
    queue: QueueSnapshot, expected: Mapping[str, "int | Sequence[Body] | None"], consumers: int | None
) -> str:
    """Why `assert_queue` fails; "" when it does not."""
    lines: list[str] = []
    for state, wanted in expected.items():
        if wanted is None:
            continue
        messages: tuple[MessageSnapshot, ...] = getattr(queue, state)
        if isinstance(wanted, int):
            if len(messages) != wanted:
                lines.append(f"{state}: {len(messages)} messages, expected {wanted}")
                lines += [f"    {message}" for message in messages[:SHOWN_MAX]]
        elif len(wanted) != len(messages) or not all(map(is_body, wanted, (each.body for each in messages))):
            lines.append(f"{state}: (- expected, + in the queue)")
            shown = [
                shown_expected(each) if not any(is_body(each, one.body) for one in messages) else shown_body(_raw(each))
                for each in wanted
            ]
            is_now = [_as_wanted(one.body, wanted) for one in messages]
            lines += [f"  {line}" for line in _line_difference(shown, is_now)]
    if consumers is not None and len(queue.consumers) != consumers:
        lines.append(f"consumers: {len(queue.consumers)}, expected {consumers}")
        lines += [f"    {printable(consumer.tag)} on {printable(consumer.connection)}" for consumer in queue.consumers]
    if not lines:
        return ""
    return "\n".join([f"queue {queue.name!r} in virtual host {queue.vhost!r} is not as expected:", *lines, str(queue)])


def _raw(wanted: Body) -> bytes:
    if isinstance(wanted, bytes):
        return wanted
    return wanted.encode() if isinstance(wanted, str) else json.dumps(wanted, default=repr).encode()


def _as_wanted(body: bytes, wanted: Sequence[Body]) -> str:
    """A body that is expected somewhere is written as the test wrote it, so that the lines are equal."""
    for each in wanted:
        if is_body(each, body):
            return shown_body(_raw(each))
    return shown_body(body)
