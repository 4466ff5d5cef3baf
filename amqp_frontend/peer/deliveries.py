"""Renders the engine's effects as octets: basic.deliver, basic.return, basic.get-ok.

A delivery is a prefix, the tag, a suffix, and the content as published. Prefixes are cached for each consumer and
length of exchange and routing key. A run of deliveries is built without a loop in Python. Source: performance page 4,
rules 3 and 5.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from struct import Struct

from pamqp import commands

from ...engine import NATIVE, CommonHeader, Delivered, Envelope, Framing
from ..wire.codec import encode_method
from ..wire.large_output import LARGE, Octets, body_parts, for_channel, framed
from ..wire.layout import (
    FRAME_END_OCTET,
    FRAME_OVERHEAD,
    METHOD,
    ContentFraming,
    around_body,
    content_frames,
    plain_content_frames,
)

#: Packs a delivery tag.
TAG = Struct(">Q").pack
_DELIVER_HEAD = Struct(">BHL").pack
_DELIVER_IDS = b"\x00\x3c\x00\x3c"
#: Kinds of messages for which a consumer's prefixes and suffixes are cached.
KNOWN_MAX = 64


class ConsumerWire:
    """Cached octets of a consumer's deliveries; stored in `Consumer.opaque`.

    `prefixes`, `suffixes`: octets before and after the tag, for first deliveries of messages whose contents are passed
    on unchanged.
    """

    __slots__ = ("_by_routing_size", "_head", "_seen", "number", "prefixes", "suffixes")

    def __init__(self, number: int, tag: str) -> None:
        raw = tag.encode()
        self.number = number
        self._head = _DELIVER_IDS + bytes((len(raw),)) + raw
        self._by_routing_size: dict[int, bytes] = {}  # at most 512 sizes exist
        self.prefixes: dict[Envelope, bytes] = {}
        self.suffixes: dict[Envelope, bytes] = {}
        self._seen: set[Envelope] = set()

    def prefix(self, routing_size: int) -> bytes:
        """Frame head, ids and consumer tag of a delivery. `routing_size`: octets of exchange and routing key."""
        prefix = self._by_routing_size.get(routing_size)
        if prefix is None:
            size = len(self._head) + 9 + routing_size
            prefix = self._by_routing_size[routing_size] = _DELIVER_HEAD(METHOD, self.number, size) + self._head
        return prefix

    def note(self, envelopes: Iterable[Envelope], frame_max: int) -> None:
        """Note the kinds of messages that were delivered. A kind that two calls in a row note is cached.

        `frame_max`: of the consumer's connection.
        """
        seen = set(envelopes)
        for envelope in seen & self._seen:
            framing = envelope.framing
            if type(framing) is ContentFraming and framing.channel == self.number and framing.frame_max <= frame_max:
                if len(self.prefixes) >= KNOWN_MAX:
                    self.prefixes.clear()
                    self.suffixes.clear()
                routing = routing_octets(envelope)
                self.prefixes[envelope] = self.prefix(len(routing))
                self.suffixes[envelope] = b"\x00" + routing + FRAME_END_OCTET
        self._seen = seen if len(seen) <= KNOWN_MAX else set()


def routing_octets(envelope: Envelope) -> bytes:
    """Exchange and routing key as two short strings."""
    if envelope.opaque is not None:
        return envelope.opaque
    exchange, routing_key = envelope.exchange.encode(), envelope.routing_key.encode()
    return bytes((len(exchange),)) + exchange + bytes((len(routing_key),)) + routing_key


def contents_for(envelope: Envelope, contents: Sequence[bytes], number: int, frame_max: int) -> Sequence[bytes]:
    """The contents as content frames for a channel of a connection; unchanged if channel and frame_max allow it."""
    framing = envelope.framing
    if type(framing) is ContentFraming and framing.frame_max <= frame_max:
        if framing.channel == number:
            return contents
        on_channel = framing.on_channel
        return [on_channel(content, number) for content in contents]
    if framing is NATIVE:
        return plain_content_frames(number, contents, frame_max)
    split = framing.split
    return [content_frames(number, *split(content), frame_max) for content in contents]


def content_parts(envelope: Envelope, content: bytes, number: int, frame_max: int) -> Sequence[Octets]:
    """Like `contents_for`, for one content; the frames of a large one come in parts."""
    framing = envelope.framing
    if len(content) < LARGE:
        return contents_for(envelope, (content,), number, frame_max)
    if type(framing) is ContentFraming:
        if framing.frame_max > frame_max:
            return framed(number, *body_parts(content), frame_max)
        return (content,) if framing.channel == number else for_channel(content, number)
    if type(framing) is CommonHeader:
        return framed(number, framing.header, [memoryview(content)], frame_max)
    if framing is NATIVE:
        header_end = 4 + int.from_bytes(content[:4], "big")
        return framed(number, content[4:header_end], [memoryview(content)[header_end:]], frame_max)
    return contents_for(envelope, (content,), number, frame_max)


def render_delivered(deliveries: Delivered, frame_max: int) -> Iterable[Octets]:
    """The octets of a run of deliveries, in parts."""
    wire = deliveries.consumer.opaque
    assert isinstance(wire, ConsumerWire)
    envelope = deliveries.envelopes  # the common one, unless the run is mixed
    if not isinstance(envelope, Envelope):
        return _render_mixed(deliveries, envelope, wire, frame_max)
    contents, tag = deliveries.contents, deliveries.first_tag
    count = len(contents)
    if not deliveries.redelivered:
        known = wire.suffixes.get(envelope)
        if known is not None:
            prefix = wire.prefixes[envelope]
            if count == 1:
                return (prefix, TAG(tag), known, contents[0])
            return chain.from_iterable(zip(repeat(prefix), map(TAG, range(tag, tag + count)), repeat(known), contents))
        wire.note((envelope,), frame_max)
    routing = routing_octets(envelope)
    prefix = wire.prefix(len(routing))
    suffix = (b"\x01" if deliveries.redelivered else b"\x00") + routing + FRAME_END_OCTET
    tags = map(TAG, range(tag, tag + count))
    framing = envelope.framing
    if type(framing) is CommonHeader and len(contents[0]) + FRAME_OVERHEAD <= frame_max:
        before, behind = around_body(wire.number, framing.header, len(contents[0]))
        return chain.from_iterable(zip(repeat(prefix), tags, repeat(suffix + before), contents, repeat(behind)))
    if count == 1:
        return (prefix, TAG(tag), suffix, *content_parts(envelope, contents[0], wire.number, frame_max))
    contents = contents_for(envelope, contents, wire.number, frame_max)
    return chain.from_iterable(zip(repeat(prefix), tags, repeat(suffix), contents))


def _render_mixed(
    deliveries: Delivered, envelopes: Sequence[Envelope], wire: ConsumerWire, frame_max: int
) -> Iterable[bytes]:
    contents = deliveries.contents
    tags = map(TAG, range(deliveries.first_tag, deliveries.first_tag + len(contents)))
    if not deliveries.redelivered:
        try:
            known = list(map(wire.prefixes.__getitem__, envelopes))
        except KeyError:
            wire.note(envelopes, frame_max)
        else:
            return chain.from_iterable(zip(known, tags, map(wire.suffixes.__getitem__, envelopes), contents))
    prefixes: dict[Envelope, bytes] = {}
    suffixes: dict[Envelope, bytes] = {}
    flag = b"\x01" if deliveries.redelivered else b"\x00"
    framings: dict[Framing, None] = {}
    for envelope in dict.fromkeys(envelopes):
        routing = routing_octets(envelope)
        prefixes[envelope] = wire.prefix(len(routing))
        suffixes[envelope] = flag + routing + FRAME_END_OCTET
        framings[envelope.framing] = None
    frames: Iterable[bytes]
    if len(framings) == 1:
        frames = contents_for(envelopes[0], contents, wire.number, frame_max)
    else:
        frames = chain.from_iterable(
            contents_for(envelope, run, wire.number, frame_max) for _, envelope, run in deliveries.runs()
        )
    heads, tails = map(prefixes.__getitem__, envelopes), map(suffixes.__getitem__, envelopes)
    return chain.from_iterable(zip(heads, tags, tails, frames))


def render_returns(
    number: int,
    envelope: Envelope,
    contents: Sequence[bytes],
    frame_max: int,
    *,
    code: int = 312,
    text: str = "NO_ROUTE",
) -> Iterable[Octets]:
    """basic.return with content for messages that reached no queue, or were refused for another reason."""
    head = encode_method(number, commands.Basic.Return, code, text, envelope.exchange, envelope.routing_key)
    if len(contents) == 1:
        return (head, *content_parts(envelope, contents[0], number, frame_max))
    return chain.from_iterable(zip(repeat(head), contents_for(envelope, contents, number, frame_max)))
