"""The meter of one queue: how much is in it, in memory and altogether, and what that comes to in the usage tree.

The ledger feeds it: everything that happens to a message of a metered queue comes by there.
Source: queues page E.1, E.2 ("Charge"); docs/decisions/0010-flow-control.md.
"""

from collections.abc import Callable, Iterable, Mapping

from .usage import UNLIMITED, Usage


class Charge:
    """What one queue has put into one node: `amount`, as `measure` has it."""

    __slots__ = ("amount", "measure", "node")

    def __init__(self, node: Usage, measure: "Callable[[Meter], int]") -> None:
        self.node = node
        self.measure = measure
        self.amount = 0


class Bound:
    """How much of a node may be used by what is in memory, before messages of a queue are paged out.

    See `stores.memory_cap.Bound`. What the node does not know yet of the queue's own messages counts.
    """

    __slots__ = ("_charge", "_limit", "_meter", "each", "in_messages")

    def __init__(self, meter: "Meter", charge: Charge, limit: Callable[[], int], each: int) -> None:
        self._meter = meter
        self._charge = charge
        self._limit = limit
        self.in_messages = charge.node.in_messages
        self.each = each

    @property
    def limit(self) -> int:
        return self._limit()

    @property
    def room(self) -> int:
        charge = self._charge
        return self._limit() - charge.node.used + charge.amount - charge.measure(self._meter)


class Meter:
    """Messages and octets: `in_memory` those in memory, ready or out, with the octets of their blobs; `paged` the
    others, with the octets that their store knows (`paged_run.octets_paged`).

    `stored`, `paged_stored`: octets of those that a restart brings back. `holds_stored`, `holds_transient`: the nodes
    in which a publish of such a message has to find room. `forbids_paging`: all of it has to stay in memory, or has to
    be counted exactly. `bounds`: what of it may be in memory; with any of them the nodes hear of new messages when
    these are where they belong, by `on_change`.

    Of queues whose messages stay when they are acknowledged, only the sums of both are right.
    """

    __slots__ = (
        "_charges",
        "bounds",
        "counts_stored",
        "fails",
        "fails_after_ms",
        "forbids_paging",
        "holds_stored",
        "holds_transient",
        "in_memory",
        "in_memory_octets",
        "metering",
        "minimum_size",
        "on_change",
        "paged",
        "paged_octets",
        "paged_stored",
        "stored",
    )

    def __init__(self, metering: object, *, forbids_paging: bool, minimum_size: int = 0) -> None:
        """`metering`: what it was made for."""
        self.metering = metering
        self.forbids_paging = forbids_paging
        self.minimum_size = minimum_size
        self.fails = False
        self.fails_after_ms = 0
        self.holds_stored: tuple[Usage, ...] = ()
        self.holds_transient: tuple[Usage, ...] = ()
        self._charges: list[Charge] = []
        self.bounds: tuple[Bound, ...] = ()
        self.on_change: Callable[[Meter], None] | None = None
        self.counts_stored = False  # whether anybody asks for `stored`
        self.in_memory = self.in_memory_octets = self.stored = 0
        self.paged = self.paged_octets = self.paged_stored = 0

    def charge(self, node: Usage, measure: "Callable[[Meter], int]") -> Charge:
        """From now on what is measured so is used of this node."""
        node.users += 1
        charge = Charge(node, measure)
        self._charges.append(charge)
        self.counts_stored = self.counts_stored or measure is stored_octets
        return charge

    def bound(self, charge: Charge, limit: Callable[[], int]) -> None:
        """What is in memory stays within so much of this charge's node, as far as it can be paged out."""
        each = self.minimum_size if charge.measure is memory else 0
        self.bounds += (Bound(self, charge, limit, each),)

    def feeds(self, node: Usage) -> bool:
        """Whether what is in the queue counts there."""
        return any(charge.node is node for charge in self._charges)

    def fitting(self, nodes: Mapping[Usage, int]) -> int:
        """How many messages, however small, use up what room for memory there is in one of these; at least one.

        `nodes`: with the number of queues that share the room.
        """
        fewest = UNLIMITED
        for charge in self._charges:
            if charge.measure is memory and charge.node in nodes:
                reached = charge.amount + charge.node.room // nodes[charge.node]
                fewest = min(fewest, -(-reached // self.minimum_size) - self.in_memory)
        return max(1, fewest)

    @property
    def octets(self) -> int:
        """Of all messages."""
        return self.in_memory_octets + self.paged_octets

    def settle(self) -> None:
        """Have the nodes know what changed."""
        for charge in self._charges:
            amount = charge.measure(self)
            if amount != charge.amount:
                difference, charge.amount = amount - charge.amount, amount
                charge.node.change(difference)

    def came(self, count: int, octets: int, stored: int) -> None:
        """New messages."""
        self.in_memory += count
        self.in_memory_octets += octets
        self.stored += stored
        if self.on_change is not None:
            self.on_change(self)
        elif self._charges:
            self.settle()

    def left(self, count: int, octets: int, stored: int) -> None:
        """Messages that were in memory are gone."""
        self.in_memory -= count
        self.in_memory_octets -= octets
        self.stored -= stored
        if self._charges:
            self.settle()

    def paged_out(self, count: int, octets: int, octets_paged: int, *, are_stored: bool) -> None:
        """Messages left memory, where they took so many octets; paged out they count for so many."""
        self.in_memory -= count
        self.in_memory_octets -= octets
        self.paged += count
        self.paged_octets += octets_paged
        if are_stored and self.counts_stored:
            self.stored -= octets
            self.paged_stored += octets_paged
        if self._charges:
            self.settle()

    def left_paged(self, count: int, octets: int, stored: int) -> None:
        """Messages that were paged out are gone."""
        self.paged -= count
        self.paged_octets -= octets
        self.paged_stored -= stored
        if self._charges:
            self.settle()

    def left_all_paged(self) -> None:
        """All that was paged out is gone."""
        self.left_paged(self.paged, self.paged_octets, self.paged_stored)

    def reset(self) -> None:
        """Count again from nothing; `settle` follows."""
        self.in_memory = self.in_memory_octets = self.stored = 0
        self.paged = self.paged_octets = self.paged_stored = 0

    def end(self) -> Iterable[Usage]:
        """The queue is gone, or metered otherwise. Returns the nodes that nothing feeds any more."""
        self.reset()
        self.settle()
        unused = []
        for charge in self._charges:
            charge.node.users -= 1
            if not charge.node.users:
                unused.append(charge.node)
        self._charges = []
        self.bounds = ()
        self.on_change = None
        return unused


# -- measures ---------------------------------------------------------------------------------------------------------


def memory(meter: Meter) -> int:
    """What is in memory; each message counts as `minimum_size` at least, on average."""
    return max(meter.in_memory_octets, meter.in_memory * meter.minimum_size)


def octets_in_memory(meter: Meter) -> int:
    """Of what is in memory."""
    return meter.in_memory_octets


def messages_in_memory(meter: Meter) -> int:
    """What is in memory."""
    return meter.in_memory


def all_octets(meter: Meter) -> int:
    """Of all messages, wherever they are."""
    return meter.octets


def all_messages(meter: Meter) -> int:
    """All messages, wherever they are."""
    return meter.in_memory + meter.paged


def stored_octets(meter: Meter) -> int:
    """Of those that a restart brings back."""
    return meter.stored + meter.paged_stored
