"""Conversion of messages in memory into runs of a tail, and back; `memory_budget.py` and `memory_share.py` decide when.

The journal records messages when they arrive; other messages go to the temp store. The tail knows where each one is.
Messages that neither of them has, and those that must stay in memory, are stored in the tail as objects.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise

from ..messages.message import Envelope, Envelopes, Message, stretches_alike
from .memory_budget import OVERHEAD
from .paged_run import IN_JOURNAL, Location, PagedRun, Part, Run, Taken, messages_of, octets_paged
from .storage import Storage, StoreOwner, TempStore
from .tail import Tail


class TailIO:
    """Moves messages of one store out of memory and back. `is_metered`: it reports that to the owner."""

    __slots__ = ("_storage", "is_metered", "owner")

    def __init__(self, owner: StoreOwner) -> None:
        self.owner = owner
        self._storage = owner.storage
        self.is_metered = False

    # -- new messages -------------------------------------------------------------------------------------------------

    def extend(self, tail: Tail, first_id: int, envelopes: Envelopes, contents: Sequence[bytes]) -> None:
        """Append new messages with consecutive ids to the tail of a store with one level. O(run)."""
        if isinstance(envelopes, Envelope):
            self._extend_alike(tail, first_id, envelopes, contents)
        elif all(_is_in_journal(self.owner, envelope) for envelope in set(envelopes)):
            sizes = [one.framing.body_size(content) for one, content in zip(envelopes, contents)]
            tail.extend(first_id, sizes)
            self._note_new(contents, sizes, None, are_stored=True)
        else:
            for start, stop, envelope in stretches_alike(envelopes):
                self._extend_alike(tail, first_id + start, envelope, contents[start:stop])

    def _extend_alike(self, tail: Tail, first_id: int, envelope: Envelope, contents: Sequence[bytes]) -> None:
        owner = self.owner
        if _is_in_journal(owner, envelope):
            sizes = envelope.framing.body_sizes(contents)
            tail.extend(first_id, sizes)
            self._note_new(contents, sizes, None, are_stored=True)
            return
        location = self._storage.temp.spool(contents) if _may_spool(owner, envelope) else None
        if location is not None:
            sizes = list(map(len, contents))
            tail.extend(first_id, sizes, location=location, envelope=envelope)
            self._note_new(contents, sizes, location, are_stored=owner.stores(envelope))
            return
        owner.could_not_page()
        for offset, content in enumerate(contents):
            tail.append(Message(first_id + offset, content, envelope))

    def append(self, tail: Tail, level: int, message: Message) -> None:
        """Append a new message to a level of the tail.

        If octets of bodies are counted, transient messages stay in memory: of spooled ones the tail knows only the
        sizes of contents.
        """
        envelope = message.envelope
        expires = (message.expires_ns,) if message.expires_ns else None
        if _is_in_journal(self.owner, envelope):
            sizes = (envelope.framing.body_size(message.content),)
            tail.extend(message.id, sizes, expires, level=level)
            self._note_new((message.content,), sizes, None, are_stored=True)
        elif (
            tail.octets is None
            and _may_spool(self.owner, envelope)
            and (location := self._storage.temp.spool((message.content,))) is not None
        ):
            sizes = (len(message.content),)
            tail.extend(message.id, sizes, expires, location=location, envelope=envelope, level=level)
            self._note_new((message.content,), sizes, location, are_stored=self.owner.stores(envelope))
        else:
            self.owner.could_not_page()
            tail.append(message)

    def _note_new(
        self, contents: Sequence[bytes], sizes: Sequence[int], location: Location | None, *, are_stored: bool
    ) -> None:
        """Report new messages that were paged out at once."""
        if self.is_metered:
            octets = sum(map(len, contents))
            self.owner.paged_out(len(contents), octets, octets_paged(sizes, location), are_stored=are_stored)

    # -- out of memory ------------------------------------------------------------------------------------------------

    def page_to_head(self, tail: Tail, level: int, messages: Sequence[Message]) -> int:
        """Page out messages (in order of delivery) to the head of a level of the tail. Returns the octets freed."""
        items, freed = self.page(tail, messages)
        tail.put_back(level, items)
        return freed

    def page(self, tail: Tail, messages: Sequence[Message]) -> tuple[list[PagedRun | Message], int]:
        """Page out messages. Returns: the items for the tail, and the octets freed."""
        owner = self.owner
        items: list[PagedRun | Message] = []
        freed = 0
        for (where, deliveries, uncounted), group in groupby(messages, lambda one: _where(owner, tail, one)):
            run = list(group)
            before = len(items)
            if where is None:
                items += run
                continue
            if where is IN_JOURNAL:
                items += _runs(run, deliveries, uncounted)
            else:
                spooled = _spooled(self._storage.temp, run, where, deliveries, uncounted)
                if spooled is None:
                    owner.could_not_page()
                    items += run
                    continue
                items += spooled
            octets = sum([len(message.content) for message in run])
            freed += octets + OVERHEAD * len(run)
            if self.is_metered:
                counted = sum(
                    octets_paged(one.sizes, one.location) for one in items[before:] if isinstance(one, PagedRun)
                )
                owner.paged_out(len(run), octets, counted, are_stored=where is IN_JOURNAL or owner.stores(where))
        return items, freed

    # -- back ---------------------------------------------------------------------------------------------------------

    def loaded(self, part: Taken, ids: Sequence[int], runs: Sequence[Run]) -> list[Message]:
        """Make the last messages of a part, which come back into memory, and report them to the owner."""
        messages = messages_as_paged(self.owner, part, ids, runs)
        if not messages:
            return messages
        if self.is_metered:
            count, octets = len(messages), sum([len(one.content) for one in messages])
            counted = octets_paged(part.sizes[-count:], part.location)
            are_stored = part.location is None or self.owner.stores(part.envelope)
            self.owner.paged_out(-count, -octets, -counted, are_stored=are_stored)
        self.owner.loaded(messages, part.deliveries - part.uncounted if part.location is None else 0)
        return messages

    def sizes_of(self, parts: Iterable[Part | Message]) -> Iterator[tuple[int, int, bool]]:
        """The result of `Store.paged_sizes`."""
        for part in parts:
            if not isinstance(part, Message):
                are_stored = part.location is None or self.owner.stores(part.envelope)
                yield len(part.ids), octets_paged(part.sizes[:], part.location), are_stored


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


def messages_as_paged(owner: StoreOwner, part: Taken, ids: Sequence[int], runs: Sequence[Run]) -> list[Message]:
    """Make the last messages of a part as they were before paging. `ids`, `runs`: their ids and contents.

    Does not report them to the owner (see `TailIO.loaded`).
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


def _is_in_journal(owner: StoreOwner, envelope: Envelope) -> bool:
    """Whether the journal records new messages with this envelope.

    While the journal has failed (disk full), dead letters that enter the queue are only in memory.
    """
    storage = owner.storage
    if storage.pager is None or not owner.stores(envelope):
        return False
    return storage.durability is None or not storage.durability.has_failed


def _may_spool(owner: StoreOwner, envelope: Envelope) -> bool:
    """Whether messages with this envelope may go to the temp store: those that the journal records never do."""
    return owner.storage.pager is None or not owner.stores(envelope)


def _where(owner: StoreOwner, tail: Tail, message: Message) -> tuple[Envelope | None, int, int]:
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
        if last is None or not last.can_extend(
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
