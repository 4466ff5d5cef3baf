"""The hold area of a connection: publishes that are not accepted now, channel by channel, and what came behind them.

Settling deliveries, ending something, and other channels pass. Source: ruling 15; queues page E.5; behaviour page 1.9.
"""

import logging
from collections.abc import Callable
from itertools import takewhile

from ..engine import Broker, Deadline, Full, due_after
from .blocked_notice import BlockedNotice
from .channel import Channel
from .held_channel import Allowance, HeldChannel, HeldWork, Work, blobs_of
from .journal_wait import JournalWait
from .login import Login
from .output import Output
from .peer_errors import HoldExhausted
from .protocol_events import ProtocolEvent
from .states import HOLD_NEXT, HoldState, HoldStep

logger = logging.getLogger("leveret.amqp")

OPEN, HOLDING, NOTIFIED, STALLED, NOTIFIED_STALLED = HoldState
MS = 1_000_000

#: What a connection may hold in memory, in events; for octets see [flow] hold-bytes. More goes to the temp store, ...
HELD_MAX = 512
#: ... up to so many events.
SPOOLED_MAX = 65_536
#: A connection that would make room itself, if it were read, is ended when it cannot be for so long.
OWN_STALL_MS = 60_000
#: The share of that, in percent, above which the peer is told that it is blocked.
NOTICE_PERCENT = 75


class HoldArea:
    """`channels`: those on which something is held. `count`, `octets`: of all that is held in memory.

    `spooled_count`, `spooled`: the same of what is in the temp store.

    `has_unread`: it was full, and is not any more: what the peer sent meanwhile is to be looked at. `since_ns`: when
    what is handled now came, if it was held; None: it is new. `allowance`: how much of it may be published now.
    `go_on`: handles what is held on a channel. `on_stuck`: too long nothing of it could be published.
    """

    __slots__ = (
        "_broker",
        "_journal",
        "_login",
        "_notice",
        "_stall",
        "_stalled_at",
        "_waits_for_alarm",
        "allowance",
        "channels",
        "count",
        "go_on",
        "has_unread",
        "octets",
        "on_stuck",
        "since_ns",
        "spooled",
        "spooled_count",
        "state",
    )

    def __init__(self, broker: Broker, login: Login, journal: JournalWait, output: Output) -> None:
        self._broker = broker
        self._login = login
        self._journal = journal
        self._notice = BlockedNotice(
            login, output, broker.clock, broker.deadlines, is_calm=self._is_calm, on_change=self._notice_changed
        )
        self._waits_for_alarm = False  # a publish was held by the alarm, or by the journal, that is not over
        self.channels: dict[Channel, HeldChannel] = {}
        self.count = 0
        self.octets = 0
        self.spooled_count = 0
        self.spooled = 0
        self._stalled_at = 0
        self.state = OPEN
        self.has_unread = False
        self.since_ns: int | None = None
        self.allowance: Allowance | None = None
        self.go_on: Callable[[Channel], None] = _nothing
        self.on_stuck: Callable[[HoldExhausted], None] = _nothing
        self._stall: Deadline | None = None

    def end(self) -> None:
        """The connection is over. Forgets the callables, so that no cycle of references stays behind."""
        self.drop_all()
        self._notice.end()
        self.go_on = self.on_stuck = _nothing

    # -- what is held -----------------------------------------------------------------------------------------------

    def hold(self, channel: Channel, event: Work) -> None:
        """A publish or commit has to wait for the end of an alarm, or for the journal, and what comes behind it."""
        self._put_first(channel, event)
        if not self._waits_for_alarm:
            self._waits_for_alarm = True
            self._block(self._broker.alarm or "low on disk", is_alarm=True)
        self._journal.notify()

    def hold_for(self, full: Full, channel: Channel, event: Work) -> None:
        """A publish or commit has to wait for room, and what comes behind it on its channel."""
        held = self._put_first(channel, event)
        client = self._login.client
        assert client is not None
        held.full = full
        self._broker.flow.wait(full, client, held)
        if full.fails_after_ms:
            due_ns = held.work[0].since_ns + full.fails_after_ms * MS
            held.deadline = self._broker.deadlines.set(due_ns, lambda: self._let_go(held))
        if full.is_alarm or self._is_much:
            self._block(_reason(full), is_alarm=False)
        client.is_blocked = True

    def put_back(self, channel: Channel, event: Work) -> None:
        """The allowance is used up: a publish or commit waits again, because others have their turn."""
        assert self.allowance is not None
        self.allowance.is_over = True
        full = self.allowance.full
        if full.node.is_full:  # it may be for elsewhere: it is tried as a new one
            held, work = self._held(channel), self._work(event)
            held.put_first(work)
            self._added(work)
        else:
            self.hold_for(full, channel, event)

    def put_rest(self, channel: Channel, event: Work) -> None:
        """The rest of what is being handled: before all that is held on its channel, but behind what was just held."""
        held, work = self._held(channel), self._work(event)
        if held.is_waiting or (self.allowance is not None and self.allowance.is_over):
            held.put_second(work)
        else:
            held.put_first(work)
        self._added(work)

    def queues(self, event: ProtocolEvent) -> bool:
        """Put an event behind what is held on its channel, unless it may pass. Returns: whether it was put there."""
        channel: Channel | None = getattr(event, "channel", None)
        held = None if channel is None else self.channels.get(channel)
        if held is None or held.lets_pass(event):
            return False
        work = self._spooled_if_much(self._work(event))
        held.append(work)
        self._added(work)
        return True

    def take(self, held: HeldChannel) -> Work:
        """The first of what is held on a channel, to be handled now; `taken` is to be called then."""
        work = held.take()
        self.since_ns = work.since_ns
        self._removed(work)
        if work.place is not None:
            temp = self._broker.storage.temp
            octets = temp.unspool(work.place, work.octets)
            temp.release(work.place, work.octets)
            return work.brought(octets).event
        return work.event

    def taken(self, held: HeldChannel) -> None:
        """What was taken is handled."""
        self.since_ns = None
        if not held.work:
            self._forget(held)

    def drop(self, channel: Channel) -> None:
        """A channel is over: what is held on it was never accepted, and is not confirmed."""
        held = self.channels.get(channel)
        if held is None:
            return
        if count := held.messages():
            name = self._login.peer.name
            logger.info("%s: channel %d is over, %d held publishes are dropped", name, channel.number, count)
            channel.session.pass_over(count, refused=True)
        self._stop_waiting(held)
        while held.work:
            work = held.take()
            self._removed(work)
            if work.place is not None:
                self._broker.storage.temp.release(work.place, work.octets)
        self._forget(held)

    def drop_all(self) -> None:
        """The connection is over."""
        for channel in list(self.channels):
            self.drop(channel)

    def is_waiting(self, channel: Channel) -> bool:
        """Whether nothing of a channel that is held may go on now."""
        held = self.channels.get(channel)
        if held is None:
            return False
        return held.is_waiting or (self.allowance is not None and self.allowance.is_over)

    def next_ready(self) -> HeldChannel | None:
        """A channel whose first may be handled."""
        for held in self.channels.values():
            if not held.is_waiting:
                return held
        return None

    @property
    def waits_for_room(self) -> bool:
        """Whether all that is held waits for room somewhere."""
        return all(held.full is not None for held in self.channels.values())

    def _held(self, channel: Channel) -> HeldChannel:
        held = self.channels.get(channel)
        if held is None:
            held = self.channels[channel] = HeldChannel(channel, self._resume)
        return held

    def _work(self, event: Work) -> HeldWork:
        octets = sum(map(len, blobs_of(event)))
        since_ns = self._broker.clock.monotonic_ns() if self.since_ns is None else self.since_ns
        return HeldWork(event, octets, since_ns)

    def _put_first(self, channel: Channel, event: Work) -> HeldChannel:
        held, work = self._held(channel), self._work(event)
        if self.since_ns is None:  # what was held before was counted before
            work = self._spooled_if_much(work)
        held.put_first(work)
        held.is_waiting = True
        self._added(work)
        return held

    def _forget(self, held: HeldChannel) -> None:
        if self.channels.pop(held.channel, None) is not None and not self.channels:
            if self.state is HOLDING:
                self._step(HoldStep.EMPTY)
            if not self._waits_for_alarm:
                if self._login.client is not None:
                    self._login.client.is_blocked = False
                self._notice.ease()

    # -- going on ---------------------------------------------------------------------------------------------------

    def _resume(self, held: HeldChannel, allowance: Allowance) -> None:
        """There is room, and it is this connection's turn."""
        self.allowance = allowance
        try:
            self._let_go(held)
        finally:
            self.allowance = None

    def _let_go(self, held: HeldChannel) -> None:
        """What is held on a channel is tried again."""
        self._stop_waiting(held)
        self.go_on(held.channel)

    def _stop_waiting(self, held: HeldChannel) -> None:
        held.is_waiting = False
        if held.full is not None:
            self._broker.flow.leave(held)
            held.full = None
        if held.deadline is not None:
            self._broker.deadlines.cancel(held.deadline)
            held.deadline = None

    # -- how much ---------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether so much is held that the peer is not read any more."""
        return self.state is STALLED or self.state is NOTIFIED_STALLED

    @property
    def _is_much(self) -> bool:
        """Whether so much is held that the peer should know."""
        octets_max = self._broker.options.flow.hold_size
        return self.octets * 100 > octets_max * NOTICE_PERCENT or self.count * 100 > HELD_MAX * NOTICE_PERCENT

    def _spooled_if_much(self, work: HeldWork) -> HeldWork:
        """New work: its contents go to the temp store if more is held in memory than may be."""
        flow = self._broker.options.flow
        if not work.octets or not (
            self.octets + work.octets > flow.hold_size or (self.count >= HELD_MAX and self.octets)
        ):
            return work
        if self.spooled_count >= SPOOLED_MAX or (self.spooled >= flow.hold_spool_size and not self._makes_room):
            return work
        place = self._broker.storage.temp.spool(blobs_of(work.event))
        return work if place is None else work.spooled(place)

    @property
    def _makes_room(self) -> bool:
        """Whether the peer, if it is read, may acknowledge what makes room for what it publishes."""
        client = self._login.client
        assert client is not None
        nodes = {held.full.node for held in self.channels.values() if held.full is not None}
        return any(client.makes_room_in(node) for node in nodes)

    def _added(self, work: HeldWork) -> None:
        if work.place is not None:
            self.spooled_count += 1
            self.spooled += work.octets
        else:
            self.count += 1
            self.octets += work.octets
        if self.state is OPEN:
            self._step(HoldStep.HOLD)
        if not self._notice.is_given and self._is_much:
            self._notice_much()
        if work.place is None and not self.is_full and self._has_no_room:
            self._stalled_at = self.octets + self.spooled
            self._step(HoldStep.STALL)
            self._limit_stall()

    @property
    def _has_no_room(self) -> bool:
        """Whether what came last is one too much in memory. What is tried again and waits again was there before."""
        is_over = self.octets > self._broker.options.flow.hold_size or self.count > HELD_MAX
        return is_over and self.since_ns is None

    def _removed(self, work: HeldWork) -> None:
        if work.place is not None:
            self.spooled_count -= 1
            self.spooled -= work.octets
        else:
            self.count -= 1
            self.octets -= work.octets
        if self.is_full:
            is_half = self.octets + self.spooled <= self._stalled_at // 2 and self.count < HELD_MAX // 2
            if is_half or not (self.count or self.spooled_count):
                self._step(HoldStep.EASE)
                self.has_unread = True
            self._limit_stall()

    def _limit_stall(self) -> None:
        """From now on the time runs in which something of what is held has to be published."""
        if self._stall is not None:
            self._broker.deadlines.cancel(self._stall)
            self._stall = None
        limit_ms = self._stall_max_ms
        if limit_ms and self.is_full:
            self._stall = self._broker.deadlines.set(due_after(self._broker.clock, limit_ms), self._stuck)

    def _stuck(self) -> None:
        self._stall = None
        full = self._any_full()
        if full is not None:  # else an alarm holds it, which may last
            limit_ms = self._stall_max_ms
            self.on_stuck(HoldExhausted(destination=full.destination, limit=full.limit, waited_ms=limit_ms))

    @property
    def _stall_max_ms(self) -> int:
        """0: for ever. Nobody else may make room for a peer that would make it itself."""
        return self._broker.options.flow.max_stall_ms or (OWN_STALL_MS if self._makes_room else 0)

    def _any_full(self) -> Full | None:
        return next((held.full for held in self.channels.values() if held.full is not None), None)

    def _step(self, step: HoldStep) -> None:
        self.state = HOLD_NEXT[self.state][step]

    # -- connection.blocked -----------------------------------------------------------------------------------------

    @property
    def waits_for_alarm(self) -> bool:
        """Whether the alarm, or the journal, holds something."""
        return self._waits_for_alarm

    def look_again(self) -> None:
        """If the alarm is over and the journal accepts publishes again, what waited for that goes on."""
        if not self._waits_for_alarm or self._broker.alarm is not None or self._journal.is_refusing:
            return
        self._waits_for_alarm = False
        client = self._login.client
        assert client is not None
        held_elsewhere = False
        for held in self.channels.values():
            if held.full is None:
                held.is_waiting = False
            else:
                held_elsewhere = True
        client.is_blocked = held_elsewhere
        if not held_elsewhere:
            self._notice.take_back()

    def _block(self, reason: str, *, is_alarm: bool) -> None:
        client = self._login.client
        assert client is not None
        if not client.is_blocked:
            level = logging.WARNING if is_alarm else logging.INFO
            logger.log(level, "%s: blocked: %r", self._login.peer.name, reason)
        client.is_blocked = True
        self._notice.give(reason, at_once=is_alarm)

    def _notice_much(self) -> None:
        full = self._any_full()
        if full is not None:
            self._notice.give(_reason(full))

    def _notice_changed(self, is_given: bool) -> None:
        if is_given:
            self._step(HoldStep.NOTIFY)
        else:
            self._step(HoldStep.LIFT if self.channels else HoldStep.CALM)

    def _is_calm(self) -> bool | None:
        """See `BlockedNotice`."""
        if self.channels or self._waits_for_alarm:
            return None
        roots = takewhile(lambda node: node.is_root, self._broker.flow.nodes())
        return not any(node.is_full for node in roots)


def _reason(full: Full) -> str:
    """What connection.blocked says."""
    return f"{full.destination}: {full.limit} limit"


def _nothing(_: object) -> None:
    """Instead of `go_on` and `on_stuck` before there is a channel, and once the connection is over."""
