"""The hold area of a connection: publishes that are not accepted now, channel by channel, and what came behind them.

Settling deliveries, ending something, and other channels pass. Source: ruling 15; queues page E.5; behaviour page 1.9.
"""

import logging

from pamqp import commands

from ..engine import Broker
from .channel import Channel
from .held_channel import HeldChannel, Work
from .journal_wait import JournalWait
from .login import Login
from .output import Output
from .protocol_events import ProtocolEvent
from .states import HOLD_NEXT, HoldState, HoldStep

logger = logging.getLogger("leveret.amqp")

OPEN, HOLDING, NOTIFIED, STALLED, NOTIFIED_STALLED = HoldState

#: What a connection may hold, in events and in octets of publishes, before it is not read further.
HELD_MAX = 512
HELD_OCTETS_MAX = 1024 * 1024


class HoldArea:
    """`channels`: those on which something is held. `count`, `octets`: of all that is.

    `has_unread`: it was full, and is not any more: what the peer sent meanwhile is to be looked at.
    """

    __slots__ = (
        "_broker",
        "_journal",
        "_login",
        "_output",
        "_waits_for_alarm",
        "channels",
        "count",
        "has_unread",
        "octets",
        "state",
    )

    def __init__(self, broker: Broker, login: Login, journal: JournalWait, output: Output) -> None:
        self._broker = broker
        self._login = login
        self._journal = journal
        self._output = output
        self._waits_for_alarm = False  # a publish was held by the alarm, or by the journal, that is not over
        self.channels: dict[Channel, HeldChannel] = {}
        self.count = 0
        self.octets = 0
        self.state = OPEN
        self.has_unread = False

    # -- what is held -----------------------------------------------------------------------------------------------

    def hold(self, channel: Channel, event: Work) -> None:
        """A publish or commit cannot be done now: it waits, and what comes behind it on its channel."""
        held = self._held(channel)
        held.is_waiting = True
        self._added(held.put_first(event))
        if not self._waits_for_alarm:
            self._waits_for_alarm = True
            self._block(self._broker.alarm or "low on disk")
        self._journal.notify()

    def put_rest(self, channel: Channel, event: Work) -> None:
        """The rest of what is being handled: before all that is held on its channel, but behind what was just held."""
        held = self._held(channel)
        self._added(held.put_second(event) if held.is_waiting else held.put_first(event))

    def queues(self, event: ProtocolEvent) -> bool:
        """Put an event behind what is held on its channel, unless it may pass. Returns: whether it was put there."""
        channel: Channel | None = getattr(event, "channel", None)
        held = None if channel is None else self.channels.get(channel)
        if held is None or held.lets_pass(event):
            return False
        self._added(held.append(event))
        return True

    def take(self, held: HeldChannel) -> Work:
        """The first of what is held on a channel."""
        event, octets = held.take()
        self._removed(1, octets)
        if not held.work:
            self._forget(held)
        return event

    def drop(self, channel: Channel) -> None:
        """A channel is over: what is held on it was never accepted, and is not confirmed."""
        held = self.channels.get(channel)
        if held is not None:
            logger.info(
                "%s: channel %d closed, %d held publishes dropped",
                self._login.peer.name,
                channel.number,
                held.messages(),
            )
            self._removed(len(held.work), held.octets)
            held.work.clear()
            self._forget(held)

    def drop_all(self) -> None:
        """The connection is over."""
        for channel in list(self.channels):
            self.drop(channel)

    def is_waiting(self, channel: Channel) -> bool:
        """Whether nothing of a channel that is held may go on now."""
        held = self.channels.get(channel)
        return held is not None and held.is_waiting

    def next_ready(self) -> HeldChannel | None:
        """A channel whose first may be handled."""
        for held in self.channels.values():
            if not held.is_waiting:
                return held
        return None

    def _held(self, channel: Channel) -> HeldChannel:
        held = self.channels.get(channel)
        if held is None:
            held = self.channels[channel] = HeldChannel(channel)
        return held

    def _forget(self, held: HeldChannel) -> None:
        self.channels.pop(held.channel, None)
        if not self.channels and self.state is HOLDING:
            self._step(HoldStep.EMPTY)

    # -- how much ---------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether so much is held that the peer is not read any more."""
        return self.state is STALLED or self.state is NOTIFIED_STALLED

    def _added(self, octets: int) -> None:
        self.count += 1
        self.octets += octets
        if self.state is OPEN:
            self._step(HoldStep.HOLD)
        if not self.is_full and (self.octets > HELD_OCTETS_MAX or self.count >= HELD_MAX):
            self._step(HoldStep.STALL)

    def _removed(self, count: int, octets: int) -> None:
        self.count -= count
        self.octets -= octets
        if self.is_full and self.octets < HELD_OCTETS_MAX // 2 and self.count < HELD_MAX // 2:
            self._step(HoldStep.EASE)
            self.has_unread = True

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
        client.is_blocked = False
        if self._is_notified:
            self._output.send(0, commands.Connection.Unblocked)
            self._step(HoldStep.LIFT)
            if not self.channels:
                self._step(HoldStep.EMPTY)
        for held in self.channels.values():
            held.is_waiting = False

    @property
    def _is_notified(self) -> bool:
        return self.state is NOTIFIED or self.state is NOTIFIED_STALLED

    def _block(self, reason: str) -> None:
        client = self._login.client
        assert client is not None
        client.is_blocked = True
        logger.warning("%s: blocked: %r", self._login.peer.name, reason)
        if "connection.blocked" in self._login.capabilities and not self._is_notified:
            self._output.send(0, commands.Connection.Blocked, reason)
            self._step(HoldStep.NOTIFY)
