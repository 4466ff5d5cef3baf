"""How large the bodies are that clients publish: a histogram, kept from the moment somebody asks for it first.

Source: management page 12.1, 14.
"""

from bisect import bisect_left
from collections.abc import Sequence

from .message import Envelope

#: Upper bounds of its buckets, in octets.
BOUNDS = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)


class Sizes:
    """`counts`: by the bounds, the last one above all of them; `octets`: of all bodies together.

    What is beside the body, header and framing, is taken to be as large in a whole run as in its first message: exact
    but for mixed runs. Some 0.3 us for one message, 0.05 us each in long runs that are alike.
    """

    __slots__ = ("counts", "octets")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.octets = 0

    def add(self, envelope: Envelope, blobs: Sequence[bytes]) -> None:
        """A run of messages; `envelope`: of the first of them."""
        first = envelope.framing.body_size(blobs[0])
        count, counts = len(blobs), self.counts
        if count == 1:
            counts[bisect_left(BOUNDS, first)] += 1
            self.octets += first
            return
        beside = len(blobs[0]) - first
        sizes = list(map(len, blobs))
        self.octets += max(0, sum(sizes) - beside * count)
        if len(set(sizes)) == 1:
            counts[bisect_left(BOUNDS, first)] += count
            return
        for size in sizes:
            counts[bisect_left(BOUNDS, size - beside)] += 1
