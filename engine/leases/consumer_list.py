"""The consumer list of a leased queue: it chooses the consumer of the next message by the queue's fairness model.

Source: queues page A.4.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heapreplace
from math import lcm
from typing import TYPE_CHECKING

from ...settings.leases.leased_settings import FAST, PROPORTIONAL
from ..delivery.consumer import Consumer, Holder
from ..delivery.consumer_list import CHECKS_PER_EFFORT, ConsumerList
from ..rules.queue_rules import QueueRules
from .rules import rules_in

if TYPE_CHECKING:
    from ..context import BrokerContext

#: Maximum messages for one consumer in one deal, so that shares stay even while sockets fill.
DEAL_MAX = 64


class LeaseConsumers(ConsumerList):
    """The consumers of one leased queue, in the order in which they subscribed.

    `unleased`: consumers that get no leases: they browse, replay, get only barriers, or their site is absent.
    `overdue`: consumers with a lease that ended by time, until they acknowledge one; of equal shares theirs come last,
    so that others get their messages. `renewing`: consumers whose leases are renewed while their connections are alive.
    """

    def __init__(self, rules: QueueRules, broker: "BrokerContext") -> None:
        super().__init__(rules, broker)
        self._fairness = rules_in(rules).settings.fairness
        self._asked_for_none: set[Consumer] = set()  # by their arguments
        self.unleased: set[Consumer] = set()
        self.renewing: set[Holder] = set()
        self.overdue: set[Holder] = set()
        self._last_at: dict[str, Consumer] = {}  # the consumer of each site that was served last

    def rules_changed(self, rules: QueueRules) -> None:
        super().rules_changed(rules)
        self._fairness = rules_in(rules).settings.fairness

    def join(self, consumer: Consumer) -> None:
        """Add a consumer at the end. The next to serve stays the same."""
        self.consumers.append(consumer)

    def joined(self, consumer: Consumer, *, is_unleased: bool, is_present: bool, renews: bool) -> None:
        """Note the arguments of a consumer that joined, or replaced them.

        `is_unleased`: they ask for no leases. `is_present`: its site is present. `renews`: its leases are renewed.
        """
        self._has_priorities = any(one.priority != consumer.priority for one in self.consumers)
        for members, is_member in (
            (self._asked_for_none, is_unleased),
            (self.unleased, is_unleased or not is_present),
            (self.renewing, renews),
        ):
            if is_member:
                members.add(consumer)
            else:
                members.discard(consumer)

    def sites_changed(self, is_present: Callable[[Consumer], bool]) -> None:
        """Give no leases to consumers of sites that are absent now."""
        self.unleased = self._asked_for_none | {one for one in self.consumers if not is_present(one)}

    def leave(self, leaving: Sequence[Consumer]) -> bool:
        for members in (self._asked_for_none, self.unleased, self.overdue, self.renewing):
            members.difference_update(leaving)
        gone = set(leaving)
        for site, last in list(self._last_at.items()):
            if last in gone:  # then the consumer before it counts as the last one served
                before = self.consumers[: self.consumers.index(last)]
                stays = [one for one in before if one not in gone]
                del self._last_at[site]
                if stays:
                    self._last_at[site] = stays[-1]
        following = self._next - sum(one in gone for one in self.consumers[: self._next])
        is_another = super().leave(leaving)
        self._next = following
        return is_another

    def has_credit(self) -> bool:
        return any(one.credit() > 0 for one in self.consumers if one not in self.unleased)

    def free(self) -> list[Consumer]:
        """The consumers that may have a lease now."""
        return [one for one in self.consumers if one not in self.unleased and one.credit() > 0]

    def choose(self, free: Sequence[Consumer]) -> Consumer:
        """Choose one of these consumers as `deal` does. They have room, and are in the order of `consumers`."""
        places = {one: at for at, one in enumerate(self.consumers)}
        return self._dealt([(places[one], one, 1) for one in free], 1)[0]

    def deal(self, count: int) -> list[Consumer]:
        """Choose a consumer for each of the next messages, up to `count`, in order. O(count x consumers).

        Fast: the first subscriber, as long as it has room. Round-robin: one after the other. Proportional: the smallest
        share of its backlog in use; of equal shares the first subscriber that is not overdue. If consumers have
        priorities, the model chooses among those of the highest priority with room.
        """
        consumers = self.consumers
        self._broker.turn.effort += len(consumers) // CHECKS_PER_EFFORT
        if len(consumers) == 1:
            only = consumers[0]
            credit = only.credit() if only not in self.unleased else 0
            if credit > 0:
                self._served(0)
            return [only] * min(count, max(credit, 0))
        free = [(at, one, credit) for at, one in enumerate(consumers)
                if one not in self.unleased and (credit := one.credit()) > 0]  # fmt: skip
        return self._dealt(free, count)

    def deal_at(self, site: str, consumers: Sequence[Consumer], count: int) -> list[Consumer]:
        """Like `deal`, among these consumers of a site. Each site has its own next consumer to serve."""
        places = {one: at for at, one in enumerate(self.consumers)}
        last, before = self._last_at.get(site), self._next
        self._next = 0 if last is None else places[last] + 1
        free = [(places[one], one, credit) for one in consumers if (credit := one.credit()) > 0]
        dealt = self._dealt(free, count)
        self._next = before
        if dealt:
            self._last_at[site] = dealt[-1]
        return dealt

    def _dealt(self, free: list[tuple[int, Consumer, int]], count: int) -> list[Consumer]:
        """Deal among consumers with room, each with its place and its credit; with priorities, among the highest."""
        if not free:
            return []
        if self._has_priorities:
            highest = max(one.priority for _, one, _ in free)
            free = [each for each in free if each[1].priority == highest]
        if any(one.session.prefetch_total for _, one, _ in free):
            count = 1  # a limit shared by several consumers is checked again after each delivery
        if self._fairness == FAST:
            dealt: list[Consumer] = []
            for _, one, credit in free:
                dealt += [one] * min(credit, count - len(dealt))
            return dealt
        if len(free) == 1:
            at, only, credit = free[0]
            self._served(at)
            return [only] * min(credit, count)
        if self._fairness == PROPORTIONAL:
            if self.overdue:
                free.sort(key=lambda each: each[1] in self.overdue)
            return _by_share([(one, min(credit, DEAL_MAX)) for _, one, credit in free], count)
        return self._in_turns(free, count)

    def _served(self, at: int) -> None:
        self._next = at + 1  # after the last consumer: one that joins now is next, else the first

    def _in_turns(self, free: list[tuple[int, Consumer, int]], count: int) -> list[Consumer]:
        start = next((index for index, (at, _, _) in enumerate(free) if at >= self._next), 0)
        waiting = [(at, one, min(credit, DEAL_MAX)) for at, one, credit in (*free[start:], *free[:start])]
        dealt: list[Consumer] = []
        while waiting and len(dealt) < count:
            following: list[tuple[int, Consumer, int]] = []
            for at, one, credit in waiting:
                if len(dealt) == count:
                    break
                dealt.append(one)
                self._served(at)
                if credit > 1:
                    following.append((at, one, credit - 1))
            waiting = following
        return dealt


def _by_share(free: list[tuple[Consumer, int]], count: int) -> list[Consumer]:
    """Give each message to the consumer with the smallest share, an exact fraction. O(count x log consumers).

    Without a limit (0) a share is 0; among shares of 0 the use counts.
    """
    used = [consumer.unacked for consumer, _ in free]
    limits = [0 if consumer.no_ack else consumer.prefetch for consumer, _ in free]
    credits = [credit for _, credit in free]
    common = lcm(*filter(None, limits))
    heap = [_share(used[at], limits[at], common, at) for at in range(len(free))]
    heapify(heap)
    dealt: list[Consumer] = []
    while heap and len(dealt) < count:
        at = heap[0][2]
        consumer = free[at][0]
        dealt.append(consumer)
        credits[at] -= 1
        used[at] += not consumer.no_ack
        if credits[at]:
            heapreplace(heap, _share(used[at], limits[at], common, at))
            continue
        heappop(heap)
        if limits[at] > used[at]:
            break  # its backlog has room: the next deal compares its share again before others get more
    return dealt


def _share(used: int, limit: int, common: int, at: int) -> tuple[int, int, int]:
    """The order of comparison: the share as a multiple of 1 / `common`, the use, the order of subscription."""
    return (used * (common // limit), 0, at) if limit else (0, used, at)
