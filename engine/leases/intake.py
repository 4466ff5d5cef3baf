"""The intake of a leased queue: new messages, delayed ones, changed rules, and messages that come back after a restart.

Source: queues page A.
"""

from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter

from ...settings.leases.leased_settings import BY_QUEUE, IMMEDIATE
from ..clock import MS, due_after
from ..messages.message import Envelope, Message, id_of
from ..queues import scheduled
from ..queues.parts import Intake
from ..queues.queue import Queue
from ..queues.reconfigure import cap_memory, recount
from ..queues.restore import Restorer
from ..stores.store import Store, ids_in
from ..stores.tailed_store import TailedStore
from . import deferring, dispatch
from .ending import arm, end_due, expire_ready, lifetime_ns
from .notes import restore_notes
from .ranked_store import RANK_MAX, RankedStore, is_barrier, position_at, rank_of, ranked
from .state import ActiveSet, Leases, LeasesPart, rules_of

#: Messages read at once when a store without ranks is rebuilt; one with ranks has all messages in memory.
BUILD_SLICE = 500
#: The settings that decide which messages a queue captures.
_selection_of = attrgetter("underlying_topic", "default_publish_target", "filter")


class LeasedIntake(LeasesPart, Intake):
    """Stores or schedules new messages. The router has applied the queue's filter already.

    Without a journal, it also adds new messages to the memory log.
    """

    def message_for(self, queue: Queue, id_: int, content: bytes, envelope: Envelope) -> Message:
        """A new message, with its position if the queue has ranks. A barrier is noted."""
        rules = self.leases.rules
        if not rules.is_ranked:
            return queue.store.new_message(id_, content, envelope)
        message = Message(id_, content, envelope)
        rank = RANK_MAX if rules.priority is None else rank_of(rules.priority, message)
        position = position_at(rank, id_)
        if is_barrier(rules.barrier, message):
            self.leases.note_barrier(position)
        return ranked(message, position)

    def admit(
        self, queue: Queue, first_id: int, envelope: Envelope, contents: Sequence[bytes], due_ns: int | None
    ) -> Sequence[int]:
        leases, owner = self.leases, 0
        leases.last_id = max(leases.last_id, first_id + len(contents) - 1)
        if leases.owners is not None:
            owner = leases.owners.add_new(first_id, len(contents), queue.context.broker.clock.monotonic_ns())
            leases.record_sites()
        storage = queue.context.broker.storage
        if storage.durability is None:
            wall_ms = queue.context.broker.clock.wall_ms()
            storage.memory_log.note(queue.vhost_name, queue.name, first_id, envelope, contents, wall_ms)
        refused: Sequence[int] = ()
        if due_ns is not None:
            refused = _admit_each(leases, first_id, envelope, contents, 0, due_ns, owner=owner)
            scheduled.await_due(queue)
            return refused
        expires_ns = lifetime_ns(leases, envelope)
        if expires_ns or leases.rules.is_ranked or queue.refusing:
            refused = _admit_each(leases, first_id, envelope, contents, expires_ns, owner=owner)
        else:
            queue.events.enqueued_run(first_id, envelope, contents, owner)
            queue.consumable.append_run(first_id, envelope, contents)
            _tell_groups(queue, (leases.last_id,))
            if leases.deferred is not None:
                deferring.settle(leases, range(first_id, first_id + len(contents)))
        if queue.consumer_list.consumers:
            queue.mark()
        return refused

    def place_due(self, queue: Queue, messages: list[Message]) -> None:
        """Make delayed messages ready; their lifetimes begin now."""
        leases = self.leases
        for message in messages:
            message.expires_ns = lifetime_ns(leases, message.envelope)
            queue.consumable.put_last(message)
            if message.expires_ns:
                _expect(leases, message, has_own_lifetime=True)
        positions = list(map(queue.store.position_of, messages))
        if leases.rules.barrier is not None:
            for position, message in zip(positions, messages):
                if is_barrier(leases.rules.barrier, message):
                    leases.note_barrier(position)
        if leases.owners is not None:
            leases.owners.waits.came_due(map(id_of, messages), queue.context.broker.clock.monotonic_ns())
        if leases.active is not None:
            leases.active.count_new(positions)
        _tell_groups(queue, positions)
        if leases.deferred is not None:
            deferring.settle(leases, [message.id for message in messages])
        arm(leases)

    def rules_changed(self, queue: Queue) -> None:
        """Apply changed rules. They act on running leases, too, but not on the backlogs of consumers."""
        leases, rules = self.leases, rules_of(queue)
        if rules is leases.rules:
            return
        before, now, leases.rules = leases.rules.settings, rules.settings, rules
        if _selection_of(before) != _selection_of(now):
            leases.topic_entries.clear()
            queue.context.router.recapture(queue)
        if (before.expiration_ms, before.expiration_model) != (now.expiration_ms, now.expiration_model):
            leases.book.has_own_lifetimes = True  # new messages may expire before those in front of them
        if before.expire_leased != now.expire_leased:
            leases.book.forget_leased_lifetimes()
            for lease in leases.book.leases.by_id.values() if now.expire_leased == IMMEDIATE else ():
                if lease.expires_ns:
                    leases.book.expect_leased(lease)
        period_ns = 0 if now.lease_period_ms is None else now.lease_period_ms * MS
        leases.book.change_period(period_ns, queue.context.broker.clock.monotonic_ns())
        arm(leases)
        queue.mark()
        if (before.priority, before.barrier) != (now.priority, now.barrier):
            was_ranked = before.priority is not None or before.barrier is not None
            _rebuild_store(leases, was_ranked=was_ranked)
        if before.target_queue_depth != now.target_queue_depth:
            leases.active = None if now.target_queue_depth is None else ActiveSet(now.target_queue_depth)

    def restore(self, queue: Queue, restorer: Restorer) -> None:
        """Put messages back without leases and delivery counts, which do not survive a restart (queues page C.5)."""
        restore_notes(self.leases, restorer.notes, restorer.last_id, restorer.owners)
        restorer.forget_attempts()
        restorer.restore_ready(queue)

    def restored(self, queue: Queue) -> None:
        owners = self.leases.owners
        if owners is not None and owners.moved:  # the journal also names messages that are gone
            ready_ids = {id_ for id_ in ids_in(queue.store) if id_ in owners.moved}
            owners.keep(ready_ids | {message.id for message in queue.scheduled})
        deferring.settle_restored(self.leases)
        _expect_all(self.leases)


def use_new_store(queue: Queue) -> None:
    """Give the queue a new store, by its rules."""
    if rules_of(queue).is_ranked:
        queue.use_consumable(RankedStore(queue))
    else:
        queue.use_pageable(TailedStore(queue))


def _admit_each(
    leases: Leases,
    first_id: int,
    envelope: Envelope,
    contents: Sequence[bytes],
    expires_ns: int,
    due_ns: int | None = None,
    *,
    owner: int = 0,
) -> list[int]:
    """Store or schedule messages one by one. Those with a time to live of 0 are offered to consumers, then they expire.

    Returns the offsets of refused ones whose publisher is told.
    """
    refused: list[int] = []
    queue, store = leases.queue, leases.queue.consumable
    has_own_lifetime = envelope.expiration_ms is not None and leases.rules.settings.expiration_model != BY_QUEUE
    for offset, content in enumerate(contents):
        message = queue.message_for(first_id + offset, content, envelope)
        if queue.refusing and (refusal := queue.refuses(message)) is not None:
            if refusal.tells_publisher:
                refused.append(offset)
            queue.events.refused(message, refusal.reason)
            continue
        if due_ns is not None:
            scheduled.schedule_new(queue, message, due_ns, owner)
            continue
        message.expires_ns = expires_ns
        queue.events.enqueued(message, owner)
        store.append(message)
        _tell_groups(queue, (store.position_of(message),))
        if expires_ns:
            _expect(leases, message, has_own_lifetime)
    if leases.deferred is not None and due_ns is None:
        deferring.settle(leases, range(first_id, first_id + len(contents)))
    if expires_ns:
        queue.arm_expiry()
        arm(leases)
        if expires_ns <= max(1, queue.context.broker.clock.monotonic_ns()):
            dispatch.dispatch(leases, expires=False)  # to consumers with room, before the rest expires (A.5)
            expire_ready(leases, expires_ns)
    return refused


def _tell_groups(queue: Queue, positions: Sequence[int]) -> None:
    """Tell the groups of filtering consumers about new messages at these positions."""
    if queue.selection is not None:
        queue.selection.groups.note_returned(sorted(positions))


def _expect(leases: Leases, message: Message, has_own_lifetime: bool) -> None:
    """Note when a message expires. If all messages have the same time to live, it is enough to look at the head."""
    store = leases.queue.consumable
    store.expiring = True
    if has_own_lifetime or leases.rules.is_ranked or leases.book.has_own_lifetimes:
        leases.book.expect(message, store)


def _rebuild_store(leases: Leases, *, was_ranked: bool) -> None:
    """Rebuild the store: ranks changed. There must be no leases and no consumers. Raises: Unreadable."""
    queue = leases.queue
    old = queue.consumable
    leases.barriers.clear()
    use_new_store(queue)
    meter = queue.events.meter
    if queue.pageable is not None:
        queue.pageable.share.set_may_page(meter is None or not meter.forbids_paging)
    cap_memory(queue)
    queue.consumable.expiring = old.expiring
    while len(old):
        some = old.evict_head(len(old) if was_ranked else BUILD_SLICE, with_content=True).messages
        for message in sorted(some, key=id_of):
            fresh = queue.message_for(message.id, message.content, message.envelope)
            fresh.expires_ns = message.expires_ns
            queue.consumable.append(fresh)
    old.drop_all()
    old.leave_owner()
    recount(queue)
    leases.book.forget_lifetimes()
    _expect_all(leases)


def _expect_all(leases: Leases) -> None:
    """Note the lifetimes of all messages if one may expire before a message in front of it."""
    store = leases.queue.store
    if not store.expiring:
        return
    times = sorted(_lifetimes(store))
    is_mixed = leases.rules.is_ranked or len(times) < len(store)  # some do not expire
    if is_mixed or any(one[1] > other[1] for one, other in pairwise(times)):
        for position, due_ns in times:
            leases.book.expect_at(due_ns, position, store)
    lifetime_ms = leases.rules.lifetime_ms(None)
    if times and lifetime_ms is not None and due_after(leases.queue.context.broker.clock, lifetime_ms) < times[-1][1]:
        leases.book.has_own_lifetimes = True  # a message that comes now would expire before the last one
    end_due(leases)


def _lifetimes(store: Store) -> list[tuple[int, int]]:
    """(position, when it expires) of each message that does."""
    in_memory = store.scan(0, store.in_memory).found
    found = [(position, one.expires_ns) for position, one in in_memory if one.expires_ns]
    for part in store.paged_parts():
        if isinstance(part, Message):
            found += [(store.position_of(part), part.expires_ns)] if part.expires_ns else []
        elif part.expires is not None:
            found += [(id_, due_ns) for id_, due_ns in zip(part.ids, part.expires) if due_ns]
    return found
