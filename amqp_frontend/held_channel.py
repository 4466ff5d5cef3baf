"""A channel on which a publish is held: what waits there in order, and what may pass it.

Source: queues page E.5, the table of methods; ruling 15.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from pamqp import commands

from ..engine import Deadline, Full, Place
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
        commands.Channel.CloseOk,
    }
)


class Allowance:
    """What may be published of what is held before other connections have their turn. `used`: octets so far.

    `full`: what was waited for. `is_over`: others have their turn now.
    """

    __slots__ = ("full", "is_over", "messages", "octets", "used")

    def __init__(self, full: Full, octets: int, messages: int) -> None:
        self.full = full
        self.is_over = False
        self.octets = octets
        self.messages = messages
        self.used = 0

    def spend(self, blobs: Sequence[bytes]) -> None:
        """These were published."""
        self.spend_octets(sum(map(len, blobs)), len(blobs))

    def spend_octets(self, octets: int, messages: int) -> None:
        """So much was published."""
        self.octets -= octets
        self.messages -= messages
        self.used += octets


class HeldWork(NamedTuple):
    """`octets`: of the contents, if these are publishes, else 0. `since_ns`: when it came (monotonic).

    `place`: where the contents are in the temp store, `sizes` the octets of each; None: they are with the event.
    """

    event: Work
    octets: int
    since_ns: int
    place: Place | None = None
    sizes: Sequence[int] = ()

    @property
    def messages(self) -> int:
        """How many messages are published by it."""
        return len(self.sizes) if self.place is not None else len(blobs_of(self.event))

    def spooled(self, place: Place) -> "HeldWork":
        """The same with its contents in the temp store."""
        event = self.event
        assert isinstance(event, PublishReceived | MixedReceived)
        return HeldWork(replace(event, blobs=[]), self.octets, self.since_ns, place, [*map(len, event.blobs)])

    def brought(self, octets: bytes) -> "HeldWork":
        """The same with its contents in memory again."""
        event = self.event
        assert isinstance(event, PublishReceived | MixedReceived)
        ends = list(accumulate(self.sizes, initial=0))
        blobs = [octets[start:end] for start, end in pairwise(ends)]
        return HeldWork(replace(event, blobs=blobs), self.octets, self.since_ns)


class HeldChannel:
    """`work`: what waits, first to last; `octets`: of the publishes among it.

    `is_waiting`: the first of it was tried and could not be done; otherwise it goes on with the next turn. `full`: what
    it waits for then. `deadline`: when it is refused.
    """

    __slots__ = (
        "_has_consume",
        "_is_transactional",
        "_resume",
        "channel",
        "deadline",
        "full",
        "is_waiting",
        "octets",
        "work",
    )

    def __init__(self, channel: Channel, resume: "Callable[[HeldChannel, Allowance], None]") -> None:
        """`resume`: handle what is held, up to an allowance."""
        self._resume = resume
        self.channel = channel
        self.work: deque[HeldWork] = deque()
        self.octets = 0
        self.is_waiting = False
        self.full: Full | None = None
        self.deadline: Deadline | None = None
        self._has_consume = False
        self._is_transactional = channel.session.transaction is not None

    def resume(self, octets: int, messages: int) -> tuple[int, int]:
        """A `Waiter` of the engine: there is room."""
        assert self.full is not None
        allowance = Allowance(self.full, octets, messages)
        self._resume(self, allowance)
        return allowance.used, messages - allowance.messages

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
        if kind is commands.Channel.Close:
            return not self.has_last_words
        return kind in _ALWAYS_PASSING

    @property
    def has_last_words(self) -> bool:
        """Whether a close waits for what is held: an alarm holds it, and the client would not hear that it is lost.

        What waits for a limit does not hold up a close (queues page E.5).
        """
        return not self.is_answered and (self.full is None or self.full.is_alarm)

    @property
    def is_answered(self) -> bool:
        """Whether the client hears which of its publishes were accepted."""
        session = self.channel.session
        return session.confirms is not None or session.transaction is not None

    def append(self, work: HeldWork) -> None:
        """Behind all that waits."""
        event = work.event
        if type(event) is ChannelMethod:
            kind = type(event.method)
            if kind is commands.Tx.Select:
                self._is_transactional = True  # what is settled behind it belongs to the transaction
            elif kind is commands.Basic.Consume:
                self._has_consume = True
        self.work.append(work)
        self.octets += work.octets

    def put_first(self, work: HeldWork) -> None:
        """In front of all that waits."""
        self.work.appendleft(work)
        self.octets += work.octets

    def put_second(self, work: HeldWork) -> None:
        """Behind the first."""
        self.work.insert(1, work)
        self.octets += work.octets

    @property
    def closes(self) -> bool:
        """Whether the client closes the channel behind what waits. O(work)."""
        events = (work.event for work in self.work)
        return any(type(event) is ChannelMethod and type(event.method) is commands.Channel.Close for event in events)

    def take(self) -> HeldWork:
        """The first of it."""
        work = self.work.popleft()
        self.octets -= work.octets
        return work

    def messages(self) -> int:
        """How many publishes wait here. O(work)."""
        return sum(work.messages for work in self.work)


def blobs_of(event: Work) -> Sequence[bytes]:
    """The contents of publishes."""
    return event.blobs if isinstance(event, PublishReceived | MixedReceived) else ()
