"""Objects that a configuration declares beside settings: queues, exchanges, diverts, logged topics, users. Frozen.

Source: address-settings page 1.3, 3.7, 6.1; queues page A.2, C.1, H.1; interfaces page, "Configuration keys";
behaviour page 3.13 to 3.15.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType

from ..faults import Origin
from ..frozen import frozen
from ..lifetime import LIVE, Lifetime


@frozen
class TopicPermissionDeclaration:
    """`[[user.topic-permission]]`: patterns on the keys of one topic exchange."""

    vhost: str
    exchange: str
    write: str = ".*"
    read: str = ".*"


@frozen
class PermissionDeclaration:
    """`[[user.permission]]`: patterns on names. An empty one allows nothing."""

    vhost: str
    configure: str = ""
    write: str = ""
    read: str = ""


@frozen
class UserDeclaration:
    """`[[user]]`. Either `password` or `password_hash`; neither: no login by password. Limits: None is no limit."""

    name: str
    password: str = field(default="", repr=False)
    password_hash: str = field(default="", repr=False)
    hashing_algorithm: str = "rabbit_password_hashing_sha256"
    tags: frozenset[str] = frozenset()
    loopback_only: bool = False
    max_connections: int | None = None
    max_channels: int | None = None
    permissions: tuple[PermissionDeclaration, ...] = ()
    topic_permissions: tuple[TopicPermissionDeclaration, ...] = ()
    origin: Origin = field(default=Origin("", 0), compare=False)
    password_origin: Origin = field(default=Origin("", 0), compare=False)

    def __str__(self) -> str:
        """Text for people, without secrets."""
        grants = ", ".join(
            f"{one.vhost}: {one.configure!r} {one.write!r} {one.read!r}" for one in sorted(self.permissions, key=str)
        )
        return f"tags {' '.join(sorted(self.tags)) or 'none'}; permissions {grants or 'none'}"


@frozen
class LimitsDeclaration:
    """`[[vhost]]` limits, and the default type of queues; None: not set, no limit."""

    max_connections: int | None = None
    max_queues: int | None = None
    default_queue_type: str | None = None


NO_LIMITS_DECLARED = LimitsDeclaration()


ANYCAST, MULTICAST = "ANYCAST", "MULTICAST"


@frozen
class QueueDeclaration:
    """A queue that exists from the start. `arguments` are those of queue.declare, including x-address."""

    name: str
    address: str
    vhost: str = "/"
    routing_type: str = ANYCAST  # MULTICAST: bound to the fanout exchange with the address' name
    durable: bool = True
    is_enabled: bool = True  # False: takes no new messages
    arguments: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    origin: Origin = field(default=Origin("", 0), compare=False)
    origins: Mapping[str, Origin] = field(default_factory=lambda: MappingProxyType({}), compare=False)  # by argument

    def origin_of(self, argument: str) -> Origin:
        """The position where an argument is set."""
        return self.origins.get(argument, self.origin)

    @property
    def exchange(self) -> str:
        """The exchange that the queue is bound to; empty for the default one alone."""
        return self.address if self.routing_type == MULTICAST else ""


@frozen
class ExchangeDeclaration:
    """A fanout exchange for a multicast address."""

    name: str
    vhost: str = "/"
    type: str = "fanout"
    origin: Origin = field(default=Origin("", 0), compare=False)


@frozen
class Divert:
    """Messages to `address` (an exchange, or a key of the default one) go to other addresses as well, or instead.

    `filter`: a selector; only messages that it takes are diverted. Empty: all.
    """

    name: str
    address: str
    forwarding_addresses: tuple[str, ...]
    vhost: str = "/"
    is_exclusive: bool = False  # diverted messages go nowhere else
    routing_name: str = ""
    routing_type: str = "STRIP"
    filter: str = ""
    origin: Origin = field(default=Origin("", 0), compare=False)


#: When a change takes effect.
LOGGED_ACTS: Lifetime = LIVE
#: Time for which messages are kept for replay, for listed topics without their own setting.
RETAIN_MS_DEFAULT = 86_400_000


@frozen
class LoggedTopic:
    """`[[logged-topic]]`, or a `Topic` of a TransactionLog: one topic by its name, or all that match a pattern.

    `message_type`: of all its messages; None: of any. `retain_ms`: minimum time for which messages are kept for replay;
    None: `RETAIN_MS_DEFAULT`.
    """

    name: str
    is_pattern: bool = False
    vhost: str = "/"
    message_type: str | None = None
    retain_ms: int | None = None
    origin: Origin = field(default=Origin("", 0), compare=False)

    @property
    def kept_ms(self) -> int:
        """Minimum time for which its messages are kept for replay."""
        return RETAIN_MS_DEFAULT if self.retain_ms is None else self.retain_ms

    def records(self) -> Callable[[str], bool]:
        """Whether messages of the topic of that name are logged; a pattern is searched. Raises: PatternFault."""
        if not self.is_pattern:
            return self.name.__eq__
        from ...expressions.patterns.patterns import Pattern  # 5 ms that names save

        return Pattern(self.name).search

    @property
    def title(self) -> str:
        """The name of the declaration in reports."""
        return f"logged topic {self.name!r}" + (" (pattern)" if self.is_pattern else "")
