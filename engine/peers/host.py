"""What clients and sessions need of the virtual host that they are in, and of the broker."""

from collections.abc import Iterator
from typing import Any, Protocol

from ..delivery.consumer import Recipient
from ..messages.sizes import Sizes
from ..publishing.firehose import Firehose
from ..publishing.host import Host, HostBroker
from ..publishing.route import Route
from ..queues.queue import Queue
from ..queues.reply_queue import ReplyQueue
from ..users.access import User
from .acknowledgement_timeout import AcknowledgementWatch
from .effects import Effect
from .session_counts import PastSessions


class Rounds(Protocol):
    """The queues' turns: `round_width` of them are in this round."""

    round: int
    round_width: int


class PeerBroker(HostBroker, Protocol):
    """The broker that a client is connected to. `touched`: clients with something in their outboxes.

    `sizes`: of what clients publish, once somebody has asked for them.
    """

    acknowledgements: AcknowledgementWatch
    past_sessions: PastSessions
    sizes: Sizes | None
    touched: dict[Any, None]

    @property
    def turns(self) -> Rounds:
        """Whose turn it is."""

    def apply(self, commit: Any) -> None:
        """Apply a `Commit`, now or in slices."""

    def dispatch_now(self, queue: Queue) -> None:
        """Hand out before somebody looks into the queue."""

    def forget(self, client: Any) -> None:
        """A `Client` is closed."""

    def run_errand(self, steps: Iterator[None]) -> None:
        """Take these steps at the ends of turns."""

    def sessions_of(self, user: str) -> int:
        """Open sessions of a user."""


class PeerHost(Host, Protocol):
    """The virtual host that a client is in. `is_condemned`: it was deleted; `firehose`: while it is traced."""

    firehose: Firehose | None
    is_condemned: bool
    past_sessions: PastSessions

    @property
    def broker(self) -> PeerBroker:
        """The broker that it is in."""

    def add_reply_queue(self, address: str, owner: Any) -> ReplyQueue:
        """Where direct replies go."""

    def remove_queue(self, queue: Queue) -> int:
        """Take a queue away."""

    def route(self, exchange_name: str, routing_key: str, user: User) -> Route:
        """The way for messages published by a user."""

    def routes_changed(self) -> None:
        """All routes are to be looked up again."""


class SessionClient(Recipient, Protocol):
    """The client whose session it is, as the session sees it. `sessions`: all that it has."""

    user: User
    closed: bool
    sessions: dict[Any, None]
    exclusive_queues: dict[Queue, None]

    @property
    def is_internal_link(self) -> bool:
        """Whether it is held where others are refused for want of room."""

    @property
    def vhost(self) -> PeerHost:
        """The virtual host that it is in."""

    @property
    def broker(self) -> PeerBroker:
        """The broker that it is connected to."""

    def put(self, effect: Effect, size: int) -> None:
        """Append an effect of about `size` octets to its outbox."""
