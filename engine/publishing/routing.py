"""The way from an exchange, through others bound to it, to queues. Source: behaviour page 2.3, 2.10."""

from collections.abc import Iterable, Sequence

from ..context import HostContext
from ..exchanges.exchange import Exchange
from ..exchanges.routed import Routed
from ..queues.queue import Queue

#: Units of effort for each exchange on the way, and destinations or keys looked up per further unit.
EXCHANGE_COST, FOUND_A_STEP = 2, 8


def reach(start: Exchange, message: Routed, context: HostContext) -> list[Queue]:
    """All queues that a message reaches, each once; every exchange is visited at most once.

    An exchange without a destination for the message gives it to its alternate exchange. Any matching binding counts as
    a destination, even if it leads to no queue in the end, as in RabbitMQ.
    """
    if not start.name:
        message.cost += len(message.keys) // FOUND_A_STEP
        return [queue for key in dict.fromkeys(message.keys) if (queue := context.queue_behind(key)) is not None]
    return _walk({start: None}, message, context, decides_each=False) or []


def reach_all(start: Exchange, message: Routed, context: HostContext) -> tuple[list[Queue] | None, Iterable[Exchange]]:
    """The queues that every message with these keys reaches (None: they differ by message), and the exchanges visited.

    The answer holds until one of these exchanges changes.
    """
    seen = {start: None}
    if not start.name:
        return reach(start, message, context), seen
    return _walk(seen, message, context, decides_each=True), seen


def _walk(
    seen: dict[Exchange, None], message: Routed, context: HostContext, *, decides_each: bool
) -> list[Queue] | None:
    """Walk from the exchange in `seen`, and add those visited to it. None: an exchange decides for each message."""
    queues: dict[Queue, None] = {}
    stack = list(seen)
    while stack:
        exchange = stack.pop()
        if decides_each and exchange.decides_each:
            return None
        # To exchanges a destination is opaque; nothing but these two is ever bound.
        found: Sequence[Queue | Exchange] = exchange.match(message)  # type: ignore[assignment]
        message.cost += EXCHANGE_COST + (len(found) + len(message.keys)) // FOUND_A_STEP
        if (
            not found and exchange.alternate is not None and exchange.alternate in context.exchanges
        ):  # the alternate exchange may not exist yet
            found = (context.exchanges[exchange.alternate],)
        for destination in found:
            if isinstance(destination, Queue):
                queues[destination] = None
            elif destination not in seen:
                seen[destination] = None
                stack.append(destination)
    return list(queues)
