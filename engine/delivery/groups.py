"""Message groups: messages with the same group id go to the same consumer, in order.

A group belongs to the consumer of its first message until that consumer leaves, a rebalance, or a message that ends the
group. Messages of a group wait while its consumer has no credit; messages of other groups pass them.
Source: address-settings page 3.4.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar
from zlib import crc32

from ..messages.content import GROUP_IDS
from ..messages.field_table import Field, FieldTable
from ..messages.message import Envelope, Message
from ..rules.queue_rules import QueueRules
from .consumer import Consumer

#: Headers whose value -1 ends the group with this message.
SEQUENCES = ("_AMQ_GROUP_SEQUENCE", "JMSXGroupSeq")


class GroupedMessage(Message):
    """A message of a group. `group`: its id. `ends`: after the message the group has no owner."""

    stays_in_memory: ClassVar[bool] = True

    __slots__ = ("ends", "group")

    def __init__(self, id_: int, content: bytes, envelope: Envelope, group: str, ends: bool) -> None:
        super().__init__(id_, content, envelope)
        self.group = group
        self.ends = ends


def grouped(id_: int, content: bytes, envelope: Envelope, buckets: int) -> GroupedMessage | None:
    """Make a message with its group; None: it has none. `buckets` above 0: the group is a number below it, by hash."""
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


class Groups:
    """The owner of each group. Created when the first message of a group arrives."""

    __slots__ = ("_consumers", "_is_paused")

    def __init__(self) -> None:
        self._consumers: dict[str, Consumer] = {}
        self._is_paused = False

    def consumer_joined(self, rules: QueueRules, count: int) -> None:
        """Free all groups if the rules ask for it and there are other consumers. `count`: consumers with the new one.

        With group-rebalance-pause-dispatch, nothing is dispatched until all deliveries are acknowledged.
        """
        if rules.group_rebalance and count > 1:
            self._consumers.clear()
            self._is_paused = rules.group_rebalance_pause_dispatch

    def consumers_left(self, consumers: Iterable[Consumer]) -> None:
        """Free the groups of these consumers."""
        gone = set(consumers)
        self._consumers = {group: one for group, one in self._consumers.items() if one not in gone}

    def may_dispatch(self, unacked: int) -> bool:
        """Whether messages may be dispatched. False while a rebalance waits for unacknowledged messages."""
        if self._is_paused and unacked:
            return False
        self._is_paused = False
        return True

    def consumer_of(self, group: str) -> Consumer | None:
        """The owner of a group; None: it has none."""
        return self._consumers.get(group)

    def choose_consumer(
        self, message: GroupedMessage, eligible: Callable[[int], list[Consumer]]
    ) -> tuple[Consumer | None, bool]:
        """Choose the consumer of a message; None: nobody can take it now. Also whether its group had no owner before.

        A group without an owner gets the next eligible consumer, until the last message of the group.
        `eligible(n)`: at most n consumers with credit, the next one first.
        """
        consumer = self._consumers.get(message.group)
        if consumer is None:
            found = eligible(1)
            if not found:
                return None, False
            if not message.ends:
                self._consumers[message.group] = found[0]
            return found[0], True
        if consumer.credit() <= 0:
            return None, False
        if message.ends:
            del self._consumers[message.group]
        return consumer, False
