"""Services: exchanges behind which the broker itself listens, such as its control table."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..exchanges.exchange import Binding, Destination, Exchange
from ..exchanges.routed import Routed
from ..messages.message import Envelope

if TYPE_CHECKING:
    from ..virtual_host import VirtualHost

#: Called with the virtual host, the envelope and one blob of a request; answers by publishing.
Handler = Callable[["VirtualHost", Envelope, bytes], None]


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

    def handle(self, vhost: "VirtualHost", envelope: Envelope, blobs: Sequence[bytes]) -> None:
        """Serve a run of requests."""
        for blob in blobs:
            self._handler(vhost, envelope, blob)
        durability = vhost.broker.durability
        if durability is not None:
            self.barrier = max(self.barrier, durability.take_barrier())

    def match(self, message: Routed) -> Sequence[Destination]:
        """Nothing: see `handle`."""
        return ()

    def _index(self, binding: Binding) -> None:
        """Bindings to a service lead nowhere."""

    def _unindex(self, binding: Binding) -> None:
        """Bindings to a service lead nowhere."""
