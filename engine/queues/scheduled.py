"""Messages of a queue that wait for a due time: delayed messages, and returned ones with a redelivery delay.

Source: address-settings page 4.5 (rule 2), 5.3; management page 16 (`reschedule`, `cancel`).
"""

from collections.abc import Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from ..clock import due_after
from ..messages.message import Message, id_of
from .bounds import LengthBound

if TYPE_CHECKING:
    from .queue import Queue


class Scheduled:
    """The messages of one queue that wait for a due time, soonest first. `add` is O(log n)."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        # Ids are unique in a queue, so messages are never compared and the heap needs no sequence number.
        self._heap: list[tuple[int, int, Message]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Message]:
        return (message for _, _, message in self._heap)

    def entries(self) -> list[tuple[int, Message]]:
        """(due time, message), soonest first."""
        return [(due_ns, message) for due_ns, _, message in sorted(self._heap)]

    def waiting(self) -> list[tuple[int, int, Message]]:
        """(due time, id, message), unordered. O(n), without sorting."""
        return list(self._heap)

    def take(self, id_: int) -> Message | None:
        """Remove and return a message by its id; None: it is not scheduled. O(n)."""
        for index, (_, _, message) in enumerate(self._heap):
            if message.id == id_:
                self._heap[index] = self._heap[-1]
                self._heap.pop()
                heapify(self._heap)
                return message
        return None

    def add(self, due_ns: int, message: Message) -> int:
        """Schedule a message for `due_ns` (monotonic), or for its expiry if that is sooner. Returns its due time."""
        due_ns = min(due_ns, message.expires_ns) if message.expires_ns else due_ns
        heappush(self._heap, (due_ns, message.id, message))
        return due_ns

    def next_ns(self) -> int | None:
        """The earliest due time; None: no message is scheduled."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ns: int) -> list[tuple[int, Message]]:
        """Remove and return the due messages as (due time, message), soonest first, then in order of publishing."""
        due: list[tuple[int, Message]] = []
        while self._heap and self._heap[0][0] <= now_ns:
            due_ns, _, message = heappop(self._heap)
            due.append((due_ns, message))
        return due

    def take_all(self) -> list[Message]:
        """Remove and return all messages, soonest first."""
        taken = [message for _, _, message in sorted(self._heap)]
        self._heap.clear()
        return taken


def schedule_new(queue: "Queue", message: Message, due_ns: int, owner: int = 0) -> None:
    """Schedule a new message for `due_ns`. The caller calls `await_due` next.

    `owner`: see `EnqueuedEvent`.
    """
    queue.events.enqueued(message, owner)
    due_ns = queue.scheduled.add(due_ns, message)
    queue.events.scheduled((message,), (due_ns,), why="published")


def await_due(queue: "Queue") -> None:
    """Set the deadline of the next message."""
    queue.timers.arm_due(queue.scheduled.next_ns(), partial(come_due, queue))


def come_due(queue: "Queue") -> None:
    """Make due messages ready: requeued ones at their positions, delayed ones where `Intake.place_due` puts them."""
    if queue.deleted:
        return
    store = queue.store
    now_ns = queue.context.broker.clock.monotonic_ns()
    taken = queue.scheduled.take_due(now_ns)
    expired = [message for _, message in taken if 0 < message.expires_ns <= now_ns]
    due = [message for _, message in taken if not 0 < message.expires_ns <= now_ns]
    if expired:
        queue.settlement.expired(queue, expired)
    if due:
        queue.events.due(due)
        returned = [message for message in due if message.deliveries]
        by_time: dict[int, list[Message]] = {}  # delayed messages by due time
        for due_ns, message in taken:
            if not message.deliveries and not 0 < message.expires_ns <= now_ns:
                by_time.setdefault(due_ns, []).append(message)
        for published in by_time.values():  # in the order of due times
            _make_ready(queue, published)
        if returned:
            queue.insert(sorted(returned, key=id_of, reverse=True))
        if store.expiring:  # set when they were published
            queue.arm_expiry()
    await_due(queue)


def _make_ready(queue: "Queue", messages: list[Message]) -> None:
    """Make delayed messages (ids rising) ready. A queue that refuses publishes drops or dead-letters the excess."""
    limit = next((bound for bound in queue.refusing if isinstance(bound, LengthBound)), None)
    if limit is None:
        queue.intake.place_due(queue, messages)
        queue.apply_bounds(len(messages))
        return
    while count := limit.fitting(queue, messages):
        queue.intake.place_due(queue, messages[:count])
        queue.apply_bounds(count)
        queue.dispatch()  # waiting consumers take messages, which makes room for the next ones
        messages = messages[count:]
    if messages:
        limit.refuse_late(queue, messages)


def reschedule(queue: "Queue", id_: int, delay_ms: int) -> bool:
    """Change the due time of a scheduled message, for an operator. False: there is no such message."""
    message = queue.scheduled.take(id_)
    if message is None:
        return False
    due_ns = queue.scheduled.add(due_after(queue.context.broker.clock, delay_ms), message)
    queue.events.scheduled((message,), (due_ns,), why="rescheduled")
    if delay_ms == 0:
        come_due(queue)
    await_due(queue)
    return True


def cancel(queue: "Queue", id_: int) -> bool:
    """Delete a scheduled message, for an operator. False: there is no such message."""
    message = queue.scheduled.take(id_)
    if message is None:
        return False
    queue.events.cancelled(message)
    await_due(queue)
    return True
