"""What an address may hold, and what it does with messages when it is full, resolved.

Source: address-settings page 3.3; ruling 16.
"""

from dataclasses import dataclass

from ...settings import ResolvedSettings

#: What an address that is full does with a new message. PAGE: takes it, and leaves it to the disk (ruling 16).
PAGE, DROP, FAIL, BLOCK = "PAGE", "DROP", "FAIL", "BLOCK"


@dataclass(slots=True, frozen=True)
class SizeRules:
    """`messages_max`, `octets_max`: at which the address is full, and does as `policy` says.

    `refused_above`: octets above which an address that blocks refuses instead. `paged_messages_max`,
    `paged_octets_max`: what an address that pages takes beyond its size; then it does as `page_policy` says.
    None: no such limit. `disk_policy`: what becomes of messages that have to be stored while the disk is full; None: it
    goes by the publisher, see docs/operating.md.
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
    def drops(self) -> bool:
        """Whether an address that is full takes no message, and holds nobody."""
        return self.policy in (DROP, FAIL)

    @property
    def pages(self) -> bool:
        """Whether it leaves messages beyond a size of its own to the disk."""
        return self.policy == PAGE and (self.messages_max is not None or self.octets_max is not None)

    @property
    def may_drop(self) -> bool:
        """Whether it may become so by a limit of its own."""
        if self.drops:
            return self.messages_max is not None or self.octets_max is not None
        return self.page_policy is not None

    @property
    def counts_octets(self) -> bool:
        """Whether the octets of all its messages are asked for, wherever these are."""
        return self.counts_exactly or self.paged_octets_max is not None

    @property
    def counts_exactly(self) -> bool:
        """Whether that has to be right to the octet, so that its messages stay in memory."""
        return (self.policy != PAGE and self.octets_max is not None) or self.refused_above is not None

    @property
    def holds(self) -> bool:
        """Whether a limit of its own holds publishers, or refuses them in their stead."""
        return self.policy == BLOCK and (
            self.messages_max is not None or self.octets_max is not None or self.refused_above is not None
        )


#: No limit.
NO_SIZE_RULES = SizeRules()
_BY_POLICY = {policy: SizeRules(policy) for policy in (PAGE, DROP, FAIL, BLOCK)}


def size_rules(settings: ResolvedSettings) -> SizeRules:
    """Those of an address; limits that its policy does not look at are left out."""
    policy = settings.address_full_policy
    messages_max, octets_max = _or_none(settings.max_size_messages), _or_none(settings.max_size_bytes)
    refused_above = _or_none(settings.max_size_bytes_reject_threshold) if policy == BLOCK else None
    paged_messages_max = paged_octets_max = page_policy = None
    if policy == PAGE and settings.page_full_policy:
        paged_messages_max, paged_octets_max = (
            _or_none(settings.page_limit_messages),
            _or_none(settings.page_limit_bytes),
        )
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


def _or_none(limit: int) -> int | None:
    return limit if limit >= 0 else None
