"""Both ends of a binding know it, and the count of bindings is right."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from ..context import HostContext
from ..exchanges.exchange import Destination
from ..queues.queue import Queue


def bindings_of(host: HostContext) -> Iterator[str]:
    """Faults of the bindings of one virtual host."""
    count = 0
    for name, exchange in host.exchanges.items():
        where = f"exchange '{name}' in vhost '{host.name}'"
        if exchange.name != name:
            yield f"{where}: its name is '{exchange.name}'"
        count += len(exchange.bindings)
        leading: Counter[Destination] = Counter()
        for identity, binding in exchange.bindings.items():
            destination = binding.destination
            leading[destination] += 1
            if binding.source is not exchange or binding.identity != identity:
                yield f"{where}: a binding to '{destination.name}' has another source or identity"
            if binding not in destination.incoming:
                yield f"{where}: '{destination.name}' does not know of its binding '{binding.routing_key}'"
            there = host.queues if isinstance(destination, Queue) else host.exchanges
            if there.get(destination.name) is not destination:
                yield f"{where}: a binding leads to '{destination.name}', which does not exist"
        if exchange.destinations != leading:
            yield f"{where}: counts {exchange.destinations}, bindings say {leading}"
    ends: chain[Destination] = chain(host.queues.values(), host.exchanges.values())
    for end in ends:
        for binding in end.incoming:
            if binding.source.bindings.get(binding.identity) is not binding:
                yield f"'{end.name}' in vhost '{host.name}': exchange '{binding.source.name}' has no such binding"
    if host.bindings.count != count:
        yield f"vhost '{host.name}' counts {host.bindings.count} bindings, there are {count}"
