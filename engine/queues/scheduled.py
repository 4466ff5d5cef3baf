"""Messages of a queue that wait for a time: delayed ones, and returned ones with a redelivery delay.

Source: address-settings page 4.5 (rule 2), 5.3; management page 16 (`reschedule`, `cancel`).
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from ..clock import due_after
from ..messages.deaths import EXPIRED
from ..messages.message import Message
from .bounds import LengthBound

if TYPE_CHECKING:
    from .queue import Queue

_id_of: Callable[[Message], int] = attrgetter("id")


def take_in(queue: "Queue", message: Message, due_ns: int) -> None:
    """Schedule a new message for `due_ns`, or for its expiry if that is sooner. The caller calls `await_due` next."""
    queue.events.enqueued(message)
    due_ns = min(due_ns, message.expires_ns) if message.expires_ns else due_ns
    queue.scheduled.add(due_ns, message)
    queue.events.scheduled((message,), (due_ns,), why="published")


def await_due(queue: "Queue") -> None:
    """Set the deadline of the next message."""
    queue.timers.arm_due(queue.scheduled.next_ns(), partial(come_due, queue))


def come_due(queue: "Queue") -> None:
    """Make due messages ready: returned ones at their positions, delayed ones where `Intake.place_due` puts them."""
    if queue.deleted:
        return
    store = queue.store
    now_ns = queue.context.broker.clock.monotonic_ns()
    taken = queue.scheduled.take_due(now_ns)
    expired = [message for _, message in taken if 0 < message.expires_ns <= now_ns]
    due = [message for _, message in taken if not 0 < message.expires_ns <= now_ns]
    if expired:
        queue.dead_letter_or_drop(expired, EXPIRED)
    if due:
        queue.events.due(due)
        returned = [message for message in due if message.deliveries]
        by_time: dict[int, list[Message]] = {}  # messages whose publication was delayed
        for due_ns, message in taken:
            if not message.deliveries and not 0 < message.expires_ns <= now_ns:
                by_time.setdefault(due_ns, []).append(message)
        for published in by_time.values():  # one time after the other, as if each had been handled on time
            _arrive(queue, published)
        if returned:
            queue.insert(sorted(returned, key=_id_of, reverse=True))
        if store.expiring or any(message.expires_ns for message in due):
            store.expect_expiry()
            queue.arm_expiry()
    await_due(queue)


def _arrive(queue: "Queue", messages: list[Message]) -> None:
    """Make delayed messages (ids rising) ready; a queue that refuses publishes drops those without room."""
    limit = next((bound for bound in queue.refusing if isinstance(bound, LengthBound)), None)
    if limit is None:
        queue.intake.place_due(queue, messages)
        queue.hold_bounds(len(messages))
        return
    while count := limit.fitting(queue, messages):
        queue.intake.place_due(queue, messages[:count])
        queue.hold_bounds(count)
        queue.dispatch()  # messages that waiting consumers take make room for the next ones
        messages = messages[count:]
    if messages:
        limit.refuse_late(queue, messages)


def reschedule(queue: "Queue", id_: int, delay_ms: int) -> bool:
    """Set when a scheduled message is due, as an operator asks. False: there is no such message."""
    message = queue.scheduled.take(id_)
    if message is None:
        return False
    due_ns = due_after(queue.context.broker.clock, delay_ms)
    queue.scheduled.add(due_ns, message)
    queue.events.scheduled((message,), (due_ns,), why="rescheduled")
    if delay_ms == 0:
        come_due(queue)
    await_due(queue)
    return True


def cancel(queue: "Queue", id_: int) -> bool:
    """Delete a scheduled message, as an operator asks. False: there is no such message."""
    message = queue.scheduled.take(id_)
    if message is None:
        return False
    queue.events.cancelled(message)
    await_due(queue)
    return True
