"""Rebuilding a leased queue from the log: messages of its topics from before its declaration, from a recovery point on.

A new queue is rebuilt as it is declared; an existing one as the broker starts, if its recovery point is another one or
the operator asks for it. During the rebuild consumers get nothing, and published messages queue behind. The log is read
between turns. Messages that were in the queue once and are gone, acknowledged or otherwise, do not come again.
Source: queues page C.5; docs/decisions/0012-log.md.
"""

from collections.abc import Iterator, Sequence

from ..clock import due_after
from ..delivery.filters import MessageSubject
from ..messages.message import Message
from ..rules.recovery_point import CREATION, boundary_of, is_known
from ..rules.replay_rules import Boundary
from ..stores.paged_message import body_size
from ..stores.topic_log import LoggedMessage
from .active_set import ActiveSet
from .deferring import DeferringCore
from .rebuild import Rebuild

#: Octets that one step brings into the queue (2 to 5 ms), and messages dropped at once.
REBUILD_OCTETS, DROP_SLICE = 64 * 1024, 500


class RebuiltCore(DeferringCore):
    """A leased queue that can be rebuilt from the log."""

    __slots__ = ()

    @property
    def recovery(self) -> str:
        return self.recovered_point

    @property
    def is_rebuilding(self) -> bool:
        return self.rebuild is not None

    def restore_recovery(self, point: str) -> None:
        self.recovered_point = point

    @property
    def newest_id(self) -> int:
        return self.last_id

    def restore_newest_id(self, id_: int) -> None:
        self.last_id = id_

    def begin_rebuild(self, since_id: int | None, next_id: int, *, was_there: bool) -> None:
        """See `Queue`. A recovery point at a bookmark that the log does not have means now."""
        point = self.leased.settings.recovery_point
        log = self.context.broker.storage.log
        boundary = boundary_of(point) if is_known(point, log.first_id(), log.next_id()) else None
        if not was_there and (boundary is None or since_id is None):
            self.recovered_point = point
            return
        if point == CREATION:  # all its messages came after that
            self._built()
            return
        if boundary is None:
            self.purge()
            self._built()
            return
        position = log.position_of_time(boundary.wall_ms) if boundary.wall_ms else log.position_of_id(boundary.id)
        if since_id is not None:
            position = max(position, log.position_of_id(since_id))
        self.recovered_point = ""
        self.rebuild = Rebuild(boundary, position, log.end(), next_id, is_known=was_there)
        self.freeze()
        self.context.broker.scheduler.load_later(self)

    def rebuild_slice(self, rebuild: Rebuild) -> None:
        """Make one step of the rebuild. Raises: Unreadable."""
        log = self.context.broker.storage.log
        if rebuild.is_known:
            found = log.entered(self.vhost_name, self.name, rebuild.position, rebuild.boundary.wall_ms)
            rebuild.entered.extend(found.ids)
            if not rebuild.boundary.id and found.first_id:
                rebuild.boundary = Boundary(found.first_id)
            rebuild.position = found.next_position
            if rebuild.position >= rebuild.end:
                rebuild.entered = type(rebuild.entered)("q", sorted(rebuild.entered))
                rebuild.position, rebuild.is_known = rebuild.start, False
                self._drop_before(rebuild)
            return
        if rebuild.position < rebuild.end:
            self._take_in(rebuild)
        if rebuild.position >= rebuild.end:
            self.rebuild = None
            if self.active is not None:
                self.active = ActiveSet(self.leased.settings.target_queue_depth or 0)
            self._built()
            self.unfreeze()

    def _built(self) -> None:
        """Record in the journal that the rebuild is complete."""
        self.recovered_point = self.leased.settings.recovery_point
        self.events.notes_changed()

    def _drop_before(self, rebuild: Rebuild) -> None:
        """Drop messages before the boundary; all messages, if the log has none from that time on."""
        if rebuild.boundary.wall_ms:
            self.purge()
            return
        ids = sorted(id_ for id_ in self._ids_here() if id_ < rebuild.boundary.id)
        for start in range(0, len(ids), DROP_SLICE):
            taken = self.store.take_at(self.positions_of(ids[start : start + DROP_SLICE]))
            self.events.octets_changed(taken.recounted)
            self.events.purged(taken.messages)

    def _ids_here(self) -> Iterator[int]:
        yield from (message.id for message in self.store)
        for part in self.store.paged_parts():
            if isinstance(part, Message):
                yield part.id
            else:
                yield from part.ids

    def _take_in(self, rebuild: Rebuild) -> None:
        context = self.context

        def is_wanted(exchange: str, routing_key: str, queues: Sequence[str], id_: int) -> bool:
            if id_ >= rebuild.until_id or rebuild.was_here(id_):
                return False
            return context.router.captures.is_in_log(self, exchange, routing_key, queues, id_)

        page = context.broker.storage.log.read(self.vhost_name, rebuild.position, is_wanted, REBUILD_OCTETS)
        rebuild.position = page.next_position
        for one in page.found:
            if not rebuild.has_begun:
                if not rebuild.boundary.is_before(one.message.id, one.wall_ms):
                    continue
                rebuild.has_begun = True
            filter_ = self.leased.filter
            if filter_ is None or filter_.matches(MessageSubject(one.message)):
                self._take_in_one(one)
        context.broker.effort.spent += len(page.found)

    def _take_in_one(self, one: LoggedMessage) -> None:
        context = self.context
        logged = one.message
        envelope = logged.envelope.persisted()
        message = self.message_for(logged.id, logged.content, envelope)
        lifetime_ms = self.leased.lifetime_ms(envelope.expiration_ms)
        if lifetime_ms is not None:
            left_ms = one.wall_ms + lifetime_ms - context.broker.clock.wall_ms()
            message.expires_ns = max(1, due_after(context.broker.clock, max(left_ms, 0)))
        durability = context.broker.storage.durability
        if durability is not None:
            durability.recall(message.id, one.location, body_size(message))
        self.events.enqueued(message)
        store = self.store
        if self.last_id < message.id:
            self.last_id = message.id
            store.append(message)
            if self.selection is not None:
                self.selection.groups.came_to((store.position_of(message),))
        else:
            self.merge([message])
        if message.expires_ns:
            store.expect_expiry()
            self.book.expect(message.expires_ns, message.id, store.position_of(message))
            self.arm_expiry()
            self.arm_leases()
        if self.deferred is not None:
            self.settle_deferred((message.id,))
