"""The hold area of a connection: publishes that are not accepted now, channel by channel, and what came behind them.

Settling deliveries, ending something, and other channels pass. Source: ruling 15; queues page E.5; behaviour page 1.9.
"""

import logging
from collections.abc import Callable

from ..engine import Broker, Deadline, Full, due_after
from .blocked_notice import BlockedNotice
from .channel import Channel
from .channel_flow import ChannelFlow
from .held_channel import Allowance, HeldChannel, HeldWork, Work, blobs_of
from .held_contents import HELD_MAX, HeldContents
from .login import Login
from .output import Output
from .peer_errors import HoldExhausted
from .protocol_events import ProtocolEvent
from .states import HOLD_NEXT, HoldState, HoldStep

logger = logging.getLogger("leveret.amqp")

OPEN, HOLDING, NOTIFIED, STALLED, NOTIFIED_STALLED = HoldState
MS = 1_000_000

#: A connection that would make room itself, if it were read, is ended when it cannot be for so long.
OWN_STALL_MS = 60_000


class HoldArea:
    """`channels`: those on which something is held. `contents`: how much that is, and where.

    `says_goodbye`: the peer closes the connection, but that waits for what is held (`HeldChannel.has_last_words`).

    `has_unread`: it was full, and is not any more: what the peer sent meanwhile is to be looked at. `since_ns`: when
    what is handled now came, if it was held; None: it is new. `allowance`: how much of it may be published now.
    `go_on`: handles what is held on a channel. `on_stuck`: too long nothing of it could be published.
    """

    __slots__ = (
        "_broker",
        "_channel_flow",
        "_login",
        "_notice",
        "_stall",
        "_stalled_at",
        "_tried",
        "allowance",
        "channels",
        "contents",
        "go_on",
        "has_unread",
        "on_stuck",
        "says_goodbye",
        "since_ns",
        "state",
    )

    def __init__(self, broker: Broker, login: Login, output: Output) -> None:
        self._broker = broker
        self._login = login
        self._notice = BlockedNotice(broker, login, output, is_held=self._is_held, on_change=self._notice_changed)
        self._channel_flow = ChannelFlow(broker, login, output)
        self.channels: dict[Channel, HeldChannel] = {}
        self.contents = HeldContents(broker)
        self._stalled_at = self._tried = 0
        self.state = OPEN
        self.has_unread = False
        self.says_goodbye = False
        self.since_ns: int | None = None
        self.allowance: Allowance | None = None
        self.go_on: Callable[[Channel], None] = _nothing
        self.on_stuck: Callable[[HoldExhausted], None] = _nothing
        self._stall: Deadline | None = None

    def end(self) -> None:
        """The connection is over. Forgets the callables, so that no cycle of references stays behind."""
        self.drop_all()
        self._notice.end()
        self._channel_flow.end()
        self.go_on = self.on_stuck = _nothing

    # -- what is held -----------------------------------------------------------------------------------------------

    def hold_for(self, full: Full, channel: Channel, event: Work) -> None:
        """A publish or commit has to wait for room, or an alarm to end, and what comes behind it on its channel."""
        held = self._put_first(channel, event)
        client = self._login.client
        assert client is not None
        client.holding = self.contents
        held.full = full
        self._broker.flow.wait(full, client, held)
        if self.is_full and self._stall is None:
            self._limit_stall()  # for this limit the peer may make room itself
        if full.fails_after_ms:
            due_ns = held.work[0].since_ns + full.fails_after_ms * MS
            held.deadline = self._broker.deadlines.set(due_ns, lambda: self._let_go(held))
        if full.concerns_all and not client.is_blocked:
            level = logging.WARNING if full.is_alarm else logging.INFO
            logger.log(level, "%s: blocked: %r", self._login.peer.name, full.reason)
        self._notice.give(full)
        self._channel_flow.stop(channel)
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
        work = self.contents.placed(self._work(event), self._makes_room)
        held.append(work)
        self._added(work)
        return True

    def take(self, held: HeldChannel) -> Work:
        """The first of what is held on a channel, to be handled now; `taken` is to be called then."""
        work = held.take()
        self.since_ns = work.since_ns
        self._tried = self._held_octets
        self._removed(work)
        return self.contents.brought(work)

    def taken(self, held: HeldChannel) -> None:
        """What was taken is handled."""
        self.since_ns = None
        if self.is_full and self._held_octets < self._tried:
            self._limit_stall()  # something of it was published
        if not held.work:
            self._forget(held)

    def drop(self, channel: Channel) -> bool:
        """A channel is over: what is held on it was never accepted, and is not confirmed.

        Returns whether the peer's own channel.close was among it, which is to be answered all the same.
        """
        held = self.channels.get(channel)
        if held is None:
            return False
        if count := held.messages():
            level = logging.INFO if held.is_answered else logging.WARNING
            name = self._login.peer.name
            logger.log(level, "%s: channel %d is over, %d held publishes are dropped", name, channel.number, count)
            channel.session.pass_over(count, refused=True)
        is_closed = held.closes
        self._stop_waiting(held)
        while held.work:
            work = held.take()
            self._removed(work)
            self.contents.released(work)
        self._forget(held)
        return is_closed

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
    def has_last_words(self) -> bool:
        """Whether the peer's connection.close waits for what is held."""
        return any(held.has_last_words for held in self.channels.values())

    @property
    def waits_for_others(self) -> bool:
        """Whether nothing of what is held can go on before room is made, or an alarm ends."""
        return all(held.full is not None for held in self.channels.values())

    @property
    def waits_for_alarm(self) -> bool:
        """Whether an alarm holds something."""
        return any(held.full is not None and held.full.is_alarm for held in self.channels.values())

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
            work = self.contents.placed(work, self._makes_room)
        held.put_first(work)
        held.is_waiting = True
        self._added(work)
        return held

    def _forget(self, held: HeldChannel) -> None:
        if self.channels.pop(held.channel, None) is None:
            return
        self._channel_flow.ease(held.channel)
        if not self.channels:
            if self.state is HOLDING:
                self._step(HoldStep.EMPTY)
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
    def _held_octets(self) -> int:
        return self.contents.octets + self.contents.spooled

    def _makes_room(self) -> bool:
        """Whether the peer, if it is read, may acknowledge what makes room for what it publishes."""
        client = self._login.client
        assert client is not None
        nodes = {held.full.node for held in self.channels.values() if held.full is not None}
        return any(client.makes_room_in(node) for node in nodes)

    def _added(self, work: HeldWork) -> None:
        contents = self.contents
        contents.added(work)
        if self.state is OPEN:
            self._step(HoldStep.HOLD)
        # What is tried again and waits again was there before.
        if self.since_ns is None and not self.is_full and contents.has_no_room_behind(work):
            self._stalled_at = self._held_octets
            self._step(HoldStep.STALL)
            self._limit_stall()

    def _removed(self, work: HeldWork) -> None:
        contents = self.contents
        contents.removed(work)
        if self.is_full:
            is_half = self._held_octets <= self._stalled_at // 2 and contents.count < HELD_MAX // 2
            if is_half or not (contents.count or contents.spooled_count):
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
        if full is not None and not full.is_alarm:  # that may last
            limit_ms = self._stall_max_ms
            self.on_stuck(HoldExhausted(destination=full.destination, limit=full.limit, waited_ms=limit_ms))

    @property
    def _stall_max_ms(self) -> int:
        """0: for ever. Nobody else may make room for a peer that would make it itself."""
        return self._broker.options.flow.max_stall_ms or (OWN_STALL_MS if self._makes_room() else 0)

    def _any_full(self) -> Full | None:
        return next((held.full for held in self.channels.values() if held.full is not None), None)

    def _step(self, step: HoldStep) -> None:
        self.state = HOLD_NEXT[self.state][step]
        self.contents.is_unread = self.is_full

    def _is_held(self) -> bool:
        return bool(self.channels)

    def _notice_changed(self, is_given: bool) -> None:
        if is_given:
            self._step(HoldStep.NOTIFY)
        else:
            self._step(HoldStep.LIFT if self.channels else HoldStep.CALM)


def _nothing(_: object) -> None:
    """Instead of `go_on` and `on_stuck` before there is a channel, and once the connection is over."""
