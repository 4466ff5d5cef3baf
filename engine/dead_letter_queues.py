"""The queues that receive dead letters by the current rules of other queues. Source: address-settings page 5.5, 6.7."""

from collections.abc import Iterable, Iterator

from .context import HostContext
from .exchanges.routed import Routed
from .messages.deaths import EXPIRED, REJECTED
from .queues.queue import Queue
from .rules.queue_rules import NO_RULES, QueueRules

#: Queues whose rules are read in one step.
SLICE = 200


def dead_letter_queues(host: HostContext) -> Iterator[list[Queue]]:
    """The dead-letter queues of a virtual host, each once, some in each step. Only rules count, not the messages."""
    known: dict[Queue, None] = {}
    places: dict[tuple[str, str | None], None] = {}
    for count, queue in enumerate(list(host.queues.values()), 1):
        some: list[Queue] = []
        if queue.rules is not NO_RULES and not queue.deleted:
            for place in _places_of(host, queue, queue.rules):
                if place not in places:
                    places[place] = None
                    some += [one for one in _queues_at(host, *place) if one.name and one not in known]
                    known.update(dict.fromkeys(some))
        if some or count % SLICE == 0:
            yield list(dict.fromkeys(some))


def _places_of(host: HostContext, queue: Queue, rules: QueueRules) -> Iterator[tuple[str, str | None]]:
    """The dead-letter targets of a queue: (exchange, routing key); None: the routing key of each message."""
    if rules.dead_letter_exchange is not None:
        yield rules.dead_letter_exchange, rules.dead_letter_routing_key
        return
    for reason in (REJECTED, EXPIRED):
        target = rules.dead_letter_target(reason)
        if target is None:
            continue
        yield host.router.resolve_address(target, queue.address)
        resources = rules.expiry_resources if reason == EXPIRED else rules.dead_letter_resources
        if resources is not None:
            yield "", f"{resources.prefix}{queue.address}{resources.suffix}"


def _queues_at(host: HostContext, exchange_name: str, key: str | None) -> Iterable[Queue]:
    exchange = host.exchanges.get(exchange_name)
    if exchange is None:
        return []
    if key is None:
        return [one for one in exchange.destinations if isinstance(one, Queue)]
    return host.router.reach(exchange, Routed((key,)))
