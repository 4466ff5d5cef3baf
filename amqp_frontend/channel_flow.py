"""channel.flow to a peer whose publishes are held: for clients whose publish calls wait for it. Off by default.

Some clients take it for the answer to something else, so only the products that [flow] use-channel-flow names get it.
Source: queues page E.3.
"""

from pamqp import commands

from ..engine import Broker, Deadline
from .blocked_notice import CALM_MS
from .channel import Channel
from .login import Login
from .output import Output
from .states import ChannelState


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
        elif (products := self._broker.options.flow.channel_flow_products) and self._product in products:
            self._stopped[channel] = None
            self._output.send(channel.number, commands.Channel.Flow, False)

    def ease(self, channel: Channel) -> None:
        """Nothing is held on it: the peer may go on when that has lasted."""
        if channel in self._stopped:
            self._cancel(channel)
            due_ns = self._broker.clock.monotonic_ns() + CALM_MS * 1_000_000
            self._stopped[channel] = self._broker.deadlines.set(due_ns, lambda: self._go(channel))

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
            self._broker.deadlines.cancel(deadline)
            self._stopped[channel] = None

    @property
    def _product(self) -> str:
        """What the client calls itself."""
        product = self._login.client_properties.get("product")
        value = getattr(product, "value", b"")
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
