"""Deferred acknowledgements of a leased queue: they remove messages that come, or become active, later.

Source: queues page C.6.
"""

from collections.abc import Iterable, Sequence

from ..errors import BadRequest
from ..stores.tailed_store import TailedStore
from .deferred_acks import DEFERRED_MAX, DeferredAcks
from .ending import LeasedCore


class DeferringCore(LeasedCore):
    """A leased queue with deferred acknowledgements."""

    __slots__ = ()

    def defer_acks(self, ids: Iterable[int]) -> int:
        """Defer acknowledgements of messages that are not ready in the queue. Returns how many were deferred.

        Messages that are gone are skipped: they do not come again. Raises: BadRequest: too many are deferred.
        """
        deferred = self.deferred or DeferredAcks()
        now_ms = self.context.broker.clock.wall_ms()
        deferred.prune(now_ms)
        scheduled = self._scheduled_ids()
        count = 0
        for id_ in ids:
            is_here = id_ in scheduled or self._is_inactive(id_)
            if id_ <= self.last_id and not is_here:
                continue
            if not deferred.add(id_, 0 if is_here else now_ms + self.leased.settings.deferred_ack_ms):
                raise BadRequest(f"more than {DEFERRED_MAX} acknowledgements wait for messages that have not come")
            if is_here and id_ not in scheduled:
                deferred.keep(id_)
            count += 1
        if count:
            self.deferred = deferred
            self.events.notes_changed()
        return count

    def _is_inactive(self, id_: int) -> bool:
        """Whether a message is in the queue, behind the active ones."""
        if self.active is None or not self.active.end < id_ <= self.last_id:
            return False
        assert isinstance(self.store, TailedStore)  # see `ActiveSet`
        return self.store.positions(id_ - 1, 1) == [id_]

    def _scheduled_ids(self) -> set[int]:
        return {message.id for _, message in self.scheduled.entries()}

    def settle_deferred(self, ids: Iterable[int]) -> None:
        """Remove messages that came and have a deferred acknowledgement; inactive ones when they become active."""
        deferred = self.deferred
        if deferred is None:
            return
        deferred.prune(self.context.broker.clock.wall_ms())
        known = deferred.among(ids)
        if known:
            positions = self.positions_of(known)
            if self.active is not None:
                for id_ in known:
                    if id_ > self.active.end:
                        deferred.keep(id_)
                known = positions
            self._settle_at(positions, known)
        elif not deferred:
            self.deferred = None
            self.events.notes_changed()

    def settle_entered(self) -> None:
        """Remove messages that became active and have a deferred acknowledgement (TargetQueueDepth)."""
        while self.active is not None and self.deferred is not None:
            self.active.refill(self.store)
            entered = self.deferred.entered(self.active.end)
            if not entered:
                return
            self._settle_at(entered, entered)

    def _settle_at(self, positions: Sequence[int], ids: Sequence[int]) -> None:
        assert self.deferred is not None
        self.deferred.forget(ids)
        if not self.deferred:
            self.deferred = None
        taken = self.store.take_at(positions)
        self.events.octets_changed(taken.recounted)
        self.gone(taken.messages)
        self.events.notes_changed()

    @property
    def deferred_count(self) -> int:
        if self.deferred is None:
            return 0
        self.deferred.prune(self.context.broker.clock.wall_ms())
        return len(self.deferred)

    # -- over a restart -----------------------------------------------------------------------------------------------

    @property
    def notes(self) -> bytes:
        """The deferred acknowledgements, for the journal."""
        return b"" if self.deferred is None else self.deferred.to_octets()

    def restore_notes(self, octets: bytes) -> None:
        self.deferred = DeferredAcks(octets) if octets else None

    def restore_deferred(self) -> None:
        """After a restart, when all messages are back, remove those with a deferred acknowledgement."""
        if self.deferred is None:
            return
        scheduled = self._scheduled_ids()
        known = [id_ for id_ in self.deferred.among(range(1, self.last_id + 1)) if id_ not in scheduled]
        self.settle_deferred(known)
