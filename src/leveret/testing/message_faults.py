"""Faults of messages: confirms refused, late or lost, acks lost, publishers blocked, consumers cancelled."""

import random
from typing import TYPE_CHECKING

from pamqp import commands

from ..amqp_frontend.flow.steps import ConnectionTurn
from ..amqp_frontend.peer.channel import Channel
from ..amqp_frontend.session.handling import EVENT_HANDLERS
from ..amqp_frontend.wire.events import ProtocolEvent, PublishReceived
from ..amqp_frontend.wire.states import ChannelState
from ..engine import MS, EngineError, consumers
from .fault import Fault, FaultScope, channel_of, method_of
from .server import Confirms, WatchedEndpoint

if TYPE_CHECKING:
    from .runtime import WatchedRuntime

SETTLING = frozenset({"basic.ack", "basic.nack", "basic.reject"})
#: Confirms that were held back, to be sent when the fault ends.
Held = tuple[WatchedEndpoint, Channel, Confirms]


class NackConfirms(Fault):
    """Answers publishes in confirm mode by basic.nack.

    `keep`: the message is enqueued nevertheless, as can happen in production; otherwise it is lost.
    """

    def __init__(self, scope: FaultScope, *, keep: bool) -> None:
        super().__init__(scope)
        self._keep = keep

    def on_event(self, endpoint: WatchedEndpoint, event: ProtocolEvent) -> ProtocolEvent | None:
        if not isinstance(event, PublishReceived):
            return event
        channel = event.channel
        assert isinstance(channel, Channel)
        confirms = channel.session.confirms
        if confirms is None or not self.scope.count_occasion():
            return event
        if self._keep:
            try:
                EVENT_HANDLERS[PublishReceived](endpoint.session, event, ConnectionTurn(endpoint.session.broker))
            except EngineError:
                return event  # let the session handle it and report the error
            confirms.refused.append(confirms.published)
        else:
            confirms.add(1, [0])
            endpoint.session.confirming.channels[channel] = None
        self.hit(f"nacked publish {confirms.published} of channel {channel.number} of {endpoint.name}")
        return None


class HoldConfirms(Fault):
    """Sends confirms after `delay_ms` of the broker's clock, even if the fault has ended by then. With `delay_ms` None,
    sends them when the fault ends, or never (`loses`).
    """

    def __init__(self, scope: FaultScope, *, delay_ms: int | None, loses: bool) -> None:
        super().__init__(scope)
        self._delay_ms = delay_ms
        self._loses = loses
        self._held: list[Held] = []

    def on_confirms(self, endpoint: WatchedEndpoint, channel: Channel, taken: Confirms) -> Confirms:
        if not taken or not self.scope.count_occasion():
            return taken
        self.hit(f"held {len(taken)} confirms of channel {channel.number} of {endpoint.name}")
        held = (endpoint, channel, taken)
        if self._delay_ms is not None:
            runtime = endpoint.runtime
            due_ns = runtime.clock.monotonic_ns() + self._delay_ms * MS
            runtime.broker.context.deadlines.set(due_ns, lambda: _send_held(held))
        elif not self._loses:
            self._held.append(held)
        return []

    def end(self, runtime: "WatchedRuntime") -> None:
        for held in self._held:
            _send_held(held)
        self._held.clear()


def _send_held(held: Held) -> None:
    endpoint, channel, taken = held
    if channel.state is ChannelState.OPEN and not endpoint.session.closing.finished:
        endpoint.session.confirming.send(channel, taken)
        endpoint.flush()


class LoseAcks(Fault):
    """Drops acknowledgements: messages stay unacknowledged, and are redelivered when their channel ends."""

    def on_event(self, endpoint: WatchedEndpoint, event: ProtocolEvent) -> ProtocolEvent | None:
        if method_of(event) not in SETTLING or not self.scope.count_occasion():
            return event
        self.hit(f"lost {method_of(event)} of {endpoint.name}")
        return None


class Block(Fault):
    """Sends connection.blocked to clients with that capability. Publishes wait until the fault ends, and are dropped
    if their channel is closed by then; other methods are served (ruling 15).
    """

    def __init__(self, scope: FaultScope, reason: str) -> None:
        super().__init__(scope)
        self._reason = reason
        self._blocked: dict[WatchedEndpoint, None] = {}
        self._parked: list[tuple[WatchedEndpoint, PublishReceived]] = []

    def begin(self, runtime: "WatchedRuntime") -> None:
        for endpoint in runtime.endpoints_of(None):
            if self.scope.covers(endpoint):
                self._send_blocked(endpoint)
                endpoint.flush()

    def on_event(self, endpoint: WatchedEndpoint, event: ProtocolEvent) -> ProtocolEvent | None:
        if not isinstance(event, PublishReceived):
            return event
        self._send_blocked(endpoint)
        self._parked.append((endpoint, event))
        self.hit(f"parked a publish of {endpoint.name}")
        return None

    def end(self, runtime: "WatchedRuntime") -> None:
        for endpoint in self._blocked:
            if "connection.blocked" in endpoint.session.login.capabilities and not endpoint.session.closing.finished:
                endpoint.session.output.send(0, commands.Connection.Unblocked)
        for endpoint, event in self._parked:
            session = endpoint.session
            if event.channel.state is not ChannelState.OPEN or session.closing.finished:
                continue
            try:
                EVENT_HANDLERS[PublishReceived](session, event, ConnectionTurn(session.broker))
            except EngineError as error:
                session.closing.refuse(error, channel_of(event), event.ids)
            session.confirming.send_due()
        for endpoint in self._blocked:
            endpoint.flush()
        runtime.end_turn()

    def _send_blocked(self, endpoint: WatchedEndpoint) -> None:
        if endpoint not in self._blocked:
            self._blocked[endpoint] = None
            if "connection.blocked" in endpoint.session.login.capabilities:
                self.hit(f"blocked {endpoint.name}")
                endpoint.session.output.send(0, commands.Connection.Blocked, self._reason)


class CancelConsumers(Fault):
    """Sends basic.cancel to the present consumers of a queue, as if the queue had been deleted."""

    def __init__(self, scope: FaultScope, queue: str) -> None:
        super().__init__(scope)
        self._queue = queue

    def begin(self, runtime: "WatchedRuntime") -> None:
        for vhost in runtime.broker.virtual_hosts.values():
            queue = vhost.queues.get(self._queue)
            if queue is None or self.scope.vhost not in (None, vhost.name):
                continue
            for consumer in list(queue.consumers):
                if not self.scope.count_occasion():
                    break
                self.hit(f"cancelled {consumer.tag} of {consumer.client.name}")
                consumers.cancel(queue, (consumer,))
        runtime.end_turn()


class Chaos(Fault):
    """Lets events fail at random: the same ones for the same seed, the same order of connections, and the same order of
    events in each.

    Chances from 0 to 1 for each event: `drop` of the connection, `close` of the channel, `nack` of a publish, `lose` of
    an acknowledgement; `cut` for each write: the connection ends inside it.
    """

    def __init__(
        self, scope: FaultScope, seed: int, *, drop: float, close: float, nack: float, lose: float, cut: float
    ) -> None:
        super().__init__(scope)
        self.seed = seed
        self._drop, self._close, self._nack, self._lose, self._cut = drop, close, nack, lose, cut
        self._dice: dict[WatchedEndpoint, random.Random] = {}

    def _dice_of(self, endpoint: WatchedEndpoint) -> random.Random:
        """The connection's own generator of random numbers, so that connections are independent."""
        dice = self._dice.get(endpoint)
        if dice is None:
            dice = self._dice[endpoint] = random.Random(f"{self.seed}/{len(self._dice)}")
        return dice

    def on_event(self, endpoint: WatchedEndpoint, event: ProtocolEvent) -> ProtocolEvent | None:
        channel = channel_of(event)
        if channel is None or endpoint.session.login.client is None:
            return event
        fate = self._dice_of(endpoint).random()
        method = method_of(event)
        if fate < self._drop:
            self.hit(f"dropped {endpoint.name} on {method}")
            endpoint.abort()
            return None
        fate -= self._drop
        if fate < self._close and channel.state is ChannelState.OPEN and not method.startswith("channel."):
            self.hit(f"closed channel {channel.number} of {endpoint.name} on {method}")
            text = f"PRECONDITION_FAILED - chaos with seed {self.seed}"
            endpoint.session.closing.close_channel(channel, 406, text, 0, 0)
            return None
        fate -= self._close
        if isinstance(event, PublishReceived):
            confirms = channel.session.confirms
            if confirms is not None and fate < self._nack:
                self.hit(f"nacked a publish of {endpoint.name}")
                confirms.add(1, [0])
                endpoint.session.confirming.channels[channel] = None
                return None
        elif method in SETTLING and fate < self._lose:
            self.hit(f"lost {method} of {endpoint.name}")
            return None
        return event

    def on_send(self, endpoint: WatchedEndpoint, data: bytes | memoryview) -> tuple[int, bool]:
        dice = self._dice_of(endpoint)
        if not self._cut or endpoint.session.login.client is None or dice.random() >= self._cut:
            return len(data), False
        cut = dice.randrange(len(data))
        self.hit(f"cut off {endpoint.name} after {cut} of {len(data)} octets")
        return cut, True
