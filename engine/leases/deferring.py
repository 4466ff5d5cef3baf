"""Acknowledgements of messages that a leased queue does not have yet. Source: queues page C.6.

An acknowledgement of a message that has not come is kept for a time (DeferredAckExpiration). If the message is in the
queue, but scheduled or not active yet, the acknowledgement is kept until the message is due or active, expires, or is
purged.
"""

from collections.abc import Collection, Iterable, Sequence

from ..errors import BadRequest
from ..messages.message import Message
from .deferred_acks import DEFERRED_MAX, DeferredAcks
from .state import Leases


def defer_acks(leases: Leases, ids: Iterable[int]) -> int:
    """Defer acknowledgements of messages that are neither active nor leased. Returns the number of these messages.

    Messages that are gone are skipped: they do not come again. `check_room` comes first.
    """
    deferred = leases.deferred or DeferredAcks()
    new, inactive = _to_defer(leases, deferred, ids)
    deferred.add(new)
    for id_ in inactive:
        deferred.keep(id_)
    if new:
        leases.deferred = deferred
        leases.queue.events.notes_changed()
    return len(new)


def check_room(leases: Leases, ids: Collection[int]) -> None:
    """Check that there is room for the acknowledgements that `defer_acks` would defer. Raises: BadRequest.

    Messages that are ready need none. Discarding some of them meanwhile leaves not more to defer.
    """
    deferred = leases.deferred or DeferredAcks()
    if deferred.has_room(ids):
        return
    leases.refill_active()
    if not deferred.has_room(_to_defer(leases, deferred, ids)[0]):
        raise BadRequest(f"more than {DEFERRED_MAX} acknowledgements wait for messages that have not come")


def _to_defer(leases: Leases, deferred: DeferredAcks, ids: Iterable[int]) -> tuple[dict[int, int], list[int]]:
    """The acknowledgements to defer, by id, with their ends, and the ids of inactive messages among them."""
    now_ms = leases.queue.context.broker.clock.wall_ms()
    deferred.prune(now_ms)
    scheduled = _scheduled_ids(leases)
    new: dict[int, int] = {}
    inactive: list[int] = []
    for id_ in ids:
        if id_ in scheduled:
            new[id_] = 0
        elif _is_inactive(leases, id_):
            new[id_] = 0
            inactive.append(id_)
        elif id_ > leases.last_id:
            new[id_] = now_ms + leases.rules.settings.deferred_ack_ms
    return new, inactive


def _is_inactive(leases: Leases, id_: int) -> bool:
    """Whether a message is in the queue, behind the active ones."""
    store = leases.queue.pageable
    if leases.active is None or store is None or not leases.active.end < id_ <= leases.last_id:
        return False
    return store.positions(id_ - 1, 1) == [id_]


def _scheduled_ids(leases: Leases) -> set[int]:
    return {message.id for message in leases.queue.scheduled}


def settle(leases: Leases, ids: Iterable[int]) -> None:
    """Remove ready messages that have a deferred acknowledgement; inactive ones are removed when they are active."""
    deferred = leases.deferred
    if deferred is None:
        return
    deferred.prune(leases.queue.context.broker.clock.wall_ms())
    known = deferred.among(ids)
    if known:
        positions = leases.positions_of(known)
        if leases.active is not None:
            for id_ in known:
                if id_ > leases.active.end:
                    deferred.keep(id_)
            known = positions
        _settle_at(leases, deferred, positions, known)
    elif not deferred:
        leases.deferred = None
        leases.queue.events.notes_changed()


def settle_expired(leases: Leases, messages: list[Message]) -> list[Message]:
    """Count expired messages with a deferred acknowledgement as acknowledged. Returns the others.

    The messages have left the store. An acknowledged message was processed, so it must not become a dead letter.
    """
    deferred = leases.deferred
    if deferred is None:
        return messages
    deferred.prune(leases.queue.context.broker.clock.wall_ms())
    known = {*deferred.among(message.id for message in messages)}
    if known:
        _settle(leases, deferred, known, [message for message in messages if message.id in known])
    return [message for message in messages if message.id not in known]


def forget_present(leases: Leases) -> None:
    """Forget the acknowledgements of messages that were in the queue: these were purged."""
    deferred = leases.deferred
    if deferred is not None:
        deferred.forget_present()
        _changed(leases, deferred)


def settle_entered(leases: Leases) -> None:
    """Remove messages that became active and have a deferred acknowledgement (TargetQueueDepth)."""
    while leases.active is not None and leases.deferred is not None:
        leases.refill_active()
        entered = leases.deferred.entered(leases.active.end)
        if not entered:
            return
        _settle_at(leases, leases.deferred, entered, entered)


def _settle_at(leases: Leases, deferred: DeferredAcks, positions: Sequence[int], ids: Sequence[int]) -> None:
    _settle(leases, deferred, ids, leases.queue.consumable.take_at(positions).messages)


def _settle(leases: Leases, deferred: DeferredAcks, ids: Iterable[int], messages: Sequence[Message]) -> None:
    """Forget the acknowledgements of `ids`, and count `messages`, which have left the store, as acknowledged."""
    deferred.forget(ids)
    leases.count_acked(messages)
    _changed(leases, deferred)


def _changed(leases: Leases, deferred: DeferredAcks) -> None:
    if not deferred:
        leases.deferred = None
    leases.queue.events.notes_changed()


def count_deferred(leases: Leases) -> int:
    """The number of deferred acknowledgements."""
    if leases.deferred is None:
        return 0
    leases.deferred.prune(leases.queue.context.broker.clock.wall_ms())
    return len(leases.deferred)


def settle_restored(leases: Leases) -> None:
    """After a restart, when all messages are back, remove those with a deferred acknowledgement."""
    if leases.deferred is None:
        return
    scheduled = _scheduled_ids(leases)
    settle(leases, [id_ for id_ in leases.deferred.among(range(1, leases.last_id + 1)) if id_ not in scheduled])
