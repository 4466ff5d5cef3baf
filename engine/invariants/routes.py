"""Compare registered routes with the bindings: each leads to the queues to which the bindings lead now. Check bindings.

The queues are found here from the bindings alone, one by one: without the exchanges' indexes, and without the code that
makes routes stale.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from ..context import HostContext
from ..exchanges.exchange import Destination, Exchange
from ..exchanges.routed import Routed
from ..publishing.arrival_rules import rules_for_unmarked
from ..publishing.route import Route
from ..queues.kinds import is_reply_address
from ..queues.queue import Queue


def routes_of(host: HostContext, compared_max: int) -> Iterator[str]:
    """Faults of the routes of one virtual host, unless it has scoped queues.

    `compared_max`: with more comparisons of a route with a binding than this, nothing is checked.
    """
    count = sum(len(exchange.routes) for exchange in host.exchanges.values())
    if host.scopes is not None or count * host.bindings.count > compared_max:
        return
    for exchange in host.exchanges.values():
        for registration in list(exchange.routes._beginning.values()):
            route = registration()
            if isinstance(route, Route) and not route.is_stale:
                where = f"route of '{route.routing_key}' at exchange '{exchange.name}' in vhost '{host.name}'"
                yield from (f"{where}: {fault}" for fault in _faults_of(host, route))


def _faults_of(host: HostContext, route: Route) -> Iterator[str]:
    exchange, key = route.exchange, route.routing_key
    if host.exchanges.get(exchange.name) is not exchange:
        yield "its exchange does not exist"
        return
    expected = _queues_of(host, exchange, key)
    if _names(route.queues) != _names(expected):
        yield f"leads to {_names(route.queues)}, bindings to {_names(expected)}"
    rules = rules_for_unmarked(*host.router._address(exchange.name, key))
    if route.arrival != rules:
        yield f"has the rules {route.arrival}, its address has {rules}"


def _queues_of(host: HostContext, exchange: Exchange, key: str) -> list[Queue] | None:
    """The queues behind a key of an exchange; None: they differ by message."""
    router = host.router
    sharing = [queue for queue in host.queues.values() if key == queue.address != queue.name and not exchange.name]
    if is_reply_address(exchange, key) or len(sharing) > 1:
        return None
    found: list[Queue] | None = []
    if exchange.name:
        found = _behind(host, exchange, key)
    elif (named := host.queue_behind(key)) is not None:
        found = [named]
    if found is not None and router.captures:
        found = router._captured(found, exchange, Routed((key,)), for_all=True, is_dry=True)
    if found is None:
        return None
    if sharing and (not found or _is_multicast(host, sharing[0])):
        found = [*found, *sharing]
    found = [queue for queue in found if queue.is_open]
    return None if any(queue.rules.filter is not None for queue in found) else found


def _behind(host: HostContext, start: Exchange, key: str) -> list[Queue] | None:
    """The queues that bindings reach from an exchange; None: they differ by message."""
    seen, stack, found = {start: None}, [start], dict[Queue, None]()
    while stack:
        exchange = stack.pop()
        if exchange.decides_each:
            return None
        ends = _ends_of(exchange, key)
        if not ends and exchange.alternate is not None and exchange.alternate in host.exchanges:
            ends = [host.exchanges[exchange.alternate]]
        for end in ends:
            if isinstance(end, Queue):
                found[end] = None
            elif isinstance(end, Exchange) and end not in seen:
                seen[end] = None
                stack.append(end)
    return list(found)


def _ends_of(exchange: Exchange, key: str) -> list[Destination]:
    """The destinations of an exchange for a key. Other types than direct, fanout and topic use their own `match`."""
    kind = getattr(exchange, "routes_as", type(exchange)).type
    if kind not in ("direct", "fanout", "topic"):
        return list(exchange.match(Routed((key,))))
    return [one.destination for one in exchange.bindings.values() if _matches(kind, one.routing_key, key)]


def _matches(kind: str, pattern: str, key: str) -> bool:
    return kind == "fanout" or (_fits(_words(pattern), _words(key)) if kind == "topic" else pattern == key)


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _fits(pattern: list[str], words: list[str]) -> bool:
    """`*` is one word, `#` any number of words. O(pattern x words)."""
    ends = {0}  # the numbers of words, from the first, that the pattern so far may match
    for word in pattern:
        if word == "#":
            ends = set(range(min(ends), len(words) + 1))
        else:
            ends = {at + 1 for at in ends if at < len(words) and word in ("*", words[at])}
        if not ends:
            return False
    return len(words) in ends


def _is_multicast(host: HostContext, queue: Queue) -> bool:
    return queue.address in host.exchanges and any(binding.source.name == queue.address for binding in queue.incoming)


def _names(queues: list[Queue] | None) -> list[str] | None:
    return None if queues is None else sorted(queue.name for queue in queues)


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
