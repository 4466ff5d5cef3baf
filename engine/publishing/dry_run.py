"""The outcome of a publish without doing it: the rules of its address, its route, and the queues' reaction.

A dry run publishes, declares and counts nothing. Source: management page 16.
"""

from collections.abc import Iterator

from ..context import HostContext
from ..exchanges.routed import Routed
from ..messages.carbon_copies import copies_of
from ..messages.message import Envelope
from ..queues.bounds import outcome_of
from ..queues.classic import time_to_live_ms
from ..queues.queue import Queue
from ..users.access import User
from ..users.permissions import CONFIGURE, QUEUE
from .dry_arrival import dry_arrival
from .dry_route import DryRoute, dry_route, exchange_for
from .service import ServiceExchange


class DryRun:
    """For the site for which it is made (`Sites.now`). `arrival`: the effect of its address. `route`: its queues,
    complete after all `steps`.

    `creates`: the queue named by the routing key would be created first. `is_service`: the broker serves the exchange.
    """

    def __init__(self, host: HostContext, envelope: Envelope, content: bytes, user: User) -> None:
        """Raises: PermissionRefused, ExchangeNotFound, InternalExchangeRefused, TopicRefused, InvalidCopies."""
        self._router = router = host.router
        self._site = host.broker.sites.now
        key = envelope.routing_key
        self._exchange = exchange = exchange_for(router, envelope.exchange, key, user)
        envelope.copies = copies_of(envelope.headers(content)) if envelope.summary.is_marked else ()
        self._content = content
        self.arrival = dry_arrival(host, exchange, envelope, content)
        self.keys = envelope.keys
        self.route = DryRoute()
        self.is_service = isinstance(exchange, ServiceExchange)
        self.creates = (
            not exchange.name
            and host.queue_behind(key) is None
            and router.auto_creates(key)
            and user.may(CONFIGURE, QUEUE, key, host.name)
        )
        settings = host.broker.settings.resolve(self.arrival.address, host.name)
        self.rescued_by = settings.dead_letter_address if settings.send_to_dla_on_no_route else ""

    def steps(self) -> Iterator[None]:
        """Find the route, in short steps."""
        message = Routed(self.keys, self.arrival.envelope, self._content)
        steps, sites = dry_route(self._router, self._exchange, message, self.route), self._router.context.broker.sites
        is_done = False
        while not is_done:
            with sites.at(self._site):
                is_done = next(steps, self) is self
            yield

    def prospect(self, queue: Queue) -> tuple[str, int | None]:
        """The result at a queue (`outcome_of`), and the message's time to live there in ms; None: unlimited."""
        envelope = self.arrival.envelope
        return outcome_of(queue, envelope, self._content), time_to_live_ms(queue.rules, envelope)
