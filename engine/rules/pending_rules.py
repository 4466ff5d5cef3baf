"""How many messages wait for a slow subscriber, and which of them go when there are more, resolved.

Source: queues page E.1, "pendingMessageLimitStrategy", "eviction"; E.6.
"""

from dataclasses import dataclass

from ...settings import ResolvedSettings

OLDEST, LOWEST_PRIORITY, UNIQUE_PROPERTY = "oldest", "lowest-priority", "unique-property"


@dataclass(slots=True, frozen=True)
class PendingRules:
    """`limit`: messages beyond what is out; None: `prefetch_rate` times what may be out. `eviction`: which of them go;
    `key`: the header that `UNIQUE_PROPERTY` compares.
    """

    limit: int | None
    prefetch_rate: float
    eviction: str
    key: str

    def limit_for(self, prefetches: list[int]) -> int | None:
        """How many may wait for consumers with such prefetch limits (0: unlimited). None: any number.

        A multiple of an unlimited prefetch is no limit; without a consumer there is nothing to multiply.
        """
        if self.limit is not None:
            return self.limit
        return int(sum(prefetches) * self.prefetch_rate) if prefetches and all(prefetches) else None


def pending_rules(settings: ResolvedSettings) -> PendingRules | None:
    """Those of a subscriber's queue; None: all of its messages are kept."""
    limit, rate = settings.pending_message_limit, settings.pending_message_limit_prefetch_rate
    if limit < 0 and rate < 0:
        return None
    key = settings.message_eviction_property
    eviction = settings.message_eviction if key or settings.message_eviction != UNIQUE_PROPERTY else OLDEST
    return PendingRules(limit if limit >= 0 else None, rate, eviction, key)
