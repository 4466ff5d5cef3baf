"""Samples of integers over time: the last two, for rates, and as many as a range may ask for.

Source: management page 5.

A sample is stored only when a value has changed, so that an idle object costs nothing.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

#: (seconds between two samples, number of samples): five minutes, an hour, a day.
LONG = ((1, 300), (5, 720), (60, 1440))
SHORT = ((1, 61),)
#: A minute, and ten minutes.
MEDIUM = ((1, 61), (5, 120))
#: An hour, and a day.
OF_NODE = LONG[1:]


@dataclass(slots=True)
class _Level:
    """Samples with at least this many seconds between them, oldest first."""

    step_ms: int
    count_max: int
    times: list[int]
    samples: list["array[int]"]

    def add(self, at_ms: int, sample: "array[int]") -> None:
        if self.times and at_ms - self.times[-1] < self.step_ms:
            return
        self.times.append(at_ms)
        self.samples.append(sample)
        if len(self.times) >= self.count_max * 2:  # in one go, so that it is O(1) a sample
            del self.times[: -self.count_max], self.samples[: -self.count_max]


class Series:
    """The samples of one object. `latest`: the newest values; `changed_ms`: when they changed."""

    __slots__ = ("_before", "_levels", "_recorded_ms", "_period_ms", "changed_ms", "latest")

    def __init__(self, at_ms: int, values: Sequence[int], levels: Sequence[tuple[int, int]]) -> None:
        self.latest = tuple(values)
        self._before = self.latest
        self._recorded_ms, self._period_ms = at_ms, 0
        self.changed_ms = at_ms
        self._levels = [_Level(seconds * 1000, count, [], []) for seconds, count in levels]
        self._note(at_ms)

    def record(self, at_ms: int, values: Sequence[int]) -> None:
        self._before, self.latest = self.latest, tuple(values)
        before_ms = self._recorded_ms
        self._period_ms, self._recorded_ms = at_ms - before_ms, at_ms
        if self.latest != self._before:
            if self.changed_ms < before_ms:
                self._note(before_ms, self._before)  # the values were the same until then
            self.changed_ms = at_ms
            self._note(at_ms)

    def _note(self, at_ms: int, values: Sequence[int] | None = None) -> None:
        sample = array("q", self.latest if values is None else values)
        for level in self._levels:
            level.add(at_ms, sample)

    def rate(self, index: int) -> float:
        """Per second, between the last two samples; 0 until there are two."""
        if self._period_ms <= 0:
            return 0.0
        return round((self.latest[index] - self._before[index]) * 1000 / self._period_ms, 3)

    @property
    def since_ms(self) -> int:
        """The time of the oldest sample that is kept."""
        return min((level.times[0] for level in self._levels), default=self._recorded_ms)

    def at(self, index: int, at_ms: int) -> int | None:
        """The value at a time; None: before the first stored sample."""
        for level in self._levels:
            place = bisect_right(level.times, at_ms)
            if place:
                return level.samples[place - 1][index]
        return None
