"""Notices to a peer while its publishes are parked: connection.blocked, and channel.flow for configured products.

Source: queues page E.3, E.4 rows 1 and 3, E.5 (state NOTIFIED), G.E E07 and E12.
"""

from collections.abc import Callable

from pamqp import commands

from ...engine import Broker, Deadline, FullLimit
from ..ended import never, nothing
from ..peer.channel import Channel
from ..peer.login import Login
from ..peer.output import Output
from ..wire.states import ChannelState

#: Milliseconds from the moment at which no publish is parked until connection.unblocked. A publish that is parked
#: within this time after either blocks the peer again only if it stays parked for this time.
CALM_MS = 200
CALM_NS = CALM_MS * 1_000_000


class BlockedNotice:
    """Sends connection.blocked and connection.unblocked. `is_given`: the peer is blocked.

    The first parked publish sends the notice. If publishes are parked only for moments, the notice is taken back, and
    sent again only when a publish has been parked for `CALM_MS`: clients measure how long they are blocked, and
    disconnect. Peers that did not announce the capability get no notice.
    """

    __slots__ = ("_broker", "_deadline", "_is_parked", "_last_unparked_ns", "_login", "_on_change", "_output",
                 "_reason", "is_given")  # fmt: skip

    def __init__(
        self,
        broker: Broker,
        login: Login,
        output: Output,
        *,
        is_parked: Callable[[], bool],
        on_change: Callable[[bool], None],
    ) -> None:
        """`is_parked` tells whether publishes are parked. `on_change` is called when a notice is sent: True for
        connection.blocked, False for connection.unblocked.
        """
        self._broker = broker
        self._login = login
        self._output = output
        self._is_parked = is_parked
        self._on_change = on_change
        self._deadline: Deadline | None = None
        self._reason = ""
        self._last_unparked_ns = -CALM_NS  # or the time when connection.unblocked was sent
        self.is_given = False

    def give(self, full: FullLimit) -> None:
        """Note that a publish was parked for lack of room, or for an alarm."""
        if self.is_given:
            if full.node.is_root:
                self._cancel()  # the whole broker is full or has an alarm: no publish continues before that ends
        elif "connection.blocked" in self._login.capabilities:
            self._reason = full.node.reason
            if self._broker.context.clock.monotonic_ns() >= self._last_unparked_ns + CALM_NS:
                self._send_blocked()
            elif self._deadline is None:
                self._check_later()

    def note_unparked(self) -> None:
        """Note that no publish is parked. The peer is unblocked `CALM_MS` later, even if a queue is full again by then.

        While the whole broker is full or has an alarm, it stays blocked.
        """
        self._last_unparked_ns = self._broker.context.clock.monotonic_ns()
        if not self.is_given:
            self._cancel()
        elif self._deadline is None:
            self._check_later()

    def end(self) -> None:
        """End with the connection. Drops the callables, so that no reference cycle remains."""
        self._cancel()
        self._is_parked, self._on_change = never, nothing

    def _check_later(self) -> None:
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
            self._check_later()  # the broker is still full, or has an alarm, and no event marks their end
        self._output.wake()

    def _take_back(self) -> None:
        self.is_given = False
        self._last_unparked_ns = self._broker.context.clock.monotonic_ns()
        self._output.send(0, commands.Connection.Unblocked)
        self._on_change(False)
        if self._is_parked():
            self._check_later()

    def _send_blocked(self) -> None:
        self._cancel()
        self.is_given = True
        reason = self._reason.encode()[:255].decode(errors="ignore")
        self._output.send(0, commands.Connection.Blocked, reason)
        self._on_change(True)

    def _cancel(self) -> None:
        self._broker.context.deadlines.cancel(self._deadline)
        self._deadline = None


class ChannelFlow:
    """Sends channel.flow: stops channels with parked publishes, and resumes them."""

    __slots__ = ("_broker", "_login", "_output", "_stopped")

    def __init__(self, broker: Broker, login: Login, output: Output) -> None:
        self._broker = broker
        self._login = login
        self._output = output
        self._stopped: dict[Channel, Deadline | None] = {}

    def stop(self, channel: Channel) -> None:
        """Ask the peer once to stop sending on a channel with parked publishes."""
        if channel in self._stopped:
            self._cancel(channel)
        elif (products := self._broker.context.options.flow.channel_flow_products) and self._product in products:
            self._stopped[channel] = None
            self._output.send(channel.number, commands.Channel.Flow, False)

    def note_unparked(self, channel: Channel) -> None:
        """Note that no publish is parked on the channel. The peer may resume when that has lasted for `CALM_MS`."""
        if channel in self._stopped:
            self._cancel(channel)
            due_ns = self._broker.context.clock.monotonic_ns() + CALM_NS
            self._stopped[channel] = self._broker.context.deadlines.set(due_ns, lambda: self._resume(channel))

    def end(self) -> None:
        """End with the connection."""
        for channel in self._stopped:
            self._cancel(channel)
        self._stopped.clear()

    def _resume(self, channel: Channel) -> None:
        del self._stopped[channel]
        if channel.state is ChannelState.OPEN:
            self._output.send(channel.number, commands.Channel.Flow, True)
            self._output.wake()

    def _cancel(self, channel: Channel) -> None:
        self._broker.context.deadlines.cancel(self._stopped[channel])
        self._stopped[channel] = None

    @property
    def _product(self) -> str:
        """The client's product name."""
        product = self._login.client_properties.get("product")
        value = getattr(product, "value", b"")
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
