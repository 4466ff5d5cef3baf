"""How long a returned message waits: the table and the bounds of address-settings page 5.1.

Also of the rows of address-settings page 8.4.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.engine.rules.queue_rules import QueueRules, redelivery_delay_ms

NEVER = 10**9

TABLE = [  # delay, multiplier, cap, waits for the failed deliveries 1 to 10 (address-settings page 5.1)
    (5000, 1.5, 50000, [5000, 7500, 11250, 16875, 25312, 37968, 50000, 50000, 50000, 50000]),
    (5000, 2, 15000, [5000, 10000, 15000, 15000, 15000, 15000, 15000, 15000, 15000, 15000]),
    (5000, 1.0, None, [5000] * 10),
    (1000, 2, None, [1000, 2000, 4000, 8000, 10000, 10000, 10000, 10000, 10000, 10000]),
    (100, 3, None, [100, 300, 900, 1000, 1000, 1000, 1000, 1000, 1000, 1000]),
    (1000, 10, None, [1000, 10000, 10000, 10000, 10000, 10000, 10000, 10000, 10000, 10000]),
    (500, 1.25, 2000, [500, 625, 781, 976, 1220, 1525, 1907, 2000, 2000, 2000]),
    (2000, 0.5, None, [2000, 1000, 500, 250, 125, 62, 31, 15, 7, 3]),
    (60000, 1, 50000, [50000] * 10),
    (1000, 2, 0, [0] * 10),
    (0, 5, 60000, [None] * 10),
]


@pytest.mark.parametrize("delay, multiplier, cap, waits", TABLE)
def test_the_formula(delay: int, multiplier: float, cap: int | None, waits: list[int | None]) -> None:
    """Every row of the table; n = 0 (released without counting) waits as n = 1."""
    rules = QueueRules(redelivery_delay_ms=delay, redelivery_delay_multiplier=multiplier, max_redelivery_delay_ms=cap)
    assert [redelivery_delay_ms(rules, attempts, 0.5) for attempts in range(1, 11)] == waits
    assert redelivery_delay_ms(rules, 0, 0.5) == waits[0]


@given(
    delay=st.integers(1, 10**9),
    multiplier=st.floats(0.01, 1e6),
    factor=st.floats(0, 1),
    attempts=st.integers(0, 10_000),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_d06_jitter_stays_in_its_range(
    delay: int, multiplier: float, factor: float, attempts: int, chance: float
) -> None:
    """Between wait x (1 - f) and wait x (1 + f), never above the cap, never negative, however large the numbers."""
    cap = 10 * delay
    plain = QueueRules(
        redelivery_delay_ms=delay, redelivery_delay_multiplier=multiplier, max_redelivery_delay_ms=NEVER**2
    )
    jittered = QueueRules(
        redelivery_delay_ms=delay,
        redelivery_delay_multiplier=multiplier,
        redelivery_collision_avoidance_factor=factor,
    )
    base = redelivery_delay_ms(plain, attempts, 0.5)
    wait = redelivery_delay_ms(jittered, attempts, chance)
    assert base is not None and wait is not None
    assert 0 <= wait <= cap
    low, high = base * (1 - factor), base * (1 + factor)
    assert min(low, cap) - 1 - low * 1e-9 <= wait <= min(high, cap) + 1 + high * 1e-9
