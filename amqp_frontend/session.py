"""A connection's session: protocol events in, calls to the engine, answers out. Synchronous from end to end.

This is what handlers share: the engine's client, output, refusals, goodbyes, heartbeats. The server feeds `turn` with
each read and sends what `take_output` gives; everything between happens inside one turn.
Source: behaviour page 1, 2.
"""

import base64
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from pamqp import commands

from ..engine import (
    UNTIL_STATED,
    Broker,
    Client,
    Clock,
    ConsumerCancelled,
    Deadline,
    Deadlines,
    Delivered,
    Envelope,
    ServiceExchange,
    SessionFailed,
    User,
    VirtualHost,
    due_after,
    errors,
)
from .channel import Channel, CommitUnderWay, Routes
from .codec import Method, encode_method
from .connection import Connection
from .deliveries import render_cancel, render_delivered, render_returns
from .options import FrontendOptions
from .peer_errors import BrokerStopping, ChannelTimedOut, InternalError, NoQueueDeclared
from .protocol_events import (
    NO_IDS,
    AcksReceived,
    ChannelMethod,
    ConnectionMethod,
    ProtocolEvent,
    PublishReceived,
)
from .replies import Scope, describe, reply_for, text_for_log
from .sasl import Peer
from .states import ChannelState, ChannelStep, ConnectionState, ConnectionStep
from .wire import ACK_FRAME, FRAME_END, HEARTBEAT_FRAME, METHOD

logger = logging.getLogger("leveret.amqp")

_HEADER, STARTING, SECURING, TUNING, OPENING, RUNNING, CLOSING, CLOSED, REFUSED = ConnectionState
_BEFORE_LOGIN = frozenset({_HEADER, STARTING, SECURING, TUNING})
OPEN = ChannelState.OPEN

BASIC_ACK = 60 << 16 | 80
BASIC_NACK = 60 << 16 | 120
#: Replies (not deliveries, which the engine bounds) that may wait unsent before the connection is not read further.
REPLIES_MAX = 4 * 1024 * 1024
#: Events, and octets of publishes, that are held for a blocked connection before it is not read further.
HELD_MAX = 512
HELD_OCTETS_MAX = 1024 * 1024
#: What passes a publish that waits, on its own channel as well.
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
_TRANSACTIONS = frozenset({commands.Tx.Select, commands.Tx.Commit, commands.Tx.Rollback})
#: How long a peer may take to hang up after the goodbyes.
GOODBYE_MAX_S = 30


#: What a turn handles: what the reader yields, and what is left of a large commit.
Work = ProtocolEvent | CommitUnderWay


def generated_name(prefix: str) -> str:
    """A name that nobody else has: `prefix` and 22 random characters."""
    return prefix + base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()


class AmqpSession:
    """One connection. `on_output` is called when somebody else's turn, or a deadline, left something to send."""

    def __init__(
        self,
        broker: Broker,
        options: FrontendOptions,
        peer: Peer,
        on_output: Callable[[], None],
        *,
        clock: Clock | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        """`clock` and `deadlines`: for heartbeats and time limits, where they are not the broker's."""
        self.broker = broker
        self.clock = clock or broker.clock
        self.deadlines = broker.deadlines if deadlines is None else deadlines
        self.options = options
        self.peer = peer
        self.on_output = on_output
        #: Told once: whether the peer got in, or was refused and is kept for a while.
        self.on_login: Callable[[bool], None] = _ignore
        self.connection = Connection(max(options.incomplete_max, options.message_size_max))
        self.routes: Routes = {}
        self.user: User | None = None
        self.client: Client | None = None
        self.vhost: VirtualHost | None = None  # where the client is
        self.client_properties: dict[str, Any] = {}
        self.capabilities: frozenset[str] = frozenset()
        self.channel_max = options.channel_max
        self.heartbeat_s = 0
        self.login_mechanism = ""
        #: The socket is to be closed once everything is sent; `abort`: at once, without a goodbye.
        self.finished = False
        self.abort = False
        self.reply_size = 0
        self._out: list[bytes] = []
        self._held_until = 0  # LSN
        self.asked: ServiceExchange | None = None  # in this turn
        self.confirming: dict[Channel, None] = {}
        #: A publish or commit that waits until the journal takes it; nothing behind it is read.
        self.blocked_event: Work | None = None
        #: What came behind it and may not pass, in order; see `passes`.
        self.held: deque[ProtocolEvent] = deque()
        self._held_octets = 0
        self._held_channels: set[Channel | None] = set()
        #: What is left of an event that is too much for one turn; nothing behind it is read, either.
        self.unfinished: Work | None = None
        #: The turn ended before all that had been read was handled: the broker's `spread` had come to the limit.
        self.is_cut = False
        self.spread_max = 0
        #: It published in this turn, so that it has to wait where the journal cannot keep up.
        self.has_published = False
        #: It did something that the journal may not have yet, since an answer waited for that.
        self.has_acted = False
        self._timer: Deadline | None = None
        self._heartbeat: Deadline | None = None
        self._sent_since_tick = False
        self._received_since_tick = False
        self._idle_ticks = 0
        self._set_timer(options.handshake_timeout_ms, self._handshake_timed_out)

    # -- the turn ---------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Take one read; `turn.handle_bytes` goes on from here."""
        self._received_since_tick = True
        self.connection.receive_bytes(data)

    def handle_end(self) -> None:
        """The peer is gone, in whatever way: requeue, clean up. Idempotent."""
        self.finished = True
        self._cancel_timers()
        if self.client is not None:
            self.client.close(failed=True)  # unless it was closed before, by its own wish
            self.client.flush = _nothing
            self.client.on_expelled = None
        # No cycles are left behind: memory comes back at once, without waiting for the collector.
        self._out.clear()
        self.blocked_event = self.unfinished = None
        self.held.clear()
        self._held_channels.clear()
        self.is_cut = False
        self.confirming.clear()
        self.connection.channels.clear()
        self.on_output = _nothing
        self.on_login = _ignore

    def take_output(self) -> list[bytes]:
        """Everything to send now, in parts; deliveries included."""
        if self.asked is not None:
            self.hold_output(max(self._held_until, self.asked.barrier))
            self.asked = None
        if self._held_until and self._is_held:
            self._await()
            return []
        if self.is_held_up:
            self._await()
        if self.confirming:
            self.confirm()
        self.render()
        self.reply_size = 0
        if self._out:
            self._sent_since_tick = True
        taken, self._out = self._out, []
        return taken

    def output_sent(self) -> None:
        """All of what was taken is with the kernel: consumers may get more."""
        if self.client is not None and not self.client.closed:
            self.client.drained()

    @property
    def has_output(self) -> bool:
        """Whether `take_output` would give anything."""
        return bool(self._out) or (self.client is not None and bool(self.client.outbox))

    @property
    def is_stalled(self) -> bool:
        """Whether so many answers wait unsent that no more requests should be read."""
        return self.reply_size > REPLIES_MAX

    # -- what is left to do --------------------------------------------------------------------------------------------

    @property
    def is_held_up(self) -> bool:
        """Whether something has to be done before more is looked at of what the peer sent."""
        return self.blocked_event is not None or self.unfinished is not None

    def take_waiting(self) -> Work | None:
        """What holds the connection up, if it may go on now."""
        if self.blocked_event is not None:
            return self.unblock()
        if self.is_committing:
            return None
        event, self.unfinished = self.unfinished, None
        return event

    @property
    def is_committing(self) -> bool:
        """Whether a large commit is under way; the connection is flushed when it is done."""
        return type(self.unfinished) is CommitUnderWay and not self.unfinished.commit.is_done

    @property
    def has_more(self) -> bool:
        """Whether what was read is not all done: `turn.handle_bytes` is to be called again once others had turns."""
        if self.is_cut or (self.blocked_event is None and self.unfinished is None and self.held):
            return True
        return self.unfinished is not None and not self.is_committing

    # -- waiting for room ---------------------------------------------------------------------------------------------

    @property
    def refuses_publishes(self) -> bool:
        """Whether an operator's alarm is on, or the journal takes nothing persistent."""
        return self.broker.alarm is not None or self.journal_refuses

    @property
    def must_wait(self) -> bool:
        """Whether a publish waits, and still has to."""
        return self.blocked_event is not None and self.refuses_publishes

    @property
    def journal_refuses(self) -> bool:
        """Whether nothing persistent is taken now: the disk is full, or has failed."""
        durability = self.broker.durability
        return durability is not None and durability.has_failed

    @property
    def is_ahead(self) -> bool:
        """Whether it publishes faster than the journal writes: it is not read until that has caught up."""
        durability = self.broker.durability
        if not self.has_published:
            return False
        self.has_acted = True
        if durability is None or not durability.is_congested:
            self.has_published = False
            return False
        self._await()
        return True

    def block(self, event: Work) -> None:
        """This event waits, and with it what the peer sent after it, but for what `passes`; as under RabbitMQ's alarms.

        Source: behaviour page 1.9.
        """
        assert self.client is not None
        if not self.client.is_blocked:
            reason = self.broker.alarm or "low on disk"
            logger.warning("%s: blocked: %r", self.peer.name, reason)
            self.client.is_blocked = True
            if "connection.blocked" in self.capabilities:
                self.send(0, commands.Connection.Blocked, reason)
        self.blocked_event = event
        self._held_channels.add(getattr(event, "channel", None))
        self._await()

    def passes(self, event: ProtocolEvent) -> bool:
        """Whether an event is handled while one before it waits: what settles deliveries, or is of another channel.

        Source: ruling 15; queues page E.5.
        """
        if type(event) is PublishReceived or type(event) is ConnectionMethod:
            return self.connection.state is not RUNNING
        if type(event) is ChannelMethod and type(event.method) in _TRANSACTIONS:
            return False
        channel: Channel | None = getattr(event, "channel", None)
        if channel is None or channel not in self._held_channels:
            return True
        settles = type(event) is AcksReceived or (type(event) is ChannelMethod and type(event.method) in _SETTLING)
        return settles and channel.session.transaction is None

    def hold(self, event: ProtocolEvent) -> None:
        """An event that does not pass."""
        self.held.append(event)
        self._held_channels.add(getattr(event, "channel", None))
        if type(event) is PublishReceived:
            self._held_octets += sum(map(len, event.blobs))

    @property
    def is_hold_full(self) -> bool:
        """Whether so much is held that the peer is not read any more."""
        return self._held_octets > HELD_OCTETS_MAX or len(self.held) >= HELD_MAX

    def take_held(self) -> ProtocolEvent:
        """The first event that was held; nothing is blocked any more."""
        event = self.held.popleft()
        if not self.held:
            self._held_octets = 0
        return event

    def unblock(self) -> Work | None:
        """The event that waited, if it may go on now."""
        event = self.blocked_event
        if event is None or self.refuses_publishes:
            return None
        assert self.client is not None
        self.blocked_event = None
        self.client.is_blocked = False
        self._held_channels.clear()
        if "connection.blocked" in self.capabilities:
            self.send(0, commands.Connection.Unblocked)
        return event

    @property
    def is_logged_in(self) -> bool:
        """Whether the connection is past its handshake."""
        return self.client is not None

    # -- output -----------------------------------------------------------------------------------------------------

    def send(self, number: int, method: type[Method], *values: object) -> None:
        """Answer with a method. Deliveries of this turn go out first, so that order is kept."""
        if self.client is not None and self.client.outbox:
            self.render()
        raw = encode_method(number, method, *values)
        self.reply_size += len(raw)
        self._out.append(raw)

    def send_raw(self, *parts: bytes) -> None:
        """Append octets that are whole frames."""
        self._out += parts
        self.reply_size += sum(map(len, parts))

    def render(self) -> None:
        """Turn the engine's effects for this connection into octets."""
        client = self.client
        if client is None or not client.outbox:
            return
        out = self._out
        frame_max = self.connection.frame_max
        for effect in client.take_outbox():
            if type(effect) is Delivered:
                out += render_delivered(effect, frame_max)
            elif type(effect) is SessionFailed:
                self._session_failed(effect)
            elif type(effect) is ConsumerCancelled and "consumer_cancel_notify" in self.capabilities:
                wire = effect.consumer.opaque
                out.append(render_cancel(wire.number, effect.consumer.tag))  # type: ignore[attr-defined]

    def _session_failed(self, effect: SessionFailed) -> None:
        """The engine ended a session: its channel closes."""
        for channel in self.connection.channels.values():
            assert isinstance(channel, Channel)
            if channel.session is effect.session and channel.state is OPEN:
                error: Exception = effect.error
                if isinstance(error, errors.AcknowledgementTimedOut):
                    error = ChannelTimedOut(channel=channel.number, timeout_ms=error.timeout_ms)
                self.refuse(error, channel)
                return

    def confirm(self) -> None:
        """One basic.ack for all that a channel published in this turn; basic.nack for what a queue refused."""
        durability = self.broker.durability
        safe_lsn = 0 if durability is None else durability.safe_lsn
        has_failed = durability is not None and durability.has_failed
        waiting: dict[Channel, None] = {}
        for channel in self.confirming:
            confirms = channel.session.confirms
            if confirms is not None and channel.state is OPEN:
                if has_failed:
                    confirms.refuse_waiting()
                self.send_confirms(channel, confirms.take(safe_lsn))
                if confirms.is_waiting:
                    waiting[channel] = None
        self.confirming = waiting
        if waiting:
            self._await()

    def _await(self) -> None:
        """Hear more when the journal got on."""
        if self.client is not None:
            self.broker.awaiting[self.client] = None

    def hold_output(self, barrier: int) -> None:
        """What was done must be safe before the peer hears of it: an answer to a durable declaration, a commit."""
        self._held_until = barrier

    @property
    def _is_held(self) -> bool:
        durability = self.broker.durability
        if not self._held_until or durability is None:
            return False
        if durability.is_lost:
            self._held_until = 0
            self._out.clear()  # nobody hears that it was done
            self.refuse(InternalError(), None)
            return False
        if not durability.is_behind if self._held_until == UNTIL_STATED else self._held_until <= durability.safe_lsn:
            self._held_until = 0
        return bool(self._held_until)

    def send_confirms(self, channel: Channel, taken: "list[tuple[int, bool, bool]]") -> None:
        """Confirms as (tag, multiple, is_ack)."""
        for tag, multiple, is_ack in taken:
            index = BASIC_ACK if is_ack else BASIC_NACK
            self.send_raw(ACK_FRAME.pack(METHOD, channel.number, 13, index, tag, multiple, FRAME_END))

    # -- refusals and ends ------------------------------------------------------------------------------------------

    def refuse(self, error: Exception, channel: Channel | None, ids: tuple[int, int] = NO_IDS) -> None:
        """Answer an error as the table says; before the login, with silence.

        ids: class and method id of what was being handled; an error that has ids of its own is answered with those.
        """
        state = self.connection.state
        if state is REFUSED or state is CLOSED:
            return
        if state in _BEFORE_LOGIN and not self._may_be_told(error):
            self.refuse_silently(describe(error))
            return
        if state is CLOSING:
            self.connection.skip_everything()  # only its hanging up still counts, or our patience
            return
        reply = reply_for(error)
        class_id, method_id = (getattr(error, "ids", None) or ids) if reply.with_ids else NO_IDS
        if reply.scope is Scope.CHANNEL and channel is not None:
            self.close_channel(channel, reply.code, reply.text, class_id, method_id)
        else:
            text = text_for_log(error, reply.text)
            self.close_connection(reply.code, reply.text, class_id, method_id, log_text=text)

    def _may_be_told(self, error: Exception) -> bool:
        """Of errors before the login, those that the peer is told: a failed login if it wants to know, bad tuning."""
        code = reply_for(error).code
        return code == 530 or (code == 403 and "authentication_failure_close" in self.capabilities)

    def close_channel(self, channel: Channel, code: int, text: str, class_id: int, method_id: int) -> None:
        """Server-side channel.close: its work is given back, what still comes for it is ignored."""
        logger.info("%s: channel %d closed: %d %r", self.peer.name, channel.number, code, text)
        self.confirm()  # what stood before the error was taken care of
        channel.step(ChannelStep.CLOSE_SENT)
        self.connection.drop_content(channel)
        channel.session.close(failed=True)
        self.send(channel.number, commands.Channel.Close, code, text, class_id, method_id)

    def close_connection(
        self, code: int, text: str, class_id: int = 0, method_id: int = 0, *, log_text: str | None = None
    ) -> None:
        """Server-side connection.close: everything is given back before the close leaves.

        `log_text`: for the log, where it may not have the text.
        """
        logger.warning("%s: connection closed: %d %r", self.peer.name, code, log_text or text)
        self.connection.step(ConnectionStep.CLOSE_SENT)
        self.confirming.clear()
        self._end_client(failed=True)
        self.send(0, commands.Connection.Close, code, text, class_id, method_id)
        self._set_timer(self._goodbye_ms(), self._hang_up)

    def stop(self) -> None:
        """The broker is stopping: say so, or just go if there is nobody to tell."""
        if self.connection.state is RUNNING or self.connection.state is OPENING:
            reply = reply_for(BrokerStopping())
            self.close_connection(reply.code, reply.text)
        elif self.connection.state is not CLOSING:
            self.finished = True
        self.on_output()

    def expel(self, error: Exception) -> None:
        """An operator ends the connection."""
        if self.connection.state is RUNNING:
            reply = reply_for(error)
            self.close_connection(reply.code, reply.text)
        self.on_output()

    def refuse_silently(self, why: str) -> None:
        """Not logged in and in error: say nothing, hang up after a while. Source: behaviour page 1.1."""
        logger.warning("%s: refused before login: %r", self.peer.name, why[:200])
        self.connection.step(ConnectionStep.REFUSE)
        if self.options.refused_login_delay_ms:
            self._set_timer(self.options.refused_login_delay_ms, self._drop)
            self.on_login(False)
        else:
            self.abort = self.finished = True

    def say_goodbye(self) -> None:
        """The peer closed: everything is given back before it hears so; then it should hang up."""
        self.confirm()
        self.render()
        self._end_client(failed=False)
        self.connection.step(ConnectionStep.CLOSE)
        self.send(0, commands.Connection.CloseOk)
        self._set_timer(self._goodbye_ms(), self._hang_up)

    def _end_client(self, *, failed: bool) -> None:
        self._cancel_timers()
        if self.client is not None:
            self.client.close(failed=failed)
            self.client.outbox.clear()

    def _goodbye_ms(self) -> int:
        return 1000 * (min(self.heartbeat_s, GOODBYE_MAX_S) or GOODBYE_MAX_S)

    # -- time -------------------------------------------------------------------------------------------------------

    def _set_timer(self, delay_ms: int, action: Callable[[], None]) -> None:
        deadlines = self.deadlines
        deadlines.cancel(self._timer)
        self._timer = deadlines.set(due_after(self.clock, delay_ms), action)

    def _cancel_timers(self) -> None:
        self.deadlines.cancel(self._timer)
        self.deadlines.cancel(self._heartbeat)
        self._timer = self._heartbeat = None

    def _handshake_timed_out(self) -> None:
        logger.warning("%s: handshake timed out", self.peer.name)
        self._drop()

    def drop(self, why: str) -> None:
        """It is in somebody's way: hang up without a word to it."""
        logger.warning("%s: dropped: %s", self.peer.name, why)
        self._drop()

    def _drop(self) -> None:
        self.abort = self.finished = True
        self.on_output()

    def _hang_up(self) -> None:
        self.finished = True
        self.on_output()

    def start_heartbeats(self, interval_s: int) -> None:
        """Tick twice an interval, from now on. Source: behaviour page 1.8."""
        self.heartbeat_s = interval_s
        if interval_s:
            self._next_tick()

    def _next_tick(self) -> None:
        due_ns = self.clock.monotonic_ns() + self.heartbeat_s * 500_000_000
        self._heartbeat = self.deadlines.set(due_ns, self._tick)

    def _tick(self) -> None:
        """Send a heartbeat if nothing else went out; give up on a peer silent for two to three intervals."""
        # Who is not read is not silent.
        is_heard = self._received_since_tick or self.is_held_up or self.has_published
        self._idle_ticks = 0 if is_heard else self._idle_ticks + 1
        self._received_since_tick = False
        if self._idle_ticks >= 5:
            logger.warning("%s: missed heartbeats, interval %d s", self.peer.name, self.heartbeat_s)
            self._heartbeat = None
            self._drop()
            return
        if not self._sent_since_tick:
            self._out.append(HEARTBEAT_FRAME)
            self.on_output()
        self._sent_since_tick = False
        self._next_tick()

    # -- what handlers share ----------------------------------------------------------------------------------------

    def logged_in(self) -> None:
        """The handshake is over: its timer goes."""
        self.deadlines.cancel(self._timer)
        self._timer = None
        self.on_login(True)

    def open_channel(self, number: int) -> Channel:
        """A new channel with a session of the engine's."""
        assert self.client is not None
        channel = Channel(
            number,
            self.client.open_session(number),
            self.connection.memory,
            self.routes,
            frame_max=self.connection.frame_max,
            message_size_max=self.options.message_size_max,
        )
        self.connection.channels[number] = channel
        return channel

    #: Names for queues and consumers that were not given any.
    make_name = staticmethod(generated_name)

    def queue_name(self, channel: Channel, name: str) -> str:
        """The queue that a method means: an empty name is the last one declared. Raises: NoQueueDeclared."""
        if name:
            return name
        if not channel.last_queue:
            raise NoQueueDeclared
        return channel.last_queue

    def send_returns(self, channel: Channel, returned: "list[tuple[Envelope, Any]]") -> None:
        """basic.return for mandatory messages that nobody took."""
        for envelope, blobs in returned:
            self.render()
            self.send_raw(*render_returns(channel.number, envelope, blobs, self.connection.frame_max))


def _nothing() -> None:
    """What there is to do for a connection that is over."""


def _ignore(_: bool) -> None:
    """As `_nothing`."""


#: What handles a method: (session, channel, method) -> None.
Handler = Callable[[AmqpSession, Channel, Any], None]
