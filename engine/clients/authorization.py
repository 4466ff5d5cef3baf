"""Authorization of what a client does, or the broker itself (None), and of what the arguments of a queue ask for.

The rules are those of the user: `users/access.py`. Source: behaviour page 3.14, 3.15.
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
    """Check an action of a client on a queue or exchange of its virtual host; None, the broker itself, may do all.

    Raises: PermissionRefused.
    """
    if client is not None and client.user.permissions is not None:
        client.user.require(action, kind, name, client.vhost.name)


def may(client: "Client | None", action: str, kind: str, name: str) -> bool:
    """Whether `require` would pass."""
    return client is None or client.user.may(action, kind, name, client.vhost.name)


def require_topic(client: "Client | None", action: str, exchange: Exchange, routing_key: str) -> None:
    """Check a routing key; only topic exchanges have such permissions. Raises: TopicRefused."""
    if client is not None and exchange.type == TopicExchange.type:
        client.user.require_topic(action, exchange.name, routing_key, client.vhost.name)


def require_for_arguments(client: "Client | None", name: str, arguments: FieldTable) -> None:
    """Check the permissions that the arguments of a new queue need beyond the queue itself.

    Dead letters need read on the queue and write on the target (behaviour page 3.14); so do Leveret's addresses, which
    may stand for an exchange or for a queue behind the default one. A queue with another queue's address takes its
    messages, and needs the permissions of a queue of that name. Raises: PermissionRefused, TopicRefused.
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
    """Whether a missing queue may be created for each address among these arguments: the user could declare it."""
    for key in OUR_ADDRESSES:
        target = arguments.get(key)
        if target is not None and target.tag == "S" and not may(client, CONFIGURE, QUEUE, _queue_named_by(target.text)):
            return False
    return True


def _queue_named_by(address: str) -> str:
    """The queue that is created if nothing is bound to an address (`auto_created.targets_of`)."""
    if address.startswith("exchange:"):
        return address.removeprefix("exchange:").partition("/")[0]
    return address.removeprefix("queue:")


def _exchanges_of(address: str) -> tuple[str, ...]:
    """Exchanges that an address may stand for, now or later (`Router.resolve_address`)."""
    if address.startswith("exchange:"):
        return (address.removeprefix("exchange:").partition("/")[0],)
    return ("",) if address.startswith("queue:") else (address, "")
