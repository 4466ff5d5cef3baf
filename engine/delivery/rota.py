"""Consumers of a queue and whose turn it is.

The rota is circular: round-robin over the consumers that may have a message now. Source: behaviour page 2.12, 4;
address-settings page 3.4 (exclusive queues, max-consumers, consumers-before-dispatch).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..clock import due_after
from ..errors import ConsumersMaxReached, ExclusiveConsumerRefused
from ..events import EventKind
from ..rules.arguments import QUORUM
from .consumer import Consumer

if TYPE_CHECKING:
    from ..queues.queue import Queue

#: Of one turn at a rota no consumer takes more than this, so that shares stay even while sockets fill.
SHARE_MAX = 64
#: Nor is more than this delivered before somebody looks whether the turn has become long.
RUN_MAX = 2000
#: So many consumers are asked at once whether they can have something in the time of one of `Broker.spread`; of a few
#: it is not counted.
LOOKS, FEW = 8, 64


def join(queue: "Queue", consumer: Consumer) -> None:
    """Join the end of the rota. Raises: ExclusiveConsumerRefused, ConsumersMaxReached."""
    consumers, rules, broker = queue.consumers, queue.rules, queue.broker
    if queue.type == QUORUM:
        consumer.exclusive = False  # accepted and passed over, as in RabbitMQ
    if consumers and (consumer.exclusive or consumers[0].exclusive):
        raise ExclusiveConsumerRefused(name=queue.name, vhost=queue.vhost.name)
    if consumer.exclusive and rules.single_active_consumer:
        raise ExclusiveConsumerRefused(name=queue.name, vhost=queue.vhost.name)
    if rules.max_consumers is not None and len(consumers) >= rules.max_consumers:
        raise ConsumersMaxReached(name=queue.name, vhost=queue.vhost.name, limit=rules.max_consumers)
    queue.has_priorities = queue.has_priorities or (bool(consumers) and consumer.priority != consumers[0].priority)
    if rules.single_active_consumer:
        consumers.append(consumer)  # in order of arrival: the first is the active one
    else:
        # Its end is just before the one whose turn it is.
        consumers.insert(queue.next_consumer, consumer)
        queue.next_consumer = (queue.next_consumer + 1) % len(consumers)
    queue.had_consumers = True
    queue.touch()
    if broker.listeners:
        broker.emit(EventKind.CONSUMER_ADDED, queue, tag=consumer.tag, client=consumer.client)
    if rules.consumers_before_dispatch > 0:
        _gather(queue)
    if queue.groups is not None:
        queue.groups.consumer_joined(queue)
    if rules.purge_on_no_consumers and len(consumers) == 1:
        queue.vhost.forget_routes_to(queue)  # it takes messages from now on
    if queue.has_ready:
        broker.mark(queue)


def leave(queue: "Queue", leaving: Sequence[Consumer]) -> None:
    """Leave the rota; what they hold stays held. An auto-delete queue goes with its last consumer. O(consumers)."""
    consumers = queue.consumers
    active = consumers[0] if consumers else None
    if len(leaving) == 1:
        index = consumers.index(leaving[0])
        del consumers[index]
        if index < queue.next_consumer:
            queue.next_consumer -= 1
    else:
        gone = set(leaving)
        queue.next_consumer -= sum(one in gone for one in consumers[: queue.next_consumer])
        consumers[:] = [one for one in consumers if one not in gone]
    if queue.next_consumer >= len(consumers):
        queue.next_consumer = 0
    if queue.groups is not None:
        queue.groups.consumers_left(leaving)
    if queue.broker.listeners:
        for consumer in leaving:
            queue.broker.emit(EventKind.CONSUMER_REMOVED, queue, tag=consumer.tag, client=consumer.client)
    if queue.has_priorities:
        first = consumers[0].priority if consumers else 0
        queue.has_priorities = any(one.priority != first for one in consumers)
    if consumers:
        if active is not consumers[0] and queue.rules.single_active_consumer:
            _activate_next(queue)
    elif not queue.deleted:
        if queue.auto_delete:
            queue.vhost.remove_queue(queue)
        else:
            queue.last_used_ns = queue.broker.clock.monotonic_ns()
            if queue.rules.purge_on_no_consumers:
                queue.purge()
                queue.vhost.forget_routes_to(queue)
    queue.touch()


def _activate_next(queue: "Queue") -> None:
    """The active consumer is gone: the next is the first to have come among those of the highest priority."""
    consumers = queue.consumers
    if queue.has_priorities:
        following = max(consumers, key=lambda one: one.priority)
        consumers.remove(following)
        consumers.insert(0, following)
    if queue.has_ready:
        queue.broker.mark(queue)


def eligible(queue: "Queue", wanted: int) -> list[Consumer]:
    """Up to `wanted` consumers with credit, in rota order; moves the rota behind the last of them.

    With priorities: of those with credit only the ones of the highest priority.
    """
    consumers = queue.consumers
    if queue.held:
        return []
    if queue.rules.single_active_consumer:
        return consumers[:1] if consumers and consumers[0].credit() > 0 else []
    if queue.has_priorities:
        return _eligible_by_priority(queue, wanted)
    count = len(consumers)
    start = queue.next_consumer
    found: list[Consumer] = []
    for step in range(count):
        index = start + step
        if index >= count:
            index -= count
        consumer = consumers[index]
        if consumer.credit() > 0:
            found.append(consumer)
            queue.next_consumer = index + 1 if index + 1 < count else 0
            if len(found) == wanted or consumer.session.prefetch_total:
                break  # a limit shared by several consumers is looked at again after each delivery
    if count > FEW and len(found) < wanted:
        queue.broker.spread += count // LOOKS  # all of them were asked
    return found


def _eligible_by_priority(queue: "Queue", wanted: int) -> list[Consumer]:
    """Each priority has a rota of its own: who is served goes behind the others of his, and their turns stay."""
    consumers, start = queue.consumers, queue.next_consumer
    consumers[:] = consumers[start:] + consumers[:start]
    queue.next_consumer = 0
    if len(consumers) > FEW:
        queue.broker.spread += len(consumers) // LOOKS
    free = [consumer for consumer in consumers if consumer.credit() > 0]
    highest = max((consumer.priority for consumer in free), default=None)
    found: list[Consumer] = []
    for consumer in free:
        if consumer.priority == highest:
            found.append(consumer)
            if len(found) == wanted or consumer.session.prefetch_total:
                break  # as above
    for consumer in found:
        consumers.remove(consumer)
        consumers.append(consumer)
    return found


def has_waiting(queue: "Queue") -> bool:
    """Whether a message could be delivered now."""
    if queue.held:
        return False
    consumers = queue.consumers[:1] if queue.rules.single_active_consumer else queue.consumers
    return any(consumer.credit() > 0 for consumer in consumers)


def limit(queue: "Queue", consumer: Consumer, available: int) -> int:
    """How many messages the only eligible consumer may have before the rota is asked again."""
    credit, session = consumer.credit(), consumer.session
    if session.prefetch_total:
        if len(queue.consumers) > 1:
            return 1  # it shares its limit with consumers that are to have their turns
        if queue.broker.waiting_count:
            credit = min(credit, session.portion())  # so have those of other queues
    return min(credit, available, RUN_MAX)


def gives_way(queue: "Queue", consumer: Consumer) -> bool:
    """After a delivery: whether other queues are looked at before the rest of this one, which then is marked again.

    So it is where the consumer shares a limit: their consumers may share it.
    """
    if not consumer.session.prefetch_total or not queue.broker.waiting_count:
        return False
    queue.broker.mark(queue)
    return True


def share_of(eligible: list[Consumer], available: int, octets_of: Callable[[int], int]) -> int:
    """How many whole rounds of the rota can be dealt at once: the same result as one message at a time.

    `octets_of(count)`: the size of the next `count` messages; no client may be given more than its room.
    """
    width = len(eligible)
    share = min(available // width, SHARE_MAX)
    if eligible[-1].session.prefetch_total:
        return 1  # `eligible` stopped there: consumers behind it have their turns before the next round
    if share <= 1 or len({consumer.session for consumer in eligible}) < width:
        return 1  # consumers of one session: its deliveries are numbered in queue order
    share = max(1, min(share, min(consumer.credit() for consumer in eligible)))
    room = min(consumer.client.room() for consumer in eligible)
    octets = octets_of(share * width)
    return share if octets <= room else max(1, share * room // octets)


# -- consumers-before-dispatch --------------------------------------------------------------------------------------


def _gather(queue: "Queue") -> None:
    """A consumer joined a queue that waits for several: enough of them now, or the first one starts the clock.

    Dispatch that has started goes on until there are no consumers and nothing is out.
    """
    rules, deadlines = queue.rules, queue.broker.deadlines
    if len(queue.consumers) == 1 and not queue.unacked:
        queue.held = True
        deadlines.cancel(queue.start_deadline)
        queue.start_deadline = None
        if rules.delay_before_dispatch_ms is not None:
            due_ns = due_after(queue.broker.clock, rules.delay_before_dispatch_ms)
            queue.start_deadline = deadlines.set(due_ns, lambda: _start(queue))
    if queue.held and len(queue.consumers) >= rules.consumers_before_dispatch:
        _start(queue)


def _start(queue: "Queue") -> None:
    queue.broker.deadlines.cancel(queue.start_deadline)
    queue.start_deadline = None
    queue.held = False
    if queue.has_ready and not queue.deleted:
        queue.broker.mark(queue)
