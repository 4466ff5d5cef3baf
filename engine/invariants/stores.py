"""The counts of a store against its messages, and their order."""

from collections.abc import Iterator

from ..messages.message import Message
from ..queues.queue import Queue
from ..stores.last_value_store import LastValueReady, LastValueStore
from ..stores.levels import LeveledReady
from ..stores.paged_message import PagedMessage, body_size
from ..stores.tail import Tail


def store_of(queue: Queue) -> Iterator[str]:
    """Faults of a store with a tail or of last values. Others have only the counts that `queue_of` checks."""
    if isinstance(queue.store, LastValueStore):
        yield from _leveled(queue.store.ready)
        yield from _values(queue.store.ready)
    store = queue.pageable
    if store is None:
        return
    ready, tail = store.ready, store.tail
    if ready is not store.levels.ready:
        yield "ready is not that of its levels"
    if store.has_tail != (tail is not None):
        yield f"has_tail is {store.has_tail}, the tail {'is not' if tail is None else 'is'} there"
    if isinstance(ready, LeveledReady):
        yield from _leveled(ready)
    if store.levels.is_sorted:
        for level, here in enumerate(store.levels.by_level):
            ids = [message.id for message in here] if not queue.kind.captures else []
            if any(one >= other for one, other in zip(ids, ids[1:])):
                yield f"level {level} counts as sorted and is not: {ids[:50]}"
    if not store.expiring and any(message.expires_ns for message in store):
        yield "messages expire, and `expiring` is False"
    if tail is not None:
        yield from _tail(tail)


def _leveled(ready: LeveledReady) -> Iterator[str]:
    messages = list(ready)
    if len(ready) != len(messages):
        yield f"counts {len(ready)} ready, there are {len(messages)}"
    octets = sum(map(body_size, messages))
    if ready.octets != octets:
        yield f"counts {ready.octets} octets ready, they are {octets}"


def _values(ready: LastValueReady) -> Iterator[str]:
    """Faults of the counts in a last-value queue: contents in memory, and contents that are on disk only."""
    paged = [message for message in ready if isinstance(message, PagedMessage)]
    left = sum(message.is_paged for message in paged)
    if ready.paged_count != left:
        yield f"counts {ready.paged_count} values on disk only, {left} are"
    octets = sum(message.octets for message in paged if not message.is_paged)
    if ready.memory_octets != octets:
        yield f"counts {ready.memory_octets} octets of values in memory, they are {octets}"


def _tail(tail: Tail) -> Iterator[str]:
    count = octets = 0
    floor = -1
    for level, items in enumerate(tail._levels):
        here = list(items)
        if here:
            floor = level
        if len(here) != len(items):
            yield f"level {level} of the tail counts {len(items)} parts, {len(here)} are there"
        ids: list[int] = []
        for item in here:
            if isinstance(item, Message):
                ids.append(item.id)
                octets += body_size(item)
            else:
                ids += item.ids
                octets += sum(item.sizes[item.start :])
                if not len(item):
                    yield "a part of the tail is empty"
        count += len(ids)
        if tail._is_sorted and any(one >= other for one, other in zip(ids, ids[1:])):
            yield f"level {level} of the tail counts as sorted and is not: {ids[:50]}"
    if (len(tail), tail.floor) != (count, floor):
        yield f"the tail counts {len(tail)} messages up to level {tail.floor}, there are {count} up to {floor}"
    if not count:
        yield "the tail is empty"
    if tail.octets is not None and tail.octets != octets:
        yield f"the tail counts {tail.octets} octets, they are {octets}"
