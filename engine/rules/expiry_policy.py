"""The expiry policy of an address, which may change the time to live of its messages.

The time to live of a message in a queue: `time_to_live_ms` in queues/classic.py; its expiry: `Queue.expire`.
Source: address-settings page 3.2; the address that applies: address-settings page 1.3.
"""

from ...settings import ResolvedSettings
from ...settings.frozen import frozen
from .limits import from_zero


@frozen
class ExpiryPolicy:
    """Changes the time to live of messages. None: not set.

    `no_expiry` has precedence over `delay_ms`, and `delay_ms` over `min_ms` and `max_ms`. `delay_ms` is for messages
    without an expiration; the others then keep theirs. Without `delay_ms`, messages without an expiration get `max_ms`,
    or `min_ms` if there is no `max_ms`.
    """

    no_expiry: bool = False
    delay_ms: int | None = None
    min_ms: int | None = None
    max_ms: int | None = None

    def applied_to(self, expiration_ms: int | None) -> int | None:
        """The time to live in ms of a message published with `expiration_ms`; None: no expiry."""
        if self.no_expiry:
            return None
        if self.delay_ms is not None:
            return self.delay_ms if expiration_ms is None else expiration_ms
        if expiration_ms is None:
            return self.min_ms if self.max_ms is None else self.max_ms
        if self.min_ms is not None and expiration_ms < self.min_ms:
            return self.min_ms
        if self.max_ms is not None and expiration_ms > self.max_ms:
            return self.max_ms
        return expiration_ms


NO_EXPIRY_POLICY = ExpiryPolicy()


def has_expiry(settings: ResolvedSettings) -> bool:
    """Whether the address has an expiry policy."""
    return (
        settings.no_expiry
        or settings.expiry_delay_ms >= 0
        or settings.min_expiry_delay_ms >= 0
        or settings.max_expiry_delay_ms >= 0
    )


def expiry_policy(settings: ResolvedSettings) -> ExpiryPolicy:
    """The expiry policy of an address; the object `NO_EXPIRY_POLICY` if it has none."""
    if not has_expiry(settings):
        return NO_EXPIRY_POLICY
    return ExpiryPolicy(
        settings.no_expiry,
        from_zero(settings.expiry_delay_ms),
        from_zero(settings.min_expiry_delay_ms),
        from_zero(settings.max_expiry_delay_ms),
    )
