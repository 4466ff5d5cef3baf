"""The state of a broker and of a virtual host, with references to the parts that work on it.

A part receives the context, reads and writes its state, and calls the other parts by name. A queue has the
`HostContext` of its virtual host. It calls `Scheduler`, `Background`, `DeadLetters`, `Router` and `DeclaredQueues`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from ..settings import NO_POLICIES, NO_SETTINGS, Divert, LoggedTopic, Policies, SettingsRepository
from ..settings.slotted import slotted
from .clock import Clock
from .deadlines import Deadlines
from .events import Activity, Counters
from .options import DEFAULT_OPTIONS, NO_LIMITS, BrokerOptions, VirtualHostLimits
from .sites import Sites
from .stores.storage import Storage
from .turn import Turn

if TYPE_CHECKING:
    from .background import Background
    from .bindings import Bindings
    from .bulk_delete import BulkDelete
    from .clients.acknowledgement_timeout import AcknowledgementWatch
    from .clients.client import Client
    from .clients.session_counts import PastSessions
    from .clients.slow_consumers import SlowConsumers
    from .clients.transaction import Commits
    from .connections import Connections
    from .dead_letters import DeadLetters, UnroutableLetters
    from .declared_exchanges import DeclaredExchanges
    from .declared_queues import DeclaredQueues, ReplyQueues
    from .disconnects import Disconnects
    from .flow.control import FlowControl
    from .messages.duplicates import IdCache
    from .messages.event import Event, Listener
    from .messages.message import Envelope
    from .messages.sizes import Sizes
    from .publishing.auto_created import Reaper
    from .publishing.firehose import Firehose
    from .publishing.router import Router
    from .queues.queue import Queue
    from .reloading import Reloading
    from .scheduler import Scheduler
    from .scopes import Scopes
    from .users.access import Users
    from .virtual_host import Service
    from .virtual_hosts import VirtualHosts


@slotted
class BrokerContext:
    """The state of one broker. Settings, policies and options are replaced as a whole when they are reloaded.

    `chance`: returns a number in [0, 1), uniform in a real broker; 0.5: no random change. `unsent_max`: maximum unsent
    octets of a client before its deliveries pause. `services`: handlers of the exchanges that the broker serves in
    every virtual host, by name. `turn`: the present one. `interrupted`: number of connections whose input did not fit
    into a turn; they continue in the next round. `sizes`: body sizes of publishes, if they are counted. `touched`:
    clients with effects in their outboxes; `awaiting`: those to flush when more is written. `bulk_deletes`: large
    purges and deletions in progress. `on_unlogged`: called if a queue selects a topic that is not logged, though others
    are. `on_unknown_arguments`: called with an object's kind, name, virtual host and unknown arguments. `is_stopping`:
    the broker closes its connections because it stops. What consumers have returns then without a failed attempt, and
    nothing dies of its attempts (address-settings page 7.1).
    """

    clock: Clock
    users: "Users"
    chance: Callable[[], float] = lambda: 0.5
    settings: SettingsRepository = NO_SETTINGS
    options: BrokerOptions = DEFAULT_OPTIONS
    unsent_max: int = 1024 * 1024
    services: "dict[str, Service]" = field(default_factory=dict)
    policies: Policies = NO_POLICIES
    logged_topics: Sequence[LoggedTopic] = ()
    diverts: Sequence[Divert] = ()
    deadlines: Deadlines = field(default_factory=Deadlines)
    storage: Storage = field(default_factory=Storage)
    turn: Turn = field(default_factory=Turn)
    interrupted: int = 0
    counters: Counters = field(default_factory=Counters)
    activity: Activity = field(default_factory=Activity)
    listeners: "list[Listener]" = field(default_factory=list)
    next_id: int = 1
    sizes: "Sizes | None" = None
    touched: "dict[Client, None]" = field(default_factory=dict)
    awaiting: "dict[Client, None]" = field(default_factory=dict)
    bulk_deletes: "set[BulkDelete]" = field(default_factory=set)
    is_stopping: bool = False
    on_unlogged: "Callable[[Queue, str], object]" = lambda queue, topic: None
    on_unknown_arguments: Callable[[str, str, str, dict[str, str]], object] = lambda *of: None
    sites: Sites = field(init=False)

    # Parts. `Broker` sets each of them once, at construction.
    virtual_hosts: "VirtualHosts" = field(init=False)
    connections: "Connections" = field(init=False)
    scheduler: "Scheduler" = field(init=False)
    background: "Background" = field(init=False)
    commits: "Commits" = field(init=False)
    flow: "FlowControl" = field(init=False)
    dead_letters: "DeadLetters" = field(init=False)
    unroutable_letters: "UnroutableLetters" = field(init=False)
    cycling_letters: "UnroutableLetters" = field(init=False)
    reloading: "Reloading" = field(init=False)
    disconnects: "Disconnects" = field(init=False)
    reaper: "Reaper" = field(init=False)
    slow_consumers: "SlowConsumers" = field(init=False)
    acknowledgements: "AcknowledgementWatch" = field(init=False)
    past_sessions: "PastSessions" = field(init=False)

    def __post_init__(self) -> None:
        self.sites = Sites(self.deadlines, self.clock)

    @contextmanager
    def separate_turn(self, turn: Turn | None = None) -> Iterator[None]:
        """Do work in another turn, because it is not for the client of the present one.

        The present turn counts its effort, too. `turn`: the other turn; None: one that is never long.
        """
        outer = self.turn
        self.turn = turn = turn or Turn(outer.effort)
        try:
            yield
        finally:
            outer.effort = turn.effort
            self.turn = outer

    def sync_lsn(self) -> int:
        """The LSN after the records so far, for an answer that has to wait for them: this turn wrote some."""
        assert self.storage.durability is not None
        return self.storage.durability.sync_lsn()

    def emit(self, event: "Event") -> None:
        """Call each listener with an event. Callers check `listeners` before they make an event."""
        for listener in self.listeners:
            listener(event)


@slotted
class HostContext:
    """The state of one virtual host.

    `id_caches`: the duplicate ids of each address. `retained`: the messages that each address retains for new queues.
    `is_being_deleted`: its objects are being removed. `firehose`: set while it is traced. `scopes`: set by the first
    queue that not every site sees.
    """

    broker: BrokerContext
    name: str
    limits: VirtualHostLimits = NO_LIMITS
    id_caches: "dict[str, IdCache]" = field(default_factory=dict)
    retained: "dict[str, deque[tuple[Envelope, bytes]]]" = field(default_factory=dict)
    is_being_deleted: bool = False
    firehose: "Firehose | None" = None
    scopes: "Scopes | None" = None

    # Parts. `VirtualHost` sets each of them once, at construction.
    exchanges: "DeclaredExchanges" = field(init=False)
    queues: "DeclaredQueues" = field(init=False)
    reply_queues: "ReplyQueues" = field(init=False)
    bindings: "Bindings" = field(init=False)
    router: "Router" = field(init=False)
    past_sessions: "PastSessions" = field(init=False)

    def queue_named(self, name: str) -> "Queue | None":
        """The queue of this full name, also a reply queue."""
        return self.queues.get(name) or self.reply_queues.get(name)

    def site_of(self, full_name: str) -> str | None:
        """A site that sees the queue, for an operator, who has no site; None: all sites see it, or none does."""
        return None if self.scopes is None else self.scopes.site_of(full_name)

    def queue_behind(self, routing_key: str) -> "Queue | None":
        """The queue to which the default exchange routes a key for the present site, also a reply queue."""
        if self.scopes is None:
            return self.queues.get(routing_key) or self.reply_queues.get(routing_key)
        return self.scopes.seen(routing_key, self.broker.sites.now) or self.reply_queues.get(routing_key)
