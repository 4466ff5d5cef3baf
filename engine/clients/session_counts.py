"""The counters of sessions. Source: management page 14."""

from collections.abc import Iterable
from operator import attrgetter


class SessionCounts:
    """Counts the messages of one or more sessions: `published`; unroutable ones `returned` to the publisher or
    `dropped`.

    Deliveries: `acked`; `redelivered`; without acknowledgement (`no_ack`); by basic.get (`got`, `got_no_ack`).
    `get_empty`: basic.get calls that found no message.
    """

    __slots__ = ("acked", "dropped", "get_empty", "got", "got_no_ack", "no_ack", "published", "redelivered", "returned")

    def __init__(self) -> None:
        self.published = self.returned = self.dropped = 0
        self.acked = self.no_ack = self.got = self.got_no_ack = self.redelivered = self.get_empty = 0


class PastSessions(SessionCounts):
    """The sums of all closed sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.confirmed = self.delivered = 0
        self._added: dict[SessionCounts, tuple[int, ...]] = {}  # of sessions that will count more

    def add(self, counts: SessionCounts, *, delivered: int, confirmed: int, is_over: bool = True) -> None:
        """Add a closed session. `is_over`: False: a commit of it is under way, and `add_later` follows."""
        found = _counts_of(counts)
        self._add(found)
        self.delivered += delivered
        self.confirmed += confirmed
        if not is_over:
            self._added[counts] = found

    def add_later(self, counts: SessionCounts) -> None:
        """Add what a session has counted since `add`, if it is closed."""
        before = self._added.pop(counts, None)
        if before is not None:
            self._add(now - then for now, then in zip(_counts_of(counts), before))

    def _add(self, counts: Iterable[int]) -> None:
        for name, count in zip(SessionCounts.__slots__, counts):
            if count:
                setattr(self, name, getattr(self, name) + count)


_counts_of = attrgetter(*SessionCounts.__slots__)
