"""A snapshot of what the broker holds."""

from collections.abc import Iterable
from dataclasses import dataclass

from .events import Counters
from .virtual_host import VirtualHost


@dataclass(slots=True, frozen=True)
class BrokerStatistics:
    """What the broker holds now, and what has happened since it started (counters by event name)."""

    clients: int
    vhosts: int
    exchanges: int
    queues: int
    consumers: int
    ready: int
    unacked: int
    scheduled: int
    deadlines: int
    counters: dict[str, int]


def statistics_of(vhosts: Iterable[VirtualHost], *, clients: int, deadlines: int, past: Counters) -> BrokerStatistics:
    """`past`: what happened to exchanges, and in queues that are gone. O(queues)."""
    vhosts = list(vhosts)
    queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
    counters = Counters()
    counters.add(past)
    for queue in queues:
        counters.add(queue.counters)
    return BrokerStatistics(
        clients=clients,
        vhosts=len(vhosts),
        exchanges=sum(len(vhost.exchanges) for vhost in vhosts),
        queues=len(queues),
        consumers=sum(len(queue.consumers) for queue in queues),
        ready=sum(queue.ready_count for queue in queues),
        unacked=sum(queue.unacked for queue in queues),
        scheduled=sum(len(queue.scheduled) for queue in queues),
        deadlines=deadlines,
        counters=counters.as_dict(),
    )
