"""The counters of a session: plain integers, one addition a run. Source: management page 14."""

from operator import attrgetter


class SessionCounts:
    """`published`: messages; `returned`, `dropped`: unroutable ones, returned to the publisher or dropped.

    `acked`: acknowledged deliveries. Deliveries of each kind: `no_ack` without acknowledgements, `got` by basic.get,
    `got_no_ack` by basic.get without acknowledgement, `redelivered` not for the first time. `get_empty`: gets without a
    message.
    """

    __slots__ = ("acked", "dropped", "get_empty", "got", "got_no_ack", "no_ack", "published", "redelivered", "returned")

    def __init__(self) -> None:
        self.published = self.returned = self.dropped = 0
        self.acked = self.no_ack = self.got = self.got_no_ack = self.redelivered = self.get_empty = 0


class PastSessions(SessionCounts):
    """Sums of closed sessions. `confirmed`, `delivered`: all their confirms and deliveries."""

    __slots__ = ("confirmed", "delivered")

    def __init__(self) -> None:
        super().__init__()
        self.confirmed = self.delivered = 0

    def add(self, counts: SessionCounts, *, delivered: int, confirmed: int) -> None:
        """Add the counts of a closed session, with its numbers of deliveries and confirms."""
        for name, count in zip(SessionCounts.__slots__, _ALL_OF(counts)):
            if count:
                setattr(self, name, getattr(self, name) + count)
        self.delivered += delivered
        self.confirmed += confirmed


_ALL_OF = attrgetter(*SessionCounts.__slots__)
