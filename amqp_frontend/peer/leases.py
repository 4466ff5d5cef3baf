"""Renders leases: deliveries with additional headers, made without a loop in Python if messages are alike.

Only the header frame differs from the published content; in a run it is the same except for the number in the bookmark.
This module is imported for the first lease. Source: queues page A.2; performance page 4, rule 5.
"""

from collections.abc import Iterable
from itertools import chain, repeat
from operator import itemgetter, methodcaller

from ...engine import Envelope
from ...engine.leases import DeliveredLeases
from ..wire.large_output import LARGE, Octets
from ..wire.layout import BODY, FRAME_END_OCTET, FRAME_HEAD, FRAME_HEAD_SIZE, FRAME_OVERHEAD, HEADER, ContentFraming
from .deliveries import TAG, ConsumerWire, render_delivered, routing_octets
from .output import RENDERERS


def render_leases(deliveries: DeliveredLeases, frame_max: int) -> Iterable[Octets]:
    """The octets of a run of deliveries, in parts."""
    wire, envelope, contents = deliveries.consumer.opaque, deliveries.envelopes, deliveries.contents
    assert isinstance(wire, ConsumerWire) and isinstance(envelope, Envelope)
    framing, first, count = envelope.framing, contents[0], len(contents)
    if type(framing) is not ContentFraming or framing.frame_max > frame_max or len(first) >= LARGE:
        return render_delivered(deliveries.as_delivered(), frame_max)
    cut = FRAME_OVERHEAD + int.from_bytes(first[3:7], "big")  # after the header frame
    if count > 1 and not all(map(methodcaller("startswith", first[:cut]), contents)):
        return render_delivered(deliveries.as_delivered(), frame_max)
    before, behind = deliveries.headers.around(first[FRAME_HEAD_SIZE : cut - 1])
    routing = routing_octets(envelope)
    headers, tag = deliveries.headers, deliveries.first_tag
    redelivered = b"\x01" if deliveries.redelivered else b"\x00"
    size = len(before) + headers.digits + len(behind)
    behind += FRAME_END_OCTET
    if framing.channel != wire.number and cut < len(first):
        behind += FRAME_HEAD.pack(BODY, wire.number, 0)[:3]
        cut += 3
        if len(first) != cut + 4 + int.from_bytes(first[cut : cut + 4], "big") + 1:
            return render_delivered(deliveries.as_delivered(), frame_max)  # several body frames
    prefix, tags = wire.prefix(len(routing)), map(TAG, range(tag, tag + count))
    around = b"".join((redelivered, routing, FRAME_END_OCTET, FRAME_HEAD.pack(HEADER, wire.number, size), before))
    pattern = around.replace(b"%", b"%%") + b"%d" + behind.replace(b"%", b"%%")
    bodies = map(itemgetter(slice(cut, None)), contents)
    return chain.from_iterable(zip(repeat(prefix), tags, map(pattern.__mod__, headers.numbers), bodies))


RENDERERS[DeliveredLeases] = render_leases
