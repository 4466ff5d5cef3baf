"""The routes of one virtual host. Frontends keep a route until a change makes it stale.

Source: behaviour page 2.3, 2.10; address-settings page 1.3.
"""

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...settings import Divert, LoggedTopic, ResolvedSettings
from ...settings.rows.address_settings import NOTHING_SET
from ..context import HostContext
from ..errors import InternalExchangeRefused
from ..exchanges.exchange import Destination, Exchange, TopicExchange
from ..exchanges.routed import Routed
from ..queues.kinds import is_reply_address
from ..queues.queue import Queue
from ..queues.reconfigure import follow_topic
from ..scopes import Scopes
from ..users.access import User
from ..users.permissions import CONFIGURE, EXCHANGE, QUEUE, WRITE
from .arrival_rules import ArrivalRules, Diverts, FilteredOut, arrival_rules, rules_for_unmarked
from .captures import Captures
from .route import Route
from .service import PersonalService, Sender, ServiceExchange

if TYPE_CHECKING:
    from ..clients.client import Client
    from ..sites import View

#: Units of effort for each exchange on the route; destinations or keys looked up per further unit.
EXCHANGE_COST, FOUND_PER_EFFORT = 2, 8


class Router:
    """Finds the queues of an exchange and a routing key."""

    def __init__(self, context: HostContext) -> None:
        self.context = context
        self._broker = context.broker
        self._sharing: dict[str, dict[Queue, None]] = {}  # queues with an address other than their name, by address
        self._filtering: set[Queue] = set()  # queues with a filter
        self.diverts = Diverts()
        self.captures = Captures(context)

    # -- routes -------------------------------------------------------------------------------------------------------

    def route(self, exchange_name: str, routing_key: str, user: User, client: "Client | None" = None) -> Route:
        """The route for a user's messages. Only administrators may publish to services other than `PersonalService`.

        `client`: the publishing connection, which some services need. The permissions that are checked here hold until
        the route is stale.
        Raises: PermissionRefused, ExchangeNotFound, InternalExchangeRefused, TopicRefused.
        """
        context = self.context
        vhost = context.name
        exchange = context.exchanges.get(exchange_name)
        if not (type(exchange) is ServiceExchange and user.is_administrator):
            exchange = self.exchange_for(exchange_name, routing_key, user)
            if type(exchange) is PersonalService:
                route = Route(exchange.for_sender(Sender(user, client)), routing_key, [])
                route.is_stale = True  # the next request may have another sender
                return route
        # Not checked for known queues: each name that is not cached costs a search of the permissions.
        may_create = (
            bool(exchange_name) or routing_key in context.queues or user.may(CONFIGURE, QUEUE, routing_key, vhost)
        )
        if context.scopes is None or client is None or client.site is None:
            return self.route_of(exchange, routing_key, may_create=may_create)
        with self._broker.sites.at(client.site):
            return self.route_of(exchange, routing_key, may_create=may_create)

    def exchange_for(self, name: str, routing_key: str, user: User) -> Exchange:
        """The exchange of a publish, if the user may publish to it with this key. Raises: as `route`."""
        vhost = self.context.name
        if user.permissions is not None:
            user.require(WRITE, EXCHANGE, name, vhost)
        exchange = self.context.exchanges.named(name)
        if exchange.internal:
            raise InternalExchangeRefused(name=name, vhost=vhost)
        if exchange.type == TopicExchange.type:
            user.require_topic(WRITE, name, routing_key, vhost)
        return exchange

    def route_of(self, exchange: Exchange, routing_key: str, *, may_create: bool = True) -> Route:
        """The route without a check of permissions. Publishers share it; with scoped queues, publishers of one site.

        It may create a queue (address-settings page 3.5). If that is refused, the route is stale, so that the next
        publish tries again.
        """
        is_refused = (
            not exchange.name
            and may_create
            and self.context.queue_behind(routing_key) is None
            and self.auto_creates(routing_key)
            and not self.context.queues.create_missing(routing_key)
        )
        scopes = self.context.scopes
        if scopes is None:
            found = exchange.routes.find(routing_key)
            route = found if isinstance(found, Route) else self._look_up(exchange, routing_key)
        else:
            place = (exchange, routing_key, self._broker.sites.now)
            known = scopes.routes.get(place)
            if known is None or known.is_stale:
                known = scopes.routes[place] = self._look_up(exchange, routing_key)
            route = known
        if is_refused:
            route.is_stale = True
        return route

    def auto_creates(self, name: str) -> bool:
        """Whether a missing queue of this name is created by a publish (address-settings page 3.5)."""
        return self._broker.settings.resolve(name, self.context.name).auto_create_queues

    def _look_up(self, exchange: Exchange, routing_key: str) -> Route:
        queues: list[Queue] | None = None
        visited: Iterable[Exchange] = (exchange,)
        takes_turns = not exchange.name and len(self._sharing.get(routing_key, ())) > 1
        if takes_turns or is_reply_address(exchange, routing_key):
            pass  # the queues differ by message
        elif not (exchange.name or self._sharing or self.captures):  # as for most reply queues; saves them 2 us
            named = self.context.queue_behind(routing_key)
            queues = [named] if named is not None and named.is_open else []
            if named in self._filtering:
                queues = None
        else:
            message = Routed((routing_key,))
            seen = {exchange: None}
            if exchange.name:
                queues, visited = _walk(seen, message, self.context, for_all=True), seen
            else:
                queues = _reached(exchange, message, self.context)
            self._broker.turn.effort += message.cost
            if queues is not None and self.captures:
                queues = self._captured(queues, exchange, message, for_all=True)
            if queues is not None:
                queues = self._open_queues(queues, exchange, message)
                if self._broker.settings.concerns_topics:
                    self._follow_topic(queues, exchange, routing_key)
                if not self._filtering.isdisjoint(queues):
                    queues = None
        rules = rules_for_unmarked(*self._address(exchange.name, routing_key))
        scopes, sites = self.context.scopes, self._broker.sites
        # Also for queues that all sites see: CC may name other queues, which are found for the publisher's site.
        if scopes is not None and (
            queues is None or sites.now != sites.own or any(queue.kind.captures for queue in queues)
        ):
            rules = replace(rules or self.arrival_rules(exchange.name, routing_key), site=sites.now)
        route = Route(exchange, routing_key, queues, rules)
        exchange.routes.register(
            route, [other.routes for other in visited if other is not exchange], is_shared=scopes is None
        )
        return route

    def arrival_rules(self, exchange_name: str, routing_key: str) -> ArrivalRules:
        return arrival_rules(*self._address(exchange_name, routing_key))

    def _address(self, exchange_name: str, routing_key: str) -> tuple[str, ResolvedSettings, tuple[Divert, ...]]:
        """The address of a message, its settings, and the diverts there."""
        broker = self._broker
        address = broker.options.address_of(exchange_name, routing_key)
        return address, broker.settings.resolve(address, self.context.name), self.diverts.of(address)

    # -- queues -------------------------------------------------------------------------------------------------------

    def reach(self, exchange: Exchange, message: Routed, *, is_dry: bool = False) -> list[Queue]:
        """The queues that take a message: those of its route that are open and do not filter it out.

        The cost of the message is added to `Turn.effort`. `is_dry`: they do not get the message now, so queues of
        subscribers do not follow its topic, and topics that are not logged are not reported; `give_turns_back` does
        the rest.
        """
        reached = _reached(exchange, message, self.context)
        if self.captures:
            reached = self._captured(reached, exchange, message, for_all=False, is_dry=is_dry) or []
        self._broker.turn.effort += message.cost
        message.cost = 0
        queues = self._open_queues(reached, exchange, message)
        if not is_dry:
            self.follow_topics(queues, exchange, message.keys)
        return queues

    def follow_topics(self, queues: Iterable[Queue], exchange: Exchange, keys: Collection[str]) -> None:
        """Apply the settings of the topics of a message to the queues of transient subscribers that get it."""
        if self._broker.settings.concerns_topics:
            for key in keys:
                self._follow_topic(queues, exchange, key)

    def would_reach(self, exchange: Exchange, routing_key: str) -> list[Queue]:
        """The queues that a message with this key and no headers would reach. None of them loses its turn."""
        queues = self.reach(exchange, Routed((routing_key,)), is_dry=True)
        self.give_turns_back(exchange, (routing_key,), queues)
        return queues

    def _captured(
        self, reached: list[Queue], exchange: Exchange, message: Routed, *, for_all: bool, is_dry: bool = False
    ) -> list[Queue] | None:
        """Replace the capturing queues by those that capture the message, and add the log if it is logged.

        `for_all`: the result is for all messages with these keys; None: it differs by message. `is_dry`: see `reach`.
        """
        captures = self.captures
        topics = list(dict.fromkeys(captures.topics_of(exchange.name, message.keys) + captures.targets_among(reached)))
        found = captures.capturing(topics, is_dry=is_dry)
        if for_all and any(filter_ is not None for filter_ in found.values()):
            return None
        message.cost += len(found)
        queues = [queue for queue in reached if not queue.kind.captures]
        if found:
            queues += captures.matching(found, message.as_message())
        if captures.log is not None and captures.is_logged(topics):
            queues.append(captures.log)
        return queues

    def _follow_topic(self, queues: Iterable[Queue], exchange: Exchange, routing_key: str) -> None:
        """Apply the settings of a topic to the queues of transient subscribers that get its messages.

        The topic is the routing key at a topic exchange. If it has no settings, and at other exchanges, the topic is
        the exchange's name. Source: queues page E.2.
        """
        settings, vhost = self._broker.settings, self.context.name
        for name in (routing_key, exchange.name) if exchange.is_topic else (exchange.name,):
            layer = settings.topic_layer(name, vhost) if name else NOTHING_SET
            if layer:
                for queue in queues:
                    if queue.is_transient_subscriber:
                        follow_topic(queue, name, layer)
                return

    def queues_at(self, address: str) -> list[Queue]:
        own = self.context.queues.get(address)
        found = [own] if own is not None and own.address == address else []
        return found + list(self._sharing.get(address, ()))

    def split_by_address(self, address: str, filtered_out: Container[Queue]) -> tuple[list[Queue], Queue | None]:
        """The multicast queues of an address whose names differ from it, and its next anycast queue.

        None: there is none, or a queue has the address as its name.
        """
        sharing = self._sharing.get(address, {})
        exchange = self.context.exchanges.get(address)
        bound = {} if exchange is None else exchange.destinations
        multicast = [queue for queue in sharing if queue in bound]
        anycast = (queue for queue in sharing if queue not in bound and queue.is_open and queue not in filtered_out)
        return multicast, None if address in self.context.queues else next(anycast, None)

    def _open_queues(self, queues: list[Queue], exchange: Exchange, message: Routed) -> list[Queue]:
        """The open queues whose filters take the message. At the default exchange also those that share an address."""
        filtered_out = self.filtered_out(message) if self._filtering else ()
        if not exchange.name and self._sharing:
            for key in message.keys:
                if key in self._sharing:
                    queues += self._reach_by_address(key, filtered_out)
        open_queues = [queue for queue in queues if queue.is_open]
        return [queue for queue in open_queues if queue not in filtered_out] if filtered_out else open_queues

    def filtered_out(self, message: Routed) -> Container[Queue]:
        """The queues whose filters do not take a message; none if only its keys are known."""
        whole = message.as_message() if self._filtering else None
        return () if whole is None else FilteredOut(whole, message)

    def _reach_by_address(self, address: str, filtered_out: Container[Queue]) -> list[Queue]:
        """The queues of an address whose names differ from it: all multicast ones, and one anycast queue in turn.

        Multicast queues are bound to the exchange with the name of the address. A queue with this name gets the message
        instead of an anycast queue. Source: address-settings page 1.3.
        """
        sharing = self._sharing[address]
        self._broker.turn.effort += len(sharing) // FOUND_PER_EFFORT
        multicast, anycast = self.split_by_address(address, filtered_out)
        if anycast is None:
            return multicast
        del sharing[anycast]
        sharing[anycast] = None  # it moves to the end
        return [*multicast, anycast]

    def give_turns_back(self, exchange: Exchange, keys: Collection[str], queues: Iterable[Queue]) -> None:
        """Give queues that share an address their turn back, because they do not get the message now.

        `exchange`, `keys`: those by which the message reached them. Only an address at the default exchange has turns.
        """
        for queue in queues if not exchange.name else ():
            sharing = self._sharing.get(queue.address, {})
            if queue in sharing and queue.address in keys:
                self._sharing[queue.address] = {queue: None, **sharing}

    # -- names and addresses ------------------------------------------------------------------------------------------

    def resolve_address(self, address: str, queue_name: str) -> tuple[str, str]:
        """Exchange and routing key that a dead-letter or expiry address stands for (address-settings page 1.3).

        Forms: `exchange:NAME/KEY`, `exchange:NAME`, `queue:NAME`. Another address names an exchange, or else a queue.
        """
        if address.startswith("exchange:"):
            name, slash, key = address.removeprefix("exchange:").partition("/")
            return name, key if slash else queue_name
        if address.startswith("queue:"):
            return "", address.removeprefix("queue:")
        return (address, queue_name) if address in self.context.exchanges else ("", address)

    def queues_behind(self, dead_letter_address: str, address: str) -> list[Queue]:
        """The queues that dead letters of a queue at `address` would reach."""
        exchange_name, key = self.resolve_address(dead_letter_address, address)
        exchange = self.context.exchanges.get(exchange_name)
        return [] if exchange is None else self.would_reach(exchange, key)

    # -- changes ------------------------------------------------------------------------------------------------------

    def add_queue(self, queue: Queue) -> None:
        """Add a new queue, reached by its name and by its address."""
        self._note_filter(queue)
        if (view := queue.kind.view(queue)) is not None:
            self.note_view(queue, view)
        if queue.address != queue.name:
            self._sharing.setdefault(queue.address, {})[queue] = None
        if queue.kind.captures:
            self.captures.of(queue.kind).add(queue, self._broker.next_id)
            self.routes_changed()
        self._forget_named(queue)

    def note_view(self, queue: Queue, view: "View") -> None:
        """Note that only some sites see a queue. Makes all routes stale."""
        scopes = self.context.scopes = self.context.scopes or Scopes(self.context)
        scopes.add(queue, view)
        self.routes_changed()

    def remove_queue(self, queue: Queue) -> None:
        """Remove a queue from the default exchange; the caller removes its bindings."""
        if self.context.scopes is not None:
            self.context.scopes.remove(queue)
        self._filtering.discard(queue)
        if queue.kind.captures:
            self.captures.of(queue.kind).remove(queue)
            self.routes_changed()
        if queue.address != queue.name:
            sharing = self._sharing[queue.address]
            del sharing[queue]
            if not sharing:
                del self._sharing[queue.address]
        self._forget_named(queue)

    def recapture(self, queue: Queue) -> None:
        """Apply another selection of messages by a capturing queue."""
        self.captures.of(queue.kind).changed(queue)
        self.routes_changed()

    def log_topics(self, topics: Sequence[LoggedTopic]) -> None:
        """Log those of the listed topics that are in this virtual host."""
        self.captures.set_logged([topic for topic in topics if topic.vhost == self.context.name])
        self.routes_changed()

    def replace_diverts(self, diverts: Iterable[Divert]) -> None:
        """Replace the diverts by those of the listed ones that are in this virtual host."""
        self.diverts = Diverts(one for one in diverts if one.vhost == self.context.name)
        self.routes_changed()

    def routes_changed(self) -> None:
        """Make all routes stale. O(exchanges + routes)."""
        for exchange in self.context.exchanges.values():
            exchange.routes.forget_all()

    def forget_routes_to(self, queue: Queue) -> None:
        """Make routes to a queue stale, because it takes other messages now. O(its bindings)."""
        self._note_filter(queue)
        self._forget_named(queue)
        for binding in queue.incoming:
            binding.source.forget_routes(binding)
        self._recheck_waiters(queue)

    def _note_filter(self, queue: Queue) -> None:
        if queue.rules.filter is None:
            self._filtering.discard(queue)
        else:
            self._filtering.add(queue)

    def bindings_changed(self, destination: Destination) -> None:
        """Make routes to a shared address stale, because bindings decide which of its queues are multicast. Waiting
        publishes may have other queues now.
        """
        if isinstance(destination, Queue) and destination.address != destination.name:
            self.context.exchanges[""].routes.forget(destination.address)
        self._recheck_waiters(destination)

    def _recheck_waiters(self, destination: Destination) -> None:
        flow = self._broker.flow
        if not isinstance(destination, Queue):
            flow.recheck_all()
        elif destination.meter is not None:
            flow.recheck_waiters_for(destination.meter)

    def _forget_named(self, queue: Queue) -> None:
        """Make the default exchange's routes to a queue stale."""
        routes = self.context.exchanges[""].routes
        routes.forget(queue.name)
        if queue.address != queue.name:
            routes.forget(queue.address)  # as in `bindings_changed`


def _reached(start: Exchange, message: Routed, context: HostContext) -> list[Queue]:
    """All queues that a message reaches by names and bindings, each once. Every exchange is visited at most once.

    An exchange without a matching binding gives the message to its alternate exchange. As in RabbitMQ, a binding counts
    even if it leads to no queue. A binding to a queue that the publisher's site does not see does not count.
    """
    if not start.name:
        message.cost += len(message.keys) // FOUND_PER_EFFORT
        return [queue for key in dict.fromkeys(message.keys) if (queue := context.queue_behind(key)) is not None]
    return _walk({start: None}, message, context, for_all=False) or []


def is_visible(context: HostContext, destination: Destination) -> bool:
    """Whether publishers at the present site reach a destination by bindings."""
    if context.scopes is None or not isinstance(destination, Queue) or not destination.kind.captures:
        return True
    return context.scopes.has(destination, context.broker.sites.now)


def _walk(seen: dict[Exchange, None], message: Routed, context: HostContext, *, for_all: bool) -> list[Queue] | None:
    """Walk from the exchange in `seen`. Adds the visited ones to `seen`: the result holds until one of them changes.

    `for_all`: as for `Router._captured`.
    """
    queues: dict[Queue, None] = {}
    stack = list(seen)
    while stack:
        exchange = stack.pop()
        if for_all and exchange.decides_each:
            return None
        # Exchanges do not know what a destination is; only queues and exchanges are ever bound.
        found: Sequence[Queue | Exchange] = exchange.match(message)  # type: ignore[assignment]
        message.cost += EXCHANGE_COST + (len(found) + len(message.keys)) // FOUND_PER_EFFORT
        if context.scopes is not None:
            found = [one for one in found if is_visible(context, one)]
        # The alternate exchange may not exist yet.
        if not found and exchange.alternate is not None and exchange.alternate in context.exchanges:
            found = (context.exchanges[exchange.alternate],)
        for destination in found:
            if isinstance(destination, Queue):
                queues[destination] = None
            elif destination not in seen:
                seen[destination] = None
                stack.append(destination)
    return list(queues)
