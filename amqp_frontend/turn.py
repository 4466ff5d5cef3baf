"""One turn: a read of the socket, handled to its end without waiting for anything.

Events and methods are looked up, not branched; there is one file for each family of methods.
Source: architecture page, "The walk of one message".
"""

import logging
from collections.abc import Callable
from typing import Any

from pamqp import commands

from ..engine import Envelope, ServiceExchange, Session
from ..engine.arguments import check_expiration
from ..engine.errors import EngineError, MessageTooLarge
from .basic_methods import BASIC_HANDLERS
from .channel import MEMORY_MAX, KnownRoute
from .channel_methods import CHANNEL_HANDLERS, open_channel
from .codec import Method
from .connection_methods import CONNECTION_HANDLERS, header_received
from .protocol_events import (
    AcksReceived,
    ChannelMethod,
    ConnectionMethod,
    HeaderReceived,
    HeaderRejected,
    ProtocolEvent,
    PublishReceived,
)
from .replies import ImmediateNotImplemented, InternalError, PeerError, UserIdMismatch
from .session import AmqpSession, Handler
from .states import ConnectionState
from .topology_methods import TOPOLOGY_HANDLERS
from .wire import PROTOCOL_HEADER

logger = logging.getLogger("leveret.amqp")

#: Method class -> (session, channel, method) -> None.
HANDLERS: dict[type[Method], Handler] = {**CHANNEL_HANDLERS, **TOPOLOGY_HANDLERS, **BASIC_HANDLERS}


def handle_bytes(session: AmqpSession, data: bytes) -> None:
    """Handle one read. Afterwards the broker's turn is to be ended and the output sent.

    When answers pile up unsent, part of the read is left: `session.is_stalled` until they are taken; call again with
    no octets then.
    """
    session.received(data)
    if session.blocked_event is not None:
        event = session.unblock()
        if event is None:
            return
        _handle(session, event)
    connection = session.connection
    while True:
        try:
            for event in () if session.blocked_event is not None else connection.events():
                _handle(session, event)
                if session.finished or session.is_stalled or session.blocked_event is not None:
                    break  # what was not looked at stays in the connection's buffer
            break
        except PeerError as error:
            session.refuse(error, None)
        except Exception:
            # Our own fault: the peer learns that it was, the others go on, the log gets it whole.
            logger.exception("%s: internal error", session.peer.name)
            session.refuse(InternalError(), None)
        if connection.state is not ConnectionState.CLOSING:
            break  # refused: nothing that follows matters
    if session.confirming:
        session.confirm()


def _handle(session: AmqpSession, event: ProtocolEvent) -> None:
    try:
        EVENT_HANDLERS[type(event)](session, event)
    except (EngineError, PeerError) as error:
        session.refuse(error, getattr(event, "channel", None))


#: How other things begin that are sent here by mistake -> what the log adds.
_SPOKEN = (
    (b"\x16", ": the peer speaks TLS, but this port does not"),
    (b"PROXY", ": a PROXY header, but the peer is not in broker.proxy-protocol-from"),
    (b"\r\n\r\n\0", ": a PROXY header, but the peer is not in broker.proxy-protocol-from"),
    (b"AMQP\0\1", ": AMQP 1.0"),
    (b"AMQP\3\1", ": AMQP 1.0"),
)


def _header_rejected(session: AmqpSession, event: HeaderRejected) -> None:
    spoken = next((what for start, what in _SPOKEN if event.octets.startswith(start)), "")
    logger.warning("%s: refused: the protocol header is not that of AMQP 0-9-1%s", session.peer.name, spoken)
    session.send_raw(PROTOCOL_HEADER)
    session.finished = True


def _published(session: AmqpSession, event: PublishReceived) -> None:
    """The hot path: one dict hit for the route, one call for the whole run."""
    channel = event.channel
    key = (event.method_frame, event.facts)
    known = channel.routes.get(key)
    assert session.client is not None
    vhost = session.client.vhost
    if known is None or known.route.version != vhost.topology_version or event.oversized:
        known = _find_route(session, event)
    engine_session = channel.session
    if session.journal_refuses and _must_wait(engine_session, known):
        session.block(event)
        return
    if event.facts.is_marked:
        _publish_each(session, event, known)
        return
    returned = engine_session.publish(known.route, known.envelope, event.blobs, mandatory=known.mandatory)
    session.has_published = True
    if returned:
        session.send_returns(channel, returned)
    if engine_session.confirms is not None:
        session.confirming[channel] = None


def _must_wait(engine_session: Session, known: KnownRoute) -> bool:
    """Whether persistent messages would get lost without a word: nobody listens for a nack, nor has committed yet."""
    queues = known.route.queues
    is_stored = (
        known.envelope.facts.persistent if queues is None else any(queue.stores(known.envelope) for queue in queues)
    )
    return is_stored and engine_session.confirms is None and engine_session.transaction is None


def _publish_each(session: AmqpSession, event: PublishReceived, known: KnownRoute) -> None:
    """Messages that may be refused one by one: what stands before such a one is published, returned, confirmed."""
    session.has_published = True
    channel = event.channel
    engine_session = channel.session
    for blob in event.blobs:
        returned = engine_session.publish(known.route, known.envelope, (blob,), mandatory=known.mandatory)
        if returned:
            session.send_returns(channel, returned)
        if engine_session.confirms is not None:
            session.confirming[channel] = None


def _find_route(session: AmqpSession, event: PublishReceived) -> KnownRoute:
    """Check a publish and find its way; remembered until the topology changes.

    Raises: ImmediateNotImplemented, MessageTooLarge, PermissionRefused, ExchangeNotFound, InternalExchangeRefused,
        TopicRefused, ReplyConsumerMissing, UserIdMismatch, InvalidExpiration; the first of them, as RabbitMQ does.
    """
    channel = event.channel
    arguments = session.connection.arguments_of(event.method_frame)
    if arguments.immediate:
        raise ImmediateNotImplemented
    if event.oversized:
        raise MessageTooLarge(size=event.oversized, limit=channel.message_size_max)
    client = session.client
    assert client is not None
    route = client.vhost.route(arguments.exchange, arguments.routing_key, client.user)
    if event.facts.is_marked:
        channel.session.check_reply_to(channel.framing, event.blobs[0])
    user_id = event.facts.user_id
    if user_id is not None and user_id != client.user.name.encode() and "impersonator" not in client.user.tags:
        raise UserIdMismatch(claimed=user_id.decode("utf-8", "replace"), user=client.user.name)
    check_expiration(event.facts.expiration)
    known = channel.routes.get((event.method_frame, event.facts))
    envelope = (
        known.envelope
        if known is not None
        else Envelope(arguments.exchange, arguments.routing_key, event.facts, channel.framing, arguments.address)
    )
    if isinstance(route.exchange, ServiceExchange):  # not remembered, so that each request is noted
        session.asked = route.exchange
        return KnownRoute(route, envelope, arguments.mandatory)
    if len(channel.routes) >= MEMORY_MAX:
        channel.routes.clear()
    fresh = channel.routes[event.method_frame, event.facts] = KnownRoute(route, envelope, arguments.mandatory)
    return fresh


def _acked(session: AmqpSession, event: AcksReceived) -> None:
    engine_session = event.channel.session
    if event.tags:
        engine_session.ack_each(event.tags)
    if event.up_to is not None:
        engine_session.ack(event.up_to, multiple=True)


def _channel_method(session: AmqpSession, event: ChannelMethod) -> None:
    if event.channel is None:
        open_channel(session, event.number)
        return
    if type(event.method) is commands.Tx.Commit and session.journal_refuses:
        session.block(event)
        return
    durability = session.broker.durability
    if durability is None or type(event.method) not in ANSWERED_WHEN_SAFE:
        HANDLERS[type(event.method)](session, event.channel, event.method)
        return
    durability.take_barrier()  # what was recorded before, for whomever, holds no answer up
    HANDLERS[type(event.method)](session, event.channel, event.method)
    barrier = durability.take_barrier()
    if barrier:
        session.hold_output(barrier)


#: Their answers wait until what they did is in the journal (issue on the journal, "Confirms").
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
        commands.Tx.Commit,
    }
)


def _connection_method(session: AmqpSession, event: ConnectionMethod) -> None:
    CONNECTION_HANDLERS[type(event.method)](session, event.method)


EVENT_HANDLERS: dict[type, Callable[[AmqpSession, Any], None]] = {
    PublishReceived: _published,
    AcksReceived: _acked,
    ChannelMethod: _channel_method,
    ConnectionMethod: _connection_method,
    HeaderReceived: header_received,
    HeaderRejected: _header_rejected,
}
