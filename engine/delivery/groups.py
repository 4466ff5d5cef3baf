"""Message groups: messages with the same group id go to the same consumer, in order.

A group belongs to the consumer that got its first message, until that one leaves, a rebalance, or a message that ends
the group. Messages of a group whose consumer has no credit wait; those behind them go on.
Source: address-settings page 3.4.
"""

from collections.abc import Callable, Iterable

from ..rules.queue_rules import QueueRules
from .consumer import Consumer
from .group_id import GroupedMessage


class Groups:
    """Which consumer has which group. Made when the first message of a group arrives."""

    __slots__ = ("_consumers", "_is_paused")

    def __init__(self) -> None:
        self._consumers: dict[str, Consumer] = {}
        self._is_paused = False

    def consumer_joined(self, rules: QueueRules, count: int) -> None:
        """Groups are dealt again where the rules say so, at once or when nothing is unacknowledged any more."""
        if rules.group_rebalance and count > 1:
            self._consumers.clear()
            self._is_paused = rules.group_rebalance_pause_dispatch

    def consumers_left(self, consumers: Iterable[Consumer]) -> None:
        """Their groups are free."""
        gone = set(consumers)
        self._consumers = {group: one for group, one in self._consumers.items() if one not in gone}

    def may_dispatch(self, unacked: int) -> bool:
        """Whether messages are handed out while so many are unacknowledged: not while a rebalance waits for them."""
        if self._is_paused and unacked:
            return False
        self._is_paused = False
        return True

    def consumer_of(self, group: str) -> Consumer | None:
        """Whose a group is; None: the next one's that may have its next message."""
        return self._consumers.get(group)

    def taker(self, message: GroupedMessage, eligible: Callable[[int], list[Consumer]]) -> tuple[Consumer | None, bool]:
        """Who may have a message now, and whether it is the first of its group for that consumer.

        A group without a consumer goes to the next one that is eligible.
        """
        consumer = self._consumers.get(message.group)
        if consumer is None:
            found = eligible(1)
            if not found:
                return None, False
            if not message.ends:
                self._consumers[message.group] = found[0]
            return found[0], True
        if consumer.credit() <= 0:
            return None, False
        if message.ends:
            del self._consumers[message.group]
        return consumer, False
