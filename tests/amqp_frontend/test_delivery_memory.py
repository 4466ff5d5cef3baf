"""What a consumer's deliveries begin and end with is remembered for kinds that come again (deliveries.py)."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp_frontend.peer.deliveries import KNOWN_MAX, ConsumerWire, render_delivered
from leveret.amqp_frontend.wire.layout import BODY, HEADER, ContentFraming, frame
from leveret.engine import Delivered, Envelope

FRAME_MAX = 4096


class Receiver:
    """As much of a consumer as is looked at."""

    def __init__(self) -> None:
        self.opaque = ConsumerWire(1, "tag")

    def octets(self, envelopes: Any, contents: list[bytes], redelivered: bool = False) -> bytes:
        """A delivery as it is sent."""
        consumer: Any = self
        return b"".join(render_delivered(Delivered(consumer, 7, envelopes, redelivered, contents), FRAME_MAX))


def kind(name: str, channel: int = 1, frame_max: int = FRAME_MAX) -> Envelope:
    """What messages with this routing key share that came on a channel of a connection."""
    return Envelope("", name, framing=ContentFraming(channel, frame_max))


def content(channel: int = 1) -> bytes:
    """As it came on a channel."""
    return frame(HEADER, channel, b"\0\x3c" + bytes(9) + b"\x01" + bytes(2)) + frame(BODY, channel, b"x")


@pytest.mark.parametrize("redelivered", [False, True])
@pytest.mark.parametrize("channel, frame_max", [(1, FRAME_MAX), (2, FRAME_MAX), (1, 2 * FRAME_MAX)])
@pytest.mark.parametrize("names", ["a", "aa", "ab", "abab"])
def test_the_same_octets_each_time(names: str, channel: int, frame_max: int, redelivered: bool) -> None:
    """Whether they are remembered or not."""
    known = {name: kind(name, channel, frame_max) for name in "ab"}
    envelopes: Any = known["a"] if set(names) == {"a"} else [known[name] for name in names]
    contents = [content(channel)] * len(names)
    receiver = Receiver()
    first = receiver.octets(envelopes, contents, redelivered)
    for _ in range(3):
        receiver.octets(envelopes, contents)
        assert receiver.octets(envelopes, contents, redelivered) == first
    assert first.endswith(content(1))
    assert bool(receiver.opaque.prefixes) == (channel == 1 and frame_max == FRAME_MAX)


def test_what_never_comes_again_is_not_remembered() -> None:
    """Routing keys that are all new."""
    receiver = Receiver()
    for number in range(10):
        receiver.octets(kind(str(number)), [content()])
    assert not receiver.opaque.prefixes


def test_the_memory_is_bounded() -> None:
    """It begins anew."""
    receiver = Receiver()
    for number in range(2 * KNOWN_MAX):
        envelope = kind(str(number))
        assert len({receiver.octets(envelope, [content()]) for _ in range(4)}) == 1
        assert envelope in receiver.opaque.prefixes
        assert len(receiver.opaque.prefixes) == len(receiver.opaque.suffixes) <= KNOWN_MAX
