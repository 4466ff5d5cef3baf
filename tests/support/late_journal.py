"""A journal that is as late, and fails when, a test says: what it keeps, and from when on that is safe."""

from __future__ import annotations

from stand_in_journal import StandInJournal

from leveret.engine import UNTIL_CAUGHT_UP, Broker, EnqueuedEvent, Event, PublishedEvent, QueueEvent


class LateJournal(StandInJournal):
    """Listens to a broker, and is its `Durability`. Messages are known by their bodies.

    `published`: those that came in. `queues_of`: the queues that took each; `came_to`: what came into each queue, in
    order. `barrier_of`: the LSN that must be safe before anybody hears that one is kept.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker
        self.safe_lsn = self.next_lsn = 1
        self._changed_lsn = 1  # behind the last change of an object
        self.published: dict[int, bytes] = {}
        self.queues_of: dict[bytes, set[str]] = {}
        self.barrier_of: dict[bytes, int] = {}
        self.came_to: dict[str, list[bytes]] = {}
        broker.context.listeners.append(self)
        broker.context.storage.durability = self

    def __call__(self, event: Event) -> None:
        if isinstance(event, PublishedEvent):
            for id_, content in zip(event.messages, event.contents):
                self.published[id_] = body = event.run.framing.split(content)[1]
                self.queues_of.setdefault(body, set())
        elif isinstance(event, EnqueuedEvent):
            queue = self._broker.virtual_hosts[event.vhost].queues[event.subject]
            for at, id_ in enumerate(event.messages):
                body = self.published[id_]
                self.queues_of[body].add(event.subject)
                self.came_to.setdefault(event.subject, []).append(body)
                envelope = event.run[at].envelope if isinstance(event.run, list | tuple) else event.run
                if queue.durable and envelope.summary.persistent:  # type: ignore[union-attr]
                    self.barrier_of[body] = self.record()
        elif isinstance(event, QueueEvent) and event.queue.durable:
            self._changed_lsn = self.record()

    def record(self) -> int:
        """Something that must be safe before anybody hears of it. Returns: the LSN behind it."""
        self._broker.context.turn.records += 1
        self.next_lsn += 1
        return self.next_lsn

    # -- what the journal does, in its own time ----------------------------------------------------------------------

    def commit(self, records: int, *, is_told: bool = True) -> None:
        """So many more records are safe; the broker may hear of it later."""
        if not self.is_behind:
            self.safe_lsn = min(self.next_lsn, self.safe_lsn + records)
        if is_told:
            self._broker.release_awaiting()

    def fail(self) -> None:
        """It takes nothing more; what is not safe may never be."""
        self.has_failed = self.is_behind = True
        self._broker.release_awaiting()

    def recover(self) -> None:
        """It takes records again, and has stated what happened meanwhile."""
        self.has_failed = self.is_behind = False
        self.safe_lsn = self.next_lsn
        self._broker.release_awaiting()

    # -- the engine's Durability --------------------------------------------------------------------------------------

    def sync_lsn(self) -> int:
        return UNTIL_CAUGHT_UP if self.has_failed else self.next_lsn

    def sync_lsn_of_objects(self) -> int:
        return 0 if self.is_behind or self.safe_lsn >= self._changed_lsn else self._changed_lsn

    def sync_lsn_of_all(self) -> int:
        return 0 if self.is_behind or self.safe_lsn >= self.next_lsn else self.next_lsn
