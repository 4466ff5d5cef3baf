"""Checks the counts and consumers of a queue, that each of its messages is in one place, and the deadlines."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from ..clock import MS
from ..deadlines import Deadline, Deadlines
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
            yield f"consumer '{consumer.tag}' does not know it, or it does not know the session"
    if is_small:
        yield from _places(queue, out)


def _is_forgotten(queue: Queue) -> bool:
    """Whether a consumer could get the head, but no dispatch is pending.

    False if message groups, filters or the kind choose the consumer, because then credit is not enough; also if the
    queue is frozen, or its head has expired.
    """
    consumer_list, broker = queue.consumer_list, queue.context.broker
    if queue.selection is not None or consumer_list.groups is not None or queue.kind.captures or queue.keeps_acked:
        return False
    if queue.freeze_count or not queue.store.ready or not consumer_list.has_credit():
        return False
    is_over = 0 < queue.store.next_expiry_ns <= broker.clock.monotonic_ns()  # expiry comes first
    return not is_over and not broker.scheduler.is_marked(queue) and queue not in broker.scheduler.to_load


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


#: Delay allowed for a deadline of the kind (`Kind.own_deadline`): it may serve many messages.
LATE_NS = 20 * MS


def deadlines_of(deadlines: Deadlines) -> Iterator[str]:
    """Faults of the deadlines: the count of cancelled ones, and the order of the heap."""
    gone = sum(one.action is None for one in deadlines._heap)
    if gone != deadlines._cancelled:
        yield f"the deadlines count {deadlines._cancelled} cancelled ones, {gone} are"
    heap = deadlines._heap
    if any(heap[at] < heap[(at - 1) // 2] for at in range(1, len(heap))):
        yield "the deadlines are not a heap"


def timers_of(queue: Queue) -> Iterator[str]:
    """Faults of a queue's timers: of scheduled messages, of its head, and of its own expiry."""
    timers = queue.timers
    soonest = queue.scheduled.next_ns()
    if soonest is not None and not is_before(timers._due, soonest):
        yield f"a message is due at {soonest}, {_say(timers._due)}"
    if soonest is None and is_set(timers._due):
        yield f"nothing waits for its time, {_say(timers._due)}"
    expires_ns, broker = queue.store.next_expiry_ns, queue.context.broker
    # A dispatch or the next slice will check its head.
    is_pending = queue.freeze_count or broker.scheduler.is_marked(queue) or queue in broker.background.to_trim
    if (
        expires_ns > broker.clock.monotonic_ns()
        and not is_pending
        and not is_before(timers._expiry, expires_ns)
        and not is_before(queue.kind.own_deadline(queue), expires_ns + LATE_NS)
    ):
        yield f"a head expires at {expires_ns}, {_say(timers._expiry)}"
    expires_ms = queue.rules.expires_ms
    if expires_ms is not None and not queue.consumer_list.consumers and not is_set(timers.unused):
        yield "expires when unused, and no deadline is set"
    if queue.consumer_list.consumers and is_set(timers.unused):
        yield "has consumers, and expires as unused"


def is_set(deadline: Deadline | None) -> bool:
    return deadline is not None and deadline.action is not None


def is_before(deadline: Deadline | None, due_ns: int) -> bool:
    return deadline is not None and deadline.action is not None and deadline.due_ns <= due_ns


def _say(deadline: Deadline | None) -> str:
    return "no deadline is set" if deadline is None or deadline.action is None else f"the deadline is {deadline.due_ns}"
