"""The unacknowledged deliveries of a session, by tag, and by queue for the deletion or the snapshot of a queue."""

from collections.abc import Iterable
from itertools import islice, takewhile

from ..delivery.consumer import holder_of
from ..errors import UnknownDeliveryTag
from ..messages.message import Message
from ..queues.queue import Queue

#: Settled tags tolerated, beyond twice the unacknowledged deliveries, before the index is built again.
SETTLED_MAX = 1000


class Unacked(dict[int, Message]):
    """Tag -> message, in order of delivery: tags rise."""

    __slots__ = ()

    def take(self, tag: int, *, multiple: bool, uncommitted: dict[int, Message] | None) -> list[Message]:
        """Remove and return the messages that a tag names. O(result), without a loop in Python.

        `uncommitted`: receives them with their tags. Raises: UnknownDeliveryTag.
        """
        if multiple and tag == 0:
            tags = list(self)
        elif tag not in self:
            raise UnknownDeliveryTag(tag=tag)
        elif multiple:
            tags = list(islice(self, tag - next(iter(self)) + 1))
            if tags[-1] != tag:  # some tags between them are settled
                tags = list(takewhile(tag.__ge__, self))
        else:
            tags = [tag]
        taken = list(map(self.pop, tags))
        if uncommitted is not None:
            uncommitted.update(zip(tags, taken))
        return taken

    def take_all(self) -> list[Message]:
        """Remove and return all messages."""
        taken = list(self.values())
        self.clear()
        return taken

    def put_back(self, uncommitted: dict[int, Message]) -> None:
        """Put messages back under their tags, in order."""
        tags = sorted([*self.items(), *uncommitted.items()])
        self.clear()
        self.update(tags)


class Outstanding:
    """An index of delivery tags of one session by queue; some of the tags may be settled already.

    Deliveries and acknowledgements do not update it. A query reads the deliveries since the last query, so that each is
    read once for queries about any number of queues.
    """

    __slots__ = ("_by_queue", "_size", "_uncommitted_seen", "_up_to")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Reset the index: older tags may be unacknowledged again, so the next query reads all deliveries."""
        self._by_queue: dict[Queue, dict[int, None]] = {}
        self._size = 0
        self._up_to = 0  # the highest tag that was read
        self._uncommitted_seen = 0  # number of the transaction's deliveries that were read

    def of(
        self, queue: Queue, unacked: dict[int, Message], uncommitted: dict[int, Message], committing: Iterable[Message]
    ) -> list[Message]:
        """Deliveries of `queue` that are unacknowledged, or whose settlement waits for a commit; unordered.

        `uncommitted`: by tag, deliveries that the open transaction settles; `committing`: those that a commit will
        settle. O(result + deliveries made or settled since the last query).
        """
        if self._size > 2 * (len(unacked) + len(uncommitted)) + SETTLED_MAX:
            self.clear()
        self._look(unacked, uncommitted)
        tags = self._by_queue.pop(queue, {})
        found = {tag: message for tag in tags if (message := unacked.get(tag) or uncommitted.get(tag)) is not None}
        self._size -= len(tags) - len(found)
        if found:
            self._by_queue[queue] = dict.fromkeys(found)
        held = (one for one in committing if one.holder is not None and holder_of(one).queue is queue)
        return [*found.values(), *held]

    def _look(self, unacked: dict[int, Message], uncommitted: dict[int, Message]) -> None:
        """Add new deliveries to the index: both dicts grow at their ends only."""
        seen = self._up_to
        for tag in reversed(unacked):
            if tag <= seen:
                break
            self._note(tag, unacked[tag])
            self._up_to = max(self._up_to, tag)
        count = len(uncommitted) - self._uncommitted_seen
        for tag in reversed(uncommitted):
            if not count:
                break
            count -= 1
            self._note(tag, uncommitted[tag])
        self._uncommitted_seen = len(uncommitted)

    def _note(self, tag: int, message: Message) -> None:
        tags = self._by_queue.setdefault(holder_of(message).queue, {})
        if tag not in tags:
            tags[tag] = None
            self._size += 1

    def forget(self, queue: Queue) -> None:
        """Remove a deleted queue."""
        self._size -= len(self._by_queue.pop(queue, ()))
