"""What of the broker is looked at."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from ..deadlines import Deadlines
from ..exchanges.exchange import Exchange
from ..flow.control import FlowControl
from ..peers.client import Client
from ..queues.queue import Queue
from ..stores.surroundings import Storage


class Counted(Protocol):
    """The bindings of a virtual host."""

    count: int


class CheckedHost(Protocol):
    """A virtual host."""

    name: str
    queues: dict[str, Queue]
    exchanges: dict[str, Exchange]

    @property
    def bindings(self) -> Counted:
        """Of all its exchanges."""


class CheckedBroker(Protocol):
    """See `Broker`."""

    clients: dict[Client, None]
    deadlines: Deadlines
    flow: FlowControl
    storage: Storage

    @property
    def virtual_hosts(self) -> Mapping[str, CheckedHost]:
        """By name."""

    def queues(self) -> Iterator[Queue]:
        """Those of all virtual hosts."""
