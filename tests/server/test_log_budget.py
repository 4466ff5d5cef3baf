"""The budget of log lines about peers, in virtual time."""

import logging

from leveret.serving.logs import LogBudget


def line() -> logging.LogRecord:
    """Any line, with arguments."""
    return logging.LogRecord("leveret.amqp", logging.INFO, "", 0, "%s: refused", ("a peer",), None)


def test_ten_seconds_at_once_then_so_many_a_second() -> None:
    """What is left out is counted, and the next line that is written says so."""
    now = 0.0
    budget = LogBudget(5, now=lambda: now)
    assert [budget.filter(line()) for _ in range(60)] == [True] * 50 + [False] * 10
    now = 1.0
    first = line()
    assert budget.filter(first)
    assert first.getMessage() == "(10 lines about peers were left out) a peer: refused"
    second = line()
    assert budget.filter(second) and second.getMessage() == "a peer: refused"
    assert [budget.filter(line()) for _ in range(4)] == [True] * 3 + [False]
    now = 1_000.0  # a long rest fills it, and no more than that
    assert [budget.filter(line()) for _ in range(51)] == [True] * 50 + [False]


def test_zero_is_no_limit_and_the_rate_may_change() -> None:
    """As after a reload."""
    now = 0.0
    budget = LogBudget(0, now=lambda: now)
    assert all(budget.filter(line()) for _ in range(1_000))
    budget.lines_per_second = 1
    now = 10.0
    assert [budget.filter(line()) for _ in range(11)] == [True] * 10 + [False]
