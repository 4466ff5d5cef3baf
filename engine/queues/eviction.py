"""Messages beyond what a slow subscriber may have waiting: evicted, so that nobody waits for it.

What has expired goes first. Of what then is too much those go that the strategy chooses out of a page from the head.
None of them becomes a dead letter. Source: queues page E.1 ("eviction"), E.4 (row 14), E.6.
"""

from collections.abc import Callable, Sequence
from itertools import islice

from ..messages.deaths import EXPIRED
from ..messages.message import Envelope, Message
from .core import QueueCore
from .dispatch import hand_over
from .pending import Pending

#: Why they went, in their events.
REASON = "pending-message-limit"
#: Messages from the head among which is chosen.
PAGE = 1000
#: Messages that go in one slice where very many are too much (about 5 ms).
SLICE = 5000
#: Messages that are looked at, in one unit of `Effort`.
LOOKS = 8


def takes_runs(queue: QueueCore, pending: Pending, envelope: Envelope) -> bool:
    """Whether a run of new messages can go in at once: no other rule concerns it, and nothing is paged out."""
    store = queue.store
    return (
        pending.is_simple
        and envelope.is_plain
        and not queue.rules.concerns_arrival
        and queue.rota.groups is None
        and not store.is_deep
        and not (len(store) and queue.rota.has_waiting())
    )


def admit_run(queue: QueueCore, first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> None:
    """Take a run: waiting consumers come first, then the oldest go, as one by one would."""
    queue.ledger.enqueued_run(first_id, envelope, blobs)
    if queue.rota.consumers and not len(queue.store):
        taken = hand_over(queue, first_id, envelope, blobs)
        first_id += taken
        blobs = blobs[taken:]
    if blobs:
        queue.store.append_run(first_id, envelope, blobs)
        enforce(queue)


def enforce(queue: QueueCore) -> None:
    """While more waits than may: a slice of it goes, the rest at the ends of turns."""
    pending = queue.pending
    if pending is None:
        return
    limit = pending.limit(queue.rota.consumers)
    if limit is None or len(queue.store) <= limit:
        return
    if queue.store.expiring and pending.soonest_ns <= queue.surroundings.clock.monotonic_ns():
        _expire(queue, pending)
    for _ in range(2):  # what is chosen may be less than what is too much
        excess = min(len(queue.store) - limit, SLICE)
        if excess > 0:
            _evict(queue, pending, excess)
    if len(queue.store) > limit:
        queue.surroundings.trim_later(queue)


def _evict(queue: QueueCore, pending: Pending, excess: int) -> None:
    positions: list[int] = []
    if not pending.is_simple:
        page, position_of = _page(queue, excess)
        positions = [position_of(at) for at in pending.chosen(page, excess)]
    if positions:
        gone = queue.store.take_at(positions)
    else:
        gone = queue.store.evict_head(excess, with_content=False)
    queue.ledger.octets_changed(gone.recounted)
    queue.ledger.evicted(gone.messages, gone.unread, REASON)


def _expire(queue: QueueCore, pending: Pending) -> None:
    """Take what has expired out of the page, also behind messages that live."""
    page, position_of = _page(queue, 1)
    now_ns = queue.surroundings.clock.monotonic_ns()
    expired = [position_of(at) for at, message in enumerate(page) if 0 < message.expires_ns <= now_ns]
    if expired:
        queue.lose(queue.store.take_at(expired).messages, EXPIRED)
    pending.soonest_ns = min((one.expires_ns for one in page if one.expires_ns > now_ns), default=NEVER_NS)


def _page(queue: QueueCore, excess: int) -> tuple[list[Message], Callable[[int], int]]:
    """The first messages, in order of delivery, and their positions; those that are paged out are read for it."""
    store, wanted = queue.store, max(PAGE, excess)
    queue.surroundings.effort.spent += min(wanted, len(store)) // LOOKS
    if not store.is_deep:
        page = list(islice(store, wanted))
        return page, lambda at: store.position_of(page[at])
    seen = store.scan(0, wanted)
    if seen.missing:
        store.load_at(seen.found[-1][0] if seen.found else 0, wanted)
        seen = store.scan(0, wanted)
    return [message for _, message in seen.found], lambda at: seen.found[at][0]


#: Later than any message expires.
NEVER_NS = 1 << 63
