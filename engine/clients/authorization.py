"""Checks the permissions of a client's user for operations and for the arguments of a queue.

A client of None is the broker itself, which may do all. Source: behaviour page 3.14, 3.15.
"""

from typing import TYPE_CHECKING

from ..exchanges.exchange import Exchange, TopicExchange
from ..messages.field_table import FieldTable
from ..users.permissions import CONFIGURE, EXCHANGE, QUEUE, READ, WRITE

if TYPE_CHECKING:
    from .client import Client

#: Leveret's arguments that name an address for dead or expired messages.
OUR_ADDRESSES = ("x-dead-letter-address", "x-expiry-address")


def require(client: "Client | None", action: str, kind: str, name: str) -> None:
    """Check an action of a client on a queue or exchange of its virtual host. Raises: PermissionRefused."""
    if client is not None and client.user.permissions is not None:
        client.user.require(action, kind, name, client.vhost.name)


def may(client: "Client | None", action: str, kind: str, name: str) -> bool:
    """Whether `require` would pass."""
    return client is None or client.user.may(action, kind, name, client.vhost.name)


def require_topic(client: "Client | None", action: str, exchange: Exchange, routing_key: str) -> None:
    """Check a routing key; only topic exchanges have permissions for keys. Raises: TopicRefused."""
    if client is not None and exchange.type == TopicExchange.type:
        client.user.require_topic(action, exchange.name, routing_key, client.vhost.name)


def require_for_arguments(client: "Client | None", name: str, arguments: FieldTable) -> None:
    """Check the permissions that the arguments of a new queue need in addition to those of its name.

    A target for dead or expired messages needs read on the queue and write on each exchange that the target may stand
    for (behaviour page 3.14). An address (`x-address`) that is neither empty nor the queue's own name needs configure
    and read on a queue of that name, because the new queue gets its messages. Raises: PermissionRefused.
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


def may_make_targets(client: "Client | None", arguments: FieldTable) -> bool:
    """Whether the user may declare the queues that these arguments name as targets."""
    for key in OUR_ADDRESSES:
        target = arguments.get(key)
        if target is not None and target.tag == "S" and not may(client, CONFIGURE, QUEUE, _queue_named_by(target.text)):
            return False
    return True


def _queue_named_by(address: str) -> str:
    """The queue that `auto_created.targets_of` creates for an address without queues."""
    if address.startswith("exchange:"):
        return address.removeprefix("exchange:").partition("/")[0]
    return address.removeprefix("queue:")


def _exchanges_of(address: str) -> tuple[str, ...]:
    """Exchanges that an address may stand for, now or later (`Router.resolve_address`)."""
    if address.startswith("exchange:"):
        return (address.removeprefix("exchange:").partition("/")[0],)
    return ("",) if address.startswith("queue:") else (address, "")
