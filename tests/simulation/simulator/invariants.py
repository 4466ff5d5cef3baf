"""The engine's invariants in a world: of the queues that something happened to after a turn, of all now and then.

Where a world looks after some turns only, they are drawn by its seed, and what happened since the last look counts.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from leveret.engine import (
    AckedEvent,
    BindingEvent,
    Broker,
    ConsumerEvent,
    DeliveredEvent,
    DueEvent,
    EnqueuedEvent,
    Event,
    ExchangeEvent,
    LeaseEndedEvent,
    LeftEvent,
    PolicyEvent,
    QueueEvent,
    RequeuedEvent,
    ScheduledEvent,
    SettingsEvent,
)
from leveret.engine.invariants import InvariantBroken, check_broker, check_queues, check_routes

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
#: By which routes of a virtual host may lead elsewhere.
LEADING = frozenset({BindingEvent, ExchangeEvent, QueueEvent, ConsumerEvent, PolicyEvent, SettingsEvent})


class Invariants:
    """A listener of the broker."""

    takes_mixed = False

    def __init__(self, share: float, chance: Random) -> None:
        """`share`: the part of the turns after which it looks."""
        self._share = share
        self._chance = chance
        self._touched: dict[tuple[str, str], None] = {}
        self._led: dict[str, None] = {}  # virtual hosts whose routes may lead elsewhere
        self._turns = 0

    def attach(self, broker: Broker) -> None:
        """A new life begins."""
        self._touched.clear()
        self._led.clear()
        broker.context.listeners.append(self)

    def __call__(self, event: Event) -> None:
        if type(event) in TOUCHING:
            self._touched[event.vhost, event.subject] = None
        elif type(event) in LEADING:
            self._led[event.vhost] = None

    def turn_ended(self, broker: Broker) -> bool:
        """Returns whether it looked at everything. Raises: Broken."""
        if self._share < 1 and self._chance.random() >= self._share:
            return False
        self._turns += 1
        is_all = self._turns % ALL_EVERY == 0
        if is_all:
            self.check_all(broker)
        else:
            found = ((broker.virtual_hosts.get(vhost), name) for vhost, name in self._touched)
            queues = [vhost.queues[name] for vhost, name in found if vhost is not None and name in vhost.queues]
            if queues:
                self._check(check_queues, queues, messages_max=SOME)
            for vhost in self._led:
                if (there := broker.virtual_hosts.get(vhost)) is not None:
                    self._check(check_routes, there)
        self._touched.clear()
        self._led.clear()
        return is_all

    def check_all(self, broker: Broker) -> None:
        """Whatever there is. Raises: Broken."""
        self._check(check_broker, broker)

    def _check(self, check: Callable[..., None], *of: Any, **limits: int) -> None:
        try:
            check(*of, **limits)
        except InvariantBroken as error:
            raise Broken(f"the engine contradicts itself: {error}") from error
