"""Leaving messages elsewhere that are ready in memory: their places go into the tail, before what is there.

Those of which only memory knows, and those of groups, stay as they are.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ..delivery.group_id import GroupedMessage
from ..messages.message import Envelope, Message
from ..stores.paged_run import IN_JOURNAL, PagedRun
from ..stores.ready import LeveledReady
from ..stores.tail import Tail

if TYPE_CHECKING:
    from .queue import Queue

#: What a message costs beside its octets.
OVERHEAD = 200
#: Messages that are looked at before it is asked whether that was of any use.
SLICE = 1000


def may_have_tail(queue: "Queue") -> bool:
    """Whether the queue's order and rules allow it to leave messages elsewhere."""
    return not queue.keeps and queue.octets is None and type(queue.ready) in (deque, LeveledReady)


def begin_tail(queue: "Queue") -> Tail:
    """From now on messages may be elsewhere."""
    ready = queue.ready
    tail = queue.tail = Tail(ready.level_max if isinstance(ready, LeveledReady) else 0)
    if queue.rules.max_length_bytes is not None:
        tail.count_octets()
    return tail


def page_out(queue: "Queue", octets: int) -> int:
    """Leave so many octets elsewhere of the messages that come last in memory, as far as they can be.

    Returns how many that gave free.
    """
    if not may_have_tail(queue):
        return 0
    tail = begin_tail(queue) if queue.tail is None else queue.tail
    ready = queue.ready
    freed = before = 0
    for level, messages in enumerate(ready.levels if isinstance(ready, LeveledReady) else (ready,)):
        assert isinstance(messages, deque)
        while messages and freed < octets:
            taken: list[Message] = []
            size = 0
            while messages and freed + size < octets and len(taken) < SLICE:
                taken.append(messages.pop())
                size += len(taken[-1].blob) + OVERHEAD
            if isinstance(ready, LeveledReady):
                ready.took(taken)
            freed += sink(queue, tail, level, taken[::-1])
            if freed == before:
                return freed  # they cannot be elsewhere
            before = freed
    if not len(tail):
        queue.tail = None
    return freed


def sink_below(queue: "Queue", tail: Tail, level: int) -> None:
    """A level begins to have a tail: what is ready below it may not come first any more."""
    ready = queue.ready
    if isinstance(ready, LeveledReady):
        for below, messages in enumerate(ready.levels[:level]):
            if messages:
                taken = list(messages)
                messages.clear()
                ready.took(taken)
                sink(queue, tail, below, taken)


def sink(queue: "Queue", tail: Tail, level: int, messages: Sequence[Message]) -> int:
    """Messages (ids rising) go to the head of their level of the tail; returns how many octets they gave free."""
    items: list[PagedRun | Message] = []
    freed = 0
    for (where, deliveries, uncounted), group in groupby(messages, lambda message: _where(queue, tail, message)):
        run = list(group)
        if where is None:
            items += run
            continue
        if where is IN_JOURNAL:
            items += _runs(run, deliveries, uncounted)
        else:
            spooled = _spooled(queue, run, where, deliveries, uncounted)
            if spooled is None:
                items += run
                continue
            items.append(spooled)
        freed += sum(len(message.blob) + OVERHEAD for message in run)
    tail.put_back(level, items)
    return freed


def _where(queue: "Queue", tail: Tail, message: Message) -> tuple[Envelope | None, int, int]:
    """Where it could be: the journal, the spool (its own envelope), only memory (None); and how often it was out."""
    pager = queue.broker.pager
    assert pager is not None
    where: Envelope | None = None
    if not isinstance(message, GroupedMessage):
        if queue.stores(message.envelope):
            where = IN_JOURNAL if pager.has(message.id) else None
        elif tail.octets is None:
            where = message.envelope
    return where, message.deliveries, message.uncounted


def _runs(messages: Sequence[Message], deliveries: int, uncounted: int) -> Iterator[PagedRun]:
    last: PagedRun | None = None
    for message in messages:
        size = message.envelope.framing.body_size(message.blob)
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
    queue: "Queue", messages: Sequence[Message], envelope: Envelope, deliveries: int, uncounted: int
) -> PagedRun | None:
    pager = queue.broker.pager
    assert pager is not None
    place = pager.spool([message.blob for message in messages])
    if place is None:
        return None
    run = PagedRun(messages[0].id, place, envelope, deliveries, uncounted)
    for message in messages:
        run.extend(message.id, (len(message.blob),), (message.expires_ns,) if message.expires_ns else None)
    return run
