"""Queues that share an address take turns; those bound to the exchange of its name get everything.

Which queues there are the engine is asked; whose turn it is the book knows. Source: address-settings page 1.3.
"""

from __future__ import annotations

from leveret.engine import Broker, EventKind, PublishedEvent, Queue, QueueEvent

from ..explored import CONFIGURED, EXPLORED
from ..ledger import Broken
from .book import Book, Handlers

#: Addresses that queues share.
SHARED = (f"{EXPLORED}shared", f"{CONFIGURED}place")


class Addresses(Book):
    """When each queue had its turn last: numbers that rise."""

    def __init__(self) -> None:
        self._turns: dict[Queue, int] = {}
        self._broker: Broker | None = None

    def handlers(self) -> Handlers:
        return {PublishedEvent: self._published, QueueEvent: self._queue}

    def attach(self, broker: Broker) -> None:
        self._broker = broker
        self._turns.clear()

    def _queue(self, event: QueueEvent) -> None:
        """A new queue has its turn when all others have had theirs."""
        if event.kind is EventKind.DECLARED and event.queue.address in SHARED:
            self._take_turn(event.queue)
        else:
            self._turns.pop(event.queue, None)

    def _take_turn(self, queue: Queue) -> None:
        self._turns[queue] = max(self._turns.values(), default=0) + 1

    def _published(self, event: PublishedEvent) -> None:
        assert self._broker is not None
        address = event.run.routing_key
        if event.cause is not None or event.subject or address not in SHARED:
            return
        host = self._broker.virtual_hosts[event.vhost]
        sharing = [queue for queue in host.queues.values() if queue.address == address]
        if address in host.queues:
            return  # all goes to the queue of that name
        if any(one.is_exclusive for one in host.router.diverts.of(address)):
            self._turns.clear()  # whoever takes a message of which nothing comes here has had a turn
            return
        is_open = [queue for queue in sharing if queue.is_open]
        bound = {queue for queue in sharing if any(one.source.name == address for one in queue.incoming)}
        reached = set(event.reached) & set(sharing)
        if event.run.copies:  # to other keys as well
            for queue in reached - bound:
                self._take_turn(queue)
            return
        takes = [queue for queue in is_open if queue.rules.filter is None or queue in reached]  # others, by the message
        if missing := [queue.name for queue in takes if queue in bound and queue not in reached]:
            raise Broken(f"{list(event.messages)} came to {address}, and not to {missing}, which get everything there")
        anycast = [queue for queue in takes if queue not in bound]
        chosen = [queue for queue in reached if queue not in bound]
        if len(chosen) != bool(anycast) or not reached <= set(is_open):
            names = sorted(queue.name for queue in reached)
            raise Broken(f"{list(event.messages)} came to {names} at {address}, where {len(anycast)} take turns")
        for queue in chosen:
            if any(self._turns.get(other, 0) < self._turns.get(queue, 0) for other in anycast):
                raise Broken(f"{list(event.messages)} came to {queue.name} at {address}, and others had to wait longer")
            self._take_turn(queue)
