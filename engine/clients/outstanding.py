"""Which of a session's unacknowledged deliveries are of which queue: asked when a queue goes or is stated.

Deliveries and acknowledgements know nothing of this. A question looks at what was delivered since the one
before, so that each delivery is looked at once, however many queues are asked about.
"""

from collections.abc import Iterable

from ..delivery.consumer import holder_of
from ..messages.message import Message
from ..queues.queue import Queue, queue_of

#: So many tags of settled deliveries, beside twice what is out, are kept until all is looked at again.
SETTLED_MAX = 1000


class Outstanding:
    """Delivery tags of one session by queue, some of them settled by now. Empty at first."""

    __slots__ = ("_by_queue", "_size", "_up_to", "_withheld")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Look at all of them when somebody asks next: older tags may be out again."""
        self._by_queue: dict[Queue, dict[int, None]] = {}
        self._size = 0
        self._up_to = 0  # tags up to here were looked at
        self._withheld = 0  # of what the transaction withholds, so many were looked at

    def of(
        self, queue: Queue, unacked: dict[int, Message], withheld: dict[int, Message], committing: Iterable[Message]
    ) -> list[Message]:
        """Deliveries of `queue` that are out, or whose settling waits for a commit; in no order.

        `withheld`: by tag, what the transaction settles; `committing`: what is out by what a commit has left to do.
        O(those + what was delivered or settled since this was asked last).
        """
        if self._size > 2 * (len(unacked) + len(withheld)) + SETTLED_MAX:
            self.clear()
        self._look(unacked, withheld)
        tags = self._by_queue.pop(queue, {})
        found = {tag: message for tag in tags if (message := unacked.get(tag) or withheld.get(tag)) is not None}
        self._size -= len(tags) - len(found)
        if found:
            self._by_queue[queue] = dict.fromkeys(found)
        held = (one for one in committing if one.holder is not None and queue_of(holder_of(one)) is queue)
        return [*found.values(), *held]

    def _look(self, unacked: dict[int, Message], withheld: dict[int, Message]) -> None:
        """At what is new: both grow at their ends only."""
        seen = self._up_to
        for tag in reversed(unacked):
            if tag <= seen:
                break
            self._note(tag, unacked[tag])
            self._up_to = max(self._up_to, tag)
        count = len(withheld) - self._withheld
        for tag in reversed(withheld):
            if not count:
                break
            count -= 1
            self._note(tag, withheld[tag])
        self._withheld = len(withheld)

    def _note(self, tag: int, message: Message) -> None:
        tags = self._by_queue.setdefault(queue_of(holder_of(message)), {})
        if tag not in tags:
            tags[tag] = None
            self._size += 1

    def forget(self, queue: Queue) -> None:
        """The queue is gone."""
        self._size -= len(self._by_queue.pop(queue, ()))
