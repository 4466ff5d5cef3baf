"""The session of a connection: protocol events in, calls to the engine, answers out. All of it is synchronous.

It contains the parts of a connection, and handlers take it as an argument. The edge calls `handling.handle_bytes` with
each read and sends the result of `take_output`; all between is one turn. Source: behaviour page 1, 2.
"""

import base64
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from ...engine import Broker, Client, Clock, Deadlines, Envelope, VirtualHost
from ..ended import nothing
from ..flow.parked_channel import TurnEvent
from ..flow.parking import Parking
from ..flow.steps import ConnectionTurn, Step
from ..options import FrontendOptions
from ..peer.agreed_output import AgreedOutput
from ..peer.channel import Channel, CommitUnderWay
from ..peer.deliveries import render_returns
from ..peer.login import Login, Peer
from ..peer.output import Output
from ..wire.frames import Connection
from ..wire.large_output import Octets
from ..wire.peer_errors import InternalError, NoQueueDeclared
from .closing import Closing
from .confirming import AgreedConfirming, Confirming
from .heartbeat import Heartbeat
from .journal_wait import AgreedWait, JournalWait


class Unfinished(NamedTuple):
    """The rest of an event. `since_ns`: when it arrived (monotonic), if it was parked before; else None."""

    event: TurnEvent
    since_ns: int | None


class Backlog:
    """Unhandled input. `unfinished`: the rest of an event that exceeded its turn; later events are handled after it.

    `parking`: parked work.
    """

    __slots__ = ("parking", "unfinished")

    def __init__(self, parking: Parking) -> None:
        self.parking = parking
        self.unfinished: Unfinished | None = None

    def clear(self) -> None:
        """End with the connection: drop all of it."""
        self.unfinished = None
        self.parking.end()

    def leave(self, rest: TurnEvent, turn: ConnectionTurn) -> Step:
        """Leave the rest of the current event to another turn."""
        self.unfinished = Unfinished(rest, turn.since_ns)
        return Step.UNFINISHED

    @property
    def is_waiting(self) -> bool:
        """Whether work is parked or unfinished. Octets that a cut turn left in the frame reader do not count."""
        return bool(self.parking.channels) or self.unfinished is not None

    @property
    def is_committing(self) -> bool:
        """Whether a large commit is under way; the connection is flushed when it is done."""
        if self.unfinished is None:
            return False
        event = self.unfinished.event
        return type(event) is CommitUnderWay and not event.commit.is_done

    @property
    def has_more(self) -> bool:
        """Whether `handle_bytes` has to be called again, after other connections' turns, although no octets arrive:

        for unfinished or parked work that may continue, octets in the frame reader (`has_unread`), or the close.
        """
        if self.unfinished is not None:
            return not self.is_committing
        parking = self.parking
        return parking.has_unread or parking.next_ready() is not None or self.is_close_due

    @property
    def is_close_due(self) -> bool:
        """Whether the peer's connection.close had to wait and may be answered now."""
        parking = self.parking
        return parking.is_closing and self.unfinished is None and not parking.delays_close


def generated_name(prefix: str) -> str:
    """A unique name: `prefix` and 22 random characters."""
    return prefix + base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()


class AmqpSession:
    """The session of one connection, made of its parts."""

    #: Parts that the test broker replaces.
    confirming_type: type[Confirming] = Confirming
    closing_type: type[Closing] = Closing

    def __init__(
        self,
        broker: Broker,
        options: FrontendOptions,
        peer: Peer,
        on_output: Callable[[], None],
        *,
        clock: Clock | None = None,
        deadlines: Deadlines | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Args:

        on_output: called when another connection's turn, or a deadline, produced output.
        clock, deadlines: for heartbeats and timeouts, if they are not the broker's.
        connection: the frame reader, if it is not an ordinary one.
        """
        clock = clock or broker.context.clock
        deadlines = broker.context.deadlines if deadlines is None else deadlines
        self.broker = broker
        self.options = options
        self.connection = connection or Connection(max(options.incomplete_max, options.message_size_max))
        self.channel_max = options.channel_max
        self.login = Login(peer)
        self.output, self.journal, self.confirming = self._make_output(on_output)
        self.backlog = Backlog(Parking(broker, self.login, self.output))
        self.heartbeat = Heartbeat(clock, deadlines, self.output.wake, self._is_reading_paused)
        self.closing = self.closing_type(
            options,
            self.connection,
            self.login,
            self.output,
            self.confirming,
            self.backlog.parking,
            self.heartbeat,
            clock,
            deadlines,
        )
        self.output.on_session_failed = self.closing.session_failed
        self.backlog.parking.on_timeout = self.closing.expel

    def _make_output(self, wake: Callable[[], None]) -> tuple[Output, JournalWait, Confirming]:
        """The output, its wait for the journal, and the confirms."""
        broker, login, connection = self.broker, self.login, self.connection
        durability = broker.context.storage.durability
        if durability is None or not durability.delays_deliveries:
            output, journal = Output(login, connection, wake), JournalWait(broker, login)
            return output, journal, self.confirming_type(broker, journal, output)
        agreed = AgreedOutput(broker, login, connection, wake)
        wait = AgreedWait(broker, login, agreed)
        return agreed, wait, AgreedConfirming(broker, wait, agreed)

    # -- for the edge -----------------------------------------------------------------------------------------------

    def take_output(self) -> list[Octets]:
        """Remove and return the output that may be sent now, deliveries included, as octets in several parts."""
        journal = self.journal
        if journal.sync_lsn and self._must_wait():
            journal.flush_on_progress()
            return self.heartbeat.take_due()  # a heartbeat need not wait for the disk
        backlog = self.backlog
        if backlog.unfinished is not None or (backlog.parking.channels and backlog.parking.can_continue):
            journal.flush_on_progress()
        if self.confirming.channels:
            self.confirming.send_due()
        taken, heartbeat = self.output.take(), self.heartbeat
        if heartbeat.is_due and not taken:
            return heartbeat.take_due()
        if taken and heartbeat.interval_s:
            heartbeat.is_due = False
            heartbeat.sent_ns = heartbeat.now()
        return taken

    def _must_wait(self) -> bool:
        """Whether output has to wait for the journal. If that is lost: drop the output and close the connection."""
        journal = self.journal
        if journal.is_lost:
            journal.sync_lsn = 0
            self.output.clear()  # the peer must not get an answer that states success
            self.closing.refuse(InternalError(), None)
        return journal.is_waiting

    def output_sent(self) -> None:
        """The kernel took all output: consumers may get more, unless output waits for the journal.

        In a cluster it waits channel by channel: consumers may get more until too much of it waits.
        """
        client = self.login.client
        if client is not None and not self.journal.sync_lsn:
            client.unsent = waiting = self.output.waiting_octets
            if client.paused and not client.closed and waiting <= client.unsent_max:
                client.drained(waiting)

    def resign(self) -> None:
        """Drop all output, and send connection.close, because this node no longer leads."""
        self.detach()
        self.closing.resign()

    def detach(self) -> None:
        """The broker has ended: stop calling its engine, and drop all waiting input and output."""
        client = self.login.client
        if client is not None:
            client.flush = nothing
            client.on_expelled = client.on_send_after = None
            client.abandon()
            self.login.client = None
        self.journal.sync_lsn = 0
        self.journal.has_published = False
        self.confirming.channels.clear()
        self.backlog.clear()
        self.output.clear()

    def handle_end(self) -> None:
        """The connection has ended, for any reason: requeue, clean up. Idempotent."""
        self.closing.end()
        client = self.login.client
        if client is not None:
            client.close(failed=True)  # no effect if the peer closed it before
            client.flush = nothing
            client.on_expelled = client.on_send_after = None
        # No reference cycles remain, so memory is freed at once, without the garbage collector.
        self.output.end()
        self.backlog.clear()
        self.confirming.channels.clear()
        self.connection.channels.clear()

    def _is_reading_paused(self) -> bool:
        """Whether the peer is not read now, so that its heartbeats are not seen."""
        backlog = self.backlog
        parking = backlog.parking
        has_work = backlog.unfinished is not None or parking.is_full or parking.waits_for_alarm or parking.is_closing
        return has_work or self.journal.has_published

    # -- for handlers -----------------------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """The client of a connection that is open."""
        assert self.login.client is not None
        return self.login.client

    @property
    def vhost(self) -> VirtualHost:
        """The virtual host of a connection that is open."""
        assert self.login.vhost is not None
        return self.login.vhost

    #: Makes names for queues and consumers without a name.
    make_name = staticmethod(generated_name)

    def queue_name(self, channel: Channel, name: str) -> str:
        """Name of a method's queue; empty means the last one declared on the channel. Raises: NoQueueDeclared."""
        if name:
            return name
        if not channel.last_queue:
            raise NoQueueDeclared
        return channel.last_queue

    def send_returns(self, channel: Channel, returned: "list[tuple[Envelope, Any]]") -> None:
        """Send basic.return for mandatory messages that reached no queue."""
        for envelope, contents in returned:
            self.output.render()
            self.output.send_ahead(
                channel.number, *render_returns(channel.number, envelope, contents, self.connection.frame_max)
            )


#: Handler of an event: (session, event, turn) -> result.
EventHandler = Callable[[AmqpSession, Any, ConnectionTurn], Step]
#: Handler of a method: (session, channel, method) -> the rest for another turn, or None.
Handler = Callable[[AmqpSession, Channel, Any], TurnEvent | None]
