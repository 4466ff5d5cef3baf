"""Changes of queues during work that takes several turns: a checkpoint, or the emptying of a segment."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import NamedTuple

from ...engine import DeliveredEvent, Envelope, Event, Message, Queue, RequeuedEvent, ScheduledEvent


class QueueChanges(NamedTuple):
    """Changes of a queue since a checkpoint began to state it.

    gone: ids of messages that left it. changed: message id -> the message, whose counts changed, and its due time
    (monotonic ns, 0: none).
    """

    gone: set[int]
    changed: dict[int, tuple[Message, int]]


class ConcurrentChanges:
    """Notes changes while `watch` or `departures` needs them; otherwise each call costs a comparison with None."""

    def __init__(self) -> None:
        self._of_queue: QueueChanges | None = None
        self._queue = ("", "")  # virtual host and name of that queue
        self._departed: set[tuple[int, int]] | None = None
        self._departed_below = 0

    def watch(self, queue: Queue | None) -> QueueChanges:
        """Note the later changes of this queue in the returned value; None: stop."""
        changes = QueueChanges(set(), {})
        self._of_queue = None if queue is None else changes
        self._queue = ("", "") if queue is None else (queue.vhost_name, queue.name)
        return changes

    @contextmanager
    def departures(self, below: int) -> Iterator[set[tuple[int, int]]]:
        """Note (queue id, message id) of each message with an id below this one that leaves a durable queue.

        Departures while the recorder `is_behind` are not noted.
        """
        self._departed, self._departed_below = set(), below
        try:
            yield self._departed
        finally:
            self._departed = None

    def note_gone(self, event: Event, queue_id: int, ids: Sequence[int]) -> None:
        """Note that persistent messages left a durable queue."""
        if self._of_queue is not None and self._queue == (event.vhost, event.subject):
            self._of_queue.gone.update(ids)
        if self._departed is not None:
            below = self._departed_below
            if isinstance(ids, range):
                ids = range(ids.start, min(ids.stop, below), ids.step)
            self._departed.update((queue_id, id_) for id_ in ids if id_ < below)

    def note_changed(self, event: DeliveredEvent | RequeuedEvent | ScheduledEvent) -> None:
        """Note that delivery counts or due times of messages changed."""
        if self._of_queue is None or isinstance(event.run, Envelope):
            return
        if self._queue == (event.vhost, event.subject):
            due_ns = event.due_ns if isinstance(event, ScheduledEvent) else repeat(0)
            self._of_queue.changed.update((message.id, (message, due)) for message, due in zip(event.run, due_ns))
