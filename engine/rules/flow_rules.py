"""The flow control of an address: its memory limit, and its behavior when it is full. Resolved.

Source: queues page E.1, E.2; address-settings page 3.3.
"""

from ...settings import ResolvedSettings
from ...settings.frozen import frozen

#: The storage of a queue's messages: journal beyond a share of the memory limit, memory, temp store.
STORE, VM, FILE = "store", "vm", "file"


@frozen
class FlowRules:
    """`memory_limit`: octets; 0: none. `holds`: publishers are blocked (producer flow control).

    `fails`: they are refused instead; `fails_after_ms`: refused after this wait; 0: never. `minimum_size`: smaller
    messages count as this many octets. `warning_interval_ms`: between two warnings of blocked publishers; 0: none.
    """

    memory_limit: int = 0
    holds: bool = True
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

    def pages(self, *, is_own_limit: bool) -> bool:
        """Whether messages are paged out beyond a share of a memory limit: the address's own, or the broker's.

        The broker's limit blocks publishers instead, unless the address is configured otherwise.
        """
        return self.cursor != VM and (is_own_limit or self.cursor == FILE or not self.holds)


def flow_rules(settings: ResolvedSettings) -> FlowRules | None:
    """The flow rules of an address; None: none are configured."""
    if not settings.is_flow_controlled:
        return None
    return FlowRules(
        memory_limit=max(0, settings.memory_limit),
        holds=settings.producer_flow_control,
        cursor=settings.cursor,
        cursor_high_water_percent=settings.cursor_memory_high_water_mark,
        minimum_size=settings.minimum_message_size,
        fails=settings.send_fail_if_no_space,
        fails_after_ms=settings.send_fail_if_no_space_after_ms,
        warning_interval_ms=settings.blocked_producer_warning_interval_ms,
    )
