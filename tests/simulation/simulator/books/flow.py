"""Limits hold, what is used is what is there, and nobody waits for room where there is some.

Which queue is charged for which limit the engine is asked; what it comes to is added up here from what is in the
queues. Source: queues page E.1, E.5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from leveret.engine import BlockedEvent, Broker, EnqueuedEvent, EventKind, Message, PublishedEvent, Queue
from leveret.engine.flow import meter as meters

from ..ledger import Broken, keys_of
from ..loop import SimulatedClock
from .book import Book, Handlers
from .routing import TRACED

MS = 1_000_000
#: What limits count of a queue.
MESSAGES, OCTETS, STORED, MEMORY = "messages", "octets", "stored", "memory"
_MEASURES = {
    meters.all_messages: MESSAGES,
    meters.messages_in_memory: MESSAGES,
    meters.all_octets: OCTETS,
    meters.octets_in_memory: OCTETS,
    meters.stored_octets: STORED,
    meters.memory: MEMORY,
}


class Flow(Book):
    """`committing`: publishers (of keys) whose messages come as one, at a commit, and may go over a limit."""

    def __init__(self, clock: SimulatedClock, happened: Counter[str]) -> None:
        self._clock = clock
        self._happened = happened
        self._broker: Broker | None = None
        self._waiting: dict[tuple[Any, str, str], list[int]] = {}  # client, destination and limit -> since when
        self._full: dict[str, int] = {}  # destination -> when it was full, or somebody waited there, last
        self._full_before: set[str] = set()  # of them, those for which it was so when the last turn ended
        self.committing: set[bytes] = set()

    def handlers(self) -> Handlers:
        return {PublishedEvent: self._published, EnqueuedEvent: self._enqueued, BlockedEvent: self._blocked}

    def attach(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting.clear()
        self._full_before.clear()

    # -- what comes in ------------------------------------------------------------------------------------------------

    def _published(self, event: PublishedEvent) -> None:
        assert self._broker is not None
        if event.cause is not None or event.subject == TRACED or not self._broker.flow.is_on:
            return
        for queue in event.queues:
            meter = queue.meter
            if meter is None or keys_of(event)[0][:4] in self.committing:
                continue
            for node in meter.blocking_stored if queue.stores(event.run) else meter.blocking_transient:
                if node.is_full:
                    raise Broken(f"{event.messages} came in, and the {node.limit_name} of {node.destination} is full")
                before_last = len(event.messages) - 1 if node.in_messages else sum(map(len, event.contents[:-1]))
                if node.limit and node.used + before_last >= node.limit:
                    raise Broken(f"{event.messages} are too many for the {node.limit_name} of {node.destination}")

    def _enqueued(self, event: EnqueuedEvent) -> None:
        assert self._broker is not None
        meter = self._broker.virtual_hosts[event.vhost].queues[event.subject].meter
        if meter is not None:
            if not meter.blocking_stored:
                self._happened["flow: came in over a limit that holds nobody"] += 1
            self._note_full((*meter.blocking_stored, *meter.blocking_transient))

    def turn_ended(self) -> None:
        if self._broker is not None and self._broker.flow.is_on:
            now_ns = self._clock.monotonic_ns()
            for destination in self._full_before:  # until now
                self._full[destination] = now_ns
            flow = self._broker.flow
            self._full_before = self._note_full((flow.alarm, flow.disk, *flow.nodes()))

    def _note_full(self, nodes: Iterable[Any]) -> set[str]:
        full = {node.destination for node in nodes if node.is_full or node.round_robin}
        for destination in full:
            self._full[destination] = self._clock.monotonic_ns()
        return full

    def was_full(self, queues: Iterable[str], since_ns: int) -> bool:
        """Whether there was a reason to refuse a publish to one of these that was sent then."""
        names = [f"'{name}'" for name in queues]
        return any(
            at_ns >= since_ns and (destination == "broker" or any(name in destination for name in names))
            for destination, at_ns in self._full.items()
        )

    # -- who waits ----------------------------------------------------------------------------------------------------

    def _blocked(self, event: BlockedEvent) -> None:
        """Who waits for a limit that was taken away may wait for its successor, too, until it is served."""
        key, now_ns = (event.client, event.destination, event.limit), self._clock.monotonic_ns()
        waits = self._waiting.setdefault(key, [])
        if event.kind is EventKind.BLOCKED:
            if len(waits) >= self._places(event):
                raise Broken(f"{event.subject} is blocked by the {event.limit} of {event.destination} twice")
            waits.append(now_ns)
            return
        if not waits:
            raise Broken(f"{event.subject} is unblocked ({event.limit} of {event.destination}), and was not blocked")
        waited_ms = [(now_ns - since_ns) // MS for since_ns in waits]
        if event.waited_ms not in waited_ms:
            raise Broken(f"{event.subject} waited {waited_ms[0]} ms, its event says {event.waited_ms}")
        del waits[waited_ms.index(event.waited_ms)]
        if not waits:
            del self._waiting[key]

    def _places(self, event: BlockedEvent) -> int:
        """In how many places of this name a client may wait: one, each that has lost its limit, and the one that lets
        it try right now.
        """
        assert self._broker is not None
        flow, name = self._broker.flow, (event.destination, event.limit)
        gone = {
            id(node)
            for node, client in flow._waits.values()
            if client is event.client and (node.destination, node.limit_name) == name
            if node.is_limit and not node.limit
        }
        return 1 + len(gone) + (flow._resuming is event.client)

    # -- between turns ------------------------------------------------------------------------------------------------

    def check_used(self) -> None:
        """Unless nodes are still to hear of it. Raises: Broken."""
        broker: Any = self._broker
        if not broker.flow.is_on or broker.flow._changed:
            return
        used, known = self._used(broker)
        for node in broker.flow.nodes():
            if node in known and node.used != used[node]:
                raise Broken(
                    f"{node.destination}: {node.used} of its {node.limit_name} are used, {used[node]} are there"
                )

    # -- at rest ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        broker = self._broker
        assert broker is not None
        if not broker.flow.is_on:
            return
        self.check_used()
        for node in broker.flow.nodes():
            if node.limit and node.is_full and node.used <= low_mark(node.limit, broker, in_messages=node.in_messages):
                raise Broken(f"{node.destination}: full with {node.used} of {node.limit} ({node.limit_name})")
            if node.limit and not node.is_full and node.used >= node.limit:
                raise Broken(f"{node.destination}: not full with {node.used} of {node.limit} ({node.limit_name})")
            if node.round_robin and not node.is_full:
                raise Broken(f"{len(node.round_robin)} wait for {node.destination}, which has room ({node.limit_name})")
        waiting = {(one.client, one.destination, one.limit) for one in broker.flow.blocked()}
        if waiting != self._waiting.keys():
            raise Broken(f"{len(waiting)} wait for room, by events {len(self._waiting)}")
        self._happened["flow: usage compared"] += 1

    def _used(self, broker: Broker) -> tuple[Counter[Any], set[Any]]:
        """Node -> what is there of it; and for which that is known: of what is paged out it is not."""
        used: Counter[Any] = Counter()
        unknown: set[Any] = set()
        known: set[Any] = set()
        for vhost in broker.virtual_hosts.values():
            for queue in vhost.queues.values():
                meter: Any = queue.meter
                if meter is None:
                    continue
                amounts = amounts_of(queue, meter.minimum_size)
                for charge in meter._charges:
                    if amounts is None:
                        unknown.add(charge.node)
                    else:
                        known.add(charge.node)
                        used[charge.node] += amounts[_MEASURES[charge.measure]]
        return used, known - unknown


def amounts_of(queue: Queue, minimum_size: int) -> dict[str, int] | None:
    """What limits count of a queue; None: part of it is not in memory."""
    if any(not isinstance(part, Message) for part in queue.store.paged_parts()):
        return None
    messages = [*queue.messages(), *(() if queue.keeps_acked else queue.unacked_messages())]
    aside = [part for part in queue.store.paged_parts() if isinstance(part, Message)]
    if aside or any(type(message.content) is not bytes for message in messages):
        return None
    # Of a last value that was paged out and read back the limit keeps the octets with which it came.
    octets = sum(message.octets for message in messages)
    return {
        MESSAGES: len(messages),
        OCTETS: octets,
        STORED: sum(message.octets for message in messages if queue.stores(message.envelope)),
        MEMORY: max(octets, len(messages) * minimum_size),
    }


def low_mark(limit: int, broker: Broker, *, in_messages: bool) -> int:
    """Down to which what is full stays full: 64 KiB below the limit, within half of it and 95 %, or as configured."""
    percent = broker.context.options.flow.low_mark_percent
    if percent:
        return min(limit * percent // 100, limit - 1)
    if in_messages:
        return limit - max(1, limit * 5 // 100)
    return min(limit * 95 // 100, max(limit - 64 * 1024, limit // 2))
