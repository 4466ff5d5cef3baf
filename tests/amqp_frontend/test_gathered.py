"""Output in large parts: what the kernel gets, however little it takes at once; and contents framed anew as slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp_frontend.edge.endpoint import Endpoint
from leveret.amqp_frontend.edge.server import Server
from leveret.amqp_frontend.options import FrontendOptions
from leveret.amqp_frontend.peer.deliveries import content_parts, contents_for
from leveret.amqp_frontend.peer.login import Peer
from leveret.amqp_frontend.wire.large_output import (
    ENTRIES_MAX,
    FRAME_MIN,
    JOINED_MAX,
    LARGE,
    PART_MIN,
    Gathered,
    Octets,
    joined,
)
from leveret.amqp_frontend.wire.layout import ContentFraming, content_frames
from leveret.engine import NATIVE, Broker, CommonHeader, Envelope, ManualClock
from leveret.engine.messages.content import encode_header
from leveret.serving.runtime import Runtime

LARGE_PART = bytes(range(256)) * (PART_MIN // 256)
PARTS = st.lists(
    st.sampled_from([b"", b"prefix", b"tag", LARGE_PART, LARGE_PART * 3, bytes(PART_MIN - 1)]), max_size=30
)


class Kernel:
    """Takes what `allowed` says, call after call; 0: nothing now."""

    def __init__(self, allowed: Sequence[int]) -> None:
        self.allowed = list(allowed)
        self.taken = b""

    def sendmsg(self, buffers: Sequence[Octets], /) -> int:
        assert len(buffers) <= ENTRIES_MAX
        allowed = self.allowed.pop(0) if self.allowed else 1 << 30
        if not allowed:
            raise BlockingIOError
        taken = b"".join(buffers)[:allowed]
        self.taken += taken
        return len(taken)


@given(PARTS, st.lists(st.integers(0, 3 * PART_MIN), max_size=20))
def test_the_kernel_gets_all_in_order(parts: list[bytes], allowed: list[int]) -> None:
    """What it did not take is sent first the next time."""
    kernel, gathered = Kernel(allowed), Gathered(parts)
    is_sent = False
    while not is_sent:
        try:
            is_sent = gathered.send(kernel)
        except BlockingIOError:
            pass
    assert kernel.taken == b"".join(parts)


@given(PARTS)
def test_small_parts_are_joined_large_ones_are_not_copied(parts: list[bytes]) -> None:
    """Large ones are the same objects as before; no two small ones stand side by side."""
    found = joined(parts)
    assert b"".join(found) == b"".join(parts)
    assert [id(part) for part in parts if len(part) >= PART_MIN] == [
        id(part) for part in found if any(part is one for one in parts) and len(part) >= PART_MIN
    ]
    for one, other in zip(found, found[1:]):
        assert len(one) >= PART_MIN or len(other) >= PART_MIN
    assert all(len(part) <= JOINED_MAX for part in found)


def test_more_parts_than_a_call_takes() -> None:
    """They go in several."""
    parts = [LARGE_PART] * (ENTRIES_MAX + 3)
    kernel = Kernel([])
    assert Gathered(parts).send(kernel)
    assert kernel.taken == b"".join(parts)


class FullSocket(Kernel):
    """A socket of which an endpoint knows no more."""

    def fileno(self) -> int:
        return -1


def test_octets_are_counted_that_the_kernel_took_before_it_was_full() -> None:
    """It takes all that one call carries, and nothing of the next one."""
    broker = Broker(ManualClock())
    server = Server(Runtime(broker), FrontendOptions, cast(Any, None))
    kernel = FullSocket([1 << 30, 0])
    endpoint = Endpoint(server, cast(Any, kernel), Peer("peer", is_loopback=True), None, False)
    output = endpoint.session.output
    output.send_raw(0, *[LARGE_PART * 2] * (ENTRIES_MAX + 3))
    info = endpoint.session.login.connection_info
    assert not endpoint._send_all()
    assert info.octets_out == len(kernel.taken) == ENTRIES_MAX * len(LARGE_PART * 2)
    assert endpoint._send_all()
    assert info.octets_out == len(kernel.taken) == (ENTRIES_MAX + 3) * len(LARGE_PART * 2)


BODY = bytes(range(251)) * 700
HEADER = encode_header(len(BODY))


@pytest.mark.parametrize("channel", [1, 7])
@pytest.mark.parametrize("frame_max", [4096, 50_000, 131072])
@pytest.mark.parametrize("stored_max", [4096, 50_000, 131072])
@pytest.mark.parametrize("framing", ["as received", "plain", "common"])
def test_parts_of_a_large_content(framing: str, stored_max: int, frame_max: int, channel: int) -> None:
    """The octets that are sent of a small one, in parts, for each framing, channel and frame_max."""
    if framing == "as received":
        content, of = content_frames(1, HEADER, BODY, stored_max), ContentFraming(1, stored_max)
    elif framing == "plain":
        content, of = NATIVE.join(HEADER, BODY), NATIVE  # type: ignore[assignment]
    else:
        content, of = BODY, CommonHeader(HEADER)  # type: ignore[assignment]
    assert len(content) > LARGE
    envelope = Envelope("", "q", framing=of)
    parts = content_parts(envelope, content, channel, frame_max)
    assert [b"".join(parts)] == list(contents_for(envelope, (content,), channel, frame_max))
    if min(stored_max, frame_max) > FRAME_MIN:
        copies = [part for part in parts if not isinstance(part, memoryview) and part is not content]
        assert all(len(part) < 100 for part in copies)
