"""Publishing to where there are limits: what there is room for now, and what holds the rest.

Source: queues page E.4, E.5.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..exchanges.routed import Routed
from ..flow.blocker import Blocker
from ..flow.usage import UNLIMITED
from ..messages.message import Envelope
from ..publishing.route import ChosenRoute, Route
from ..queues.queue import Queue
from .commit import Returned
from .transaction import Transaction

if TYPE_CHECKING:
    from .client import Client


class PartlyPublished(NamedTuple):
    """What became of a run that was offered: `taken` messages from its head are published.

    `returned`: mandatory ones of them that nobody took. `full`: what holds the next one; None: offer the rest again,
    if there is any.
    """

    taken: int
    returned: list[Returned]
    full: Blocker | None


def route_with_room(
    route: Route, envelope: Envelope, blobs: Sequence[bytes], client: "Client"
) -> tuple[Route, int, Blocker | None]:
    """How many of a run may be published now, and by which route: the queues of one message are chosen once.

    Where the route depends on each message `blobs` is one message.
    """
    host = client.host
    queues = route.queues
    if queues is None or envelope.copies:
        queues = host.router.reach(route.exchange, Routed(envelope.keys, envelope, blobs[0], host.broker.chance))
        route, blobs = ChosenRoute(route, queues), blobs[:1]
    count, full = host.broker.flow.room_for(queues, envelope, blobs, client)
    return route, count, full


def affordable(blobs: Sequence[bytes], octets_max: int, messages_max: int) -> Sequence[bytes]:
    """Those of a run, from its head, that are not more than that."""
    if octets_max == UNLIMITED:
        return blobs
    for count, blob in enumerate(blobs[:messages_max]):
        octets_max -= len(blob)
        if octets_max < 0:
            return blobs[:count]
    return blobs[:messages_max]


def blocker_for_commit(transaction: Transaction, client: "Client") -> Blocker | None:
    """What holds a commit: it is published as one, or not at all (queues page E.4, row 13)."""
    host, flow = client.host, client.broker.flow
    reached: list[Queue] = []
    for _, names, envelope, blobs, _mandatory in transaction.publishes:
        found = (host.queue_named(name) for name in names if name)
        queues: list[Queue] = [queue for queue in found if queue is not None and queue.is_open]
        full = flow.room_for(queues, envelope, blobs[:1], client)[1]
        if full is not None and not flow.alarm.is_full:
            return full
        reached += queues
    return flow.alarm.blocker_for(reached, client) if flow.alarm.is_full and transaction.publishes else None
