"""A dry run of a publish: the rules of its address, its route, and the outcome at each queue.

It publishes, declares and counts nothing. Source: management page 16; address-settings page 1.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ...settings import Divert
from ..clock import MS
from ..context import HostContext
from ..exchanges.exchange import Exchange
from ..exchanges.routed import Routed
from ..messages.message import Envelope
from ..queues.bounds import outcome_of
from ..queues.classic import time_to_live_ms
from ..queues.queue import Queue
from ..rules.expiry_policy import NO_EXPIRY_POLICY
from ..users.access import User
from ..users.permissions import CONFIGURE, QUEUE
from .arrival import due_ns_of, duplicate_id_of
from .dry_route import DryRoute, dry_route
from .filtering import matching_diverts
from .marked import copies_of
from .route import Route
from .service import ServiceExchange


class DryRun:
    """A dry run at the present site (`Sites.now`). `arrival`: the effect of the address. `route`: complete after all
    `steps`.

    `creates`: a queue named by the routing key would be created first. `is_service`: the broker serves the exchange.
    `rescued_by`: the dead-letter address that gets the message if it is unroutable; empty: none.
    """

    def __init__(self, host: HostContext, envelope: Envelope, content: bytes, user: User) -> None:
        """Raises: PermissionRefused, ExchangeNotFound, InternalExchangeRefused, TopicRefused, InvalidCopies."""
        self._router = router = host.router
        self._site = host.broker.sites.now
        key = envelope.routing_key
        self._exchange = exchange = router.exchange_for(envelope.exchange, key, user)
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

    def outcome_at(self, queue: Queue) -> tuple[str, int | None]:
        """The outcome at a queue (`bounds.outcome_of`), and the time to live there in ms (None: unlimited)."""
        envelope = self.arrival.envelope
        return outcome_of(queue, envelope, self._content), time_to_live_ms(queue.rules, envelope)


@dataclass(slots=True, frozen=True)
class DryArrival:
    """The effect of an address. `envelope`: that of the message in its queues. `delay_ms`: None: no delay.

    `is_duplicate`: the message would be dropped. `diverts`: those that would forward it.
    """

    address: str
    envelope: Envelope
    delay_ms: int | None
    is_duplicate: bool
    diverts: tuple[Divert, ...]

    @property
    def is_taken(self) -> bool:
        """Whether an exclusive divert takes the message, so that it reaches no queue of its exchange."""
        return any(divert.is_exclusive for divert in self.diverts)


def dry_arrival(host: HostContext, exchange: Exchange, envelope: Envelope, content: bytes) -> DryArrival:
    """The effect of an address on a message before routing, without applying it."""
    rules = host.router.arrival_rules(exchange.name, envelope.routing_key)
    headers = envelope.headers(content) if envelope.summary.is_marked else {}
    known = host.id_caches.get(rules.address)
    id_ = duplicate_id_of(host, rules, headers)
    is_duplicate = id_ is not None and known is not None and id_ in known
    due_ns = due_ns_of(host, Route(exchange, envelope.routing_key, None), headers, {}) if headers else None
    delay_ms = None if due_ns is None else (due_ns - host.broker.clock.monotonic_ns()) // MS
    if rules.expiry is not NO_EXPIRY_POLICY and not envelope.expiry_is_settled:
        envelope = envelope.with_expiration(rules.expiry.applied_to(envelope.expiration_ms))
    diverts = tuple(matching_diverts(rules.diverts, envelope, content))
    return DryArrival(rules.address, envelope, delay_ms, is_duplicate, diverts)
