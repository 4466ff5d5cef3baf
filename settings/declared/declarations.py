"""Objects that a configuration declares beside settings: queues, exchanges, diverts. Frozen.

Source: address-settings page 1.3, 3.7, 6.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..addresses.queue_arguments import QUEUE_ARGUMENTS, SELECTOR
from ..faults import Origin
from ..leased.elements import BY_ARGUMENT

ANYCAST, MULTICAST = "ANYCAST", "MULTICAST"

#: Attributes of a configured queue whose argument is not `x-` and the name.
ARGUMENT_OF = {"exclusive": "x-single-active-consumer", "filter": SELECTOR}

#: Every attribute of a configured queue that becomes an argument: name -> argument.
QUEUE_ATTRIBUTES: dict[str, str] = {
    **{argument.removeprefix("x-"): argument for argument in QUEUE_ARGUMENTS},
    **ARGUMENT_OF,
}


#: Those of a leased queue: its elements, and what it has in common with others.
LEASED_ATTRIBUTES: dict[str, str] = {
    **{argument.removeprefix("x-"): argument for argument in BY_ARGUMENT},
    "dead-letter-address": "x-dead-letter-address",
    "expiry-address": "x-expiry-address",
}


@dataclass(slots=True, frozen=True)
class QueueDeclaration:
    """A queue that exists from the start. `arguments` are those of queue.declare, x-address included."""

    name: str
    address: str
    vhost: str = "/"
    routing_type: str = ANYCAST  # MULTICAST: bound to the fanout exchange that is named as the address
    durable: bool = True
    is_enabled: bool = True  # False: takes no new messages
    arguments: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    origin: Origin = field(default=Origin("", 0), compare=False)
    origins: Mapping[str, Origin] = field(default_factory=lambda: MappingProxyType({}), compare=False)  # by argument

    def origin_of(self, argument: str) -> Origin:
        """Where an argument is set."""
        return self.origins.get(argument, self.origin)

    @property
    def exchange(self) -> str:
        """The exchange that the queue is bound to; empty for the default one alone."""
        return self.address if self.routing_type == MULTICAST else ""


@dataclass(slots=True, frozen=True)
class ExchangeDeclaration:
    """A fanout exchange for a multicast address."""

    name: str
    vhost: str = "/"
    type: str = "fanout"
    origin: Origin = field(default=Origin("", 0), compare=False)


@dataclass(slots=True, frozen=True)
class Divert:
    """Messages to `address` (an exchange, or a key of the default one) go to other addresses as well, or instead.

    `filter`: a selector; only what it takes does. Empty: all.
    """

    name: str
    address: str
    forwarding_addresses: tuple[str, ...]
    vhost: str = "/"
    is_exclusive: bool = False  # what it takes goes nowhere else
    routing_name: str = ""
    routing_type: str = "STRIP"
    filter: str = ""
    origin: Origin = field(default=Origin("", 0), compare=False)
