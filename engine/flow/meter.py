"""The meter of one queue: how much is in it, in memory and altogether, and what that comes to in the usage tree.

The ledger feeds it: everything that happens to a message of a metered queue comes by there.
Source: queues page E.1, E.2 ("Charge"); docs/decisions/0010-flow-control.md.
"""

from collections.abc import Callable, Iterable

from .usage import Usage


class Charge:
    """What one queue has put into one node: `amount`, as `measure` has it."""

    __slots__ = ("amount", "measure", "node")

    def __init__(self, node: Usage, measure: "Callable[[Meter], int]") -> None:
        self.node = node
        self.measure = measure
        self.amount = 0


class Meter:
    """Messages and octets of blobs: `paged` those that were paged out when counting began, `at_hand` all others.

    `paged_now`: how many messages of the queue are paged out.

    `stored`, `paged_stored`: octets of those that a restart brings back. `holds_stored`, `holds_transient`: the nodes
    in which a publish of such a message has to find room. `forbids_paging`: all of it has to stay in memory, or has to
    be counted exactly.
    """

    __slots__ = (
        "_charges",
        "at_hand",
        "at_hand_octets",
        "fails",
        "fails_after_ms",
        "forbids_paging",
        "holds_stored",
        "holds_transient",
        "minimum_size",
        "paged",
        "paged_now",
        "paged_octets",
        "paged_stored",
        "stored",
        "terms",
    )

    def __init__(self, terms: object, *, forbids_paging: bool, minimum_size: int = 0) -> None:
        """`terms`: what it was made for."""
        self.terms = terms
        self.forbids_paging = forbids_paging
        self.minimum_size = minimum_size
        self.fails = False
        self.fails_after_ms = 0
        self.holds_stored: tuple[Usage, ...] = ()
        self.holds_transient: tuple[Usage, ...] = ()
        self._charges: list[Charge] = []
        self.paged_now: Callable[[], int] = _none
        self.at_hand = self.at_hand_octets = self.stored = 0
        self.paged = self.paged_octets = self.paged_stored = 0

    def charge(self, node: Usage, measure: "Callable[[Meter], int]") -> None:
        """From now on what is measured so is used of this node."""
        node.users += 1
        self._charges.append(Charge(node, measure))

    def feeds(self, node: Usage) -> bool:
        """Whether what is in the queue counts there."""
        return any(charge.node is node for charge in self._charges)

    @property
    def counts_stored(self) -> bool:
        """Whether anybody asks for `stored`."""
        return any(charge.measure is stored_octets for charge in self._charges)

    @property
    def octets(self) -> int:
        """Of all messages."""
        return self.at_hand_octets + self.paged_octets

    def settle(self) -> None:
        """Have the nodes know what changed."""
        for charge in self._charges:
            amount = charge.measure(self)
            if amount != charge.amount:
                difference, charge.amount = amount - charge.amount, amount
                charge.node.change(difference)

    def came(self, count: int, octets: int, stored: int) -> None:
        """New messages."""
        self.at_hand += count
        self.at_hand_octets += octets
        self.stored += stored
        if self._charges:
            self.settle()

    def left(self, count: int, octets: int, stored: int) -> None:
        """Messages that were in memory are gone."""
        self.came(-count, -octets, -stored)

    def loaded(self, count: int, octets: int, stored: int) -> None:
        """Messages are back in memory; of those that were paged out when counting began, only bodies were counted.

        These come first. Others were counted when they came.
        """
        known = min(count, self.paged)
        if known > 0:
            share = known / self.paged
            self.left_paged(known, round(self.paged_octets * share), round(self.paged_stored * share))
            self.came(known, octets * known // count, stored * known // count)
        elif self._charges:
            self.settle()

    def left_paged(self, count: int, octets: int, stored: int) -> None:
        """Messages that were paged out are gone."""
        self.paged -= count
        self.paged_octets = self.paged_octets - octets if self.paged else 0
        self.paged_stored = self.paged_stored - stored if self.paged else 0
        if self._charges:
            self.settle()

    def reset(self) -> None:
        """Count again from nothing; `settle` follows."""
        self.at_hand = self.at_hand_octets = self.stored = 0
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
        self.paged_now = _none
        return unused


def _none() -> int:
    """Nothing is paged out."""
    return 0


# -- measures ---------------------------------------------------------------------------------------------------------


def memory(meter: Meter) -> int:
    """What is in memory; each message counts as `minimum_size` at least, on average.

    Of what came in since counting began and is paged out by now, only the number is known: it is of average size.
    """
    count, octets = meter.at_hand, meter.at_hand_octets
    hidden = min(count, meter.paged_now() - meter.paged)
    if hidden > 0:
        octets -= octets * hidden // count
        count -= hidden
    return max(octets, count * meter.minimum_size)


def octets_at_hand(meter: Meter) -> int:
    """Of what is in memory."""
    return meter.at_hand_octets


def messages_at_hand(meter: Meter) -> int:
    """What is in memory."""
    return meter.at_hand


def all_octets(meter: Meter) -> int:
    """Of all messages, wherever they are."""
    return meter.octets


def all_messages(meter: Meter) -> int:
    """All messages, wherever they are."""
    return meter.at_hand + meter.paged


def stored_octets(meter: Meter) -> int:
    """Of those that a restart brings back."""
    return meter.stored + meter.paged_stored
