"""Subscribing to a queue and unsubscribing, and the consequences for the queue.

Source: behaviour page 2.12, 3.2; address-settings page 3.4 (consumers-before-dispatch, purge-on-no-consumers).
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..clock import due_after
from ..delivery.consumer import Consumer
from ..delivery.effects import ConsumerCancelled
from . import reconfigure

if TYPE_CHECKING:
    from .queue import Queue
    from .selection import Selection


def add(queue: "Queue", consumer: Consumer) -> None:
    """Subscribe. Raises: ExclusiveConsumerRefused, ConsumersMaxReached, and what `Dispatch.joining` raises."""
    consumer_list, rules = queue.consumer_list, queue.rules
    if queue.kind.ignores_exclusive:
        consumer.exclusive = False
    queue.delivery.joining(queue, consumer)
    consumer_list.check_join(consumer, queue=queue.name, vhost=queue.vhost_name)
    consumer.is_paused = queue.paused
    consumer_list.join(consumer)
    select(queue, consumer)
    queue.delivery.joined(queue, consumer)
    queue.note_use()
    if not queue.was_used:
        queue.note_first_use()
    queue.events.consumer_added(consumer)
    if rules.consumers_before_dispatch > 0:
        _gather(queue)
    consumer_list.regroup()
    if rules.purge_on_no_consumers and len(consumer_list.consumers) == 1:
        queue.context.router.forget_routes_to(queue)  # messages are routed to it now
    if queue.has_ready:
        queue.mark()
    if rules.slow:
        queue.context.broker.slow_consumers.watch(queue)
    if queue.pending is not None:
        queue.context.broker.background.trim_later(queue)


def remove(queue: "Queue", leaving: Sequence[Consumer]) -> None:
    """Unsubscribe consumers, which keep their unacknowledged messages. An auto-delete queue goes with the last one."""
    queue.delivery.left(queue, leaving)
    is_another_active = queue.consumer_list.leave(leaving)
    if queue.selection is not None:
        deselect(queue, queue.selection, leaving)
    queue.events.consumers_removed(leaving)
    if queue.consumer_list.consumers:
        if (is_another_active or queue.consumer_list.groups is not None) and queue.has_ready:
            queue.mark()  # other consumers get the messages that waited for those that left
    elif not queue.deleted:
        if queue.auto_delete or queue.kind.goes_with_consumers:
            queue.context.queues.remove(queue)
        else:
            queue.last_used_ns = queue.context.broker.clock.monotonic_ns()
            if queue.rules.purge_on_no_consumers:
                queue.purge()
                queue.context.router.forget_routes_to(queue)
    queue.note_use()


def cancel(queue: "Queue", cancelled: Sequence[Consumer]) -> None:
    """Unsubscribe consumers that did not ask for it, and tell their clients (consumer_cancel_notify)."""
    for consumer in cancelled:
        consumer.session.subscriptions.forget(consumer)
    remove(queue, cancelled)
    for consumer in cancelled:
        consumer.client.put(ConsumerCancelled(consumer), 0)


def pause(queue: "Queue", paused: bool) -> None:
    """Stop or resume deliveries for an operator. A restart ends the pause.

    Unacknowledged messages stay with their consumers, and basic.get works. Source: management page 16.
    """
    queue.paused = paused
    for consumer in queue.consumer_list.consumers:
        consumer.is_paused = paused
    if not paused and not queue.deleted:
        queue.mark()


def select(queue: "Queue", consumer: Consumer) -> None:
    """Add a consumer to the queue's selection, which the first consumer with a filter creates."""
    if not queue.delivery.removes_messages(queue, consumer):
        return
    if queue.selection is not None:
        queue.selection.join(consumer, is_empty=not queue.has_ready)
    elif consumer.filter is not None:
        from .selection import Selection  # costs 20 ms and 2 MiB, which a broker without filters is spared

        queue.selection = Selection(queue.context.broker)
        for one in queue.consumer_list.in_turn:
            queue.selection.join(one, is_empty=not queue.has_ready)
        queue.takes_plainly = False


def deselect(queue: "Queue", selection: "Selection", leaving: Sequence[Consumer]) -> None:
    """Remove consumers from the selection, which ends if no other consumer has a filter."""
    selection.leave(leaving)
    if not selection.groups.must_search:
        queue.selection = None
        queue.takes_plainly = reconfigure.takes_plainly(queue)
        queue.mark()


def _gather(queue: "Queue") -> None:
    """Wait for enough consumers (consumers-before-dispatch), at most for the delay, which the first consumer starts.

    A queue that has started dispatching waits again only after it had no consumers and no unacknowledged messages.
    """
    rules, consumer_list = queue.rules, queue.consumer_list
    if len(consumer_list.consumers) == 1 and not queue.events.unacked:
        consumer_list.is_gathering = True
        delay_ms = rules.delay_before_dispatch_ms
        due_ns = None if delay_ms is None else due_after(queue.context.broker.clock, delay_ms)
        queue.timers.arm_start(due_ns, partial(_start, queue))
    if consumer_list.is_gathering and len(consumer_list.consumers) >= rules.consumers_before_dispatch:
        _start(queue)


def _start(queue: "Queue") -> None:
    queue.timers.arm_start(None, partial(_start, queue))
    queue.consumer_list.is_gathering = False
    if queue.has_ready and not queue.deleted:
        queue.mark()
