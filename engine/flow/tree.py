"""The usage tree: the nodes of the broker, addresses and queues, and the choice of nodes for a queue's meter.

Source: queues page E.1, E.2; address-settings page 3.3; docs/decisions/0010-flow-control.md.
"""

from collections.abc import Hashable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...settings import NO_WHOLE_LIMITS, Flow, SystemUsage, WholeLimits
from ..context import BrokerContext
from ..messages.message import UNLIMITED
from ..rules.limits import BLOCK, PAGE, VM, FlowRules, SizeRules
from .meter import Meter, all_messages, all_octets, memory, messages_in_memory, octets_in_memory, stored_octets
from .round_robin import ParkedTotal
from .usage import NodeKey, Usage

if TYPE_CHECKING:
    from ..queues.queue import Queue

#: Names of the limits on all addresses together.
WHOLE_OCTETS, WHOLE_MESSAGES = "global-max-size", "global-max-messages"


class MeterSettings(NamedTuple):
    """The settings of a queue's meter. A queue with other settings gets a new meter.

    `rules`: flow control of its address or of the broker. `size`: size limits of its address. `keeps_acked`:
    `Kind.keeps_acked`. `evicts`: the queue drops messages instead of blocking (queues page E.4, row 14).
    `generation`: that of the tree.
    """

    rules: FlowRules | None
    size: SizeRules
    keeps_acked: bool
    evicts: bool
    generation: int


class UsageTree:
    """The nodes of one broker.

    `generation`: rises when a limit of the broker is added or removed, so that queues get new meters. `parked`: the
    publishes that frontends park for blocked clients. `pending`: there is work for the end of the turn.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._nodes: dict[NodeKey, Usage] = {}
        self._roots: dict[str, Usage] = {}
        self._full: dict[Usage, None] = {}  # those of `_nodes` and `_roots`
        self._changed: dict[Meter, None] = {}  # meters whose changes the nodes do not know
        self._drained: dict[Usage, None] = {}
        self._whole: list[Usage] = []  # the roots of the limits on all addresses
        self._flow = Flow()
        self.system: SystemUsage | None = None
        self.generation = 0
        self.pending = False
        self.parked = ParkedTotal()

    def _note_drained(self, node: Usage) -> None:
        """Note a node that is no longer full: the end of the turn releases its waiting clients."""
        self._drained[node] = None
        self.pending = self._context.background.pending = True

    def _note_changed(self, meter: Meter) -> None:
        """Note a meter with new messages, which may yet be paged out. `_update_nodes` updates the nodes."""
        self._changed[meter] = None
        self.pending = self._context.background.pending = True

    def _update_nodes(self) -> None:
        while self._changed:
            self._changed.popitem()[0].update_nodes()

    def configure(self, system: SystemUsage | None, flow: Flow, whole: WholeLimits = NO_WHOLE_LIMITS) -> None:
        """Set the broker's limits and the low marks. If `generation` rises, queues need new meters."""
        self._flow, self.system = flow, system
        self.parked.set_limit(0 if system is None else system.memory)
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
                root = Usage("broker", name, self._note_drained, self._full, is_root=True, in_messages=in_messages)
                self._roots[name] = root
            root.set_limit(limit, flow)
        for node in self._nodes.values():
            node.set_limit(node.limit, flow)
        self._whole = [self._roots[name] for name in (WHOLE_OCTETS, WHOLE_MESSAGES) if name in limits]

    def temp_changed(self, used: int) -> None:
        """Set the octets used of the temp store. Parked publishes do not count: a client must not wait for its own."""
        node = self._roots.get("temp")
        if node is not None:
            node.change(used - self.parked.spooled - node.used)

    @property
    def is_on(self) -> bool:
        """Whether there is any node."""
        return bool(self._nodes or self._roots)

    @property
    def has_whole_limit(self) -> bool:
        """Whether there is a limit on all addresses together."""
        return bool(self._whole)

    @property
    def is_at_whole_limit(self) -> bool:
        """Whether a limit on all addresses is reached. Then each address applies its policy; there is no low mark."""
        self._update_nodes()
        return any(root.used >= root.limit for root in self._whole)

    def meter_settings_of(
        self, rules: FlowRules | None, size: SizeRules, *, keeps_acked: bool, evicts: bool
    ) -> MeterSettings | None:
        """The settings of the meter for a queue with these rules; None: it needs no meter.

        A queue that keeps acknowledged messages pages out by itself: only size limits apply to it.
        """
        if keeps_acked:
            rules = None
        elif rules is None and self.system is not None:
            rules = FlowRules(
                fails=self.system.send_fail_if_no_space, fails_after_ms=self.system.send_fail_if_no_space_after_ms
            )
        if rules is None and not (size.blocks or size.counts_octets or self._whole or (size.pages and not keeps_acked)):
            return None
        return MeterSettings(rules, size, keeps_acked, evicts, self.generation)

    def make_meter(self, queue: "Queue", vhost: str, metering: MeterSettings, *, has_journal: bool) -> Meter:
        """Make the meter of a queue, with charges to its nodes."""
        rules, size = metering.rules or FlowRules(), metering.size
        meter = Meter(
            metering, forbids_paging=rules.cursor == VM or size.counts_exactly, minimum_size=rules.minimum_size
        )
        meter.fails, meter.fails_after_ms = rules.fails, rules.fails_after_ms
        blocking: list[Usage] = []  # stored and transient publishes alike
        if metering.rules is not None:
            for node in self._memory_nodes(queue, vhost, rules):
                charge = meter.add_charge(node, memory)
                if rules.blocks:
                    blocking.append(node)
                if rules.pages_at_broker_limit if node.is_root else rules.pages_at_own_limit:
                    meter.add_memory_bound(charge, partial(_memory_limit_of, node, rules))
        for node in self._size_nodes(queue, vhost, size) if size.blocks else ():
            meter.add_charge(node, all_messages if node.in_messages else all_octets)
            blocking.append(node)
        if size.pages and not metering.keeps_acked:
            self._page_beyond(meter, queue, vhost, size)
        for node in self._whole:
            if size.policy != PAGE:
                meter.add_charge(node, all_messages if node.in_messages else all_octets)
            elif not metering.keeps_acked:
                charge = meter.add_charge(node, messages_in_memory if node.in_messages else octets_in_memory)
                meter.add_memory_bound(charge, partial(getattr, node, "limit"))
            if size.policy == BLOCK:
                blocking.append(node)
        for node in blocking:
            if not node.is_root:
                node.warning_interval_ms = rules.warning_interval_ms
        stored, transient = list(blocking), list(blocking)
        if self.system is not None and metering.rules is not None:
            meter.add_charge(self._roots["store"], stored_octets)
            stored.append(self._roots["store"])
            if rules.may_spool:
                transient.append(self._roots["temp"])
                if not has_journal:
                    stored.append(self._roots["temp"])
        if meter.forbids_paging:
            meter.memory_bounds = ()
        elif meter.memory_bounds:
            meter.on_change = self._note_changed
        if not metering.evicts:
            meter.blocking_stored, meter.blocking_transient = tuple(stored), tuple(transient)
        return meter

    def _memory_nodes(self, queue: "Queue", vhost: str, rules: FlowRules) -> Iterator[Usage]:
        if rules.memory_limit:
            where = f"queue '{queue.name}' in vhost '{vhost}'"
            # Blocking limits have separate nodes, so that a change to the other kind releases the blocked clients.
            name = queue.name if rules.blocks else ("in memory", queue.name)
            yield self._node("memory", vhost, name, where, rules.memory_limit)
        if self.system is not None:
            yield self._roots["memory"]

    def _size_nodes(self, queue: "Queue", vhost: str, size: SizeRules) -> Iterator[Usage]:
        """The nodes of an address with policy BLOCK. The refusing one comes first: a publish must not wait for another
        node and then be refused.
        """
        where = f"address '{queue.address}' in vhost '{vhost}'"
        if size.refused_above is not None:
            node = self._node("max-size-bytes-reject-threshold", vhost, queue.address, where, size.refused_above + 1)
            node.refuses = True
            yield node
        if size.octets_max is not None:
            yield self._node("max-size-bytes", vhost, queue.address, where, size.octets_max)
        if size.messages_max is not None:
            yield self._node("max-size-messages", vhost, queue.address, where, size.messages_max, in_messages=True)

    def _page_beyond(self, meter: Meter, queue: "Queue", vhost: str, size: SizeRules) -> None:
        """Keep the messages in memory within the size of an address with policy PAGE."""
        where = f"address '{queue.address}' in vhost '{vhost}'"
        key = ("in memory", queue.address)  # a separate node: other queues of the address may block
        # `partial(int, limit)` is a function that returns the limit.
        if size.octets_max is not None:
            node = self._node("max-size-bytes", vhost, key, where, size.octets_max)
            meter.add_memory_bound(meter.add_charge(node, octets_in_memory), partial(int, size.octets_max))
        if size.messages_max is not None:
            node = self._node("max-size-messages", vhost, key, where, size.messages_max, in_messages=True)
            meter.add_memory_bound(meter.add_charge(node, messages_in_memory), partial(int, size.messages_max))

    def _node(
        self, limit_name: str, vhost: str, name: Hashable, where: str, limit: int, *, in_messages: bool = False
    ) -> Usage:
        key = (limit_name, vhost, name)
        node = self._nodes.get(key)
        if node is None:
            node = Usage(where, limit_name, self._note_drained, self._full, in_messages=in_messages, key=key)
            self._nodes[key] = node
        node.set_limit(max(1, limit), self._flow)  # 0 in settings: always full; in `Usage`: no limit
        return node

    def forget(self, meter: Meter) -> None:
        """End the meter of a queue that is deleted or gets a new meter. Removes nodes that no meter charges."""
        self._changed.pop(meter, None)
        for node in meter.end():
            if not node.is_root:
                self._end(node)
                assert node.key is not None
                del self._nodes[node.key]

    def _end(self, node: Usage) -> None:
        """Remove the limit of a node, and release its waiting clients."""
        node.mark(False)
        node.limit = 0
        if node.round_robin:
            self._note_drained(node)

    def nodes(self) -> list[Usage]:
        """All nodes, those of the broker first."""
        self._update_nodes()
        return [*self._roots.values(), *self._nodes.values()]

    def full_nodes(self) -> list[Usage]:
        """The nodes that are full, in the order in which they became so. O(full nodes)."""
        self._update_nodes()
        return list(self._full)


def _memory_limit_of(node: Usage, rules: FlowRules) -> int:
    """The octets in memory beyond which messages are paged out: a share of the limit.

    If the limit blocks publishers, it is at most the low mark, so that paging releases them.
    """
    if not node.limit:
        return UNLIMITED
    share = node.limit * rules.cursor_high_water_percent // 100
    return min(share, node.low) if rules.blocks else share
