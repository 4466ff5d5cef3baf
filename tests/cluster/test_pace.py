"""How fast a leader reads from its files for a follower that is behind, by the clock and what publishers write."""

from collections.abc import Callable

import pytest

from leveret.cluster.link.feed import NEAR
from leveret.cluster.link.pace import SPREAD_RATE_MIN, SPREAD_S, Pace

MIB = 1024 * 1024
RATE = 100 * MIB


def seconds_until_near(behind: int, writes: Callable[[float], float], *, rate_max: int = RATE) -> float:
    """Read MiB after MiB, 5 ms each, until the rest is sent from memory. `writes`: second -> octets a second."""
    pace, now_s, written, read = Pace(rate_max), 0.0, 0.0, 0
    pace.begin(behind, 0, now_s)
    while read < behind + written - NEAR:
        before_s = now_s
        now_s = max(now_s + 0.005, pace.next_read_s(MIB, int(written + 0.005 * writes(now_s)), now_s))
        read += MIB
        written += writes(before_s) * (now_s - before_s)
        assert now_s < 600, "it does not catch up"
    return now_s


@pytest.mark.parametrize(
    "behind, writes, least_s, most_s",
    [
        (1200 * MIB, 0, 11, 13),
        (1200 * MIB, MIB // 2, 11, 13),
        (1200 * MIB, 2 * MIB, 0.95 * SPREAD_S, 1.05 * SPREAD_S),
        (1200 * MIB, 40 * MIB, 0.95 * SPREAD_S, 1.05 * SPREAD_S),
        (1200 * MIB, 90 * MIB, 0.95 * SPREAD_S, 1.05 * SPREAD_S),
        (64 * MIB, 40 * MIB, 3.5, 5),
        (12 * MIB, 40 * MIB, 0.2, 0.5),
        (8000 * MIB, 40 * MIB, 78, 85),
    ],
    ids=["idle", "nearly idle", "few", "many", "very many", "little is missing", "a moment", "more than fits"],
)
def test_a_copy_is_spread_while_clients_publish(behind: int, writes: int, least_s: float, most_s: float) -> None:
    """A gigabyte takes `SPREAD_S` beside publishers, however much they write, and no longer; alone it takes 12 s."""
    seconds = seconds_until_near(behind, lambda at_s: writes)
    assert least_s <= seconds <= most_s


def test_a_copy_that_was_hindered_makes_up_for_it() -> None:
    """Reads that were slow for some seconds are followed by faster ones: it is whole in the same time."""
    pace = Pace(RATE)
    pace.begin(1000 * MIB, 0, 0.0)
    now_s, read, written = 20.0, 0, 0  # nothing was read for 20 s
    while read < 1000 * MIB + written:
        written = int(now_s * 10 * MIB)
        read += MIB
        now_s = pace.next_read_s(MIB, written, now_s)
    assert 0.95 * SPREAD_S <= now_s <= 1.05 * SPREAD_S


def test_behind_its_time_a_copy_goes_at_the_full_rate() -> None:
    """A disk that was slower than planned does not make it take for ever."""
    pace = Pace(RATE)
    pace.begin(1000 * MIB, 0, 0.0)
    now_s, written = SPREAD_S + 1, 1000 * MIB
    pace.next_read_s(1000 * MIB, written, now_s)  # all that was written meanwhile
    waits = []
    for _ in range(50):
        now_s, written = now_s + 0.001, written + MIB // 10
        next_s = pace.next_read_s(MIB, written, now_s)
        waits.append(next_s - now_s)
        now_s = next_s
    assert waits[-1] == pytest.approx((MIB - MIB // 10) / RATE)


def test_when_publishers_pause_the_copy_goes_at_the_full_rate() -> None:
    """And at its own again when they are back."""
    seconds = seconds_until_near(1200 * MIB, lambda at_s: 0 if 5 < at_s < 10 else 20 * MIB)
    busy = seconds_until_near(1200 * MIB, lambda at_s: 0 if at_s > 5 else 20 * MIB)
    assert 0.95 * SPREAD_S <= seconds <= 1.05 * SPREAD_S and 12 <= busy <= 22


def test_it_is_never_faster_than_the_rate_for_copies() -> None:
    """A small rate holds, whatever would be needed to be whole in time."""
    seconds = seconds_until_near(100 * MIB, lambda at_s: 2 * MIB, rate_max=MIB)
    assert 90 <= seconds <= 100


def test_without_a_limit_it_never_waits() -> None:
    """`copy-rate = 0`: then it is not spread either."""
    pace = Pace(0)
    pace.begin(1000 * MIB, 0, 0.0)
    assert [pace.next_read_s(MIB, written, 5.0) for written in (0, MIB, 10 * MIB)] == [5.0, 5.0, 5.0]


def test_the_least_rate_of_a_spread_copy() -> None:
    """16 MiB a second: what is missed in a restart of a few seconds is there in a few seconds."""
    pace = Pace(RATE)
    pace.begin(32 * MIB, 0, 0.0)
    assert pace.next_read_s(MIB + 100_000, 100_000, 0.01) == pytest.approx(0.01 + MIB / SPREAD_RATE_MIN)


def test_what_publishers_wrote_is_made_up_for_later() -> None:
    """Octets that were written while one piece was read are read without waiting, also in several pieces."""
    pace = Pace(RATE)
    pace.begin(100 * MIB, 0, 0.0)
    assert [pace.next_read_s(MIB, 3 * MIB, now_s) for now_s in (0.01, 0.02, 0.03)] == [0.01, 0.02, 0.03]
    assert pace.next_read_s(MIB, 3 * MIB, 0.04) == pytest.approx(0.04 + 1 / 100)
