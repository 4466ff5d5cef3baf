"""Deliveries of leases as octets: the fast way gives what the careful one gives, frame by frame."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from pamqp.header import ContentHeader

from leveret.amqp_frontend.peer.deliveries import ConsumerWire, render_delivered
from leveret.amqp_frontend.peer.leases import render_leases
from leveret.amqp_frontend.wire.layout import ContentFraming, content_frames
from leveret.engine import NATIVE, Envelope, scan_properties
from leveret.engine.leases import DeliveredLeases
from leveret.engine.leases.headers import run_headers, topic_entry

FRAME_MAX = 4096
RICH: dict[str, Any] = {
    "content_type": "application/json",
    "headers": {"tenant": "acme", "x-bookmark": "1|3|", "x-topic": 1},
    "correlation_id": "c",
}


def header_of(body_size: int, properties: dict[str, Any]) -> bytes:
    """A content header as a client sends it."""
    return ContentHeader(0, body_size, commands.Basic.Properties(**properties)).marshal()


class Subscriber:
    """As far as rendering looks at a consumer."""

    def __init__(self, channel: int) -> None:
        self.opaque = ConsumerWire(channel, "tag")


@pytest.mark.parametrize("deliveries, until_ms", [(1, None), (1, 1_700_000_000_000), (3, None)])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("properties", [{}, {"delivery_mode": 2}, RICH], ids=["bare", "mode", "rich"])
@pytest.mark.parametrize("body_size", [0, 20, 10_000, 60_000], ids=["empty", "small", "frames", "large"])
@pytest.mark.parametrize("channel", [1, 2])
def test_both_ways(
    channel: int, body_size: int, properties: dict[str, Any], count: int, deliveries: int, until_ms: int | None
) -> None:
    """Whatever the content, also on another channel, and in a run whose last message has another header."""
    header = header_of(body_size, properties)
    other = header_of(body_size, {**properties, "message_id": "m"})
    envelope = Envelope("orders", "new", scan_properties(header[12:]), ContentFraming(1, FRAME_MAX))
    bodies = [bytes([number]) * body_size for number in range(count)]
    alike = [content_frames(1, header, body, FRAME_MAX) for body in bodies]
    for contents in (alike, [*alike[:-1], content_frames(1, other, bodies[-1], FRAME_MAX)]):
        headers = run_headers(topic_entry("orders"), range(100, 100 + count), deliveries, until_ms)
        assert headers is not None
        effect = DeliveredLeases(Subscriber(channel), 7, envelope, contents, headers)  # type: ignore[arg-type]
        fast, careful = (
            b"".join(render_leases(effect, FRAME_MAX)),
            b"".join(render_delivered(effect.as_delivered(), FRAME_MAX)),
        )
        assert fast == careful
        ((first_tag, plain, dressed),) = effect.runs()
        assert first_tag == 7
        for number, (content, body) in enumerate(zip(dressed, bodies), 100):
            said = plain.headers(content)
            assert said["x-bookmark"].text == f"1|{number}|" and said["x-topic"].text == "orders"
            assert (said["x-delivery-count"].value, said["x-cancel-count"].value) == (deliveries, 0)
            assert ("x-lease-until" in said) == (until_ms is not None) and NATIVE.split(content)[1] == body


def test_numbers_of_one_length() -> None:
    """A run whose bookmarks have numbers of different lengths has no headers in common."""
    topic = topic_entry("t")
    assert run_headers(topic, [9, 10], 1, None) is None
    assert run_headers(topic, [10, 9], 1, None) is None
    assert run_headers(topic, [10, 99, 50], 1, None) is not None
