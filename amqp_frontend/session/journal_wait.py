"""What of a connection waits for the journal: answers until what they confirm is on the disk, reads while it is behind.

Source: docs/journal-format.md, "The crash model".
"""

from ...engine import UNTIL_STATED, Broker, Durability, ServiceExchange
from ..peer.login import Login


class JournalWait:
    """`sync_lsn`: the LSN up to which the journal must be safe before anything is sent; 0: none.

    `has_published`: what the journal keeps, in this turn: so it must wait if that is too slow.
    `has_acted`: it did something that may not be in the journal yet; the next durable answer waits for that, too.
    `asked`: the service that was sent a request in this turn.
    """

    __slots__ = ("_broker", "_login", "asked", "has_acted", "has_published", "sync_lsn")

    def __init__(self, broker: Broker, login: Login) -> None:
        self._broker = broker
        self._login = login
        self.sync_lsn = 0
        self.asked: ServiceExchange | None = None
        self.has_published = False
        self.has_acted = False

    def notify(self) -> None:
        """Have the connection flushed when the journal has made progress."""
        client = self._login.client
        if client is not None:
            self._broker.context.awaiting[client] = None

    # -- answers ----------------------------------------------------------------------------------------------------

    def send_answer_after(self, sync_lsn: int) -> None:
        """Send nothing before the journal is safe up to `sync_lsn` (LSN): an answer says that something is durable."""
        self.sync_lsn = sync_lsn

    def send_after(self, sync_lsn: int) -> None:
        """Send nothing before the journal is safe up to there, nor before what is waited for already."""
        self.sync_lsn = max(self.sync_lsn, sync_lsn)

    def collect_barrier(self) -> None:
        """A request to a service in this turn is answered when what the service did is safe."""
        if self.asked is not None:
            self.sync_lsn = max(self.sync_lsn, self.asked.sync_lsn)
            self.asked = None

    @property
    def is_lost(self) -> bool:
        """Whether what an answer waits for will never be on the disk."""
        durability = self._broker.context.storage.durability
        return bool(self.sync_lsn) and durability is not None and durability.is_lost

    @property
    def is_waiting(self) -> bool:
        """Whether nothing may be sent yet."""
        durability = self._broker.context.storage.durability
        if not self.sync_lsn or durability is None:
            return False
        if not durability.is_behind if self.sync_lsn == UNTIL_STATED else self.sync_lsn <= durability.safe_lsn:
            self.sync_lsn = 0
        return bool(self.sync_lsn)

    # -- reads ------------------------------------------------------------------------------------------------------

    def publishes(self, durability: Durability, *, is_stored: bool) -> None:
        """Messages are published. Whose messages the journal does not keep need not wait for it."""
        self.has_acted = True
        if is_stored or durability.takes_transient:
            self.has_published = True

    @property
    def is_refusing(self) -> bool:
        """Whether nothing persistent is accepted now: the disk is full, or has failed."""
        durability = self._broker.context.storage.durability
        return durability is not None and durability.has_failed

    @property
    def is_behind(self) -> bool:
        """Whether the peer publishes faster than the journal writes: it is not read until that has caught up."""
        durability = self._broker.context.storage.durability
        if not self.has_published:
            return False
        if durability is None or not durability.is_congested:
            self.has_published = False
            return False
        self.notify()
        return True
