"""Input that was read but not handled yet: an interrupted event, and parked publishes. Source: rulings 5, 15."""

from typing import NamedTuple

from ..flow.parking import Parking, Work
from ..flow.steps import ConnectionTurn, Step
from ..peer.channel import CommitUnderWay


class Unfinished(NamedTuple):
    """The rest of an event. `since_ns`: when it arrived (monotonic), if it was parked before; else None."""

    event: Work
    since_ns: int | None


class Backlog:
    """Unhandled input. `unfinished`: the rest of an event that exceeded its turn; later events are handled after it.

    `parking`: parked work.
    """

    __slots__ = ("parking", "unfinished")

    def __init__(self, parking: Parking) -> None:
        self.parking = parking
        self.unfinished: Unfinished | None = None

    def clear(self) -> None:
        """End with the connection: drop all of it."""
        self.unfinished = None
        self.parking.end()

    def leave(self, rest: Work, turn: ConnectionTurn) -> Step:
        """Leave the rest of the current event to another turn."""
        self.unfinished = Unfinished(rest, turn.since_ns)
        return Step.UNFINISHED

    @property
    def is_waiting(self) -> bool:
        """Whether there is input that was read and is not handled."""
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
        """Whether `turn.handle_bytes` has to be called again for unhandled input, after other connections' turns."""
        if self.unfinished is not None:
            return not self.is_committing
        parking = self.parking
        return parking.has_unread or parking.next_ready() is not None or self.is_close_due

    @property
    def is_close_due(self) -> bool:
        """Whether the peer's connection.close had to wait and may be answered now."""
        parking = self.parking
        return parking.is_closing and self.unfinished is None and not parking.has_unconfirmed
