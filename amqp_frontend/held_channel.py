"""A channel on which a publish is held: what waits there in order, and what may pass it.

Source: queues page E.5, the table of methods; ruling 15.
"""

from collections import deque

from pamqp import commands

from .channel import Channel, CommitUnderWay
from .protocol_events import AcksReceived, ChannelMethod, MixedReceived, ProtocolEvent, PublishReceived

#: What a turn handles: what the reader yields, and the rest of a large commit.
Work = ProtocolEvent | CommitUnderWay

_SETTLING = frozenset({commands.Basic.Ack, commands.Basic.Nack, commands.Basic.Reject})
_ALWAYS_PASSING = frozenset(
    {
        commands.Basic.CancelOk,
        commands.Channel.Flow,
        commands.Channel.FlowOk,
        commands.Channel.Close,
        commands.Channel.CloseOk,
    }
)


class HeldChannel:
    """`work`: what waits, first to last; `octets`: of the publishes among it.

    `is_waiting`: the first of it was tried and could not be done; otherwise it goes on with the next turn.
    """

    __slots__ = ("_has_consume", "_is_transactional", "channel", "is_waiting", "octets", "work")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.work: deque[Work] = deque()
        self.octets = 0
        self.is_waiting = False
        self._has_consume = False
        self._is_transactional = channel.session.transaction is not None

    def lets_pass(self, event: ProtocolEvent) -> bool:
        """Whether an event of this channel is handled at once: it settles deliveries, or ends something."""
        if type(event) is AcksReceived:
            return not self._is_transactional
        if type(event) is not ChannelMethod:
            return False
        kind = type(event.method)
        if kind in _SETTLING:
            return not self._is_transactional
        if kind is commands.Basic.Cancel:
            return not self._has_consume  # its consumer may be the one that is still to come
        return kind in _ALWAYS_PASSING

    def append(self, event: Work) -> int:
        """Behind all that waits. Returns: the octets of a publish, else 0."""
        if type(event) is ChannelMethod:
            kind = type(event.method)
            if kind is commands.Tx.Select:
                self._is_transactional = True  # what is settled behind it belongs to the transaction
            elif kind is commands.Basic.Consume:
                self._has_consume = True
        self.work.append(event)
        return self._count(event)

    def put_first(self, event: Work) -> int:
        """In front of all that waits. Returns: as `append`."""
        self.work.appendleft(event)
        return self._count(event)

    def put_second(self, event: Work) -> int:
        """Behind the first. Returns: as `append`."""
        self.work.insert(1, event)
        return self._count(event)

    def take(self) -> tuple[Work, int]:
        """The first of it, and its octets."""
        event = self.work.popleft()
        octets = octets_of(event)
        self.octets -= octets
        return event, octets

    def messages(self) -> int:
        """How many publishes wait here."""
        return sum(len(event.blobs) for event in self.work if isinstance(event, PublishReceived | MixedReceived))

    def _count(self, event: Work) -> int:
        octets = octets_of(event)
        self.octets += octets
        return octets


def octets_of(event: Work) -> int:
    """Of the contents of publishes."""
    return sum(map(len, event.blobs)) if isinstance(event, PublishReceived | MixedReceived) else 0
