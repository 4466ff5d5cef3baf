"""What holds for a whole program."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .choices import QUEUES, Chooser


class Limits(Enum):
    """Of how much may be out: of a consumer, of a channel, of either."""

    NONE, OWN, SHARED, BOTH = range(4)


@dataclass(slots=True)
class Plan:
    """The queue of each channel's consumers, and which prefetch limits there are.

    With limits of their own each queue has one consumer at most: RabbitMQ moves a consumer that had no credit to the
    end of its queue's rota, Leveret doesn't. Limits that are shared alone hold up all consumers of a channel, so that
    several take turns as they did before. With limits that are shared no message is got with an acknowledgement to
    come: RabbitMQ counts those that are out when such a limit is set, and never discounts them.

    `careful`: most operations are ones that are not refused, so that channels live long. `quorum`: the queues of that
    type. What goes back to those has to find them empty, because RabbitMQ has it at their tails: each has one consumer
    at most, without limit, that gives back everything or nothing and ends with its channel, and whatever is got is
    acknowledged.

    `dead_letters`: queues may name an exchange for them. They come some time later, so nothing behind a publish or a
    settlement in one batch looks into a queue then.
    """

    queues: tuple[str, ...]
    limits: Limits = Limits.NONE
    careful: bool = False
    quorum: tuple[str, ...] = ()
    #: Messages expire, or else have priorities: what RabbitMQ does with both at once is not meant (docs/DEVIATIONS.md).
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
        """Whether what is got needs no acknowledgement."""
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
