"""What a connection remembers of publishes that keep coming back: their decoded arguments, and facts of property lists.

Bounded whatever the peer sends: a memory that is full is emptied and filled again.
Source: performance page 4, rules 3 and 4.
"""

from typing import Any, NamedTuple

from ..engine import ContentError, PropertyFacts, Shapes, scan_properties
from .codec import METHODS, decode_method
from .peer_errors import PropertiesUndecodable

PUBLISH = 60 << 16 | 40
#: Property lists that a connection remembers.
MEMORY_MAX = 512
#: Publish frames, and kinds of messages, that it remembers: a client may publish to a thousand queues in turn.
KINDS_MAX = 2048
#: Longer property lists are scanned each time.
_REMEMBERED_SIZE_MAX = 256
#: Equal facts are one object, so that runs are compared by identity.
_INTERNED: dict[PropertyFacts, PropertyFacts] = {}


class PublishArguments(NamedTuple):
    """basic.publish, decoded. `address`: the octets of exchange and routing key, as deliveries carry them."""

    exchange: str
    routing_key: str
    mandatory: bool
    immediate: bool
    address: bytes


class PublishKind:
    """A kind of message: whole basic.publish frame and property facts. One object for all alike of a connection.

    `known`: what a session remembers of the kind; the reader does not look into it.
    """

    __slots__ = ("facts", "known", "method_frame")

    def __init__(self, method_frame: bytes, facts: PropertyFacts) -> None:
        self.method_frame = method_frame
        self.facts = facts
        self.known: Any = None


class PublishMemory:
    """`facts`: property list -> its facts. `arguments`: whole basic.publish frame -> its arguments.

    `kinds`: whole basic.publish frame -> identity of the facts -> kind. `shapes`: facts of property lists that differ
    from message to message; what has a shape is not in `facts`.
    """

    __slots__ = ("_kind_count", "arguments", "facts", "kinds", "shapes")

    def __init__(self) -> None:
        self.facts: dict[bytes, PropertyFacts] = {}
        self.shapes = Shapes()
        self.arguments: dict[bytes, PublishArguments] = {}
        self.kinds: dict[bytes, dict[int, PublishKind]] = {}
        self._kind_count = 0

    def kind_of(self, method_frame: bytes, facts: PropertyFacts) -> PublishKind:
        """The kind of messages with this basic.publish frame and these facts."""
        alike = self.kinds.get(method_frame)
        kind = None if alike is None else alike.get(id(facts))
        if kind is None:
            if self._kind_count >= KINDS_MAX:
                self.kinds.clear()
                self._kind_count = 0
            self._kind_count += 1
            kind = self.kinds.setdefault(method_frame, {})[id(facts)] = PublishKind(method_frame, facts)
        return kind

    def facts_of(self, properties: bytes) -> PropertyFacts:
        """The facts of a property list, scanned once for each list, or shape of lists, that keeps coming back.

        Raises: PropertiesUndecodable (541).
        """
        facts = self.shapes.facts_of(properties) or self.facts.get(properties)
        if facts is None:
            try:
                facts = scan_properties(properties)
            except ContentError:
                raise PropertiesUndecodable from None
            facts = _INTERNED.setdefault(facts, facts)
            if len(_INTERNED) > 4 * MEMORY_MAX:
                _INTERNED.clear()
            if not self.shapes.learn(properties, facts) and len(properties) <= _REMEMBERED_SIZE_MAX:
                if len(self.facts) >= MEMORY_MAX:
                    self.facts.clear()
                self.facts[properties] = facts
        return facts

    def is_valid(self, properties: bytes) -> bool:
        """Whether the facts of a property list are remembered, so that nothing can be wrong with it."""
        return properties in self.facts or self.shapes.find(properties) is not None

    def arguments_of(self, method_frame: bytes) -> PublishArguments:
        """Decode the arguments of a basic.publish frame, once for each that keeps coming back.

        Raises: UndecodableArguments, MalformedShortString.
        """
        known = self.arguments.get(method_frame)
        if known is None:
            raw = method_frame[11:-1]
            method = decode_method(METHODS[PUBLISH], raw)
            known = PublishArguments(
                method.exchange,  # type: ignore[attr-defined]
                method.routing_key,  # type: ignore[attr-defined]
                method.mandatory,  # type: ignore[attr-defined]
                method.immediate,  # type: ignore[attr-defined]
                raw[2:-1],
            )
            if len(self.arguments) >= KINDS_MAX:
                self.arguments.clear()
            self.arguments[method_frame] = known
        return known
