"""Paging out and reading back: conversion of messages in memory into runs of a tail, and back.

Messages that are only in memory, and those that must stay there, are stored in the tail as objects.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise

from ..messages.message import Envelope, Message
from .memory_budget import OVERHEAD
from .paged_run import IN_JOURNAL, Location, PagedRun, Part, Run, Taken, messages_of, octets_paged
from .storage import Owner, Storage
from .tail import Tail
from .temp_store import TempStore


def is_in_journal(owner: Owner, envelope: Envelope) -> bool:
    """Whether the journal records new messages with this envelope. While it has failed (disk full), dead letters that
    enter the queue are only in memory.
    """
    storage = owner.storage
    if storage.pager is None or not owner.stores(envelope):
        return False
    return storage.durability is None or not storage.durability.has_failed


def may_spool(owner: Owner, envelope: Envelope) -> bool:
    """Whether messages with this envelope may go to the temp store: those that the journal records never do."""
    return owner.storage.pager is None or not owner.stores(envelope)


# -- out of memory ----------------------------------------------------------------------------------------------------


def sink(owner: Owner, tail: Tail, level: int, messages: Sequence[Message], *, is_metered: bool) -> int:
    """Page out messages (in order of delivery) to the head of a level of the tail. See `paged`.

    Returns: the octets freed.
    """
    items, freed = paged(owner, tail, messages, is_metered=is_metered)
    tail.put_back(level, items)
    return freed


def paged(
    owner: Owner, tail: Tail, messages: Sequence[Message], *, is_metered: bool
) -> tuple[list[PagedRun | Message], int]:
    """Page out messages. Returns: the items for the tail, and the octets freed.

    `is_metered`: report it to the owner.
    """
    items: list[PagedRun | Message] = []
    freed = 0
    for (where, deliveries, uncounted), group in groupby(messages, lambda one: _where(owner, tail, one)):
        run = list(group)
        came = len(items)
        if where is None:
            items += run
            continue
        if where is IN_JOURNAL:
            items += _runs(run, deliveries, uncounted)
        else:
            spooled = _spooled(owner.storage.temp, run, where, deliveries, uncounted)
            if spooled is None:
                owner.could_not_page()
                items += run
                continue
            items += spooled
        octets = sum([len(message.content) for message in run])
        freed += octets + OVERHEAD * len(run)
        if is_metered:
            counted = sum(octets_paged(one.sizes, one.location) for one in items[came:] if isinstance(one, PagedRun))
            owner.paged_out(len(run), octets, counted, are_stored=where is IN_JOURNAL or owner.stores(where))
    return items, freed


def _where(owner: Owner, tail: Tail, message: Message) -> tuple[Envelope | None, int, int]:
    """The possible place of a message, `deliveries` and `uncounted`.

    The place is `IN_JOURNAL`, the message's own envelope for the temp store, or None for memory.
    """
    where: Envelope | None = None
    if not message.stays_in_memory:
        pager = owner.storage.pager
        if pager is not None and owner.stores(message.envelope):
            where = IN_JOURNAL if pager.has(message.id) else None
        elif tail.octets is None:
            where = message.envelope
    return where, message.deliveries, message.uncounted


def _runs(messages: Sequence[Message], deliveries: int, uncounted: int) -> Iterator[PagedRun]:
    last: PagedRun | None = None
    for message in messages:
        size = message.envelope.framing.body_size(message.content)
        expires = (message.expires_ns,) if message.expires_ns else None
        if last is None or not last.goes_on(
            message.id, 1, expires is not None, None, IN_JOURNAL, deliveries, uncounted
        ):
            if last is not None:
                yield last
            last = PagedRun(message.id, None, IN_JOURNAL, deliveries, uncounted)
        last.extend(message.id, (size,), expires)
    if last is not None:
        yield last


def _spooled(
    temp: TempStore, messages: Sequence[Message], envelope: Envelope, deliveries: int, uncounted: int
) -> list[PagedRun] | None:
    location = temp.spool([message.content for message in messages])
    if location is None:
        return None
    runs: list[PagedRun] = []
    offset, last_id = location.offset, 0
    for message in messages:
        if not runs or message.id < last_id:  # ids must rise within a run
            runs.append(PagedRun(message.id, Location(location.chunk, offset), envelope, deliveries, uncounted))
        size, last_id = len(message.content), message.id
        runs[-1].extend(last_id, (size,), (message.expires_ns,) if message.expires_ns else None)
        offset += size
    return runs


# -- back -------------------------------------------------------------------------------------------------------------


def runs_of(storage: Storage, part: Taken | Part, *, release: bool = True) -> Sequence[Run]:
    """Read the contents of a part. `release`: also free them in the temp store. Raises: Unreadable."""
    if part.location is None:
        assert storage.pager is not None
        return storage.pager.load(part.ids)
    size = sum(part.sizes[:])
    octets = storage.temp.unspool(part.location, size)
    if release:
        storage.temp.release(part.location, size)
    ends = list(accumulate(part.sizes, initial=0))
    return [(part.envelope, [octets[start:end] for start, end in pairwise(ends)])]


def messages_as_paged(owner: Owner, part: Taken, ids: Sequence[int], runs: Sequence[Run]) -> list[Message]:
    """Make the last messages of a part as they were before paging. `ids`, `runs`: their ids and contents.

    Does not report them to the owner (see `tell_loaded`).
    """
    messages = messages_of(ids, runs)
    if any(envelope.summary.is_marked for envelope, _ in runs):
        messages = [owner.message_for(one.id, one.content, one.envelope) for one in messages]
    if part.deliveries:
        for message in messages:
            message.deliveries, message.uncounted = part.deliveries, part.uncounted
    if part.expires is not None:
        for message, expires_ns in zip(messages, part.expires):  # parts with expiries are always loaded whole
            message.expires_ns = expires_ns
    return messages


def tell_loaded(owner: Owner, part: Taken, messages: list[Message]) -> None:
    """Report messages of a part that came back into memory to the owner."""
    if messages:
        owner.loaded(messages, part.deliveries - part.uncounted if part.location is None else 0)
