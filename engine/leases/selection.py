"""The dispatch of a leased queue where a consumer has a filter: each gets the oldest message that its filter takes.

The fairness model chooses among the consumers that take a message. The search is that of other queues (`searching.py`).
Source: queues page A.4, A.9.
"""

from ..delivery.consumer import Consumer
from ..delivery.filter_groups import FilterGroup
from ..queues.selection import FOUND_MAX, LOOKING_MAX, Selection
from .ending import LeasedCore
from .granting import grant

#: Search steps that groups behind may take to catch up before a message goes to a group that has found it.
CATCH_UP = 4

Free = dict[FilterGroup, list[Consumer]]


def dispatch_selected(queue: LeasedCore, selection: Selection) -> None:
    """Lease found messages and look for more, while consumers have credit and the turn has time."""
    search, store, effort = selection.search, queue.store, queue.context.broker.effort
    search.is_waiting = False
    until = min(effort.turn_max, effort.spent + LOOKING_MAX)
    steps = CATCH_UP
    while queue.room() > 0:
        free = _free(queue, selection)
        if not free or not search.look_again(store, until):
            break
        behind = _behind(free)
        if behind and steps and search.look_ahead(store, behind, FOUND_MAX, until):
            steps -= 1
            continue
        if _hand_out(queue, free):
            if effort.spent < until:
                continue
            break
        if effort.spent >= until or not search.look_ahead(store, list(free), FOUND_MAX, until):
            break
    if search.is_waiting:
        queue.context.broker.scheduler.load_later(queue)
    elif effort.spent >= until:
        queue.mark()


def _free(queue: LeasedCore, selection: Selection) -> Free:
    """Consumers that may have a message, by group, in the order of their subscriptions."""
    free: Free = {}
    for consumer in queue.lease_consumers.free():
        free.setdefault(selection.groups.of(consumer), []).append(consumer)
    return free


def _behind(free: Free) -> list[FilterGroup]:
    """Groups that have not looked as far as the first message that another group has found."""
    position = min((group.found[0].position for group in free if group.found), default=0)
    return [group for group in free if group.position < position and not group.is_at_end]


def _hand_out(queue: LeasedCore, free: Free) -> bool:
    """Lease the oldest message found for any of these groups. Returns whether one was handled."""
    store, gate = queue.store, queue.gate_position()
    queue.context.broker.effort.spent += len(free)
    position = min((group.found[0].position for group in free if group.found), default=None)
    if position is None or (gate is not None and position >= gate):
        return False
    if queue.active is not None:
        queue.active.refill(store)
        if position > queue.active.end:
            return False
    takers = [group for group in free if group.found and group.found[0].position == position]
    for group in takers:
        del group.found[0]
    removed = store.take_at([position])
    queue.events.octets_changed(removed.recounted)
    if not removed.messages:
        return True  # the message is gone
    now_ns = queue.context.broker.clock.monotonic_ns()
    if 0 < removed.messages[0].expires_ns < now_ns:
        queue.dead_letter_or_drop(removed.messages, "expired")
        return True
    consumers = sorted((one for group in takers for one in free[group]), key=queue.consumer_list.consumers.index)
    grant(queue, queue.lease_consumers.choose(consumers), removed.messages)
    return True
