"""The samples of an object's counters: the last two for rates, and older ones, at several resolutions, for ranges.

A sample for ranges is stored only when a value has changed, so that an idle object costs nothing. Source: management
page 5.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

#: The resolutions at which samples are kept, as (seconds between two samples, number of samples).
Resolutions = Sequence[tuple[int, int]]
DAY: Resolutions = ((1, 300), (5, 720), (60, 1440))
HOUR = DAY[:2]
TEN_MINUTES: Resolutions = ((1, 61), (5, 120))
MINUTE = TEN_MINUTES[:1]
NO_RANGE: Resolutions = ()


@dataclass(slots=True)
class _Resolution:
    """Samples that are at least `step_ms` apart, oldest first, at least the last `count_max`."""

    step_ms: int
    count_max: int
    times: list[int]
    samples: list["array[int]"]

    def add(self, at_ms: int, sample: "array[int]") -> None:
        if self.times and at_ms - self.times[-1] < self.step_ms:
            return
        self.times.append(at_ms)
        self.samples.append(sample)
        if len(self.times) >= self.count_max * 2:  # delete half of them at once: O(1) for each sample
            del self.times[: -self.count_max], self.samples[: -self.count_max]


class Series:
    """The samples of one object. `latest`: the newest values. `recorded_ms`: their time.

    `changed_ms`: the time of the last change.
    """

    __slots__ = ("_before", "_resolutions", "recorded_ms", "_period_ms", "changed_ms", "latest")

    def __init__(self, at_ms: int, values: Sequence[int], resolutions: Resolutions) -> None:
        self.latest = tuple(values)
        self._before = self.latest
        self.recorded_ms, self._period_ms = at_ms, 0
        self.changed_ms = at_ms
        self._resolutions = [_Resolution(seconds * 1000, count, [], []) for seconds, count in resolutions]
        self._note(at_ms)

    def record(self, at_ms: int, values: Sequence[int]) -> None:
        self._before, self.latest = self.latest, tuple(values)
        before_ms = self.recorded_ms
        self._period_ms, self.recorded_ms = at_ms - before_ms, at_ms
        if self.latest != self._before:
            if self.changed_ms < before_ms:
                self._note_unchanged(before_ms)
            self.changed_ms = at_ms
            self._note(at_ms)

    def _note(self, at_ms: int) -> None:
        sample = array("q", self.latest)
        for one in self._resolutions:
            one.add(at_ms, sample)

    def _note_unchanged(self, until_ms: int) -> None:
        """Note that the values were the same from their last change on.

        A coarse resolution may lack that change, because it had a sample shortly before. It gets one as soon as its
        step allows, or it would show the earlier values for all of the time.
        """
        sample = array("q", self._before)
        for one in self._resolutions:
            one.add(min(until_ms, max(self.changed_ms, one.times[-1] + one.step_ms)), sample)
            one.add(until_ms, sample)

    def rate(self, index: int) -> float:
        """The rate of a value per second, between the last two samples; 0 until there are two."""
        if self._period_ms <= 0:
            return 0.0
        return round((self.latest[index] - self._before[index]) * 1000 / self._period_ms, 3)

    @property
    def since_ms(self) -> int:
        """The time of the oldest sample that is kept."""
        return min((one.times[0] for one in self._resolutions), default=self.recorded_ms)

    def lowest(self, index: int, since_ms: int, until_ms: int) -> int | None:
        """The lowest stored value between two times; None: `since_ms` is before the first stored sample."""
        for one in self._resolutions:
            end = bisect_right(one.times, since_ms)
            if end:
                return min(sample[index] for sample in one.samples[end - 1 : bisect_right(one.times, until_ms)])
        return None

    def at(self, index: int, at_ms: int) -> int | None:
        """The value that was stored last before a time; None: the time is before the first stored sample."""
        for one in self._resolutions:
            end = bisect_right(one.times, at_ms)
            if end:
                return one.samples[end - 1][index]
        return None


class SumOfSeries:
    """The sum of the samples of several objects."""

    def __init__(self, series: Sequence[Series]) -> None:
        self._series = series

    def rate(self, index: int) -> float:
        return round(sum(one.rate(index) for one in self._series), 3)

    def at(self, index: int, at_ms: int) -> int | None:
        known = [value for one in self._series if (value := one.at(index, at_ms)) is not None]
        return sum(known) if known else None
