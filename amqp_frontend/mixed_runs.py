"""Mixed runs: publishes of kinds that are known, and follow each other without being alike, read in one go.

How a message begins leads to all that is known of its kind, so that few steps are taken for each (1 us). Whatever is of
another form is left to runs.py, and what is wrong with it to the reading of single frames.
Source: performance page 4, rules 2 to 4.
"""

from struct import error as StructError

from .channel_reader import ChannelReader
from .protocol_events import MixedReceived, PublishReceived
from .publish_memory import HEAD_FIXED, PublishKind
from .runs import read_run
from .wire import BODY, FRAME_END, FRAME_OVERHEAD

#: After a run of fewer messages that another kind follows, messages are read as mixed runs ...
RUN_MIN = 4
#: ... until so many of one kind follow each other.
ALIKE_MAX = 16
_STRETCH = range(ALIKE_MAX)


def read_publishes(
    channel: ChannelReader,
    data: bytes,
    position: int,
    length: int,
    frame_max: int,
    last: PublishReceived | MixedReceived | None,
) -> tuple[PublishReceived | MixedReceived | None, int]:
    """Read a run, or a mixed run where the channel's runs are short.

    length: octets of the payload of the first method frame; last: the publishes before, if they came in the same read.
    Returns and raises: as `read_run`.
    """
    if channel.is_mixed and channel.memory.heads:
        kinds, blobs, end = read_mixed(channel, data, position, frame_max)
        if blobs:
            if kinds[0] is kinds[-1] and kinds.count(kinds[0]) == len(kinds):
                return PublishReceived(channel, kinds[0], blobs), end
            return MixedReceived(channel, kinds, blobs), end
    event, end = read_run(channel, data, position, length, frame_max)
    if event is None:
        return None, end
    if channel.is_mixed:
        if len(event.blobs) >= ALIKE_MAX:
            channel.is_mixed = False
        elif event.kind.known is not None:  # it has come before
            channel.memory.add_head(data, position, event.kind)
    elif type(last) is PublishReceived and last.channel is channel and last.kind is not event.kind:
        channel.is_mixed = len(last.blobs) < RUN_MIN
    return event, end


def read_mixed(
    channel: ChannelReader, data: bytes, position: int, frame_max: int
) -> tuple[list[PublishKind], list[bytes], int]:
    """Read publishes of kinds that the session knows, as far as they are of remembered forms.

    Ends the channel's being mixed when `ALIKE_MAX` of one kind were read in a row.
    Returns: kind and content of each, and where they end.
    """
    kinds: list[PublishKind] = []
    blobs: list[bytes] = []
    add_kind, add_blob = kinds.append, blobs.append
    memory = channel.memory
    head_of = memory.heads.get
    from_bytes = int.from_bytes
    body_max = min(frame_max - FRAME_OVERHEAD, channel.message_size_max)
    joint = (FRAME_END << 24 | BODY << 16 | channel.number) << 32
    try:
        while True:
            for _ in _STRETCH:
                # The size of a method frame that is remembered is in the last octet of its size.
                key = data[position : position + HEAD_FIXED + data[position + 6]]
                head = head_of(key)
                if head is None:
                    return kinds, blobs, position
                unpack, method_size, head_size, mask, value, kind, _ = head
                body_size, properties, between = unpack(data, position)
                if from_bytes(properties, "big") & mask != value:
                    other = memory.other_kind(key, head, properties)
                    if other is None:
                        return kinds, blobs, position
                    kind = other
                end = position + head_size + body_size
                if (
                    between != joint | body_size
                    or not 0 < body_size <= body_max
                    or data[end] != FRAME_END
                    or kind.known is None
                ):
                    return kinds, blobs, position
                end += 1
                add_kind(kind)
                add_blob(data[position + method_size : end])
                position = end
            if kinds[-1] is kinds[-ALIKE_MAX] and kinds[-ALIKE_MAX:].count(kinds[-1]) == ALIKE_MAX:
                channel.is_mixed = False
                return kinds, blobs, position
    except (IndexError, StructError):  # the read ends within a message
        return kinds, blobs, position
