"""Users: who may log in, from where, into which virtual hosts, and what they may do there.

A `User` is a settled fact: changing one means putting another in its place (`Broker.replace_user`), which clients that
are connected see at once. Source: behaviour page 1.4, 3.14, 3.15.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .errors import LoginRefused, PermissionRefused, TopicRefused, VirtualHostRefused
from .exchange import Exchange, TopicExchange
from .field_table import FieldTable
from .passwords import NO_PASSWORD, PasswordHash
from .permissions import CONFIGURE, EXCHANGE, QUEUE, READ, WRITE, Permissions

if TYPE_CHECKING:
    from .client import Client

#: What a user can be beside an owner of permissions; only the first and the last mean anything to AMQP.
TAGS = ("administrator", "monitoring", "policymaker", "management", "impersonator")
#: The name that the default exchange has in permissions.
DEFAULT_EXCHANGE = "amq.default"


@dataclass(slots=True, frozen=True)
class User:
    """`permissions`: by virtual host, none where it is not named; None: everything everywhere.

    `max_connections`, `max_channels`: over all connections of the user; None: no limit.
    `is_configured`: the configuration made it, and makes it again when the broker starts.
    """

    name: str
    password: PasswordHash = field(default=NO_PASSWORD)
    tags: frozenset[str] = frozenset()
    loopback_only: bool = False
    permissions: Mapping[str, Permissions] | None = None
    max_connections: int | None = None
    max_channels: int | None = None
    is_configured: bool = field(default=False, compare=False)

    @property
    def is_administrator(self) -> bool:
        """May rule the broker through its control table."""
        return "administrator" in self.tags

    def check_vhost(self, vhost: str) -> None:
        """Raises: VirtualHostRefused, when the user has no permissions there, not even empty ones."""
        if self.permissions is not None and vhost not in self.permissions:
            raise VirtualHostRefused(vhost=vhost, user=self.name)

    def may(self, action: str, kind: str, name: str, vhost: str) -> bool:
        """Whether the user may configure, write to or read from a queue or exchange."""
        if self.permissions is None:
            return True
        permissions = self.permissions.get(vhost)
        return permissions is not None and permissions.allows(action, _name(kind, name))

    def require(self, action: str, kind: str, name: str, vhost: str) -> None:
        """Raises: PermissionRefused."""
        if not self.may(action, kind, name, vhost):
            raise PermissionRefused(action=action, kind=kind, name=_name(kind, name), vhost=vhost, user=self.name)

    def require_topic(self, action: str, exchange: str, routing_key: str, vhost: str) -> None:
        """The permission on a key of a topic exchange. Raises: TopicRefused."""
        if self.permissions is None:
            return
        permissions = self.permissions.get(vhost)
        if permissions is None or not permissions.allows_topic(action, exchange, routing_key):
            raise TopicRefused(action=action, topic=routing_key, name=exchange, vhost=vhost, user=self.name)


def _name(kind: str, name: str) -> str:
    return DEFAULT_EXCHANGE if kind == EXCHANGE and not name else name


def require(client: "Client | None", action: str, kind: str, name: str) -> None:
    """A client does this with a queue or exchange of its virtual host; None is the broker itself, which may.

    Raises: PermissionRefused.
    """
    if client is not None:
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

    Dead letters need read on the queue and write on where they go (page 3.14); so do addresses of ours, which may
    stand for an exchange or for a queue behind the default one. A queue with another's address takes its messages:
    that needs what a queue of that name would. Raises: PermissionRefused.
    """
    if client is None:
        return
    exchange = arguments.get("x-dead-letter-exchange")
    if exchange is not None and exchange.tag == "S":
        require(client, READ, QUEUE, name)
        require(client, WRITE, EXCHANGE, exchange.text)
    for key in ("x-dead-letter-address", "x-expiry-address"):
        target = arguments.get(key)
        if target is not None and target.tag == "S" and target.value:
            require(client, READ, QUEUE, name)
            for exchange_name in _exchanges_of(target.text):
                require(client, WRITE, EXCHANGE, exchange_name)
    address = arguments.get("x-address")
    if address is not None and address.tag == "S" and address.value and address.text != name:
        require(client, CONFIGURE, QUEUE, address.text)
        require(client, READ, QUEUE, address.text)


def _exchanges_of(address: str) -> tuple[str, ...]:
    """Exchanges that an address may stand for, now or later (`VirtualHost.resolve_address`)."""
    if address.startswith("exchange:"):
        return (address.removeprefix("exchange:").partition("/")[0],)
    return ("",) if address.startswith("queue:") else (address, "")


class Users:
    """All users by name. Change them through `Broker`, which tells those who are connected."""

    __slots__ = ("_by_name", "_is_used")

    def __init__(self, users: Iterable[User] = ()) -> None:
        self._by_name = {user.name: user for user in users}
        self._is_used = bool(self._by_name)

    def __iter__(self) -> Iterator[User]:
        return iter(tuple(self._by_name.values()))

    def find(self, name: str) -> User | None:
        """The user as it is now."""
        return self._by_name.get(name)

    def add(self, user: User) -> None:
        """Add or replace a user."""
        self._by_name[user.name] = user
        self._is_used = True

    def remove(self, name: str) -> None:
        """Forget a user."""
        self._by_name.pop(name, None)

    def current(self, user: User, vhost: str) -> User:
        """The user as it is now, who logged in a while ago; where there never were users, any is as good.

        Raises: VirtualHostRefused, when it was removed meanwhile.
        """
        known = self._by_name.get(user.name)
        if known is None and self._is_used:
            raise VirtualHostRefused(vhost=vhost, user=user.name)
        return known or user

    def log_in(self, name: str, password: str, *, mechanism: str, is_loopback: bool) -> User:
        """The user, if name and password are right and the peer may be where it is.

        Raises: LoginRefused, without saying why: the reason belongs into the log only.
        """
        user = self._by_name.get(name)
        # Compared even for unknown users, so that the answer takes as long.
        right = (user.password if user is not None else NO_PASSWORD).is_right(password)
        if user is None or not right:
            raise LoginRefused(mechanism=mechanism)
        return self._checked(user, mechanism, is_loopback)

    def identify(self, name: str, *, mechanism: str, is_loopback: bool) -> User:
        """The user whose identity was proven in another way. Raises: LoginRefused."""
        user = self._by_name.get(name)
        if user is None:
            raise LoginRefused(mechanism=mechanism)
        return self._checked(user, mechanism, is_loopback)

    @staticmethod
    def _checked(user: User, mechanism: str, is_loopback: bool) -> User:
        if user.loopback_only and not is_loopback:
            raise LoginRefused(mechanism=mechanism)
        return user
