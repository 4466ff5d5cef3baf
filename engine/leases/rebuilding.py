"""Rebuilding a leased queue from the log: messages of its topics from before its declaration, from a recovery point on.

A new queue is rebuilt as it is declared; an existing one as the broker starts, if its recovery point has changed or the
operator asks for it. During the rebuild consumers get nothing, and published messages wait behind. The log is read
between turns. Messages that have left an existing queue, acknowledged or otherwise, do not come again.
Source: queues page C.5; docs/decisions/0012-log.md.
"""

from array import array
from collections.abc import Sequence

from ..clock import due_after
from ..delivery.filters import MessageSubject
from ..stores.store import ids_in
from ..stores.topic_log import LoggedMessage
from . import deferring
from .capture import capture_of
from .ending import arm
from .replay_rules import CREATION, Boundary, boundary_of, is_known
from .state import ActiveSet, Leases, Rebuild

#: Octets that one step brings into the queue (2 to 5 ms), and messages dropped at once.
REBUILD_OCTETS, DROP_SLICE = 64 * 1024, 500


def begin(leases: Leases, since_id: int | None, next_id: int, *, was_there: bool) -> None:
    """Begin to rebuild the queue from its recovery point.

    At the point `now`, or a bookmark that the log does not have, nothing is rebuilt: what the queue has is dropped. At
    `creation` an existing queue keeps what it has.

    `since_id`: the lowest id of a logged message that may be for the queue; None: there is none. `next_id`: messages
    from this id on are captured as they are published. `was_there`: the queue existed before a restart, and may have
    messages.
    """
    queue, point = leases.queue, leases.rules.settings.recovery_point
    log = queue.context.broker.storage.log
    boundary = boundary_of(point) if is_known(point, log.first_id(), log.next_id()) else None
    if not was_there and (boundary is None or since_id is None):
        leases.recovered_point = point
        return
    if point == CREATION:  # all messages of an existing queue came after its declaration
        _complete(leases)
        return
    if boundary is None:
        queue.purge()
        _complete(leases)
        return
    position = log.position_of_time(boundary.wall_ms) if boundary.wall_ms else log.position_of_id(boundary.id)
    if since_id is not None:
        position = max(position, log.position_of_id(since_id))
    leases.recovered_point = ""
    leases.rebuild = Rebuild(boundary, position, log.end(), next_id, collects_ids=was_there)
    queue.freeze()
    queue.context.broker.scheduler.load_later(queue)


def step(leases: Leases, rebuild: Rebuild) -> None:
    """Make one step of the rebuild. Raises: Unreadable."""
    queue = leases.queue
    log = queue.context.broker.storage.log
    if rebuild.collects_ids:
        found = log.entered(queue.vhost_name, queue.name, rebuild.position, rebuild.boundary.wall_ms)
        rebuild.entered.extend(found.ids)
        if not rebuild.boundary.id and found.first_id:
            rebuild.boundary = Boundary(found.first_id)
        rebuild.position = found.next_position
        if rebuild.position >= rebuild.end:
            rebuild.entered = array("q", sorted(rebuild.entered))
            rebuild.position, rebuild.collects_ids = rebuild.start, False
            _drop_before(leases, rebuild)
        return
    if rebuild.position < rebuild.end:
        _add_page(leases, rebuild)
    if rebuild.position >= rebuild.end:
        leases.rebuild = None
        if leases.active is not None:
            leases.active = ActiveSet(leases.rules.settings.target_queue_depth or 0)
        _complete(leases)
        queue.unfreeze()


def _complete(leases: Leases) -> None:
    """Note, also in the journal, that the queue is built from its recovery point."""
    leases.recovered_point = leases.rules.settings.recovery_point
    leases.queue.events.notes_changed()


def _drop_before(leases: Leases, rebuild: Rebuild) -> None:
    """Drop messages before the boundary; all, if it is a time, and the log has no message from that time on."""
    queue = leases.queue
    if rebuild.boundary.wall_ms:
        queue.purge()
        return
    ids = sorted(id_ for id_ in ids_in(leases.queue.store) if id_ < rebuild.boundary.id)
    for start in range(0, len(ids), DROP_SLICE):
        some = ids[start : start + DROP_SLICE]
        positions = leases.positions_of(some) if leases.rules.is_ranked else some  # also inactive ones
        queue.events.purged(queue.consumable.take_at(positions).messages)


def _add_page(leases: Leases, rebuild: Rebuild) -> None:
    queue, context, capture = leases.queue, leases.queue.context, capture_of(leases.queue)

    def is_wanted(exchange: str, routing_key: str, queues: Sequence[str], id_: int) -> bool:
        if id_ >= rebuild.until_id or rebuild.was_here(id_):
            return False
        return capture.is_in_log(queue, exchange, routing_key, queues, id_)

    page = context.broker.storage.log.read(queue.vhost_name, rebuild.position, is_wanted, REBUILD_OCTETS)
    rebuild.position = page.next_position
    for one in page.found:
        if not rebuild.has_begun:
            if not rebuild.boundary.is_before(one.message.id, one.wall_ms):
                continue
            rebuild.has_begun = True
        filter_ = leases.rules.filter
        if filter_ is None or filter_.matches(MessageSubject(one.message)):
            _add(leases, one)
    context.broker.turn.effort += len(page.found)


def _add(leases: Leases, one: LoggedMessage) -> None:
    queue, broker, logged = leases.queue, leases.queue.context.broker, one.message
    envelope = logged.envelope.persisted()
    message = queue.message_for(logged.id, logged.content, envelope)
    lifetime_ms = leases.rules.lifetime_ms(envelope.expiration_ms)
    if lifetime_ms is not None:
        left_ms = one.wall_ms + lifetime_ms - broker.clock.wall_ms()
        message.expires_ns = max(1, due_after(broker.clock, max(left_ms, 0)))
    durability = broker.storage.durability
    if durability is not None:
        durability.recall(queue.vhost_name, queue.name, message.id, one.location, message.body_octets)
    owner = 0
    if leases.owners is not None:
        owner = leases.owners.add_from_log(message.id)
        leases.record_sites()
    queue.events.enqueued(message, owner)
    store = queue.consumable
    if leases.last_id < message.id:
        leases.last_id = message.id
        store.append(message)
        if queue.selection is not None:
            queue.selection.groups.note_returned((store.position_of(message),))
    else:
        queue.merge([message])
    if message.expires_ns:
        store.expiring = True
        leases.book.expect(message, store)
        queue.arm_expiry()
        arm(leases)
    if leases.deferred is not None:
        deferring.settle(leases, (message.id,))
