"""What publishing needs of the virtual host that it happens in, and of the broker."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ...settings import SettingsRepository
from ..clock import Clock
from ..effort import Effort
from ..events import Counters
from ..exchanges.exchange import Exchange
from ..exchanges.routed import Routed
from ..flow.control import FlowControl
from ..messages.duplicates import IdCache
from ..messages.event import Event, Listener
from ..messages.field_table import FieldTable
from ..messages.message import Envelope
from ..options import BrokerOptions
from ..queues.queue import Queue
from ..stores.surroundings import Storage
from .arrival_rules import ArrivalRules
from .route import Route


class HostBroker(Protocol):
    """The broker that a virtual host is in. `effort`: work done."""

    flow: FlowControl

    chance: Callable[[], float]
    clock: Clock
    counters: Counters
    storage: Storage
    listeners: list[Listener]
    next_id: int
    options: BrokerOptions
    settings: SettingsRepository
    effort: Effort

    def announce(self, event: Event) -> None:
        """Call each listener with what happened."""

    def mark(self, queue: Queue) -> None:
        """Look at this queue before the turn ends."""


class Declares(Protocol):
    """Declares on the broker's own behalf."""

    def create_queue(self, name: str, *, address: str | None = None, is_auto_created: bool) -> object:
        """A durable queue, new or as it is."""

    def declare_exchange(self, name: str, kind: str, *, durable: bool = False) -> object:
        """An exchange, new or as it is."""

    def bind_queue(self, queue_name: str, source: str, routing_key: str, arguments: FieldTable) -> None:
        """Bind a queue, once."""


class Host(Declares, Protocol):
    """The virtual host. `remembered`: messages for queues to come, by address."""

    name: str
    exchanges: dict[str, Exchange]
    queues: dict[str, Queue]
    id_caches: dict[str, IdCache]
    remembered: dict[str, deque[tuple[Envelope, bytes]]]

    @property
    def broker(self) -> HostBroker:
        """The broker that it is in."""

    def arrival_rules(self, exchange_name: str, routing_key: str) -> ArrivalRules:
        """What the address of a message does with it."""

    def queue_named(self, name: str) -> Queue | None:
        """Where the default exchange sends a routing key."""

    def reach(self, exchange: Exchange, message: Routed) -> list[Queue]:
        """The queues that take a message."""

    def resolve_address(self, address: str, queue_name: str) -> tuple[str, str]:
        """Exchange and routing key that an address stands for."""

    def route_of(self, exchange: Exchange, routing_key: str) -> Route:
        """The way for messages that the broker itself publishes."""
