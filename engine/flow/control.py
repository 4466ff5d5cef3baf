"""The flow control of one broker: the usage tree, who is blocked by what, and letting them go on.

Without anything configured there is no meter and no node, and nobody asks.
Source: queues page E; rulings 15, 16.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..clock import MS
from ..context import BrokerContext
from ..events import EventKind
from ..messages.event import ObjectEvent
from ..messages.message import Envelope
from .alarm import Alarm
from .blocker import Blocker
from .meter import Meter
from .round_robin import Waiter, Waiting
from .tree import Metered, UsageTree
from .usage import Usage
from .warnings import BlockedWarnings

#: What letting held publishers go on may cost before others have their turn, by the measure of `Effort`.
RELEASE_SPREAD = 2_000
#: A turn of a held publisher, without its messages.
TURN_COST = 16


class BlockedClient(NamedTuple):
    """One client that waits: for what, and since when (monotonic)."""

    client: Waiting
    destination: str
    limit: str
    since_ns: int


@dataclass(slots=True, eq=False, repr=False)
class BlockedEvent(ObjectEvent):
    """Publishes of a client, the subject, are held for want of room, or are no longer.

    `limit`: which one of `destination`. `waited_ms`: how long it has waited for it.
    """

    client: Waiting
    destination: str
    limit: str
    waited_ms: int

    @property
    def detail(self) -> dict[str, object]:
        return {"destination": self.destination, "limit": self.limit, "waited_ms": self.waited_ms}


class FlowControl(UsageTree):
    """`over_limit`: messages that came in over a full limit because nobody waits for room with them: dead letters,
    diverts, and what else the broker itself publishes.

    `warnings`: of nodes that clients wait for. `alarm`: an operator's. `disk`: the journal takes nothing.
    """

    __slots__ = (
        "_context",
        "_eased",
        "_reconsidered",
        "_resuming",
        "_waits",
        "alarm",
        "disk",
        "over_limit",
        "pending",
        "warnings",
    )

    def __init__(self, context: BrokerContext) -> None:
        super().__init__()
        self._context = context
        self.warnings = BlockedWarnings(context.clock, context.deadlines)
        self._waits: dict[Waiter, tuple[Usage, Waiting]] = {}
        self._eased: dict[Usage, None] = {}
        self._reconsidered: dict[Usage, None] = {}
        self._resuming: Waiting | None = None
        self.alarm = Alarm("alarm", self._note_eased, context.clock)
        self.disk = Alarm("disk", self._note_eased, context.clock)
        self.over_limit = 0
        self.pending = False

    def follow_options(self) -> None:
        """The broker's options may have other limits."""
        options, storage = self._context.options, self._context.storage
        system = options.system_usage
        self.configure(system, options.flow, options.whole_limits)
        storage.watch_temp(0 if system is None else system.temp, self.temp_changed)

    # -- alarms -------------------------------------------------------------------------------------------------------

    @property
    def alarm_reason(self) -> str | None:
        """Why clients may not publish, while an operator says so."""
        return self.alarm.reason if self.alarm.is_full else None

    def raise_alarm(self, reason: str) -> None:
        """Nobody may publish until `end_alarm`; frontends notice when they look up a route."""
        self.alarm.switch(reason)
        self._context.virtual_hosts.routes_changed()

    def end_alarm(self) -> None:
        """Who waited goes on with the end of the turn."""
        self.alarm.switch(None)

    # -- publishing ---------------------------------------------------------------------------------------------------

    def room_for(
        self, queues: Sequence[Metered], envelope: Envelope, blobs: Sequence[bytes], client: Waiting
    ) -> tuple[int, Blocker | None]:
        """How many messages of a run may be published now, from its head, to all of these queues; and if that is not
        all of it, what is full, or will be then (None: ask again behind those).

        All or nothing for each message: the strictest of its queues decides. A new publish never passes held ones.
        """
        if self._changed:
            self._settle()
        nodes: dict[Usage, int] = {}  # and how many of the queues charge it
        full: Blocker | None = None
        for queue in queues:
            meter = queue.meter
            if meter is None:
                continue
            for node in meter.holds_stored if queue.stores(envelope) else meter.holds_transient:
                if node.is_full or (node.round_robin and self._resuming is not client):
                    full = _stricter(full, self._full(node, meter, client))
                    break
                nodes[node] = nodes.get(node, 0) + 1
        if full is not None:
            return 0, full
        count = len(blobs)
        for node, width in nodes.items():
            count = min(count, _fitting(node.room, width, blobs[:count], in_messages=node.in_messages))
        for queue in queues if count > 1 else ():
            if (meter := queue.meter) is not None and meter.minimum_size:
                count = min(count, meter.fitting(nodes))
        return count, None

    def _full(self, node: Usage, meter: Meter, client: Waiting) -> Blocker:
        if client.is_internal_link:
            return Blocker(node, node.refuses, 0)
        return Blocker(node, meter.fails or node.refuses, meter.fails_after_ms)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, full: Blocker, client: Waiting, waiter: Waiter) -> None:
        """`waiter.resume` is called when it is the client's turn and there is room; see `RoundRobin`."""
        node = full.node
        now_ns = self._context.clock.monotonic_ns()
        self._waits[waiter] = (node, client)
        if node.round_robin.join(client, waiter, now_ns):
            self._emit(BlockedClient(client, node.destination, node.limit_name, now_ns), True)
            self.warnings.blocked(node)
        if not node.is_full:
            self._note_eased(node)

    def leave(self, waiter: Waiter) -> None:
        """It has nothing held any more, or its client is over. Idempotent."""
        found = self._waits.pop(waiter, None)
        if found is None:
            return
        node, client = found
        since = next((turn.since_ns for one, turn in node.round_robin if one is client), 0)
        if node.round_robin.leave(client, waiter):
            self._emit(BlockedClient(client, node.destination, node.limit_name, since), False)

    def reconsider(self, meter: Meter) -> None:
        """What is held because of a queue is to be looked at again: it may be refused from now on."""
        for node in dict.fromkeys((*meter.holds_stored, *meter.holds_transient, self.alarm)):
            if node.round_robin:
                self._reconsidered[node] = None
                self.pending = self._context.background.pending = True

    def _look_again(self, node: Usage) -> None:
        """Each waiter says whether it still waits, in the order in which they came; nothing is published."""
        waiting = [(client, waiter) for client, turn in node.round_robin for waiter in turn.waiters]
        for client, waiter in waiting:
            self._resuming = client
            try:
                self.leave(waiter)
                waiter.resume(0, 0)
            finally:
                self._resuming = None

    def _note_changed(self, meter: Meter) -> None:
        self._changed[meter] = None
        self.pending = self._context.background.pending = True

    def _note_eased(self, node: Usage) -> None:
        self._eased[node] = None
        self.pending = self._context.background.pending = True

    def work(self) -> None:
        """At the end of a turn: one client after the other publishes a quantum, while there is room."""
        effort = self._context.effort
        self._settle()
        while self._reconsidered:
            self._look_again(self._reconsidered.popitem()[0])
        until = effort.spent + RELEASE_SPREAD
        while self._eased and effort.spent < until:
            node = next(iter(self._eased))
            if node.is_full or not node.round_robin:
                del self._eased[node]
                continue
            self._serve(node)
            effort.spent += TURN_COST
        self._settle()
        self.pending = bool(self._eased)

    def _serve(self, node: Usage) -> None:
        client, waiter = node.round_robin.next
        del self._waits[waiter]
        self._resuming = client
        try:
            served = node.round_robin.serve_next(node)
        finally:
            self._resuming = None
        if served is not None:
            self._emit(BlockedClient(served[0], node.destination, node.limit_name, served[1]), False)

    def _emit(self, blocked: BlockedClient, waits: bool) -> None:
        context = self._context
        if not context.listeners:
            return
        kind = EventKind.BLOCKED if waits else EventKind.UNBLOCKED
        client, destination, limit, since_ns = blocked
        waited_ms = (context.clock.monotonic_ns() - since_ns) // MS
        context.emit(BlockedEvent(kind, client.vhost.name, client.name, client, destination, limit, waited_ms))

    @property
    def is_calm(self) -> bool:
        """Whether no alarm is up, nor a limit of the whole broker reached."""
        return not (self.alarm.is_full or self.disk.is_full or any(node.is_full for node in self._roots.values()))

    # -- what is there ------------------------------------------------------------------------------------------------

    def blocked(self) -> list[BlockedClient]:
        """Who waits for what, the longest first."""
        found = [
            BlockedClient(client, node.destination, node.limit_name, turn.since_ns)
            for node in dict.fromkeys(node for node, _ in self._waits.values())
            for client, turn in node.round_robin
        ]
        return sorted(found, key=lambda one: one.since_ns)


def _stricter(one: Blocker | None, other: Blocker) -> Blocker:
    """Of what is full in two queues: what refuses, before what refuses after a time, before what holds for ever.

    The first of those that are equal. An alarm decides in the same way (`Alarm.blocker_for`). Source: queues page E.2.
    """
    if one is None or _deadline_ms(other) < _deadline_ms(one):
        return other
    return one


def _deadline_ms(full: Blocker) -> float:
    if full.fails:
        return 0
    return full.fails_after_ms or math.inf


def _fitting(room: int, width: int, blobs: Sequence[bytes], *, in_messages: bool) -> int:
    """How many of these to publish until so much room is used up, by `width` queues; the last one may go over it."""
    if in_messages:
        return min(len(blobs), max(1, -(-room // width)))
    if sum(map(len, blobs)) * width < room:
        return len(blobs)
    for count, blob in enumerate(blobs, 1):
        room -= len(blob) * width
        if room <= 0:
            return count
    return len(blobs)
