"""Waits of a connection for the journal: answers wait for records on the disk, reads wait while the journal is behind.

Source: docs/journal-format.md, "The crash model".
"""

from ...engine import UNTIL_CAUGHT_UP, Broker, Durability
from ..peer.agreed_output import AgreedOutput
from ..peer.login import Login


class JournalWait:
    """A connection's wait. `sync_lsn`: LSN up to which the journal must be safe before anything is sent; 0: none;
    `UNTIL_CAUGHT_UP`: until all is recorded again.

    `has_published`: the client published messages that the journal records, so it is not read while that is congested.
    `has_acted`: the client changed something that may not be on disk yet; its next durable answer waits for it.
    """

    __slots__ = ("_broker", "_login", "has_acted", "has_published", "sync_lsn")

    def __init__(self, broker: Broker, login: Login) -> None:
        self._broker = broker
        self._login = login
        self.sync_lsn = 0
        self.has_published = False
        self.has_acted = False

    def flush_on_progress(self) -> None:
        """Ask for a flush of the connection when the journal has made progress."""
        client = self._login.client
        if client is not None:
            self._broker.context.awaiting[client] = None

    # -- answers ----------------------------------------------------------------------------------------------------

    def begin_answer(self) -> None:
        """Note that a method is handled whose answer, if it has one, may have to wait: `send_answer_after`."""

    def send_answer_after(self, sync_lsn: int, number: int) -> None:
        """Like `send_after`, for the answer on a channel that states that a change is durable."""
        self.send_after(sync_lsn, number)

    def send_after(self, sync_lsn: int, number: int) -> None:
        """Send nothing before the journal is safe up to this LSN, or up to that of an earlier call if it is higher.

        `number`: of the channel whose deliveries wait.
        """
        self.sync_lsn = max(self.sync_lsn, sync_lsn)

    def send_all_after(self, sync_lsn: int) -> None:
        """Like `send_after`, for all channels."""
        self.sync_lsn = max(self.sync_lsn, sync_lsn)

    @property
    def is_lost(self) -> bool:
        """Whether the records for which an answer waits will never be on the disk."""
        durability = self._broker.context.storage.durability
        return bool(self.sync_lsn) and durability is not None and durability.is_lost

    @property
    def is_waiting(self) -> bool:
        """Whether output has to wait. Sets `sync_lsn` to 0 when it no longer has to."""
        durability = self._broker.context.storage.durability
        if not self.sync_lsn or durability is None:
            return False
        if self.sync_lsn == UNTIL_CAUGHT_UP:
            is_safe = not durability.is_behind
        else:
            is_safe = self.sync_lsn <= durability.safe_lsn
        if is_safe:
            self.sync_lsn = 0
        return bool(self.sync_lsn)

    # -- reads ------------------------------------------------------------------------------------------------------

    def note_publishes(self, durability: Durability, *, is_stored: bool) -> None:
        """Note publishes. `is_stored`: some are persistent, in durable queues; few journals record others."""
        self.has_acted = True
        if is_stored or durability.takes_transient:
            self.has_published = True

    @property
    def is_refusing(self) -> bool:
        """Whether persistent messages are not accepted now: the disk is full, or has failed."""
        durability = self._broker.context.storage.durability
        return durability is not None and durability.has_failed

    @property
    def is_throttled(self) -> bool:
        """Whether the client publishes faster than the journal writes: it is not read until the journal has caught up.

        If so, the connection is flushed when the journal has made progress; if not, `has_published` is cleared.
        """
        durability = self._broker.context.storage.durability
        if not self.has_published:
            return False
        if durability is None or not durability.is_congested:
            self.has_published = False
            return False
        self.flush_on_progress()
        return True


class AgreedWait(JournalWait):
    """The wait of a connection to a node of a cluster: `AgreedOutput` has the waiting output, channel by channel."""

    __slots__ = ("_output",)

    def __init__(self, broker: Broker, login: Login, output: AgreedOutput) -> None:
        super().__init__(broker, login)
        self._output = output

    def begin_answer(self) -> None:
        self._output.forget_answer()

    def send_answer_after(self, sync_lsn: int, number: int) -> None:
        if not self._output.delay_answer(number, sync_lsn):
            self.has_acted = True  # with nowait there is no answer: the next one waits for this change, too

    def send_after(self, sync_lsn: int, number: int) -> None:
        self._output.delay(number, sync_lsn)

    def send_all_after(self, sync_lsn: int) -> None:
        self._output.delay_all(sync_lsn)

    @property
    def is_waiting(self) -> bool:
        return bool(self._output.waiting)
