"""The usage tree: the nodes of the broker and of addresses, and which of them the meter of a queue feeds.

Source: queues page E.1, E.2; address-settings page 3.3; docs/decisions/0010-flow-control.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

from ...settings import NO_WHOLE_LIMITS, Flow, SystemUsage, WholeLimits
from ..messages.message import Envelope
from ..rules.flow_rules import VM, FlowRules
from ..rules.size_rules import BLOCK, PAGE, SizeRules
from .meter import Meter, all_messages, all_octets, memory, messages_in_memory, octets_in_memory, stored_octets
from .parked import ParkedTotal
from .usage import UNLIMITED, Usage

#: Limits on what all addresses hold together.
WHOLE_OCTETS, WHOLE_MESSAGES = "global-max-size", "global-max-messages"


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


class MeterSettings(NamedTuple):
    """What the meter of a queue depends on: as long as that is equal, it stays.

    `rules`: flow control of its address, or of the broker. `size`: what its address may hold. `keeps`: acknowledged
    messages stay in it. `evicts`: what is too much goes, so that nobody is held (queues page E.4, row 14).
    """

    rules: FlowRules | None
    size: SizeRules
    keeps: bool
    evicts: bool
    generation: int


class UsageTree(ABC):
    """`generation`: changes when limits of the broker are switched on or off, so that queues get other meters.

    `parked`: what frontends hold of publishers that wait.
    """

    __slots__ = ("_changed", "_flow", "_nodes", "_roots", "_whole", "generation", "parked", "system")

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, str, Hashable], Usage] = {}  # (limit, virtual host, name)
        self._roots: dict[str, Usage] = {}
        self._changed: dict[Meter, None] = {}  # of which the nodes have not heard yet
        self._whole: list[Usage] = []  # those of the roots that all addresses share, whatever their policy
        self._flow = Flow()
        self.system: SystemUsage | None = None
        self.generation = 0
        self.parked = ParkedTotal()

    @abstractmethod
    def _note_eased(self, node: Usage) -> None:
        """It is no longer full: who waits for it may go on."""

    @abstractmethod
    def _note_changed(self, meter: Meter) -> None:
        """It has new messages, which may still be paged out: the nodes hear of it soon (`_settle`)."""

    def _settle(self) -> None:
        """Have the nodes know all."""
        while self._changed:
            self._changed.popitem()[0].settle()

    def configure(self, system: SystemUsage | None, flow: Flow, whole: WholeLimits = NO_WHOLE_LIMITS) -> None:
        """The broker's own limits, and how full nodes ease; all may change while it runs. Queues follow by reviews."""
        self._flow, self.system = flow, system
        self.parked.share(0 if system is None else system.memory)
        limits = {} if system is None else {"memory": system.memory, "store": system.store, "temp": system.temp}
        if whole.octets_max is not None:
            limits[WHOLE_OCTETS] = max(1, whole.octets_max)
        if whole.messages_max is not None:
            limits[WHOLE_MESSAGES] = max(1, whole.messages_max)
        if limits.keys() != self._roots.keys():
            self.generation += 1
        for name, node in list(self._roots.items()):
            if name not in limits:
                self._end(node)
                del self._roots[name]
        for name, limit in limits.items():
            root = self._roots.get(name)
            if root is None:
                in_messages = name == WHOLE_MESSAGES
                root = Usage("broker", name, self._note_eased, is_root=True, in_messages=in_messages)
                self._roots[name] = root
            root.set_limit(limit, flow)
        for node in self._nodes.values():
            node.set_limit(node.limit, flow)
        self._whole = [self._roots[name] for name in (WHOLE_OCTETS, WHOLE_MESSAGES) if name in limits]

    def temp_changed(self, used: int) -> None:
        """So much is in the temp store. What is held there makes nobody wait: it would wait for itself."""
        node = self._roots.get("temp")
        if node is not None:
            node.change(used - self.parked.spooled - node.used)

    @property
    def is_on(self) -> bool:
        """Whether there is any limit."""
        return bool(self._nodes or self._roots)

    @property
    def has_whole_limit(self) -> bool:
        """Whether there is one on what all addresses hold together."""
        return bool(self._whole)

    @property
    def is_at_whole_limit(self) -> bool:
        """Whether all addresses count as full, each with its own policy; without a low mark (`SizeRules.drops`)."""
        self._settle()
        return any(root.used >= root.limit for root in self._whole)

    def meter_settings_of(
        self, rules: FlowRules | None, size: SizeRules, *, keeps: bool, evicts: bool
    ) -> MeterSettings | None:
        """What the meter of a queue with such rules is to be like; None: it needs none.

        `keeps`: acknowledged messages stay in it, which leaves its memory to the journal by itself.
        """
        if keeps:
            rules = None
        elif rules is None and self.system is not None:
            rules = FlowRules(
                fails=self.system.send_fail_if_no_space, fails_after_ms=self.system.send_fail_if_no_space_after_ms
            )
        if rules is None and not (size.holds or size.counts_octets or self._whole or (size.pages and not keeps)):
            return None
        return MeterSettings(rules, size, keeps, evicts, self.generation)

    def make_meter(self, queue: Metered, vhost: str, metering: MeterSettings, *, has_journal: bool) -> Meter:
        """The meter of a queue."""
        rules, size = metering.rules or FlowRules(), metering.size
        meter = Meter(
            metering, forbids_paging=rules.cursor == VM or size.counts_exactly, minimum_size=rules.minimum_size
        )
        meter.fails, meter.fails_after_ms = rules.fails, rules.fails_after_ms
        held: list[Usage] = []  # by publishes of either kind
        if metering.rules is not None:
            for node in self._memory_nodes(queue, vhost, rules):
                charge = meter.charge(node, memory)
                if rules.holds:
                    held.append(node)
                if rules.pages(is_own_limit=not node.is_root):
                    meter.bound(charge, partial(_memory_for, node, rules))
        for node in self._size_nodes(queue, vhost, size) if size.holds else ():
            meter.charge(node, all_messages if node.in_messages else all_octets)
            held.append(node)
        if size.pages and not metering.keeps:
            self._page_beyond(meter, queue, vhost, size)
        for node in self._whole:
            if size.policy != PAGE:
                meter.charge(node, all_messages if node.in_messages else all_octets)
            elif not metering.keeps:
                charge = meter.charge(node, messages_in_memory if node.in_messages else octets_in_memory)
                meter.bound(charge, partial(_limit_of, node))
            if size.policy == BLOCK:
                held.append(node)
        for node in held:
            if not node.is_root:
                node.warning_interval_ms = rules.warning_interval_ms
        stored, transient = list(held), list(held)
        if self.system is not None and metering.rules is not None:
            meter.charge(self._roots["store"], stored_octets)
            stored.append(self._roots["store"])
            if rules.may_spool:
                transient.append(self._roots["temp"])
                if not has_journal:
                    stored.append(self._roots["temp"])
        if meter.forbids_paging:
            meter.bounds = ()
        elif meter.bounds:
            meter.on_change = self._note_changed
        if not metering.evicts:
            meter.holds_stored, meter.holds_transient = tuple(stored), tuple(transient)
        return meter

    def _memory_nodes(self, queue: Metered, vhost: str, rules: FlowRules) -> Iterator[Usage]:
        if rules.memory_limit:
            where = f"queue '{queue.name}' in vhost '{vhost}'"
            yield self._node("memory", vhost, queue.name, where, rules.memory_limit)
        if self.system is not None:
            yield self._roots["memory"]

    def _size_nodes(self, queue: Metered, vhost: str, size: SizeRules) -> Iterator[Usage]:
        """Of an address that blocks; first the one that refuses, so that nobody waits for another meanwhile."""
        where = f"address '{queue.address}' in vhost '{vhost}'"
        if size.refused_above is not None:
            node = self._node("max-size-bytes-reject-threshold", vhost, queue.address, where, size.refused_above + 1)
            node.refuses = True
            yield node
        if size.octets_max is not None:
            yield self._node("max-size-bytes", vhost, queue.address, where, size.octets_max)
        if size.messages_max is not None:
            yield self._node("max-size-messages", vhost, queue.address, where, size.messages_max, in_messages=True)

    def _page_beyond(self, meter: Meter, queue: Metered, vhost: str, size: SizeRules) -> None:
        """Of an address that pages: what is in memory stays within its size."""
        where = f"address '{queue.address}' in vhost '{vhost}'"
        key = ("in memory", queue.address)  # an address with several queues may have both: some page, and some block
        if size.octets_max is not None:
            node = self._node("max-size-bytes", vhost, key, where, size.octets_max)
            meter.bound(meter.charge(node, octets_in_memory), partial(int, size.octets_max))
        if size.messages_max is not None:
            node = self._node("max-size-messages", vhost, key, where, size.messages_max, in_messages=True)
            meter.bound(meter.charge(node, messages_in_memory), partial(int, size.messages_max))

    def _node(
        self, limit_name: str, vhost: str, name: Hashable, where: str, limit: int, *, in_messages: bool = False
    ) -> Usage:
        key = (limit_name, vhost, name)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Usage(where, limit_name, self._note_eased, in_messages=in_messages)
        node.set_limit(max(1, limit), self._flow)  # 0 messages, or octets, is always full
        return node

    def forget(self, meter: Meter) -> None:
        """The queue is gone, or gets another meter: what nobody feeds any more holds nobody."""
        self._changed.pop(meter, None)
        for node in meter.end():
            if not node.is_root:
                self._end(node)
                for key, other in list(self._nodes.items()):
                    if other is node:
                        del self._nodes[key]

    def _end(self, node: Usage) -> None:
        """It limits nothing any more: all who wait go on."""
        node.is_full = False
        node.limit = 0
        if node.round_robin:
            self._note_eased(node)

    def nodes(self) -> list[Usage]:
        """All of them, the broker's first."""
        self._settle()
        return [*self._roots.values(), *self._nodes.values()]


def _memory_for(node: Usage, rules: FlowRules) -> int:
    """What of a limit messages may use before they are paged out: no more than lets publishers that wait go on."""
    if not node.limit:
        return UNLIMITED
    share = node.limit * rules.cursor_high_water_percent // 100
    return min(share, node.low) if rules.holds else share


def _limit_of(node: Usage) -> int:
    return node.limit
