"""A dry run of a publish: the rules of its address, its route, and the outcome at each queue.

It publishes, declares and counts nothing. Source: management page 16; address-settings page 1.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...settings import Divert
from ..clock import MS
from ..context import HostContext
from ..exchanges.delayed_exchange import DelayedExchange
from ..exchanges.exchange import Binding, DirectExchange, Exchange, HeadersExchange, TopicExchange
from ..exchanges.hash_exchange import HashExchange
from ..exchanges.headers import HeadersPattern
from ..exchanges.random_exchange import RandomExchange
from ..exchanges.routed import Routed
from ..messages.message import Envelope
from ..queues.bounds import outcome_of
from ..queues.classic import time_to_live_ms
from ..queues.queue import Queue
from ..rules.expiry_policy import NO_EXPIRY_POLICY
from ..users.access import User
from ..users.permissions import CONFIGURE, QUEUE
from .arrival import due_ns_of, duplicate_id_of
from .arrival_rules import matching_diverts
from .marked import copies_of
from .route import Route
from .router import Router, is_visible
from .service import ServiceExchange


class DryRun:
    """A dry run at the present site (`Sites.now`). `arrival`: the effect of the address. `route`: complete after all
    `steps`.

    `creates`: a queue named by the routing key would be created first. `is_service`: the broker serves the exchange.
    `rescued_by`: the dead-letter address that gets the message if it is unroutable; empty: none.
    """

    def __init__(self, host: HostContext, envelope: Envelope, content: bytes, user: User) -> None:
        """Raises: PermissionRefused, ExchangeNotFound, InternalExchangeRefused, TopicRefused, InvalidCopies."""
        self._router = router = host.router
        self._site = host.broker.sites.now
        key = envelope.routing_key
        self._exchange = exchange = router.exchange_for(envelope.exchange, key, user)
        envelope.copies = copies_of(envelope.headers(content)) if envelope.summary.is_marked else ()
        self._content = content
        self.arrival = dry_arrival(host, exchange, envelope, content)
        self.keys = envelope.keys
        self.route = DryRoute()
        self.is_service = isinstance(exchange, ServiceExchange)
        self.creates = (
            not exchange.name
            and host.queue_behind(key) is None
            and router.auto_creates(key)
            and user.may(CONFIGURE, QUEUE, key, host.name)
        )
        settings = host.broker.settings.resolve(self.arrival.address, host.name)
        self.rescued_by = settings.dead_letter_address if settings.send_to_dla_on_no_route else ""

    def steps(self) -> Iterator[None]:
        """Find the route, in short steps."""
        message = Routed(self.keys, self.arrival.envelope, self._content)
        steps, sites = dry_route(self._router, self._exchange, message, self.route), self._router.context.broker.sites
        is_done = False
        while not is_done:
            with sites.at(self._site):
                is_done = next(steps, self) is self
            yield

    def outcome_at(self, queue: Queue) -> tuple[str, int | None]:
        """The outcome at a queue (`bounds.outcome_of`), and the time to live there in ms (None: unlimited)."""
        envelope = self.arrival.envelope
        return outcome_of(queue, envelope, self._content), time_to_live_ms(queue.rules, envelope)


@dataclass(slots=True, frozen=True)
class DryArrival:
    """The effect of an address. `envelope`: that of the message in its queues. `delay_ms`: None: no delay.

    `is_duplicate`: the message would be dropped. `diverts`: those that would forward it.
    """

    address: str
    envelope: Envelope
    delay_ms: int | None
    is_duplicate: bool
    diverts: tuple[Divert, ...]

    @property
    def is_taken(self) -> bool:
        """Whether an exclusive divert takes the message, so that it reaches no queue of its exchange."""
        return any(divert.is_exclusive for divert in self.diverts)


def dry_arrival(host: HostContext, exchange: Exchange, envelope: Envelope, content: bytes) -> DryArrival:
    """The effect of an address on a message before routing, without applying it."""
    rules = host.router.arrival_rules(exchange.name, envelope.routing_key)
    headers = envelope.headers(content) if envelope.summary.is_marked else {}
    known = host.id_caches.get(rules.address)
    id_ = duplicate_id_of(host, rules, headers)
    is_duplicate = id_ is not None and known is not None and id_ in known
    due_ns = due_ns_of(host, Route(exchange, envelope.routing_key, None), headers, {}) if headers else None
    delay_ms = None if due_ns is None else (due_ns - host.broker.clock.monotonic_ns()) // MS
    if rules.expiry is not NO_EXPIRY_POLICY and not envelope.expiry_is_settled:
        envelope = envelope.with_expiration(rules.expiry.applied_to(envelope.expiration_ms))
    diverts = tuple(matching_diverts(rules.diverts, envelope, content))
    return DryArrival(rules.address, envelope, delay_ms, is_duplicate, diverts)


#: Non-matching bindings that are reported per exchange; further ones are only counted.
MISSED_MAX = 50
#: Bindings tested in one step.
BINDINGS_SLICE = 500
#: Ways to reach a queue without a binding.
BY_NAME, BY_ADDRESS, IN_TURN, BY_TOPIC = "by its name", "by its address", "by its address, in turn", "by its topic"


@dataclass(slots=True)
class Hop:
    """One exchange on the route. `taken`: the bindings that lead on. `missed`: the first of the others, with reasons;
    `missed_count`: the number of all others.

    `alternate`: the alternate exchange, if nothing matches. `is_random`: the message goes to one of `taken`, at random.
    """

    exchange: Exchange
    taken: list[Binding] = field(default_factory=list)
    missed: list[tuple[Binding, str]] = field(default_factory=list)
    missed_count: int = 0
    alternate: str | None = None
    is_random: bool = False


@dataclass(slots=True)
class DryRoute:
    """The route of one message. `queues`: those that get the message, each with the reason (empty: by bindings).
    `filtered_out`: queues on the route whose filters do not take it.
    """

    hops: list[Hop] = field(default_factory=list)
    queues: dict[Queue, str] = field(default_factory=dict)
    filtered_out: list[Queue] = field(default_factory=list)


def dry_route(router: Router, start: Exchange, message: Routed, found: DryRoute) -> Iterator[None]:
    """Find the route in steps, and write it into `found`."""
    context, filtered_out = router.context, router.filtered_out(message)
    if not start.name:
        found.hops.append(Hop(start))
        for key in dict.fromkeys(message.keys):
            named = context.queue_behind(key)
            if named is not None:
                found.queues[named] = BY_NAME
            multicast, anycast = router.split_by_address(key, filtered_out)
            for queue in multicast:
                found.queues[queue] = BY_ADDRESS
            if anycast is not None:
                found.queues[anycast] = IN_TURN
    else:
        yield from _walk(router, start, message, found)
    yield
    found.filtered_out = [queue for queue in found.queues if queue in filtered_out]
    for queue in found.filtered_out:
        del found.queues[queue]
    _capture(router, start, message, found)


def _walk(router: Router, start: Exchange, message: Routed, found: DryRoute) -> Iterator[None]:
    exchanges, seen, stack = router.context.exchanges, {start}, [start]
    while stack:
        exchange = stack.pop()
        hop = Hop(exchange)
        found.hops.append(hop)
        yield from _sort_bindings(router.context, exchange, message, hop)
        onward: list[object] = [binding.destination for binding in hop.taken]
        if not onward and exchange.alternate is not None and exchange.alternate in exchanges:
            hop.alternate = exchange.alternate
            onward = [exchanges[exchange.alternate]]
        for destination in onward:
            if isinstance(destination, Queue):
                found.queues.setdefault(destination, "")
            elif isinstance(destination, Exchange) and destination not in seen:
                seen.add(destination)
                stack.append(destination)


def _sort_bindings(context: HostContext, exchange: Exchange, message: Routed, hop: Hop) -> Iterator[None]:
    """Sort the bindings of one exchange into `hop.taken` and `hop.missed`, in steps. O(bindings)."""
    kind = exchange.routes_as if isinstance(exchange, DelayedExchange) else type(exchange)
    hop.is_random = kind is RandomExchange
    reached = set() if hop.is_random else set(exchange.match(message))
    for count, binding in enumerate(list(exchange.bindings.values()), 1):
        is_reached = hop.is_random or (binding.destination in reached and _fits(kind, binding, message))
        if is_reached and is_visible(context, binding.destination):
            hop.taken.append(binding)
        else:
            hop.missed_count += 1
            if len(hop.missed) < MISSED_MAX:
                why = "the node of the publisher does not have the queue"
                hop.missed.append((binding, why if is_reached else _why_not(kind, binding, message)))
        if count % BINDINGS_SLICE == 0:
            yield


def _fits(kind: type[Exchange], binding: Binding, message: Routed) -> bool:
    """Whether a binding alone would lead the message to its destination."""
    if kind is HashExchange:
        return True
    alone = kind("")
    alone.index(binding)
    return bool(alone.match(message))


def _why_not(kind: type[Exchange], binding: Binding, message: Routed) -> str:
    keys = " or ".join(repr(key) for key in message.keys)
    if kind is DirectExchange:
        return f"the routing key is {keys}, not {binding.routing_key!r}"
    if kind is TopicExchange:
        return f"the pattern {binding.routing_key!r} does not match {keys}"
    if kind is HashExchange:
        return "the message's hash leads to another queue"
    if kind is HeadersExchange:
        return _why_no_headers(binding, message)
    return "it does not match"


def _why_no_headers(binding: Binding, message: Routed) -> str:
    pattern = HeadersPattern(binding.arguments)
    if pattern.wants_any:
        names = ", ".join(repr(name) for name, _ in pattern.wanted)
        return f"none of these headers matches: {names}" if names else "it has no conditions"
    for name, wanted in pattern.wanted:
        field_ = message.headers.get(name)
        if field_ is None:
            return f"there is no header {name!r}"
        if wanted is not None and message.comparables[name] != wanted:
            return f"the header {name!r} has another value"
    return "it does not match"


def _capture(router: Router, start: Exchange, message: Routed, found: DryRoute) -> None:
    """Replace the capturing queues on the route by those that capture the message, as `Router._captured` does."""
    captures = router.captures
    if not captures:
        return
    topics = dict.fromkeys(captures.topics_of(start.name, message.keys) + captures.targets_among(list(found.queues)))
    selecting = captures.capturing(list(topics), is_dry=True)
    for queue in [queue for queue in found.queues if queue.kind.captures]:
        del found.queues[queue]
    matching = captures.matching(selecting, message.as_message())
    for queue in selecting:
        if queue in matching:
            found.queues[queue] = BY_TOPIC
        else:
            found.filtered_out.append(queue)
