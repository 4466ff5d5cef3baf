"""The unacknowledged deliveries of a session, by tag, and by queue for the deletion or the snapshot of a queue."""

from collections.abc import Iterable
from itertools import islice, takewhile

from ..delivery.consumer import holder_of
from ..errors import UnknownDeliveryTag
from ..messages.message import Message
from ..queues.queue import Queue

#: Settled tags that the index may have beyond twice the number of unacknowledged deliveries. Then it is rebuilt.
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
        taken = list(self.values())
        self.clear()
        return taken

    def put_back(self, uncommitted: dict[int, Message]) -> None:
        """Put messages back under their tags, in order."""
        tags = sorted([*self.items(), *uncommitted.items()])
        self.clear()
        self.update(tags)


class UnackedIndex:
    """The delivery tags of one session by queue. Some of the tags may be settled already.

    Deliveries and acknowledgements do no work for it: a query adds the deliveries since the last query.
    """

    __slots__ = ("_by_queue", "_size", "_uncommitted_seen", "_up_to")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Reset the index, because a rollback or commit changed older tags. The next query reads all deliveries."""
        self._by_queue: dict[Queue, dict[int, None]] = {}
        self._size = 0
        self._up_to = 0  # the highest tag that was read
        self._uncommitted_seen = 0  # number of the transaction's deliveries that were read

    def of(
        self, queue: Queue, unacked: dict[int, Message], uncommitted: dict[int, Message], committing: Iterable[Message]
    ) -> list[Message]:
        """The deliveries of a queue that are unacknowledged, or whose settlement is not committed; unordered.

        `uncommitted`: deliveries that the open transaction settles, by tag; `committing`: those that a commit in
        progress will settle. O(result + deliveries made or settled since the last query).
        """
        self._follow(unacked, uncommitted)
        tags = self._by_queue.pop(queue, {})
        found = {tag: message for tag in tags if (message := unacked.get(tag) or uncommitted.get(tag)) is not None}
        self._size -= len(tags) - len(found)
        if found:
            self._by_queue[queue] = dict.fromkeys(found)
        of_commit = (one for one in committing if one.holder is not None and holder_of(one).queue is queue)
        return [*found.values(), *of_commit]

    def first(
        self, queue: Queue, count: int, unacked: dict[int, Message], uncommitted: dict[int, Message]
    ) -> list[Message]:
        """At most `count` of the deliveries of a queue that are unacknowledged, those with the lowest tags.

        O(count + deliveries made or settled since the last query).
        """
        self._follow(unacked, uncommitted)
        tags = self._by_queue.get(queue, {})
        found: list[Message] = []
        settled: list[int] = []
        for tag in tags:
            message = unacked.get(tag) or uncommitted.get(tag)
            if message is None:
                settled.append(tag)
                continue
            found.append(message)
            if len(found) >= count:
                break
        for tag in settled:
            del tags[tag]
        self._size -= len(settled)
        return found

    def _follow(self, unacked: dict[int, Message], uncommitted: dict[int, Message]) -> None:
        """Add the deliveries since the last query. Begin anew if too many of the tags are settled."""
        if self._size > 2 * (len(unacked) + len(uncommitted)) + SETTLED_MAX:
            self.clear()
        self._add_new(unacked, uncommitted)

    def _add_new(self, unacked: dict[int, Message], uncommitted: dict[int, Message]) -> None:
        """Add new deliveries to the index: both dicts grow at their ends only."""
        new = list(takewhile(self._up_to.__lt__, reversed(unacked)))
        for tag in reversed(new):  # tags of a queue rise
            self._add(tag, unacked[tag])
        self._up_to = new[0] if new else self._up_to
        count = len(uncommitted) - self._uncommitted_seen
        for tag in reversed(uncommitted):
            if not count:
                break
            count -= 1
            self._add(tag, uncommitted[tag])
        self._uncommitted_seen = len(uncommitted)

    def _add(self, tag: int, message: Message) -> None:
        tags = self._by_queue.setdefault(holder_of(message).queue, {})
        if tag not in tags:
            tags[tag] = None
            self._size += 1

    def forget(self, queue: Queue) -> None:
        """Remove a deleted queue."""
        self._size -= len(self._by_queue.pop(queue, ()))
