"""Publishing under limits: the messages that have room now, and the full limit that the next one waits for.

Source: queues page E.4, E.5.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..exchanges.routed import Routed
from ..flow.control import stricter
from ..flow.usage import FullLimit
from ..messages.message import UNLIMITED, Envelope
from ..publishing.route import ChosenRoute, Route
from ..queues.queue import Queue
from .transaction import Returned, Transaction

if TYPE_CHECKING:
    from .client import Client


class PartlyPublished(NamedTuple):
    """The result of `Session.publish_with_room`. `taken`: the number of published messages, from the first.

    `returned`: published mandatory messages that no queue took. `full`: the limit that the next message would exceed;
    None: publish the rest, if any, by another call.
    """

    taken: int
    returned: list[Returned]
    full: FullLimit | None


def route_with_room(
    route: Route, envelope: Envelope, contents: Sequence[bytes], client: "Client"
) -> tuple[Route, int, FullLimit | None]:
    """Count the messages that have room now. Returns: the route, this number, and the full limit of the next message.

    If each message may have other queues, only the first message counts, and the route is that of this message.
    """
    host = client.host
    queues = route.queues
    if queues is None or envelope.copies:
        message = Routed(envelope.keys, envelope, contents[0], host.broker.chance)
        if host.scopes is None:
            queues = host.router.reach(route.exchange, message)
        else:
            with host.broker.sites.at(client.site or host.broker.sites.own):
                queues = host.router.reach(route.exchange, message)
        route, contents = ChosenRoute(route, queues), contents[:1]
    count, full = host.broker.flow.room_for(queues, envelope, contents, client)
    return route, count, full


def contents_within(contents: Sequence[bytes], octets_max: int, messages_max: int) -> Sequence[bytes]:
    """The first messages of a run within these limits."""
    if octets_max == UNLIMITED:
        return contents
    for count, content in enumerate(contents[:messages_max]):
        octets_max -= len(content)
        if octets_max < 0:
            return contents[:count]
    return contents[:messages_max]


def full_limit_for_commit(transaction: Transaction, client: "Client") -> FullLimit | None:
    """The limit that a commit, which is published as a whole, would exceed; None: it has room (queues E.4, row 13).

    Of several full limits the strictest one: a commit must not wait for room and then be refused. All messages of a run
    have the same queues (`choose`), so its first message decides.
    """
    host, flow = client.host, client.broker.flow
    alarm = flow.raised
    full: FullLimit | None = None
    reached: list[Queue] = []
    for _, names, envelope, contents, _mandatory in transaction.publishes:
        found = (host.queue_named(name) for name in names if name)
        queues: list[Queue] = [queue for queue in found if queue is not None and queue.is_open]
        if alarm is not None:
            reached += queues
        elif (reason := flow.room_for(queues, envelope, contents[:1], client)[1]) is not None:
            full = stricter(full, reason)
            if full.fails:
                break
    return full if alarm is None or not transaction.publishes else alarm.full_limit_for(reached, client)
