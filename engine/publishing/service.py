"""Services: exchanges whose messages are requests to the broker, such as `leveret.control`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..exchanges.exchange import Destination, Exchange
from ..exchanges.routed import Routed
from ..messages.message import Envelope
from ..users.access import User

if TYPE_CHECKING:
    from ..clients.client import Client

#: Called with the envelope and the content of a request. It publishes the answer.
Handler = Callable[[Envelope, bytes], None]


class ServiceExchange(Exchange):
    """An exchange that gives each message to a handler instead of queues. Clients cannot declare or bind it."""

    type = "x-leveret-service"
    __slots__ = ("_handler",)

    def __init__(self, name: str, handler: Handler) -> None:
        super().__init__(name, durable=True, internal=True)
        self._handler = handler

    def handle(self, envelope: Envelope, contents: Sequence[bytes]) -> None:
        """Handle a run of requests."""
        for content in contents:
            self._handler(envelope, content)

    def match(self, message: Routed) -> Sequence[Destination]:
        return ()  # `handle` gets the messages


class Sender(NamedTuple):
    """The sender of a request. `client`: its connection; None: it has none, as over HTTP."""

    user: User
    client: "Client | None"


class PersonalService(ServiceExchange):
    """A service whose handler gets the sender of a request. To clients it looks like a direct exchange."""

    type = "direct"
    __slots__ = ("_serve",)

    def __init__(self, name: str, serve: Callable[[Sender, Envelope, bytes], None]) -> None:
        super().__init__(name, lambda envelope, content: None)  # what the broker publishes itself is no request
        self.internal = False
        self._serve = serve

    def for_sender(self, sender: Sender) -> ServiceExchange:
        """The service, for requests of one sender."""
        return ServiceExchange(self.name, partial(self._serve, sender))
