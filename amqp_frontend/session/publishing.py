"""Publishes runs of messages into the engine, with cached routes. The hot path.

With limits, it decides which messages are published now, parked, or refused. Source: performance page 4, rules 4 and 6;
behaviour page 2.7; queues page E.4, the decision table; E.5.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

from ...engine import MS, Envelope, FullLimit, ServiceExchange, Session, check_expiration, errors
from ..flow.parked_channel import TurnEvent
from ..flow.steps import ConnectionTurn, Step
from ..peer.channel import Channel, KnownRoute, part_max_of
from ..peer.deliveries import render_returns
from ..wire.events import ChannelMethod, MixedReceived, PublishReceived
from ..wire.peer_errors import ImmediateNotImplemented, PeerError, UserIdMismatch
from ..wire.replies import fitting
from .session import AmqpSession

DONE, PARKED = Step.DONE, Step.PARKED
RESOURCE_ERROR = 506


def publish_run_with_room(
    session: AmqpSession, event: PublishReceived, channel: Channel, known: KnownRoute, turn: ConnectionTurn
) -> Step:
    """Publish as much of a run as there is room for. The rest is parked or refused, or left for the next turn if this
    one is long.

    Raises: DestinationFull (E.4 row 7), and the errors of `Session.publish_with_room`.
    """
    parking, engine_session, quota = session.backlog.parking, channel.session, turn.quota
    route, envelope, contents = known.route, known.envelope, event.contents
    part_max = part_max_of(route)
    if engine_session.confirms is not None:
        session.confirming.channels[channel] = None
    start = 0
    while start < len(contents):
        if start and turn.is_long:
            return session.backlog.leave(PublishReceived(channel, event.kind, contents[start:]), turn)
        part = contents[start : start + part_max] if start or len(contents) > part_max else contents
        if quota is None:
            taken, returned, full = engine_session.publish_with_room(route, envelope, part, mandatory=known.mandatory)
        else:
            taken, returned, full = engine_session.publish_with_room(
                route, envelope, part, mandatory=known.mandatory, octets_max=quota.octets, messages_max=quota.messages
            )
            quota.spend(part[:taken])
        start += taken
        if returned:
            session.send_returns(channel, returned)
        if full is None:
            if not taken:  # the quota is used up
                parking.put_back(channel, _rest(event, start), turn)
                return PARKED
        elif is_refused(session, full, turn):
            count = 1 if route.queues is None else len(contents) - start  # known: the limit holds for the rest
            refuse(session, channel, known, full, contents[start : start + count], behind=len(contents) - start - count)
            start += count
        else:
            parking.park_for(full, channel, _rest(event, start), turn)
            return PARKED
    return DONE


def park_commit_if_it_must_wait(
    session: AmqpSession, event: ChannelMethod, channel: Channel, turn: ConnectionTurn
) -> bool:
    """Park a whole tx.commit if the journal refuses, if there is no room, or if the quota is too small (E.4 row 13).
    Returns: whether it was parked.

    Raises: DestinationFull.
    """
    parking, transaction, quota = session.backlog.parking, channel.session.transaction, turn.quota
    if transaction is None:
        return False  # it is refused at once
    if session.journal.is_refusing:
        park_for_disk(session, event, channel, turn)
        return True
    full = channel.session.full_limit_for_commit()
    if full is not None:
        if is_refused(session, full, turn):
            raise errors.DestinationFull(destination=full.node.destination, limit=full.node.limit_name)
        parking.park_for(full, channel, event, turn)
        return True
    if quota is not None:
        if transaction.size > quota.octets or quota.messages <= 0:
            parking.put_back(channel, event, turn)
            return True
        quota.spend_octets(transaction.size, sum(len(one.contents) for one in transaction.publishes))
    return False


def park_for_disk(session: AmqpSession, event: TurnEvent, channel: Channel, turn: ConnectionTurn) -> Step:
    """Park work because the journal takes no records now (`[address-setting] disk-full-policy`)."""
    disk = session.broker.flow.disk
    disk.switch("low on disk")  # RabbitMQ's words, also for a disk that fails
    session.backlog.parking.park_for(disk.full_limit_for(), channel, event, turn)
    return PARKED


def is_refused(session: AmqpSession, full: FullLimit, turn: ConnectionTurn) -> bool:
    """Whether the current event is refused instead of parked: by the policy, or because it has waited long enough."""
    if full.fails or not full.fails_after_ms:
        return full.fails
    since_ns = turn.since_ns
    return since_ns is not None and session.broker.context.clock.monotonic_ns() >= since_ns + full.fails_after_ms * MS


def _rest(event: PublishReceived, start: int) -> PublishReceived:
    return PublishReceived(event.channel, event.kind, event.contents[start:]) if start else event


def refuse(
    session: AmqpSession,
    channel: Channel,
    known: KnownRoute,
    full: FullLimit,
    contents: Sequence[bytes],
    *,
    behind: int = 0,
) -> None:
    """Refuse messages (rows 5 to 7): nack, return, or end the channel.

    behind: number of later messages in the run, which are dropped with the channel.

    Raises: DestinationFull, to end the channel.
    """
    engine_session = channel.session
    ends_channel = engine_session.confirms is None and not known.mandatory
    engine_session.count_unpublished(len(contents) + (behind if ends_channel else 0), refused=True)
    if engine_session.confirms is not None:
        session.confirming.channels[channel] = None
        return
    if ends_channel:
        raise errors.DestinationFull(destination=full.node.destination, limit=full.node.limit_name)
    text = fitting(f"RESOURCE_ERROR - {full.node.destination}: {full.node.limit_name} limit")
    session.output.render()
    frame_max = session.connection.frame_max
    returns = render_returns(channel.number, known.envelope, contents, frame_max, code=RESOURCE_ERROR, text=text)
    session.output.send_ahead(channel.number, *returns)


_KNOWN, _QUEUE, _ENVELOPE = attrgetter("known_route"), attrgetter("queue"), attrgetter("envelope")

#: Effort of a route look-up.
LOOK_UP_COST = 24


def published(session: AmqpSession, event: PublishReceived, turn: ConnectionTurn) -> Step:
    """Handle a run of publishes. The hot path: the kind's route is cached, and the run is one call."""
    channel = event.channel
    assert isinstance(channel, Channel)
    known: KnownRoute | None = event.kind.known_route
    if known is None or known.route.is_stale or event.oversized:
        step = _check_alarm(session, event, channel, turn)
        if step is not None:
            return step
        known = _find_route(session, event, channel)
        firehose = channel.session.client.host.firehose
        if firehose is not None:
            firehose.expect(channel.session, known.route, known.envelope, event.contents)
    engine_session = channel.session
    durability = session.broker.context.storage.durability
    if durability is not None:
        if durability.has_failed and _must_wait(engine_session, known):
            return park_for_disk(session, event, channel, turn)
        session.journal.note_publishes(durability, is_stored=known.may_be_stored)
    if event.kind.summary.is_marked or len(event.contents) > known.run_max:
        return _publish_parts(session, event, channel, known, turn)
    returned = engine_session.publish(known.route, known.envelope, event.contents, mandatory=known.mandatory)
    if returned:
        session.send_returns(channel, returned)
    if engine_session.confirms is not None:
        session.confirming.channels[channel] = None
    return DONE


def published_mixed(session: AmqpSession, event: MixedReceived, turn: ConnectionTurn) -> Step:
    """Handle a mixed run: one call if possible, else stretch by stretch.

    It is possible for known routes to one queue without limits (`_is_together`), outside of transactions, as long as
    the journal has not failed.
    """
    channel = event.channel
    assert isinstance(channel, Channel)
    engine_session = channel.session
    durability = session.broker.context.storage.durability
    knowns: list[KnownRoute] = list(map(_KNOWN, event.kinds))
    distinct = set(knowns)
    if (
        engine_session.transaction is not None
        or (durability is not None and durability.has_failed)
        or not all(map(_is_together, distinct))
    ):
        return _publish_stretches(session, event, turn)
    if durability is not None:
        session.journal.note_publishes(durability, is_stored=any(known.is_stored for known in distinct))
    engine_session.publish_mixed(list(map(_QUEUE, knowns)), list(map(_ENVELOPE, knowns)), event.contents)
    if engine_session.confirms is not None:
        session.confirming.channels[channel] = None
    return DONE


def _is_together(known: KnownRoute | None) -> bool:
    """Whether messages of this kind can be published together with other kinds."""
    return known is not None and known.queue is not None and not known.route.is_stale


def _publish_stretches(
    session: AmqpSession,
    event: MixedReceived,
    turn: ConnectionTurn,
    publish: Callable[[AmqpSession, PublishReceived, ConnectionTurn], Step] = published,
) -> Step:
    """Publish stretches of one kind. When a stretch is parked, or the turn has become long, the rest is parked."""
    channel = event.channel
    assert isinstance(channel, Channel)
    start, step = 0, DONE
    for kind, run in groupby(event.kinds):
        if step is not DONE or (start and turn.is_long):
            rest = MixedReceived(channel, event.kinds[start:], event.contents[start:])
            session.backlog.parking.put_rest(channel, rest, turn)
            return PARKED if step is DONE else step
        stop = start + sum(1 for _ in run)
        step = publish(session, PublishReceived(channel, kind, event.contents[start:stop]), turn)
        start = stop
    return step


def published_late(session: AmqpSession, event: PublishReceived, turn: ConnectionTurn) -> Step:
    """`published` for parked publishes, which may have expired (queues page E.4, row 15)."""
    if not _has_expired(session, event, turn):
        return published(session, event, turn)
    channel = event.channel
    assert isinstance(channel, Channel)
    _find_route(session, event, channel)  # an invalid publish is refused in any case
    channel.session.count_unpublished(len(event.contents), refused=False)
    if channel.session.confirms is not None:
        session.confirming.channels[channel] = None
    return DONE


def published_mixed_late(session: AmqpSession, event: MixedReceived, turn: ConnectionTurn) -> Step:
    """`published_mixed` for a parked run: kind by kind if any may have expired."""
    if any(kind.summary.expiration is not None for kind in set(event.kinds)):
        return _publish_stretches(session, event, turn, published_late)
    return published_mixed(session, event, turn)


def _has_expired(session: AmqpSession, event: PublishReceived, turn: ConnectionTurn) -> bool:
    since_ns, expiration = turn.since_ns, event.kind.summary.expiration
    if since_ns is None or expiration is None or not expiration.isdigit():
        return False  # publishing refuses values that are not numbers
    assert isinstance(event.channel, Channel)
    if event.channel.session.transaction is not None:
        return False
    return session.broker.context.clock.monotonic_ns() >= since_ns + int(expiration) * MS


def _check_alarm(session: AmqpSession, event: PublishReceived, channel: Channel, turn: ConnectionTurn) -> Step | None:
    """Park or refuse a publish while an alarm blocks all publishers. An invalid publish is refused after the alarm.

    Returns: None: there is no alarm for it.

    In a transaction the alarm applies to the commit (queues page E.4, rows 3 to 8, 13).
    """
    alarm = session.broker.flow.raised
    if alarm is None or channel.session.transaction is not None or _is_request(session, event):
        return None
    try:
        known = _find_route(session, event, channel)
    except (errors.EngineError, PeerError):
        full = alarm.full_limit_for()
    else:
        full = alarm.full_limit_for(known.route.queues or (), channel.session.client)
        if is_refused(session, full, turn):
            refuse(session, channel, known, full, event.contents)
            return DONE
    session.backlog.parking.park_for(full, channel, event, turn)
    return PARKED


def _is_request(session: AmqpSession, event: PublishReceived) -> bool:
    """Whether this is a request to a service. They are handled during an alarm, so that an operator can end it."""
    name = session.connection.publish_cache.arguments_of(event.kind.method_frame).exchange
    return isinstance(session.client.vhost.exchanges.get(name), ServiceExchange)


def _must_wait(engine_session: Session, known: KnownRoute) -> bool:
    """Whether messages wait for room on the disk. Those of a transaction wait at its commit."""
    if engine_session.transaction is not None:
        return False
    return known.route.waits_for_disk(known.envelope, is_confirmed=engine_session.confirms is not None)


def _publish_parts(
    session: AmqpSession, event: PublishReceived, channel: Channel, known: KnownRoute, turn: ConnectionTurn
) -> Step:
    """Publish a run in parts until the turn is long; the next turn does the rest. With limits, `publish_run_with_room`
    does it.

    Messages with marks (`PropertySummary`) are published one by one: those before a refused one are published, returned
    and confirmed.
    """
    contents = event.contents
    engine_session = channel.session
    broker = session.broker
    is_request = type(known.route.exchange) is ServiceExchange
    if not (known.run_max or is_request) and broker.flow.is_on and engine_session.transaction is None:
        return publish_run_with_room(session, event, channel, known, turn)
    # A transaction collects messages for the commit, which has its own slices.
    is_gathered = engine_session.transaction is not None and known.route.queues is not None
    size = 1 if event.kind.summary.is_marked else len(contents) if is_gathered else part_max_of(known.route)
    for start in range(0, len(contents), size):
        if start and turn.is_long:
            return session.backlog.leave(PublishReceived(channel, event.kind, contents[start:]), turn)
        part = contents[start : start + size]
        before = turn.records
        returned = engine_session.publish(known.route, known.envelope, part, mandatory=known.mandatory)
        if is_request and turn.records != before:
            session.journal.send_all_after(broker.context.sync_lsn())
        if returned:
            session.send_returns(channel, returned)
        if engine_session.confirms is not None:
            session.confirming.channels[channel] = None
    return DONE


def _find_route(session: AmqpSession, event: PublishReceived, channel: Channel) -> KnownRoute:
    """Check a publish and find its route, which is cached until it is stale.

    Raises: ImmediateNotImplemented, MessageTooLarge, PermissionRefused, ExchangeNotFound, InternalExchangeRefused,
        TopicRefused, ReplyConsumerMissing, UserIdMismatch, InvalidExpiration; the first that applies, as in RabbitMQ.
    """
    session.broker.context.turn.effort += LOOK_UP_COST
    arguments = session.connection.publish_cache.arguments_of(event.kind.method_frame)
    if arguments.immediate:
        raise ImmediateNotImplemented
    if event.oversized:
        raise errors.MessageTooLarge(size=event.oversized, limit=channel.message_size_max)
    client = session.login.client
    assert client is not None
    route = client.vhost.router.route(arguments.exchange, arguments.routing_key, client.user, client)
    summary = event.kind.summary
    if summary.is_marked:
        channel.session.subscriptions.check_reply_to(channel.framing, event.contents[0])
    user_id = summary.user_id
    if user_id is not None and user_id != client.user.name.encode() and "impersonator" not in client.user.tags:
        raise UserIdMismatch(claimed=user_id.decode("utf-8", "replace"), user=client.user.name)
    check_expiration(summary.expiration)
    known: KnownRoute | None = event.kind.known_route
    envelope = (
        known.envelope
        if known is not None
        else Envelope(arguments.exchange, arguments.routing_key, summary, channel.framing, arguments.routing)
    )
    if type(route.exchange) is ServiceExchange:  # not cached, so that the turn counts the cost of each request
        return KnownRoute(route, envelope, arguments.mandatory)
    if client.host.firehose is not None or session.broker.flow.raised is not None:
        # Not cached: each publish is traced with its session, or has to check the alarm.
        return KnownRoute(route, envelope, arguments.mandatory)
    fresh = event.kind.known_route = KnownRoute(route, envelope, arguments.mandatory)
    return fresh
