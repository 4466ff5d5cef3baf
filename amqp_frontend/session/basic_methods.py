"""Handlers of the class basic (runs of publishes and acks: handling.py). Source: behaviour page 2.7 to 2.13."""

from pamqp import commands

from ...engine import REJECTED, REPLY_PREFIX, REPLY_TO, FieldTable, check_consumer_arguments, errors, queue_type_of
from ..peer.channel import Channel
from ..peer.deliveries import ConsumerWire, content_parts
from ..wire.codec import Method, encode_method
from ..wire.events import ChannelMethod
from ..wire.peer_errors import PrefetchSizeNotImplemented, RequeueFalseNotImplemented
from .session import AmqpSession, Handler


def _qos(session: AmqpSession, channel: Channel, method: commands.Basic.Qos) -> None:
    if method.prefetch_size:
        raise PrefetchSizeNotImplemented(size=method.prefetch_size)
    channel.session.set_prefetch(method.prefetch_count, total=method.global_)
    session.output.send(channel.number, commands.Basic.QosOk)


def _consume(session: AmqpSession, channel: Channel, method: commands.Basic.Consume) -> None:
    if method.queue == REPLY_TO:
        _consume_replies(session, channel, method)
        return
    channel.session.subscriptions.check_tag(method.consumer_tag or "", method.arguments)  # type: ignore[arg-type]
    queue = session.vhost.queues.for_consumer(session.queue_name(channel, method.queue), session.client)
    arguments: FieldTable = method.arguments  # type: ignore[assignment]
    consumers_max = session.options.consumers_per_channel_max
    replaced = channel.session.consumers.get(method.consumer_tag or "")
    if consumers_max and len(channel.session.consumers) >= consumers_max and replaced is None:
        raise errors.LimitReached(what="consumers per channel", limit=consumers_max)
    channel.session.subscriptions.check_access(queue)
    queue_type = queue_type_of(queue.arguments)
    check_consumer_arguments(arguments, name=queue.name, vhost=session.vhost.name, queue_type=queue_type)
    tag = method.consumer_tag or session.make_name("amq.ctag-")
    # Requeued messages are for the consumers that exist already.
    session.broker.scheduler.dispatch_now(queue)
    consumer = channel.session.consume(
        queue, tag, no_ack=method.no_ack, exclusive=method.exclusive, arguments=arguments
    )
    consumer.opaque = ConsumerWire(channel.number, tag)
    if not method.nowait:
        session.output.send(channel.number, commands.Basic.ConsumeOk, tag)
    # Ready messages are for this consumer, not for that of the next method.
    session.broker.scheduler.dispatch_now(queue)


def _consume_replies(session: AmqpSession, channel: Channel, method: commands.Basic.Consume) -> None:
    """Direct reply-to: replies are deliveries to an address that exists as long as this consumer."""
    tag = method.consumer_tag or session.make_name("amq.ctag-")
    address = session.make_name(REPLY_PREFIX) + session.make_name(".")
    consumer = channel.session.consume_replies(tag, address, no_ack=method.no_ack)
    consumer.opaque = ConsumerWire(channel.number, tag)
    if not method.nowait:
        session.output.send(channel.number, commands.Basic.ConsumeOk, tag)


def _cancel(session: AmqpSession, channel: Channel, method: commands.Basic.Cancel) -> None:
    consumer = channel.session.consumers.get(method.consumer_tag or "")
    if consumer is not None:
        session.broker.scheduler.dispatch_now(consumer.queue)  # messages that were ready before are still for it
    channel.session.cancel(method.consumer_tag or "")
    if not method.nowait:
        session.output.send(channel.number, commands.Basic.CancelOk, method.consumer_tag)


def _cancel_ok(session: AmqpSession, channel: Channel, method: commands.Basic.CancelOk) -> None:
    """Ignored: some clients answer the broker's basic.cancel although it has nowait."""


def _get(session: AmqpSession, channel: Channel, method: commands.Basic.Get) -> ChannelMethod | None:
    queue = session.vhost.queues.for_consumer(session.queue_name(channel, method.queue), session.client)
    if queue.is_busy():
        return ChannelMethod(channel.number, channel, method)
    got = channel.session.get(queue, no_ack=method.no_ack)
    if got is None:
        session.output.send(channel.number, commands.Basic.GetEmpty, "")
        return None
    tag, message, redelivered, ready_count = got
    envelope = message.envelope
    session.output.render()
    session.output.send_raw(
        channel.number,
        encode_method(
            channel.number, commands.Basic.GetOk, tag, redelivered, envelope.exchange, envelope.routing_key, ready_count
        ),
        *content_parts(envelope, message.content, channel.number, session.connection.frame_max),
    )
    return None


def _ack(session: AmqpSession, channel: Channel, method: commands.Basic.Ack) -> None:
    channel.session.ack(method.delivery_tag, multiple=method.multiple)


def _nack(session: AmqpSession, channel: Channel, method: commands.Basic.Nack) -> None:
    channel.session.reject(method.delivery_tag, multiple=method.multiple, requeue=method.requeue)


def _reject(session: AmqpSession, channel: Channel, method: commands.Basic.Reject) -> None:
    channel.session.reject(method.delivery_tag or 0, requeue=method.requeue, why=REJECTED)


def _recover_async(session: AmqpSession, channel: Channel, method: commands.Basic.RecoverAsync) -> None:
    if not method.requeue:
        raise RequeueFalseNotImplemented
    channel.session.recover()


def _recover(session: AmqpSession, channel: Channel, method: commands.Basic.Recover) -> None:
    if not method.requeue:
        raise RequeueFalseNotImplemented
    session.output.send(channel.number, commands.Basic.RecoverOk)
    channel.session.recover()  # a ring queue delivers at once: before recover-ok a client takes it for old deliveries


BASIC_HANDLERS: dict[type[Method], Handler] = {
    commands.Basic.Qos: _qos,
    commands.Basic.Consume: _consume,
    commands.Basic.Cancel: _cancel,
    commands.Basic.CancelOk: _cancel_ok,
    commands.Basic.Get: _get,
    commands.Basic.Ack: _ack,
    commands.Basic.Nack: _nack,
    commands.Basic.Reject: _reject,
    commands.Basic.RecoverAsync: _recover_async,
    commands.Basic.Recover: _recover,
}
