"""Input of clients, split for faults and recordings: one message an event, octets without the handshake."""

from collections.abc import Iterator

from ..amqp_frontend.wire.events import AcksReceived, MixedReceived, ProtocolEvent, PublishReceived


def single_events(event: ProtocolEvent) -> Iterator[ProtocolEvent]:
    """A run of publishes or acks as events of one message each."""
    if isinstance(event, MixedReceived):
        for kind, content in zip(event.kinds, event.contents):
            yield PublishReceived(event.channel, kind, [content])
    elif isinstance(event, PublishReceived) and len(event.contents) > 1:
        for content in event.contents:
            yield PublishReceived(event.channel, event.kind, [content])
    elif isinstance(event, AcksReceived) and len(event.tags) + len(event.up_to) > 1:
        for tag in event.tags:
            yield AcksReceived(event.channel, [tag], [])
        for tag in event.up_to:
            yield AcksReceived(event.channel, [], [tag])
    else:
        yield event


def input_after_open(handshake: bytes) -> bytes:
    """The input after a client's connection.open."""
    position = 8
    while position + 7 < len(handshake):
        end = position + 8 + int.from_bytes(handshake[position + 3 : position + 7], "big")
        if handshake[position + 7 : position + 11] == b"\x00\x0a\x00\x28":
            return handshake[end:]
        position = end
    return b""
