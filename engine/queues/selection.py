"""The choice of messages for consumers in a queue where a consumer has a filter, or whose kind asks for it.

Only such a queue has a `Selection`. Each consumer gets the oldest message that its filter takes. Of the consumers that
take a message, the one with the highest priority gets it; of these, the one with the longest wait since its last
delivery, or since it joined.
"Oldest" is the order of scans (`Scannable.scan`): by level, then by id, even of a message that was put at the head.
Source: queues page A.4, F.1, F.2, F.6.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any

from ..delivery.consumer import Consumer
from ..delivery.consumer_list import CHECKS_PER_EFFORT, UNCOUNTED_CHECKS
from ..delivery.filter_groups import FilterGroup, FilterGroups, Match
from ..delivery.groups import Groups
from ..messages.dead_letter import EXPIRED
from ..messages.field_table import Field
from ..messages.message import Message, id_of
from ..stores.store import Store
from .searching import OVERRUN_EFFORT, Search, match_of

if TYPE_CHECKING:
    from ..context import BrokerContext
    from .queue import Queue

#: Found messages at which the search of a group pauses until its consumers take some.
FOUND_MAX = 500
#: The same limit in a queue with message groups, where found messages may wait for busy consumers.
PASSED_MAX = 20_000
#: Units of effort of the search in one dispatch, and of filters for arriving messages between two dispatches.
SEARCH_EFFORT, ARRIVALS_EFFORT = 2000, 8000
#: Messages, and octets, taken out of the store at once.
TAKEN_MAX, TAKEN_OCTETS = 500, 1024 * 1024
#: Messages taken out at once if some of them may be expired and become dead letters.
DEAD_LETTERED_MAX = 100


class Selection:
    """Chooses the messages of one queue for its consumers.

    `groups`: the consumers by filter, with a group for those without. `search`: the progress of groups in the queue.
    """

    def __init__(self, broker: "BrokerContext") -> None:
        self._broker = broker
        self.groups = FilterGroups(broker)
        self.search = Search(self.groups, broker)
        self._last_served: dict[Consumer, int] = {}  # number of each consumer's last delivery, or joining, rising
        self._served = 0
        self._arriving = 0  # effort spent on arrivals since the last dispatch

    def use_groups(self, groups: FilterGroups) -> None:
        """Use groups of the kind's own class. Called before the first consumer joins."""
        self.groups = groups
        self.search = Search(groups, self._broker)

    def join(self, consumer: Consumer, *, is_empty: bool) -> None:
        """Add a consumer. `is_empty`: the queue has no messages to search."""
        group = self.groups.join(consumer)
        if is_empty:
            group.is_at_end = True
        self._note_served(consumer)

    def leave(self, consumers: Sequence[Consumer]) -> None:
        """Remove those of these consumers that have joined."""
        joined = [one for one in consumers if self._last_served.pop(one, None) is not None]
        self.groups.leave(joined)

    def _note_served(self, consumer: Consumer) -> None:
        self._served += 1
        self._last_served[consumer] = self._served

    # -- in -----------------------------------------------------------------------------------------------------------

    def offer(self, queue: "Queue", message: Message) -> bool:
        """Offer a new message. True: a consumer took it at once.

        Otherwise the groups that take it have noted the position that it gets in the store. If too many messages arrive
        in a turn, groups examine the rest in the next dispatch.
        """
        position = queue.store.position_of(message)
        turn, groups = self._broker.turn, self.groups
        before = turn.effort
        if not self._arriving:
            queue.mark()
        allowed = before + OVERRUN_EFFORT if self._arriving < ARRIVALS_EFFORT else 0
        test = groups.test_of(message)
        takers: list[FilterGroup] = []
        is_late = False
        for group in groups:
            if group.is_at_end and len(group.found) < FOUND_MAX and turn.effort < allowed:
                if test.is_taken_by(group.expression):
                    takers.append(group)
                group.position = max(group.position, position)
            elif position > group.position:
                group.is_at_end = False
            else:
                is_late = True
        self._arriving += 1 + turn.effort - before
        if (
            takers
            and not groups.returned
            and not any(group.found for group in takers)
            and queue.consumer_list.groups is None
            and queue.rules.last_value_key is None  # it may replace an older message
        ):
            consumer = _first(self._free(queue, takers))
            if consumer is not None:
                self._note_served(consumer)
                consumer.session.deliver_ready(consumer, [message])
                return True
        for group in takers:
            group.add(match_of(position, message))
        if is_late:
            groups.note_returned((position,))
        return False

    def came_back(self, store: Store, messages: Iterable[Message]) -> None:
        """Tell the groups about messages that returned to the store, or were not put at its end.

        Groups examine them now, while they are in memory; beyond a limit of effort, in the next dispatch.
        """
        turn, groups = self._broker.turn, self.groups
        allowed = turn.effort + OVERRUN_EFFORT
        late: list[int] = []
        for message in messages:
            position = store.position_of(message)
            if turn.effort >= allowed:
                late.append(position)
                continue
            test = groups.test_of(message)
            for group in groups:
                if group.position < position:
                    group.is_at_end = False
                elif test.is_taken_by(group.expression):
                    group.add(match_of(position, message))
        groups.note_returned(sorted(late))

    # -- out ----------------------------------------------------------------------------------------------------------

    def dispatch(self, queue: "Queue") -> None:
        """Hand out found messages and search for more, while consumers have credit and the turn has time."""
        turn, consumer_list, store, search = self._broker.turn, queue.consumer_list, queue.store, self.search
        self._arriving = 0
        search.is_waiting = False
        until = min(turn.effort_max, turn.effort + SEARCH_EFFORT)
        found_max = FOUND_MAX if consumer_list.groups is None else PASSED_MAX
        while True:
            free = self._free(queue, self.groups)
            if not free:
                return
            if not search.examine_returned(store, until):
                break
            if consumer_list.groups is None:
                last, is_more = self._hand_out(queue, free)
            else:
                last, is_more = self._hand_out_members(queue, free), False
            if last is not None and consumer_list.must_yield(last):
                queue.mark()
                return
            if is_more and turn.effort < until:
                continue  # a consumer may have credit left
            if turn.effort >= until or not search.advance(store, list(free), found_max, until):
                break
        search.continue_later(queue, until)

    def _free(self, queue: "Queue", groups: Iterable[FilterGroup]) -> "Free":
        """The consumers with credit by group, as heaps in order of priority and last delivery."""
        free: Free = {}
        consumer_list, last_served = queue.consumer_list, self._last_served
        if consumer_list.is_gathering:
            return free
        served = consumer_list.served
        if len(served) == len(consumer_list.consumers):
            for group in groups:
                ranks = [(-one.priority, last_served[one], one) for one in group.consumers if one.credit() > 0]
                if ranks:
                    heapify(ranks)
                    free[group] = ranks
        else:  # at most one, the single active consumer: a list of one is a heap
            wanted = set(groups)
            for one in served:
                group = self.groups.of(one)
                if group in wanted and one.credit() > 0:
                    free.setdefault(group, []).append((-one.priority, last_served[one], one))
        if len(served) > UNCOUNTED_CHECKS:
            self._broker.turn.effort += len(served) // CHECKS_PER_EFFORT  # the credit of all was checked
        return free

    def _hand_out(self, queue: "Queue", free: "Free") -> tuple[Consumer | None, bool]:
        """Hand out some of the found messages, the oldest first.

        Returns the consumer at which a shared prefetch limit ended the round, and whether more can be handed out.
        """
        plan = self._plan(queue, free)
        if not plan.positions:
            return None, False
        store = queue.evictable
        removed = store.take_at(list(plan.positions))
        self._broker.turn.effort += len(removed.messages)
        now_ns = queue.context.broker.clock.monotonic_ns() if store.expiring else 0
        expired = [message for message in removed.messages if 0 < message.expires_ns <= now_ns]
        if expired or len(removed.messages) < len(plan.positions):
            self._undo(queue, plan, removed.messages, expired)
            return None, True
        for message in removed.messages:
            plan.give(plan.positions[store.position_of(message)], message)
        for group, at in plan.next_of.items():
            del group.found[:at]
        for consumer, messages in plan.runs:
            consumer.session.deliver_ready(consumer, messages)
        return plan.last, True

    def _undo(self, queue: "Queue", plan: "Plan", taken: Sequence[Message], expired: list[Message]) -> None:
        """Put back what was taken for a plan, because some of its messages are gone or `expired`: such a message must
        not use up a consumer's credit or turn. The next plan has only those that are put back.
        """
        gone = set(map(id, expired))
        back = sorted((message for message in taken if id(message) not in gone), key=id_of, reverse=True)
        there = set(map(queue.store.position_of, back))
        for group, at in plan.next_of.items():
            group.found[:at] = [match for match in group.found[:at] if match.position in there]
        self._last_served.update(plan.last_served)
        if expired:
            queue.dead_letter_or_drop(expired, EXPIRED)
        for older in queue.evictable.put_back(back)[0]:
            queue.events.replaced(older)

    def _plan(self, queue: "Queue", free: "Free") -> "Plan":
        """Assign found messages to consumers one by one."""
        plan = Plan()
        count = TAKEN_MAX
        if queue.store.expiring and queue.rules.dead_letter_target(EXPIRED) is not None:
            count = DEAD_LETTERED_MAX
        octets = TAKEN_OCTETS
        next_of = plan.next_of = dict.fromkeys(free, 0)
        heads = [(group.found[0].position, number, group) for number, group in enumerate(free) if group.found]
        heapify(heads)
        number = len(free)  # breaks ties: groups cannot be compared
        while heads and len(plan.positions) < count and octets > 0:
            position = heads[0][0]
            takers: list[FilterGroup] = []
            while heads and heads[0][0] == position:
                takers.append(heappop(heads)[2])
            taker = min(takers, key=lambda group: free[group][0])
            match = taker.found[next_of[taker]]
            consumer = free[taker][0][2]
            octets -= match.octets
            plan.positions[position] = consumer
            plan.last_served.setdefault(consumer, self._last_served[consumer])
            self._note_served(consumer)
            if plan.count_message(consumer, match.octets):
                heappop(free[taker])
            else:
                heapreplace(free[taker], (-consumer.priority, self._last_served[consumer], consumer))
            if consumer.session.prefetch_total:
                plan.last = consumer
                octets = 0  # a limit shared by several consumers is checked again after each delivery
            for group in takers:
                next_of[group] += 1
                if free[group] and next_of[group] < len(group.found):
                    number += 1
                    heappush(heads, (group.found[next_of[group]].position, number, group))
        return plan

    # -- message groups -----------------------------------------------------------------------------------------------

    def _hand_out_members(self, queue: "Queue", free: "Free") -> Consumer | None:
        """Hand out found messages of a queue with message groups: each to the consumer of its group.

        Passes messages whose consumers are busy or do not take them. O(found).
        Returns the consumer at which a shared prefetch limit ended the round.
        """
        message_groups = queue.consumer_list.groups
        if message_groups is None or not message_groups.may_dispatch(queue.unacked):
            return None
        found: dict[int, list[FilterGroup]] = {}
        members: dict[int, Match] = {}
        for group in free:
            for match in group.found:
                found.setdefault(match.position, []).append(group)
                members[match.position] = match
        gone: set[int] = set()
        last: Consumer | None = None
        self._broker.turn.effort += len(found) // CHECKS_PER_EFFORT
        for position in sorted(found):
            takers = [group for group in found[position] if group in free]
            if not takers:
                continue
            is_gone, last = self._hand_out_member(queue, message_groups, takers, members[position])
            if is_gone:
                gone.add(position)
                free = self._free(queue, free)
                if last is not None and last.session.prefetch_total:
                    break
                last = None
        for group in self.groups:
            if gone and group.found:
                group.found = [match for match in group.found if match.position not in gone]
        return last

    def _hand_out_member(
        self, queue: "Queue", message_groups: Groups, takers: Sequence[FilterGroup], match: Match
    ) -> tuple[bool, Consumer | None]:
        """Hand out one found message if a consumer can get it. Returns whether it is gone, and its consumer."""
        store, member = queue.evictable, match.member
        seen = store.scan(match.position - 1, 1)
        if not seen.missing and not (seen.found and seen.found[0][0] == match.position):
            return True, None
        if seen.found and _is_expired(queue, seen.found[0][1]):  # before it makes a consumer the owner of its group
            queue.dead_letter_or_drop(store.take_at([match.position]).messages, EXPIRED)
            return True, None
        consumer, is_first = _first(self._free(queue, takers)), False
        if member is not None:
            owner = message_groups.consumer_of(member.group)
            if owner is not None and self.groups.of(owner) not in takers:
                return False, None
            waiting = [] if consumer is None else [consumer]
            consumer, is_first = message_groups.choose_consumer(member, lambda wanted: waiting)
        if consumer is None:
            return False, None
        messages = store.take_at([match.position]).messages
        key = queue.rules.group_first_key
        for message in messages:
            if _is_expired(queue, message):  # it was paged out
                queue.dead_letter_or_drop([message], EXPIRED)
                continue
            if is_first and key is not None:
                queue.add_headers(message, {key: Field("t", True)})
            self._note_served(consumer)
            consumer.session.deliver_ready(consumer, [message])
        return True, consumer


def _is_expired(queue: "Queue", message: Message) -> bool:
    return queue.store.expiring and 0 < message.expires_ns <= queue.context.broker.clock.monotonic_ns()


#: The consumers with credit of each group, as a heap of (negative priority, number of the last delivery, consumer).
Free = dict[FilterGroup, list[tuple[int, int, Consumer]]]


def _first(free: Free) -> Consumer | None:
    """The consumer to serve next; None: no consumer is free."""
    return min((ranks[0] for ranks in free.values()), default=(0, 0, None))[2]


class Plan:
    """The assignment of found messages to consumers in one round.

    `positions`: position of a message -> its consumer. `next_of`: the number of a group's matches that are assigned,
    from the first. `last`: the consumer at which a shared prefetch limit ended the round. `runs`: messages by consumer,
    in order for each session. `last_served`: the numbers of the consumers' last deliveries before the round.
    """

    def __init__(self) -> None:
        self.positions: dict[int, Consumer] = {}
        self.next_of: dict[FilterGroup, int] = {}
        self.last_served: dict[Consumer, int] = {}
        self.last: Consumer | None = None
        self.runs: list[tuple[Consumer, list[Message]]] = []
        self._by_session: dict[Any, tuple[Consumer, list[Message]]] = {}
        self._credit: dict[Consumer, int] = {}
        self._room: dict[Any, int] = {}

    def count_message(self, consumer: Consumer, octets: int) -> bool:
        """Count one more message for a consumer. Returns whether that uses up its credit or room."""
        credit = self._credit.get(consumer)
        if credit is None:
            credit = consumer.credit()
        self._credit[consumer] = credit - 1
        client = consumer.client
        room = self._room.get(client)
        if room is None:
            room = client.outbox_room()
        self._room[client] = room - octets
        return credit <= 1 or room <= octets

    def give(self, consumer: Consumer, message: Message) -> None:
        """Add a message that was taken out for a consumer."""
        run = self._by_session.get(consumer.session)
        if run is None or run[0] is not consumer:
            run = self._by_session[consumer.session] = (consumer, [])
            self.runs.append(run)
        run[1].append(message)
