"""Mixed runs: consecutive messages with one envelope each. On the hot path of busy publishers."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TypeAlias

from .message import Envelope

#: The envelopes of a run: one that all its messages share, or one for each.
Envelopes: TypeAlias = Envelope | Sequence[Envelope]


def each_of(envelopes: Envelopes) -> Iterable[Envelope]:
    """One envelope for each message; an endless iterator if they share one."""
    return repeat(envelopes) if isinstance(envelopes, Envelope) else envelopes


def stretches_alike(envelopes: Sequence[Envelope]) -> Iterator[tuple[int, int, Envelope]]:
    """The stretches that share one envelope: offset of the first message, offset after the last, envelope."""
    start = 0
    last = envelopes[0]
    for offset, envelope in enumerate(envelopes):
        if envelope is not last:
            yield start, offset, last
            start, last = offset, envelope
    yield start, len(envelopes), last
