"""What was read of a peer and cannot be handled yet: a publish that is blocked, what came behind it, unfinished work.

Publishes are blocked by an operator's alarm, or while the journal accepts nothing persistent. Settling deliveries, and
other channels, pass. Source: ruling 15; queues page E.5; behaviour page 1.9.
"""

import logging
from collections import deque

from pamqp import commands

from ..engine import Broker
from .channel import Channel, CommitUnderWay
from .connection import Connection
from .journal_wait import JournalWait
from .login import Login
from .output import Output
from .protocol_events import (
    AcksReceived,
    ChannelMethod,
    ConnectionMethod,
    MixedReceived,
    ProtocolEvent,
    PublishReceived,
)
from .states import ConnectionState

logger = logging.getLogger("leveret.amqp")

RUNNING = ConnectionState.RUNNING

#: Events, and octets of publishes, that are deferred on a blocked connection before it is not read further.
DEFERRED_MAX = 512
DEFERRED_OCTETS_MAX = 1024 * 1024
#: What passes a blocked publish, on its own channel as well.
_SETTLING = frozenset(
    {
        commands.Basic.Ack,
        commands.Basic.Nack,
        commands.Basic.Reject,
        commands.Basic.Cancel,
        commands.Channel.Flow,
        commands.Channel.FlowOk,
    }
)
_PUBLISHES = (PublishReceived, MixedReceived)
_TRANSACTIONS = frozenset({commands.Tx.Select, commands.Tx.Commit, commands.Tx.Rollback})

#: What a turn handles: what the reader yields, and the rest of a large commit.
Work = ProtocolEvent | CommitUnderWay


class Backlog:
    """`blocked`: a publish or commit that waits until it is accepted; nothing behind it on its channel is handled.

    `deferred`: what came behind it and may not pass, in order. `unfinished`: the rest of an event that is too much for
    one turn; nothing behind it is read. `is_cut`: the turn ended before everything that had been read was handled,
    because the `Effort` of the turn had reached its maximum.
    """

    __slots__ = (
        "_broker",
        "_channels",
        "_connection",
        "_journal",
        "_login",
        "_octets",
        "_output",
        "blocked",
        "deferred",
        "is_cut",
        "unfinished",
    )

    def __init__(
        self, broker: Broker, connection: Connection, login: Login, journal: JournalWait, output: Output
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._login = login
        self._journal = journal
        self._output = output
        self.blocked: Work | None = None
        self.deferred: deque[ProtocolEvent] = deque()
        self._octets = 0  # of deferred publishes
        self._channels: set[Channel | None] = set()  # those on which something is blocked or deferred
        self.unfinished: Work | None = None
        self.is_cut = False

    def clear(self) -> None:
        """The connection is over."""
        self.blocked = self.unfinished = None
        self.deferred.clear()
        self._channels.clear()
        self.is_cut = False

    # -- what is to be done before more is read ---------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """Whether something has to be done before anything else of the peer's is looked at."""
        return self.blocked is not None or self.unfinished is not None

    @property
    def is_committing(self) -> bool:
        """Whether a large commit is under way; the connection is flushed when it is done."""
        return type(self.unfinished) is CommitUnderWay and not self.unfinished.commit.is_done

    @property
    def has_more(self) -> bool:
        """Whether what was read is not all done: `turn.handle_bytes` is to be called again once others had turns."""
        if self.is_cut or (self.blocked is None and self.unfinished is None and self.deferred):
            return True
        return self.unfinished is not None and not self.is_committing

    def take_waiting(self) -> Work | None:
        """What the connection waits for, if it can be handled now."""
        if self.blocked is not None:
            return self._unblock()
        if self.is_committing:
            return None
        event, self.unfinished = self.unfinished, None
        return event

    # -- blocked publishes ------------------------------------------------------------------------------------------

    @property
    def must_wait(self) -> bool:
        """Whether a publish is blocked, and has to stay so."""
        return self.blocked is not None and self._refuses_publishes

    @property
    def _refuses_publishes(self) -> bool:
        return self._broker.alarm is not None or self._journal.is_refusing

    def block(self, event: Work) -> None:
        """This event waits, and what the peer sent after it, except what `passes`; as under RabbitMQ's alarms."""
        client = self._login.client
        assert client is not None
        if not client.is_blocked:
            reason = self._broker.alarm or "low on disk"
            logger.warning("%s: blocked: %r", self._login.peer.name, reason)
            client.is_blocked = True
            if "connection.blocked" in self._login.capabilities:
                self._output.send(0, commands.Connection.Blocked, reason)
        self.blocked = event
        self._channels.add(getattr(event, "channel", None))
        self._journal.notify()

    def passes(self, event: ProtocolEvent) -> bool:
        """Whether an event is handled while one before it is blocked: it settles deliveries, or has another channel."""
        if type(event) in _PUBLISHES or type(event) is ConnectionMethod:
            return self._connection.state is not RUNNING
        if type(event) is ChannelMethod and type(event.method) in _TRANSACTIONS:
            return False
        channel: Channel | None = getattr(event, "channel", None)
        if channel is None or channel not in self._channels:
            return True
        settles = type(event) is AcksReceived or (type(event) is ChannelMethod and type(event.method) in _SETTLING)
        return settles and channel.session.transaction is None

    def defer(self, event: ProtocolEvent) -> None:
        """Queue an event that does not pass."""
        self.deferred.append(event)
        self._note_deferred(event)

    def defer_rest(self, event: ProtocolEvent) -> None:
        """Queue the rest of the event that is being handled: it comes before all that is deferred."""
        self.deferred.appendleft(event)
        self._note_deferred(event)

    def _note_deferred(self, event: ProtocolEvent) -> None:
        self._channels.add(getattr(event, "channel", None))
        if isinstance(event, _PUBLISHES):
            self._octets += sum(map(len, event.blobs))

    @property
    def is_full(self) -> bool:
        """Whether so much is deferred that the peer is not read any more."""
        return self._octets > DEFERRED_OCTETS_MAX or len(self.deferred) >= DEFERRED_MAX

    @property
    def octets(self) -> int:
        """Octets of the deferred publishes."""
        return self._octets

    def take_deferred(self) -> ProtocolEvent:
        """The first event that was deferred; nothing is blocked any more."""
        event = self.deferred.popleft()
        if not self.deferred:
            self._octets = 0
            self._channels.clear()
        return event

    def _unblock(self) -> Work | None:
        """The event that was blocked, if it is accepted now."""
        event = self.blocked
        if event is None or self._refuses_publishes:
            return None
        client = self._login.client
        assert client is not None
        self.blocked = None
        client.is_blocked = False
        self._channels.clear()
        if "connection.blocked" in self._login.capabilities:
            self._output.send(0, commands.Connection.Unblocked)
        return event
