"""The flow control of one broker: the usage tree, who is blocked by what, and letting them go on.

Without anything configured there is no meter and no node, and nobody asks.
Source: queues page E; rulings 15, 16.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ...settings import Flow, SystemUsage
from ..agenda import Agenda
from ..clock import Clock
from ..effort import Effort
from ..messages.message import Envelope
from ..rules.flow_rules import VM, FlowRules
from .meter import Meter, all_messages, all_octets, memory, stored_octets
from .ring import Waiter, Waiting
from .usage import Usage

#: What letting held publishers go on may cost before others have their turn, by the measure of `Effort`.
RELEASE_SPREAD = 2_000
#: A turn of a held publisher, without its messages.
TURN_COST = 16


@dataclass(slots=True, frozen=True)
class Full:
    """One full node, as a publisher meets it. `fails`: it is refused; `fails_after_ms`: when it has waited so long.

    `node`: what to wait for (`FlowControl.wait`).
    """

    node: Usage
    fails: bool
    fails_after_ms: int

    @property
    def destination(self) -> str:
        """Whose limit it is."""
        return self.node.destination

    @property
    def limit(self) -> str:
        """Which one: memory, store, temp, max-size-bytes, max-size-messages."""
        return self.node.limit_name

    @property
    def is_alarm(self) -> bool:
        """Whether it is a limit of the whole broker."""
        return self.node.is_root


class Metered(Protocol):
    """A queue, as far as this file knows it."""

    name: str
    address: str
    durable: bool

    @property
    def meter(self) -> Meter | None:
        """None: nobody asks what is in it."""

    def stores(self, envelope: Envelope) -> bool:
        """Whether messages of this kind survive a restart in this queue."""


class MeterTerms(NamedTuple):
    """What the meter of a queue depends on: as long as that is equal, it stays.

    `rules`: flow control of its address, or of the broker. `messages_max`, `octets_max`: of an address that blocks
    (BLOCK with max-size-messages, max-size-bytes); None: no such limit. `counts`: octets are asked for anyway.
    """

    rules: FlowRules | None
    messages_max: int | None
    octets_max: int | None
    counts: bool
    generation: int


class Blocked(NamedTuple):
    """One client that waits: for what, and since when (monotonic)."""

    client: Waiting
    destination: str
    limit: str
    since_ns: int


class FlowControl:
    """`generation`: changes when the system usage is switched on or off, so that queues get other meters.

    `over_limit`: messages that came in over a full limit because nobody waits for room with them: dead letters,
    diverts, and what else the broker itself publishes.
    """

    __slots__ = (
        "_agenda",
        "_announce",
        "_clock",
        "_eased",
        "_effort",
        "_flow",
        "_nodes",
        "_resuming",
        "_roots",
        "_waits",
        "generation",
        "over_limit",
        "pending",
        "system",
    )

    def __init__(
        self, clock: Clock, effort: Effort, agenda: Agenda, announce: "Callable[[Blocked, bool], None]"
    ) -> None:
        """`announce`: a client is blocked, or (False) no longer."""
        self._clock = clock
        self._effort = effort
        self._agenda = agenda
        agenda.add(self)
        self._announce = announce
        self._nodes: dict[tuple[str, str, str], Usage] = {}  # (limit, virtual host, name)
        self._roots: dict[str, Usage] = {}
        self._waits: dict[Waiter, tuple[Usage, Waiting]] = {}
        self._eased: dict[Usage, None] = {}
        self._resuming: Waiting | None = None
        self._flow = Flow()
        self.system: SystemUsage | None = None
        self.generation = 0
        self.over_limit = 0
        self.pending = False

    # -- what is configured -------------------------------------------------------------------------------------------

    def configure(self, system: SystemUsage | None, flow: Flow) -> None:
        """The broker's own limits, and how full nodes ease; both may change while it runs. Queues follow by reviews."""
        self._flow = flow
        if (system is None) != (self.system is None):
            self.generation += 1
        self.system = system
        limits = {} if system is None else {"memory": system.memory, "store": system.store, "temp": system.temp}
        for name, node in list(self._roots.items()):
            if name not in limits:
                self._end(node)
                del self._roots[name]
        for name, limit in limits.items():
            root = self._roots.get(name)
            if root is None:
                root = self._roots[name] = Usage("broker", name, self._note_eased, is_root=True)
            root.set_limit(limit, flow)
        for node in self._nodes.values():
            node.set_limit(node.limit, flow)

    def temp_changed(self, used: int) -> None:
        """So much is in the temp store."""
        node = self._roots.get("temp")
        if node is not None:
            node.change(used - node.used)

    @property
    def is_on(self) -> bool:
        """Whether there is any limit."""
        return bool(self._nodes or self._roots)

    def terms_of(
        self,
        rules: FlowRules | None,
        messages_max: int | None,
        octets_max: int | None,
        *,
        counts: bool,
        keeps: bool,
    ) -> MeterTerms | None:
        """What the meter of a queue with such rules is to be like; None: it needs none.

        `keeps`: acknowledged messages stay in it, which leaves its memory to the journal by itself.
        """
        if keeps:
            rules = None
        elif rules is None and self.system is not None:
            rules = FlowRules(
                fails=self.system.send_fail_if_no_space, fails_after_ms=self.system.send_fail_if_no_space_after_ms
            )
        if rules is None and messages_max is None and octets_max is None and not counts:
            return None
        return MeterTerms(rules, messages_max, octets_max, counts, self.generation)

    def make_meter(self, queue: Metered, vhost: str, terms: MeterTerms) -> Meter:
        """The meter of a queue."""
        rules = terms.rules or FlowRules()
        meter = Meter(terms, forbids_paging=rules.cursor == VM or terms.counts, minimum_size=rules.minimum_size)
        meter.fails, meter.fails_after_ms = rules.fails, rules.fails_after_ms
        held: list[Usage] = []  # by publishes of either kind
        if terms.rules is not None:
            for node in self._memory_nodes(queue, vhost, rules):
                meter.charge(node, memory)
                if rules.holds:
                    held.append(node)
        where = f"address '{queue.address}' in vhost '{vhost}'"
        if terms.octets_max is not None:
            node = self._node("max-size-bytes", vhost, queue.address, where, terms.octets_max)
            meter.charge(node, all_octets)
            held.append(node)
        if terms.messages_max is not None:
            node = self._node("max-size-messages", vhost, queue.address, where, terms.messages_max, in_messages=True)
            meter.charge(node, all_messages)
            held.append(node)
        stored, transient = list(held), list(held)
        if self.system is not None and terms.rules is not None:
            meter.charge(self._roots["store"], stored_octets)
            stored.append(self._roots["store"])
            if rules.may_spool:
                transient.append(self._roots["temp"])
        meter.holds_stored, meter.holds_transient = tuple(stored), tuple(transient)
        return meter

    def _memory_nodes(self, queue: Metered, vhost: str, rules: FlowRules) -> Iterator[Usage]:
        if rules.memory_limit:
            where = f"queue '{queue.name}' in vhost '{vhost}'"
            yield self._node("memory", vhost, queue.name, where, rules.memory_limit)
        if self.system is not None:
            yield self._roots["memory"]

    def _node(
        self, limit_name: str, vhost: str, name: str, where: str, limit: int, *, in_messages: bool = False
    ) -> Usage:
        key = (limit_name, vhost, name)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Usage(where, limit_name, self._note_eased, in_messages=in_messages)
        node.set_limit(max(1, limit), self._flow)  # 0 messages, or octets, is always full
        return node

    def forget(self, meter: Meter) -> None:
        """The queue is gone, or gets another meter: what nobody feeds any more holds nobody."""
        for node in meter.end():
            if not node.is_root:
                self._end(node)
                for key, other in list(self._nodes.items()):
                    if other is node:
                        del self._nodes[key]

    # -- publishing ---------------------------------------------------------------------------------------------------

    def room_for(
        self, queues: Sequence[Metered], envelope: Envelope, blobs: Sequence[bytes], client: Waiting
    ) -> tuple[int, Full | None]:
        """How many messages of a run may be published now, from its head, to all of these queues; and if that is not
        all of it, what is full, or will be then (None: ask again behind those).

        All or nothing for each message: the strictest of its queues decides. A new publish never passes held ones.
        """
        nodes: dict[Usage, int] = {}  # and how many of the queues charge it
        for queue in queues:
            meter = queue.meter
            if meter is None:
                continue
            for node in meter.holds_stored if queue.stores(envelope) else meter.holds_transient:
                if node.is_full or (node.ring and self._resuming is not client):
                    return 0, self._full(node, meter)
                nodes[node] = nodes.get(node, 0) + 1
        count = len(blobs)
        for node, width in nodes.items():
            count = min(count, _fitting(node.room, width, blobs[:count], in_messages=node.in_messages))
        return count, None

    def _full(self, node: Usage, meter: Meter) -> Full:
        return Full(node, meter.fails, meter.fails_after_ms)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, full: Full, client: Waiting, waiter: Waiter) -> None:
        """`waiter.resume` is called when it is the client's turn and there is room; see `Ring`."""
        node = full.node
        now_ns = self._clock.monotonic_ns()
        self._waits[waiter] = (node, client)
        if node.ring.join(client, waiter, now_ns):
            self._announce(Blocked(client, node.destination, node.limit_name, now_ns), True)
        if not node.is_full:
            self._note_eased(node)

    def leave(self, waiter: Waiter) -> None:
        """It has nothing held any more, or its client is over. Idempotent."""
        found = self._waits.pop(waiter, None)
        if found is None:
            return
        node, client = found
        since = next((turn.since_ns for one, turn in node.ring if one is client), 0)
        if node.ring.leave(client, waiter):
            self._announce(Blocked(client, node.destination, node.limit_name, since), False)

    def _note_eased(self, node: Usage) -> None:
        self._eased[node] = None
        self.pending = self._agenda.pending = True

    def _end(self, node: Usage) -> None:
        """It limits nothing any more: all who wait go on."""
        node.is_full = False
        node.limit = 0
        if node.ring:
            self._note_eased(node)

    def work(self) -> None:
        """At the end of a turn: one client after the other publishes a quantum, while there is room."""
        effort = self._effort
        until = effort.spent + RELEASE_SPREAD
        while self._eased and effort.spent < until:
            node = next(iter(self._eased))
            if node.is_full or not node.ring:
                del self._eased[node]
                continue
            self._serve(node)
            effort.spent += TURN_COST
        self.pending = bool(self._eased)

    def _serve(self, node: Usage) -> None:
        client, waiter = node.ring.next
        del self._waits[waiter]
        self._resuming = client
        try:
            served = node.ring.serve_next()
        finally:
            self._resuming = None
        if served is not None:
            self._announce(Blocked(served[0], node.destination, node.limit_name, served[1]), False)

    # -- what is there ------------------------------------------------------------------------------------------------

    def nodes(self) -> list[Usage]:
        """All of them, the broker's first."""
        return [*self._roots.values(), *self._nodes.values()]

    def blocked(self) -> list[Blocked]:
        """Who waits for what, the longest first."""
        found = [
            Blocked(client, node.destination, node.limit_name, turn.since_ns)
            for node in {node for node, _ in self._waits.values()}
            for client, turn in node.ring
        ]
        return sorted(found, key=lambda one: one.since_ns)


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
