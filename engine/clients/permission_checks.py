"""Permission checks of a client, or of nobody (the broker itself), and what a queue's arguments need.

The rules themselves are in `users/access.py`. Source: behaviour page 3.14, 3.15.
"""

from typing import TYPE_CHECKING

from ...settings.leases import AMPS, is_regex
from ..exchanges.exchange import Exchange, TopicExchange
from ..messages.field_table import FieldTable
from ..rules.arguments import queue_type_of
from ..users.permissions import CONFIGURE, EXCHANGE, QUEUE, READ, WRITE

if TYPE_CHECKING:
    from .client import Client

#: Arguments of ours that name where the dead go.
OUR_ADDRESSES = ("x-dead-letter-address", "x-expiry-address")


def require(client: "Client | None", action: str, kind: str, name: str) -> None:
    """A client does this with a queue or exchange of its virtual host; None is the broker itself, which may.

    Raises: PermissionRefused.
    """
    if client is not None and client.user.permissions is not None:
        client.user.require(action, kind, name, client.vhost.name)


def may(client: "Client | None", action: str, kind: str, name: str) -> bool:
    """As `require`, for asking."""
    return client is None or client.user.may(action, kind, name, client.vhost.name)


def require_topic(client: "Client | None", action: str, exchange: Exchange, routing_key: str) -> None:
    """A key of an exchange; only topic exchanges have such permissions. Raises: TopicRefused."""
    if client is not None and exchange.type == TopicExchange.type:
        client.user.require_topic(action, exchange.name, routing_key, client.vhost.name)


def require_for_arguments(client: "Client | None", name: str, arguments: FieldTable) -> None:
    """What the arguments of a new queue reach beyond it.

    Dead letters need read on the queue and write on the target (behaviour page 3.14); so do our addresses, which may
    stand for an exchange or for a queue behind the default one. A queue with another's address takes its messages:
    that needs what a queue of that name would. Raises: PermissionRefused, TopicRefused.
    """
    if client is None:
        return
    exchange = arguments.get("x-dead-letter-exchange")
    if exchange is not None and exchange.tag == "S":
        require(client, READ, QUEUE, name)
        require(client, WRITE, EXCHANGE, exchange.text)
    for key in OUR_ADDRESSES:
        target = arguments.get(key)
        if target is not None and target.tag == "S" and target.value:
            require(client, READ, QUEUE, name)
            for exchange_name in _exchanges_of(target.text):
                require(client, WRITE, EXCHANGE, exchange_name)
    address = arguments.get("x-address")
    if address is not None and address.tag == "S" and address.value and address.text != name:
        require(client, CONFIGURE, QUEUE, address.text)
        require(client, READ, QUEUE, address.text)
    if queue_type_of(arguments) == AMPS:
        _require_for_topics(client, name, arguments)


def may_make_targets(client: "Client | None", arguments: FieldTable) -> bool:
    """Whether a queue may be made for each of our addresses among these arguments: by a user who could declare it."""
    for key in OUR_ADDRESSES:
        target = arguments.get(key)
        if target is not None and target.tag == "S" and not may(client, CONFIGURE, QUEUE, _queue_named_by(target.text)):
            return False
    return True


def _require_for_topics(client: "Client", name: str, arguments: FieldTable) -> None:
    """What a leased queue captures needs what a binding to that would: read. Where a publish to its name is recorded
    needs write. A pattern selects what comes, too, so it needs read on everything. Raises: PermissionRefused,
    TopicRefused."""
    for key, action in (("x-underlying-topic", READ), ("x-default-publish-target", WRITE)):
        field = arguments.get(key)
        if field is None or field.tag != "S" or field.text == name:
            continue
        topic = field.text
        if action == READ and is_regex(topic):
            client.user.require_all(READ, EXCHANGE, topic, client.vhost.name)
            continue
        require(client, action, EXCHANGE, topic)
        client.user.require_topic(action, topic, "#", client.vhost.name)
        for at, letter in enumerate(topic):
            if letter == "/" and at:  # EXCHANGE/KEY, at whichever slash
                require(client, action, EXCHANGE, topic[:at])
                client.user.require_topic(action, topic[:at], topic[at + 1 :], client.vhost.name)


def _queue_named_by(address: str) -> str:
    """The queue that is made where nothing is bound to an address (`auto_created.targets_of`)."""
    if address.startswith("exchange:"):
        return address.removeprefix("exchange:").partition("/")[0]
    return address.removeprefix("queue:")


def _exchanges_of(address: str) -> tuple[str, ...]:
    """Exchanges that an address may stand for, now or later (`Router.resolve_address`)."""
    if address.startswith("exchange:"):
        return (address.removeprefix("exchange:").partition("/")[0],)
    return ("",) if address.startswith("queue:") else (address, "")
