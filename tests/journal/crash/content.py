"""Message `number` for a target, as it is published: the same octets whenever it is asked for.

So whatever a restarted broker hands out can be compared to the last octet, without remembering it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from pamqp import body, commands, frame, header

#: Where messages go: a fanout exchange that several queues are bound to, or a queue by its name.
FANOUT = "e"
PRIORITIES = 10
#: Messages for these have priorities.
PRIORITIZED = ("first", "urgent")
#: Octets from which bodies are cut.
_PATTERN = bytes(at * 7 % 251 for at in range(256)) * 640
_BODY_FRAME_OCTETS = 100_000
_PERSISTENT_PLAIN = b"\x10\x00\x02"  # flags of the property list, and delivery mode 2


def is_transient(number: int, target: str) -> bool:
    """Whether only queues that store everything keep it."""
    return target == FANOUT and number % 16 == 0


def has_headers(number: int) -> bool:
    """Whether a message has headers wherever it is published to."""
    return number % 8 == 1


def priority_of(number: int) -> int:
    """Of the messages of queues with priorities."""
    return number * 7 % PRIORITIES


def expiration_ms(number: int, target: str) -> int | None:
    """The message's own time to live."""
    return 2_000_000 + number % 1000 if target == "timed" and number % 2 else None


def delay_ms(number: int) -> int:
    """How long a message of the queue where all wait does."""
    return 3_000_000 + number % 1000


def key_of(number: int) -> int:
    """Of the messages of the last-value queue."""
    return number % 499


def _headers(number: int, target: str) -> dict[str, Any]:
    headers: dict[str, Any] = {"n": number, "of": target, "list": ["a", 1, None]} if has_headers(number) else {}
    if target == "newest":
        headers["key"] = key_of(number)
    elif target == "later":
        headers["x-delay"] = delay_ms(number)
    return headers


def body_of(number: int) -> bytes:
    """Most are short, some have a few KiB, a few more than a frame holds."""
    text = b"%d " % number
    lot = number * 2654435761 % 1000
    if lot < 700:
        size = lot % 64
    elif lot < 960:
        size = lot * 37 % 1024
    elif lot < 999:
        size = 1024 + lot * 977 % 7000
    else:
        size = 150_000
    start = number % 256
    return text + _PATTERN[start : start + size]


def number_of(content: bytes) -> int:
    """Which message it says to be. Raises: ValueError."""
    return int(content[: content.index(b" ")])


def properties_of(number: int, target: str) -> commands.Basic.Properties | None:
    """None: nothing but that it is persistent."""
    headers = _headers(number, target)
    expiration = expiration_ms(number, target)
    if not (headers or expiration or target in PRIORITIZED or is_transient(number, target)):
        return None
    return commands.Basic.Properties(
        delivery_mode=1 if is_transient(number, target) else 2,
        priority=priority_of(number) if target in PRIORITIZED else None,
        expiration=None if expiration is None else str(expiration),
        headers=headers or None,
        message_id=str(number) if headers else None,
        timestamp=datetime.fromtimestamp(1_700_000_000 + number, UTC) if number % 16 == 1 else None,
    )


def header_payload(number: int, target: str) -> bytes:
    """The payload of the content header's frame."""
    size = len(body_of(number))
    properties = properties_of(number, target)
    if properties is None:
        return b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + _PERSISTENT_PLAIN
    marshalled: bytes = header.ContentHeader(body_size=size, properties=properties).marshal()
    return marshalled


@cache
def _publish_frame(exchange: str, routing_key: str, channel: int) -> bytes:
    return frame.marshal(commands.Basic.Publish(exchange=exchange, routing_key=routing_key), channel)


def publish_octets(number: int, target: str, channel: int) -> bytes:
    """The frames of one publish."""
    method = _publish_frame(FANOUT, "", channel) if target == FANOUT else _publish_frame("", target, channel)
    head, content = header_payload(number, target), body_of(number)
    octets = b"%b\x02%b%b%b\xce" % (method, channel.to_bytes(2, "big"), len(head).to_bytes(4, "big"), head)
    for start in range(0, len(content), _BODY_FRAME_OCTETS):
        octets += frame.marshal(body.ContentBody(content[start : start + _BODY_FRAME_OCTETS]), channel)
    return octets


def properties_in(payload: bytes) -> dict[str, Any]:
    """Those of a content header's payload that are there."""
    content_header = header.ContentHeader()
    content_header.unmarshal(payload)
    return {name: value for name, value in dict(content_header.properties).items() if value is not None}


def what_differs(number: int, target: str, payload: bytes, content: bytes, *, died: bool) -> str:
    """Empty, or what is another than published. Headers of the broker's own may be added (`x-...`); `died`: a dead
    letter has lost its expiration."""
    if content != body_of(number):
        return "the body"
    if payload == header_payload(number, target):
        return ""
    found = properties_in(payload)
    expected = properties_in(header_payload(number, target))
    headers = {name: value for name, value in (found.pop("headers", None) or {}).items() if not name.startswith("x-")}
    if headers != (expected.pop("headers", None) or {}):
        return f"headers {headers}"
    if died:
        expected.pop("expiration", None)
    return "" if found == expected else f"properties {found} instead of {expected}"
