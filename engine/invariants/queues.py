"""Checks the counts of a queue against its parts, and that each message is in one place."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from ..messages.message import Message
from ..queues.queue import Queue
from ..stores.store import ids_in
from .sessions import Held


def queue_of(queue: Queue, held: Held, *, is_small: bool) -> Iterator[str]:
    """Faults of a queue. `is_small`: its messages are checked one by one."""
    out = held.by_queue.get(queue, [])
    if queue.events.unacked != len(out):
        yield f"counts {queue.events.unacked} unacknowledged, sessions have {len(out)} tags of it"
    if queue.deleted:
        yield "is deleted, and still listed"
    if queue.freeze_count < 0:
        yield f"is frozen {queue.freeze_count} times"
    if _is_forgotten(queue):
        yield "a consumer could get a ready message, and no dispatch is pending"
    for consumer in queue.consumer_list.consumers:
        if consumer.queue is not queue or consumer.session not in queue.sessions and not consumer.no_ack:
            yield f"consumer '{consumer.tag}' does not know it, or it not the consumer's session"
    if is_small:
        yield from _places(queue, out)


def _is_forgotten(queue: Queue) -> bool:
    """Whether a consumer could get the head, but no dispatch is pending.

    False if message groups, filters or the kind choose the consumer, because then credit is not enough.
    """
    if (
        queue.freeze_count
        or queue.selection is not None
        or queue.consumer_list.groups is not None
        or queue.kind.captures
    ):
        return False
    if not queue.store.ready or queue.keeps_acked or not queue.consumer_list.has_waiting():
        return False
    is_over = 0 < queue.store.next_expiry_ns <= queue.context.broker.clock.monotonic_ns()  # expiry comes first
    scheduler = queue.context.broker.scheduler
    return not is_over and not scheduler.is_marked(queue) and queue not in scheduler.to_load


def _places(queue: Queue, out: list[Message]) -> Iterator[str]:
    ready_ids = ids_in(queue.store)
    ids = list(chain(ready_ids, (message.id for message in queue.scheduled)))
    if not queue.keeps_acked:
        ids += [message.id for message in out]
    if len(set(ids)) != len(ids):
        twice = sorted(id_ for id_, count in Counter(ids).items() if count > 1)
        yield f"messages are in two places: {twice[:20]}"
    if len(queue.store) != len(ready_ids):
        yield f"counts {len(queue.store)} ready, {len(ready_ids)} are there"
    held = [message.id for message in queue.messages() if message.holder is not None]
    if held:
        yield f"messages are ready, and have a holder: {held[:20]}"
