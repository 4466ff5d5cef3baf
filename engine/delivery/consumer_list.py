"""The consumers of a queue, in the order in which they are served: round robin over those that have credit.

Source: behaviour page 2.12, 4; address-settings page 3.4 (exclusive queues, max-consumers,
consumers-before-dispatch).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..errors import ConsumersMaxReached, ExclusiveConsumerRefused
from ..messages.message import Envelope, Envelopes
from ..rules.queue_rules import QueueRules
from .consumer import Consumer
from .groups import Groups

if TYPE_CHECKING:
    from ..context import BrokerContext

#: Maximum messages that each of several consumers gets at once, so that shares stay even while sockets fill.
SHARE_MAX = 64
#: Messages delivered between two checks of the turn's effort.
RUN_MAX = 2000
#: Credit checks per unit of effort; up to `UNCOUNTED_CHECKS` consumers they are not counted.
CHECKS_PER_EFFORT, UNCOUNTED_CHECKS = 8, 64
#: Consumers passed per unit of effort, in the search for one that leaves.
PASSED_PER_EFFORT = 256


class ConsumerList:
    """A circular list of the consumers of one queue, with the next one to serve.

    `consumers`: a ring in the order of service, which begins at `_next`. Other modules must not change it.
    `is_gathering`: dispatch waits for more consumers (consumers-before-dispatch). `groups`: the owners of message
    groups; None before the first message of a group.
    """

    __slots__ = ("_broker", "_has_priorities", "_is_to_yield", "_next", "_rules", "consumers", "groups", "is_gathering")

    def __init__(self, rules: QueueRules, broker: "BrokerContext") -> None:
        self.consumers: list[Consumer] = []
        self.is_gathering = False
        self.groups: Groups | None = None
        self._next = 0  # index of the next consumer to serve
        self._has_priorities = False  # consumers of different priority
        self._is_to_yield = False  # the active consumer has to yield to one of higher priority
        self._rules = rules
        self._broker = broker

    def rules_changed(self, rules: QueueRules) -> None:
        self._rules = rules

    def enable_groups(self) -> None:
        """Begin to assign message groups. Called for each message of a group."""
        if self.groups is None:
            self.groups = Groups()

    # -- joining and leaving ------------------------------------------------------------------------------------------

    def check_join(self, consumer: Consumer, *, queue: str, vhost: str) -> None:
        """Raises: ExclusiveConsumerRefused, ConsumersMaxReached."""
        consumers, rules = self.consumers, self._rules
        if consumers and (consumer.exclusive or consumers[0].exclusive):
            raise ExclusiveConsumerRefused(name=queue, vhost=vhost)
        if consumer.exclusive and rules.single_active_consumer:
            raise ExclusiveConsumerRefused(name=queue, vhost=vhost)
        if rules.max_consumers is not None and len(consumers) >= rules.max_consumers:
            raise ConsumersMaxReached(name=queue, vhost=vhost, limit=rules.max_consumers)

    def join(self, consumer: Consumer) -> None:
        """Add a consumer, which is served after all others."""
        consumers = self.consumers
        if consumers and consumer.priority != consumers[0].priority:
            self._has_priorities = True
        if self._rules.single_active_consumer:
            consumers.append(consumer)  # in order of arrival: the first is the active one
            self._is_to_yield |= self._rules.active_consumer_yields and consumer.priority > consumers[0].priority
        else:
            consumers.insert(self._next, consumer)  # the last place is just before the next consumer
            self._next = (self._next + 1) % len(consumers)

    def regroup(self) -> None:
        """Assign the message groups again after a consumer joined, if the rules ask for it."""
        if self.groups is not None:
            self.groups.consumer_joined(self._rules, len(self.consumers))

    def leave(self, leaving: Sequence[Consumer]) -> bool:
        """Remove consumers. Returns whether a single active consumer may now be served: a new one, or the old one,
        which no longer has to yield. O(consumers).
        """
        consumers = self.consumers
        active = consumers[0] if consumers else None
        self._broker.turn.effort += len(consumers) // PASSED_PER_EFFORT
        if len(leaving) == 1:
            index = consumers.index(leaving[0])
            del consumers[index]
            if index < self._next:
                self._next -= 1
        else:
            gone = set(leaving)
            self._next -= sum(one in gone for one in consumers[: self._next])
            consumers[:] = [one for one in consumers if one not in gone]
        if self._next >= len(consumers):
            self._next = 0
        if self.groups is not None:
            self.groups.consumers_left(leaving)
        if self._has_priorities:
            first = consumers[0].priority if consumers else 0
            self._has_priorities = any(one.priority != first for one in consumers)
        if not consumers or not self._rules.single_active_consumer:
            self._is_to_yield = False
            return False
        if active is consumers[0]:
            if self._is_to_yield:
                self._is_to_yield = any(one.priority > active.priority for one in consumers)
                return not self._is_to_yield  # the active one continues
            return False
        self._activate_next()
        return True

    def _activate_next(self) -> None:
        """Replace the active consumer by the earliest one of the highest priority."""
        consumers = self.consumers
        self._is_to_yield = False
        if self._has_priorities:
            following = max(consumers, key=lambda one: one.priority)
            consumers.remove(following)
            consumers.insert(0, following)

    # -- the next to serve --------------------------------------------------------------------------------------------

    @property
    def served(self) -> Sequence[Consumer]:
        """The consumers that may receive messages: all, or the single active one. If that has yielded, the next one is
        made active.
        """
        return self._active() if self._rules.single_active_consumer else self.consumers

    def _active(self) -> list[Consumer]:
        """The single active consumer; none while it yields. The next one becomes active when all messages of the
        yielding one are acknowledged.
        """
        if self._is_to_yield:
            if self.consumers[0].unacked:
                return []
            self._activate_next()
        return self.consumers[:1]

    @property
    def in_turn(self) -> list[Consumer]:
        """All consumers, the next one first."""
        return self.consumers[self._next :] + self.consumers[: self._next]

    @property
    def is_simple(self) -> bool:
        """Whether there is one consumer, no shared limit applies to it, and dispatch does not wait."""
        consumers = self.consumers
        return len(consumers) == 1 and not self.is_gathering and not consumers[0].session.prefetch_total

    def eligible(self, wanted: int) -> list[Consumer]:
        """Up to `wanted` consumers with credit, in the order of service. The one after them becomes the next.

        With priorities: of the consumers with credit, only those of the highest priority.
        """
        if self.is_gathering:
            return []
        consumers = self.consumers
        if len(consumers) == 1:
            return consumers[:] if consumers[0].credit() > 0 else []
        if self._rules.single_active_consumer:
            return [one for one in self._active() if one.credit() > 0]
        if self._has_priorities:
            return self._eligible_by_priority(wanted)
        count = len(consumers)
        start = self._next
        found: list[Consumer] = []
        for step in range(count):
            index = start + step
            if index >= count:
                index -= count
            consumer = consumers[index]
            if consumer.credit() > 0:
                found.append(consumer)
                self._next = index + 1 if index + 1 < count else 0
                if len(found) == wanted or consumer.session.prefetch_total:
                    break  # a limit shared by several consumers is checked again after each delivery
        if count > UNCOUNTED_CHECKS and len(found) < wanted:
            self._broker.turn.effort += count // CHECKS_PER_EFFORT  # the credit of many was checked
        return found

    def _eligible_by_priority(self, wanted: int) -> list[Consumer]:
        """Round robin within each priority: found consumers move to the end."""
        consumers, start = self.consumers, self._next
        consumers[:] = consumers[start:] + consumers[:start]
        self._next = 0
        if len(consumers) > UNCOUNTED_CHECKS:
            self._broker.turn.effort += len(consumers) // CHECKS_PER_EFFORT
        free = [consumer for consumer in consumers if consumer.credit() > 0]
        highest = max((consumer.priority for consumer in free), default=None)
        found: list[Consumer] = []
        for consumer in free:
            if consumer.priority == highest:
                found.append(consumer)
                if len(found) == wanted or consumer.session.prefetch_total:
                    break  # a limit shared by several consumers is checked again after each delivery
        for consumer in found:
            consumers.remove(consumer)
            consumers.append(consumer)
        return found

    def has_credit(self) -> bool:
        """Whether some consumer could take a message now."""
        return not self.is_gathering and any(consumer.credit() > 0 for consumer in self.served)

    def total_credit(self) -> tuple[int, int]:
        """Upper limits of the messages and octets that all consumers can take now. O(consumers)."""
        wanted = octets = 0
        if not self.is_gathering:
            for consumer in self.served:
                credit = consumer.credit()
                if credit > 0:
                    wanted += credit
                    octets += consumer.client.outbox_room()
        return wanted, octets

    # -- new messages -------------------------------------------------------------------------------------------------

    def hand_over(self, first_id: int, envelope: Envelope, contents: Sequence[bytes]) -> int:
        """Give new messages to consumers with credit, in turn. Returns the number of messages taken."""
        consumers = self.consumers
        if len(consumers) == 1 and not self.is_gathering:
            return hand_to(consumers[0], first_id, envelope, contents)
        count = len(contents)
        taken = 0
        while taken < count:
            rest = contents[taken:] if taken else contents
            eligible = self.eligible(count - taken)
            width = len(eligible)
            if width == 0:
                break
            if width == 1:
                if eligible[0].session.prefetch_total:
                    rest = rest[:1]  # it shares its limit with consumers that are served first
                taken += hand_to(eligible[0], first_id + taken, envelope, rest)
                continue
            share = equal_share(eligible, len(rest), partial(_octets, rest))
            stop = taken + share * width
            ids = range(first_id, first_id + count)
            for index, consumer in enumerate(eligible, taken):
                run = contents[index:stop:width]
                consumer.session.deliver_new(consumer, ids[index:stop:width], envelope, run, sum(map(len, run)))
            taken = stop
        return taken

    # -- limits -------------------------------------------------------------------------------------------------------

    def run_limit(self, consumer: Consumer, available: int) -> int:
        """The number of messages that the only eligible consumer may take before credit is checked again."""
        credit, session = consumer.credit(), consumer.session
        if session.prefetch_total:
            if len(self.consumers) > 1:
                return 1  # it shares its limit with consumers that are served first
            if self._broker.scheduler.waiting_count():
                credit = min(credit, session.prefetch_portion())  # it also shares with consumers of other queues
        return min(credit, available, RUN_MAX)

    def must_yield(self, consumer: Consumer) -> bool:
        """Whether other queues are served before this one continues, because the consumer shares its prefetch limit."""
        return bool(consumer.session.prefetch_total and self._broker.scheduler.waiting_count())


def equal_share(eligible: Sequence[Consumer], available: int, octets_of: Callable[[int], int]) -> int:
    """The number of messages that each of these consumers can get at once, with the same result as one by one.

    `octets_of(count)`: the octets of the next `count` messages. A client gets about its room, and at least one message.
    """
    width = len(eligible)
    share = min(available // width, SHARE_MAX)
    if eligible[-1].session.prefetch_total:
        return 1  # it shares its limit: the consumers after it, which `eligible` left out, are served next
    if share <= 1 or len({consumer.session for consumer in eligible}) < width:
        return 1  # deliveries of a session are numbered in the order of the queue
    share = max(1, min(share, min(consumer.credit() for consumer in eligible)))
    room = min(consumer.client.outbox_room() for consumer in eligible)
    octets = octets_of(share * width)
    return share if octets <= room else max(1, share * room // octets)


def hand_to(consumer: Consumer, first_id: int, envelopes: Envelopes, contents: Sequence[bytes]) -> int:
    """Give new messages to one consumer, as many as its credit and its client's room allow: none without
    credit, else at least one.

    `envelopes`: the common one, or one for each message. Returns the number of messages taken.
    """
    credit = consumer.credit()
    if credit <= 0:
        return 0
    if credit < len(contents):
        contents = contents[:credit]
    octets = sum(map(len, contents))
    client = consumer.client
    if octets > client.unsent_max - client.unsent and len(contents) > 1:
        contents = contents[: client.count_for_room(contents)]
        octets = sum(map(len, contents))
    count = len(contents)
    if not isinstance(envelopes, Envelope):
        envelopes = envelopes[:count]
    consumer.session.deliver_new(consumer, range(first_id, first_id + count), envelopes, contents, octets)
    return count


def _octets(contents: Sequence[bytes], count: int) -> int:
    return sum(map(len, contents[:count]))
