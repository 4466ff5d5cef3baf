"""The parking of a connection: publishes that are not accepted now, and the later events of their channels.

Acknowledgements, events that end something, and events of other channels are handled at once. `ParkedContents` limits
the contents that a connection parks in memory and in the temp store.
Source: ruling 15; queues page E.5, "Hold area" and the table of methods; behaviour page 1.9.
"""

import logging
from collections.abc import Callable

from ...engine import MS, Broker, Deadline, FullLimit, due_after
from ..ended import nothing
from ..peer.channel import Channel
from ..peer.login import Login
from ..peer.output import Output
from ..wire.events import ProtocolEvent
from ..wire.peer_errors import ParkingExhausted
from ..wire.states import PARKING_NEXT, ParkingState, ParkingStep
from .notices import BlockedNotice, ChannelFlow
from .parked_channel import ParkedChannel, ParkedWork, TurnEvent, contents_of
from .steps import ConnectionTurn, Quota

logger = logging.getLogger("leveret.amqp")

S = ParkingState

#: Maximum events that a connection parks in memory; `[flow] hold-bytes` limits their octets.
PARKED_MAX = 512
#: Maximum events whose contents a connection parks in the temp store.
SPOOLED_MAX = 65_536
#: Milliseconds after which a connection is ended, if it is not read although its own acknowledgements could free room.
OWN_STALL_MS = 60_000


class ParkedContents:
    """Counts a connection's parked work, and moves its contents to the temp store. The engine's `Parked`.

    `count`, `octets`: in memory; `spooled_count`, `spooled` (octets): in the temp store; `publishes`: messages in both.
    `is_reading_paused`: nothing is read from the peer, because too much is parked.
    """

    __slots__ = ("_broker", "count", "is_reading_paused", "octets", "publishes", "spooled", "spooled_count")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.count = 0
        self.octets = 0
        self.spooled_count = 0
        self.spooled = 0
        self.publishes = 0
        self.is_reading_paused = False

    def is_over_limit(self, work: ParkedWork) -> bool:
        """Whether a limit of memory is exceeded, now that this work was added."""
        if work.location is not None:
            return False
        if self.octets > self._broker.context.options.flow.hold_size or self.count > PARKED_MAX:
            return True
        return work.octets > 0 and not self._broker.flow.parked.has_room(0)

    def spooled_if_full(self, work: ParkedWork, makes_room: Callable[[], bool]) -> ParkedWork:
        """New work, with its contents moved to the temp store if memory is full and the temp store has room.

        makes_room: tells whether acknowledgements of the peer may free room for its publishes. If so, the limit of
            octets in the temp store does not apply, because reading has to continue until they arrive.
        """
        flow = self._broker.context.options.flow
        if not work.octets or not (
            self.octets + work.octets > flow.hold_size
            or (self.count >= PARKED_MAX and self.octets)
            or not self._broker.flow.parked.has_room(work.octets)
        ):
            return work
        if self.spooled_count >= SPOOLED_MAX or (self.spooled >= flow.hold_spool_size and not makes_room()):
            return work
        parked = self._broker.flow.parked
        parked.spooled += work.octets  # before the temp store reports its new size
        location = self._broker.context.storage.temp.spool(contents_of(work.event))
        if location is None:
            parked.spooled -= work.octets
            return work
        return work.spooled(location)

    def add(self, work: ParkedWork, sign: int) -> None:
        """Count work that was parked (`sign` 1), or is no longer parked (-1).

        In the second case `with_contents` or `released` has to be called, too.
        """
        octets = work.octets * sign
        if work.location is not None:
            self.spooled_count += sign
            self.spooled += octets
        else:
            self.count += sign
            self.octets += octets
            self._broker.flow.parked.octets += octets
        self.publishes += work.messages * sign

    def with_contents(self, work: ParkedWork) -> TurnEvent:
        """The event of the work, with its contents in memory. Raises: Unreadable."""
        if work.location is None:
            return work.event
        try:
            octets = self._broker.context.storage.temp.unspool(work.location, work.octets)
        finally:
            self.released(work)
        return work.with_contents(octets).event

    def released(self, work: ParkedWork) -> None:
        """Release the contents of the work in the temp store."""
        if work.location is not None:
            self._broker.flow.parked.spooled -= work.octets
            self._broker.context.storage.temp.release(work.location, work.octets)


class Parking:
    """The parked work of a connection. `channels`: those with parked work. `contents`: its counts.

    `is_closing`: the peer's connection.close waits for parked work (`ParkedChannel.delays_close`). `has_unread`: the
    reader may have octets of the peer, because a turn was cut, or the parking was full before. `resume_channel`:
    handles the parked work of a channel, up to a quota. `on_timeout`: called when no parked work could be published for
    too long.
    """

    __slots__ = ("_broker", "_channel_flow", "_login", "_notice", "_octets_before", "_octets_when_full", "_stall",
                 "channels", "contents", "has_unread", "is_closing", "on_timeout", "resume_channel",
                 "state")  # fmt: skip

    def __init__(self, broker: Broker, login: Login, output: Output) -> None:
        self._broker = broker
        self._login = login
        self._notice = BlockedNotice(broker, login, output, is_parked=self._is_parked, on_change=self._notice_changed)
        self._channel_flow = ChannelFlow(broker, login, output)
        self.channels: dict[Channel, ParkedChannel] = {}
        self.contents = ParkedContents(broker)
        self._octets_when_full = 0  # parked when `is_full` became true
        self._octets_before = 0  # parked before the last `take`
        self.state = S.OPEN
        self.has_unread = False
        self.is_closing = False
        self.resume_channel: Callable[[Channel, Quota | None], None] = nothing
        self.on_timeout: Callable[[ParkingExhausted], None] = nothing
        self._stall: Deadline | None = None  # by then some of the parked work has to be published

    def end(self) -> None:
        """End with the connection. Drops the callables, so that no reference cycle remains."""
        self.drop_all()
        self.has_unread = False
        self._notice.end()
        self._channel_flow.end()
        self.resume_channel = self.on_timeout = nothing

    # -- parked work ------------------------------------------------------------------------------------------------

    def park_for(self, full: FullLimit, channel: Channel, event: TurnEvent, turn: ConnectionTurn) -> None:
        """Park a publish or commit, and later events of its channel, until there is room or an alarm ends."""
        parked = self._put_first(channel, event, turn)
        client = self._login.client
        assert client is not None
        client.parked = self.contents
        parked.full = full
        self._broker.flow.wait(full, client, parked)
        if self.is_full and self._stall is None:
            self._limit_stall()  # the peer itself may be able to free room for this limit
        if full.fails_after_ms:
            due_ns = parked.work[0].since_ns + full.fails_after_ms * MS
            parked.deadline = self._broker.context.deadlines.set(due_ns, lambda: self._unpark(parked, None))
        if full.node.is_root and not client.is_blocked:
            level = logging.WARNING if full.is_alarm else logging.INFO
            logger.log(level, "%s: blocked: %r", self._login.peer.name, full.node.reason)
        self._notice.give(full)
        self._channel_flow.stop(channel)
        client.is_blocked = True

    def put_back(self, channel: Channel, event: TurnEvent, turn: ConnectionTurn) -> None:
        """Park a publish or commit again, because the turn's quota is used up: other connections come next."""
        quota = turn.quota
        assert quota is not None
        quota.is_over = True
        if quota.full.node.is_full:  # the next turn tries it: the event's own queue may have room
            parked, work = self._parked_channel(channel), self._new_work(event, turn)
            parked.put_first(work)
            self._added(work, turn)
        else:
            self.park_for(quota.full, channel, event, turn)

    def put_rest(self, channel: Channel, event: TurnEvent, turn: ConnectionTurn) -> None:
        """Park the rest of the current event: first on its channel, or after work that the event has just parked."""
        parked, work = self._parked_channel(channel), self._new_work(event, turn)
        if parked.is_waiting or turn.is_over:
            parked.work.insert(1, work)
        else:
            parked.put_first(work)
        self._added(work, turn)

    def park_behind(self, event: ProtocolEvent, turn: ConnectionTurn) -> bool:
        """Park an event after the parked work of its channel, unless it may pass. Returns: whether it was parked."""
        channel: Channel | None = getattr(event, "channel", None)
        parked = None if channel is None else self.channels.get(channel)
        if parked is None or parked.lets_pass(event):
            return False
        work = self.contents.spooled_if_full(self._new_work(event, turn), self._makes_room)
        parked.append(work)
        self._added(work, turn)
        return True

    def take(self, parked: ParkedChannel, turn: ConnectionTurn) -> TurnEvent:
        """Remove and return the first work of a channel. Call `taken` when it is handled."""
        work = parked.work.popleft()
        turn.since_ns = work.since_ns
        self._octets_before = self._parked_octets
        self._removed(work)
        return self.contents.with_contents(work)

    def taken(self, parked: ParkedChannel, turn: ConnectionTurn) -> None:
        """Note that the work of the last `take` is handled."""
        turn.since_ns = None
        if self.is_full and self._parked_octets < self._octets_before:
            self._limit_stall()  # some of it was published
        if not parked.work:
            self._forget(parked)

    def drop(self, channel: Channel) -> bool:
        """Drop the parked work of a channel that has ended: it was never accepted, and is not confirmed.

        Returns: whether the work included the peer's channel.close, which has to be answered nevertheless.
        """
        parked = self.channels.get(channel)
        if parked is None:
            return False
        if count := parked.count_messages():
            level = logging.INFO if parked.is_answered else logging.WARNING
            name = self._login.peer.name
            logger.log(level, "%s: channel %d is over, %d parked publishes are dropped", name, channel.number, count)
            channel.session.count_unpublished(count, refused=True)
        is_closed = parked.has_close
        self._stop_waiting(parked)
        while parked.work:
            work = parked.work.popleft()
            self._removed(work)
            self.contents.released(work)
        self._forget(parked)
        return is_closed

    def drop_all(self) -> None:
        """Drop all parked work."""
        for channel in list(self.channels):
            self.drop(channel)

    def next_ready(self, only: Channel | None = None) -> ParkedChannel | None:
        """A channel whose first work may be handled: any, or `only` this one."""
        channels = self.channels
        if only is not None:
            parked = channels.get(only)
            return None if parked is None or parked.is_waiting else parked
        for parked in channels.values():
            if not parked.is_waiting:
                return parked
        return None

    @property
    def delays_close(self) -> bool:
        """Whether the peer's connection.close has to wait for parked work."""
        return any(parked.delays_close for parked in self.channels.values())

    @property
    def can_continue(self) -> bool:
        """Whether any parked work waits for neither room nor the end of an alarm."""
        return any(parked.full is None for parked in self.channels.values())

    @property
    def waits_for_alarm(self) -> bool:
        """Whether an alarm parks any of the work."""
        return any(parked.full is not None and parked.full.is_alarm for parked in self.channels.values())

    def _parked_channel(self, channel: Channel) -> ParkedChannel:
        parked = self.channels.get(channel)
        if parked is None:
            parked = self.channels[channel] = ParkedChannel(channel, self._unpark)
        return parked

    def _new_work(self, event: TurnEvent, turn: ConnectionTurn) -> ParkedWork:
        octets = sum(map(len, contents_of(event)))
        since_ns = self._broker.context.clock.monotonic_ns() if turn.since_ns is None else turn.since_ns
        return ParkedWork(event, octets, since_ns)

    def _put_first(self, channel: Channel, event: TurnEvent, turn: ConnectionTurn) -> ParkedChannel:
        parked, work = self._parked_channel(channel), self._new_work(event, turn)
        if turn.since_ns is None:  # otherwise this was decided when the work was parked first
            work = self.contents.spooled_if_full(work, self._makes_room)
        parked.put_first(work)
        parked.is_waiting = True
        self._added(work, turn)
        return parked

    def _forget(self, parked: ParkedChannel) -> None:
        if self.channels.pop(parked.channel, None) is None:
            return
        self._channel_flow.note_unparked(parked.channel)
        if not self.channels:
            if self.state is S.PARKING:
                self._step(ParkingStep.EMPTY)
            if self._login.client is not None:
                self._login.client.is_blocked = False
            self._notice.note_unparked()

    # -- continuing -------------------------------------------------------------------------------------------------

    def _unpark(self, parked: ParkedChannel, quota: Quota | None) -> None:
        """Try the work of a channel again: there is room for the quota, or (None) the work's deadline is over."""
        self._stop_waiting(parked)
        self.resume_channel(parked.channel, quota)

    def _stop_waiting(self, parked: ParkedChannel) -> None:
        parked.is_waiting = False
        if parked.full is not None:
            self._broker.flow.leave(parked)
            parked.full = None
        self._broker.context.deadlines.cancel(parked.deadline)
        parked.deadline = None

    # -- counts -----------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether the peer is not read, because too much is parked."""
        return self.state is S.STALLED or self.state is S.NOTIFIED_STALLED

    @property
    def _parked_octets(self) -> int:
        return self.contents.octets + self.contents.spooled

    def _makes_room(self) -> bool:
        """Whether acknowledgements of the peer may free room for its publishes."""
        client = self._login.client
        assert client is not None
        nodes = {parked.full.node for parked in self.channels.values() if parked.full is not None}
        return any(client.makes_room_in(node) for node in nodes)

    def _added(self, work: ParkedWork, turn: ConnectionTurn) -> None:
        contents = self.contents
        contents.add(work, 1)
        if self.state is S.OPEN:
            self._step(ParkingStep.PARK)
        is_new = turn.since_ns is None  # otherwise it was tried, parked again, and counted before
        if is_new and not self.is_full and contents.is_over_limit(work):
            self._octets_when_full = self._parked_octets
            self._step(ParkingStep.STALL)
            self._limit_stall()

    def _removed(self, work: ParkedWork) -> None:
        contents = self.contents
        contents.add(work, -1)
        if self.is_full:
            is_half = self._parked_octets <= self._octets_when_full // 2 and contents.count < PARKED_MAX // 2
            if is_half or not (contents.count or contents.spooled_count):
                self._step(ParkingStep.RESUME)
                self.has_unread = True
                self._limit_stall()

    def _limit_stall(self) -> None:
        """Restart the time within which some of the parked work has to be published."""
        self._broker.context.deadlines.cancel(self._stall)
        self._stall = None
        limit_ms = self._stall_max_ms
        if limit_ms and self.is_full:
            self._stall = self._broker.context.deadlines.set(
                due_after(self._broker.context.clock, limit_ms), self._timed_out
            )

    def _timed_out(self) -> None:
        self._stall = None
        full = next((parked.full for parked in self.channels.values() if parked.full is not None), None)
        if full is not None and not full.is_alarm:  # an alarm may last for any time
            limit_ms = self._stall_max_ms
            self.on_timeout(
                ParkingExhausted(destination=full.node.destination, limit=full.node.limit_name, waited_ms=limit_ms)
            )

    @property
    def _stall_max_ms(self) -> int:
        """Milliseconds; 0: no limit. Without a configured limit it is `OWN_STALL_MS` for a peer that may free room."""
        return self._broker.context.options.flow.max_stall_ms or (OWN_STALL_MS if self._makes_room() else 0)

    def _step(self, step: ParkingStep) -> None:
        self.state = PARKING_NEXT[self.state][step]
        self.contents.is_reading_paused = self.is_full

    def _is_parked(self) -> bool:
        return bool(self.channels)

    def _notice_changed(self, is_given: bool) -> None:
        if is_given:
            self._step(ParkingStep.NOTIFY)
        else:
            self._step(ParkingStep.UNBLOCK if self.channels else ParkingStep.UNBLOCK_EMPTY)
