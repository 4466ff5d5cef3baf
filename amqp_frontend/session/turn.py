"""One turn: a read of the socket, handled to its end without waiting for anything.

Events and methods are looked up, not branched; there is one file for each family of methods.
Source: docs/architecture.md, "The path of a message".
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from pamqp import commands

from ...engine import errors
from ..flow.parking import Work
from ..peer.channel import EFFORT_MAX, Channel, CommitUnderWay
from ..peer.output import REPLIES_MAX
from ..wire.channel_reader import ChannelReader
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
from .session import AmqpSession, Handler
from .topology_methods import TOPOLOGY_HANDLERS

logger = logging.getLogger("leveret.amqp")

EventHandler = Callable[[AmqpSession, Any], None]

#: The least cost of a method, and of a run of acknowledgements, by the measure of `Effort`.
METHOD_COST, TOPOLOGY_COST, ACKS_COST = 16, 48, 4
#: Method class -> (session, channel, method) -> None.
HANDLERS: dict[type[Method], Handler] = {**CHANNEL_HANDLERS, **TOPOLOGY_HANDLERS, **BASIC_HANDLERS}


def handle_bytes(session: AmqpSession, data: bytes) -> None:
    """Handle one read. Afterwards the broker's turn is to be ended and the output sent.

    A part of the read may not be handled yet: when answers pile up unsent (`Output.is_stalled`), and when the turn has
    become long (`Backlog.has_more`), so that others have theirs first. Call again with no octets then.
    """
    session.heartbeat.has_received = True
    session.connection.receive_bytes(data)
    backlog = session.backlog
    area = backlog.area
    session.effort_max = session.broker.effort.share_until(EFFORT_MAX)
    backlog.is_cut = area.has_unread = False
    unfinished: Work | None = None
    if backlog.unfinished is not None:
        unfinished = backlog.take_unfinished()
        if unfinished is None:
            return
    while True:
        try:
            if unfinished is not None:
                event, unfinished = unfinished, None
                _handle_late(session, event)
                area.since_ns = None
            if area.channels:
                _handle_held(session)
            if area.says_goodbye and backlog.is_goodbye_due:
                session.closing.say_goodbye()
                break
            if not (area.channels or backlog.unfinished is not None or backlog.is_cut):
                _handle_new(session)
            if area.channels and not (backlog.unfinished is not None or backlog.is_cut):
                _handle_beside_held(session)
            break
        except PeerError as error:
            session.closing.refuse(error, None)
        except Exception:
            _fail(session)
        if session.connection.state is not ConnectionState.CLOSING:
            break  # refused: what follows is ignored
    if session.confirming.channels:
        session.confirming.send_due()


def _handle_late(session: AmqpSession, event: Work) -> None:
    """Handle an event that had to wait, if it still matters: its channel, or the connection, may have ended."""
    channel = getattr(event, "channel", None)
    is_running = session.connection.state is ConnectionState.RUNNING
    if is_running and (channel is None or channel.state is ChannelState.OPEN):
        _handle(session, event, LATE_HANDLERS.get(type(event)))
    backlog = session.backlog
    backlog.since_ns = None if backlog.unfinished is None else backlog.area.since_ns
    backlog.is_cut = session.broker.effort.spent >= session.effort_max


def _handle_held(session: AmqpSession) -> None:
    """Handle what is held and may go on, channel by channel, until the turn is long."""
    backlog = session.backlog
    area = backlog.area
    while not (backlog.unfinished is not None or backlog.is_cut) and (held := area.next_ready()) is not None:
        _handle_late(session, area.take(held))
        area.taken(held)


def _go_on(session: AmqpSession, channel: ChannelReader) -> None:
    """At the end of a turn: handle what is held on one channel, as far as it may go on."""
    backlog = session.backlog
    area, was_cut = backlog.area, backlog.is_cut
    assert isinstance(channel, Channel)
    if backlog.unfinished is None:
        session.effort_max = session.broker.effort.share_until(EFFORT_MAX)
        backlog.is_cut = False
        try:
            while not (backlog.unfinished is not None or backlog.is_cut or area.is_waiting(channel)):
                held, allowance = area.channels.get(channel), area.allowance
                if held is None or (allowance is not None and allowance.is_over):
                    break
                _handle_late(session, area.take(held))
                area.taken(held)
        except Exception:
            _fail(session)
        backlog.is_cut |= was_cut
        if session.confirming.channels:
            session.confirming.send_due()
    session.output.wake()  # what was not done is for the connection's own turn


def _handle_new(session: AmqpSession) -> None:
    """Handle what was read, until the turn is long, or something has to be done before more is handled."""
    backlog, broker, closing, output = session.backlog, session.broker, session.closing, session.output
    held, effort_max = backlog.area.channels, session.effort_max
    for event in session.connection.events():
        try:
            EVENT_HANDLERS[type(event)](session, event)
        except (errors.EngineError, PeerError) as error:
            closing.refuse(error, getattr(event, "channel", None), event.ids)
        if closing.finished or output.reply_size > REPLIES_MAX or held or backlog.unfinished is not None:
            break  # what was not looked at stays in the connection's buffer
        if broker.effort.spent >= effort_max:
            backlog.is_cut = True
            break


def _handle_beside_held(session: AmqpSession) -> None:
    """As `_handle_new` while something is held: what may not pass that is held behind it, up to a maximum."""
    backlog, broker, closing, output = session.backlog, session.broker, session.closing, session.output
    area, effort_max = backlog.area, session.effort_max
    if area.is_full or closing.finished or output.is_stalled:
        return
    for event in session.connection.events():
        if not area.queues(event):
            _handle(session, event)
        if closing.finished or output.is_stalled or area.is_full or area.says_goodbye or backlog.unfinished is not None:
            break
        if broker.effort.spent >= effort_max:
            backlog.is_cut = True
            break


def _fail(session: AmqpSession) -> None:
    """Our own fault: the close says so, other connections go on, the log gets the traceback."""
    logger.exception("%s: internal error", session.login.peer.name)
    session.closing.refuse(InternalError(), None)


def _handle(session: AmqpSession, event: Work, handler: EventHandler | None = None) -> None:
    try:
        (handler or EVENT_HANDLERS[type(event)])(session, event)
    except (errors.EngineError, PeerError) as error:
        session.closing.refuse(error, getattr(event, "channel", None), event.ids)


#: How other protocols begin that are sent here by mistake -> what the log adds.
_OTHER_PROTOCOLS = (
    (b"\x16", ": the peer speaks TLS, but this port does not"),
    (b"PROXY", ": a PROXY header, but the peer is not in broker.proxy-protocol-from"),
    (b"\r\n\r\n\0", ": a PROXY header, but the peer is not in broker.proxy-protocol-from"),
    (b"AMQP\0\1", ": AMQP 1.0"),
    (b"AMQP\3\1", ": AMQP 1.0"),
)


def _header_rejected(session: AmqpSession, event: HeaderRejected) -> None:
    note = next((what for start, what in _OTHER_PROTOCOLS if event.octets.startswith(start)), "")
    logger.warning("%s: refused: the protocol header is not that of AMQP 0-9-1%s", session.login.peer.name, note)
    session.output.send_raw(PROTOCOL_HEADER)
    session.closing.finished = True


def _acked(session: AmqpSession, event: AcksReceived) -> None:
    session.journal.has_acted = True
    session.broker.effort.spent += ACKS_COST
    assert isinstance(event.channel, Channel)
    engine_session = event.channel.session
    if event.tags:
        engine_session.ack_each(event.tags)
    if event.up_to:
        engine_session.ack_up_to(event.up_to)


def _channel_method(session: AmqpSession, event: ChannelMethod) -> None:
    session.broker.effort.spent += TOPOLOGY_COST if type(event.method) in ANSWERED_WHEN_SAFE else METHOD_COST
    channel = event.channel
    if channel is None:
        open_channel(session, event.number)
        session.backlog.area.go_on = partial(_go_on, session)
        return
    assert isinstance(channel, Channel)
    if type(event.method) is commands.Tx.Commit and must_wait_to_commit(session, event, channel):
        return
    durability, journal = session.broker.storage.durability, session.journal
    if durability is None or type(event.method) not in ANSWERED_WHEN_SAFE:
        journal.has_acted = True
        HANDLERS[type(event.method)](session, channel, event.method)
        return
    durability.take_barrier()  # what was recorded before, for others, does not delay this answer
    HANDLERS[type(event.method)](session, channel, event.method)
    barrier = durability.take_barrier()
    if not barrier and journal.has_acted and getattr(event.method, "durable", True):
        barrier = durability.barrier_behind_all()  # the answer also says that what this peer did before is safe
    if barrier:
        journal.has_acted = journal.has_published = False
        journal.withhold_output(barrier)


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


def _connection_method(session: AmqpSession, event: ConnectionMethod) -> None:
    CONNECTION_HANDLERS[type(event.method)](session, event.method)


EVENT_HANDLERS: dict[type, EventHandler] = {
    PublishReceived: published,
    MixedReceived: published_mixed,
    AcksReceived: _acked,
    ChannelMethod: _channel_method,
    CommitUnderWay: answer_commit,
    ConnectionMethod: _connection_method,
    HeaderReceived: header_received,
    HeaderRejected: _header_rejected,
}
#: Those of what was held, where they are others.
LATE_HANDLERS: dict[type, EventHandler] = {PublishReceived: published_late, MixedReceived: published_mixed_late}
