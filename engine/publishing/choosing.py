"""The choice of queues for a message that is published later: a transaction makes it at the publish.

Source: behaviour page 2.15.
"""

from collections.abc import Iterator, Sequence

from ..context import HostContext
from ..exchanges.routed import Routed
from ..messages.message import Envelope
from .route import ChosenRoute, Route


def choose(
    route: Route, envelope: Envelope, contents: Sequence[bytes], host: HostContext
) -> Iterator[tuple[list[str], Sequence[bytes]]]:
    """Stretches of a run with the names of their queues. For the default exchange a name counts even if the queue does
    not exist yet."""
    rules, sites = route.arrival, host.broker.sites
    if rules is not None and rules.site is not None and rules.site != sites.now:
        with sites.at(rules.site):
            yield from list(choose(route, envelope, contents, host))
        return
    captures = host.router.captures
    keys = () if route.exchange.name else envelope.keys
    named = [key for key in keys if key and key not in captures.targets and not captures.is_capturing(key)]
    if route.queues is not None and not envelope.copies:
        yield list(dict.fromkeys((*named, *(queue.name for queue in route.queues)))), contents
        return
    for content in contents:
        queues = host.router.reach(route.exchange, Routed(envelope.keys, envelope, content, host.broker.chance))
        yield list(dict.fromkeys((*named, *(queue.name for queue in queues)))), (content,)


def chosen_route(route: Route, names: Sequence[str], host: HostContext) -> ChosenRoute:
    """The route with those of the queues chosen by `choose` that exist now and are open."""
    found = (host.queue_named(name) if name else host.router.captures.log for name in names)
    return ChosenRoute(route, [queue for queue in found if queue is not None and queue.is_open])
