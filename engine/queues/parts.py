"""What a queue is made of: store, rota, terms, timers and ledger, in the surroundings that the broker lends it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ...settings import NO_LAYER, NO_POLICY, EffectivePolicy, PolicyLayer
from ..delivery.consumer import Consumer, Receiver
from ..delivery.rota import Rota
from ..events import Counters
from ..exchanges.exchange import Binding
from ..flow.meter import Meter
from ..flow.tree import MeterTerms
from ..messages.field_table import FieldTable
from ..messages.message import Envelope, Message
from ..pressure import Gate
from ..rules.arguments import CLASSIC
from ..rules.queue_rules import QueueRules
from ..stores.kinds import make_store
from ..stores.memory_cap import MemoryCap
from ..stores.scheduled import Scheduled
from ..stores.store import Store
from ..stores.surroundings import Storage
from .ledger import Ledger
from .metered_ledger import MeteredLedger
from .pending import Pending
from .surroundings import Surroundings
from .terms import Terms
from .timers import Timers

if TYPE_CHECKING:
    from .selection import Selection


class ExclusiveOwner(Protocol):
    """The client of an exclusive queue. Its queues go with it."""

    @property
    def exclusive_queues(self) -> dict[Any, None]:
        """All that it has."""


class QueueParts(ABC):
    """`store`: where ready messages wait; `rota`: the consumers; `terms`: what it was declared with, and `rules`: what
    that comes to; `scheduled`: messages that wait for their time; `ledger`: what is counted and announced.

    Source of the fields: queue.declare. `owner` is the client of an exclusive queue.

    `may_drop`: what it holds at its address may become so much that messages are dropped or refused (`limits.refusal`).

    `address`: what its settings are looked up by: its name, unless x-address says otherwise (address-settings 1.3).
    """

    #: Whether acknowledged messages stay.
    keeps: ClassVar[bool] = False
    #: Whether limits of memory and size concern it: not streams, which have their own, and not direct replies.
    is_limited: ClassVar[bool] = True

    __slots__ = (
        "address",
        "auto_delete",
        "deleted",
        "durable",
        "enabled",
        "exclusive",
        "gate",
        "holds",
        "incoming",
        "is_auto_created",
        "is_configured",
        "last_used_ns",
        "ledger",
        "may_drop",
        "name",
        "owner",
        "pending",
        "rota",
        "rules",
        "scheduled",
        "selection",
        "sessions",
        "store",
        "stores_all",
        "surroundings",
        "takes_plainly",
        "terms",
        "timers",
        "type",
    )

    def __init__(
        self,
        surroundings: Surroundings[Any],
        name: str,
        *,
        durable: bool,
        owner: ExclusiveOwner | None,
        auto_delete: bool,
        arguments: FieldTable,
        rules: QueueRules,
        address: str,
        policy: EffectivePolicy = NO_POLICY,
        layer: PolicyLayer = NO_LAYER,
        is_auto_created: bool = False,
    ) -> None:
        self.surroundings = surroundings
        self.name = name
        self.address = address
        self.durable = durable
        self.owner = owner
        self.exclusive = owner is not None
        self.auto_delete = auto_delete
        self.is_auto_created = is_auto_created
        self.is_configured = False  # by the operator's files: never deleted as unused
        self.terms = Terms(name, address, arguments, rules, policy, layer)
        self.rules = rules
        self.type = self.terms.type
        self.stores_all = durable and self.type != CLASSIC  # whatever the delivery mode (behaviour page 3.6, 3.7)
        self.store: Store = self._make_store()
        self.rota = self._make_rota()
        self.timers = Timers(surroundings.deadlines)
        self.ledger = Ledger(surroundings.vhost, name, surroundings.listeners)
        self.scheduled = Scheduled()  # waiting for their time, neither ready nor out
        self.selection: Selection | None = None  # while a consumer has a filter
        self.pending: Pending | None = None  # how many messages wait for a transient subscriber
        if rules.pending is not None and self.is_transient_subscriber:
            self.pending = Pending(rules.pending)
        self.may_drop = self._may_drop()
        self.takes_plainly = self._takes_plainly()
        self.enabled = True  # False: takes no new messages
        self.deleted = False
        self.holds = 0  # while there are any, nothing is handed out: messages are on their way back
        self.gate: Gate | None = None  # where publishers wait for it to become shorter
        self.last_used_ns = surroundings.clock.monotonic_ns()  # when the last consumer left
        self.sessions: dict[Receiver, None] = {}  # where deliveries of it may be out
        self.incoming: dict[Binding, None] = {}
        self._meter_anew()

    def _make_rota(self) -> Rota:
        """Nobody in it yet, of the kind that its rules ask for."""
        return Rota(self.rules, self.surroundings.effort, self.surroundings.waiting_count)

    def _make_store(self) -> Store:
        """An empty store of the kind that its rules ask for."""
        rules = self.rules
        return make_store(
            self,
            keeps=rules.non_destructive,
            last_value_key=rules.last_value_key,
            level_max=rules.max_priority or 0,
            counts_octets=self._counts_body_octets,
        )

    @property
    def _counts_body_octets(self) -> bool:
        """Whether its store counts the octets of all ready bodies (max-length-bytes)."""
        return self.rules.max_length_bytes is not None

    # -- what is in it ------------------------------------------------------------------------------------------------

    @property
    def meter(self) -> Meter | None:
        """What is in it in octets; None: nobody asks."""
        return self.ledger.meter

    @property
    def meter_terms(self) -> MeterTerms | None:
        """What its meter is to be like."""
        rules = self.rules
        if not self.is_limited:
            return None
        return self.surroundings.flow.terms_of(
            rules.flow, rules.size, keeps=self.keeps, evicts=self.pending is not None
        )

    def _may_drop(self) -> bool:
        """See `may_drop`: by a limit of its address, or of the broker as a whole."""
        size = self.rules.size
        return size.may_drop or (size.drops and self.is_limited and self.surroundings.flow.has_whole_limit)

    def _takes_plainly(self) -> bool:
        """Whether arrivals meet no rule."""
        return not (
            self.rules.concerns_arrival
            or self.may_drop
            or self.pending is not None
            or self.selection is not None
            or self.rota.groups is not None
        )

    def _meter_anew(self) -> bool:
        """Have the meter that its rules ask for. Returns whether it is another one, which has counted nothing yet."""
        flow, terms, before = self.surroundings.flow, self.meter_terms, self.ledger.meter
        if (None if before is None else before.terms) == terms:
            return False
        if terms is None:
            plain = Ledger(self.surroundings.vhost, self.name, self.surroundings.listeners)
            self.ledger.hand_over(plain)
            self.ledger = plain
        else:
            has_journal = self.storage.pager is not None
            meter = flow.make_meter(self, self.surroundings.vhost, terms, has_journal=has_journal)
            self.ledger = MeteredLedger(self.ledger, meter, self.stores)
        if before is not None:
            if self.ledger.meter is not None:
                flow.reconsider(self.ledger.meter)
            flow.forget(before)
        now = self.ledger.meter
        self.store.allow_paging(allowed=now is None or not now.forbids_paging)
        self.cap_memory()
        return True

    def cap_memory(self) -> None:
        """What its meter says that it may have in memory. Messages of groups stay there: no others are kept from it."""
        meter, cap = self.ledger.meter, None
        if meter is not None and meter.bounds and self.rota.groups is None:
            cap = MemoryCap(meter.bounds)
        self.store.limit_memory(cap, is_metered=meter is not None)

    def end_metering(self) -> None:
        """The queue is gone: whoever waited for room in it goes on."""
        if self.ledger.meter is not None:
            self.surroundings.flow.forget(self.ledger.meter)

    def put_behind(self, gate: Gate) -> None:
        """From now on tell the gate when the queue may have become shorter."""
        self.gate = gate

    # -- for its store (`stores.Owner`) -------------------------------------------------------------------------------

    @property
    def storage(self) -> Storage:
        """Where messages can be paged out."""
        return self.surroundings.storage

    def stores(self, envelope: Envelope) -> bool:
        """Whether messages of this kind survive a restart in this queue."""
        return self.durable and (envelope.facts.persistent or self.stores_all)

    @abstractmethod
    def message_for(self, id_: int, blob: bytes, envelope: Envelope) -> Message:
        """A message of this queue: of its group, where the queue heeds groups."""

    @abstractmethod
    def paged_out(self, count: int, octets: int, octets_paged: int, *, are_stored: bool) -> None:
        """So many messages left memory, or (below 0) came back."""

    @abstractmethod
    def loaded(self, messages: list[Message], attempts: int) -> None:
        """Messages that were paged out are in memory again; they were tried so often."""

    # -- what is there ------------------------------------------------------------------------------------------------

    @property
    def is_transient_subscriber(self) -> bool:
        """Whether it is gone with its consumers or its client, so that settings of topics hold for it.

        Source: queues page E.2.
        """
        return not self.durable and (self.exclusive or self.auto_delete) and self.is_limited and not self.keeps

    @property
    def vhost_name(self) -> str:
        """Of its virtual host."""
        return self.surroundings.vhost

    @property
    def arguments(self) -> FieldTable:
        """What it was declared with."""
        return self.terms.arguments

    @property
    def policy(self) -> EffectivePolicy:
        """That holds for it."""
        return self.terms.policy

    @property
    def consumers(self) -> list[Consumer]:
        """In the order in which they are asked; not to be changed."""
        return self.rota.consumers

    @property
    def counters(self) -> Counters:
        """What has happened to it; not to be changed."""
        return self.ledger.counters

    @property
    def unacked(self) -> int:
        """Deliveries of it that are out."""
        return self.ledger.unacked

    @property
    def has_ready(self) -> bool:
        """Whether any message is ready, wherever it is."""
        return len(self.store) > 0

    @property
    def ready_count(self) -> int:
        """How many messages are ready, wherever they are."""
        return len(self.store)

    def messages(self) -> Iterator[Message]:
        """All in memory that are ready or wait for their time."""
        return chain(self.store, self.scheduled)

    def unacked_messages(self) -> list[Message]:
        """Messages that are out; also those whose settling waits for a commit.

        O(those + what its sessions got since this was asked last).
        """
        if not self.ledger.unacked:
            return []
        return [message for session in self.sessions for message in session.unacked_of(self)]

    @property
    def is_open(self) -> bool:
        """Whether new messages are routed here."""
        return self.enabled and (not self.rules.purge_on_no_consumers or bool(self.rota.consumers))
