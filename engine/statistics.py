"""A snapshot of the broker's counts."""

from collections.abc import Generator

from ..settings.frozen import frozen
from .context import BrokerContext
from .events import Counters

#: Queues counted in one step (about 1 ms).
QUEUES_A_STEP = 500


@frozen
class BrokerStatistics:
    """The numbers of the broker's objects and messages, and the counters since its start by name of event."""

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


def statistics_in_steps(broker: BrokerContext) -> Generator[None, None, BrokerStatistics]:
    """The steps of a snapshot. O(queues)."""
    vhosts = list(broker.virtual_hosts.values())
    queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
    counters = Counters()
    counters.add(broker.counters)  # of exchanges and deleted queues
    consumers = ready = unacked = scheduled = 0
    for count, queue in enumerate(queues, 1):
        counters.add(queue.counters)
        consumers += len(queue.consumers)
        ready += queue.ready_count
        unacked += queue.unacked
        scheduled += len(queue.scheduled)
        if count % QUEUES_A_STEP == 0:
            yield
    return BrokerStatistics(
        clients=len(broker.connections),
        vhosts=len(vhosts),
        exchanges=sum(len(vhost.exchanges) for vhost in vhosts),
        queues=len(queues),
        consumers=consumers,
        ready=ready,
        unacked=unacked,
        scheduled=scheduled,
        deadlines=len(broker.deadlines),
        counters=counters.as_dict(),
    )


def statistics_of(steps: Generator[None, None, BrokerStatistics]) -> BrokerStatistics:
    """Run all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: BrokerStatistics = end.value
            return found
