"""Limits of an address and its behavior when it is full, the limit of a slow subscriber, and flow control.

Source: address-settings page 3.3; ruling 16; queues page E.1 ("pendingMessageLimitStrategy", "eviction"), E.2, E.6.
"""

from ...settings import ResolvedSettings
from ...settings.frozen import frozen


def from_zero(limit: int) -> int | None:
    """The limit; None: it is below 0, which means no limit."""
    return limit if limit >= 0 else None


def from_one(limit: int) -> int | None:
    """The limit; None: it is below 1, which means no limit."""
    return limit if limit > 0 else None


#: Policies of a full address for new messages. PAGE: accept them, and page out (ruling 16).
PAGE, DROP, FAIL, BLOCK = "PAGE", "DROP", "FAIL", "BLOCK"


@frozen
class SizeRules:
    """The size limits of one address.

    `messages_max`, `octets_max`: limits of all its messages; when one is reached, `policy` applies.

    `refused_above`: octets above which an address with policy BLOCK refuses messages. `paged_messages_max`,
    `paged_octets_max`: limits of paged-out messages with policy PAGE; when one is reached, `page_policy` applies.
    None: no such limit. `disk_policy`: the policy for messages that must be stored while the disk is full; None: it
    depends on the publisher (docs/operating.md).
    """

    policy: str = PAGE
    messages_max: int | None = None
    octets_max: int | None = None
    refused_above: int | None = None
    paged_messages_max: int | None = None
    paged_octets_max: int | None = None
    page_policy: str | None = None
    disk_policy: str | None = None

    @property
    def drops_or_refuses(self) -> bool:
        """Whether a full address drops new messages (DROP) or refuses them (FAIL)."""
        return self.policy in (DROP, FAIL)

    @property
    def pages(self) -> bool:
        """Whether messages beyond the limits of the address are paged out."""
        return self.policy == PAGE and (self.messages_max is not None or self.octets_max is not None)

    @property
    def may_drop_or_refuse(self) -> bool:
        """Whether the address has a limit at which it drops or refuses new messages: of all, or of paged-out ones."""
        if self.drops_or_refuses:
            return self.messages_max is not None or self.octets_max is not None
        return self.page_policy is not None

    @property
    def counts_octets(self) -> bool:
        """Whether a limit needs the octets of all messages, in memory and paged out."""
        return self.counts_exactly or self.paged_octets_max is not None

    @property
    def counts_exactly(self) -> bool:
        """Whether the octets must be exact. Then the messages stay in memory."""
        return (self.policy != PAGE and self.octets_max is not None) or self.refused_above is not None

    @property
    def blocks(self) -> bool:
        """Whether the limits of the address block publishers, or refuse with `refused_above`."""
        return self.policy == BLOCK and (
            self.messages_max is not None or self.octets_max is not None or self.refused_above is not None
        )


#: The rules of an address without limits.
NO_SIZE_RULES = SizeRules()
_BY_POLICY = {policy: SizeRules(policy) for policy in (PAGE, DROP, FAIL, BLOCK)}


def size_rules(settings: ResolvedSettings) -> SizeRules:
    """The size rules of an address, without limits that its policy does not use."""
    policy = settings.address_full_policy
    messages_max, octets_max = from_zero(settings.max_size_messages), from_zero(settings.max_size_bytes)
    refused_above = from_zero(settings.max_size_bytes_reject_threshold) if policy == BLOCK else None
    paged_messages_max = paged_octets_max = page_policy = None
    if policy == PAGE and settings.page_full_policy:
        paged_messages_max = from_zero(settings.page_limit_messages)
        paged_octets_max = from_zero(settings.page_limit_bytes)
        if paged_messages_max is not None or paged_octets_max is not None:
            page_policy = settings.page_full_policy
    rules = SizeRules(
        policy,
        messages_max,
        octets_max,
        refused_above,
        paged_messages_max,
        paged_octets_max,
        page_policy,
        settings.disk_full_policy or None,
    )
    plain = _BY_POLICY[policy]
    return plain if rules == plain else rules


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


#: Where messages beyond a share of the memory limit are. VM: in memory. STORE, FILE: in the journal or, if it does not
#: have them, in the temp store; the two differ at the limit of the broker (`FlowRules.pages_at_broker_limit`).
STORE, VM, FILE = "store", "vm", "file"


@frozen
class FlowRules:
    """The flow control of one address.

    `memory_limit`: octets; 0: none. `blocks`: a full address blocks publishers (producer flow control).

    `fails`: it refuses publishes at once; `fails_after_ms`: after this wait; 0: never. `minimum_size`: a smaller
    message counts as this many octets. `warning_interval_ms`: time between warnings of blocked publishers; 0: no
    warnings.
    """

    memory_limit: int = 0
    blocks: bool = True
    cursor: str = STORE
    cursor_high_water_percent: int = 70
    minimum_size: int = 1024
    fails: bool = False
    fails_after_ms: int = 0
    warning_interval_ms: int = 30_000

    @property
    def may_spool(self) -> bool:
        """Whether transient messages may go to the temp store."""
        return self.cursor != VM

    @property
    def pages_at_own_limit(self) -> bool:
        """Whether messages are paged out beyond a share of the memory limit of the address."""
        return self.cursor != VM

    @property
    def pages_at_broker_limit(self) -> bool:
        """Whether messages are paged out beyond a share of the broker's memory limit. By default publishers wait."""
        return self.cursor == FILE or (self.cursor != VM and not self.blocks)


def flow_rules(settings: ResolvedSettings) -> FlowRules | None:
    """The flow rules of an address; None: none are configured."""
    if not settings.is_flow_controlled:
        return None
    return FlowRules(
        memory_limit=max(0, settings.memory_limit),
        blocks=settings.producer_flow_control,
        cursor=settings.cursor,
        cursor_high_water_percent=settings.cursor_memory_high_water_mark,
        minimum_size=settings.minimum_message_size,
        fails=settings.send_fail_if_no_space,
        fails_after_ms=settings.send_fail_if_no_space_after_ms,
        warning_interval_ms=settings.blocked_producer_warning_interval_ms,
    )
