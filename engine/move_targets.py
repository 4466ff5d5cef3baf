"""The destinations of messages that an operator moves: a queue, an exchange, or the message's origin.

A move creates no queues. It does not apply the rules of addresses (duplicates, delays, diverts), which were applied
when the message was published. Source: management page 16.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from .clients.client import Client
from .context import HostContext
from .errors import InternalExchangeRefused
from .exchanges.exchange import Exchange
from .exchanges.routed import Routed
from .messages.content import NATIVE, scan_properties, splice_header
from .messages.dead_letter import DELIVERY_COUNT, origin_of, without_deaths
from .messages.message import Envelope, Message
from .queues.queue import Queue
from .users.permissions import EXCHANGE, QUEUE, WRITE

_COUNT = DELIVERY_COUNT.encode()


class Unmovable(Exception):
    """The message cannot be moved; the text is the reason."""


class MoveTarget(NamedTuple):
    """The destination of one message. `title`: its name for operators. `exchange`: that which routes to `queues`.

    `keys`: those by which it does; empty: the message goes straight to its queue.
    """

    title: str
    exchange: Exchange
    queues: list[Queue]
    envelope: Envelope
    content: bytes
    keys: tuple[str, ...] = ()


#: Finds the destination of one message. Raises: Unmovable, EngineError.
FindTarget = Callable[[Message], MoveTarget]


def to_queue(client: Client, name: str) -> FindTarget:
    """Move directly into a queue, with the exchange and routing key of each message. Raises: PermissionRefused."""

    def find_target(message: Message) -> MoveTarget:
        client.user.require(WRITE, QUEUE, name, client.host.name)
        return _into(client, name, message, *_without_count(message))

    client.user.require(WRITE, QUEUE, name, client.host.name)
    return find_target


def to_exchange(client: Client, name: str, routing_key: str | None) -> FindTarget:
    """Move to an exchange, with this routing key; None: with that of each message. Raises: PermissionRefused."""

    def find_target(message: Message) -> MoveTarget:
        key = message.envelope.routing_key if routing_key is None else routing_key
        return _through(client, name, (key,), message, without_history=False)

    client.user.require(WRITE, EXCHANGE, name, client.host.name)
    return find_target


def to_origin(client: Client, *, into_queue: bool, without_history: bool) -> FindTarget:
    """Move each message back to the exchange and routing keys of its publish.

    `into_queue`: move directly into the queue in which it died. `without_history`: remove the headers of its deaths.
    """

    def find_target(message: Message) -> MoveTarget:
        origin = origin_of(message)
        if origin is None:
            raise Unmovable("no header says where it came from")
        if into_queue:
            if not origin.queue:
                raise Unmovable("no header says which queue it died in")
            client.user.require(WRITE, QUEUE, origin.queue, client.host.name)
            return _into(
                client, origin.queue, message, *_for_publish(message, origin.exchange, origin.keys, without_history)
            )
        exchange, keys = origin.exchange, origin.keys
        if origin.address:
            exchange, key = client.host.router.resolve_address(origin.address, origin.queue)
            keys = (key or message.envelope.routing_key,)
        with _at_site_of(client.host, origin.queue):
            return _through(client, exchange, keys, message, without_history=without_history)

    return find_target


def _at_site_of(host: HostContext, full_name: str) -> AbstractContextManager[None]:
    """Route for a site that sees the queue of this name."""
    sites = host.broker.sites
    return sites.at(host.site_of(full_name) or sites.now)


def _into(client: Client, name: str, message: Message, envelope: Envelope, content: bytes) -> MoveTarget:
    """Move into the queue of this full name, or publish to the topic that it captures."""
    host = client.host
    queue = host.queues.get(name)
    if queue is None:
        raise Unmovable(f"there is no queue {name!r}")
    default = host.exchanges[""]
    if queue.kind.captures:  # it selects messages by topic and content
        with _at_site_of(host, name):
            return _through(client, "", (name,), message, without_history=False)
    if not queue.is_open:
        raise Unmovable(f"queue {name!r} takes no messages now")
    return MoveTarget(f"queue {name}", default, [queue], envelope, content)


def _through(
    client: Client, name: str, keys: tuple[str, ...], message: Message, *, without_history: bool
) -> MoveTarget:
    """Move by the exchange's bindings, with the user's permissions."""
    host, user = client.host, client.user
    user.require(WRITE, EXCHANGE, name, host.name)
    exchange = host.exchanges.get(name)
    if exchange is None:
        raise Unmovable(f"there is no exchange {name!r}")
    if exchange.internal:
        raise InternalExchangeRefused(name=name, vhost=host.name)
    if exchange.is_topic:
        for key in keys:
            user.require_topic(WRITE, name, key, host.name)
    envelope, content = _for_publish(message, name, keys, without_history)
    queues = host.router.reach(exchange, Routed(keys, envelope, content, host.broker.chance), is_dry=True)
    title = f"exchange {name}, key {keys[0]}" if name else f"queue {keys[0]}"
    if not queues:
        raise Unmovable(f"no queue takes it: {title}")
    return MoveTarget(title, exchange, queues, envelope, content, keys)


def _without_count(message: Message) -> tuple[Envelope, bytes]:
    """The envelope and content without the delivery count."""
    envelope = message.envelope
    if not envelope.summary.has_headers or _COUNT not in message.header:
        return envelope, message.content
    return _for_publish(message, envelope.exchange, envelope.keys, False)


def _for_publish(
    message: Message, exchange: str, keys: tuple[str, ...], without_history: bool
) -> tuple[Envelope, bytes]:
    """The envelope and content for a publish to an exchange with these keys, without the delivery count."""
    header, body = message.envelope.framing.split(message.content)
    if without_history:
        header = without_deaths(header)
    elif _COUNT in header:
        header = splice_header(header, {}, {DELIVERY_COUNT})
    envelope = Envelope(exchange, keys[0], scan_properties(header[12:], is_checked=True))
    envelope.copies = keys[1:]
    return envelope, NATIVE.join(header, body)
