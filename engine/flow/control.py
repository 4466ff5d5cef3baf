"""Flow control of one broker: admits publishes, blocks clients at full limits, warns, and releases them.

A broker without configured limits has no meters and no nodes of the usage tree.
Source: queues page E; rulings 15, 16.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...settings.slotted import slotted
from ..clock import MS, Clock, due_after
from ..context import BrokerContext
from ..deadlines import Deadlines
from ..events import EventKind
from ..messages.event import ObjectEvent
from ..messages.message import Envelope
from .meter import Meter
from .round_robin import Waiter
from .tree import UsageTree
from .usage import Alarm, FullLimit, Usage

if TYPE_CHECKING:
    from ..clients.client import Client
    from ..queues.queue import Queue

#: Units of effort after which a turn releases no further publisher; the last quantum may exceed them.
RELEASE_EFFORT = 2_000
#: Units of effort of one publisher's quantum, in addition to the effort of its messages.
QUANTUM_COST = 16


class BlockedClient(NamedTuple):
    """A client that waits for room under a limit of `destination`. `since_ns`: the start of its wait (monotonic)."""

    client: "Client"
    destination: str
    limit: str
    since_ns: int


@slotted
class BlockedEvent(ObjectEvent):
    """A limit blocks or releases the publishes of a client, the subject.

    `limit`: the name of a limit of `destination`. `waited_ms`: how long the client has waited.
    """

    client: "Client"
    destination: str
    limit: str
    waited_ms: int

    @property
    def detail(self) -> dict[str, object]:
        return {"destination": self.destination, "limit": self.limit, "waited_ms": self.waited_ms}


class FlowControl(UsageTree):
    """The usage tree of a broker with the clients that its full nodes block.

    `over_limit`: messages that the broker itself published beyond a full limit, such as dead letters and diverted ones.
    `warnings`: about nodes for which clients wait. `alarm`: raised by an operator. `disk`: raised while publishes
    wait for a journal that stores none. `replication`: raised while too few nodes of the cluster have the journal.
    """

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self.warnings = BlockedWarnings(context.clock, context.deadlines)
        self._waits: dict[Waiter, tuple[Usage, Client]] = {}
        self._meters: dict[Waiter, Meter] = {}  # of the queues that they wait for; none of an alarm
        self._to_recheck: dict[Usage, set[Waiter] | None] = {}  # the waiters of a node; None: all
        self._rechecks_all = False
        self._resuming: Client | None = None
        self.alarm = Alarm("alarm", self._note_drained, context.clock)
        self.disk = Alarm("disk", self._note_drained, context.clock)
        self.replication = Alarm("replication", self._note_drained, context.clock)
        self.over_limit = 0

    def follow_options(self) -> None:
        """Apply the limits of the broker's options, which changed."""
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
        """The alarm that blocks all publishers: the operator's or that of the replication; None: neither is raised."""
        return self.alarm if self.alarm.is_full else self.replication if self.replication.is_full else None

    def raise_alarm(self, reason: str) -> None:
        """Block all publishers until `end_alarm`. Routes become stale, so that frontends notice it."""
        self._raise(self.alarm, reason)

    def end_alarm(self) -> None:
        """Release the publishers that the alarm blocked, at the end of the turn."""
        self.alarm.switch(None)

    def raise_replication(self, reason: str) -> None:
        """Block all publishers until `end_replication`, as `raise_alarm` does. Clients receive the reason."""
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
        """The number of messages of a run, from the first, that all of these queues have room for now.

        Returns (number, None): publish those, and call again for the rest; or (0, the full limit). A message goes to
        all of its queues or to none, so the strictest queue decides. A new publish never passes those that are parked
        for one of these limits.
        """
        if self._changed:
            self._update_nodes()
        nodes: dict[Usage, int] = {}  # -> how many of the queues charge it
        full: FullLimit | None = None
        for queue in queues:
            meter = queue.meter
            if meter is None:
                continue
            for node in meter.blocking_stored if queue.stores(envelope) else meter.blocking_transient:
                if node.is_full or (node.round_robin and self._resuming is not client):
                    full = stricter(full, self._full_limit_of(node, meter, client))
                else:
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

    def note_own(self, queues: "Iterable[Queue]", envelope: Envelope) -> None:
        """Note a message that the broker itself publishes to these queues: it is counted if a limit of one is full."""
        if self._changed:
            self._update_nodes()
        for queue in queues:
            if (meter := queue.meter) is not None:
                nodes = meter.blocking_stored if queue.stores(envelope) else meter.blocking_transient
                if any(node.is_full for node in nodes):
                    self.over_limit += 1
                    return

    def _full_limit_of(self, node: Usage, meter: Meter, client: "Client") -> FullLimit:
        if client.user.is_internal_link:
            return FullLimit(node, node.refuses, 0, meter)
        return FullLimit(node, meter.fails or node.refuses, meter.fails_after_ms, meter)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, full: FullLimit, client: "Client", waiter: Waiter) -> None:
        """Call `waiter.resume` when there is room and the client is next (`RoundRobin`).

        After a change of rules it is called with (0, 0): it refuses its publishes or waits again. A waiter waits for
        one limit at a time: it leaves the one before.
        """
        if waiter in self._waits:
            self.leave(waiter)
        node, since_ns = full.node, self._context.clock.monotonic_ns()
        self._waits[waiter] = (node, client)
        if full.meter is not None:
            self._meters[waiter] = full.meter
            full.meter.waiters[waiter] = None
        if node.round_robin.join(client, waiter, since_ns):
            self._emit(BlockedClient(client, node.destination, node.limit_name, since_ns), True)
        self.warnings.blocked(node)
        if not node.is_full:
            self._note_drained(node)

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter whose publishes are tried again, or whose client is gone. Idempotent."""
        found = self._forget_waiter(waiter)
        if found is None:
            return
        node, client = found
        since = next((waiting.since_ns for one, waiting in node.round_robin if one is client), 0)
        if node.round_robin.leave(client, waiter):
            self._emit(BlockedClient(client, node.destination, node.limit_name, since), False)

    def _forget_waiter(self, waiter: Waiter) -> tuple[Usage, "Client"] | None:
        meter = self._meters.pop(waiter, None)
        if meter is not None:
            del meter.waiters[waiter]
        return self._waits.pop(waiter, None)

    def recheck(self, meter: Meter) -> None:
        """Check waiters at the end of the turn: a queue's changed rules may refuse their publishes.

        These are the waiters of the queue's nodes and of the alarms that block all publishers.
        """
        for node in dict.fromkeys((*meter.blocking_stored, *meter.blocking_transient, self.alarm, self.replication)):
            if node.round_robin:
                self._recheck_later(node, None)

    def recheck_waiters_for(self, meter: Meter) -> None:
        """Check the waiters for this queue at the end of the turn: it may no longer be limited, or get their publishes.
        Its nodes may stay full, if they are those of the broker.
        """
        for waiter in meter.waiters:
            self._recheck_later(self._waits[waiter][0], waiter)

    def recheck_all(self) -> None:
        """Check all waiters for queues at the end of the turn: their publishes may have other queues now."""
        if self._waits:
            self._rechecks_all = self.pending = self._context.background.pending = True

    def forget(self, meter: Meter) -> None:
        self.recheck_waiters_for(meter)
        super().forget(meter)

    def _recheck_later(self, node: Usage, waiter: Waiter | None) -> None:
        """Note a waiter of a node for the end of the turn; None: all of them."""
        noted = self._to_recheck.setdefault(node, set())
        if waiter is None:
            self._to_recheck[node] = None
        elif noted is not None:
            noted.add(waiter)
        self.pending = self._context.background.pending = True

    def _recheck_waiters(self, node: Usage, noted: set[Waiter] | None) -> None:
        """Have waiters of a node (None: all), in order of service, publish, refuse their publishes or wait again.

        A client that waits again in this node keeps its place and its start, and no event says that its wait ended.
        """
        for client, waiting in list(node.round_robin):
            if noted is not None and noted.isdisjoint(waiting.waiters):
                continue
            self._resuming = client
            try:
                for waiter in list(waiting.waiters):
                    if waiter not in waiting.waiters:  # an earlier one ended the connection
                        continue
                    waiting.waiters.remove(waiter)
                    if noted is None or waiter in noted:
                        self._forget_waiter(waiter)
                        waiter.resume(0, 0)
                    else:
                        waiting.waiters.append(waiter)  # behind those that were before it
            finally:
                self._resuming = None
                if node.round_robin.end_if_done(client, waiting):
                    blocked = BlockedClient(client, node.destination, node.limit_name, waiting.since_ns)
                    self._emit(blocked, False)

    def work(self) -> None:
        """Recheck waiters, then let clients publish a quantum each, in turn, while there is room, up to
        `RELEASE_EFFORT`. Called at the end of a turn.
        """
        turn = self._context.turn
        self._update_nodes()
        if self._rechecks_all:
            self._rechecks_all = False
            self._to_recheck.update(dict.fromkeys(node for node, _ in self._waits.values() if node.is_limit))
        while self._to_recheck:
            self._recheck_waiters(*self._to_recheck.popitem())
        until = turn.effort + RELEASE_EFFORT
        while self._drained and turn.effort < until:
            node = next(iter(self._drained))
            del self._drained[node]
            if node.is_full or not node.round_robin:
                continue
            self._drained[node] = None  # behind the others, which are served in between
            self._serve(node)
            turn.effort += QUANTUM_COST
        self._update_nodes()
        self.pending = bool(self._drained)

    def _serve(self, node: Usage) -> None:
        client, waiter = node.round_robin.next
        self._forget_waiter(waiter)
        self._resuming = client
        try:
            served = node.round_robin.serve_next(node)
        finally:
            self._resuming = None
        if served is not None:
            self._emit(BlockedClient(served[0], node.destination, node.limit_name, served[1]), False)

    def _emit(self, blocked: BlockedClient, is_blocked: bool) -> None:
        context = self._context
        if not context.listeners:
            return
        kind = EventKind.BLOCKED if is_blocked else EventKind.UNBLOCKED
        client, destination, limit, since_ns = blocked
        waited_ms = (context.clock.monotonic_ns() - since_ns) // MS
        context.emit(BlockedEvent(kind, client.vhost.name, client.name, client, destination, limit, waited_ms))

    @property
    def is_calm(self) -> bool:
        """Whether no alarm is raised and no limit of the whole broker is reached."""
        if self.raised is not None or self.disk.is_full:
            return False
        return not any(node.is_full for node in self._roots.values())

    def blocked(self) -> list[BlockedClient]:
        """The blocked clients: one entry for each client and limit, longest wait first."""
        found = [
            BlockedClient(client, node.destination, node.limit_name, waiting.since_ns)
            for node in dict.fromkeys(node for node, _ in self._waits.values())
            for client, waiting in node.round_robin
        ]
        return sorted(found, key=lambda one: one.since_ns)


def stricter(one: FullLimit | None, other: FullLimit) -> FullLimit:
    """The stricter of two full limits; of equal ones the first. Source: queues page E.2.

    Refusal at once is stricter than refusal after a time, which is stricter than waiting without limit.
    `Alarm.full_limit_for` follows the same order.
    """
    if one is None or _deadline_ms(other) < _deadline_ms(one):
        return other
    return one


def _deadline_ms(full: FullLimit) -> float:
    if full.fails:
        return 0
    return full.fails_after_ms or math.inf


def _fitting(room: int, width: int, contents: Sequence[bytes], *, in_messages: bool) -> int:
    """The number of messages, from the first, for a room that `width` queues share. The last one may exceed it."""
    if in_messages:
        return min(len(contents), max(1, -(-room // width)))
    if sum(map(len, contents)) * width < room:
        return len(contents)
    for count, content in enumerate(contents, 1):
        room -= len(content) * width
        if room <= 0:
            return count
    return len(contents)


class BlockedWarning(NamedTuple):
    """A full limit for which clients wait. `used`, `limit`: in octets or messages. `clients`: their number."""

    destination: str
    limit_name: str
    used: int
    limit: int
    clients: int


class BlockedWarnings:
    """The warnings of one broker. `on_due`: called with each warning; None: there are no warnings and no timers."""

    def __init__(self, clock: Clock, deadlines: Deadlines) -> None:
        self._clock = clock
        self._deadlines = deadlines
        self._recent: set[Usage] = set()  # nodes with a warning in the last interval
        self.on_due: Callable[[BlockedWarning], None] | None = None

    def blocked(self, node: Usage) -> None:
        """Warn now that clients wait for room in a node, unless a warning was given in this interval, and again after
        each interval as long as clients wait. Never if the interval is 0.
        """
        if self.on_due is not None and node not in self._recent:
            self._warn(node)

    def _warn(self, node: Usage) -> None:
        self._recent.discard(node)
        if self.on_due is None or not node.round_robin or not node.warning_interval_ms:
            return
        self._recent.add(node)
        self._deadlines.set(due_after(self._clock, node.warning_interval_ms), partial(self._warn, node))
        self.on_due(BlockedWarning(node.destination, node.limit_name, node.used, node.limit, len(node.round_robin)))
