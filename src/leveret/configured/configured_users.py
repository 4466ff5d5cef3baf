"""The users and limits that the configuration declares: applied to a broker at its start and after each reload.

A declared user is reset to its entry whenever the entry changes, and at a restart; until then, changes by
`leveret ctl` stay, but a user that it deleted is created again by the next reload. Each reload sets declared limits
again. A user that is no longer declared is deleted, and its connections are closed. Declared users replace the default
guest, unless it was changed; it is back when none is declared any longer.
Source: interfaces page; behaviour page 3.13 to 3.15.
"""

import secrets
from collections.abc import Iterator
from types import MappingProxyType

from ..engine import (
    NO_LIMITS,
    SALT_SIZE,
    Broker,
    Grant,
    PasswordHash,
    Permissions,
    TopicPermission,
    User,
    VirtualHostLimits,
    hash_password,
    read_password_hash,
)
from ..settings import Configuration, UserDeclaration
from ..settings.values import shown

#: guest / guest: an administrator with all permissions, who can log in from loopback only.
DEFAULT_GUEST = User("guest", hash_password("guest", bytes(SALT_SIZE)), ("administrator",), loopback_only=True)


def new_hash(password: str) -> PasswordHash:
    return hash_password(password, secrets.token_bytes(SALT_SIZE))


class ConfiguredUsers:
    """The users and limits of one broker that the configuration declares."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._users: dict[str, UserDeclaration] = {}
        self._limited: set[str] = set()

    def apply(self, configuration: Configuration) -> list[str]:
        """Apply the declared users and limits. Returns a line for each change. The virtual hosts must exist."""
        return [
            *self._apply_limits(configuration),
            *self._replace_users(configuration),
            *self._delete_users(configuration),
        ]

    def _apply_limits(self, configuration: Configuration) -> Iterator[str]:
        for name, vhost in self.broker.virtual_hosts.items():
            declared = configuration.limits.get(name)
            if declared is None and name not in self._limited:
                continue  # limits that an operator has set stay
            limits = NO_LIMITS
            if declared is not None:
                limits = VirtualHostLimits(
                    declared.max_connections, declared.max_queues, declared.default_queue_type, is_configured=True
                )
            if limits != vhost.context.limits:
                self.broker.virtual_hosts.limit(vhost, limits)
                yield f"virtual host {shown(name)}: limits changed"
        self._limited = set(configuration.limits)

    def _replace_users(self, configuration: Configuration) -> Iterator[str]:
        users = self.broker.users
        for declared in configuration.users:
            if self._users.get(declared.name) == declared and users.find(declared.name) is not None:
                continue
            word = "changed" if declared.name in self._users else "created"
            self._users[declared.name] = declared
            self.broker.connections.replace_user(user_of(declared))
            yield f"{declared.origin}: user {shown(declared.name)} {word}"

    def _delete_users(self, configuration: Configuration) -> Iterator[str]:
        declared = {user.name for user in configuration.users}
        gone = [name for name in self._users if name not in declared]
        for name in gone:
            del self._users[name]
            if self.broker.users.find(name) is not None:
                self.broker.connections.delete_user(name)
                yield f"user {shown(name)} is no longer declared: deleted"
        if gone and not declared and self.broker.users.find(DEFAULT_GUEST.name) is None:
            self.broker.connections.replace_user(DEFAULT_GUEST)
            yield "no user is declared: the default guest is back"
        if declared and self.broker.users.find(DEFAULT_GUEST.name) == DEFAULT_GUEST:
            self.broker.connections.delete_user(DEFAULT_GUEST.name)
            yield "users are declared: the default guest is deleted"


def user_of(declared: UserDeclaration) -> User:
    """The engine's user for a declaration, in which `faults_of_users` must have found no fault."""
    if declared.password:
        password = new_hash(declared.password)
    else:
        password = read_password_hash(declared.password_hash, declared.hashing_algorithm)
    topics: dict[str, dict[str, TopicPermission]] = {}
    for topic in declared.topic_permissions:
        topics.setdefault(topic.vhost, {})[topic.exchange] = TopicPermission(topic.write, topic.read)
    permissions = {
        one.vhost: Permissions(
            Grant(one.configure, one.write, one.read, MappingProxyType(topics.get(one.vhost, {}))),
            user=declared.name,
            vhost=one.vhost,
        )
        for one in declared.permissions
    }
    return User(
        declared.name,
        password,
        tuple(sorted(declared.tags)),
        declared.loopback_only,
        MappingProxyType(permissions),
        declared.max_connections,
        declared.max_channels,
        is_configured=True,
    )


def faults_of_users(configuration: Configuration) -> list[str]:
    """Faults of users that their loader did not check, as FILE:LINE: KEY: why."""
    found: list[str] = []
    for user in configuration.users:
        try:
            read_password_hash(user.password_hash, user.hashing_algorithm)
        except ValueError as error:
            found.append(f"{user.password_origin}: password-hash: expected {error}")
    return found


def readable_passwords(configuration: Configuration, is_private: "dict[str, bool]") -> list[str]:
    """Plain passwords in files that other users can read, as FILE:LINE: KEY: why.

    `is_private`: file -> whether only its owner can read it.
    """
    return [
        f"{user.password_origin}: password: is in a file that other users can read: chmod 600, or give password-hash"
        for user in configuration.users
        if user.password and not is_private.get(user.password_origin.file, False)
    ]
