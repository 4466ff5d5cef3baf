"""The effect of an address on a message before routing, without applying it.

Source: address-settings page 1.2; management page 16.
"""

from dataclasses import dataclass

from ...settings import Divert
from ..clock import MS
from ..context import HostContext
from ..exchanges.exchange import Exchange
from ..messages.content import DEDUPLICATION_ID
from ..messages.duplicates import duplicate_id
from ..messages.message import Envelope
from ..rules.expiry import NO_EXPIRY_POLICY
from .arrival import due_ns_of
from .filtering import taking
from .route import Route


@dataclass(slots=True, frozen=True)
class DryArrival:
    """`envelope`: as queues would get it. `delay_ms`: its delay before it is ready; None: none.

    `is_duplicate`: it would be dropped as one. `diverts`: those that get a copy; an exclusive one takes the message.
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
    rules = host.router.arrival_rules(exchange.name, envelope.routing_key)
    headers = envelope.headers(content) if envelope.summary.is_marked else {}
    is_duplicate = False
    if rules.id_cache_size and headers:
        asked = DEDUPLICATION_ID in headers and host.broker.settings.sets_id_cache_size(rules.address, host.name)
        known = host.id_caches.get(rules.address)
        is_duplicate = known is not None and duplicate_id(headers, asked_for=asked) in known
    due_ns = due_ns_of(host, Route(exchange, envelope.routing_key, None), headers, {}) if headers else None
    delay_ms = None if due_ns is None else (due_ns - host.broker.clock.monotonic_ns()) // MS
    if rules.expiry is not NO_EXPIRY_POLICY and not envelope.expiry_is_settled:
        envelope = envelope.with_expiration(rules.expiry.applied_to(envelope.expiration_ms))
    diverts = tuple(taking(rules.diverts, envelope, content))
    return DryArrival(rules.address, envelope, delay_ms, is_duplicate, diverts)
