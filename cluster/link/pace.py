"""How fast a leader reads from its files for a follower that is behind. Pure.

The copy shares disks, network and processors with publishers. While they publish, it is spread over `SPREAD_S`, so that
most of the machine is left to them; else it goes on at `copy-rate`. What publishers write meanwhile is read in
addition, without waiting, so a follower catches up however fast they are.
"""

#: Seconds over which a copy is spread while clients publish, from where the follower fell behind.
SPREAD_S = 40.0
#: A copy is not made slower than this, in octets a second: a short one is over soon in any case.
SPREAD_RATE_MIN = 16 * 1024 * 1024
#: Clients publish when the journal gets more than this many octets a second.
BUSY_RATE = 1024 * 1024


class Pace:
    """When to read next. `rate_max`: octets a second; 0: no limit, reads never wait. Times are in seconds."""

    __slots__ = ("_behind", "_next_s", "_rate_max", "_read_s", "_until_s", "_written", "_written_unread")

    def __init__(self, rate_max: int) -> None:
        self._rate_max = rate_max
        self._behind = 0  # octets that the follower lacked at `begin`, without those that were read since
        self._written = 0  # octets that the journal's writer has written in total
        self._written_unread = 0  # of these, written since `begin` and not made up for by a read
        self._until_s = self._read_s = self._next_s = 0.0

    def begin(self, behind: int, written: int, now_s: float) -> None:
        """Begin to read for a follower that lacks `behind` octets. `written`: octets that were ever written."""
        self._behind, self._written, self._written_unread = behind, written, 0
        self._read_s, self._until_s = now_s, now_s + SPREAD_S

    def next_read_s(self, octets: int, written: int, now_s: float) -> float:
        """The time of the next read, after one of `octets` that began at `now_s`: perhaps one that is over."""
        fresh, self._written = written - self._written, written
        is_busy = fresh > BUSY_RATE * (now_s - self._read_s)
        self._read_s = now_s
        unread = self._written_unread + fresh
        self._written_unread = max(0, unread - octets)
        octets = max(0, octets - unread)
        rate = self._rate(now_s) if is_busy else self._rate_max
        self._behind = max(0, self._behind - octets)
        self._next_s = max(self._next_s, now_s) + (octets / rate if rate else 0.0)
        return self._next_s

    def _rate(self, now_s: float) -> float:
        """Octets a second with which the copy is whole at `_until_s`, within the limits."""
        left_s = self._until_s - now_s
        if left_s <= 0:
            return self._rate_max
        return min(self._rate_max, max(SPREAD_RATE_MIN, self._behind / left_s))
