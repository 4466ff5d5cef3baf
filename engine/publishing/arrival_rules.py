"""What applies to messages before they are stored: rules of their address (settings, diverts), filters of queues.

Source: address-settings page 1.1, 1.2, 3.2, 3.6, 3.7.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...settings import Divert, ResolvedSettings
from ...settings.frozen import frozen
from ..exchanges.routed import Routed
from ..messages.message import Envelope, Message
from ..queues.queue import Queue
from ..rules.expiry_policy import NO_EXPIRY_POLICY, ExpiryPolicy, expiry_policy, has_expiry

if TYPE_CHECKING:
    from ..delivery.filters import MessageSubject

#: Maximum number of diverts that forward a message, because diverts may form a cycle.
HOPS_MAX = 16


@frozen
class ArrivalRules:
    """The rules of one address. `site`: the site of the publishers; None: that of the turn (`Sites.now`)."""

    address: str
    expiry: ExpiryPolicy = NO_EXPIRY_POLICY
    has_ingress_timestamp: bool = False
    id_cache_size: int = 0
    retroactive_count: int = 0
    diverts: tuple[Divert, ...] = ()
    site: str | None = None

    @property
    def needs_each_message(self) -> bool:
        """Whether the messages of a run are handled one by one."""
        return self.has_ingress_timestamp or self.retroactive_count > 0 or bool(self.diverts)


def rules_for_unmarked(address: str, settings: ResolvedSettings, diverts: tuple[Divert, ...]) -> ArrivalRules | None:
    """The rules of an address, if one applies also to messages without marks (`PropertySummary.is_marked`).

    None, as for most addresses: none does.
    """
    if settings.enable_ingress_timestamp or settings.retroactive_message_count > 0 or diverts or has_expiry(settings):
        return arrival_rules(address, settings, diverts)
    return None


def arrival_rules(address: str, settings: ResolvedSettings, diverts: tuple[Divert, ...]) -> ArrivalRules:
    return ArrivalRules(
        address,
        expiry_policy(settings),
        settings.enable_ingress_timestamp,
        settings.id_cache_size,
        settings.retroactive_message_count,
        diverts,
    )


class Diverts:
    """The diverts of one virtual host, by address."""

    def __init__(self, diverts: Iterable[Divert] = ()) -> None:
        self._by_address: dict[str, list[Divert]] = {}
        for divert in diverts:
            self._by_address.setdefault(divert.address, []).append(divert)

    def of(self, address: str) -> tuple[Divert, ...]:
        """The diverts of messages to `address`; only the exclusive ones if one of these has no filter."""
        found = self._by_address.get(address, [])
        takes_all = any(one.is_exclusive and not one.filter for one in found)
        return tuple([one for one in found if one.is_exclusive] if takes_all else found)


class FilteredOut:
    """The queues whose filters do not take a message. The message is read once for all filters.

    The effort of the filters is added to `routed.cost`.
    """

    __slots__ = ("_message", "_routed", "_subject")

    def __init__(self, message: Message, routed: Routed) -> None:
        self._message = message
        self._routed = routed
        self._subject: MessageSubject | None = None

    def __contains__(self, queue: object) -> bool:
        if not isinstance(queue, Queue) or queue.rules.filter is None:
            return False
        if self._subject is None:
            from ..delivery.filters import MessageSubject  # loads the filter language, which few brokers need

            self._subject = MessageSubject(self._message)
        self._routed.cost += 1
        return not queue.rules.filter.matches(self._subject)


def matching_diverts(diverts: tuple[Divert, ...], envelope: Envelope, content: bytes) -> Sequence[Divert]:
    """The diverts that take a message; only the exclusive ones, if any is exclusive."""
    if any(one.filter for one in diverts):
        from ..delivery.filters import MessageSubject  # loads the filter language, which few brokers need
        from ..rules.consumer_filter import selector

        subject = MessageSubject(Message(0, content, envelope))
        diverts = tuple(one for one in diverts if not one.filter or selector(one.filter).matches(subject))
    return [one for one in diverts if one.is_exclusive] or diverts
