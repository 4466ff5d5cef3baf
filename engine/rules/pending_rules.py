"""The limit of messages that wait for a slow subscriber, and the strategy that drops messages beyond it.

Source: queues page E.1, "pendingMessageLimitStrategy", "eviction"; E.6.
"""

from ...settings import ResolvedSettings
from ...settings.frozen import frozen
from .limits import from_zero

OLDEST, LOWEST_PRIORITY, UNIQUE_PROPERTY = "oldest", "lowest-priority", "unique-property"


@frozen
class PendingRules:
    """The limit of the messages in one subscriber's queue.

    `limit`: maximum of ready messages; None: `prefetch_rate` times the prefetch limits of the consumers.

    `eviction`: the strategy that chooses messages to drop. `key`: the header that `UNIQUE_PROPERTY` compares.
    """

    limit: int | None
    prefetch_rate: float
    eviction: str
    key: str

    def limit_for(self, prefetches: list[int]) -> int | None:
        """The limit for consumers with these prefetch limits (0: unlimited); None: no limit.

        There is no limit by `prefetch_rate` if a prefetch is unlimited or there is no consumer.
        """
        if self.limit is not None:
            return self.limit
        return int(sum(prefetches) * self.prefetch_rate) if prefetches and all(prefetches) else None


def pending_rules(settings: ResolvedSettings) -> PendingRules | None:
    """The pending rules of a subscriber's queue; None: no limit."""
    limit, rate = settings.pending_message_limit, settings.pending_message_limit_prefetch_rate
    if limit < 0 and rate < 0:
        return None
    key = settings.message_eviction_property
    eviction = settings.message_eviction if key or settings.message_eviction != UNIQUE_PROPERTY else OLDEST
    return PendingRules(from_zero(limit), rate, eviction, key)
