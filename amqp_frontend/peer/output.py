"""The output of a connection: answers, and the engine's effects as octets, in order. This module does not send."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from pamqp import commands

from ...engine import ConsumerCancelled, Delivered, SessionFailed
from ..ended import nothing
from ..wire.codec import Method, answer_frame, encode_method
from ..wire.frames import Connection
from ..wire.large_output import AVERAGE_MIN, Octets
from .deliveries import ConsumerWire, render_delivered
from .login import Login

#: Octets of unsent answers (not deliveries, which the engine limits) above which the connection is not read.
REPLIES_MAX = 4 * 1024 * 1024
#: Effects that are runs of deliveries -> their renderers (effect, frame_max).
RENDERERS: dict[type, Callable[[Any, int], Iterable[Octets]]] = {Delivered: render_delivered}
#: Names of effects of optional packages -> the module that registers the renderer, imported for the first effect.
OPTIONAL = {"DeliveredLeases": ".leases"}


class Output:
    """Collects octets in parts until the edge takes them. `reply_size`: octets of `parts` that are not deliveries.

    `wake` asks the edge to take output that another connection's turn or a deadline produced. `on_session_failed`:
    called when the engine has ended a session. `is_large`: the parts taken last are too large to be joined.
    """

    #: Octets of output that waits for the journal, in addition to `parts`; see `AgreedOutput`.
    waiting_octets: int = 0

    __slots__ = ("_connection", "_login", "is_large", "on_session_failed", "parts", "reply_size", "wake")

    def __init__(self, login: Login, connection: Connection, wake: Callable[[], None]) -> None:
        self._login = login
        self._connection = connection
        self.parts: list[Octets] = []
        self.is_large = False
        self.reply_size = 0
        self.wake = wake
        self.on_session_failed: Callable[[SessionFailed], None] = nothing

    def send(self, number: int, method: type[Method], *values: object) -> None:
        """Answer with a method, after the deliveries of this turn."""
        client = self._login.client
        if client is not None and client.outbox:
            self.render()
        raw = answer_frame(number, method, *values)
        self.reply_size += len(raw)
        self.parts.append(raw)

    def send_raw(self, number: int, *parts: Octets) -> None:
        """Append octets that are whole frames of a channel."""
        self.parts += parts
        self.reply_size += sum(map(len, parts))

    def send_ahead(self, number: int, *parts: Octets) -> None:
        """Like `send_raw`, for confirms and returns, which may be sent ahead of deliveries of their channel."""
        self.parts += parts
        self.reply_size += sum(map(len, parts))

    def render(self) -> None:
        """Turn the engine's effects for this connection into octets."""
        client = self._login.client
        if client is None or not client.outbox:
            return
        parts, effects = self.parts, client.outbox
        frame_max = self._connection.frame_max
        client.outbox = []
        for effect in effects:
            if type(effect) is Delivered:
                parts += render_delivered(effect, frame_max)
            elif type(effect) is SessionFailed:
                self.on_session_failed(effect)
            elif type(effect) is not ConsumerCancelled:
                parts += renderer_of(type(effect))(effect, frame_max)
            else:
                parts += self.rendered_cancel(effect)

    def rendered_cancel(self, effect: ConsumerCancelled) -> Iterable[Octets]:
        """basic.cancel, if the peer has announced that it understands it."""
        if "consumer_cancel_notify" not in self._login.capabilities:
            return ()
        wire = effect.consumer.opaque
        assert isinstance(wire, ConsumerWire)
        return (encode_method(wire.number, commands.Basic.Cancel, effect.consumer.tag, True),)  # with nowait

    def take(self) -> list[Octets]:
        """Remove and return all output, with deliveries."""
        client = self._login.client
        size = self.reply_size
        if client is not None:
            size += client.unsent
            if client.outbox:
                self.render()
        self.reply_size = 0
        taken, self.parts = self.parts, []
        self.is_large = size > len(taken) * AVERAGE_MIN
        return taken

    def clear(self) -> None:
        """Drop the output."""
        self.parts.clear()

    def end(self) -> None:
        """End with the connection: drop the output and the callables."""
        self.clear()
        self.wake = nothing
        self.on_session_failed = nothing

    @property
    def is_stalled(self) -> bool:
        """Whether too many answers are unsent for further requests to be read."""
        return self.reply_size > REPLIES_MAX


def renderer_of(effect: type) -> Callable[[Any, int], Iterable[Octets]]:
    """The function that makes the octets of a run of deliveries, in parts. `effect`: the class of the run."""
    if effect not in RENDERERS:
        import_module(OPTIONAL[effect.__name__], __package__)
    return RENDERERS[effect]
