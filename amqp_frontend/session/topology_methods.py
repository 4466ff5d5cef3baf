"""Handlers of the classes exchange and queue. Source: behaviour page 2.1 to 2.6."""

from typing import TYPE_CHECKING

from pamqp import commands

from ...engine import REPLY_TO, declared_name, is_large
from ..peer.channel import Channel
from ..wire.codec import Method, encode_method
from ..wire.events import ChannelMethod
from .session import AmqpSession, Handler

if TYPE_CHECKING:
    from ...engine import Client, FieldTable, Queue


def _table(arguments: object) -> "FieldTable":
    """The arguments with their real type: wire/codec.py decodes them, not pamqp."""
    return arguments  # type: ignore[return-value]


def _exchange_declare(session: AmqpSession, channel: Channel, method: commands.Exchange.Declare) -> None:
    exchanges, name = session.vhost.exchanges, declared_name(method.exchange)
    if method.passive:
        exchanges.declare_passive(name)
    else:
        exchanges.declare(
            name,
            method.exchange_type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=_table(method.arguments),
            client=session.client,
        )
    if not method.nowait:
        session.output.send(channel.number, commands.Exchange.DeclareOk)


def _exchange_delete(session: AmqpSession, channel: Channel, method: commands.Exchange.Delete) -> None:
    session.vhost.exchanges.delete(declared_name(method.exchange), if_unused=method.if_unused, client=session.client)
    if not method.nowait:
        session.output.send(channel.number, commands.Exchange.DeleteOk)


def _exchange_binding(
    session: AmqpSession, method: commands.Exchange.Bind | commands.Exchange.Unbind
) -> "tuple[str, str, str, str, FieldTable, Client]":
    """The arguments of `Bindings.add` and `Bindings.remove`."""
    destination, source = declared_name(method.destination), declared_name(method.source)
    return "exchange", destination, source, method.routing_key, _table(method.arguments), session.client


def _exchange_bind(session: AmqpSession, channel: Channel, method: commands.Exchange.Bind) -> None:
    session.vhost.bindings.add(*_exchange_binding(session, method))
    if not method.nowait:
        session.output.send(channel.number, commands.Exchange.BindOk)


def _exchange_unbind(session: AmqpSession, channel: Channel, method: commands.Exchange.Unbind) -> None:
    session.vhost.bindings.remove(*_exchange_binding(session, method))
    if not method.nowait:
        session.output.send(channel.number, commands.Exchange.UnbindOk)


def _queue_declare(session: AmqpSession, channel: Channel, method: commands.Queue.Declare) -> None:
    name = declared_name(method.queue)
    if method.queue.startswith(REPLY_TO) and session.vhost.reply_queues.has(name):
        channel.last_queue = name
        if not method.nowait:
            session.output.send(channel.number, commands.Queue.DeclareOk, name, 0, 1)
        return
    vhost, client = session.vhost, session.client
    if method.passive:
        queue = vhost.queues.declare_passive(name, client)
    else:
        server_named, name = not name, name or session.make_name("amq.gen-")
        queue = vhost.queues.declare(
            name,
            client=client,
            durable=method.durable,
            exclusive=method.exclusive,
            auto_delete=method.auto_delete,
            arguments=_table(method.arguments),
            server_named=server_named,
        )
    channel.last_queue = name
    if not method.nowait:
        session.broker.scheduler.dispatch_now(queue)
        session.output.send(channel.number, commands.Queue.DeclareOk, name, queue.ready_count, len(queue.consumers))


def _queue_name(session: AmqpSession, channel: Channel, queue: str) -> str:
    """The queue to bind or delete: the last one declared if the name is empty, but not if it is only line ends."""
    return declared_name(queue) if queue else session.queue_name(channel, "")


def _queue_binding(
    session: AmqpSession, channel: Channel, method: commands.Queue.Bind | commands.Queue.Unbind
) -> "tuple[str, str, str, str, FieldTable, Client]":
    """As `_exchange_binding`. If queue and routing key are empty, both are the name of the last declared queue."""
    name = _queue_name(session, channel, method.queue)
    routing_key = method.routing_key if method.queue or method.routing_key else name
    return "queue", name, declared_name(method.exchange), routing_key, _table(method.arguments), session.client


def _queue_bind(session: AmqpSession, channel: Channel, method: commands.Queue.Bind) -> None:
    session.vhost.bindings.add(*_queue_binding(session, channel, method))
    if not method.nowait:
        session.output.send(channel.number, commands.Queue.BindOk)


def _queue_unbind(session: AmqpSession, channel: Channel, method: commands.Queue.Unbind) -> None:
    session.vhost.bindings.remove(*_queue_binding(session, channel, method))
    session.output.send(channel.number, commands.Queue.UnbindOk)


def _must_wait(channel: Channel, queue: "Queue | None") -> bool:
    """Whether a purge or delete has to wait for another turn: for its bulk delete, or until the queue is not busy."""
    if channel.bulk_delete is not None:
        return not channel.bulk_delete.is_small
    return queue is not None and queue.is_busy()


def _finish_bulk_delete(session: AmqpSession, channel: Channel) -> int | None:
    """End the method's wait. Returns: messages that the bulk delete removed for it; None: there was no bulk delete."""
    bulk_delete, channel.bulk_delete = channel.bulk_delete, None
    if bulk_delete is None:
        return None
    session.journal.has_acted = True  # the answer also states that these messages are deleted
    return bulk_delete.finish()


def _queue_purge(session: AmqpSession, channel: Channel, method: commands.Queue.Purge) -> ChannelMethod | None:
    name = session.queue_name(channel, method.queue)
    vhost, client = session.vhost, session.client
    queue = vhost.queues.seen(name, client)
    if _must_wait(channel, queue):
        return ChannelMethod(channel.number, channel, method)
    before = _finish_bulk_delete(session, channel)
    if before is None and queue is not None and is_large(queue, deletes=False):
        channel.bulk_delete = vhost.queues.begin_purge(name, client)
        return ChannelMethod(channel.number, channel, method)
    count = vhost.queues.purge(name, client) + (before or 0)
    if not method.nowait:
        session.output.send(channel.number, commands.Queue.PurgeOk, count)
    return None


def _queue_delete(session: AmqpSession, channel: Channel, method: commands.Queue.Delete) -> ChannelMethod | None:
    name = _queue_name(session, channel, method.queue)
    vhost, client = session.vhost, session.client
    queue = vhost.queues.seen(name, client)
    if _must_wait(channel, queue):
        return ChannelMethod(channel.number, channel, method)
    before = _finish_bulk_delete(session, channel)
    # The conditions were checked when the deletion began; a half-deleted queue is deleted.
    if_unused, if_empty = method.if_unused and before is None, method.if_empty and before is None
    if before is None and queue is not None and is_large(queue, deletes=True):
        channel.bulk_delete = vhost.queues.begin_delete(name, client, if_unused=if_unused, if_empty=if_empty)
        return ChannelMethod(channel.number, channel, method)
    session.output.render()
    count = vhost.queues.delete(name, client, if_unused=if_unused, if_empty=if_empty) + (before or 0)
    if not method.nowait:
        # Before the basic.cancel of the peer's consumers: RabbitMQ 3.10 does so, and kombu's test suite relies on it.
        session.output.send_raw(channel.number, encode_method(channel.number, commands.Queue.DeleteOk, count))
    return None


TOPOLOGY_HANDLERS: dict[type[Method], Handler] = {
    commands.Exchange.Declare: _exchange_declare,
    commands.Exchange.Delete: _exchange_delete,
    commands.Exchange.Bind: _exchange_bind,
    commands.Exchange.Unbind: _exchange_unbind,
    commands.Queue.Declare: _queue_declare,
    commands.Queue.Bind: _queue_bind,
    commands.Queue.Unbind: _queue_unbind,
    commands.Queue.Purge: _queue_purge,
    commands.Queue.Delete: _queue_delete,
}
