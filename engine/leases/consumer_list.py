"""The consumer list of a leased queue: which of its consumers gets the next message, by its fairness model.

Source: queues page A.4.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heapreplace
from math import lcm

from ...settings.leases import FAST, PROPORTIONAL
from ..delivery.consumer import Consumer, Holder
from ..delivery.consumer_list import LOOKS, ConsumerList
from ..effort import Effort
from ..rules.queue_rules import QueueRules

#: Of one deal no consumer gets more, so that shares stay even while sockets fill.
DEAL_MAX = 64


class LeaseConsumers(ConsumerList):
    """`consumers`: in the order in which they subscribed. `aside`: those that get no leases (they browse, or wait for
    barriers alone). `late`: their last lease ended by time; of equal shares theirs is taken to be the larger one, so
    that others get what they left lying. `renewing`: those whose leases go on while their connections are alive.
    """

    __slots__ = ("_fairness", "aside", "late", "renewing")

    def __init__(self, rules: QueueRules, effort: Effort, waiting_count: Callable[[], int]) -> None:
        super().__init__(rules, effort, waiting_count)
        assert rules.leased is not None
        self._fairness = rules.leased.settings.fairness
        self.aside: set[Consumer] = set()
        self.renewing: set[Holder] = set()
        self.late: set[Holder] = set()

    def rules_changed(self, rules: QueueRules) -> None:
        """See `ConsumerList`: others may be next."""
        super().rules_changed(rules)
        assert rules.leased is not None
        self._fairness = rules.leased.settings.fairness

    def join(self, consumer: Consumer) -> None:
        """See `ConsumerList`: at the end, whose turn it is stays."""
        self.consumers.append(consumer)

    def joined(self, consumer: Consumer, *, is_aside: bool, renews: bool) -> None:
        """What a consumer asked for as it joined, or asks for now. `is_aside`: it gets no leases."""
        self._has_priorities = any(one.priority != consumer.priority for one in self.consumers)
        for members, is_member in ((self.aside, is_aside), (self.renewing, renews)):
            if is_member:
                members.add(consumer)
            else:
                members.discard(consumer)

    def leave(self, leaving: Sequence[Consumer]) -> bool:
        """See `ConsumerList`. Whoever joins next still comes before the first, if the turn is behind the last one."""
        for members in (self.aside, self.late, self.renewing):
            members.difference_update(leaving)
        gone = set(leaving)
        following = self._next - sum(one in gone for one in self.consumers[: self._next])
        is_another = super().leave(leaving)
        self._next = following
        return is_another

    def has_waiting(self) -> bool:
        return any(one.credit() > 0 for one in self.consumers if one not in self.aside)

    def appetite(self) -> tuple[int, int]:
        wanted = octets = 0
        for consumer in self.consumers:
            if consumer not in self.aside and (credit := consumer.credit()) > 0:
                wanted += credit
                octets += consumer.client.room()
        return wanted, octets

    def free(self) -> list[Consumer]:
        """Those that may have a message now."""
        return [one for one in self.consumers if one not in self.aside and one.credit() > 0]

    def choose(self, free: Sequence[Consumer]) -> Consumer:
        """Which of these, in the order of `consumers`, gets a message that all of them may have; see `deal`."""
        if self._has_priorities:
            highest = max(one.priority for one in free)
            free = [one for one in free if one.priority == highest]
        if len(free) > 1 and self._fairness == PROPORTIONAL:
            ranked = sorted(free, key=self.late.__contains__) if self.late else free
            return _by_share([(one, 1) for one in ranked], 1)[0]
        if self._fairness not in (FAST, PROPORTIONAL):
            places = {one: at for at, one in enumerate(self.consumers)}
            chosen = next((one for one in free if places[one] >= self._next), free[0])
            self._served(places[chosen])
            return chosen
        return free[0]

    def deal(self, count: int) -> list[Consumer]:
        """Who gets the next messages, up to `count`: one consumer for each, in their order. O(count x consumers).

        Fast: the first that subscribed, as long as it can have more. Round-robin: one after the other. Proportional:
        the smallest share of its backlog in use, of several the first that subscribed. Where consumers have priorities
        the model chooses among those of the highest that have room.
        """
        consumers = self.consumers
        self._effort.spent += len(consumers) // LOOKS
        if len(consumers) == 1:
            only = consumers[0]
            credit = only.credit() if only not in self.aside else 0
            if credit > 0:
                self._served(0)
            return [only] * min(count, max(credit, 0))
        free = [(at, one, credit) for at, one in enumerate(consumers)
                if one not in self.aside and (credit := one.credit()) > 0]  # fmt: skip
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
            if self.late:
                free.sort(key=lambda each: each[1] in self.late)
            return _by_share([(one, min(credit, DEAL_MAX)) for _, one, credit in free], count)
        return self._in_turns(free, count)

    def _served(self, at: int) -> None:
        self._next = at + 1  # behind the last one: whoever joins next, or else the first

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
    """Each message to the smallest share; shares are compared as exact fractions. O(count x log consumers).

    Without a limit (0) a share is 0; of such shares the use itself counts.
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
            break  # it may have more, and is to be asked first then: its share is compared again
    return dealt


def _share(used: int, limit: int, common: int, at: int) -> tuple[int, int, int]:
    """What is compared: the share as a multiple of 1 / `common`, the use, and who came first."""
    return (used * (common // limit), 0, at) if limit else (0, used, at)
