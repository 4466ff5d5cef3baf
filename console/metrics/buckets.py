"""Histograms, counted when values occur and read when the pages of metrics are."""

from bisect import bisect_left

#: Bounds for the event loop's delays, in seconds; a turn has a budget of 5 ms.
DELAYS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Buckets:
    """Counts values. `bounds`: upper bounds of the buckets. `counts`: values in each bucket, not cumulative."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last bucket is above all bounds
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times
