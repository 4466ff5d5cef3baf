"""Misplaced frames, each of which ends the connection."""

from __future__ import annotations

from collections.abc import Callable

from ..wire.raw_codec import BODY, HEADER, HEARTBEAT, METHOD, frame, header_payload, method_frame

UNKNOWN_TYPE = 99


def _publish(channel: int) -> bytes:
    return method_frame(channel, "basic.publish", exchange="", routing_key="q0")


def _header(channel: int) -> bytes:
    return frame(HEADER, channel, header_payload(1))


#: Fault -> the octets for a channel.
MISPLACED: dict[str, Callable[[int], bytes]] = {
    "header without a method": _header,
    "body without a method": lambda channel: frame(BODY, channel, b"x"),
    "body instead of a header": lambda channel: _publish(channel) + frame(BODY, channel, b"x"),
    "method instead of a header": lambda channel: _publish(channel) + _publish(channel),
    "method instead of a body": lambda channel: _publish(channel) + _header(channel) + _publish(channel),
    "header instead of a body": lambda channel: _publish(channel) + _header(channel) + _header(channel),
    "header of another class": lambda channel: (
        _publish(channel) + frame(HEADER, channel, header_payload(1, class_id=50))
    ),
    "heartbeat on a channel": lambda channel: frame(HEARTBEAT, channel, b""),
    "unknown type": lambda channel: frame(UNKNOWN_TYPE, channel, b"abc"),
    "wrong end": lambda channel: method_frame(channel, "basic.qos")[:-1] + b"\0",
    "channel method on channel 0": lambda channel: method_frame(0, "basic.qos"),
    "body on channel 0": lambda channel: frame(BODY, 0, b"x"),
    "method of a channel that was never opened": lambda channel: method_frame(channel + 100, "basic.qos"),
    "method of no octets": lambda channel: frame(METHOD, channel, b""),
}
