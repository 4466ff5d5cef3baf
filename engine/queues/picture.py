"""Snapshots of the messages of a queue, for a journal: for its checkpoints, and to find where messages are."""

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


def picture_of(queue: "Queue") -> Picture:
    messages, parts = [*queue.messages()], []
    if not queue.keeps_acked:  # there the deliveries are copies
        messages += queue.unacked_messages()
    for part in queue.store.paged_parts():
        if isinstance(part, Message):
            messages.append(part)
        elif part.location is None:  # the others are in the temp store, which ends with the process
            parts.append(part)
    due = {message.id: due_ns for due_ns, message in queue.scheduled.entries()}
    is_interleaved = bool(parts) and (queue.store.level_max > 0 or any(part.attempts for part in parts))
    return Picture(messages, parts, due, is_interleaved)
