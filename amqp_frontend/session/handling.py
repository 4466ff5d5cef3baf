"""One turn: handles one read of the socket without waiting.

Tables map events and methods to handlers; each family of methods has a file. Source: docs/architecture.md, "The path of
a message".
"""

import logging
from functools import partial

from pamqp import commands

from ...engine import errors
from ..flow.parked_channel import TurnEvent
from ..flow.steps import ConnectionTurn, Quota, Step
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
from .publishing import park_commit_if_it_must_wait, published, published_late, published_mixed, published_mixed_late
from .session import AmqpSession, EventHandler, Handler
from .topology_methods import TOPOLOGY_HANDLERS

logger = logging.getLogger("leveret.amqp")

DONE, CUT, PARKED, UNFINISHED, STALLED, CLOSING = Step
#: Steps of work from earlier turns after which the turn ends, as after STALLED and CLOSING, which only new input gives;
#: and steps after which new input may be handled.
_ENDING, _CONTINUING = (CUT, UNFINISHED), (DONE, PARKED)

#: Minimum effort of a method, of a method on the topology, and of a run of acknowledgements.
METHOD_COST, TOPOLOGY_COST, ACKS_COST = 16, 48, 4
HANDLERS: dict[type[Method], Handler] = {**CHANNEL_HANDLERS, **TOPOLOGY_HANDLERS, **BASIC_HANDLERS}


def handle_bytes(session: AmqpSession, data: bytes) -> Step:
    """Handle one read. Then the caller has to end the broker's turn and send the output.

    Returns: DONE, or the reason why some input is not handled yet. Then call it again without octets: after STALLED
        when the peer has taken its answers, else after other connections' turns if `Backlog.has_more`.
    """
    turn = ConnectionTurn(session.broker)
    session.broker.begin_turn(turn)
    # Also without octets: the call handles what the peer sent before.
    session.heartbeat.has_received = True
    session.connection.receive_bytes(data)
    backlog = session.backlog
    backlog.parking.has_unread = False
    if backlog.is_committing:
        return UNFINISHED
    while True:
        try:
            step = _handle_input(session, turn)
            break
        except PeerError as error:
            session.closing.refuse(error, None)
        except Exception:
            _fail(session)
        # In the state CLOSING the peer's close-ok may be in the same read, so the rest of it is handled.
        if session.connection.state is not ConnectionState.CLOSING:
            step = CLOSING  # refused: later input is ignored
            break
    if step is CUT:
        backlog.parking.has_unread = True
    if session.confirming.channels:
        session.confirming.send_due()
    return step


def _handle_input(session: AmqpSession, turn: ConnectionTurn) -> Step:
    """Handle the rest of the last turn, then parked work that may continue, then a waiting close, then new input."""
    _end_failed_channels(session)
    backlog = session.backlog
    parking, unfinished = backlog.parking, backlog.unfinished
    step = DONE
    if unfinished is not None:
        backlog.unfinished = None
        turn.since_ns = unfinished.since_ns
        step = _handle_late(session, unfinished.event, turn)
        turn.since_ns = None
    if parking.channels and step not in _ENDING:
        step = _handle_parked(session, turn)
    if parking.is_closing and backlog.is_close_due:
        session.closing.answer_close()
        return CLOSING
    if step in _ENDING:
        return step
    if not parking.channels:
        step = _handle_new(session, turn)
    # Work is parked, from before or by the call above: this call asks of each event whether it is parked behind it.
    if parking.channels and step in _CONTINUING:
        step = _handle_new(session, turn)
    return step


def _end_failed_channels(session: AmqpSession) -> None:
    """Close the channels whose sessions the engine has ended, before their input is handled.

    The close may still be in the outbox, because it waits for the journal, or because the peer does not read. If input
    of the channel were handled now, its answers would follow the close, and a message for basic.get would be lost.
    """
    client = session.login.client
    if client is not None and client.outbox:
        session.output.render()


def _handle_new(session: AmqpSession, turn: ConnectionTurn) -> Step:
    """Handle new input until an event is parked or interrupted, answers pile up, or the turn is long.

    While work is parked, later events of its channel that may not overtake it are parked behind it, up to a limit.
    """
    closing, output, parking = session.closing, session.output, session.backlog.parking
    parked, effort_max = parking.channels, turn.effort_max
    was_parked = bool(parked)
    if was_parked and (parking.is_full or closing.finished or output.is_stalled):
        return PARKED
    for event in session.connection.events():
        if was_parked and parking.park_behind(event, turn):
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
            return STALLED  # the rest of the input stays in the connection's buffer
        if parked and (not was_parked or parking.is_full):
            return PARKED
        if turn.effort >= effort_max:
            return CUT
    return PARKED if parked else DONE


def _handle_parked(session: AmqpSession, turn: ConnectionTurn, only: Channel | None = None) -> Step:
    """Handle parked work that may continue, of all channels or of `only` one.

    Ends when the turn is long, its quota is used up, or the rest of an event is left to another turn.
    """
    parking = session.backlog.parking
    while not turn.is_over and (parked := parking.next_ready(only)) is not None:
        step = _handle_late(session, parking.take(parked, turn), turn)
        parking.taken(parked, turn)
        if step in _ENDING:
            return step
    return DONE


def _handle_late(session: AmqpSession, event: TurnEvent, turn: ConnectionTurn) -> Step:
    """Handle an event that had to wait, unless its channel or the connection has ended."""
    channel = getattr(event, "channel", None)
    step = DONE
    is_running = session.connection.state is ConnectionState.RUNNING
    if is_running and (channel is None or channel.state is ChannelState.OPEN):
        try:
            step = (LATE_HANDLERS.get(type(event)) or EVENT_HANDLERS[type(event)])(session, event, turn)
        except (errors.EngineError, PeerError) as error:
            session.closing.refuse(error, channel, event.ids)
    return CUT if turn.is_long and step is not UNFINISHED else step


def _resume_channel(session: AmqpSession, channel: Channel, quota: Quota | None) -> None:
    """Handle the parked work of one channel at the end of another connection's turn, as far as the quota allows.

    Without a quota: at the deadline of the first work, which is published now or refused.
    """
    if session.backlog.unfinished is None:
        try:
            _end_failed_channels(session)
            turn = ConnectionTurn(session.broker, quota)
            with session.broker.context.separate_turn(turn):
                _handle_parked(session, turn, channel)
        except Exception:
            _fail(session)
        if session.confirming.channels:
            session.confirming.send_due()
    session.output.wake()  # the connection's own turn does the rest


def _fail(session: AmqpSession) -> None:
    """A broker error: close the connection with 541 and log the traceback. Other connections continue."""
    logger.exception("%s: internal error", session.login.peer.name)
    session.closing.refuse(InternalError(), None)


#: First octets of other protocols that are sent here by mistake -> explanation for the log.
_OTHER_PROTOCOLS = (
    (b"\x16", ": the peer speaks TLS, but this port does not"),
    (b"PROXY", ": a PROXY header, but the peer is not in broker.proxy-protocol-from"),
    (b"\r\n\r\n\0", ": a PROXY header, but the peer is not in broker.proxy-protocol-from"),
    (b"AMQP\0\1", ": AMQP 1.0"),
    (b"AMQP\3\1", ": AMQP 1.0"),
)


def _header_rejected(session: AmqpSession, event: HeaderRejected, turn: ConnectionTurn) -> Step:
    note = next((what for start, what in _OTHER_PROTOCOLS if event.octets.startswith(start)), "")
    logger.warning("%s: refused: the protocol header is not that of AMQP 0-9-1%s", session.login.peer.name, note)
    session.output.send_raw(0, PROTOCOL_HEADER)
    session.closing.finished = True
    return CLOSING


def _acked(session: AmqpSession, event: AcksReceived, turn: ConnectionTurn) -> Step:
    session.journal.has_acted = True
    turn.effort += ACKS_COST
    assert isinstance(event.channel, Channel)
    engine_session = event.channel.session
    if event.tags:
        engine_session.ack_each(event.tags)
    if event.up_to:
        engine_session.ack_up_to(event.up_to)
    return DONE


def _channel_method(session: AmqpSession, event: ChannelMethod, turn: ConnectionTurn) -> Step:
    turn.effort += TOPOLOGY_COST if type(event.method) in ANSWERED_WHEN_SAFE else METHOD_COST
    channel = event.channel
    if channel is None:
        open_channel(session, event.number)
        session.backlog.parking.resume_channel = partial(_resume_channel, session)
        return DONE
    assert isinstance(channel, Channel)
    if type(event.method) is commands.Tx.Commit and park_commit_if_it_must_wait(session, event, channel, turn):
        return PARKED
    durability, journal = session.broker.context.storage.durability, session.journal
    if durability is None or type(event.method) not in ANSWERED_WHEN_SAFE:
        journal.has_acted = True
        rest = HANDLERS[type(event.method)](session, channel, event.method)
        return DONE if rest is None else session.backlog.leave(rest, turn)
    before = turn.records
    journal.begin_answer()
    rest = HANDLERS[type(event.method)](session, channel, event.method)
    sync_lsn = durability.sync_lsn() if turn.records != before else 0
    if not sync_lsn and getattr(event.method, "durable", True):
        # The answer also states that the peer's earlier changes are safe, and may show changes of other peers.
        sync_lsn = durability.sync_lsn_of_all() if journal.has_acted else durability.sync_lsn_of_objects()
    if sync_lsn:
        journal.has_acted = journal.has_published = False
        journal.send_answer_after(sync_lsn, channel.number)
    return DONE if rest is None else session.backlog.leave(rest, turn)


#: Methods whose answers wait for the journal: for their changes, the peer's earlier ones, and those of other peers that
#: the answer may show. Except for transient queues and exchanges: clients declare many reply queues, which do not
#: survive. Source: docs/journal-format.md, "The crash model".
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


def _commit_done(session: AmqpSession, event: CommitUnderWay, turn: ConnectionTurn) -> Step:
    answer_commit(session, event)
    return DONE


def _connection_method(session: AmqpSession, event: ConnectionMethod, turn: ConnectionTurn) -> Step:
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
#: Handlers of parked events, where they differ from those of new ones.
LATE_HANDLERS: dict[type, EventHandler] = {PublishReceived: published_late, MixedReceived: published_mixed_late}
