"""Exchanges and bindings, which map a routing key to destinations.

An exchange returns its direct destinations only; the virtual host's router follows exchange-to-exchange bindings.
Look-ups are not on the hot path: their results are cached as routes, which the exchange makes stale when its bindings
change.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from ...settings import NO_POLICY, EffectivePolicy
from ..errors import ConditionsMaxReached, TopicStatesMaxReached
from ..messages.field_table import FieldTable, text_of
from ..options import BrokerOptions
from .counted import Held, values_of, with_one, without_one
from .headers import HeadersPattern, HeadersPatterns, check_headers_match
from .route_registry import RouteRegistry, TopicRouteRegistry
from .routed import Routed
from .topic import TopicPatterns, has_wildcards

#: Conditions of headers bindings compared per unit of `Routed.cost`.
CONDITIONS_PER_COST = 4
#: Shared by all bindings without arguments.
NO_ARGUMENTS: FieldTable = {}


class Destination(Protocol):
    """The destination of a binding: a queue or an exchange. Hashable."""

    name: str
    durable: bool
    incoming: "dict[Binding, None]"


class Binding:
    """A rule that routes messages from `source` to `destination` by routing key and arguments."""

    __slots__ = ("arguments", "destination", "identity", "routing_key", "source")

    def __init__(self, source: "Exchange", destination: Destination, routing_key: str, arguments: FieldTable) -> None:
        self.source = source
        self.destination = destination
        self.routing_key = routing_key
        self.arguments = arguments or NO_ARGUMENTS
        #: Equal for equal bindings of one exchange. The order of arguments does not matter.
        self.identity: tuple[object, ...] = (destination, routing_key)
        if arguments:
            values = frozenset((key, field.tag, repr(field.value)) for key, field in arguments.items())
            self.identity = (destination, routing_key, values)


class Exchange(ABC):
    """An exchange with its set of bindings. Subclasses, one for each type, index the bindings and implement `match`."""

    type: ClassVar[str]
    #: Whether `match` depends on more than the routing keys, so that routes cannot be cached by key.
    decides_each: ClassVar[bool] = False
    #: Whether routing keys are topics, matched by patterns of words.
    is_topic: ClassVar[bool] = False

    __slots__ = ("alternate", "arguments", "auto_delete", "bindings", "destinations", "durable", "incoming", "internal",
                 "name", "policy", "published_in", "published_out", "routes")  # fmt: skip

    def __init__(
        self,
        name: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: FieldTable | None = None,
    ) -> None:
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments or {}
        #: The name of the exchange that receives messages without a matching binding.
        self.alternate: str | None = None
        self.set_policy(NO_POLICY)
        self.bindings: dict[tuple[object, ...], Binding] = {}  # bindings of which this is the source
        self.incoming: dict[Binding, None] = {}  # bindings of which this is the destination
        self.destinations: dict[Destination, int] = {}  # with the number of their bindings
        self.routes = RouteRegistry()
        #: Messages published to this exchange, and messages it put into queues (counted once for each queue).
        self.published_in = self.published_out = 0
        self._prepare()

    def _prepare(self) -> None:  # noqa: B027 - some types need nothing more
        """Make the index of a new exchange, and read the arguments of its type."""

    def set_policy(self, policy: EffectivePolicy) -> None:
        """Apply a policy. An alternate exchange in the declaration has precedence."""
        self.policy = policy
        self.alternate = text_of(self.arguments, "alternate-exchange")
        if self.alternate is None:
            name = policy.definition.get("alternate-exchange")
            self.alternate = name if isinstance(name, str) else None

    def check(self, routing_key: str, arguments: FieldTable) -> None:  # noqa: B027 - most types refuse nothing
        """Refuse bindings that are invalid for this type."""

    def check_limits(self, routing_key: str, arguments: FieldTable, vhost: str, options: BrokerOptions) -> None:  # noqa: B027
        """Refuse a new binding that would make look-ups too expensive; most types have no limit."""

    def add(self, binding: Binding) -> bool:
        """Add a binding. Returns False if there is an equal one."""
        if binding.identity in self.bindings:
            return False
        self.bindings[binding.identity] = binding
        binding.destination.incoming[binding] = None
        self.index(binding)
        self.forget_routes(binding)
        return True

    def discard(self, binding: Binding) -> Binding | None:
        """Remove and return the binding that equals this one; None: there is none.

        Its arguments may have another order: listeners must hear of the binding of which they heard before.
        """
        found = self.bindings.pop(binding.identity, None)
        if found is None:
            return None
        found.destination.incoming.pop(found, None)
        self.unindex(found)
        self.forget_routes(found)
        return found

    def forget_bindings(self) -> list[Binding]:
        """Remove all outgoing bindings of an exchange that is deleted, without updating its index. Returns them."""
        gone = list(self.bindings.values())
        for binding in gone:
            binding.destination.incoming.pop(binding, None)
        self.bindings.clear()
        self.destinations.clear()
        self.routes.forget_all()
        return gone

    def index(self, binding: Binding) -> None:
        destination = binding.destination
        self.destinations[destination] = self.destinations.get(destination, 0) + 1
        self._index(binding)

    def unindex(self, binding: Binding) -> None:
        destination = binding.destination
        self.destinations[destination] -= 1
        if not self.destinations[destination]:
            del self.destinations[destination]
        self._unindex(binding)

    def forget_routes(self, binding: Binding) -> None:
        """Make the routes stale that a new or removed binding may match; none with `decides_each`."""
        if not self.decides_each:
            self.routes.forget_all()

    @abstractmethod
    def match(self, message: Routed) -> Sequence[Destination]:
        """The destinations of a message, perhaps with duplicates. Adds the effort of the look-up to `message.cost`."""

    def _index(self, binding: Binding) -> None:  # noqa: B027 - some types need only `destinations`
        """Add a new binding to the index."""

    def _unindex(self, binding: Binding) -> None:  # noqa: B027
        """Remove a binding from the index."""


class DirectExchange(Exchange):
    """Matches if the routing key equals the binding key."""

    type = "direct"
    __slots__ = ("_by_key",)

    def _prepare(self) -> None:
        self._by_key: dict[str, Held[Destination]] = {}

    def match(self, message: Routed) -> Sequence[Destination]:
        found: list[Destination] = []
        for key in message.keys:
            found += values_of(self._by_key.get(key))
        return found

    def forget_routes(self, binding: Binding) -> None:
        self.routes.forget(binding.routing_key)

    def _index(self, binding: Binding) -> None:
        key = binding.routing_key
        self._by_key[key] = with_one(self._by_key.get(key), binding.destination)

    def _unindex(self, binding: Binding) -> None:
        key = binding.routing_key
        held = without_one(self._by_key[key], binding.destination)
        if held is None:
            del self._by_key[key]
        else:
            self._by_key[key] = held


class FanoutExchange(Exchange):
    """Matches all bindings, whatever the key."""

    type = "fanout"
    __slots__ = ()

    def match(self, message: Routed) -> Sequence[Destination]:
        return list(self.destinations)


class TopicExchange(Exchange):
    """Matches routing keys with patterns of words."""

    type = "topic"
    is_topic = True
    routes: TopicRouteRegistry
    __slots__ = ("_patterns",)

    def _prepare(self) -> None:
        self.routes = TopicRouteRegistry()
        self._patterns: TopicPatterns[Destination] = TopicPatterns()

    def match(self, message: Routed) -> Sequence[Destination]:
        patterns = self._patterns
        before = patterns.cost
        found = [destination for key in message.keys for destination in patterns.match(key)]
        message.cost += patterns.cost - before
        return found

    def forget_routes(self, binding: Binding) -> None:
        if has_wildcards(binding.routing_key):
            self.routes.forget_pattern(binding.routing_key)
        else:
            self.routes.forget(binding.routing_key)

    def check_limits(self, routing_key: str, arguments: FieldTable, vhost: str, options: BrokerOptions) -> None:
        """Limit the excess states, because a look-up may visit all of them. Raises: TopicStatesMaxReached."""
        limit = options.topic_states_max
        further = self._patterns.excess_states_with(routing_key)
        if further and self._patterns.excess_states + further > limit > 0:
            raise TopicStatesMaxReached(name=self.name, vhost=vhost, limit=limit)

    def _index(self, binding: Binding) -> None:
        self._patterns.add(binding.routing_key, binding.destination)

    def _unindex(self, binding: Binding) -> None:
        self._patterns.remove(binding.routing_key, binding.destination)


class HeadersExchange(Exchange):
    """Matches headers with the arguments of bindings; the routing key is ignored."""

    type = "headers"
    decides_each = True
    __slots__ = ("_patterns",)

    def _prepare(self) -> None:
        self._patterns: HeadersPatterns[Destination] = HeadersPatterns()

    def check(self, routing_key: str, arguments: FieldTable) -> None:
        """Raises: InvalidHeadersMatch, InvalidHeadersMatchType."""
        check_headers_match(arguments)

    def check_limits(self, routing_key: str, arguments: FieldTable, vhost: str, options: BrokerOptions) -> None:
        """Limit the conditions, because a message may be compared with all of them. Raises: ConditionsMaxReached."""
        limit = options.headers_conditions_max
        pattern = HeadersPattern(arguments)
        if self._patterns.conditions + pattern.conditions > limit > 0 and pattern.identity not in self._patterns:
            raise ConditionsMaxReached(name=self.name, vhost=vhost, limit=limit)

    def match(self, message: Routed) -> Sequence[Destination]:
        patterns = self._patterns
        before = patterns.cost
        found = patterns.match(message.comparables)
        message.cost += (patterns.cost - before) // CONDITIONS_PER_COST
        return found

    def _index(self, binding: Binding) -> None:
        self._patterns.add(binding.arguments, binding.destination)

    def _unindex(self, binding: Binding) -> None:
        self._patterns.remove(binding.arguments, binding.destination)


#: The types that clients can declare.
EXCHANGE_TYPES: dict[str, type[Exchange]] = {
    kind.type: kind for kind in (DirectExchange, FanoutExchange, TopicExchange, HeadersExchange)
}

#: The exchanges that every virtual host has from the start: (name, type, internal). All are durable.
PREDECLARED = (
    ("", "direct", False),
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.topic", "topic", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
)
