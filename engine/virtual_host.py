"""A virtual host: its exchanges, queues and bindings, put together.

What it does is done by its parts: `Topology` (names), `Router` (routes), `Bindings`, `DeclaredExchanges` and
`DeclaredQueues`. Others call it on the virtual host. Source: behaviour page 2.1 to 2.6.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ..settings import LoggedTopic
from .bindings import Bindings
from .declared_exchanges import DeclaredExchanges
from .declared_queues import DeclaredQueues
from .declaring import DeclaringBroker
from .errors import QueueNotFound
from .events import EventKind
from .lending import Lender, surroundings_of
from .messages.duplicates import IdCache
from .messages.message import Envelope
from .object_events import VirtualHostEvent
from .options import NO_LIMITS
from .peers.client import Client
from .peers.host import PeerBroker
from .peers.session_counts import PastSessions
from .publishing.firehose import Firehose
from .publishing.route import Route
from .publishing.router import Router
from .publishing.topology import Topology
from .queues.queue import Queue
from .queues.reply_queue import REPLY_PREFIX, REPLY_TO, ReplyQueue
from .rules.diverts import Diverts
from .turns import Turns
from .users.access import User

if TYPE_CHECKING:
    from .publishing.dry_run import DryRun

#: What listens behind an exchange of the broker's own: it gets each request, with the virtual host to answer in.
Service = Callable[["VirtualHost", Envelope, bytes], None]


class HostingBroker(DeclaringBroker, PeerBroker, Lender, Protocol):
    """The broker of a virtual host. `services`: name -> what listens behind an exchange of that name."""

    services: dict[str, Service]
    logged_topics: Sequence[LoggedTopic]

    @property
    def turns(self) -> Turns:
        """Whose turn it is."""


class VirtualHost:
    """Made by `Broker.create_virtual_host`."""

    __slots__ = (
        "_declared_exchanges",
        "_declared_queues",
        "_router",
        "_surroundings",
        "arrival_rules",
        "bind_exchange",
        "bind_queue",
        "bindings",
        "broker",
        "create_queue",
        "declare_exchange",
        "declare_queue",
        "delete_exchange",
        "begin_delete",
        "begin_purge",
        "delete_queue",
        "exchange",
        "exchanges",
        "firehose",
        "forget_routes_to",
        "id_caches",
        "is_condemned",
        "is_delaying",
        "is_leased",
        "knows_point",
        "limits",
        "name",
        "past_sessions",
        "purge_queue",
        "queue",
        "queue_for_consumer",
        "queue_named",
        "queues",
        "queues_at",
        "reach",
        "remembered",
        "remove_queue",
        "reply_queues",
        "resolve_address",
        "restore_queue",
        "review_queue",
        "route_of",
        "routes_changed",
        "unbind_exchange",
        "unbind_queue",
    )

    def __init__(self, broker: HostingBroker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.limits = NO_LIMITS
        self.past_sessions = PastSessions()
        self.is_condemned = False  # deleted: nobody can find it any more
        self.firehose: Firehose | None = None  # while it is traced
        self.id_caches: dict[str, IdCache] = {}  # by address
        self.remembered: dict[str, deque[tuple[Envelope, bytes]]] = {}  # for queues to come, by address

        topology = Topology(name)
        router = self._router = Router(topology, broker, self, self._make_log)
        bindings = self.bindings = Bindings(self, topology, router)
        exchanges = self._declared_exchanges = DeclaredExchanges(self, topology, bindings)
        self._surroundings = surroundings_of(broker, self, topology, router, self._remove_queue)
        queues = self._declared_queues = DeclaredQueues(self, self._surroundings, topology, router, bindings)

        self.exchanges = topology.exchanges
        self.queues = topology.queues
        self.reply_queues = topology.reply_queues
        self.exchange = topology.exchange
        self.queue = topology.queue
        self.queue_named = topology.queue_named
        self.is_delaying = topology.is_delaying
        self.resolve_address = topology.resolve_address

        self.route_of = router.route_of
        self.arrival_rules = router.arrival_rules
        self.reach = router.reach
        self.is_leased = router.captures.is_leased
        self.queues_at = router.queues_at
        self.routes_changed = router.routes_changed
        self.forget_routes_to = router.forget_routes_to

        self.bind_queue = bindings.bind_queue
        self.unbind_queue = bindings.unbind_queue
        self.bind_exchange = bindings.bind_exchange
        self.unbind_exchange = bindings.unbind_exchange

        self.declare_exchange = exchanges.declare
        self.delete_exchange = exchanges.delete

        self.declare_queue = queues.declare
        self.create_queue = queues.create
        self.restore_queue = queues.restore
        self.review_queue = queues.review
        self.knows_point = queues.knows_point
        self.queue_for_consumer = queues.for_consumer
        self.purge_queue = queues.purge
        self.delete_queue = queues.delete
        self.begin_purge = queues.begin_purge
        self.begin_delete = queues.begin_delete
        self.remove_queue = queues.remove

        exchanges.add_predeclared({name: partial(service, self) for name, service in broker.services.items()})
        if broker.logged_topics:
            self.set_logged_topics(broker.logged_topics)

    def set_diverts(self, diverts: Diverts) -> None:
        """The operator's diverts are these from now on."""
        self._router.diverts = diverts
        self.routes_changed()

    def _make_log(self) -> Queue:
        from .queues.log_sink import LogSink  # few have logged topics

        return LogSink(self._surroundings)

    @property
    def log(self) -> Queue | None:
        """Where messages of logged topics go, beside the queues that they go to; None: no topics are listed."""
        return self._router.captures.log

    def set_logged_topics(self, topics: Sequence[LoggedTopic]) -> None:
        """Of these, which the operator listed, the ones of this virtual host are logged from now on."""
        self._router.captures.set_logged([topic for topic in topics if topic.vhost == self.name])
        self.routes_changed()

    def policies_changed(self) -> None:
        """Other policies hold from now on; the broker sees to the queues. O(exchanges, times policies; routes)."""
        self._declared_exchanges.policies_changed()
        self.routes_changed()

    def route(self, exchange_name: str, routing_key: str, user: User) -> Route:
        """The way for messages published by a user: `Router.route`."""
        return self._router.route(exchange_name, routing_key, user)

    def dry_run(self, envelope: Envelope, blob: bytes, user: User) -> "DryRun":
        """What would become of a message if this user published it now: to be asked for its steps.

        Raises: PermissionRefused, ExchangeNotFound, InternalExchangeRefused, TopicRefused.
        """
        from .publishing.dry_run import DryRun  # few ask

        return DryRun(self._router, self, envelope, blob, user)

    # -- direct replies -----------------------------------------------------------------------------------------------

    def add_reply_queue(self, address: str, owner: Client) -> ReplyQueue:
        """Where direct replies to `address` go from now on, until the queue loses its consumer."""
        queue = ReplyQueue(self._surroundings, address, owner, self._remove_reply_queue)
        self.reply_queues[address] = queue
        return queue

    def _remove_reply_queue(self, queue: ReplyQueue) -> None:
        """Its consumer is gone; replies on their way are, too."""
        queue.condemn()
        del self.reply_queues[queue.name]
        queue.end()
        self.broker.counters.add(queue.counters)

    def has_reply_queue(self, name: str) -> bool:
        """Whether somebody waits for direct replies there. The name that stands for one's own is always right.

        Raises: QueueNotFound for an address where nobody does.
        """
        if name in self.reply_queues or name == REPLY_TO:
            return True
        if name.startswith(REPLY_PREFIX):
            raise QueueNotFound(name=name, vhost=self.name)
        return False

    def _remove_queue(self, queue: Queue) -> int:
        return self._declared_queues.remove(queue)

    # -- the end ------------------------------------------------------------------------------------------------------

    def take_down(self, count: int) -> bool:
        """Delete up to `count` queues of a virtual host that goes; True when nothing is left, exchanges neither."""
        if not self._declared_queues.remove_some(count):
            return False
        self._declared_exchanges.remove_all()
        if self.broker.listeners:
            self.broker.announce(VirtualHostEvent(EventKind.UNDECLARED, self.name, self.name))
        return True
