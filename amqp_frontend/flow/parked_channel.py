"""The parked work of one channel: publishes that are not accepted now, and the channel's later events.

Source: queues page E.5, "Hold area" and the table of methods.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from pamqp import commands

from ...engine import Deadline, FullLimit, Location
from ..peer.channel import Channel, CommitUnderWay
from ..wire.events import AcksReceived, ChannelMethod, MixedReceived, ProtocolEvent, PublishReceived
from .steps import Quota

#: An event that a turn handles: one of the reader, or the rest of a large commit.
TurnEvent = ProtocolEvent | CommitUnderWay

_SETTLING = frozenset({commands.Basic.Ack, commands.Basic.Nack, commands.Basic.Reject})
_ALWAYS_PASSING = frozenset(
    {commands.Basic.CancelOk, commands.Channel.Flow, commands.Channel.FlowOk, commands.Channel.CloseOk}
)


class ParkedWork(NamedTuple):
    """A parked event. `octets`: of its contents (publishes), else 0. `since_ns`: when it arrived (monotonic).

    `location`: of the contents in the temp store, `sizes` the octets of each; None: the event holds them.
    """

    event: TurnEvent
    octets: int
    since_ns: int
    location: Location | None = None
    sizes: Sequence[int] = ()

    @property
    def messages(self) -> int:
        """The number of messages that it publishes."""
        return len(self.sizes) if self.location is not None else len(contents_of(self.event))

    def spooled(self, location: Location) -> "ParkedWork":
        """The same work with its contents in the temp store."""
        event = self.event
        assert isinstance(event, PublishReceived | MixedReceived)
        return ParkedWork(
            replace(event, contents=[]), self.octets, self.since_ns, location, [*map(len, event.contents)]
        )

    def with_contents(self, octets: bytes) -> "ParkedWork":
        """The same work with its contents in memory again."""
        event = self.event
        assert isinstance(event, PublishReceived | MixedReceived)
        ends = list(accumulate(self.sizes, initial=0))
        contents = [octets[start:end] for start, end in pairwise(ends)]
        return ParkedWork(replace(event, contents=contents), self.octets, self.since_ns)


class ParkedChannel:
    """Parked work of a channel. `work`: first to last.

    `is_waiting`: the first work was tried and not accepted; otherwise the next turn handles it. `full`: the limit or
    alarm for which it waits. `deadline`: when it is refused.
    """

    __slots__ = ("_has_consume", "_is_transactional", "_resume", "channel", "deadline", "full", "is_waiting", "work")

    def __init__(self, channel: Channel, resume: "Callable[[ParkedChannel, Quota], None]") -> None:
        """`resume`: handles the parked work, up to a quota."""
        self._resume = resume
        self.channel = channel
        self.work: deque[ParkedWork] = deque()
        self.is_waiting = False
        self.full: FullLimit | None = None
        self.deadline: Deadline | None = None
        self._has_consume = False
        self._is_transactional = channel.session.transaction is not None

    def resume(self, octets: int, messages: int) -> tuple[int, int]:
        """The engine's `Waiter`: publish into room of this size. Returns: octets and messages used."""
        assert self.full is not None
        quota = Quota(self.full, octets, messages)
        self._resume(self, quota)
        return quota.used, messages - quota.messages

    def lets_pass(self, event: ProtocolEvent) -> bool:
        """Whether an event of the channel is handled at once: it settles deliveries, ends something, sets the flow.

        Not acknowledgements in a transaction, nor a cancel behind a parked basic.consume, nor a close that waits
        (`delays_close`).
        """
        if type(event) is AcksReceived:
            return not self._is_transactional
        if type(event) is not ChannelMethod:
            return False
        kind = type(event.method)
        if kind in _SETTLING:
            return not self._is_transactional
        if kind is commands.Basic.Cancel:
            return not self._has_consume  # a parked basic.consume may be the consumer's
        if kind is commands.Channel.Close:
            return not self.delays_close
        return kind in _ALWAYS_PASSING

    @property
    def delays_close(self) -> bool:
        """Whether a close has to wait for the parked publishes: their loss would go unnoticed, because the channel has
        neither confirms nor a transaction.

        Only while an alarm parks them, or the next turn handles them (`full` is None). Work that waits for a limit does
        not delay a close (queues page E.5).
        """
        return not self.is_answered and (self.full is None or self.full.is_alarm)

    @property
    def is_answered(self) -> bool:
        """Whether the client learns which of its publishes were accepted."""
        session = self.channel.session
        return session.confirms is not None or session.transaction is not None

    def append(self, work: ParkedWork) -> None:
        event = work.event
        if type(event) is ChannelMethod:
            kind = type(event.method)
            if kind is commands.Tx.Select:
                self._is_transactional = True  # later acknowledgements belong to the transaction
            elif kind is commands.Basic.Consume:
                self._has_consume = True
        self.work.append(work)

    def put_first(self, work: ParkedWork) -> None:
        """Insert work before all other."""
        self.work.appendleft(work)

    @property
    def has_close(self) -> bool:
        """Whether the parked work includes the client's channel.close. O(work)."""
        events = (work.event for work in self.work)
        return any(type(event) is ChannelMethod and type(event.method) is commands.Channel.Close for event in events)

    def count_messages(self) -> int:
        """The number of parked publishes. O(work)."""
        return sum(work.messages for work in self.work)


def contents_of(event: TurnEvent) -> Sequence[bytes]:
    """The contents of an event's publishes."""
    return event.contents if isinstance(event, PublishReceived | MixedReceived) else ()
