"""The engine's invariants in a world: of the queues that something happened to after each turn, of all now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leveret.engine import (
    AckedEvent,
    Broker,
    DeliveredEvent,
    DueEvent,
    EnqueuedEvent,
    Event,
    LeaseEndedEvent,
    LeftEvent,
    RequeuedEvent,
    ScheduledEvent,
)
from leveret.engine.invariants import InvariantBroken, check_broker, check_queues

from .ledger import Broken

#: After so many turns everything is looked at.
ALL_EVERY = 100
#: Messages of one queue that are looked at one by one after a turn.
SOME = 200
#: By which a queue is another one than before.
TOUCHING = frozenset(
    {
        *(EnqueuedEvent, DeliveredEvent, AckedEvent, RequeuedEvent, LeaseEndedEvent, LeftEvent),
        *(ScheduledEvent, DueEvent),
    }
)


class Invariants:
    """A listener of the broker."""

    takes_mixed = False

    def __init__(self) -> None:
        self._touched: dict[tuple[str, str], None] = {}
        self._turns = 0

    def attach(self, broker: Broker) -> None:
        """A new life begins."""
        self._touched.clear()
        broker.listeners.append(self)

    def __call__(self, event: Event) -> None:
        if type(event) in TOUCHING:
            self._touched[event.vhost, event.subject] = None

    def turn_ended(self, broker: Broker) -> None:
        """Raises: Broken."""
        self._turns += 1
        if self._turns % ALL_EVERY == 0:
            self._check(check_broker, broker)
        elif self._touched:
            found = ((broker.virtual_hosts.get(vhost), name) for vhost, name in self._touched)
            queues = [vhost.queues[name] for vhost, name in found if vhost is not None and name in vhost.queues]
            self._check(check_queues, queues, messages_max=SOME)
        self._touched.clear()

    def _check(self, check: Callable[..., None], *of: Any, **limits: int) -> None:
        try:
            check(*of, **limits)
        except InvariantBroken as error:
            raise Broken(f"the engine contradicts itself: {error}") from error
