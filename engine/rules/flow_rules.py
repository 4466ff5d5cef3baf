"""The flow control of an address: its memory limit, and its behavior when it is full.

Source: queues page E.1, E.2; address-settings page 3.3.
"""

from ...settings import ResolvedSettings
from ...settings.frozen import frozen

#: Where a queue's messages are beyond a share of the memory limit: in the journal, in memory, in the temp store.
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

    def pages(self, *, is_own_limit: bool) -> bool:
        """Whether messages are paged out beyond a share of a memory limit, that of the address or of the broker.

        By default the broker's limit blocks publishers instead.
        """
        return self.cursor != VM and (is_own_limit or self.cursor == FILE or not self.blocks)


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
