"""Users: their logins, virtual hosts and permissions.

A `User` is immutable. `Connections.replace_user` replaces it, with immediate effect on connected clients.
Source: behaviour page 1.4, 3.14, 3.15.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType

from ...settings.frozen import frozen
from ..errors import LoginRefused, LoginThrottled, PermissionRefused, TopicRefused, VirtualHostRefused
from .login_throttle import LoginThrottle
from .passwords import NO_PASSWORD, PasswordHash
from .permissions import EXCHANGE, Grant, Permissions, TopicPermission

#: The tag of users that are links between brokers (queues page E.5.2).
INTERNAL_LINK = "x-internal-link"
#: The known tags of users; only the first and the last two have a meaning in AMQP.
TAGS = ("administrator", "monitoring", "policymaker", "management", "impersonator", INTERNAL_LINK)
#: The name of the default exchange in permissions.
DEFAULT_EXCHANGE = "amq.default"


@frozen
class User:
    """A user and its rights.

    `permissions`: by virtual host; no access to hosts that are missing; None: full access to all hosts.
    `max_connections`, `max_channels`: over all connections of the user; None: no limit.
    `tags`: in the order in which they were set, because clients read them back.
    `topics_before_permissions`: topic permissions by virtual host and exchange, for hosts where the user has no
    permissions yet. They grant nothing until permissions are set there.
    `is_configured`: the user is defined in the configuration, which restores it when the broker starts.
    """

    name: str
    password: PasswordHash = field(default=NO_PASSWORD)
    tags: tuple[str, ...] = ()
    loopback_only: bool = False
    permissions: Mapping[str, Permissions] | None = None
    max_connections: int | None = None
    max_channels: int | None = None
    is_configured: bool = field(default=False, compare=False)
    topics_before_permissions: Mapping[str, Mapping[str, TopicPermission]] = field(
        default_factory=lambda: MappingProxyType({})
    )

    @property
    def is_administrator(self) -> bool:
        return "administrator" in self.tags

    @property
    def is_internal_link(self) -> bool:
        """Whether this is the user of a link. A full queue blocks a link's publishes but never refuses them."""
        return INTERNAL_LINK in self.tags

    def topics(self) -> Iterator[tuple[str, str, TopicPermission]]:
        """All topic permissions, effective and waiting: (virtual host, exchange, permission)."""
        for vhost, permissions in (self.permissions or {}).items():
            for exchange, topic in permissions.grant.topics.items():
                yield vhost, exchange, topic
        for vhost, topics in self.topics_before_permissions.items():
            for exchange, topic in topics.items():
                yield vhost, exchange, topic

    def grants(self, vhosts: Iterable[str]) -> dict[str, Grant]:
        """The permissions by virtual host; with full access to all hosts, those in each of `vhosts`."""
        if self.permissions is None:
            return {name: Grant() for name in vhosts}
        return {vhost: permissions.grant for vhost, permissions in self.permissions.items()}

    def check_vhost(self, vhost: str) -> None:
        """Raises: VirtualHostRefused, if the user has no permissions there, not even empty ones."""
        if self.permissions is not None and vhost not in self.permissions:
            raise VirtualHostRefused(vhost=vhost, user=self.name)

    def may(self, action: str, kind: str, name: str, vhost: str) -> bool:
        """Whether the user may configure, write to or read from a queue or exchange."""
        if self.permissions is None:
            return True
        permissions = self.permissions.get(vhost)
        return permissions is not None and permissions.allows(action, _name(kind, name))

    def require(self, action: str, kind: str, name: str, vhost: str) -> None:
        """Check a permission. Raises: PermissionRefused."""
        if not self.may(action, kind, name, vhost):
            raise PermissionRefused(action=action, kind=kind, name=_name(kind, name), vhost=vhost, user=self.name)

    def require_all(self, action: str, kind: str, name: str, vhost: str) -> None:
        """Check the permission on all names, for a pattern `name`. Raises: PermissionRefused."""
        permissions = None if self.permissions is None else self.permissions.get(vhost)
        if self.permissions is not None and (permissions is None or not permissions.allows_all(action)):
            raise PermissionRefused(action=action, kind=kind, name=name, vhost=vhost, user=self.name)

    def require_topic(self, action: str, exchange: str, routing_key: str, vhost: str) -> None:
        """Check the permission on a key of a topic exchange. Raises: TopicRefused."""
        if self.permissions is None:
            return
        permissions = self.permissions.get(vhost)
        if permissions is None or not permissions.allows_topic(action, exchange, routing_key):
            raise TopicRefused(action=action, topic=routing_key, name=exchange, vhost=vhost, user=self.name)


def _name(kind: str, name: str) -> str:
    return DEFAULT_EXCHANGE if kind == EXCHANGE and not name else name


#: The login mechanism of the console.
HTTP = "HTTP"


class Users:
    """All users by name. Change them through `Connections`, which also updates connected clients.

    `login_throttle`: delays logins after failures; None: no delays.
    """

    def __init__(self, users: Iterable[User] = (), login_throttle: LoginThrottle | None = None) -> None:
        self._by_name = {user.name: user for user in users}
        self._is_used = bool(self._by_name)
        #: Users added, replaced and removed since the start.
        self.changes = 0
        self.login_throttle = login_throttle
        #: By protocol: [logins that succeeded, logins that failed].
        self.attempts: dict[str, list[int]] = {"http": [0, 0], "amqp091": [0, 0]}

    def __iter__(self) -> Iterator[User]:
        return iter(tuple(self._by_name.values()))

    def find(self, name: str) -> User | None:
        return self._by_name.get(name)

    def add(self, user: User) -> None:
        self._by_name[user.name] = user
        self.changes += 1
        self._is_used = True

    def remove(self, name: str) -> None:
        """Remove a user, if it exists."""
        self._by_name.pop(name, None)
        self.changes += 1

    def current(self, user: User, vhost: str) -> User:
        """The present state of a user that logged in earlier; `user` itself if the broker never had users.

        Raises: VirtualHostRefused, if the user was removed after the login.
        """
        known = self._by_name.get(user.name)
        if known is None and self._is_used:
            raise VirtualHostRefused(vhost=vhost, user=user.name)
        return known or user

    def log_in(self, name: str, password: str, *, mechanism: str, is_loopback: bool, origin: str = "") -> User:
        """The user, if name and password are right and the user may log in from there.

        `origin`: the peer's origin, by which failures are counted; see `address_origin`.
        Raises: LoginRefused, which does not reveal the reason to the peer.
        """
        login_throttle = self.login_throttle
        if login_throttle is not None and (wait_ns := login_throttle.wait_ns(name, origin)):
            self._count(mechanism)[1] += 1
            raise LoginThrottled(mechanism=mechanism, wait_ns=wait_ns)
        try:
            user = self._by_name.get(name)
            # Also compared for unknown users, so that the answer takes the same time.
            right = (user.password if user is not None else NO_PASSWORD).is_right(password)
            if user is None or not right:
                raise self._refused(mechanism)
            self._checked(user, mechanism, is_loopback)
        except LoginRefused:
            if login_throttle is not None:
                login_throttle.failed(name, origin)
            raise
        if login_throttle is not None:
            login_throttle.succeeded(name, origin)
        return user

    def identify(self, name: str, *, mechanism: str, is_loopback: bool) -> User:
        """The user whose identity another mechanism has proven. Raises: LoginRefused."""
        user = self._by_name.get(name)
        if user is None:
            raise self._refused(mechanism)
        return self._checked(user, mechanism, is_loopback)

    def _checked(self, user: User, mechanism: str, is_loopback: bool) -> User:
        if user.loopback_only and not is_loopback:
            raise self._refused(mechanism)
        self._count(mechanism)[0] += 1
        return user

    def _refused(self, mechanism: str) -> LoginRefused:
        self._count(mechanism)[1] += 1
        return LoginRefused(mechanism=mechanism)

    def _count(self, mechanism: str) -> list[int]:
        return self.attempts["http" if mechanism == HTTP else "amqp091"]
