"""The rules by which a consumer is slow, and what happens to it.

Source: queues page E.1, "abortSlowConsumerStrategy", E.6; address-settings page 3.6.
"""

from ...settings import ResolvedSettings
from ...settings.frozen import frozen
from .limits import from_one

KILL = "KILL"
_SECONDS = {"MESSAGES_PER_SECOND": 1, "MESSAGES_PER_MINUTE": 60, "MESSAGES_PER_HOUR": 3_600, "MESSAGES_PER_DAY": 86_400}


@frozen
class AbortRules:
    """ActiveMQ's strategies. A consumer is slow while it gets no messages although messages are ready.

    It is aborted when it was slow for `after_ms`, or in `checks` checks in a row, or when it acknowledged nothing for
    `ack_after_ms` (`ignores_idle`: only while it has unacknowledged messages); None: never. `closes`: its connection is
    closed; otherwise it is cancelled.
    """

    period_ms: int
    after_ms: int | None
    checks: int | None
    ack_after_ms: int | None
    ignores_idle: bool
    closes: bool


@frozen
class RateRules:
    """Artemis' threshold: `count` messages in `seconds`. `kills`: connections of slower consumers are closed; otherwise
    they are only reported.
    """

    period_ms: int
    count: int
    seconds: int
    kills: bool


#: The rules of one queue, at most one of each kind.
SlowRules = tuple[AbortRules | RateRules, ...]


def slow_rules(settings: ResolvedSettings) -> SlowRules:
    """The slow-consumer rules of a queue; empty: its consumers are not checked."""
    return tuple(rules for rules in (_abort_rules(settings), _rate_rules(settings)) if rules is not None)


def _abort_rules(settings: ResolvedSettings) -> AbortRules | None:
    rules = AbortRules(
        period_ms=settings.abort_slow_consumer_check_period_ms,
        after_ms=from_one(settings.abort_slow_consumer_after_ms),
        checks=from_one(settings.abort_slow_consumer_count),
        ack_after_ms=from_one(settings.abort_slow_ack_after_ms),
        ignores_idle=settings.abort_slow_ack_ignores_idle,
        closes=settings.abort_slow_consumer_connection,
    )
    return None if rules.after_ms is rules.checks is rules.ack_after_ms is None else rules


def _rate_rules(settings: ResolvedSettings) -> RateRules | None:
    count = from_one(settings.slow_consumer_threshold)
    if count is None:
        return None
    return RateRules(
        period_ms=settings.slow_consumer_check_period_s * 1000,
        count=count,
        seconds=_SECONDS[settings.slow_consumer_threshold_measurement_unit],
        kills=settings.slow_consumer_policy == KILL,
    )
