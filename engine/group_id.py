"""Which group a message is of, by its headers. Source: address-settings page 3.4."""

from typing import TYPE_CHECKING
from zlib import crc32

from .content import GROUP_IDS
from .field_table import Field, FieldTable
from .last_value import LastValueReady
from .message import Envelope, Message
from .paged_message import PagedMessage

if TYPE_CHECKING:
    from .queue import Queue

#: A header whose value -1 ends the group behind its message.
SEQUENCES = ("_AMQ_GROUP_SEQUENCE", "JMSXGroupSeq")


class GroupedMessage(Message):
    """A message of a group. `group`: which; `ends`: the group is free again behind it."""

    __slots__ = ("ends", "group")

    def __init__(self, id_: int, blob: bytes, envelope: Envelope, group: str, ends: bool) -> None:
        super().__init__(id_, blob, envelope)
        self.group = group
        self.ends = ends


def message_for(queue: "Queue", id_: int, blob: bytes, envelope: Envelope) -> Message:
    """A message for a queue: of its group, where the queue heeds groups; one that can be left to the journal."""
    rules = queue.rules
    if envelope.facts.is_marked and rules.group_buckets != 0 and rules.last_value_key is None and not queue.keeps:
        message = grouped(id_, blob, envelope, rules.group_buckets)
        if message is not None:
            queue.has_groups()
            return message
    if isinstance(queue.ready, LastValueReady) and queue.broker.pager is not None:
        return PagedMessage(id_, blob, envelope, queue.ready)
    return Message(id_, blob, envelope)


def grouped(id_: int, blob: bytes, envelope: Envelope, buckets: int) -> GroupedMessage | None:
    """A message of its group, or of its group's bucket; None when it names no group."""
    headers = envelope.headers(blob)
    group = _first(headers, GROUP_IDS)
    if group is None:
        return None
    name = group.text if isinstance(group.value, bytes) else str(group.value)
    if buckets > 0:
        name = str(crc32(name.encode()) % buckets)
    sequence = _first(headers, SEQUENCES)
    return GroupedMessage(id_, blob, envelope, name, sequence is not None and sequence.value == -1)


def _first(headers: FieldTable, names: tuple[str, ...]) -> Field | None:
    return next((headers[name] for name in names if name in headers), None)
