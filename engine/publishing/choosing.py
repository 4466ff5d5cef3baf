"""Choosing queues when a message is published, for publishing it later: what a transaction keeps till its commit.

Source: behaviour page 2.15.
"""

from collections.abc import Iterator, Sequence

from ..context import HostContext
from ..exchanges.routed import Routed
from ..messages.message import Envelope
from .route import ChosenRoute, Route


def choose(
    route: Route, envelope: Envelope, blobs: Sequence[bytes], host: HostContext
) -> Iterator[tuple[list[str], Sequence[bytes]]]:
    """The names of the queues that a run goes to, with its messages: those of the default exchange also before they
    are there."""
    named = (
        () if route.exchange.name else [key for key in envelope.keys if key and not host.router.captures.is_leased(key)]
    )
    if route.queues is not None and not envelope.copies:
        yield list(dict.fromkeys((*named, *(queue.name for queue in route.queues)))), blobs
        return
    for blob in blobs:
        queues = host.router.reach(route.exchange, Routed(envelope.keys, envelope, blob, host.broker.chance))
        yield list(dict.fromkeys((*named, *(queue.name for queue in queues)))), (blob,)


def chosen_route(route: Route, names: Sequence[str], host: HostContext) -> ChosenRoute:
    """The route again, to those of the queues that `choose` named that are there now."""
    found = (host.queue_named(name) if name else host.router.captures.log for name in names)
    return ChosenRoute(route, [queue for queue in found if queue is not None and queue.is_open])
