"""What a peer is told while its publishes are held: connection.blocked, and channel.flow where it is asked for.

Source: queues page E.3, E.4 rows 1 and 3, E.5 (state NOTIFIED), G.E E07 and E12.
"""

from collections.abc import Callable

from pamqp import commands

from ...engine import Blocker, Broker, Deadline
from ..peer.channel import Channel
from ..peer.login import Login
from ..peer.output import Output
from ..wire.states import ChannelState

#: How long publishes must not have been held before the peer hears so, and must be held before it hears that again.
CALM_MS = 200
CALM_NS = CALM_MS * 1_000_000


class BlockedNotice:
    """`is_given`: the peer was sent connection.blocked, and not yet connection.unblocked.

    It is given with the first publish that is held. Where publishes go on, each held for a moment, it is taken back,
    and given again only if one is held for `CALM_MS`: clients count for how long they are blocked, and hang up. Peers
    that did not announce the capability are sent nothing.
    """

    __slots__ = ("_broker", "_deadline", "_is_parked", "_login", "_on_change", "_output", "_reason", "_restless_ns",
                 "is_given")  # fmt: skip

    def __init__(
        self,
        broker: Broker,
        login: Login,
        output: Output,
        *,
        is_parked: Callable[[], bool],
        on_change: Callable[[bool], None],
    ) -> None:
        """`is_parked`: whether publishes are held. `on_change`: connection.blocked was sent, or (False)
        connection.unblocked."""
        self._broker = broker
        self._login = login
        self._output = output
        self._is_parked = is_parked
        self._on_change = on_change
        self._deadline: Deadline | None = None
        self._reason = ""
        self._restless_ns = -CALM_NS
        self.is_given = False

    def give(self, full: Blocker) -> None:
        """A publish is held for want of room, or for an alarm."""
        if self.is_given:
            if full.concerns_all:
                self._cancel()  # nothing goes on before that is over
        elif "connection.blocked" in self._login.capabilities:
            self._reason = full.reason
            if self._broker.context.clock.monotonic_ns() >= self._restless_ns + CALM_NS:
                self._send_blocked()
            elif self._deadline is None:
                self._look_later()

    def ease(self) -> None:
        """Nothing is held any more: what the peer knows of was accepted. It hears so soon."""
        self._restless_ns = self._broker.context.clock.monotonic_ns()
        if not self.is_given:
            self._cancel()
        elif self._deadline is None:
            self._look_later()

    def end(self) -> None:
        """The connection is over. Forgets the callables, so that no cycle of references stays behind."""
        self._cancel()
        self._is_parked, self._on_change = _never, _ignore

    def _look_later(self) -> None:
        self._deadline = self._broker.context.deadlines.set(
            self._broker.context.clock.monotonic_ns() + CALM_NS, self._due
        )

    def _due(self) -> None:
        self._deadline = None
        if not self.is_given:
            self._send_blocked()
        elif self._broker.flow.is_calm:
            self._take_back()
        else:
            self._look_later()  # the broker is still full, or an alarm up: nobody tells the end of that
        self._output.wake()

    def _take_back(self) -> None:
        self.is_given = False
        self._restless_ns = self._broker.context.clock.monotonic_ns()
        self._output.send(0, commands.Connection.Unblocked)
        self._on_change(False)
        if self._is_parked():
            self._look_later()

    def _send_blocked(self) -> None:
        self._cancel()
        self.is_given = True
        reason = self._reason.encode()[:255].decode(errors="ignore")
        self._output.send(0, commands.Connection.Blocked, reason)
        self._on_change(True)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._broker.context.deadlines.cancel(self._deadline)
            self._deadline = None


def _never() -> bool:
    """Instead of `is_parked` once the connection is over."""
    return False


def _ignore(_: bool) -> None:
    pass


class ChannelFlow:
    """Of one connection: which of its channels are told to stop, and when they may go on."""

    __slots__ = ("_broker", "_login", "_output", "_stopped")

    def __init__(self, broker: Broker, login: Login, output: Output) -> None:
        self._broker = broker
        self._login = login
        self._output = output
        self._stopped: dict[Channel, Deadline | None] = {}

    def stop(self, channel: Channel) -> None:
        """Publishes are held on it: the peer is asked to send no more, once."""
        if channel in self._stopped:
            self._cancel(channel)
        elif (products := self._broker.context.options.flow.channel_flow_products) and self._product in products:
            self._stopped[channel] = None
            self._output.send(channel.number, commands.Channel.Flow, False)

    def ease(self, channel: Channel) -> None:
        """Nothing is held on it: the peer may go on when that has lasted."""
        if channel in self._stopped:
            self._cancel(channel)
            due_ns = self._broker.context.clock.monotonic_ns() + CALM_MS * 1_000_000
            self._stopped[channel] = self._broker.context.deadlines.set(due_ns, lambda: self._go(channel))

    def end(self) -> None:
        """The connection is over."""
        for channel in self._stopped:
            self._cancel(channel)
        self._stopped.clear()

    def _go(self, channel: Channel) -> None:
        del self._stopped[channel]
        if channel.state is ChannelState.OPEN:
            self._output.send(channel.number, commands.Channel.Flow, True)
            self._output.wake()

    def _cancel(self, channel: Channel) -> None:
        deadline = self._stopped[channel]
        if deadline is not None:
            self._broker.context.deadlines.cancel(deadline)
            self._stopped[channel] = None

    @property
    def _product(self) -> str:
        """What the client calls itself."""
        product = self._login.client_properties.get("product")
        value = getattr(product, "value", b"")
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
