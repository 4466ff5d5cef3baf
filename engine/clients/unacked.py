"""The unacknowledged deliveries of a session, by tag."""

from itertools import islice, takewhile

from ..errors import UnknownDeliveryTag
from ..messages.message import Message


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
