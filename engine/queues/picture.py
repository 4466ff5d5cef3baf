"""Snapshots of the messages of a queue, for the checkpoints of a journal and for moving contents."""

from typing import TYPE_CHECKING

from ...settings.frozen import frozen
from ..messages.message import Message
from ..stores.paged_run import Part

if TYPE_CHECKING:
    from .queue import Queue


@frozen
class Picture:
    """The messages of a queue at one moment, in any order. Later changes of the queue do not affect it.

    `messages`: those in memory: ready, scheduled, unacknowledged. `parts`: those that are only in the journal, ids
    rising in each part. `due`: when scheduled messages are due (monotonic ns), by id. `is_interleaved`: ids of parts
    may lie between those of other parts or messages.
    """

    messages: list[Message]
    parts: list[Part]
    due: dict[int, int]
    is_interleaved: bool


def picture(queue: "Queue") -> Picture:
    """The picture of a queue whose unacknowledged messages are in no store."""
    return _picture(queue, queue.unacked_messages())


def picture_of_kept(queue: "Queue") -> Picture:
    """The picture of a queue that keeps acknowledged messages: deliveries are copies."""
    return _picture(queue, [])


def _picture(queue: "Queue", out: list[Message]) -> Picture:
    messages, parts = [*queue.messages(), *out], []
    for part in queue.store.paged_parts():
        if isinstance(part, Message):
            messages.append(part)
        elif part.location is None:  # otherwise in the temp store, which ends with the process
            parts.append(part)
    due = {message.id: due_ns for due_ns, message in queue.scheduled.entries()}
    is_interleaved = bool(parts) and (queue.store.level_max > 0 or any(part.attempts for part in parts))
    return Picture(messages, parts, due, is_interleaved)
