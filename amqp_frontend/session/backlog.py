"""What was read of a peer and is not handled yet: the rest of an event, and what is parked. Source: rulings 5, 15."""

from typing import NamedTuple

from ..flow.parking import Parking, Work
from ..flow.steps import Step, Turn
from ..peer.channel import CommitUnderWay


class Unfinished(NamedTuple):
    """The rest of an event. `since_ns`: when it came (monotonic), if it was parked before; else None."""

    event: Work
    since_ns: int | None


class Backlog:
    """`unfinished`: what was too much for one turn; nothing behind it is handled before. `parking`: what is parked.

    `step`: why the last turn ended.
    """

    __slots__ = ("parking", "step", "unfinished")

    def __init__(self, parking: Parking) -> None:
        self.parking = parking
        self.unfinished: Unfinished | None = None
        self.step = Step.DONE

    def clear(self) -> None:
        """The connection is over."""
        self.unfinished = None
        self.step = Step.DONE
        self.parking.end()

    def leave(self, rest: Work, turn: Turn) -> Step:
        """The rest of the event that is handled now is for another turn."""
        self.unfinished = Unfinished(rest, turn.since_ns)
        return Step.UNFINISHED

    @property
    def is_waiting(self) -> bool:
        """Whether something has to be done, or may only be done later, that was read before."""
        return bool(self.parking.channels) or self.unfinished is not None

    @property
    def is_committing(self) -> bool:
        """Whether a large commit is under way; the connection is flushed when it is done."""
        if self.unfinished is None:
            return False
        event = self.unfinished.event
        return type(event) is CommitUnderWay and not event.commit.is_done

    @property
    def has_more(self) -> bool:
        """Whether what was read is not all done: `turn.handle_bytes` is to be called again once others had turns."""
        if self.unfinished is not None:
            return not self.is_committing
        parking = self.parking
        return self.step is Step.CUT or parking.has_unread or parking.next_ready() is not None or self.is_goodbye_due

    @property
    def is_goodbye_due(self) -> bool:
        """Whether the peer's connection.close waited, and may be answered now."""
        parking = self.parking
        return parking.is_closing and self.unfinished is None and not parking.has_unconfirmed
