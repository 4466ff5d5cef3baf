"""Histogram of the durations of syncs; its cost is negligible beside a sync."""

from bisect import bisect_left

#: Upper bounds of its buckets, in seconds.
SYNC_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class SyncTimes:
    """`counts`: syncs for each bound, and those above the last bound; `seconds`: their sum."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(SYNC_SECONDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count a sync."""
        self.counts[bisect_left(SYNC_SECONDS, seconds)] += 1
        self.seconds += seconds
