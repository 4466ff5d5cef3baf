"""The message group of a message, by its headers. Source: address-settings page 3.4."""

from typing import ClassVar
from zlib import crc32

from ..messages.content import GROUP_IDS
from ..messages.field_table import Field, FieldTable
from ..messages.message import Envelope, Message

#: Headers whose value -1 ends the group with this message.
SEQUENCES = ("_AMQ_GROUP_SEQUENCE", "JMSXGroupSeq")


class GroupedMessage(Message):
    """A message of a group. `group`: its id; `ends`: the message ends the group, which has no owner afterwards."""

    stays_in_memory: ClassVar[bool] = True

    __slots__ = ("ends", "group")

    def __init__(self, id_: int, content: bytes, envelope: Envelope, group: str, ends: bool) -> None:
        super().__init__(id_, content, envelope)
        self.group = group
        self.ends = ends


def grouped(id_: int, content: bytes, envelope: Envelope, buckets: int) -> GroupedMessage | None:
    """Make a message of its group, or (`buckets` above 0) of its group's bucket; None: it names no group."""
    headers = envelope.headers(content)
    group = _first(headers, GROUP_IDS)
    if group is None:
        return None
    name = group.text if isinstance(group.value, bytes) else str(group.value)
    if buckets > 0:
        name = str(crc32(name.encode()) % buckets)
    sequence = _first(headers, SEQUENCES)
    return GroupedMessage(id_, content, envelope, name, sequence is not None and sequence.value == -1)


def _first(headers: FieldTable, names: tuple[str, ...]) -> Field | None:
    return next((headers[name] for name in names if name in headers), None)
