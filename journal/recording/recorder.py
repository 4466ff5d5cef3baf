"""The recorder of `scope = "durable"`: a listener of the broker that writes the events that recovery needs.

These are events of persistent messages in durable queues, of durable queues, exchanges and bindings, and of users,
policies and parameters; full_recorder.py writes the others. The recorder is the engine's `Durability`.
Source: rulings 21 and 22; address-settings page 5.7 (delivery counts).
"""

from collections import deque
from collections.abc import Callable, Container
from typing import Any, ClassVar, TypeVar

from ...engine import (
    UNTIL_CAUGHT_UP,
    AckedEvent,
    BindingEvent,
    Broker,
    ClusterEvent,
    DeliveredEvent,
    Durability,
    EnqueuedEvent,
    Envelope,
    Event,
    ExchangeEvent,
    LeftEvent,
    MixedEnqueuedEvent,
    MixedPublishedEvent,
    NotesEvent,
    ParameterEvent,
    PolicyEvent,
    PublishedEvent,
    QueueEvent,
    RequeuedEvent,
    ScheduledEvent,
    TransferredEvent,
    UserDeclaredEvent,
    UserUndeclaredEvent,
    VirtualHostEvent,
)
from ..appending.journal import Journal
from ..format.errors import JournalFailed
from ..format.record import EXCHANGE, VHOST
from .duplicate_ids import DuplicateIds
from .message_recorder import MessageRecorder
from .object_recorder import ObjectRecorder, is_durable

Family = TypeVar("Family", bound=Event)

#: Octets that may wait for the disk before the journal is congested and publishers are throttled.
BACKLOG_MAX = 32 * 1024 * 1024


class Recorder:
    """Listens to all events. Implements the engine's `Durability`: the safe LSN, and the state of the journal.

    `persists_deliveries`, `counts_max`: see `MessageRecorder`. `keeps_ids`: duplicate ids are recorded.
    """

    #: The classes of its two parts.
    object_recorder: ClassVar[type[ObjectRecorder]] = ObjectRecorder
    message_recorder: ClassVar[type[MessageRecorder]] = MessageRecorder
    #: Mixed runs are recorded whole (`engine.MixedEvent`).
    takes_mixed: ClassVar[bool] = True

    def __init__(
        self,
        broker: Broker,
        journal: Journal,
        *,
        persists_deliveries: bool = False,
        counts_max: int = 10,
        keeps_ids: bool = True,
    ) -> None:
        self._broker = broker
        self._context = broker.context
        self._journal = journal
        self.objects = objects = self.object_recorder(broker, journal)
        self.messages = messages = self.message_recorder(
            broker, journal, objects, persists_deliveries=persists_deliveries, counts_max=counts_max
        )
        self.duplicate_ids = DuplicateIds(broker, journal, is_on=keeps_ids)
        self.takes_nothing = False  # the journal takes no records: its disk is full, or it failed
        self.is_low = False  # the disk has room only for records that free more room
        self.is_lost = False  # the journal failed, and takes records only when it is opened again
        self.failed_ms = 0  # wall time of the failure
        self.missed = 0  # events that came while `takes_nothing`
        self.late_octets = 0  # of contents that the broker itself, not a client, published while `takes_nothing`
        self.delays_deliveries = False  # they wait until other nodes have the messages
        self._safe_before = 0  # safe LSN when the journal failed
        self._handlers: dict[type[Event], Callable[[Any], None]] = {}  # filled by `_on`, which is typed
        self._on(PublishedEvent, messages.published)
        self._on(EnqueuedEvent, messages.enqueued)
        self._on(MixedPublishedEvent, messages.published_mixed)
        self._on(MixedEnqueuedEvent, messages.enqueued_mixed)
        self._on(RequeuedEvent, messages.requeued)
        self._on(ScheduledEvent, messages.scheduled)
        self._on(TransferredEvent, messages.transferred)
        self._on(AckedEvent, messages.settled)
        self._on(LeftEvent, messages.settled)
        self._on(QueueEvent, objects.queue_changed)
        self._on(NotesEvent, objects.notes_changed)
        self._on(ExchangeEvent, objects.exchange_changed)
        self._on(BindingEvent, objects.binding_changed)
        self._on(VirtualHostEvent, objects.vhost_changed)
        self._on(UserDeclaredEvent, objects.user_declared)
        self._on(UserUndeclaredEvent, objects.user_undeclared)
        self._on(PolicyEvent, objects.policy_changed)
        self._on(ParameterEvent, objects.parameter_changed)
        self._on(ClusterEvent, objects.cluster_changed)
        if messages.counts_each_delivery:
            self._on(DeliveredEvent, messages.delivered)

    def hold_deliveries(self) -> None:
        """On a node of a cluster, before restoring: let deliveries wait until other nodes have the messages."""
        self.delays_deliveries = True
        hold, record = AgreedDeliveries(self._broker, self._journal, self), self._handlers.get(DeliveredEvent)

        def delivered(event: DeliveredEvent) -> None:
            if record is not None:
                record(event)
            hold(event)

        self._on(DeliveredEvent, delivered)

    def _on(self, family: type[Family], handler: Callable[[Family], None]) -> None:
        self._handlers[family] = handler

    def __call__(self, event: Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is None:
            return
        if not self.takes_nothing:
            try:
                handler(event)
            except JournalFailed:  # the writer's thread failed, and has not reported it here yet
                self.fail(for_good=True)
                self(event)
                self._context.turn.records += 1  # so that waiting publishers are refused
            return
        self.missed += 1
        if is_durable(event):
            self._context.turn.records += 1  # the following checkpoint will record it
        elif isinstance(event, AckedEvent | LeftEvent):
            _, ids = self.messages.departures(event)
            # The checkpoint omits them, so their segments can be deleted after it.
            self._journal.usage.settled(self.messages.recorded((event.vhost, event.subject), ids))
        elif isinstance(event, EnqueuedEvent):
            self.messages.note_recalled(event)
        elif isinstance(event, PublishedEvent) and event.cause is not None:
            self.late_octets += sum(map(len, event.contents))

    def fail(self, *, for_good: bool) -> None:
        """Note that the journal takes no records until it has room again; `for_good`: until it is opened again."""
        if not self.is_behind:
            self._safe_before = self._journal.committed_lsn
        if not self.has_failed:
            self.failed_ms = self._broker.context.clock.wall_ms()
        self.takes_nothing = self.messages.is_behind = True
        self.is_lost = for_good

    def recover(self) -> None:
        """Note that the journal takes records again. A checkpoint must state the changes that were not recorded."""
        self.takes_nothing = False

    def checkpoint_done(self) -> None:
        """Note that a checkpoint that began after `recover` is durable: the recorder is no longer behind.

        If the journal has stopped taking records again, the recorder stays behind.
        """
        self.messages.is_behind = self.takes_nothing
        if not self.takes_nothing:
            self.messages.late.clear()
            self.messages.recalled_into.clear()
            self.late_octets = 0

    def set_low(self, is_low: bool) -> None:
        """Set whether the disk has room only for records that free more room.

        If so, queues refuse the publishes of clients, and only the broker's own (dead letters, ...) are recorded.
        """
        self._on(PublishedEvent, self.messages.published_while_low if is_low else self.messages.published)
        self.is_low = is_low

    def recall(self, vhost: str, queue: str, id_: int, location: int, size: int) -> None:
        self.messages.recall(vhost, queue, id_, location, size)

    def keep_id(self, vhost: str, address: str, id_: str, first_id: int, size: int) -> bool:
        is_recorded = self.messages.contents.last_id >= first_id
        if is_recorded:
            self.duplicate_ids.keep(vhost, address, id_, first_id, size)
        return is_recorded

    def retain(self, ms: int) -> None:
        self._journal.turns.log_ms = ms

    @property
    def has_failed(self) -> bool:
        return self.takes_nothing or self.is_low

    # -- the engine's Durability --------------------------------------------------------------------------------------

    def sync_lsn(self) -> int:
        if self.takes_nothing:
            return UNTIL_CAUGHT_UP
        self._journal.turns.is_awaited = True
        return self._journal.next_lsn

    @property
    def is_behind(self) -> bool:
        return self.messages.is_behind

    @property
    def takes_transient(self) -> bool:
        return self.messages.takes_transient

    @property
    def safe_lsn(self) -> int:
        return self._safe_before if self.is_behind else self._journal.committed_lsn

    def sync_lsn_of_all(self) -> int:
        journal = self._journal
        if self.is_behind or journal.committed_lsn >= journal.next_lsn:
            return 0
        journal.turns.is_awaited = True
        return journal.next_lsn

    def sync_lsn_of_objects(self) -> int:
        lsn = self._journal.objects.changed_lsn
        if self.is_behind or self.safe_lsn >= lsn:
            return 0
        self._journal.turns.is_awaited = True
        return lsn

    def begin(self, objects: Container[int]) -> None:
        """After restoring: retire the names of all objects but these (ids of durable ones) and those still in use.

        The others are transient queues and exchanges, consumers, connections, and objects undeclared without a record.
        """
        journal = self._journal
        gone = [id_ for id_ in journal.names.ids_of() if id_ not in objects and not self._is_in_use(id_)]
        for id_ in reversed(gone):  # a virtual host after its objects
            journal.objects.retire(id_)

    def _is_in_use(self, id_: int) -> bool:
        """Whether the broker has a virtual host or exchange of this name, or messages still refer to the name."""
        names, vhosts = self._journal.names, self._broker.virtual_hosts
        object_type, vhost_id, name = names[id_]
        if object_type == VHOST:
            return name in vhosts
        vhost = vhosts.get(names.text(vhost_id))
        return object_type == EXCHANGE and vhost is not None and (names.is_retired(id_) or name in vhost.exchanges)

    @property
    def is_congested(self) -> bool:
        return self._journal.backlog_bytes > BACKLOG_MAX and not self.has_failed


class AgreedDeliveries:
    """Tells sessions the LSN for which their deliveries wait.

    Ids rise in the order of publishing, and a message is recorded in the turn in which it is published, in one block.
    So the LSN after all records so far covers all messages so far. `_notes`: pairs (LSN, id), both rising: messages
    with lower ids are agreed when the LSN is. `_noted_below`: the id of the last note. `_agreed_below`: messages with
    lower ids are agreed. A new leader treats recovered messages like new ones.
    """

    def __init__(self, broker: Broker, journal: Journal, durability: Durability) -> None:
        self._durability = durability
        self._context = broker.context
        self._virtual_hosts = broker.virtual_hosts
        self._journal = journal
        self._notes: deque[tuple[int, int]] = deque()
        self._noted_below = self._agreed_below = 0

    def __call__(self, event: DeliveredEvent) -> None:
        """Hold the deliveries of an event back, if their messages are not agreed.

        Those of classic queues, transient queues and streams are not held back.
        """
        ids = event.messages
        last_id = ids[-1] if isinstance(event.run, Envelope) else max(ids)
        if last_id < self._agreed_below or not self._must_wait(event):
            return
        notes, agreed_lsn = self._notes, self._durability.safe_lsn
        while notes and notes[0][0] <= agreed_lsn:
            self._agreed_below = notes.popleft()[1]
        if last_id >= self._agreed_below:
            lsn = self._note() if last_id >= self._noted_below else self._noted_lsn(last_id)
            event.session.client.send_after(lsn, event.session.number)

    def _must_wait(self, event: DeliveredEvent) -> bool:
        queue = self._virtual_hosts.find_queue(event.vhost, event.subject)
        return queue is not None and queue.stores_all and queue.first_offset is None

    def _note(self) -> int:
        """Note the LSN after all messages so far."""
        turns = self._journal.turns
        turns.is_awaited = True
        lsn, self._noted_below = turns.next_lsn, self._context.next_id
        self._notes.append((lsn, self._noted_below))
        return lsn

    def _noted_lsn(self, id_: int) -> int:
        """The LSN of the first note that covers a message."""
        found = 0
        for lsn, below in reversed(self._notes):
            if below <= id_:
                break
            found = lsn
        return found
