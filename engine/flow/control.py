"""Flow control of one broker: the usage tree, the blocked clients, and their release.

Without configured limits a broker has no meters and no usage nodes.
Source: queues page E; rulings 15, 16.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..clock import MS
from ..context import BrokerContext
from ..events import EventKind
from ..messages.event import ObjectEvent
from ..messages.message import Envelope
from .alarm import Alarm
from .meter import Meter
from .round_robin import Waiter
from .tree import UsageTree
from .usage import FullLimit, Usage
from .warnings import BlockedWarnings

if TYPE_CHECKING:
    from ..clients.client import Client
    from ..queues.queue import Queue

#: Units of effort that the release of blocked publishers may spend in one turn.
RELEASE_SPREAD = 2_000
#: Units of effort of one publisher's quantum, in addition to those of its messages.
QUANTUM_COST = 16


class BlockedClient(NamedTuple):
    """A client that waits for room under a limit. `since_ns`: monotonic."""

    client: "Client"
    destination: str
    limit: str
    since_ns: int


@dataclass(slots=True, eq=False, repr=False)
class BlockedEvent(ObjectEvent):
    """Publishes of the subject, a client, are blocked by a limit, or are released.

    `limit`: the name of a limit of `destination`. `waited_ms`: time that the client has waited for it.
    """

    client: "Client"
    destination: str
    limit: str
    waited_ms: int

    @property
    def detail(self) -> dict[str, object]:
        return {"destination": self.destination, "limit": self.limit, "waited_ms": self.waited_ms}


class FlowControl(UsageTree):
    """Admits publishes, blocks publishers at full nodes, and releases them in turn.

    `over_limit`: messages that passed a full limit because the broker itself published them, such as dead letters and
    diverts. `warnings`: about nodes that clients wait for. `alarm`: raised by an operator. `disk`: raised while the
    journal accepts no records. `replication`: raised while too few nodes of the cluster have the journal.
    """

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self.warnings = BlockedWarnings(context.clock, context.deadlines)
        self._waits: dict[Waiter, tuple[Usage, Client]] = {}
        self._reconsidered: dict[Usage, None] = {}
        self._resuming: Client | None = None
        self.alarm = Alarm("alarm", self._note_drained, context.clock)
        self.disk = Alarm("disk", self._note_drained, context.clock)
        self.replication = Alarm("replication", self._note_drained, context.clock)
        self.over_limit = 0

    def follow_options(self) -> None:
        """Apply the limits of the broker's options after these changed."""
        options, storage = self._context.options, self._context.storage
        system = options.system_usage
        self.configure(system, options.flow, options.whole_limits)
        storage.watch_temp(0 if system is None else system.temp, self.temp_changed)

    # -- alarms -------------------------------------------------------------------------------------------------------

    @property
    def alarm_reason(self) -> str | None:
        """The operator's reason for the alarm; None: no alarm is raised."""
        return self.alarm.reason if self.alarm.is_full else None

    @property
    def raised(self) -> Alarm | None:
        """The alarm that blocks all publishers: the operator's, or that of the replication; None: neither is raised."""
        return self.alarm if self.alarm.is_full else self.replication if self.replication.is_full else None

    def raise_alarm(self, reason: str) -> None:
        """Block all publishers until `end_alarm`. Frontends notice it when they look up a route."""
        self._raise(self.alarm, reason)

    def end_alarm(self) -> None:
        """Release the publishers that the alarm blocked, at the end of the turn."""
        self.alarm.switch(None)

    def raise_replication(self, reason: str) -> None:
        """Block all publishers until `end_replication`, as by `raise_alarm`. Clients receive the reason."""
        self._raise(self.replication, reason)

    def end_replication(self) -> None:
        """Release the publishers that the alarm of the replication blocked, at the end of the turn."""
        self.replication.switch(None)

    def _raise(self, alarm: Alarm, reason: str) -> None:
        alarm.switch(reason)
        self._context.virtual_hosts.routes_changed()

    # -- publishing ---------------------------------------------------------------------------------------------------

    def room_for(
        self, queues: "Sequence[Queue]", envelope: Envelope, contents: Sequence[bytes], client: "Client"
    ) -> tuple[int, FullLimit | None]:
        """The number of messages, from the head of a run, that may be published to all of these queues now.

        Returns it with the full limit of the next message (None: ask again after publishing those). A message goes to
        all of its queues or to none: the strictest queue decides. A new publish never passes parked ones.
        """
        if self._changed:
            self._settle()
        nodes: dict[Usage, int] = {}  # and how many of the queues charge it
        full: FullLimit | None = None
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
        count = len(contents)
        for node, width in nodes.items():
            count = min(count, _fitting(node.room, width, contents[:count], in_messages=node.in_messages))
        for queue in queues if count > 1 else ():
            if (meter := queue.meter) is not None and meter.minimum_size:
                count = min(count, meter.fitting(nodes))
        return count, None

    def _full(self, node: Usage, meter: Meter, client: "Client") -> FullLimit:
        if client.user.is_internal_link:
            return FullLimit(node, node.refuses, 0)
        return FullLimit(node, meter.fails or node.refuses, meter.fails_after_ms)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, full: FullLimit, client: "Client", waiter: Waiter) -> None:
        """Call `waiter.resume` when there is room and it is the client's turn; see `RoundRobin`."""
        node = full.node
        now_ns = self._context.clock.monotonic_ns()
        self._waits[waiter] = (node, client)
        if node.round_robin.join(client, waiter, now_ns):
            self._emit(BlockedClient(client, node.destination, node.limit_name, now_ns), True)
            self.warnings.blocked(node)
        if not node.is_full:
            self._note_drained(node)

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter that has nothing parked, or whose client is gone. Idempotent."""
        found = self._waits.pop(waiter, None)
        if found is None:
            return
        node, client = found
        since = next((waiting.since_ns for one, waiting in node.round_robin if one is client), 0)
        if node.round_robin.leave(client, waiter):
            self._emit(BlockedClient(client, node.destination, node.limit_name, since), False)

    def reconsider(self, meter: Meter) -> None:
        """Check the publishes that a queue blocks again, because its rules may refuse them now."""
        for node in dict.fromkeys((*meter.holds_stored, *meter.holds_transient, self.alarm, self.replication)):
            if node.round_robin:
                self._reconsidered[node] = None
                self.pending = self._context.background.pending = True

    def _look_again(self, node: Usage) -> None:
        """Check for each waiter, in order of arrival, whether it must still wait. Publishes nothing."""
        waiters = [(client, waiter) for client, waiting in node.round_robin for waiter in waiting.waiters]
        for client, waiter in waiters:
            self._resuming = client
            try:
                self.leave(waiter)
                waiter.resume(0, 0)
            finally:
                self._resuming = None

    def work(self) -> None:
        """At the end of a turn: let clients publish a quantum each, in turn, while there is room."""
        turn = self._context.turn
        self._settle()
        while self._reconsidered:
            self._look_again(self._reconsidered.popitem()[0])
        until = turn.effort + RELEASE_SPREAD
        while self._drained and turn.effort < until:
            node = next(iter(self._drained))
            if node.is_full or not node.round_robin:
                del self._drained[node]
                continue
            self._serve(node)
            turn.effort += QUANTUM_COST
        self._settle()
        self.pending = bool(self._drained)

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
        """Whether no alarm is raised and no limit of the whole broker is reached."""
        if self.raised is not None or self.disk.is_full:
            return False
        return not any(node.is_full for node in self._roots.values())

    # -- what is there ------------------------------------------------------------------------------------------------

    def blocked(self) -> list[BlockedClient]:
        """The blocked clients, longest wait first."""
        found = [
            BlockedClient(client, node.destination, node.limit_name, waiting.since_ns)
            for node in dict.fromkeys(node for node, _ in self._waits.values())
            for client, waiting in node.round_robin
        ]
        return sorted(found, key=lambda one: one.since_ns)


def _stricter(one: FullLimit | None, other: FullLimit) -> FullLimit:
    """The stricter of two full limits: refusal at once, then refusal after a time, then waiting without limit.

    Of equal ones the first. An alarm decides in the same way (`Alarm.full_limit_for`). Source: queues page E.2.
    """
    if one is None or _deadline_ms(other) < _deadline_ms(one):
        return other
    return one


def _deadline_ms(full: FullLimit) -> float:
    if full.fails:
        return 0
    return full.fails_after_ms or math.inf


def _fitting(room: int, width: int, contents: Sequence[bytes], *, in_messages: bool) -> int:
    """The number of messages that use up the room in `width` queues; the last one may exceed it."""
    if in_messages:
        return min(len(contents), max(1, -(-room // width)))
    if sum(map(len, contents)) * width < room:
        return len(contents)
    for count, content in enumerate(contents, 1):
        room -= len(content) * width
        if room <= 0:
            return count
    return len(contents)
