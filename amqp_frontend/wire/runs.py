"""Parses runs: similar publishes, or acknowledgements, that follow one another in one read of the socket. Hot.

The first message is parsed with all checks. The head of the next one is compared with it: if the octets are the same,
or have the same shape, the message is not parsed. Consecutive publishes of different known kinds are a mixed run: the
head of each message is looked up in a cache (1 us). All other input is read one frame at a time, with all checks.
Source: performance page 4, rules 2, 3, 4, 6.
"""

from functools import lru_cache
from itertools import chain
from struct import Struct
from struct import error as StructError

from ...engine import PropertySummary
from .channel_reader import ChannelReader
from .events import AcksReceived, MixedReceived, PublishReceived
from .large_body import LARGE_MIN
from .layout import (
    ACK_SIZE,
    ACK_TAG,
    ACK_TAIL,
    BODY,
    CONTENT_HEAD,
    FRAME_END,
    FRAME_END_OCTET,
    FRAME_HEAD,
    FRAME_HEAD_SIZE,
    FRAME_OVERHEAD,
    HEADER,
    HEADER_FIXED,
)
from .peer_errors import PropertiesUndecodable
from .publish_cache import HEAD_FIXED, PROPERTY_LISTS_MAX, PublishCache, PublishKind

#: This many acks or more at the end of a read are compared all at once.
ROW_MIN = 4
#: Acks that are compared as one large number. More are compared column by column.
ROW_AS_NUMBER_MAX = 64
#: Mask of the octets that are the same in single acks of a channel, and the octets after their common prefix.
_ACK_MASK = b"\xff" * 11 + bytes(8) + b"\xff\xff"
_ACK_REST = bytes(9) + FRAME_END_OCTET


def read_run(
    channel: ChannelReader, data: bytes, position: int, length: int, frame_max: int
) -> tuple[PublishReceived | None, int]:
    """Read a run of similar publishes, each with a whole method, header and single body frame.

    length: octets of the payload of the first method frame.
    Returns: the run and its end; (None, position) if the first is not of that form: then the frames are read one at a
        time, which also finds their errors. Raises: PropertiesUndecodable.
    """
    contents: list[bytes] = []
    append = contents.append
    startswith = data.startswith
    size = len(data)
    number = channel.number
    body_max = min(frame_max - FRAME_OVERHEAD, channel.message_size_max)
    cache = channel.publish_cache
    known_summaries = cache.summaries
    start = position
    method_size = length + FRAME_OVERHEAD
    method_frame = data[start : start + method_size]
    run_summary: PropertySummary | None = None
    while True:
        # One message is read with all checks ...
        header_start = position + method_size
        if size - header_start < HEADER_FIXED:
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
        properties = data[header_start + HEADER_FIXED : header_end - 1]
        try:
            summary = known_summaries.get(properties) or cache.summary_of(properties)
        except PropertiesUndecodable:
            if run_summary is None:
                raise
            break  # the messages before it are published first
        if run_summary is None:
            run_summary = summary
        elif run_summary is not summary:
            break
        append(data[header_start:stop])
        if not startswith(method_frame, stop):
            position = stop
            break
        # ... then all that begin with the very same octets (0.2 us each instead of 1.2) ...
        head = data[position:body_start]
        head_size = body_start - position
        position = stop
        while startswith(head, position):
            stop = position + head_size + body_size + 1
            if stop > size or data[stop - 1] != FRAME_END:
                break
            append(data[position + method_size : stop])
            position = stop
        else:
            # ... or with octets of the same shape (0.5 us).
            if not channel.is_mixed and size - position > head_size and startswith(head[: method_size + 11], position):
                position = _read_shaped(cache, data, position, head, method_size, properties, body_max, contents)
        if not startswith(method_frame, position):
            break
    if run_summary is None:
        return None, start
    return PublishReceived(channel, cache.kind_of(method_frame, run_summary), contents), position


def _read_shaped(
    cache: PublishCache,
    data: bytes,
    position: int,
    head: bytes,
    method_size: int,
    properties: bytes,
    body_max: int,
    contents: list[bytes],
) -> int:
    """Read messages whose heads differ from a checked one only in the size of the body and in ids.

    head: its octets up to the body; properties: its property list, which has as many octets as the next message's.
    Returns: the end of the messages; their contents are added to `contents`.
    """
    list_size = len(properties)
    shape = cache.shapes.find(properties)
    if shape is not None:
        list_mask = shape[0]
    elif data.startswith(properties, position + method_size + HEADER_FIXED):
        list_mask = (1 << 8 * list_size) - 1
    else:
        return position
    # All bits except the size of the body in the header, the shape's variable ones, and the size of the body frame.
    fixed = (1 << 8 * (method_size + 11)) - 1
    mask = fixed << 8 * list_size + 128 | list_mask << 64 | 0xFFFFFFFF << 32
    from_bytes = int.from_bytes
    value = from_bytes(head, "big") & mask
    head_size = len(head)
    sizes = _sizes(method_size + 11, list_size + 4).unpack_from
    size = len(data)
    append = contents.append
    while from_bytes(data[position : position + head_size], "big") & mask == value:
        body_size, in_frame = sizes(data, position)
        stop = position + head_size + body_size + 1
        if body_size != in_frame or not 0 < body_size <= body_max or stop > size or data[stop - 1] != FRAME_END:
            break
        append(data[position + method_size : stop])
        position = stop
    return position


@lru_cache(PROPERTY_LISTS_MAX)
def _sizes(before: int, between: int) -> Struct:
    """Layout of the body size in the header, and in the head of the body frame."""
    return Struct(f">{before}xQ{between}xL")


def is_cut_short(channel: ChannelReader, data: bytes, position: int, length: int, frame_max: int) -> bool:
    """Whether the rest of a read is the valid beginning of a message of a known kind.

    Such a message waits for the next read and begins a run there, instead of being assembled frame by frame. A large
    one does not wait: its body is read into its buffer.
    length: octets of the payload of its method frame.
    """
    start = position + length + FRAME_OVERHEAD
    if data[position:start] not in channel.publish_cache.kinds:
        return False
    rest = len(data) - start
    if rest < HEADER_FIXED:
        if rest < FRAME_HEAD_SIZE:
            return FRAME_HEAD.pack(HEADER, channel.number, 0).startswith(data[start : start + 3])
        kind, number, header_length = FRAME_HEAD.unpack_from(data, start)
        return bool(kind == HEADER and number == channel.number and 14 <= header_length <= frame_max)
    kind, number, header_length, class_id, weight, body_size = CONTENT_HEAD.unpack_from(data, start)
    header_end: int = start + header_length + FRAME_OVERHEAD
    if kind != HEADER or number != channel.number or class_id != 60 or weight or header_length > frame_max:
        return False
    if header_end > len(data):
        return True
    body_head = FRAME_HEAD.pack(BODY, number, min(body_size, 0xFFFFFFFF))
    return (
        data[header_end - 1] == FRAME_END
        and channel.publish_cache.is_valid(data[start + HEADER_FIXED : header_end - 1])
        and 0 < body_size <= min(frame_max - FRAME_OVERHEAD, channel.message_size_max, LARGE_MIN - 1)
        and header_end + len(body_head) + body_size >= len(data)
        and body_head.startswith(data[header_end : header_end + len(body_head)])
    )


@lru_cache(ROW_AS_NUMBER_MAX)
def _row_mask(count: int) -> int:
    return int.from_bytes(_ACK_MASK * count, "big")


def _is_row_of_acks(row: bytes, head: bytes, count: int) -> bool:
    """Whether the octets are `count` single acks that begin with this head."""
    if count <= ROW_AS_NUMBER_MAX:  # 0.7 us for 20 instead of 1.9
        from_bytes = int.from_bytes
        return from_bytes(row, "big") & _row_mask(count) == from_bytes((head + _ACK_REST) * count, "big")
    step = ACK_SIZE
    return (
        row[step - 1 :: step] == FRAME_END_OCTET * count
        and row[step - 2 :: step] == bytes(count)
        and all(row[at::step] == head[at : at + 1] * count for at in range(len(head)))
    )


def read_acks(channel: ChannelReader, data: bytes, position: int) -> tuple[AcksReceived | None, int]:
    """Read a run of basic.ack frames: single ones, then those with `multiple` whose tags rise.

    Returns: the run and its end; (None, position) when the first is not whole and well-formed.
    """
    head = data[position : position + 11]
    size = len(data)
    count = (size - position) // ACK_SIZE
    if count >= ROW_MIN:
        row = data[position : position + count * ACK_SIZE]
        if _is_row_of_acks(row, head, count):
            return AcksReceived(channel, list(chain.from_iterable(ACK_TAG.iter_unpack(row))), []), position + len(row)
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


#: A shorter run that another kind follows makes the channel mixed: its next publishes are read as mixed runs.
RUN_MIN = 4
#: After this many messages of one kind in a row the channel is not mixed any longer.
ALIKE_MIN = 16
#: Such a row is looked for only once in this many messages.
_CHECK_INTERVAL = range(ALIKE_MIN)


def read_publishes(
    channel: ChannelReader,
    data: bytes,
    position: int,
    length: int,
    frame_max: int,
    last: PublishReceived | MixedReceived | None,
) -> tuple[PublishReceived | MixedReceived | None, int]:
    """Read a run, or a mixed run if the channel's runs are short.

    length: octets of the payload of the first method frame; last: the event before, if it was in the same read.
    Returns and raises: as `read_run`.
    """
    if channel.is_mixed and channel.publish_cache.heads:
        kinds, contents, end = read_mixed(channel, data, position, frame_max)
        if contents:
            if kinds[0] is kinds[-1] and kinds.count(kinds[0]) == len(kinds):
                return PublishReceived(channel, kinds[0], contents), end
            return MixedReceived(channel, kinds, contents), end
    event, end = read_run(channel, data, position, length, frame_max)
    if event is None:
        return None, end
    if channel.is_mixed:
        if len(event.contents) >= ALIKE_MIN:
            channel.is_mixed = False
        elif event.kind.known_route is not None:  # the session has handled this kind before
            channel.publish_cache.add_head(data, position, event.kind)
    elif type(last) is PublishReceived and last.channel is channel and last.kind is not event.kind:
        channel.is_mixed = len(last.contents) < RUN_MIN
    return event, end


def read_mixed(
    channel: ChannelReader, data: bytes, position: int, frame_max: int
) -> tuple[list[PublishKind], list[bytes], int]:
    """Read publishes of kinds that the session knows, up to one whose form is not cached.

    Clears the channel's `is_mixed` when `ALIKE_MIN` of one kind follow each other.
    Returns: kind and content of each, and their end.
    """
    kinds: list[PublishKind] = []
    contents: list[bytes] = []
    add_kind, add_content = kinds.append, contents.append
    cache = channel.publish_cache
    head_of = cache.heads.get
    from_bytes = int.from_bytes
    body_max = min(frame_max - FRAME_OVERHEAD, channel.message_size_max)
    # Between properties and body: the end of the header frame and the head of the body frame, here for an empty body.
    empty_body_head = (FRAME_END << 24 | BODY << 16 | channel.number) << 32
    try:
        while True:
            for _ in _CHECK_INTERVAL:
                # The size of a cached method frame fits into the last octet of its size field.
                key = data[position : position + HEAD_FIXED + data[position + 6]]
                head = head_of(key)
                if head is None:
                    return kinds, contents, position
                unpack, method_size, head_size, mask, value, kind, _ = head
                body_size, properties, body_head = unpack(data, position)
                if from_bytes(properties, "big") & mask != value:
                    other = cache.other_kind(key, head, properties)
                    if other is None:
                        return kinds, contents, position
                    kind = other
                end = position + head_size + body_size
                if (
                    body_head != empty_body_head | body_size
                    or not 0 < body_size <= body_max
                    or data[end] != FRAME_END
                    or kind.known_route is None
                ):
                    return kinds, contents, position
                end += 1
                add_kind(kind)
                add_content(data[position + method_size : end])
                position = end
            if kinds[-1] is kinds[-ALIKE_MIN] and kinds[-ALIKE_MIN:].count(kinds[-1]) == ALIKE_MIN:
                channel.is_mixed = False
                return kinds, contents, position
    except (IndexError, StructError):  # the read ends within a message
        return kinds, contents, position
