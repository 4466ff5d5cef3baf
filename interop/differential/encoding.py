"""Encodes an operation, with the names and tags that were generated for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..wire.raw_codec import METHODS, frame, header_payload, method_frame, properties_of
from .channel_state import ChannelState, Operation
from .observations import Names


def encode(operation: Operation, number: str, state: ChannelState, names: Names, frame_max: int) -> bytes:
    """The frames of an operation. `state` is updated as if they are sent. `number`: begins each body
    that is not empty.
    """
    name, channel = operation["op"], operation.get("ch", 0)
    fields = {field_name for field_name, _ in METHODS[name][2]}
    values = {key: _value(key, value, state, names) for key, value in operation.items() if key in fields}
    if name == "basic.publish":
        return _publishes(operation, number, state, names, values, frame_max)
    state.note(name, values)
    return method_frame(channel, name, **values)


def resolve(text: str, names: Names) -> str:
    """For $gen, $ctag or $rabbitmq.reply-to the newest name that the broker generated (none yet: q0); else `text`."""
    if text.startswith("$"):
        return names.latest(text[1:]) or "q0"
    return text


def _publishes(
    operation: Operation, number: str, state: ChannelState, names: Names, values: Mapping[str, Any], frame_max: int
) -> bytes:
    properties = {key: _value(key, value, state, names) for key, value in operation.get("properties", {}).items()}
    octets = b""
    for copy in range(operation.get("count", 1)):
        body = f"{number}.{copy}".encode().ljust(operation.get("size", 0), b".")
        if operation.get("size") == 0:
            body = b""
        octets += content_frames(operation["ch"], values, properties, body, frame_max)
        state.note_publish()
    return octets


def _value(key: str, value: Any, state: ChannelState, names: Names) -> Any:
    if key == "delivery_tag" and isinstance(value, list):
        # ["outstanding", n]: the nth outstanding delivery of this channel
        return state.outstanding[value[1] % len(state.outstanding)] if state.outstanding else 1
    if isinstance(value, dict):
        return {name: _field(tagged, names) for name, tagged in value.items()}
    return resolve(value, names) if isinstance(value, str) else value


def _field(tagged: Any, names: Names) -> tuple[str, Any]:
    tag, value = tagged
    if tag == "F":
        return tag, {name: _field(inner, names) for name, inner in value.items()}
    if tag == "A":
        return tag, [_field(inner, names) for inner in value]
    if isinstance(value, str):
        return tag, resolve(value, names)
    return tag, value


def content_frames(
    channel: int, values: Mapping[str, Any], properties: Mapping[str, Any], body: bytes, frame_max: int
) -> bytes:
    """The frames of a publish. The body is split at the agreed frame size."""
    octets = method_frame(channel, "basic.publish", **values)
    octets += frame(2, channel, header_payload(len(body), properties_of(**properties)))
    step = frame_max - 8
    return octets + b"".join(frame(3, channel, body[at : at + step]) for at in range(0, len(body), step))
