"""The counters of sessions. Source: management page 14."""

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

    def add(self, counts: SessionCounts, *, delivered: int, confirmed: int) -> None:
        for name, count in zip(SessionCounts.__slots__, _counts_of(counts)):
            if count:
                setattr(self, name, getattr(self, name) + count)
        self.delivered += delivered
        self.confirmed += confirmed


_counts_of = attrgetter(*SessionCounts.__slots__)
