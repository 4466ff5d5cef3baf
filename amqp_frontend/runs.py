"""Runs: publishes and acknowledgements that are alike and came in one read, read as one. The hot part of the reader.

A message that begins with the octets of the one before is taken by comparing those; one frame at a time, with all
checks, is how the reader takes whatever is of another form. Source: performance page 4, rules 2, 3, 6.
"""

from ..engine import PropertyFacts
from .channel_reader import ChannelReader
from .peer_errors import PropertiesUndecodable
from .protocol_events import AcksReceived, PublishReceived
from .wire import ACK_TAIL, BODY, CONTENT_HEAD, FRAME_END, FRAME_HEAD, FRAME_OVERHEAD, HEADER


def read_publishes(
    channel: ChannelReader, data: bytes, position: int, length: int, frame_max: int
) -> tuple[PublishReceived | None, int]:
    """Read a run of like publishes, each with method, header and one body frame all there.

    length: octets of the payload of the first method frame.
    Returns: the run and where it ends; (None, position) when the first is not of that form: then the frames are taken
        one at a time, which also finds what is wrong with them. Raises: PropertiesUndecodable.
    """
    blobs: list[bytes] = []
    append = blobs.append
    startswith = data.startswith
    size = len(data)
    number = channel.number
    body_max = min(frame_max - FRAME_OVERHEAD, channel.message_size_max)
    memory = channel.memory
    start = position
    method_size = length + FRAME_OVERHEAD
    method_frame = data[start : start + method_size]
    run_facts: PropertyFacts | None = None
    while True:
        # One message read with care ...
        header_start = position + method_size
        if size - header_start < CONTENT_HEAD.size:
            break
        kind, header_channel, header_length, class_id, weight, body_size = CONTENT_HEAD.unpack_from(data, header_start)
        header_end = header_start + header_length + FRAME_OVERHEAD
        body_start = header_end + 7
        stop = body_start + body_size + 1
        if (
            stop > size
            or not 0 < body_size <= body_max
            or kind != HEADER
            or header_channel != number
            or class_id != 60
            or weight
            or not 14 <= header_length <= frame_max
            or FRAME_HEAD.unpack_from(data, header_end) != (BODY, number, body_size)
            or data[header_start - 1] != FRAME_END
            or data[header_end - 1] != FRAME_END
            or data[stop - 1] != FRAME_END
        ):
            break
        properties = data[header_start + 19 : header_end - 1]
        try:
            facts = memory.facts_of(properties)
        except PropertiesUndecodable:
            if run_facts is None:
                raise
            break  # what stands before it is published first
        if run_facts is None:
            run_facts = facts
        elif run_facts is not facts:
            break
        append(data[header_start:stop])
        if not startswith(method_frame, stop):
            position = stop
            break
        # ... and then as many as begin with the very same octets (0.2 us each instead of 1.2).
        head = data[position:body_start]
        head_size = body_start - position
        position = stop
        while startswith(head, position):
            stop = position + head_size + body_size + 1
            if stop > size or data[stop - 1] != FRAME_END:
                break
            append(data[position + method_size : stop])
            position = stop
        if not startswith(method_frame, position):
            break
    if run_facts is None:
        return None, start
    return PublishReceived(channel, memory.kind_of(method_frame, run_facts), blobs), position


def is_cut_short(last: PublishReceived, data: bytes, position: int, frame_max: int) -> bool:
    """Whether the rest of a read is the beginning of another message like the last, with nothing wrong in it.

    It then waits for the next read, to begin a run there instead of being assembled frame by frame.
    """
    channel = last.channel
    method_frame = last.kind.method_frame
    start = position + len(method_frame)
    rest = len(data) - start
    if not data.startswith(method_frame, position):
        return False
    if rest < CONTENT_HEAD.size:
        return last.blobs[-1][:11].startswith(data[start : start + 11])  # as the last header, up to its body size
    kind, number, header_length, class_id, weight, body_size = CONTENT_HEAD.unpack_from(data, start)
    header_end = start + header_length + FRAME_OVERHEAD
    if kind != HEADER or number != channel.number or class_id != 60 or weight or header_length > frame_max:
        return False
    if header_end > len(data):
        return True
    body_head = FRAME_HEAD.pack(BODY, number, min(body_size, 0xFFFFFFFF))
    return (
        data[header_end - 1] == FRAME_END
        and channel.memory.is_valid(data[start + 19 : header_end - 1])
        and 0 < body_size <= min(frame_max - FRAME_OVERHEAD, channel.message_size_max)
        and header_end + len(body_head) + body_size >= len(data)
        and body_head.startswith(data[header_end : header_end + len(body_head)])
    )


def read_acks(channel: ChannelReader, data: bytes, position: int) -> tuple[AcksReceived | None, int]:
    """Read a run of basic.ack frames: single ones, then those with `multiple` whose tags rise.

    Returns: the run and where it ends; (None, position) when not even the first is whole and well-formed.
    """
    head = data[position : position + 11]
    size = len(data)
    tags: list[int] = []
    append = tags.append
    unpack_from = ACK_TAIL.unpack_from
    startswith = data.startswith
    up_to: list[int] = []
    while startswith(head, position) and size - position >= 21:
        tag, multiple, end = unpack_from(data, position + 11)
        if end != FRAME_END:
            break
        if multiple & 1:
            if up_to and tag <= up_to[-1]:
                break
            up_to.append(tag)
        elif up_to:
            break
        else:
            append(tag)
        position += 21
    if not tags and not up_to:
        return None, position
    return AcksReceived(channel, tags, up_to), position
