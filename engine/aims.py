"""Where a message goes that an operator moves: into a queue, to an exchange, or back to where it came from.

Nothing is created on the way, and no rule of an address is applied again (duplicates, delays, diverts): the message
has been through those. Source: management page 16.
"""

from collections.abc import Callable
from typing import NamedTuple

from .clients.client import Client
from .errors import InternalExchangeRefused
from .exchanges.exchange import Exchange
from .exchanges.routed import Routed
from .messages.content import PLAIN, scan_properties, splice_header
from .messages.deaths import DELIVERY_COUNT
from .messages.message import Envelope, Message
from .messages.origins import origin_of, without_deaths
from .queues.queue import Queue
from .users.permissions import EXCHANGE, QUEUE, WRITE

_COUNT = DELIVERY_COUNT.encode()


class Unmovable(Exception):
    """The message stays; the text says why."""


class Place(NamedTuple):
    """Where one message goes. `title`: the place, as operators name it. `exchange`: by which it gets there."""

    title: str
    exchange: Exchange
    queues: list[Queue]
    envelope: Envelope
    blob: bytes


#: Of one message. Raises: Unmovable, EngineError.
Aim = Callable[[Message], Place]


def to_queue(client: Client, name: str) -> Aim:
    """Straight into a queue, with the exchange and the routing key that each message was published with."""
    client.user.require(WRITE, QUEUE, name, client.host.name)
    return lambda message: _into(client, name, message, *_as_it_is(message))


def to_exchange(client: Client, name: str, routing_key: str | None) -> Aim:
    """To an exchange, with this routing key, or each with its own."""

    def aim(message: Message) -> Place:
        key = message.envelope.routing_key if routing_key is None else routing_key
        return _through(client, name, (key,), message, without_history=False)

    return aim


def to_origin(client: Client, *, into_queue: bool, without_history: bool) -> Aim:
    """To the exchange that each message came through, with its routing keys; or `into_queue`: where it died.

    `without_history`: headers that tell of deaths are left behind.
    """

    def aim(message: Message) -> Place:
        origin = origin_of(message)
        if origin is None:
            raise Unmovable("no header says where it came from")
        if into_queue:
            if not origin.queue:
                raise Unmovable("no header says which queue it died in")
            client.user.require(WRITE, QUEUE, origin.queue, client.host.name)
            return _into(client, origin.queue, message, *_again(message, origin.exchange, origin.keys, without_history))
        exchange, keys = origin.exchange, origin.keys
        if origin.address:
            exchange, key = client.host.router.resolve_address(origin.address, origin.queue)
            keys = (key or message.envelope.routing_key,)
        return _through(client, exchange, keys, message, without_history=without_history)

    return aim


def _into(client: Client, name: str, message: Message, envelope: Envelope, blob: bytes) -> Place:
    host = client.host
    queue = host.queues.get(name)
    if queue is None:
        raise Unmovable(f"there is no queue {name!r}")
    default = host.exchanges[""]
    if queue.rules.leased is not None:  # it captures by topic and content: it may not want this one
        return _through(client, "", (name,), message, without_history=False)
    if not queue.is_open:
        raise Unmovable(f"queue {name!r} takes no messages now")
    return Place(f"queue {name}", default, [queue], envelope, blob)


def _through(client: Client, name: str, keys: tuple[str, ...], message: Message, *, without_history: bool) -> Place:
    """By the exchange's bindings, as the user may."""
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
    envelope, blob = _again(message, name, keys, without_history)
    queues = host.router.reach(exchange, Routed(keys, envelope, blob, host.broker.chance))
    title = f"exchange {name}, key {keys[0]}" if name else f"queue {keys[0]}"
    if not queues:
        raise Unmovable(f"no queue takes it: {title}")
    return Place(title, exchange, queues, envelope, blob)


def _as_it_is(message: Message) -> tuple[Envelope, bytes]:
    """The same content, in the same envelope: with a count of deliveries that begins again."""
    envelope = message.envelope
    if not envelope.facts.has_headers or _COUNT not in message.header:
        return envelope, message.blob
    return _again(message, envelope.exchange, envelope.keys, False)


def _again(message: Message, exchange: str, keys: tuple[str, ...], without_history: bool) -> tuple[Envelope, bytes]:
    """The content as it would be published there."""
    header, body = message.envelope.framing.split(message.blob)
    if without_history:
        header = without_deaths(header)
    elif _COUNT in header:
        header = splice_header(header, {}, {DELIVERY_COUNT})
    envelope = Envelope(exchange, keys[0], scan_properties(header[12:], is_checked=True))
    envelope.copies = keys[1:]
    return envelope, PLAIN.join(header, body)
