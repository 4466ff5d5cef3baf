"""A ring queue: what a ring decides, all of it. The newest `ring_size` ready messages stay.

It looks at what is ready alone; consumers come first, and nothing that it drops becomes a dead letter.
Source: address-settings page 4 (4.5: rules 1, 3, 6 and 8).
"""

from collections.abc import Sequence

from ..messages.message import Envelope, Message
from .core import QueueCore
from .dispatch import hand_over


def takes_runs(queue: QueueCore, envelope: Envelope) -> bool:
    """Whether a run of new messages can go in at once: no other rule concerns it, and nothing is paged out."""
    store = queue.store
    return (
        queue.rules.is_only_a_ring
        and not queue.may_drop
        and envelope.is_plain
        and queue.rota.groups is None
        and not store.is_deep
        and not (len(store) and queue.rota.has_waiting())
    )


def admit_run(queue: QueueCore, first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> None:
    """Take a run: waiting consumers come first, then each arrival drops at most one head, as one by one would."""
    store, ledger = queue.store, queue.ledger
    ring_size = queue.rules.ring_size
    assert ring_size is not None
    ledger.enqueued_run(first_id, envelope, blobs)
    if queue.rota.consumers and not len(store):
        taken = hand_over(queue, first_id, envelope, blobs)
        first_id += taken
        blobs = blobs[taken:]
    count, before = len(blobs), len(store)
    dropped = before + count - max(min(before + count, ring_size), before)
    from_ready = min(dropped, before)
    skipped = dropped - from_ready  # came and went within the run
    if from_ready:
        evict(queue, from_ready)
    if skipped:
        ledger.evicted_run(first_id, envelope, blobs[:skipped])
    if skipped < count:
        store.append_run(first_id + skipped, envelope, blobs[skipped:] if skipped else blobs)


def enforce_after_arrival(queue: QueueCore) -> None:
    """One message more is ready: the ring drops at most one head for it."""
    ring_size = queue.rules.ring_size
    if ring_size is not None and len(queue.store) > ring_size:
        evict(queue, 1)


def enforce(queue: QueueCore, inserted: int) -> None:
    """After `inserted` insertions: while there are too many, each of them drops one message from the head."""
    ring_size = queue.rules.ring_size
    if ring_size is not None:
        excess = min(inserted, len(queue.store) - ring_size)
        if excess > 0:
            evict(queue, excess)


def refuses_to_wait(queue: QueueCore) -> bool:
    """Whether a returned message may not wait for its redelivery: a full ring drops it, as Artemis does."""
    ring_size = queue.rules.ring_size
    return ring_size is not None and len(queue.store) + 1 > ring_size


def evict(queue: QueueCore, count: int) -> None:
    """The ring has no room for so many heads: gone without a dead letter."""
    gone = queue.store.evict_head(count, with_content=False)
    queue.ledger.octets_changed(gone.recounted)
    queue.ledger.evicted(gone.messages, gone.unread)


def evict_returned(queue: QueueCore, messages: list[Message]) -> None:
    """The same with messages that were out and come back to a full ring (`refuses_to_wait`)."""
    queue.ledger.evicted(messages)
