"""The choices for a whole program."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .choices import QUEUES, Chooser


class Limits(Enum):
    """Prefetch limits: per consumer, per channel, or both."""

    NONE, OWN, SHARED, BOTH = range(4)


@dataclass(slots=True)
class Plan:
    """The queue of each channel's consumers, and which prefetch limits there are.

    With limits of their own each queue has one consumer at most: RabbitMQ moves a consumer that had no credit to the
    end of its queue's rota, Leveret doesn't. Limits that are only shared block all consumers of a channel, so that
    several keep their turns. With shared limits no message is got with a pending acknowledgement: RabbitMQ counts those
    when such a limit is set, and never stops counting them.

    `careful`: most operations are ones that are not refused, so that channels live long. `quorum`: the queues of that
    type. They must be empty when messages are requeued, because RabbitMQ puts these at the tail: each has one consumer
    at most, without limit, that requeues everything or nothing and ends with its channel, and messages that are got are
    acknowledged.

    `dead_letters`: queues may name an exchange for them. They arrive some time later, so nothing after a publish or a
    settlement in one batch inspects a queue.
    """

    queues: tuple[str, ...]
    limits: Limits = Limits.NONE
    careful: bool = False
    quorum: tuple[str, ...] = ()
    #: Messages either expire or have priorities: with both, we differ from RabbitMQ on purpose (docs/DEVIATIONS.md).
    expires: bool = True
    dead_letters: bool = True
    #: How queues and exchanges are to be declared again.
    declared: dict[str, dict[str, Any]] = field(default_factory=dict)
    generated: set[tuple[int, int]] = field(default_factory=set)  # channels with a consumer of a generated tag

    @property
    def single(self) -> bool:
        """Whether each queue has one consumer at most."""
        return self.limits in (Limits.OWN, Limits.BOTH) or bool(self.quorum)

    @property
    def keeps_nothing_got(self) -> bool:
        """Whether messages are got without acknowledgement."""
        return self.limits in (Limits.SHARED, Limits.BOTH) or bool(self.quorum)


def choose_plan(choose: Chooser) -> Plan:
    """One in twelve with quorum queues, five with limits; half of all careful."""
    several = tuple(choose.one(*QUEUES) for _ in range(4))
    kind = choose.below(12)
    dead_letters = not choose.rarely(3)
    expires = not choose.rarely(3)
    if kind == 0:
        quorum = tuple(queue for queue in QUEUES if not choose.rarely(4))
        return Plan(QUEUES, careful=not choose.rarely(4), quorum=quorum, dead_letters=dead_letters, expires=expires)
    if kind < 6:
        limits = (Limits.OWN, Limits.SHARED, Limits.SHARED, Limits.BOTH, Limits.BOTH)[kind - 1]
        return Plan(QUEUES, limits=limits, careful=choose.rarely(2), dead_letters=dead_letters, expires=expires)
    return Plan(several, careful=choose.rarely(2), dead_letters=dead_letters, expires=expires)
