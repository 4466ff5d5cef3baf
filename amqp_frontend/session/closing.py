"""Refusals and ends of a connection: from an error to a close, the exchange of closes, and ends without one.

Source: behaviour page 0.3, 1.1, 1.7.
"""

import logging
from collections.abc import Callable

from pamqp import commands

from ...engine import Clock, Deadline, Deadlines, SessionFailed, due_after, errors
from ..ended import nothing
from ..flow.parking import Parking
from ..options import FrontendOptions
from ..peer.channel import Channel
from ..peer.login import Login
from ..peer.output import Output
from ..wire.events import NO_IDS
from ..wire.frames import Connection
from ..wire.peer_errors import BrokerStopping, ChannelTimedOut, NotLeading
from ..wire.replies import Scope, describe, reply_for, text_for_log
from ..wire.states import ChannelState, ChannelStep, ConnectionState, ConnectionStep
from .confirming import Confirming
from .heartbeat import Heartbeat

logger = logging.getLogger("leveret.amqp")

S = ConnectionState
_BEFORE_LOGIN = frozenset({S.HEADER, S.STARTING, S.TUNING})
OPEN = ChannelState.OPEN
STOPPING = BrokerStopping()
#: Maximum seconds in which a peer has to disconnect after a close; fewer with a shorter interval of heartbeats.
DISCONNECT_MAX_S = 30


class Closing:
    """Ends a connection. `finished`: close the socket when all output is sent; `abort`: at once, without a close.

    `on_login` is called at most once: the peer is logged in (True), or was refused but stays connected for a while
    (False).
    """

    def __init__(
        self,
        options: FrontendOptions,
        connection: Connection,
        login: Login,
        output: Output,
        confirming: Confirming,
        parking: Parking,
        heartbeat: Heartbeat,
        clock: Clock,
        deadlines: Deadlines,
    ) -> None:
        self._options = options
        self._connection = connection
        self._login = login
        self._output = output
        self._confirming = confirming
        self._parking = parking
        self._heartbeat = heartbeat
        self._clock = clock
        self._deadlines = deadlines
        self._timer: Deadline | None = None
        self.finished = False
        self.abort = False
        self._is_overdue = False  # the peer did not disconnect in time
        self.on_login: Callable[[bool], None] = nothing
        self._first_wait_ms = min(options.first_octet_timeout_ms, options.handshake_timeout_ms)
        self._set_timer(self._first_wait_ms, self._end_first_wait)

    @property
    def is_final(self) -> bool:
        """Whether to close the socket even if output is unsent."""
        return self.abort or self._is_overdue

    # -- refusals ---------------------------------------------------------------------------------------------------

    def refuse(self, error: Exception, channel: Channel | None, ids: tuple[int, int] = NO_IDS) -> None:
        """Answer an error by the table of replies; before the login most errors are not answered.

        ids: class and method id of the event that was being handled; ids of the error itself override them.
        """
        state = self._connection.state
        if state is S.REFUSED or state is S.CLOSED:
            return
        if state in _BEFORE_LOGIN and not self._is_answered_before_login(error):
            self.refuse_silently(describe(error))
            return
        if state is S.CLOSING:
            self._connection.skip_everything()  # the peer only has to disconnect, before the timer ends
            return
        reply = reply_for(error)
        class_id, method_id = (getattr(error, "ids", None) or ids) if reply.with_ids else NO_IDS
        if reply.scope is Scope.CHANNEL and channel is not None:
            self.close_channel(channel, reply.code, reply.text, class_id, method_id)
        else:
            text = text_for_log(error, reply.text)
            self.close_connection(reply.code, reply.text, class_id, method_id, log_text=text)

    def _is_answered_before_login(self, error: Exception) -> bool:
        """Whether an error before the login is answered: bad tuning, and a failed login if the peer understands the
        answer.
        """
        code = reply_for(error).code
        return code == 530 or (code == 403 and "authentication_failure_close" in self._login.capabilities)

    def refuse_silently(self, why: str) -> None:
        """Before the login: close the connection without an answer, after a delay. Source: behaviour page 1.1."""
        logger.warning("%s: refused before login: %r", self._login.peer.name, why[:200])
        self._connection.step(ConnectionStep.REFUSE)
        if self._options.refused_login_delay_ms:
            self._set_timer(self._options.refused_login_delay_ms, self._drop)
            self.on_login(False)
        else:
            self.abort = self.finished = True

    def session_failed(self, effect: SessionFailed) -> None:
        """Close the channel of a session that the engine has ended."""
        for channel in self._connection.channels.values():
            assert isinstance(channel, Channel)
            if channel.session is effect.session and channel.state is OPEN:
                error: Exception = effect.error
                if isinstance(error, errors.AcknowledgementTimedOut):
                    error = ChannelTimedOut(channel=channel.number, timeout_ms=error.timeout_ms)
                self.refuse(error, channel)
                return

    # -- closes -----------------------------------------------------------------------------------------------------

    def close_channel(self, channel: Channel, code: int, text: str, class_id: int, method_id: int) -> None:
        """Send channel.close: the channel's deliveries are requeued, and its later input is ignored."""
        logger.info("%s: channel %d closed: %d %r", self._login.peer.name, channel.number, code, text)
        self._confirming.send_due()  # publishes before the error were accepted
        channel.step(ChannelStep.CLOSE_SENT)
        self._connection.drop_content(channel)
        is_crossed = self._parking.drop(channel)
        channel.session.close(failed=True)
        self._output.send(channel.number, commands.Channel.Close, code, text, class_id, method_id)
        if is_crossed:
            self._output.send(channel.number, commands.Channel.CloseOk)
            channel.step(ChannelStep.CLOSE)

    def close_connection(
        self, code: int, text: str, class_id: int = 0, method_id: int = 0, *, log_text: str | None = None
    ) -> None:
        """Send connection.close: all deliveries are requeued before.

        log_text: the text for the log, if `text` must not be logged.
        """
        logger.warning("%s: connection closed: %d %r", self._login.peer.name, code, log_text or text)
        self._connection.step(ConnectionStep.CLOSE_SENT)
        self._end_client(failed=True)
        self._output.send(0, commands.Connection.Close, code, text, class_id, method_id)
        if self._parking.is_closing:  # the peer's close crossed the broker's
            self._parking.is_closing = False
            self._output.send(0, commands.Connection.CloseOk)
        self._set_timer(self._disconnect_ms(), self._hang_up)

    def answer_close(self) -> None:
        """Answer the peer's connection.close, after requeueing all deliveries; then the peer should disconnect."""
        self._parking.is_closing = False
        if self._confirming.channels:
            self._confirming.send_due()
        self._output.render()
        self._end_client(failed=False)
        self._connection.step(ConnectionStep.CLOSE)
        self._output.send(0, commands.Connection.CloseOk)
        self._set_timer(self._disconnect_ms(), self._hang_up)

    def resign(self) -> None:
        """Like `stop`, for a node that no longer leads; without timers, because their broker has ended."""
        self.stop(NotLeading())
        self._cancel_timers()

    def stop(self, error: BrokerStopping | NotLeading = STOPPING) -> None:
        """The broker is stopping: send connection.close, or close the socket if the peer would not understand it."""
        state = self._connection.state
        if state is S.RUNNING or state is S.OPENING:
            reply = reply_for(error)
            self.close_connection(reply.code, reply.text)
        elif state is not S.CLOSING:
            self.finished = True
        self._output.wake()

    def expel(self, error: Exception) -> None:
        """End the connection with this error, if it is running: for an operator or a timeout."""
        if self._connection.state is S.RUNNING:
            reply = reply_for(error)
            self.close_connection(reply.code, reply.text)
        self._output.wake()

    # -- without a close --------------------------------------------------------------------------------------------

    def give_up(self, why: str) -> None:
        """Close the socket at once: the peer is silent or too slow, or another connection needs its slot."""
        logger.warning("%s: %s", self._login.peer.name, why)
        self._drop()

    def _end_first_wait(self) -> None:
        """Part of the handshake's time is over: drop a silent peer, give any other one the rest of the time."""
        rest_ms = self._options.handshake_timeout_ms - self._first_wait_ms
        if rest_ms <= 0:
            self._handshake_timed_out()
        elif self._heartbeat.has_received:
            self._set_timer(rest_ms, self._handshake_timed_out)
        else:
            self.give_up(f"dropped: nothing came within {self._first_wait_ms} ms")

    def _handshake_timed_out(self) -> None:
        self.give_up("handshake timed out")

    def _drop(self) -> None:
        self.abort = self.finished = True
        self._output.wake()

    def _hang_up(self) -> None:
        self.finished = self._is_overdue = True
        self._output.wake()

    # -- timers -----------------------------------------------------------------------------------------------------

    def logged_in(self) -> None:
        """The peer has logged in and opened the connection: stop the timer of the handshake."""
        self._deadlines.cancel(self._timer)
        self._timer = None
        self.on_login(True)

    def end(self) -> None:
        """End with the connection, for any reason. Idempotent."""
        self.finished = True
        self._cancel_timers()
        self.on_login = nothing

    def _end_client(self, *, failed: bool) -> None:
        """Close the client. After a close no confirms are sent, and no notices of parked publishes."""
        self._cancel_timers()
        self._confirming.channels.clear()
        self._parking.end()
        client = self._login.client
        if client is not None:
            client.close(failed=failed)
            client.outbox.clear()

    def _cancel_timers(self) -> None:
        self._deadlines.cancel(self._timer)
        self._timer = None
        self._heartbeat.stop()

    def _disconnect_ms(self) -> int:
        return 1000 * (min(self._heartbeat.interval_s, DISCONNECT_MAX_S) or DISCONNECT_MAX_S)

    def _set_timer(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._deadlines.cancel(self._timer)
        self._timer = self._deadlines.set(due_after(self._clock, delay_ms), action)
