"""Invariants of the engine between two turns. A broken one is a mistake in the broker's code.

Tests check them when they end, the simulation after each turn, `leveret serve --debug` every second; production does
not. Each module compares state that is stored twice, and reports the differences. A check changes nothing. Source:
docs/simulation.md, "Invariants".
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from ..queues.queue import Queue
from .flow import memory_of, meter_of, usage_of
from .queues import deadlines_of, queue_of, timers_of
from .routes import bindings_of, routes_of
from .sessions import Held, held_by, sessions_of
from .stores import store_of

if TYPE_CHECKING:
    from ..broker import Broker
    from ..virtual_host import VirtualHost

__all__ = ["NO_LIMIT", "InvariantBroken", "check_broker", "check_queues", "check_routes"]

#: The default of `messages_max`: no limit.
NO_LIMIT = 1 << 62


class InvariantBroken(AssertionError):
    """The state of the broker contradicts itself, by a mistake in our code. Each line is one contradiction."""


def check_broker(broker: "Broker", *, messages_max: int = NO_LIMIT) -> None:
    """Check all invariants between two turns. O(all state). Raises: InvariantBroken.

    `messages_max`: of queues with more messages (ready, unacknowledged and scheduled) neither the messages one by one
    nor the store nor the meter are checked. If the routes of a virtual host need more comparisons with bindings than
    this, none of them is checked.
    """
    queues = list(broker.virtual_hosts.queues())
    opened = (session for client in broker.connections for session in client.sessions)
    held = held_by(chain(opened, *(queue.sessions for queue in queues)))
    found = chain(
        sessions_of(held),
        *(_queue(queue, held, messages_max) for queue in queues),
        *(bindings_of(vhost.context) for vhost in broker.virtual_hosts.values()),
        *(routes_of(vhost.context, messages_max) for vhost in broker.virtual_hosts.values()),
        usage_of(broker.context),
        memory_of(broker.context),
        deadlines_of(broker.context.deadlines),
    )
    _raise(found)


def check_queues(queues: Collection[Queue], *, messages_max: int = NO_LIMIT) -> None:
    """Check some queues, and the sessions that may have their deliveries. Raises: InvariantBroken."""
    held = held_by(chain.from_iterable(queue.sessions for queue in queues))
    _raise(chain(sessions_of(held), *(_queue(queue, held, messages_max) for queue in queues)))


def check_routes(vhost: "VirtualHost") -> None:
    """Check the registered routes of one virtual host. Raises: InvariantBroken."""
    _raise(routes_of(vhost.context, NO_LIMIT))


def _queue(queue: Queue, held: Held, messages_max: int) -> Iterator[str]:
    where = f"queue '{queue.name}' in vhost '{queue.vhost_name}'"
    is_small = queue.ready_count + queue.unacked + len(queue.scheduled) <= messages_max
    parts: list[Iterable[str]] = [queue_of(queue, held, is_small=is_small), timers_of(queue)]
    if is_small:
        parts += [store_of(queue), meter_of(queue)]
    parts.append(queue.kind.faults(queue, held.by_queue.get(queue, []), is_small))
    return (f"{where}: {fault}" for fault in chain(*parts))


def _raise(found: Iterable[str]) -> None:
    faults = list(found)
    if faults:
        raise InvariantBroken("\n".join(faults))
