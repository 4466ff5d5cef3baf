"""Finds the durable queues that hold a message; used when live contents of an old segment are moved forward."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from ...engine import Broker
from .recorder import Recorder


def message_index(broker: Broker, recorder: Recorder) -> Callable[[int], tuple[int, ...]]:
    """A function from a message id to the ids of the durable queues that hold the message now.

    O(messages in memory + runs); each call of the function is O(queues log runs).
    """
    where: dict[int, tuple[int, ...]] = {}
    paged: list[tuple[int, list[Sequence[int]]]] = []
    for vhost in broker.virtual_hosts.values():
        for queue in vhost.queues.values():
            if not queue.durable:
                continue
            id_, picture = recorder.id_of(queue), queue.kind.picture(queue)
            levels: dict[int, list[Sequence[int]]] = {}  # within each, runs do not overlap
            for part in picture.parts:
                levels.setdefault(part.level, []).append(part.ids)
            paged.extend((id_, sorted(runs, key=_first)) for runs in levels.values())
            for message in picture.messages:
                if message.envelope.summary.persistent:
                    where[message.id] = (*where.get(message.id, ()), id_)

    def queues_of(id_: int) -> tuple[int, ...]:
        found = where.get(id_, ())
        for queue_id, runs in paged:
            at = bisect_right(runs, id_, key=_first) - 1
            if at >= 0 and _has(runs[at], id_):
                found = (*found, queue_id)
        return found

    return queues_of


def _first(ids: Sequence[int]) -> int:
    return ids[0]


def _has(ids: Sequence[int], id_: int) -> bool:
    """Whether `id_` is one of the rising ids."""
    if isinstance(ids, range):
        return id_ in ids
    at = bisect_left(ids, id_)
    return at < len(ids) and ids[at] == id_
