"""Compare meters with the contents of their queues, nodes of the usage tree with their meters, and the memory budget
with the charges of its stores.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from ..context import BrokerContext
from ..flow.usage import Usage
from ..messages.message import Message, octets_of
from ..queues.queue import Queue


def meter_of(queue: Queue) -> Iterator[str]:
    """Faults of a queue's meter against a fresh count."""
    meter = queue.events.meter
    if meter is None:
        return
    parts = queue.store.paged_parts()
    in_tail = (part for part in parts if isinstance(part, Message))
    out = () if queue.keeps_acked else queue.unacked_messages()  # with at-most-once not all that have tags
    in_memory = list(chain(queue.messages(), in_tail, out))
    paged = list(queue.store.paged_sizes(parts))
    octets, paged_octets = sum(map(octets_of, in_memory)), sum(size for _, size, _ in paged)
    count, paged_count = len(in_memory), sum(count for count, _, _ in paged)
    stored = sum(one.octets for one in in_memory if queue.stores(one.envelope))
    paged_stored = sum(size for _, size, are_stored in paged if are_stored)
    metered = {
        "messages": (meter.in_memory + meter.paged, count + paged_count),
        "octets": (meter.octets, octets + paged_octets),
    }
    if not queue.keeps_acked:
        metered["messages in memory"] = (meter.in_memory, count)
        metered["octets in memory"] = (meter.in_memory_octets, octets)
    if meter.counts_stored:
        metered["octets that are stored"] = (meter.stored + meter.paged_stored, stored + paged_stored)
    for what, (counted, found) in metered.items():
        if counted != found:
            yield f"its meter counts {counted} {what}, there are {found}"


def memory_of(broker: BrokerContext) -> Iterator[str]:
    """Faults of the memory budget against the sum of its stores' charges."""
    memory = broker.storage.memory
    charges = sum(charge for charge, _, _ in memory._charges.values())
    if memory.total != charges:
        yield f"stores may take {memory.total} octets of memory, they were charged {charges}"


def usage_of(broker: BrokerContext) -> Iterator[str]:
    """Faults of the usage tree: a node's use is the sum of its meters' charges, and decides whether the node is full.

    The temp store's node is left out of the sums: the store itself reports its use.
    """
    flow = broker.flow
    used: Counter[Usage] = Counter()
    meter_counts: Counter[Usage] = Counter()
    meters = {queue.events.meter for queue in broker.virtual_hosts.queues()}
    if not flow._changed.keys() <= meters:
        yield "the usage tree waits for changes of a meter that no queue has"
    for queue in broker.virtual_hosts.queues():
        meter = queue.events.meter
        if meter is None:
            continue
        for charge in meter._charges:
            used[charge.node] += charge.amount
            meter_counts[charge.node] += 1
            if charge.amount != charge.measure(meter) and meter not in flow._changed:
                uses = f"queue '{queue.name}' uses {charge.measure(meter)} of {charge.node.reason}"
                yield f"{uses}, it is charged {charge.amount}"
    for node in [*flow._roots.values(), *flow._nodes.values()]:
        own = (node.used, node.meter_count)
        if node is not flow._roots.get("temp") and own != (used[node], meter_counts[node]):
            yield f"{node.reason}: (use, meters) is {own}, its meters add up to {(used[node], meter_counts[node])}"
        if node.is_full and node.used <= node.low or not node.is_full and 0 < node.limit <= node.used:
            yield f"{node.reason}: {node.used} of {node.limit} is used, full: {node.is_full}"
        if node.is_full != (node in flow._full):
            yield f"{node.reason}: is full: {node.is_full}, and listed so: {node in flow._full}"
