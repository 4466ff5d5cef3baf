"""Each pending expiry or due time has a deadline that is not later."""

from collections.abc import Iterator

from ..clock import MS
from ..deadlines import Deadline, Deadlines
from ..queues.queue import Queue

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
    is_pending = queue.freeze_count or broker.scheduler.is_marked(queue)  # a dispatch will check its head
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
