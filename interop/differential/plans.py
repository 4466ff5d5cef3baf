"""The choices for a whole program."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .choices import QUEUES, Chooser


class Limits(Enum):
    """Prefetch limits: none, per consumer (OWN), per channel (SHARED), or both."""

    NONE, OWN, SHARED, BOTH = range(4)


@dataclass(slots=True)
class Plan:
    """The queue of each channel's consumers, and the prefetch limits.

    With limits per consumer, each queue has at most one consumer: RabbitMQ moves a consumer that had no credit to the
    end of its round-robin order, and Leveret does not. Limits per channel block all consumers of the channel together,
    so that several keep their order. With limits per channel, every basic.get is without acknowledgement, because
    RabbitMQ never stops counting messages that were got when such a limit was set.

    `careful`: most operations are valid, so that channels live long.
    `quorum`: the queues of that type. RabbitMQ requeues their messages at the tail, so they must be empty then: each
    has at most one consumer, without a limit, which requeues all or nothing and ends with its channel, and messages
    that are got are acknowledged.
    `dead_letters`: queues may have a dead-letter exchange. Dead letters arrive later, so in a batch no queue is
    inspected after a publish or a settlement.
    """

    queues: tuple[str, ...]
    limits: Limits = Limits.NONE
    careful: bool = False
    quorum: tuple[str, ...] = ()
    #: Messages expire or have priorities, not both: for both, there is an intended difference (docs/DEVIATIONS.md).
    expires: bool = True
    dead_letters: bool = True
    #: The declarations of queues and exchanges, for later ones.
    declared: dict[str, dict[str, Any]] = field(default_factory=dict)
    generated: set[tuple[int, int]] = field(default_factory=set)  # channels with a consumer of a generated tag

    @property
    def single(self) -> bool:
        """Whether each queue has at most one consumer."""
        return self.limits in (Limits.OWN, Limits.BOTH) or bool(self.quorum)

    @property
    def keeps_nothing_got(self) -> bool:
        """Whether basic.get is without acknowledgement."""
        return self.limits in (Limits.SHARED, Limits.BOTH) or bool(self.quorum)


def choose_plan(choose: Chooser) -> Plan:
    """A plan. Of twelve one has quorum queues, five have limits. Careful are three of four with quorum queues, and half
    of the others.
    """
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
