"""Bindings are known at both ends, and counted."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from ..exchanges.exchange import Destination
from ..queues.queue import Queue
from .host import CheckedHost


def bindings_of(vhost: CheckedHost) -> Iterator[str]:
    """Of one virtual host."""
    count = 0
    for name, exchange in vhost.exchanges.items():
        where = f"exchange '{name}' in vhost '{vhost.name}'"
        if exchange.name != name:
            yield f"{where}: its name is '{exchange.name}'"
        count += len(exchange.bindings)
        leading: Counter[Destination] = Counter()
        for identity, binding in exchange.bindings.items():
            destination = binding.destination
            leading[destination] += 1
            if binding.source is not exchange or binding.identity != identity:
                yield f"{where}: a binding to '{destination.name}' is another one's"
            if binding not in destination.incoming:
                yield f"{where}: '{destination.name}' does not know of its binding '{binding.routing_key}'"
            there = vhost.queues if isinstance(destination, Queue) else vhost.exchanges
            if there.get(destination.name) is not destination:
                yield f"{where}: a binding leads to '{destination.name}', which is not there"
        if exchange.destinations != leading:
            yield f"{where}: counts {exchange.destinations}, bindings say {leading}"
    ends: chain[Destination] = chain(vhost.queues.values(), vhost.exchanges.values())
    for end in ends:
        for binding in end.incoming:
            if binding.source.bindings.get(binding.identity) is not binding:
                yield f"'{end.name}' in vhost '{vhost.name}': exchange '{binding.source.name}' has no such binding"
    if vhost.bindings.count != count:
        yield f"vhost '{vhost.name}' counts {vhost.bindings.count} bindings, there are {count}"
