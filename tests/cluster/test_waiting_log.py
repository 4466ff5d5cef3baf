"""A node that serves no clients says why, at a calm rate."""

import logging
import re

import pytest
import trio
import trio.testing

from leveret.serving.served_node import CHECKS_A_LINE, CHECKS_TO_FIRST_LINE, SERVED_CHECK_S, log_waiting

FIRST_S = CHECKS_TO_FIRST_LINE * SERVED_CHECK_S


@pytest.mark.parametrize(
    "waits, lines_at",
    [
        (
            [(0, 10**9)],
            [CHECKS_TO_FIRST_LINE * SERVED_CHECK_S, (CHECKS_TO_FIRST_LINE + CHECKS_A_LINE) * SERVED_CHECK_S],
        ),
        ([(0, FIRST_S - 1)], []),
        ([(0, 9), (21, 10**9)], [6, 26]),
    ],
    ids=["for long", "a takeover", "twice"],
)
def test_what_a_node_waits_for_is_said_after_some_seconds_and_then_each_minute(
    caplog: pytest.LogCaptureFixture, waits: list[tuple[float, float]], lines_at: list[float]
) -> None:
    """Not what is over within some seconds. `waits`: from when until when nobody leads."""

    async def main() -> None:
        began = trio.current_time()

        def waits_for() -> str:
            at = trio.current_time() - began
            return f"no node leads, {at:.0f}" if any(first <= at < last for first, last in waits) else ""

        with trio.move_on_after(FIRST_S + (CHECKS_A_LINE + 1) * SERVED_CHECK_S):
            await log_waiting(waits_for)

    with caplog.at_level(logging.WARNING, "leveret.cluster"):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    found = [
        re.fullmatch(r"no client is served through this node: no node leads, (\d+)", one) for one in caplog.messages
    ]
    assert [float(one[1]) for one in found if one] == lines_at and all(found)
