"""Exchanges and bindings: which destinations a routing key reaches.

An exchange answers for itself only; following exchange-to-exchange bindings is the virtual host's walk. Look-ups are
not on the hot path: their results are cached in routes until the topology changes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from ..settings import NO_POLICY, EffectivePolicy
from .field_table import FieldTable
from .headers import Comparables, HeadersPattern, check_headers_match
from .routed import Routed
from .topic import TopicTrie

if TYPE_CHECKING:
    from .queue import Queue

Destination: TypeAlias = "Queue | Exchange"


class Binding:
    """One rule: from `source` to `destination` by routing key and arguments."""

    __slots__ = ("arguments", "destination", "pattern", "routing_key", "source")

    def __init__(self, source: "Exchange", destination: Destination, routing_key: str, arguments: FieldTable) -> None:
        self.source = source
        self.destination = destination
        self.routing_key = routing_key
        self.arguments = arguments
        self.pattern: HeadersPattern | None = None  # filled by a headers exchange

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two bindings that are one and the same; the wire's field order does not matter."""
        arguments = frozenset((key, field.tag, repr(field.value)) for key, field in self.arguments.items())
        return (self.destination, self.routing_key, arguments)


class Exchange(ABC):
    """What all types share: the set of bindings. Subclasses keep an index of it and answer `match`."""

    type: ClassVar[str]
    #: Whether `match` depends on more than the routing keys, so that routes can't be cached by key alone.
    decides_each: ClassVar[bool] = False

    __slots__ = (
        "alternate",
        "arguments",
        "auto_delete",
        "bindings",
        "durable",
        "incoming",
        "internal",
        "name",
        "policy",
    )

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
        #: The name of the exchange that gets what no binding of this one matches.
        self.alternate: str | None = None
        self.set_policy(NO_POLICY)
        self.bindings: dict[tuple[object, ...], Binding] = {}  # where this is the source
        self.incoming: dict[Binding, None] = {}  # where this is the destination

    def set_policy(self, policy: EffectivePolicy) -> None:
        """This holds from now on; an alternate exchange of the declaration wins."""
        self.policy = policy
        declared = self.arguments.get("alternate-exchange")
        if declared is not None and isinstance(declared.value, bytes):
            self.alternate = declared.text
        else:
            said = policy.definition.get("alternate-exchange")
            self.alternate = said if isinstance(said, str) else None

    @property
    def conditions(self) -> int:
        """What every message that comes here is compared with; types that look it up have none."""
        return 0

    def conditions_of(self, arguments: FieldTable) -> int:
        """What a binding would add to `conditions`."""
        return 0

    def check(self, routing_key: str, arguments: FieldTable) -> None:  # noqa: B027 - most types refuse nothing
        """Refuse bindings that this type can't use."""

    def add(self, binding: Binding) -> bool:
        """Add a binding; False when there is an equal one already."""
        if binding.identity in self.bindings:
            return False
        self.bindings[binding.identity] = binding
        binding.destination.incoming[binding] = None
        self._index(binding)
        return True

    def discard(self, binding: Binding) -> bool:
        """Remove the binding that equals this one; False when there is none."""
        found = self.bindings.pop(binding.identity, None)
        if found is None:
            return False
        found.destination.incoming.pop(found, None)
        self._unindex(found)
        return True

    @abstractmethod
    def match(self, message: Routed) -> Sequence[Destination]:
        """Destinations of a message, perhaps some of them twice."""

    @abstractmethod
    def _index(self, binding: Binding) -> None:
        """Take a new binding into the index."""

    @abstractmethod
    def _unindex(self, binding: Binding) -> None:
        """Take a binding out of the index."""


class DirectExchange(Exchange):
    """Routing key equals binding key, octet for octet."""

    type = "direct"
    __slots__ = ("_by_key",)

    def __init__(self, name: str, **options: bool | FieldTable | None) -> None:
        super().__init__(name, **options)  # type: ignore[arg-type]
        self._by_key: dict[str, dict[Binding, None]] = {}

    def match(self, message: Routed) -> Sequence[Destination]:
        """See `Exchange`."""
        return [binding.destination for key in message.keys for binding in self._by_key.get(key, ())]

    def _index(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.routing_key, {})[binding] = None

    def _unindex(self, binding: Binding) -> None:
        same_key = self._by_key[binding.routing_key]
        del same_key[binding]
        if not same_key:
            del self._by_key[binding.routing_key]


class FanoutExchange(Exchange):
    """Everything bound, whatever the key."""

    type = "fanout"
    __slots__ = ()

    def match(self, message: Routed) -> Sequence[Destination]:
        """See `Exchange`."""
        return [binding.destination for binding in self.bindings.values()]

    def _index(self, binding: Binding) -> None:
        """The set of bindings is the index."""

    def _unindex(self, binding: Binding) -> None:
        """The set of bindings is the index."""


class TopicExchange(Exchange):
    """Patterns of words."""

    type = "topic"
    __slots__ = ("_trie",)

    def __init__(self, name: str, **options: bool | FieldTable | None) -> None:
        super().__init__(name, **options)  # type: ignore[arg-type]
        self._trie: TopicTrie[Destination] = TopicTrie()

    def match(self, message: Routed) -> Sequence[Destination]:
        """See `Exchange`."""
        return [destination for key in message.keys for destination in self._trie.match(key)]

    def _index(self, binding: Binding) -> None:
        self._trie.add(binding.routing_key, binding.destination)

    def _unindex(self, binding: Binding) -> None:
        self._trie.remove(binding.routing_key, binding.destination)


class HeadersExchange(Exchange):
    """Headers against binding arguments; the routing key is ignored."""

    type = "headers"
    decides_each = True
    __slots__ = ("_conditions",)

    def __init__(self, name: str, **options: bool | FieldTable | None) -> None:
        super().__init__(name, **options)  # type: ignore[arg-type]
        self._conditions = 0

    @property
    def conditions(self) -> int:
        """See `Exchange`."""
        return self._conditions

    def conditions_of(self, arguments: FieldTable) -> int:
        """See `Exchange`."""
        return HeadersPattern(arguments).conditions

    def check(self, routing_key: str, arguments: FieldTable) -> None:
        """Raises: InvalidHeadersMatch, InvalidHeadersMatchType."""
        check_headers_match(arguments)

    def match(self, message: Routed) -> Sequence[Destination]:
        """See `Exchange`."""
        headers = Comparables(message.headers)
        return [
            binding.destination
            for binding in self.bindings.values()
            if binding.pattern is not None and binding.pattern.matches(headers)
        ]

    def _index(self, binding: Binding) -> None:
        binding.pattern = HeadersPattern(binding.arguments)
        self._conditions += binding.pattern.conditions

    def _unindex(self, binding: Binding) -> None:
        assert binding.pattern is not None
        self._conditions -= binding.pattern.conditions
        binding.pattern = None


#: The types that clients can declare.
EXCHANGE_TYPES: dict[str, type[Exchange]] = {
    kind.type: kind for kind in (DirectExchange, FanoutExchange, TopicExchange, HeadersExchange)
}

#: What every virtual host has from the start: (name, type, internal). All are durable.
PREDECLARED = (
    ("", "direct", False),
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.topic", "topic", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
)
