"""The rules of an address that apply to messages before routing, by its settings and diverts.

Source: address-settings page 1.2, 3.2, 3.6, 3.7.
"""

from collections.abc import Iterable

from ...settings import Divert, ResolvedSettings
from ...settings.frozen import frozen
from ..rules.expiry_policy import NO_EXPIRY_POLICY, ExpiryPolicy, expiry_policy, has_expiry

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
    """The rules of an address if any applies to unmarked messages; None, as at most addresses: none does."""
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
