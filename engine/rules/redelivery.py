"""The redelivery delay of classic and quorum queues, before a requeued message is ready again.

Source: address-settings page 5.1, 5.3.
"""

from .queue_rules import DelayedRetry, QueueRules

INT64_MAX = 2**63 - 1


def redelivery_delay_ms(rules: QueueRules, attempts: int, chance: float, *, counted: bool = True) -> int | None:
    """The delay in ms before a message with `attempts` failed attempts is ready again; None: no delay.

    delay x multiplier^(attempts - 1), changed up or down by at most `redelivery_collision_avoidance_factor` of it
    (`chance`: uniform in [0, 1); 0.5: no change), at most the maximum. A result of 0 schedules the message, too.
    RabbitMQ's delayed retry has another formula, which depends on whether the requeue `counted` as a failed attempt.
    """
    if rules.delayed_retry is not None:
        return _delayed_retry_ms(rules.delayed_retry, attempts, counted)
    delay_ms = rules.redelivery_delay_ms
    if delay_ms <= 0:
        return None
    wait = _truncated(delay_ms * _power(rules.redelivery_delay_multiplier, max(attempts - 1, 0)))
    factor = rules.redelivery_collision_avoidance_factor
    if factor > 0:
        wait = _truncated(wait + wait * factor * (2 * chance - 1))
    cap_ms = rules.max_redelivery_delay_ms
    return min(wait, 10 * delay_ms if cap_ms is None else cap_ms)


def _delayed_retry_ms(retry: DelayedRetry, attempts: int, counted: bool) -> int | None:
    """min x attempts, at most max (address-settings page 6.6); with LavinMQ's multiplier min x multiplier^(n - 1)."""
    if not (retry.delays_failed if counted else retry.delays_returned):
        return None
    attempts = max(attempts, 1)
    grown = attempts if retry.multiplier is None else _power(retry.multiplier, attempts - 1)
    wait = _truncated(retry.min_ms * grown)
    return wait if retry.max_ms is None else min(wait, retry.max_ms)


def _power(base: float, exponent: int) -> float:
    try:
        return float(base**exponent)
    except OverflowError:
        return float("inf")


def _truncated(value: float) -> int:
    return INT64_MAX if value >= INT64_MAX else int(value)
