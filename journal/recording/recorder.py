"""The recorder: what happened in the engine, written down as far as it has to survive (`scope = "durable"`).

A listener of the broker. Only what recovery restores is recorded: persistent messages in durable queues, durable
queues, exchanges and bindings, and what operators set; full_recorder.py has the rest. `take_barrier` and `safe_lsn` are
the engine's `Durability`. Source: rulings 21 and 22; address-settings page 5.7 (delivery counts).
"""

from collections.abc import Callable, Container
from typing import Any

from ...engine import TERMINAL, UNTIL_STATED, Broker, Event, EventKind, Message, Queue
from ...engine.state import body_size
from ..format.errors import JournalFailed
from ..format.record import EXCHANGE, VHOST
from ..journal import Journal
from ..recovery.recovered import MessageState, RecoveredMessage
from .message_recorder import MessageRecorder
from .object_recorder import is_durable

_PUBLISHED = EventKind.PUBLISHED
#: Changes of what there is.
TOPOLOGY = frozenset({EventKind.DECLARED, EventKind.UNDECLARED, EventKind.BOUND, EventKind.UNBOUND})

#: Octets that wait for the disk before publishers wait, too.
BACKLOG_MAX = 32 * 1024 * 1024


class Recorder(MessageRecorder):
    """Listens to all events, and is the engine's `Durability`: what is safe, and what the journal cannot take now."""

    def __init__(
        self, broker: Broker, journal: Journal, *, persists_deliveries: bool = False, counts_max: int = 10
    ) -> None:
        super().__init__(broker, journal, persists_deliveries=persists_deliveries, counts_max=counts_max)
        self.takes_nothing = False
        self.is_low = False
        self.late_octets = 0  # of contents that came while it took nothing
        self.is_lost = False  # see the engine's `Durability`
        self._safe_before = 0  # when it failed
        self._late: dict[int, set[int]] = {}  # recorded since then, with what stood there before: id -> ids of queues
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
            except JournalFailed:  # in its own thread, and this one has not heard of it yet
                self.fail(for_good=True)
                self(event)
                self._has_recorded = True  # so that publishers who wait are refused
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
        self._has_recorded = False  # of publishers that wait for no confirm
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

    def _published_while_low(self, event: Event) -> None:
        """Queues refuse what clients publish; what dies into a queue is taken."""
        self._run_count = 0
        if is_caused(event):
            self._publishes(event)

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
        """After restoring; `objects`: ids of the durable objects. Names of what ended with the last broker are retired.

        These are transient queues and exchanges, consumers, connections, and what was undeclared without a record.
        """
        journal = self._journal
        gone = [id_ for id_ in journal.names.ids_of() if id_ not in objects and not self._is_there(id_)]
        for id_ in reversed(gone):  # a virtual host after what is in it
            journal.objects.retire(id_)

    def _is_there(self, id_: int) -> bool:
        """Whether a name is of what every broker has, or is kept for the sake of messages."""
        names, vhosts = self._journal.names, self._broker.virtual_hosts
        what, vhost_id, name = names[id_]
        if what == VHOST:
            return name in vhosts
        vhost = vhosts.get(names.text(vhost_id))
        return what == EXCHANGE and vhost is not None and (names.is_retired(id_) or name in vhost.exchanges)

    @property
    def is_congested(self) -> bool:
        """See `Durability`."""
        return self._journal.backlog_bytes > BACKLOG_MAX and not self.has_failed

    # -- for checkpoints ----------------------------------------------------------------------------------------------

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
            lsn = self._journal.messages.published(
                (id_,),
                self._exchange_id(queue.vhost_name, envelope.exchange),
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
        self._journal.messages.enqueued(
            queue_id,
            (id_,),
            lsn,
            (size,),
            expires_ms=self.wall_ms(message.expires_ns),
            priority=envelope.facts.priority or 0,
        )


def is_caused(event: Event) -> bool:
    """Whether messages were published by the broker (dead letters, retained messages), not by a client."""
    return event.detail is not None and "cause" in event.detail
