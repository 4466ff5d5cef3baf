"""Commands about users, permissions and virtual hosts. Source: ruling 24; behaviour page 3.13 to 3.15.

Changes take effect at once, also for clients that are connected.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any

from ..configured.configured_users import new_hash
from ..console.dispatcher import Http, Level
from ..console.views.access import permission_rows, topic_rows
from ..engine import (
    NO_PASSWORD,
    SHA256,
    Grant,
    PasswordHash,
    Permissions,
    TopicPermission,
    User,
    VirtualHostLimits,
    read_password_hash,
)
from ..expressions.patterns.pattern_syntax import PatternFault
from .command import command, created
from .command_error import CommandError
from .kinds import (
    JSON,
    NAME,
    TEXT,
    HostName,
    Limit,
    OnlyUser,
    OnlyVhost,
    Pattern,
    QueueType,
    UserName,
    VhostName,
    Words,
)
from .operator import Operator

OwnName = Annotated[str, NAME, "of the user"]
NewPermissions = Annotated[Any, JSON, 'like {"/": {"configure": "", "write": "", "read": ".*"}}']
PATTERNS = {"configure", "write", "read"}
TopicExchange = Annotated[str, TEXT, "the topic exchange"]


@dataclass(slots=True, frozen=True, kw_only=True)
class Password:
    """The arguments for a password, or for its hash."""

    password: (
        Annotated[str, TEXT, "in clear text; if it is missing, ctl reads it from the terminal or standard input"] | None
    ) = None
    password_hash: Annotated[str, TEXT, "or salt and hash in base64, as in RabbitMQ's definitions"] | None = None
    hashing_algorithm: Annotated[str, TEXT, "of the hash (default rabbit_password_hashing_sha256)"] = SHA256

    @property
    def is_given(self) -> bool:
        return self.password is not None or self.password_hash is not None

    def hashed(self, command: str) -> PasswordHash:
        """The password's hash. Raises: CommandError, whose message contains neither the password nor its hash."""
        if (self.password is None) == (self.password_hash is None):
            raise CommandError(f"{command}: expected either a password or password-hash=TEXT")
        if self.password is not None:
            if not self.password:
                raise CommandError(f"{command}: the password must be text that is not empty")
            return new_hash(self.password)
        try:
            return read_password_hash(str(self.password_hash), self.hashing_algorithm)
        except ValueError as error:
            raise CommandError(f"{command}: password-hash: expected {error}") from None


# -- users ----------------------------------------------------------------------------------------------------------


@command("users list", reads=True)
def list_users(operator: Operator) -> list[dict[str, Any]]:
    """List all users."""
    return [_shown_user(user) for user in operator.broker.users]


@command("users add", http=Http("POST", "leveret/vhosts/V/users", Level.ADMINISTRATOR, 201))
def add_user(
    operator: Operator,
    name: OwnName,
    given: Password,
    *,
    tags: Words = "",
    vhost: Annotated[str, NAME, "give it permissions in this virtual host (without it: none)"] | None = None,
    configure: Pattern = ".*",
    write: Pattern = ".*",
    read: Pattern = ".*",
) -> dict[str, Any]:
    """Add a user, with permissions in one virtual host or none.

    tags: administrator, monitoring, policymaker, management; without any the user has AMQP alone
    configure: names of what the user may declare and delete
    write: names of what the user may publish to
    read: names of what the user may consume from
    """
    if operator.broker.users.find(name) is not None:
        raise CommandError(f"user {name!r} exists already")
    user = User(name, given.hashed("users add"), tags_of(tags), permissions=MappingProxyType({}))
    if vhost is not None:
        user = _granted(operator, "users add", user, vhost, {"configure": configure, "write": write, "read": read})
    return _replace(operator, user)


@command("users delete", http=Http("DELETE", "users/U", Level.ADMINISTRATOR, 204))
def delete_user(operator: Operator, name: OwnName) -> dict[str, Any]:
    """Delete a user, and close its connections."""
    operator.user(name)
    connections = sum(client.user.name == name for client in operator.broker.connections)
    operator.broker.connections.delete_user(name)
    return {"name": name, "connections_closed": connections}


@command("users passwd")
def set_password(operator: Operator, name: OwnName, given: Password) -> dict[str, Any]:
    """Set a new password, for later logins."""
    return _replace(operator, replace(operator.user(name), password=given.hashed("users passwd")))


@command("users tags")
def set_tags(operator: Operator, name: OwnName, tags: Words = "") -> dict[str, Any]:
    """Replace the tags of a user.

    tags: without it: none
    """
    return _replace(operator, replace(operator.user(name), tags=tags_of(tags)))


@command("users limits", http=Http("PUT", "leveret/users/U/limits", Level.ADMINISTRATOR, 204))
def limit_user(
    operator: Operator, name: OwnName, *, max_connections: Limit | None = None, max_channels: Limit | None = None
) -> dict[str, Any]:
    """Limit the connections and channels of a user.

    max_connections: -1: no limit; without it: not changed
    max_channels: -1: no limit; without it: not changed
    """
    user = operator.user(name)
    connections, channels = _limit(max_connections, user.max_connections), _limit(max_channels, user.max_channels)
    return _replace(operator, replace(user, max_connections=connections, max_channels=channels))


@command("users replace", http=Http("PUT", "users/U", Level.ADMINISTRATOR, created))
def replace_user(
    operator: Operator,
    name: OwnName,
    given: Password,
    *,
    tags: Words,
    max_connections: Limit | None = None,
    max_channels: Limit | None = None,
    permissions: NewPermissions | None = None,
) -> dict[str, Any]:
    """Set the password (or none) and the tags of a new or existing user; the rest stays.

    tags: administrator, monitoring, policymaker, management; without any the user has AMQP alone
    max_connections: -1: no limit; without it: not changed
    max_channels: -1: no limit; without it: not changed
    permissions: of a new user: {VHOST: {"configure": PATTERN, "write": PATTERN, "read": PATTERN}, ...}
    """
    words = tags_of(tags)
    password = given.hashed("users replace") if given.is_given else NO_PASSWORD
    before = operator.broker.users.find(name)
    user = before or User(name, permissions=MappingProxyType({}))
    connections, channels = _limit(max_connections, user.max_connections), _limit(max_channels, user.max_channels)
    user = replace(user, password=password, tags=words, max_connections=connections, max_channels=channels)
    for vhost, patterns in () if before is not None else _permissions_in(permissions):
        user = _granted(operator, "users replace", user, vhost, patterns)
    return {**_replace(operator, user), "created": before is None}


def _permissions_in(given: object) -> Iterable[tuple[str, Mapping[str, str]]]:
    """The virtual hosts and patterns in the argument `permissions`. Raises: CommandError."""
    rows = given or {}
    if not isinstance(rows, dict) or not all(
        isinstance(row, dict) and row.keys() == PATTERNS and all(isinstance(one, str) for one in row.values())
        for row in rows.values()
    ):
        raise CommandError("users replace: permissions: expected {VHOST: {configure, write, read}, ...}")
    return rows.items()


def _replace(operator: Operator, user: User) -> dict[str, Any]:
    operator.broker.connections.replace_user(user)
    return _shown_user(user)


def _limit(given: int | None, before: int | None) -> int | None:
    """The new limit; None: no limit. `given`: None keeps the one `before`, a negative number removes it."""
    return before if given is None else None if given < 0 else given


# -- permissions ----------------------------------------------------------------------------------------------------


@command("permissions list", reads=True)
def list_permissions(
    operator: Operator, *, user: OnlyUser | None = None, vhost: OnlyVhost | None = None
) -> list[dict[str, Any]]:
    """List the permissions of users."""
    rows = (row for one in operator.broker.users for row in permission_rows(one, operator.broker))
    return [row for row in rows if user in (None, row["user"]) and vhost in (None, row["vhost"])]


@command("permissions set")
def set_permissions(
    operator: Operator, user: UserName, configure: Pattern, write: Pattern, read: Pattern, *, vhost: VhostName = "/"
) -> dict[str, Any]:
    """Set what a user may do in a virtual host.

    configure: names of what the user may declare and delete
    write: names of what the user may publish to
    read: names of what the user may consume from
    """
    patterns = {"configure": configure, "write": write, "read": read}
    operator.broker.connections.replace_user(
        _granted(operator, "permissions set", operator.user(user), vhost, patterns)
    )
    return {"user": user, "vhost": vhost, **patterns}


def _granted(operator: Operator, command: str, owner: User, vhost: str, patterns: Mapping[str, str]) -> User:
    """The user with these permissions in the virtual host. Raises: CommandError."""
    operator.vhost(vhost)
    for key, text in patterns.items():
        _check_pattern(command, key, text)
    grants = {**owner.grants(operator.broker.virtual_hosts), vhost: Grant(**patterns, topics={})}
    return with_access(owner, grants, topics_of(owner))


@command("permissions clear", http=Http("DELETE", "permissions/V/U", Level.ADMINISTRATOR, 204))
def clear_permissions(operator: Operator, user: UserName, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Remove a user's permissions in a virtual host; open connections stay."""
    owner = operator.user(user)
    operator.vhost(vhost)
    grants = owner.grants(operator.broker.virtual_hosts)
    grants.pop(vhost, None)
    operator.broker.connections.replace_user(with_access(owner, grants, topics_of(owner)))
    return {"user": user, "vhost": vhost}


@command("topic-permissions list", reads=True)
def list_topics(
    operator: Operator, *, user: OnlyUser | None = None, vhost: OnlyVhost | None = None
) -> list[dict[str, Any]]:
    """List the topic permissions of users."""
    rows = (row for one in operator.broker.users for row in topic_rows(one))
    return [row for row in rows if user in (None, row["user"]) and vhost in (None, row["vhost"])]


@command("topic-permissions set")
def set_topic(
    operator: Operator,
    user: UserName,
    exchange: TopicExchange,
    write: Pattern,
    read: Pattern,
    *,
    vhost: VhostName = "/",
) -> dict[str, Any]:
    """Set the routing keys that a user may use at a topic exchange.

    write: to publish with
    read: to bind with
    """
    owner = operator.user(user)
    operator.vhost(vhost)
    for key, text in (("write", write), ("read", read)):
        _check_pattern("topic-permissions set", key, text)
    topic = TopicPermission(write, read)
    try:
        Permissions(Grant(topics={exchange: topic}), user=user, vhost=vhost).check()  # replaces {username} and {vhost}
    except PatternFault as fault:
        raise CommandError(f"topic-permissions set: {fault}") from None
    topics = topics_of(owner)
    topics.setdefault(vhost, {})[exchange] = topic
    operator.broker.connections.replace_user(with_access(owner, owner.grants(operator.broker.virtual_hosts), topics))
    return {"user": user, "vhost": vhost, "exchange": exchange, "write": write, "read": read}


@command("topic-permissions clear")
def clear_topics(
    operator: Operator, user: UserName, exchange: TopicExchange | None = None, *, vhost: VhostName = "/"
) -> dict[str, Any]:
    """Delete a user's topic permissions at one exchange, or at all."""
    owner = operator.user(user)
    operator.vhost(vhost)
    topics = topics_of(owner)
    for name in list(topics.get(vhost, ())) if exchange is None else [exchange]:
        topics.get(vhost, {}).pop(name, None)
    operator.broker.connections.replace_user(with_access(owner, owner.grants(operator.broker.virtual_hosts), topics))
    return {"user": user, "vhost": vhost}


# -- virtual hosts --------------------------------------------------------------------------------------------------


@command("vhosts list", reads=True)
def list_vhosts(operator: Operator) -> list[dict[str, Any]]:
    """List all virtual hosts."""
    clients = Counter(client.vhost for client in operator.broker.connections)
    return [
        {
            "name": vhost.name,
            "connections": clients[vhost],
            "queues": len(vhost.queues),
            "max_connections": vhost.context.limits.max_connections,
            "max_queues": vhost.context.limits.max_queues,
            "default_queue_type": vhost.context.limits.default_queue_type,
            "tracing": vhost.context.firehose is not None,
        }
        for vhost in operator.broker.virtual_hosts.values()
    ]


@command("vhosts add")
def add_vhost(operator: Operator, name: HostName, *, default_queue_type: QueueType | None = None) -> dict[str, Any]:
    """Add a virtual host; an existing one is not changed.

    default_queue_type: of queues declared without a type
    """
    is_new = name not in operator.broker.virtual_hosts
    vhost = operator.broker.virtual_hosts.create(name)
    if is_new and default_queue_type is not None:
        operator.broker.virtual_hosts.limit(vhost, VirtualHostLimits(default_queue_type=default_queue_type))
    return {"name": name, "default_queue_type": vhost.context.limits.default_queue_type}


@command("vhosts delete", http=Http("DELETE", "vhosts/V", Level.ADMINISTRATOR, 204))
def delete_vhost(operator: Operator, name: HostName) -> dict[str, Any]:
    """Delete a virtual host with its queues and messages, and close its connections."""
    operator.vhost(name)
    connections = sum(client.vhost.name == name for client in operator.broker.connections)
    operator.broker.virtual_hosts.delete(name)
    return {"name": name, "connections_closed": connections}


@command("vhosts limits", http=Http("PUT", "leveret/vhosts/V/limits", Level.ADMINISTRATOR, 204))
def limit_vhost(
    operator: Operator, name: HostName, *, max_connections: Limit | None = None, max_queues: Limit | None = None
) -> dict[str, Any]:
    """Limit the connections and queues of a virtual host.

    max_connections: -1: no limit; without it: not changed
    max_queues: -1: no limit; without it: not changed
    """
    vhost = operator.vhost(name)
    now = vhost.context.limits
    connections, queues = _limit(max_connections, now.max_connections), _limit(max_queues, now.max_queues)
    limits = replace(now, max_connections=connections, max_queues=queues, is_configured=False)
    operator.broker.virtual_hosts.limit(vhost, limits)
    return {"name": name, "max_connections": connections, "max_queues": queues}


@command("vhosts default-queue-type")
def set_default_type(operator: Operator, name: HostName, type: QueueType | None = None) -> dict[str, Any]:
    """Set the type of queues declared without one; existing queues are not changed.

    type: classic, quorum or stream; without it: no default
    """
    vhost = operator.vhost(name)
    operator.broker.virtual_hosts.limit(
        vhost, replace(vhost.context.limits, default_queue_type=type, is_configured=False)
    )
    return {"name": name, "default_queue_type": type}


# -- helpers -------------------------------------------------------------------------------------------------------


def topics_of(user: User) -> dict[str, dict[str, TopicPermission]]:
    """All topic permissions by virtual host and exchange, also those in virtual hosts without permissions."""
    found: dict[str, dict[str, TopicPermission]] = {}
    for vhost, exchange, topic in user.topics():
        found.setdefault(vhost, {})[exchange] = topic
    return found


def with_access(user: User, grants: Mapping[str, Grant], topics: Mapping[str, Mapping[str, TopicPermission]]) -> User:
    """The user with exactly these permissions, and these topic permissions in place of those in `grants`.

    Topic permissions in a virtual host without permissions take effect when those are granted. The patterns are valid.
    """
    permissions = {}
    for vhost, grant in grants.items():
        whole = replace(grant, topics=MappingProxyType(dict(topics.get(vhost, {}))))
        permissions[vhost] = Permissions(whole, user=user.name, vhost=vhost)
    waiting = {vhost: MappingProxyType(dict(some)) for vhost, some in topics.items() if some and vhost not in grants}
    return replace(user, permissions=MappingProxyType(permissions), topics_before_permissions=MappingProxyType(waiting))


def tags_of(value: object) -> tuple[str, ...]:
    """Tags of a user, without duplicates; any words, as in RabbitMQ. Raises: CommandError."""
    return tuple(dict.fromkeys(words_of(value)))


def words_of(value: object) -> list[str]:
    """The tags of a user or a virtual host in a list, or in text with commas. Raises: CommandError."""
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(one, str) and len(one) <= 255 for one in words):
        raise CommandError("tags must be a list of words, or text with commas between them")
    return [stripped for one in words if (stripped := one.strip())]


def _check_pattern(command: str, key: str, text: str) -> None:
    """Raises: CommandError."""
    try:
        Permissions(Grant(configure=text), user="", vhost="").check()
    except PatternFault as fault:
        raise CommandError(f"{command}: {key}: {text[:80]!r} {fault}") from None


def _shown_user(user: User) -> dict[str, Any]:
    return {
        "name": user.name,
        "tags": list(user.tags),
        "has_password": bool(user.password.octets),
        "loopback_only": user.loopback_only,
        "max_connections": user.max_connections,
        "max_channels": user.max_channels,
    }
