"""What a connection remembers of publishes that keep coming back: their decoded arguments, and facts of property lists.

Bounded whatever the peer sends: a memory that is full is emptied and filled again.
Source: performance page 4, rules 3 and 4.
"""

from typing import NamedTuple

from ..engine import ContentError, PropertyFacts, scan_properties
from .codec import METHODS, decode_method
from .peer_errors import PropertiesUndecodable

PUBLISH = 60 << 16 | 40
#: Entries of each memory of a connection: property lists, publish frames, routes.
MEMORY_MAX = 512
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


class PublishMemory:
    """`facts`: property list -> its facts. `arguments`: whole basic.publish frame -> its arguments."""

    __slots__ = ("arguments", "facts")

    def __init__(self) -> None:
        self.facts: dict[bytes, PropertyFacts] = {}
        self.arguments: dict[bytes, PublishArguments] = {}

    def facts_of(self, properties: bytes) -> PropertyFacts:
        """The facts of a property list, scanned once for each list that keeps coming back.

        Raises: PropertiesUndecodable (541).
        """
        facts = self.facts.get(properties)
        if facts is None:
            try:
                facts = scan_properties(properties)
            except ContentError:
                raise PropertiesUndecodable from None
            if len(self.facts) >= MEMORY_MAX:
                self.facts.clear()
            facts = _INTERNED.setdefault(facts, facts)
            if len(_INTERNED) > 4 * MEMORY_MAX:
                _INTERNED.clear()
            if len(properties) <= _REMEMBERED_SIZE_MAX:
                self.facts[properties] = facts
        return facts

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
            if len(self.arguments) >= MEMORY_MAX:
                self.arguments.clear()
            self.arguments[method_frame] = known
        return known
