"""One turn: a read of the socket, handled to its end without waiting for anything.

Events and methods are looked up, not branched; there is one file for each family of methods.
Source: docs/architecture.md, "The path of a message".
"""

import logging
from functools import partial

from pamqp import commands

from ...engine import errors
from ..flow.parking import Work
from ..flow.steps import Quota, Step, Turn
from ..peer.channel import Channel, CommitUnderWay
from ..peer.output import REPLIES_MAX
from ..wire.codec import Method
from ..wire.events import (
    AcksReceived,
    ChannelMethod,
    ConnectionMethod,
    HeaderReceived,
    HeaderRejected,
    MixedReceived,
    PublishReceived,
)
from ..wire.layout import PROTOCOL_HEADER
from ..wire.peer_errors import InternalError, PeerError
from ..wire.states import ChannelState, ConnectionState
from .basic_methods import BASIC_HANDLERS
from .channel_methods import CHANNEL_HANDLERS, answer_commit, open_channel
from .connection_methods import CONNECTION_HANDLERS, header_received
from .publishing import must_wait_to_commit, published, published_late, published_mixed, published_mixed_late
from .session import AmqpSession, EventHandler, Handler
from .topology_methods import TOPOLOGY_HANDLERS

logger = logging.getLogger("leveret.amqp")

DONE, CUT, PARKED, UNFINISHED, STALLED, CLOSING = Step
#: Nothing else is handled in the turn; what was read may be.
_ENDS, _GOES_ON = (CUT, UNFINISHED), (DONE, PARKED)

#: The least cost of a method, and of a run of acknowledgements, by the measure of `Effort`.
METHOD_COST, TOPOLOGY_COST, ACKS_COST = 16, 48, 4
HANDLERS: dict[type[Method], Handler] = {**CHANNEL_HANDLERS, **TOPOLOGY_HANDLERS, **BASIC_HANDLERS}


def handle_bytes(session: AmqpSession, data: bytes) -> Step:
    """Handle one read. Afterwards the broker's turn is to be ended and the output sent.

    Returns: DONE, or why a part of what was read is not handled yet: call again with no octets once others had turns
    and something can go on (`Backlog.has_more`); if STALLED, once the peer has taken its answers.
    """
    session.heartbeat.has_received = True
    session.connection.receive_bytes(data)
    backlog = session.backlog
    backlog.parking.has_unread = False
    backlog.step = step = Step.UNFINISHED
    if backlog.is_committing:
        return step
    turn = Turn(session.broker)
    while True:
        try:
            step = _go_through(session, turn)
            break
        except PeerError as error:
            session.closing.refuse(error, None)
        except Exception:
            _fail(session)
        if session.connection.state is not ConnectionState.CLOSING:
            step = CLOSING  # refused: what follows is ignored
            break
    backlog.step = step
    if session.confirming.channels:
        session.confirming.send_due()
    return step


def _go_through(session: AmqpSession, turn: Turn) -> Step:
    """Handle what the last turn left, then what is held and may go on, then what was read."""
    backlog = session.backlog
    parking, unfinished = backlog.parking, backlog.unfinished
    step = DONE
    if unfinished is not None:
        backlog.unfinished, turn.since_ns = None, unfinished.since_ns
        step = _handle_late(session, unfinished.event, turn)
        turn.since_ns = None
    if parking.channels and step not in _ENDS:
        step = _run_held(session, turn)
    if parking.is_closing and backlog.is_goodbye_due:
        session.closing.say_goodbye()
        return CLOSING
    if step in _ENDS:
        return step
    if not parking.channels:
        step = _run(session, turn)
    if parking.channels and step in _GOES_ON:
        step = _run(session, turn)
    return step


def _run(session: AmqpSession, turn: Turn) -> Step:
    """Handle what was read, until something has to be done before more is handled, or the turn is long.

    While something is held, what may not pass that is held behind it, up to a maximum.
    """
    broker, closing, output, parking = session.broker, session.closing, session.output, session.backlog.parking
    parked, effort_max = parking.channels, turn.effort_max
    is_beside = bool(parked)
    if is_beside and (parking.is_full or closing.finished or output.is_stalled):
        return PARKED
    for event in session.connection.events():
        if is_beside and parking.queues(event, turn):
            step = PARKED
        else:
            try:
                step = EVENT_HANDLERS[type(event)](session, event, turn)
            except (errors.EngineError, PeerError) as error:
                step = DONE
                closing.refuse(error, getattr(event, "channel", None), event.ids)
        if closing.finished or step is CLOSING:
            return CLOSING
        if step is UNFINISHED:
            return UNFINISHED
        if output.reply_size > REPLIES_MAX:
            return STALLED  # what was not looked at stays in the connection's buffer
        if parked and (not is_beside or parking.is_full):
            return PARKED
        if broker.context.effort.spent >= effort_max:
            return CUT
    return PARKED if parked else DONE


def _run_held(session: AmqpSession, turn: Turn, only: Channel | None = None) -> Step:
    """Handle what is held and may go on, channel by channel or on one alone, until the turn is long."""
    parking = session.backlog.parking
    while not turn.is_over and (parked := parking.next_ready(only)) is not None:
        step = _handle_late(session, parking.take(parked, turn), turn)
        parking.taken(parked, turn)
        if step in _ENDS:
            return step
    return DONE


def _handle_late(session: AmqpSession, event: Work, turn: Turn) -> Step:
    """Handle an event that had to wait, if it still matters: its channel, or the connection, may have ended."""
    channel = getattr(event, "channel", None)
    step = DONE
    is_running = session.connection.state is ConnectionState.RUNNING
    if is_running and (channel is None or channel.state is ChannelState.OPEN):
        try:
            step = (LATE_HANDLERS.get(type(event)) or EVENT_HANDLERS[type(event)])(session, event, turn)
        except (errors.EngineError, PeerError) as error:
            session.closing.refuse(error, channel, event.ids)
    return CUT if turn.is_long and step is not UNFINISHED else step


def _go_on(session: AmqpSession, channel: Channel, quota: Quota | None) -> None:
    """At the end of another connection's turn: handle what is held on one channel, as far as it may go on."""
    backlog = session.backlog
    if backlog.unfinished is None:
        try:
            if _run_held(session, Turn(session.broker, quota), channel) is CUT:
                backlog.step = CUT
        except Exception:
            _fail(session)
        if session.confirming.channels:
            session.confirming.send_due()
    session.output.wake()  # what was not done is for the connection's own turn


def _fail(session: AmqpSession) -> None:
    """Our own fault: the close says so, other connections go on, the log gets the traceback."""
    logger.exception("%s: internal error", session.login.peer.name)
    session.closing.refuse(InternalError(), None)


#: How other protocols begin that are sent here by mistake -> what the log adds.
_OTHER_PROTOCOLS = (
    (b"\x16", ": the peer speaks TLS, but this port does not"),
    (b"PROXY", ": a PROXY header, but the peer is not in broker.proxy-protocol-from"),
    (b"\r\n\r\n\0", ": a PROXY header, but the peer is not in broker.proxy-protocol-from"),
    (b"AMQP\0\1", ": AMQP 1.0"),
    (b"AMQP\3\1", ": AMQP 1.0"),
)


def _header_rejected(session: AmqpSession, event: HeaderRejected, turn: Turn) -> Step:
    note = next((what for start, what in _OTHER_PROTOCOLS if event.octets.startswith(start)), "")
    logger.warning("%s: refused: the protocol header is not that of AMQP 0-9-1%s", session.login.peer.name, note)
    session.output.send_raw(PROTOCOL_HEADER)
    session.closing.finished = True
    return CLOSING


def _acked(session: AmqpSession, event: AcksReceived, turn: Turn) -> Step:
    session.journal.has_acted = True
    session.broker.context.effort.spent += ACKS_COST
    assert isinstance(event.channel, Channel)
    engine_session = event.channel.session
    if event.tags:
        engine_session.ack_each(event.tags)
    if event.up_to:
        engine_session.ack_up_to(event.up_to)
    return DONE


def _channel_method(session: AmqpSession, event: ChannelMethod, turn: Turn) -> Step:
    session.broker.context.effort.spent += TOPOLOGY_COST if type(event.method) in ANSWERED_WHEN_SAFE else METHOD_COST
    channel = event.channel
    if channel is None:
        open_channel(session, event.number)
        session.backlog.parking.go_on = partial(_go_on, session)
        return DONE
    assert isinstance(channel, Channel)
    if type(event.method) is commands.Tx.Commit and must_wait_to_commit(session, event, channel, turn):
        return PARKED
    durability, journal = session.broker.context.storage.durability, session.journal
    if durability is None or type(event.method) not in ANSWERED_WHEN_SAFE:
        journal.has_acted = True
        rest = HANDLERS[type(event.method)](session, channel, event.method)
        return DONE if rest is None else session.backlog.leave(rest, turn)
    durability.take_sync_lsn()  # what was recorded before, for others, does not delay this answer
    rest = HANDLERS[type(event.method)](session, channel, event.method)
    sync_lsn = durability.take_sync_lsn()
    if not sync_lsn and journal.has_acted and getattr(event.method, "durable", True):
        sync_lsn = durability.sync_lsn_of_all()  # the answer also says that what this peer did before is safe
    if sync_lsn:
        journal.has_acted = journal.has_published = False
        journal.send_answer_after(sync_lsn)
    return DONE if rest is None else session.backlog.leave(rest, turn)


#: Their answers wait until what they did is in the journal, and what the peer did before (docs/journal-format.md, "The
#: crash model"); except for a transient queue or exchange: reply queues are many, and do not survive anyway.
ANSWERED_WHEN_SAFE = frozenset(
    {
        commands.Exchange.Declare,
        commands.Exchange.Delete,
        commands.Exchange.Bind,
        commands.Exchange.Unbind,
        commands.Queue.Declare,
        commands.Queue.Delete,
        commands.Queue.Bind,
        commands.Queue.Unbind,
        commands.Queue.Purge,
    }
)


def _commit_done(session: AmqpSession, event: CommitUnderWay, turn: Turn) -> Step:
    answer_commit(session, event)
    return DONE


def _connection_method(session: AmqpSession, event: ConnectionMethod, turn: Turn) -> Step:
    return CONNECTION_HANDLERS[type(event.method)](session, event.method) or DONE


EVENT_HANDLERS: dict[type, EventHandler] = {
    PublishReceived: published,
    MixedReceived: published_mixed,
    AcksReceived: _acked,
    ChannelMethod: _channel_method,
    CommitUnderWay: _commit_done,
    ConnectionMethod: _connection_method,
    HeaderReceived: header_received,
    HeaderRejected: _header_rejected,
}
#: Those of what was held, where they are others.
LATE_HANDLERS: dict[type, EventHandler] = {PublishReceived: published_late, MixedReceived: published_mixed_late}
