"""What was read of a peer and cannot be handled yet: unfinished work, and what is held. Source: rulings 5 and 15."""

from ..flow.parking import HoldArea, Work
from ..peer.channel import CommitUnderWay


class Backlog:
    """`unfinished`: the rest of an event that is too much for one turn; nothing behind it is read. `since_ns`: when it
    came (monotonic), if it was held before; else None.

    `area`: what is held.

    `is_cut`: the turn ended before everything that had been read was handled, because the `Effort` of the turn had
    reached its maximum.
    """

    __slots__ = ("area", "is_cut", "since_ns", "unfinished")

    def __init__(self, area: HoldArea) -> None:
        self.area = area
        self.unfinished: Work | None = None
        self.since_ns: int | None = None
        self.is_cut = False

    def clear(self) -> None:
        """The connection is over."""
        self.unfinished = None
        self.is_cut = False
        self.area.end()

    @property
    def is_waiting(self) -> bool:
        """Whether something has to be done, or may only be done later, that was read before."""
        return bool(self.area.channels) or self.unfinished is not None

    @property
    def is_committing(self) -> bool:
        """Whether a large commit is under way; the connection is flushed when it is done."""
        return type(self.unfinished) is CommitUnderWay and not self.unfinished.commit.is_done

    @property
    def has_more(self) -> bool:
        """Whether what was read is not all done: `turn.handle_bytes` is to be called again once others had turns."""
        if self.unfinished is not None:
            return not self.is_committing
        area = self.area
        return self.is_cut or area.has_unread or area.next_ready() is not None or self.is_goodbye_due

    @property
    def is_goodbye_due(self) -> bool:
        """Whether the peer's connection.close waited, and may be answered now."""
        area = self.area
        return area.says_goodbye and self.unfinished is None and not area.has_last_words

    def take_unfinished(self) -> Work | None:
        """The unfinished event, if it can be handled now; `area.since_ns` is as when it was begun."""
        if self.is_committing:
            return None
        event, self.unfinished = self.unfinished, None
        self.area.since_ns = self.since_ns
        return event
