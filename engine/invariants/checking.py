"""All parts, one after the other."""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from ..leases.kind import LeasedQueue
from ..queues.queue import Queue
from .bindings import bindings_of
from .deadlines import deadlines_of, timers_of
from .flow import memory_of, meter_of, usage_of
from .leases import leases_of
from .queues import queue_of
from .sessions import Held, held_by, sessions_of
from .stores import store_of

if TYPE_CHECKING:
    from ..broker import Broker

#: Messages of one queue that are looked at one by one where no number is said.
MANY = 1 << 62


class InvariantBroken(AssertionError):
    """The broker contradicts itself: our mistake. Each line says what is written down in two ways."""


def check_broker(broker: "Broker", *, messages_max: int = MANY) -> None:
    """All that must be true between two turns. O(all); of queues with more messages than that only the counts.

    Raises: InvariantBroken.
    """
    queues = list(broker.virtual_hosts.queues())
    opened = (session for client in broker.connections for session in client.sessions)
    held = held_by(chain(opened, *(queue.sessions for queue in queues)))
    found = chain(
        sessions_of(held),
        *(_queue(queue, held, messages_max) for queue in queues),
        *(bindings_of(vhost.context) for vhost in broker.virtual_hosts.values()),
        usage_of(broker.context),
        memory_of(broker.context),
        deadlines_of(broker.context.deadlines),
    )
    _raise(found)


def check_queues(queues: Collection[Queue], *, messages_max: int = MANY) -> None:
    """The same of some queues, and of the sessions that may have something of them. Raises: InvariantBroken."""
    held = held_by(chain.from_iterable(queue.sessions for queue in queues))
    _raise(chain(sessions_of(held), *(_queue(queue, held, messages_max) for queue in queues)))


def _queue(queue: Queue, held: Held, messages_max: int) -> Iterator[str]:
    where = f"queue '{queue.name}' in vhost '{queue.vhost_name}'"
    is_small = queue.ready_count + queue.unacked + len(queue.scheduled) <= messages_max
    parts = [queue_of(queue, held, is_small=is_small), timers_of(queue)]
    if is_small:
        parts += [store_of(queue), meter_of(queue, held)]
    if isinstance(queue, LeasedQueue):
        parts.append(leases_of(queue, held, is_small=is_small))
    return (f"{where}: {fault}" for fault in chain(*parts))


def _raise(found: Iterable[str]) -> None:
    faults = list(found)
    if faults:
        raise InvariantBroken("\n".join(faults))
