"""Control commands about users, permissions and virtual hosts. Source: ruling 24; behaviour page 3.13 to 3.15.

Changes take effect at once, also for clients that are connected.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..configured.configured_users import new_hash
from ..engine import (
    NO_PASSWORD,
    SHA256,
    Broker,
    Grant,
    PasswordHash,
    Permissions,
    TopicPermission,
    User,
    VirtualHostLimits,
    VirtualHostNotFound,
    read_password_hash,
)
from ..expressions.patterns.pattern_syntax import PatternFault
from .command_error import CommandError


class AccessCommands:
    """`handlers` by the words of the command, for the control table. `broker` is called each time: it may be set
    later."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker
        self.handlers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "users list": self._list_users,
            "users add": self._add_user,
            "users replace": self._replace_user,
            "users delete": self._delete_user,
            "users passwd": self._set_password,
            "users tags": self._set_tags,
            "users limits": self._limit_user,
            "permissions list": self._list_permissions,
            "permissions set": self._set_permissions,
            "permissions clear": self._clear_permissions,
            "topic-permissions list": self._list_topics,
            "topic-permissions set": self._set_topic,
            "topic-permissions clear": self._clear_topics,
            "vhosts list": self._list_vhosts,
            "vhosts add": self._add_vhost,
            "vhosts delete": self._delete_vhost,
            "vhosts limits": self._limit_vhost,
            "vhosts default-queue-type": self._set_default_type,
        }

    @property
    def broker(self) -> Broker:
        """The broker that the commands are for."""
        return self._broker()

    # -- users ------------------------------------------------------------------------------------------------------

    def _list_users(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        return [_shown_user(user) for user in self.broker.users]

    def _add_user(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`name`; `password` or `password-hash` with `hashing-algorithm`; `tags`. Without permissions yet."""
        name = arguments["name"]
        if self.broker.users.find(name) is not None:
            raise CommandError(f"user {name!r} exists already")
        password = _password("users add", arguments)
        tags = tags_of(arguments.get("tags", ""))
        user = User(name, password, tags, permissions=MappingProxyType({}))
        self.broker.replace_user(user)
        return _shown_user(user)

    def _replace_user(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """As `users add`, also for one who exists: permissions, limits and the rule about loopback stay.

        Without a password or hash there is none.
        """
        name, tags = arguments["name"], tags_of(arguments["tags"])
        has_password = bool({"password", "password-hash"} & arguments.keys())
        password = _password("users replace", arguments) if has_password else NO_PASSWORD
        before = self.broker.users.find(name) or User(name, permissions=MappingProxyType({}))
        return self._replace(replace(before, password=password, tags=tags))

    def _delete_user(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`name`: its connections are closed."""
        user = self._user(arguments["name"])
        connections = sum(client.user.name == user.name for client in self.broker.clients)
        self.broker.delete_user(user.name)
        return {"name": user.name, "connections_closed": connections}

    def _set_password(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`name`, `password` or `password-hash`: for the next login."""
        user = self._user(arguments["name"])
        password = _password("users passwd", arguments)
        return self._replace(replace(user, password=password))

    def _set_tags(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`name`, `tags`: they replace the old ones."""
        user = self._user(arguments["name"])
        tags = tags_of(arguments.get("tags", ""))
        return self._replace(replace(user, tags=tags))

    def _limit_user(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`name`, `max-connections`, `max-channels`; -1: none. Missing ones stay."""
        user = self._user(arguments["name"])
        connections = arguments.get("max-connections", user.max_connections)
        channels = arguments.get("max-channels", user.max_channels)
        return self._replace(replace(user, max_connections=connections, max_channels=channels))

    def _replace(self, user: User) -> dict[str, Any]:
        self.broker.replace_user(user)
        return _shown_user(user)

    def _user(self, name: str) -> User:
        user = self.broker.users.find(name)
        if user is None:
            raise CommandError(f"no user {name!r}")
        return user

    # -- permissions ------------------------------------------------------------------------------------------------

    def _list_permissions(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """Of one `user`, in one `vhost`, or all."""
        wanted, place = arguments.get("user"), arguments.get("vhost")
        return [
            {"user": user.name, "vhost": vhost, "configure": grant.configure, "write": grant.write, "read": grant.read}
            for user in self.broker.users
            for vhost, grant in grants_of(user, self.broker).items()
            if wanted in (None, user.name) and place in (None, vhost)
        ]

    def _set_permissions(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`user`, `vhost`, and the three patterns."""
        user = self._user(arguments["user"])
        vhost = self._vhost(arguments.get("vhost", "/"))
        patterns = {key: _pattern("permissions set", arguments, key) for key in ("configure", "write", "read")}
        grants = grants_of(user, self.broker)
        before = grants.get(vhost)
        topics = user.waiting_topics.get(vhost, MappingProxyType({})) if before is None else before.topics
        changed = with_grants(user, {**grants, vhost: Grant(**patterns, topics=topics)})
        self.broker.replace_user(with_waiting(changed, vhost, {}))
        return {"user": user.name, "vhost": vhost, **patterns}

    def _clear_permissions(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`user`, `vhost`: nothing is allowed there any more, and no new connection; open ones stay."""
        user = self._user(arguments["user"])
        vhost = self._vhost(arguments.get("vhost", "/"))
        grants = grants_of(user, self.broker)
        before = grants.pop(vhost, None)
        changed = with_grants(user, grants)
        self.broker.replace_user(changed if before is None else with_waiting(changed, vhost, before.topics))
        return {"user": user.name, "vhost": vhost}

    def _list_topics(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """Of one `user`, in one `vhost`, or all."""
        wanted, place = arguments.get("user"), arguments.get("vhost")
        return [
            {"user": user.name, "vhost": vhost, "exchange": exchange, "write": topic.write, "read": topic.read}
            for user in self.broker.users
            for vhost, exchange, topic in user.topics()
            if wanted in (None, user.name) and place in (None, vhost)
        ]

    def _set_topic(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`user`, `vhost`, `exchange`, `write`, `read`."""
        user = self._user(arguments["user"])
        vhost = self._vhost(arguments.get("vhost", "/"))
        exchange = arguments["exchange"]
        write, read = (_pattern("topic-permissions set", arguments, key) for key in ("write", "read"))
        topic = {exchange: TopicPermission(write, read)}
        try:
            Permissions(Grant(topics=topic), user=user.name, vhost=vhost).check()  # with the names in their places
        except PatternFault as fault:
            raise CommandError(f"topic-permissions set: {fault}") from None
        self._change_topics(user, vhost, lambda topics: {**topics, **topic})
        return {"user": user.name, "vhost": vhost, "exchange": exchange, "write": write, "read": read}

    def _clear_topics(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`user`, `vhost`, and perhaps one `exchange`."""
        user = self._user(arguments["user"])
        vhost = self._vhost(arguments.get("vhost", "/"))
        exchange = arguments.get("exchange")
        self._change_topics(
            user,
            vhost,
            lambda topics: {name: topic for name, topic in topics.items() if exchange not in (None, name)},
        )
        return {"user": user.name, "vhost": vhost}

    def _change_topics(
        self,
        user: User,
        vhost: str,
        change: Callable[[Mapping[str, TopicPermission]], dict[str, TopicPermission]],
    ) -> None:
        grants = grants_of(user, self.broker)
        if vhost not in grants:
            self.broker.replace_user(with_waiting(user, vhost, change(user.waiting_topics.get(vhost, {}))))
            return
        changed = replace(grants[vhost], topics=MappingProxyType(change(grants[vhost].topics)))
        self.broker.replace_user(with_grants(user, {**grants, vhost: changed}))

    # -- virtual hosts ----------------------------------------------------------------------------------------------

    def _list_vhosts(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        clients = [client.vhost for client in self.broker.clients]
        return [
            {
                "name": vhost.name,
                "connections": clients.count(vhost),
                "queues": len(vhost.queues),
                "max_connections": vhost.limits.max_connections,
                "max_queues": vhost.limits.max_queues,
                "default_queue_type": vhost.limits.default_queue_type,
                "tracing": vhost.firehose is not None,
            }
            for vhost in self.broker.virtual_hosts.values()
        ]

    def _add_vhost(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`name`; an existing one is not changed."""
        name, default = arguments["name"], arguments.get("default-queue-type")
        is_new = name not in self.broker.virtual_hosts
        vhost = self.broker.create_virtual_host(name)
        if is_new and default is not None:
            self.broker.limit_virtual_host(vhost, VirtualHostLimits(default_queue_type=default))
        return {"name": name, "default_queue_type": vhost.limits.default_queue_type}

    def _delete_vhost(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`name`: with its queues, messages and everybody's permissions in it; its connections are closed."""
        name = arguments["name"]
        connections = sum(client.vhost.name == name for client in self.broker.clients)
        try:
            self.broker.delete_virtual_host(name)
        except VirtualHostNotFound:
            raise CommandError(f"no virtual host {name!r}") from None
        return {"name": name, "connections_closed": connections}

    def _limit_vhost(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`name`, `max-connections`, `max-queues`; -1: none. Missing ones stay."""
        name = self._vhost(arguments["name"])
        vhost = self.broker.virtual_hosts[name]
        now = vhost.limits
        connections = arguments.get("max-connections", now.max_connections)
        queues = arguments.get("max-queues", now.max_queues)
        limits = replace(now, max_connections=connections, max_queues=queues, is_configured=False)
        self.broker.limit_virtual_host(vhost, limits)
        return {"name": name, "max_connections": connections, "max_queues": queues}

    def _set_default_type(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """For later declarations."""
        name, default = self._vhost(arguments["name"]), arguments.get("type")
        vhost = self.broker.virtual_hosts[name]
        limits = replace(vhost.limits, default_queue_type=default, is_configured=False)
        self.broker.limit_virtual_host(vhost, limits)
        return {"name": name, "default_queue_type": default}

    def _vhost(self, name: str) -> str:
        if name not in self.broker.virtual_hosts:
            raise CommandError(f"no virtual host {name!r}")
        return name


# -- leaves --------------------------------------------------------------------------------------------------------


def grants_of(user: User, broker: Broker) -> dict[str, Grant]:
    """A user's grants by virtual host, also for a user with all permissions everywhere."""
    if user.permissions is None:
        return {name: Grant() for name in broker.virtual_hosts}
    return {vhost: permissions.grant for vhost, permissions in user.permissions.items()}


def with_grants(user: User, grants: Mapping[str, Grant]) -> User:
    """The user with exactly these grants, whose patterns are right."""
    permissions = {vhost: Permissions(grant, user=user.name, vhost=vhost) for vhost, grant in grants.items()}
    return replace(user, permissions=MappingProxyType(permissions))


def with_waiting(user: User, vhost: str, topics: Mapping[str, TopicPermission]) -> User:
    """The user with exactly these topic permissions, whose patterns are right, where it has no permissions."""
    rest = {other: kept for other, kept in user.waiting_topics.items() if other != vhost}
    waiting = {**rest, vhost: MappingProxyType(dict(topics))} if topics else rest
    return replace(user, waiting_topics=MappingProxyType(waiting))


def tags_of(value: object) -> tuple[str, ...]:
    """Tags, each once, from a list, or from text with commas. Any words, as in RabbitMQ. Raises: CommandError."""
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(one, str) and len(one) <= 255 for one in words):
        raise CommandError("tags must be a list of words, or text with commas between them")
    return tuple(dict.fromkeys(stripped for one in words if (stripped := one.strip())))


def _password(command: str, arguments: dict[str, Any]) -> PasswordHash:
    """Messages never contain the password or its hash."""
    password, hashed = arguments.get("password"), arguments.get("password-hash")
    algorithm = arguments.get("hashing-algorithm", SHA256)
    if (password is None) == (hashed is None):
        raise CommandError(f"{command}: expected either a password or password-hash=TEXT")
    if password is not None:
        if not password:
            raise CommandError(f"{command}: the password must be text that is not empty")
        return new_hash(password)
    try:
        return read_password_hash(str(hashed), algorithm)
    except ValueError as error:
        raise CommandError(f"{command}: password-hash: expected {error}") from None


def _pattern(command: str, arguments: dict[str, Any], key: str) -> str:
    text: str = arguments[key]
    try:
        Permissions(Grant(configure=text), user="", vhost="").check()
    except PatternFault as fault:
        raise CommandError(f"{command}: {key}: {text[:80]!r} {fault}") from None
    return text


def _shown_user(user: User) -> dict[str, Any]:
    return {
        "name": user.name,
        "tags": list(user.tags),
        "has_password": bool(user.password.octets),
        "loopback_only": user.loopback_only,
        "max_connections": user.max_connections,
        "max_channels": user.max_channels,
    }
