"""The size limits of an address, and its behavior when it is full.

Source: address-settings page 3.3; ruling 16.
"""

from ...settings import ResolvedSettings
from ...settings.frozen import frozen
from .limits import from_zero

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
    def drops(self) -> bool:
        """Whether a full address drops or refuses messages."""
        return self.policy in (DROP, FAIL)

    @property
    def pages(self) -> bool:
        """Whether messages beyond the limits of the address are paged out."""
        return self.policy == PAGE and (self.messages_max is not None or self.octets_max is not None)

    @property
    def may_drop(self) -> bool:
        """Whether messages may be dropped or refused because of the limits of the address."""
        if self.drops:
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
