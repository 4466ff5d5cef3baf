"""Services: exchanges behind which the broker itself listens, such as its control table."""

from collections.abc import Callable, Sequence

from ..durability import Durability
from ..exchanges.exchange import Binding, Destination, Exchange
from ..exchanges.routed import Routed
from ..messages.message import Envelope

#: Called with the envelope and one blob of a request; answers by publishing.
Handler = Callable[[Envelope, bytes], None]


class ServiceExchange(Exchange):
    """Hands each message to a handler instead of to queues. Never declared by clients, never bound.

    `barrier`: what was asked for is safe when the journal is there; answers wait for it.
    """

    type = "x-leveret-service"
    __slots__ = ("_handler", "barrier")

    def __init__(self, name: str, handler: Handler) -> None:
        super().__init__(name, durable=True, internal=True)
        self._handler = handler
        self.barrier = 0

    def handle(self, envelope: Envelope, blobs: Sequence[bytes], durability: Durability | None) -> None:
        """Serve a run of requests."""
        for blob in blobs:
            self._handler(envelope, blob)
        if durability is not None:
            self.barrier = max(self.barrier, durability.take_barrier())

    def match(self, message: Routed) -> Sequence[Destination]:
        """Nothing: see `handle`."""
        return ()

    def _index(self, binding: Binding) -> None:
        """Bindings to a service lead nowhere."""

    def _unindex(self, binding: Binding) -> None:
        """Bindings to a service lead nowhere."""
