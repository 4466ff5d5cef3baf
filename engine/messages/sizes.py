"""A histogram of the body sizes that clients publish. Counting starts with the first request for it.

Source: management page 12.1, 14.
"""

from bisect import bisect_left
from collections.abc import Sequence

from .message import Envelope

#: Upper bounds of the buckets, in octets.
BODY_SIZE_BUCKETS = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)


class Sizes:
    """Counts published bodies by size.

    `counts`: number of bodies in each bucket, the last for bodies above all bounds. `octets`: of all bodies.

    Header and framing of each message of a run count as long as those of the first. This is exact except in mixed runs.
    Costs 0.3 us for one message, 0.05 us per message in long runs of equal size.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BODY_SIZE_BUCKETS) + 1)
        self.octets = 0

    def add(self, envelope: Envelope, contents: Sequence[bytes]) -> None:
        """Count a run of messages; `envelope`: that of the first message."""
        first = envelope.framing.body_size(contents[0])
        count, counts = len(contents), self.counts
        if count == 1:
            counts[bisect_left(BODY_SIZE_BUCKETS, first)] += 1
            self.octets += first
            return
        surplus = len(contents[0]) - first
        sizes = list(map(len, contents))
        self.octets += max(0, sum(sizes) - surplus * count)
        if len(set(sizes)) == 1:
            counts[bisect_left(BODY_SIZE_BUCKETS, first)] += count
            return
        for size in sizes:
            counts[bisect_left(BODY_SIZE_BUCKETS, size - surplus)] += 1
