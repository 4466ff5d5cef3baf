"""Checks the counts of a store against its messages, and the order of the messages."""

from collections.abc import Iterator

from ..messages.message import Message, body_octets_of, octets_of
from ..queues.queue import Queue
from ..stores import non_destructive_store
from ..stores.last_value_store import LastValueReady, PagedMessage
from ..stores.levels import LeveledReady
from ..stores.non_destructive_store import NonDestructiveStore
from ..stores.store import Store
from ..stores.stream_store import StreamStore
from ..stores.tail import Tail
from ..stores.tailed_store import TailedStore


def store_of(queue: Queue) -> Iterator[str]:
    """Faults of a queue's store; `queue_of` checks its counts."""
    yield from counts_of(queue.store)
    store = queue.pageable
    if store is None:
        return
    ready, tail = store.ready, store.tail
    if ready is not store.levels.ready:
        yield "ready is not that of its levels"
    if store.has_tail != (tail is not None):
        yield f"has_tail is {store.has_tail}, the tail {'is not' if tail is None else 'is'} there"
    if store.levels.is_sorted:
        for level, messages in enumerate(store.levels.by_level):
            ids = [message.id for message in messages] if not queue.kind.captures else []
            if any(one >= other for one, other in zip(ids, ids[1:])):
                yield f"level {level} counts as sorted and is not: {ids[:50]}"
    expires = any(message.expires_ns for message in store)
    if not store.expiring and (expires or tail is not None and any(map(tail.expires_ns, range(store.level_max + 1)))):
        yield "messages expire, and `expiring` is False"
    meter = queue.events.meter
    if store.tail_io.is_metered is not (meter is not None):
        yield f"reports paged-out messages to a meter: {store.tail_io.is_metered}, has a meter: {meter is not None}"
    if store.share.may_page is not (meter is None or not meter.forbids_paging):
        yield f"may page: {store.share.may_page}, its meter says the opposite"
    if tail is None and store.levels._window:
        yield f"{len(store.levels._window)} messages that were read for scans are in memory, none is paged out"


def counts_of(store: Store) -> Iterator[str]:
    """Faults of a store alone: of its counts, and of the order of its tail."""
    if isinstance(store, TailedStore):
        if isinstance(store.ready, LeveledReady):
            yield from _leveled(store.ready)
        if isinstance(store.ready, LastValueReady):
            yield from _values(store.ready)
        if store.tail is not None:
            yield from _tail(store.tail)
    elif isinstance(store, NonDestructiveStore):
        yield from _non_destructive(store)
    elif isinstance(store, StreamStore):
        yield from _stream(store)


def _leveled(ready: LeveledReady) -> Iterator[str]:
    messages = list(ready)
    if len(ready) != len(messages):
        yield f"counts {len(ready)} ready, there are {len(messages)}"
    octets = sum(map(body_octets_of, messages))
    if ready.octets != octets:
        yield f"counts {ready.octets} octets ready, they are {octets}"
    contents = sum(message.octets for message in messages)
    if ready.content_octets != contents:
        yield f"counts {ready.content_octets} octets of contents, they are {contents}"


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
        parts = list(items)
        if parts:
            floor = level
        if len(parts) != len(items):
            yield f"level {level} of the tail counts {len(items)} parts, {len(parts)} are there"
        ids: list[int] = []
        for item in parts:
            if isinstance(item, Message):
                ids.append(item.id)
                octets += item.body_octets
            else:
                ids += item.ids
                octets += sum(item.sizes[item.start :])
                if not len(item):
                    yield "a part of the tail is empty"
                if item.location is not None and item.end != item.offset + sum(item.sizes[item.start :]):
                    yield f"a part of the tail ends at {item.end} in the temp store, its contents elsewhere"
        count += len(ids)
        if tail._is_sorted and any(one >= other for one, other in zip(ids, ids[1:])):
            yield f"level {level} of the tail counts as sorted and is not: {ids[:50]}"
    if (len(tail), tail.floor) != (count, floor):
        yield f"the tail counts {len(tail)} messages up to level {tail.floor}, there are {count} up to {floor}"
    if not count:
        yield "the tail is empty"
    if tail.octets is not None and tail.octets != octets:
        yield f"the tail counts {tail.octets} octets, they are {octets}"


def _non_destructive(store: NonDestructiveStore) -> Iterator[str]:
    """Faults of the octets in memory and on disk, and of the first ids of last values."""
    octets, bodies = sum(map(octets_of, store)), sum(map(body_octets_of, store))
    octets += non_destructive_store.OVERHEAD * store.in_memory  # type: ignore[attr-defined] # tests set it
    if store.memory_octets != octets:
        yield f"counts {store.memory_octets} octets in memory, they are {octets}"
    if store._body_octets not in (None, bodies):
        yield f"counts {store._body_octets} octets of bodies in memory, they are {bodies}"
    if not store._first_ids.keys() <= set(store._by_key.values()):
        yield f"remembers the first ids of {sorted(store._first_ids)[:20]}, not all of which are the newest of a key"
    index = store.paged_index
    sizes = sum(index._sizes[at] for at in index._live())
    if index.body_octets != sizes:
        yield f"counts {index.body_octets} octets of bodies on disk, they are {sizes}"
    if index._gone_count != sum(index._gone):
        yield f"counts {index._gone_count} messages that left the disk, they are {sum(index._gone)}"


def _stream(store: StreamStore) -> Iterator[str]:
    """Faults of the counts of a stream: of its segments, and of what is in memory."""
    messages, segments = list(store), store._segments
    if sum(one.count for one in segments) != len(store):
        yield f"counts {len(store)} messages, its segments {[one.count for one in segments]}"
    if sum(one.octets for one in segments) != store.octets:
        yield f"counts {store.octets} octets, its segments {[one.octets for one in segments]}"
    if store.next_offset - store.memory_offset != len(messages):
        yield f"{len(messages)} messages are in memory, of offsets {store.memory_offset} to {store.next_offset}"
    octets = sum(len(message.content) for message in messages)
    if store.memory_octets != octets:
        yield f"counts {store.memory_octets} octets in memory, they are {octets}"
