"""What has happened on a session, in plain integers: one addition a run. Source: management page 14."""

from operator import attrgetter


class SessionCounts:
    """`published`: messages; `returned`, `dropped`: those of them that no queue took, by what became of them.

    `acked`: deliveries that the peer acknowledged. Of the deliveries: `no_ack` without acknowledgements, `got` to gets,
    `got_no_ack` both, `redelivered` not for the first time. `get_empty`: gets that got nothing.
    `confirmed`, `delivered`: all of them, only where sessions that are closed are summed up.
    """

    __slots__ = ("acked", "dropped", "get_empty", "got", "got_no_ack", "no_ack", "published", "redelivered", "returned")

    def __init__(self) -> None:
        self.published = self.returned = self.dropped = 0
        self.acked = self.no_ack = self.got = self.got_no_ack = self.redelivered = self.get_empty = 0


class PastSessions(SessionCounts):
    """Sums of sessions that are closed."""

    __slots__ = ("confirmed", "delivered")

    def __init__(self) -> None:
        super().__init__()
        self.confirmed = self.delivered = 0

    def add(self, counts: SessionCounts, *, delivered: int, confirmed: int) -> None:
        """Those of another session, which had so many deliveries and confirms."""
        for name, count in zip(SessionCounts.__slots__, _ALL_OF(counts)):
            if count:
                setattr(self, name, getattr(self, name) + count)
        self.delivered += delivered
        self.confirmed += confirmed


_ALL_OF = attrgetter(*SessionCounts.__slots__)
