"""The recorder: what the engine says happened, written down as far as it has to survive (`scope = "durable"`).

A listener of the broker. Only what recovery restores is recorded: persistent messages in durable queues, durable
queues, exchanges and bindings, and what operators set; full_recorder.py has the rest. `take_barrier` and `safe_lsn` are
the engine's `Durability`. Source: rulings 21 and 22; address-settings page 5.7 (delivery counts).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar

from ...engine import Broker, Envelope, Message, Queue
from ...engine.clock import MS, bounded_ms
from ...engine.durability import UNTIL_STATED
from ...engine.events import TERMINAL, EventKind
from ...engine.messages.event import Event
from ...engine.queues.stream_queue import StreamQueue
from ...engine.stores.paged_message import body_size
from ..format.errors import JournalFailed
from ..format.record import COUNTED, EXCHANGE, REASON_CODES, TIME_MAX, VHOST
from ..journal import Journal
from ..recovery.recovered import MessageState, RecoveredMessage
from .content_index import ContentIndex
from .object_recorder import ObjectRecorder, is_durable

_ENVELOPE = attrgetter("envelope")
_PUBLISHED = EventKind.PUBLISHED
#: Changes of what there is.
TOPOLOGY = frozenset({EventKind.DECLARED, EventKind.UNDECLARED, EventKind.BOUND, EventKind.UNBOUND})
#: Where a stream begins is stated anew after these, in the same block.
FROM_THE_HEAD = frozenset({EventKind.DROPPED, EventKind.EXPIRED, EventKind.PURGED})

#: Octets that wait for the disk before publishers wait, too.
BACKLOG_MAX = 32 * 1024 * 1024


class Recorder(ObjectRecorder):
    """`persists_deliveries`: write counts at each delivery. `counts_max`: larger ones are not written; -1: all are."""

    #: Whether messages that no restart brings back are recorded, too.
    takes_transient: ClassVar[bool] = False

    def __init__(
        self, broker: Broker, journal: Journal, *, persists_deliveries: bool = False, counts_max: int = 10
    ) -> None:
        super().__init__(broker, journal)
        self._persists_deliveries = persists_deliveries
        self._counts_max = counts_max
        self.contents = ContentIndex()
        self._run_first = 0  # of the published run under way: its first id, length, LSN, sizes
        self._run_count = 0
        self._run_lsn = 0
        self._run_sizes: list[int] = []
        self.takes_nothing = False
        self.is_low = False
        self.late_octets = 0  # of contents that came while it took nothing
        self.is_behind = self.is_lost = False  # see the engine's `Durability`
        self._safe_before = 0  # when it failed
        self._late: dict[int, set[int]] = {}  # recorded since then, with what stood there before: id -> ids of queues
        self._gone: set[int] | None = None  # of the queue that is being stated: ids that left meanwhile
        self._stated = ("", "")
        self._handlers: dict[EventKind, Callable[[Event], None]] = {
            EventKind.PUBLISHED: self._published,
            EventKind.ENQUEUED: self._enqueued,
            EventKind.REQUEUED: self._requeued,
            EventKind.SCHEDULED: self._scheduled,
            EventKind.DECLARED: self._declared,
            EventKind.UNDECLARED: self._undeclared,
            EventKind.BOUND: self._bound,
            EventKind.UNBOUND: self._unbound,
            **dict.fromkeys(TERMINAL, self._settled),
        }
        self._publishes = self._handlers[_PUBLISHED]
        if persists_deliveries:
            self._handlers[EventKind.DELIVERED] = self._delivered

    def __call__(self, event: Event) -> None:
        """Write down what happened."""
        handler = self._handlers.get(event.kind)
        if handler is None:
            return
        if not self.takes_nothing:
            try:
                handler(event)
            except JournalFailed:  # it has, in its own thread, and the news is still under way
                self.fail(for_good=True)
                self(event)
                self._has_recorded = True  # so that whoever waits is told no
        elif event.kind in TOPOLOGY and is_durable(event):
            self._has_recorded = True  # it will be, by the checkpoint that follows
        elif event.kind in TERMINAL:
            queue_id, ids = self._leaving(event)
            if queue_id is not None:  # the checkpoint leaves them out; their segments are to go after it
                self._journal.ledger.settled(self._recorded(ids))
        elif event.kind is EventKind.PUBLISHED and is_caused(event):
            blobs: Any = event.detail and event.detail["blobs"]
            self.late_octets += sum(map(len, blobs))

    def fail(self, *, for_good: bool) -> None:
        """The journal takes nothing now, or ever again."""
        if not self.is_behind:
            self._safe_before = self._journal.committed_lsn
        self._has_recorded = False  # by publishers who wait for nothing
        self.takes_nothing = self.is_behind = True
        self.is_lost = for_good

    def recover(self) -> None:
        """It takes records again; what happened meanwhile is still to be stated."""
        self.takes_nothing = False

    def all_is_stated(self) -> None:
        """A checkpoint since then is durable."""
        self.is_behind = self.takes_nothing
        if not self.is_behind:
            self._late.clear()
            self.late_octets = 0

    def set_low(self, is_low: bool) -> None:
        """There is room only for what makes room: publishers are refused, the rest is recorded. Or no longer so."""
        if is_low and not self.is_low:
            self._handlers[_PUBLISHED], self._publishes = self._published_while_low, self._handlers[_PUBLISHED]
        elif self.is_low and not is_low:
            self._handlers[_PUBLISHED] = self._publishes
        self.is_low = is_low

    @property
    def has_failed(self) -> bool:
        """See `Durability`."""
        return self.takes_nothing or self.is_low

    # -- the engine's Durability --------------------------------------------------------------------------------------

    def take_barrier(self) -> int:
        """See `Durability`."""
        if not self._has_recorded:
            return 0
        self._has_recorded = False
        return UNTIL_STATED if self.is_behind else self._journal.next_lsn

    @property
    def safe_lsn(self) -> int:
        """See `Durability`."""
        return self._safe_before if self.is_behind else self._journal.committed_lsn

    @property
    def outstanding_lsn(self) -> int:
        """See `Durability`."""
        journal = self._journal
        return 0 if self.is_behind or journal.committed_lsn >= journal.next_lsn else journal.next_lsn

    def begin(self, objects: Container[int]) -> None:
        """What was is restored; `objects`: ids of the durable ones. Names of what ended with the last broker go.

        Transient queues and exchanges, consumers, connections, and what was undeclared where nobody wrote it down.
        """
        journal = self._journal
        gone = [id_ for id_ in journal.names.ids_of() if id_ not in objects and not self._is_there(id_)]
        for id_ in reversed(gone):  # a virtual host after what is in it
            journal.retire(id_)

    def _is_there(self, id_: int) -> bool:
        """Whether a name is of what every broker has, or is kept for the sake of messages."""
        names, vhosts = self._journal.names, self._broker.virtual_hosts
        what, vhost_id, name = names[id_]
        if what == VHOST:
            return name in vhosts
        vhost = vhosts.get(names.text(vhost_id))
        return what == EXCHANGE and vhost is not None and (names.is_retired(id_) or name in vhost.exchanges)

    # -- messages -----------------------------------------------------------------------------------------------------

    def _published(self, event: Event) -> None:
        envelope, detail = event.of, event.detail
        assert isinstance(envelope, Envelope) and detail is not None
        self._run_count = 0
        queues: Sequence[Queue] = detail["queues"]  # type: ignore[assignment]
        queue_ids = [self._queue_id(queue) for queue in queues if queue.stores(envelope)]
        if queue_ids:
            self._write_published(event, envelope, detail, queue_ids)

    def _published_while_low(self, event: Event) -> None:
        """Queues refuse what clients publish; what dies into a queue is taken."""
        self._run_count = 0
        if is_caused(event):
            self._publishes(event)

    def _write_published(
        self, event: Event, envelope: Envelope, detail: dict[str, Any], queue_ids: Sequence[int], durable: bool = True
    ) -> None:
        blobs: Sequence[bytes] = detail["blobs"]
        expires_ms = self._expires_ms(envelope)
        framing = envelope.framing
        self._run_lsn = self._journal.published(
            event.messages,
            self._exchange_id(event.vhost, envelope.exchange),
            envelope.routing_key.encode(),
            blobs,
            framing=framing,
            queue_ids=queue_ids,
            expires_ms=expires_ms,
            cause_id=envelope.cause_id,
            priority=envelope.facts.priority or 0,
            durable=durable,
        )
        self._run_first, self._run_count = event.messages[0], len(blobs)
        self._run_sizes = [framing.body_size(blob) for blob in blobs]
        if durable:
            self.contents.add(self._run_first, self._run_count, self._run_lsn)
            self._has_recorded = True

    def _enqueued(self, event: Event) -> None:
        offset = event.messages[0] - self._run_first
        if not 0 <= offset < self._run_count or not (self.takes_transient or is_persistent(event)):
            return  # transient, or its content is not here
        queue_id = self._queue_ids.get((event.vhost, event.subject))
        if queue_id is not None:
            self._write_enqueued(event, queue_id, offset)

    def _write_enqueued(self, event: Event, queue_id: int, offset: int, durable: bool = True) -> None:
        count = len(event.messages)
        expires_ms = 0
        assert event.of is not None
        if isinstance(event.of, Envelope):
            envelope = event.of
        else:
            envelope = event.of[0].envelope
            expires_ms = self.wall_ms(event.of[0].expires_ns)
        self._journal.enqueued(
            queue_id,
            event.messages,
            self._run_lsn + offset,
            self._run_sizes[offset : offset + count] if count < self._run_count else self._run_sizes,
            expires_ms=expires_ms,
            priority=envelope.facts.priority or 0,
            durable=durable,
        )

    def _settled(self, event: Event) -> None:
        queue_id, ids = self._leaving(event)
        if queue_id is None or not ids:
            return
        if self.is_behind:  # what came while nothing was taken is nowhere yet, and now it need not be
            self._note_gone(event, ids)
            ids = self._recorded(ids)
            if not ids:
                return
        self._write_settled(event, queue_id, ids, str((event.detail or {}).get("reason", "")))

    def _leaving(self, event: Event) -> tuple[int | None, Sequence[int]]:
        """The journal's id of the queue, None: it has none; and the ids of the messages that leave it."""
        queue_id = self._queue_ids.get((event.vhost, event.subject))
        detail = event.detail or {}
        if queue_id is None or detail.get("kept") or detail.get("came_in") is False:
            return None, ()  # they stay, or never were there
        return queue_id, persistent_ids(event)

    def _write_settled(
        self, event: Event, queue_id: int, ids: Sequence[int], reason: str, consumer_id: int = 0, conn_id: int = 0
    ) -> None:
        self._has_recorded = True
        self._note_gone(event, ids)
        more: dict[str, Any] = {"reason": reason, "consumer_id": consumer_id, "conn_id": conn_id}
        if len(ids) > 1 and (event.kind is EventKind.DELETED or isinstance(ids, range)):
            self._journal.settled_range(event.kind, queue_id, ids, **more)
        elif len(ids) > 1 and reason in REASON_CODES and stand_in_a_row(ids):
            self._journal.settled_range(event.kind, queue_id, range(ids[0], ids[-1] + 1), **more)
        else:
            self._journal.happened(event.kind, queue_id, ids, **more)
        if event.kind in FROM_THE_HEAD:
            vhost = self._broker.virtual_hosts.get(event.vhost)  # None: it is being taken down
            queue = None if vhost is None else vhost.queues.get(event.subject)
            if isinstance(queue, StreamQueue):
                self.state_object(queue, restated=True)

    def _note_gone(self, event: Event, ids: Sequence[int]) -> None:
        if self._gone is not None and self._stated == (event.vhost, event.subject):
            self._gone.update(ids)

    def _recorded(self, ids: Sequence[int]) -> Sequence[int]:
        """Of some messages those whose contents are in the journal."""
        return [id_ for id_ in ids if self.contents.lsn_of(id_) is not None]

    def _requeued(self, event: Event) -> None:
        """A count is written when it has changed: after a return that counted."""
        assert event.detail is not None
        if event.detail["counted"]:
            self._returned(event, None)

    def _scheduled(self, event: Event) -> None:
        assert event.detail is not None
        due_ns: Sequence[int] = event.detail["due_ns"]  # type: ignore[assignment]
        self._returned(event, due_ns)

    def _returned(self, event: Event, due_ns: Sequence[int] | None) -> None:
        queue_id = self._queue_ids.get((event.vhost, event.subject))
        if queue_id is None or event.of is None:
            return
        assert not isinstance(event.of, Envelope)
        states = [
            (message.deliveries, message.uncounted, 0 if due_ns is None else self.wall_ms(due_ns[index]), message.id)
            for index, message in enumerate(event.of)
            if message.envelope.facts.persistent and self._is_counted_so_far(message)
        ]
        for (deliveries, uncounted, due_ms), like in groupby(states, key=lambda state: state[:3]):
            self._journal.happened(
                event.kind,
                queue_id,
                [state[3] for state in like],
                deliveries=deliveries,
                uncounted=uncounted,
                due_ms=due_ms,
            )

    def _is_counted_so_far(self, message: Message) -> bool:
        return self._counts_max < 0 or message.deliveries - message.uncounted <= self._counts_max

    def _delivered(self, event: Event) -> None:
        """Counts before deliveries (persist-delivery-count-before-delivery)."""
        queue_id = self._queue_ids.get((event.vhost, event.subject))
        if queue_id is None:
            return
        if isinstance(event.of, Envelope):
            if event.of.facts.persistent:
                self._journal.happened(event.kind, queue_id, event.messages, deliveries=1, flags=COUNTED)
            return
        states = [
            (message.deliveries, message.uncounted, message.id)
            for message in event.of or ()
            if message.envelope.facts.persistent and self._is_counted_so_far(message)
        ]
        for (deliveries, uncounted), like in groupby(states, key=lambda state: state[:2]):
            ids = [state[2] for state in like]
            self._journal.happened(event.kind, queue_id, ids, deliveries=deliveries, uncounted=uncounted, flags=COUNTED)

    def wall_ms(self, monotonic_ns: int) -> int:
        """A time of the running clock as it is recorded; 0: none."""
        if not monotonic_ns:
            return 0
        clock = self._broker.clock
        return min(TIME_MAX, clock.wall_ms() + -(-(monotonic_ns - clock.monotonic_ns()) // MS))

    def _expires_ms(self, envelope: Envelope) -> int:
        """When a message ends by its own time to live, in wall ms; 0: never."""
        wait_ms = envelope.expiration_ms
        return 0 if wait_ms is None else self._broker.clock.wall_ms() + bounded_ms(wait_ms)

    @property
    def is_congested(self) -> bool:
        """See `Durability`."""
        return self._journal.backlog_bytes > BACKLOG_MAX and not self.has_failed

    # -- for checkpoints and moving -----------------------------------------------------------------------------------

    def watch(self, queue: Queue | None) -> set[int]:
        """From now on the ids that leave this queue go into the set that is returned; None: no more."""
        gone: set[int] = set()
        self._gone = None if queue is None else gone
        self._stated = ("", "") if queue is None else (queue.vhost.name, queue.name)
        return gone

    def message_of(self, message: Message, due_ns: int) -> RecoveredMessage | None:
        """A message as recovery would find it; None: it is not in the journal."""
        lsn = self.contents.lsn_of(message.id)
        if lsn is None:
            return None
        is_out = message.holder is not None and not self._persists_deliveries
        state = MessageState(
            message.deliveries - is_out - message.uncounted,  # a delivery counts when it has come back
            0,
            self.wall_ms(due_ns),
            message.envelope.facts.priority or 0,
        )
        size = body_size(message)
        return RecoveredMessage(message.id, lsn, size, self.wall_ms(message.expires_ns), state)

    def record_late(self, queue: Queue, message: Message) -> None:
        """A message that came into a durable queue while the journal took nothing: a dead letter of that time."""
        id_, envelope = message.id, message.envelope
        lsn = self.contents.lsn_of(id_)
        queue_id = self._queue_id(queue)
        if (lsn is not None and id_ not in self._late) or queue_id in self._late.get(id_, ()):
            return
        if lsn is None:
            lsn = self._journal.published(
                (id_,),
                self._exchange_id(queue.vhost.name, envelope.exchange),
                envelope.routing_key.encode(),
                (message.blob,),
                framing=envelope.framing,
                queue_ids=(queue_id,),
                expires_ms=self._expires_ms(envelope),
                cause_id=envelope.cause_id,
                priority=envelope.facts.priority or 0,
            )
            self.contents.move(id_, lsn)
        self._late.setdefault(id_, set()).add(queue_id)
        size = envelope.framing.body_size(message.blob)
        self._journal.enqueued(
            queue_id,
            (id_,),
            lsn,
            (size,),
            expires_ms=self.wall_ms(message.expires_ns),
            priority=envelope.facts.priority or 0,
        )

    def whereabouts(self) -> Callable[[int], tuple[int, ...]]:
        """Message id -> ids of the durable queues that it is in now.

        O(messages in memory + runs); asking, O(queues log runs).
        """
        where: dict[int, tuple[int, ...]] = {}
        paged: list[tuple[int, list[Sequence[int]]]] = []
        for vhost in self._broker.virtual_hosts.values():
            for queue in vhost.queues.values():
                if not queue.durable:
                    continue
                id_ = self._queue_id(queue)
                parts = queue.paged_parts()
                levels: dict[int, list[Sequence[int]]] = {}  # within each, runs do not overlap
                for part in parts:
                    if not isinstance(part, Message) and part.place is None:
                        levels.setdefault(part.level, []).append(part.ids)
                paged.extend((id_, sorted(runs, key=_first)) for runs in levels.values())
                out = () if queue.keeps else self._broker.unacked_of(queue)
                aside = (part for part in parts if isinstance(part, Message))
                for message in (*queue.messages(), *out, *aside):
                    if message.envelope.facts.persistent:
                        where[message.id] = (*where.get(message.id, ()), id_)

        def queues_of(id_: int) -> tuple[int, ...]:
            found = where.get(id_, ())
            for queue_id, runs in paged:
                at = bisect_right(runs, id_, key=_first) - 1
                if at >= 0 and _has(runs[at], id_):
                    found = (*found, queue_id)
            return found

        return queues_of


def _first(ids: Sequence[int]) -> int:
    return ids[0]


def _has(ids: Sequence[int], id_: int) -> bool:
    """Whether rising ids have this one."""
    if isinstance(ids, range):
        return id_ in ids
    at = bisect_left(ids, id_)
    return at < len(ids) and ids[at] == id_


def is_caused(event: Event) -> bool:
    """Whether published messages come of others (dead letters, what was retained), not from a client."""
    return event.detail is not None and "cause" in event.detail


def is_persistent(event: Event) -> bool:
    """Whether the messages, which are alike, are to be stored."""
    if isinstance(event.of, Envelope):
        return event.of.facts.persistent
    return event.of is not None and event.of[0].envelope.facts.persistent


def persistent_ids(event: Event) -> Sequence[int]:
    """Of an event's messages, those that are in the journal if their queue is."""
    if isinstance(event.of, Envelope):
        return event.messages if event.of.facts.persistent else ()
    if event.of is None:
        return ()
    if all(envelope.facts.persistent for envelope in set(map(_ENVELOPE, event.of))):
        return event.messages
    return [message.id for message in event.of if message.envelope.facts.persistent]


def stand_in_a_row(ids: Sequence[int]) -> bool:
    """Whether these, which differ, are all from the first to the last."""
    return ids[-1] - ids[0] + 1 == len(ids) and min(ids) == ids[0] and max(ids) == ids[-1]
