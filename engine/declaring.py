"""What declaring exchanges, queues and bindings has in common: whom it asks, and how a redeclaration is compared."""

from typing import Protocol

from ..settings import Policies
from .errors import InequivalentField
from .exchanges.exchange import Destination
from .options import VirtualHostLimits
from .publishing.auto_created import Reaper
from .publishing.host import Host, HostBroker
from .queues.queue import Queue


class DeclaringBroker(HostBroker, Protocol):
    """The broker that a virtual host is in."""

    policies: Policies
    reaper: Reaper

    def bindings_count(self) -> int:
        """In all virtual hosts."""

    def queues_count(self) -> int:
        """In all virtual hosts."""

    def dispatch_now(self, queue: Queue) -> None:
        """Hand out before somebody looks into the queue."""


class DeclaringHost(Host, Protocol):
    """The virtual host that things are declared in."""

    limits: VirtualHostLimits

    @property
    def broker(self) -> DeclaringBroker:
        """The broker that it is in."""


def check_same_fields(kind: str, current: Destination, fields: dict[str, object], *, vhost: str) -> None:
    """The first field that differs refuses a redeclaration. Raises: InequivalentField."""
    for field, received in fields.items():
        is_now = getattr(current, field)
        if received != is_now:
            raise InequivalentField(
                field=field,
                kind=kind,
                name=current.name,
                vhost=vhost,
                received=_word(received),
                current=_word(is_now),
            )


def _word(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value
