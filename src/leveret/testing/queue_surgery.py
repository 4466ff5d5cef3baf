"""Removal of messages from the middle of a queue, which clients cannot do."""

from collections.abc import Callable, Iterator

from ..engine import Message, Queue

#: Messages read in one slice.
SLICE = 1000


def take_ready(queue: Queue, is_meant: Callable[[Message], bool]) -> list[Message]:
    """Remove the selected ready messages of a queue. Returns them. Raises: ValueError: the queue is a stream."""
    meant = [(position, message) for position, message in _scan_all(queue) if is_meant(message)]
    if meant:
        if queue.first_offset is not None:
            raise ValueError(f"{queue.name} is a stream: its messages cannot be removed one by one")
        gone = queue.evictable.take_at([position for position, _ in meant])
        queue.events.purged(gone.messages, gone.unread)
    return [message for _, message in meant]


def _scan_all(queue: Queue) -> Iterator[tuple[int, Message]]:
    """All ready messages, by position."""
    store, after = queue.store, 0
    while True:
        found, is_paged_out = store.scan(after, SLICE)
        yield from found
        if found:
            after = found[-1][0]
        if is_paged_out:
            store.load_at(after, SLICE)
        elif not found:
            return
