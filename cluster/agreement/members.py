"""What a leader knows of one follower: what it has acknowledged, and since when it owes an answer."""

from dataclasses import dataclass

from .timers import Timers


@dataclass(slots=True)
class Member:
    """A follower that has, or should have, a link to this leader."""

    since_ns: int  # the link was opened or closed, or the leader's broker began
    heard_ns: int  # the last beacon or acknowledgement
    acked: int = 0  # it has fsynced everything below, in this leader's term
    is_linked: bool = False
    is_gone: bool = False  # its process is: its link refuses connections
    owed: int = 0  # what it has to acknowledge, and since when it owes that
    owed_ns: int | None = None
    mark: int = 0  # what was agreed at `mark_ns`: how far behind is a follower that has acknowledged that?
    mark_ns: int = 0
    lost: int = 0  # its journal was put back: it lacks records below that it had acknowledged; 0: it lacks none

    def open(self, now_ns: int, end: int, agreed: int) -> None:
        """It joined. A journal that ends before what it had acknowledged was put back."""
        self.since_ns = self.heard_ns = self.mark_ns = now_ns
        self.acked, self.mark = min(self.acked, end), agreed
        self.is_linked, self.is_gone, self.owed_ns = True, False, None

    @property
    def is_put_back(self) -> bool:
        """Whether it lacks records that it had acknowledged: it may not count as a member that has them."""
        return self.acked < self.lost

    def close(self, now_ns: int, timers: Timers) -> None:
        """Note that the member's link is gone; its process may still run. A member that was overdue stays overdue."""
        if self.is_linked:
            before_ns = self.overdue_ns(timers) - timers.join_patience_ns
            self.is_linked, self.since_ns, self.owed_ns = False, now_ns, None
            if before_ns + timers.join_patience_ns <= now_ns:
                self.since_ns = before_ns

    def owe(self, now_ns: int, lsn: int) -> None:
        """The leader has fsynced everything below `lsn`."""
        if self.owed_ns is None and self.acked < lsn:
            self.owed, self.owed_ns = lsn, now_ns

    def acknowledge(self, now_ns: int, lsn: int) -> None:
        """It has fsynced everything below `lsn`."""
        self.heard_ns = now_ns
        self.acked = max(self.acked, lsn)
        if self.owed_ns is not None and self.acked >= self.owed:
            self.owed_ns = None

    def is_close(self, now_ns: int, agreed: int, within_ns: int) -> bool:
        """Whether it is at most so far behind what is agreed: then waiting for it stalls no confirm for longer."""
        if self.acked >= agreed:
            return True
        if self.acked < self.mark:
            return False
        is_close = now_ns - self.mark_ns <= within_ns
        self.mark, self.mark_ns = agreed, now_ns
        return is_close

    def overdue_ns(self, timers: Timers) -> int:
        """From when on it counts as one that does not answer."""
        if self.is_gone:
            return self.since_ns
        if not self.is_linked:
            return self.since_ns + timers.join_patience_ns
        owed_ns = self.heard_ns if self.owed_ns is None else min(self.heard_ns, self.owed_ns)
        return owed_ns + timers.ack_deadline_ns
