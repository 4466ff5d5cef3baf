"""A connected client as the engine sees it: sessions, exclusive queues, and an outbox of effects.

The engine never writes to a client. It appends effects to the outbox and counts their octets. Above `unsent_max` the
client is paused: it gets no deliveries until its frontend has sent them (`drained`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ...settings.frozen import frozen
from ...settings.slotted import slotted
from ..delivery.effects import Effect
from ..errors import EngineError, UserChannelsMaxReached
from ..flow.round_robin import Parked
from ..flow.usage import Usage
from ..messages.field_table import FieldTable, text_of
from ..queues.queue import Queue
from ..users.access import User
from .session import Session

if TYPE_CHECKING:
    from ..publishing.route import Route
    from ..virtual_host import VirtualHost


@frozen
class PeerCertificate:
    """Fields of a client's certificate, as text."""

    subject: str
    issuer: str
    validity: str


@slotted
class ConnectionInfo:
    """Data of one connection. `octets_in`, `octets_out`, `reads`, `writes` are counters; all others are set once."""

    protocol: str = ""
    node: str = ""  # the node of a cluster that the client is connected to
    mechanism: str = ""
    tls_protocol: str = ""  # empty: the connection is not encrypted
    tls_cipher: str = ""
    peer_certificate: PeerCertificate | None = None  # None: the client sent none
    channel_max: int = 0
    frame_max: int = 0
    heartbeat_s: int = 0
    octets_in: int = 0
    octets_out: int = 0
    reads: int = 0
    writes: int = 0


class Client:
    """One connected client, made by `Connections.open`.

    `flush` is called at the end of each turn that put effects into the outbox, and, if output waits for the journal,
    when that has written more (`BrokerContext.awaiting`).
    `host`, `broker`: the contexts of its virtual host and of the broker, as attributes because each run needs them.
    `site`: the site of its connection; None: an operator, who names the queues of all sites by their full names.
    `liveness()`: whether its heartbeats arrive in time; None: it sends none. `on_expelled(error)`: ends the connection.
    `on_send_after(sync_lsn, number)`: delays the output of a session.
    """

    __slots__ = ("broker", "closed", "connection_info", "exclusive_queues", "flush", "host", "is_blocked", "liveness",
                 "name", "on_expelled", "on_send_after", "outbox", "parked", "paused", "properties", "published_routes",
                 "sessions", "since_ms", "site", "unsent", "unsent_max", "user", "vhost")  # fmt: skip

    def __init__(
        self,
        vhost: "VirtualHost",
        user: User,
        name: str,
        flush: Callable[[], object],
        properties: FieldTable,
        site: str | None = None,
    ) -> None:
        self.vhost = vhost
        self.host = vhost.context
        self.broker = self.host.broker
        self.user = user
        self.name = name
        self.site = site
        self.flush = flush
        self.unsent_max = self.broker.unsent_max
        self.properties = properties  # client properties of connection.start-ok
        self.connection_info = ConnectionInfo()
        self.since_ms = self.broker.clock.wall_ms()
        self.is_blocked = False  # its frontend accepts no publishes now
        self.parked: Parked | None = None  # publishes parked by its frontend; None: there were none yet
        self.liveness: Callable[[], bool] | None = None
        self.on_expelled: Callable[[EngineError], None] | None = None
        self.on_send_after: Callable[[int, int], None] | None = None
        self.published_routes: Callable[[], Iterable[Route]] = tuple  # routes that its frontend has cached
        self.outbox: list[Effect] = []
        self.unsent = 0
        self.paused = False
        self.closed = False
        self.sessions: dict[Session, None] = {}
        self.exclusive_queues: dict[Queue, None] = {}

    def open_session(self, number: int = 0) -> Session:
        """Open a session. `number`: its channel number. Raises: UserChannelsMaxReached."""
        limit = self.user.max_channels
        if limit is not None and self.broker.connections.sessions_of(self.user.name) >= limit:
            raise UserChannelsMaxReached(user=self.user.name, limit=limit)
        session = Session(self, number)
        self.broker.activity.channels_opened += 1
        self.sessions[session] = None
        return session

    def abandon(self) -> None:
        """The broker has ended: drop the outbox. Nothing is requeued, deleted or counted. Idempotent."""
        self.closed = True
        self.outbox.clear()

    @property
    def given_name(self) -> str | None:
        """The client property connection_name; None: the client set none."""
        return text_of(self.properties, "connection_name")

    @property
    def label(self) -> str:
        """The name to show: the client's, else the broker's."""
        return self.given_name or self.name

    def is_called(self, name: str) -> bool:
        """Whether the broker or the client gave the connection this name."""
        return name in (self.name, self.given_name)

    def close(self, *, failed: bool = False) -> None:
        """Close all sessions, which requeues unacknowledged messages; then delete the exclusive queues. Idempotent.

        `failed`: the client did not ask for it, so its deliveries are failed attempts.
        """
        if self.closed:
            return
        self.closed = True
        for session in self.sessions:
            session.flowing = False
        for session in list(self.sessions):
            session.close(failed=failed)
        for queue in list(self.exclusive_queues):
            self.vhost.queues.remove(queue)
        self.broker.connections.forget(self)

    def expel(self, error: EngineError) -> None:
        """End the connection: by `on_expelled` of its frontend, or without a frontend at once."""
        if self.on_expelled is None:
            self.close(failed=True)
        else:
            self.on_expelled(error)

    def send_after(self, sync_lsn: int, number: int) -> None:
        """Delay the output of the session with this number until the journal is safe up to this LSN."""
        if self.on_send_after is not None:
            self.on_send_after(sync_lsn, number)

    def makes_room_in(self, node: Usage) -> bool:
        """Whether the client's acknowledgements, now or of later deliveries, may make room in a full node.

        O(queues that it consumes from).
        """
        for session in self.sessions:
            acknowledging = {one.queue for one in session.consumers.values() if not one.no_ack}
            if session.unacked:
                acknowledging.update(session.subscriptions.queues)
            if any(queue.meter is not None and queue.meter.feeds(node) for queue in acknowledging):
                return True
        return False

    # -- the outbox -------------------------------------------------------------------------------------------------

    def put(self, effect: Effect, size: int) -> None:
        """Append an effect of about `size` octets. Pauses the client if too much is unsent."""
        if not self.outbox:
            self.broker.touched[self] = None
        self.outbox.append(effect)
        self.unsent += size
        if self.unsent > self.unsent_max:
            self.paused = True

    def take_outbox(self) -> list[Effect]:
        """Remove and return all effects, oldest first."""
        taken, self.outbox = self.outbox, []
        return taken

    def drained(self, unsent: int = 0) -> None:
        """Note that the frontend has sent all but `unsent` octets, and resume the consumers if they were paused."""
        self.unsent = unsent
        if self.paused:
            self.paused = False
            first = None
            for session in self.sessions:
                if session.subscriptions.mark_queues() and first is None:
                    first = session
            if first is not None:  # so that the next time another session is served first
                del self.sessions[first]
                self.sessions[first] = None

    def outbox_room(self) -> int:
        """Octets that may be put into the outbox before the client is paused."""
        return self.unsent_max - self.unsent

    def count_for_room(self, contents: Sequence[bytes]) -> int:
        """The number of contents, from the first, that use up the room of the outbox; at least one."""
        room = self.unsent_max - self.unsent
        for count, content in enumerate(contents, 1):
            room -= len(content)
            if room <= 0:
                return count
        return len(contents)
