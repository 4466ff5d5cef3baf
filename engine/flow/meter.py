"""The meter of one queue: counts its messages and octets, and charges them to nodes of the usage tree.

`MeteredQueueEvents` calls it for each event of the queue's messages.
Source: queues page E.1, E.2 ("Charge"); docs/decisions/0010-flow-control.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from operator import attrgetter
from typing import TYPE_CHECKING

from ...settings.slotted import slotted
from ..messages.message import UNLIMITED
from .usage import Usage

if TYPE_CHECKING:
    from .round_robin import Waiter


@slotted
class Charge:
    """The use of one node by one queue. `amount`: the result of `measure` when the node was last updated."""

    node: Usage
    measure: "Callable[[Meter], int]"
    amount: int = 0


class NodeBound:
    """A `MemoryBound`: the limit of one node. `room` counts the queue's messages also before the node is updated."""

    __slots__ = ("_charge", "_limit", "_meter", "message_octets_min", "in_messages")

    def __init__(self, meter: "Meter", charge: Charge, limit: Callable[[], int], message_octets_min: int) -> None:
        self._meter = meter
        self._charge = charge
        self._limit = limit
        self.in_messages = charge.node.in_messages
        self.message_octets_min = message_octets_min

    @property
    def limit(self) -> int:
        return self._limit()

    @property
    def room(self) -> int:
        charge = self._charge
        return self._limit() - charge.node.used + charge.amount - charge.measure(self._meter)


@slotted
class Meter:
    """The counts of one queue. `in_memory`: ready or unacknowledged messages in memory, with the octets of their
    contents. `paged`: paged-out ones, with the octets that their store knows (`paged_run.octets_paged`). For queues
    that keep acknowledged messages only the sums of both are exact.

    `stored`, `paged_stored`: octets that survive a restart. `blocking_stored`, `blocking_transient`: the nodes in which
    a stored or transient publish must find room. `forbids_paging`: messages must stay in memory, or be counted exactly.
    `memory_bounds`: limits on messages in memory. With them the nodes are updated by `on_change`, when new messages are
    in their store. `waiters`: publishes that wait for the queue.
    """

    metering: object  # the settings that it was made from
    forbids_paging: bool
    minimum_size: int = 0
    fails: bool = field(default=False, init=False)
    fails_after_ms: int = field(default=0, init=False)
    blocking_stored: tuple[Usage, ...] = field(default=(), init=False)
    blocking_transient: tuple[Usage, ...] = field(default=(), init=False)
    memory_bounds: tuple[NodeBound, ...] = field(default=(), init=False)
    waiters: "dict[Waiter, None]" = field(default_factory=dict, init=False)
    on_change: "Callable[[Meter], None] | None" = field(default=None, init=False)
    counts_stored: bool = field(default=False, init=False)  # whether a charge measures `stored`
    in_memory: int = field(default=0, init=False)
    in_memory_octets: int = field(default=0, init=False)
    stored: int = field(default=0, init=False)
    paged: int = field(default=0, init=False)
    paged_octets: int = field(default=0, init=False)
    paged_stored: int = field(default=0, init=False)
    _charges: list[Charge] = field(default_factory=list, init=False)

    def add_charge(self, node: Usage, measure: "Callable[[Meter], int]") -> Charge:
        node.meter_count += 1
        charge = Charge(node, measure)
        self._charges.append(charge)
        self.counts_stored = self.counts_stored or measure is stored_octets
        return charge

    def add_memory_bound(self, charge: Charge, limit: Callable[[], int]) -> None:
        """Limit the use of a charge's node by messages in memory. Messages beyond the limit are paged out."""
        message_octets_min = self.minimum_size if charge.measure is memory else 0
        self.memory_bounds += (NodeBound(self, charge, limit, message_octets_min),)

    def feeds(self, node: Usage) -> bool:
        """Whether the queue is charged to this node."""
        return any(charge.node is node for charge in self._charges)

    def full_nodes(self) -> dict[Usage, int]:
        """The full nodes that the queue is charged to -> their limits."""
        return {charge.node: charge.node.limit for charge in self._charges if charge.node.is_full}

    def fitting(self, nodes: Mapping[Usage, int]) -> int:
        """The number of messages of minimum size that use up the room of one of these nodes; at least one.

        `nodes`: each with the number of queues that share its room.
        """
        fewest = UNLIMITED
        for charge in self._charges:
            if charge.measure is memory and charge.node in nodes:
                reached = charge.amount + charge.node.room // nodes[charge.node]
                fewest = min(fewest, -(-reached // self.minimum_size) - self.in_memory)
        return max(1, fewest)

    @property
    def octets(self) -> int:
        return self.in_memory_octets + self.paged_octets

    def update_nodes(self) -> None:
        """Update the nodes with all changes."""
        for charge in self._charges:
            amount = charge.measure(self)
            if amount != charge.amount:
                difference, charge.amount = amount - charge.amount, amount
                charge.node.change(difference)

    def came(self, count: int, octets: int, stored: int) -> None:
        """Count new messages."""
        self.in_memory += count
        self.in_memory_octets += octets
        self.stored += stored
        if self.on_change is not None:
            self.on_change(self)
        elif self._charges:
            self.update_nodes()

    def left(self, count: int, octets: int, stored: int) -> None:
        """Subtract messages that were in memory."""
        self.in_memory -= count
        self.in_memory_octets -= octets
        self.stored -= stored
        if self._charges:
            self.update_nodes()

    def paged_out(self, count: int, octets: int, octets_paged: int, *, are_stored: bool) -> None:
        """Count messages as paged out. `octets`: their size in memory; `octets_paged`: their size outside."""
        self.in_memory -= count
        self.in_memory_octets -= octets
        self.paged += count
        self.paged_octets += octets_paged
        if are_stored and self.counts_stored:
            self.stored -= octets
            self.paged_stored += octets_paged
        if self._charges:
            self.update_nodes()

    def left_paged(self, count: int, octets: int, stored: int) -> None:
        """Subtract messages that were paged out."""
        self.paged -= count
        self.paged_octets -= octets
        self.paged_stored -= stored
        if self._charges:
            self.update_nodes()

    def reset(self) -> None:
        """Set all counts to 0; the caller calls `update_nodes` next."""
        self.in_memory = self.in_memory_octets = self.stored = 0
        self.paged = self.paged_octets = self.paged_stored = 0

    def end(self) -> Iterable[Usage]:
        """End all charges: the queue is deleted or has another meter. Returns nodes without another charge."""
        self.reset()
        self.update_nodes()
        unused = []
        for charge in self._charges:
            charge.node.meter_count -= 1
            if not charge.node.meter_count:
                unused.append(charge.node)
        self._charges = []
        self.memory_bounds = ()
        self.on_change = None
        return unused


# -- measures ---------------------------------------------------------------------------------------------------------


def memory(meter: Meter) -> int:
    """Octets in memory; a message counts as at least `minimum_size`, on average."""
    return max(meter.in_memory_octets, meter.in_memory * meter.minimum_size)


octets_in_memory: Callable[[Meter], int] = attrgetter("in_memory_octets")
messages_in_memory: Callable[[Meter], int] = attrgetter("in_memory")
#: Octets of all messages, in memory or paged out.
all_octets: Callable[[Meter], int] = attrgetter("octets")


def all_messages(meter: Meter) -> int:
    """All messages, in memory or paged out."""
    return meter.in_memory + meter.paged


def stored_octets(meter: Meter) -> int:
    """Octets of messages that survive a restart."""
    return meter.stored + meter.paged_stored
