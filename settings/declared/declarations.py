"""Objects that a configuration declares besides settings: queues, exchanges, diverts, logged topics, users, limits.

A field that is a row is also a key of the object's table in a native file. Source: address-settings page 1.3, 3.7, 6.1;
queues page A.2, C.1, H.1; interfaces page, "Configuration keys"; behaviour page 3.12 to 3.15.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType

from ..faults import Origin
from ..frozen import frozen
from ..lifetime import AT_CONNECTION, AT_CREATION
from ..rows.row import REQUIRED, setting
from ..values import (
    BOOLEAN,
    DELAY,
    INT_MAX,
    MESSAGE_TYPES,
    TEXT,
    Kind,
    integer,
    name_text,
    one_of,
    one_of_any_case,
    text,
    texts,
)

USER_TAGS = ("administrator", "monitoring", "policymaker", "management", "impersonator", "x-internal-link")
ALGORITHMS = tuple(f"rabbit_password_hashing_{name}" for name in ("sha256", "sha512", "md5"))


def limit_or_none(value: object) -> int | None:
    """A limit; -1 is none."""
    limit: int = integer(-1, INT_MAX)(value)
    return None if limit < 0 else limit


def user_tags(value: object) -> frozenset[str]:
    """A list of tags, or one text with tags separated by commas or spaces."""
    words = [one for part in texts(value) for one in part.replace(",", " ").split()]
    if any(one not in USER_TAGS for one in words):
        raise ValueError(f"a list of {', '.join(USER_TAGS)}")
    return frozenset(words)


def comma_separated(value: object) -> tuple[str, ...]:
    """A list of texts, or one text; each is split at commas."""
    return tuple(part for one in texts(value) for part in map(str.strip, one.split(",")) if part)


def pattern_text(value: object) -> str:
    """A permission pattern; empty text matches no name."""
    from ...expressions.patterns.pattern_syntax import PatternFault  # 5 ms that a broker without users saves
    from ...expressions.patterns.patterns import permission_pattern

    pattern = text(value)
    try:
        permission_pattern(pattern)
    except PatternFault as fault:
        raise ValueError(f"a regular expression; this one {fault}") from None
    return pattern


def exchange_name(value: object) -> str:
    """The name of an exchange; empty text is the default exchange."""
    if value == "":
        return ""
    try:
        return name_text(value)
    except ValueError:
        raise ValueError('a name of at most 255 octets, "" for the default exchange') from None


NAME, LIMIT_OR_NONE, PATTERN = Kind(name_text), Kind(limit_or_none), Kind(pattern_text)
EXCHANGE_NAME = Kind(exchange_name)
DIVERT_ROUTING = one_of_any_case("ANYCAST", "MULTICAST", "PASS", "STRIP")
ANYCAST, MULTICAST = "ANYCAST", "MULTICAST"


@frozen
class TopicPermissionDeclaration:
    """`[[user.topic-permission]]`: patterns on the routing keys of one topic exchange."""

    vhost: str
    exchange: str
    write: str = ".*"
    read: str = ".*"


# fmt: off
@frozen
class PermissionDeclaration:
    """`[[user.permission]]`: patterns on names. An empty one allows nothing."""

    vhost: str = setting(NAME, "/", help="Virtual host that the permission is for.")
    configure: str = setting(PATTERN, "", default_text="nothing",
        help="Pattern of names the user may declare and delete (not of topic permissions).")
    write: str = setting(PATTERN, "", default_text="nothing; keys: all",
        help="Pattern of names the user may publish to, or bind to an exchange; in topic permissions of routing keys.")
    read: str = setting(PATTERN, "", default_text="nothing; keys: all",
        help="Pattern of names the user may consume from, or bind others to; in topic permissions of routing keys.")


@frozen
class UserDeclaration:
    """`[[user]]`. Either `password` or `password_hash`; neither: no login by password. Limits: None is no limit."""

    name: str = setting(NAME, REQUIRED, help="Name of the user.")
    password: str = setting(TEXT, "", is_secret=True,
        help="In clear; only in a file that only its owner can read (`chmod 600`).")
    password_hash: str = setting(TEXT, "", is_secret=True,
        help="Base64 of salt and digest, as in RabbitMQ's definitions; unset: no login by password.")
    hashing_algorithm: str = setting(one_of(*ALGORITHMS), ALGORITHMS[0],
        help="How the password was hashed: this or " + ", ".join(f"`{name}`" for name in ALGORITHMS[1:]) + ".")
    tags: frozenset[str] = setting(Kind(user_tags), frozenset(), default_text="none",
        help=f"Any of {', '.join(USER_TAGS)}.")
    loopback_only: bool = setting(BOOLEAN, False, AT_CONNECTION,
        help="Whether the user may only connect from this machine.")
    max_connections: int | None = setting(LIMIT_OR_NONE, None, AT_CONNECTION, default_text="`-1`",
        help="Connections of the user; -1 is no limit.")
    max_channels: int | None = setting(LIMIT_OR_NONE, None, default_text="`-1`",
        help="Channels over all connections of the user; -1 is no limit.")
    permissions: tuple[PermissionDeclaration, ...] = ()
    topic_permissions: tuple[TopicPermissionDeclaration, ...] = ()
    origin: Origin = field(default=Origin("", 0), compare=False)
    password_origin: Origin = field(default=Origin("", 0), compare=False)
    # fmt: on

    def __str__(self) -> str:
        """Text for people, without secrets."""
        grants = ", ".join(
            f"{one.vhost}: {one.configure!r} {one.write!r} {one.read!r}" for one in sorted(self.permissions, key=str)
        )
        return f"tags {' '.join(sorted(self.tags)) or 'none'}; permissions {grants or 'none'}"


# fmt: off
@frozen
class LimitsDeclaration:
    """`[[vhost]]` limits, and the default type of queues; None: not set, no limit."""

    max_connections: int | None = setting(LIMIT_OR_NONE, None, AT_CONNECTION, default_text="`-1`",
        help="Connections to it; -1 is no limit, 0 none at all.")
    max_queues: int | None = setting(LIMIT_OR_NONE, None, AT_CREATION, default_text="`-1`",
        help="Queues in it; -1 is no limit, 0 none at all.")
    default_queue_type: str | None = setting(one_of("classic", "quorum", "stream"), None, AT_CREATION,
        help="`classic`, `quorum` or `stream`: type of queues declared without one.")
# fmt: on


NO_LIMITS_DECLARED = LimitsDeclaration()


@frozen
class QueueDeclaration:
    """A queue that the broker creates at a start or a reload. `arguments`: those of queue.declare, with x-address."""

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
    """An exchange: fanout for a multicast address, topic for a topic that a leased queue names."""

    name: str
    vhost: str = "/"
    type: str = "fanout"
    origin: Origin = field(default=Origin("", 0), compare=False)


# fmt: off
@frozen
class Divert:
    """`[[divert]]`: messages to an address go to other addresses as well, or instead."""

    name: str = setting(NAME, REQUIRED, help="Name of the divert.")
    address: str = setting(NAME, REQUIRED, help="An exchange, or a routing key of the default exchange.")
    forwarding_addresses: tuple[str, ...] = setting(Kind(comma_separated), (), key="forwarding-address",
        default_text="required", help="Where the messages go: one address or a list.")
    vhost: str = setting(NAME, "/", help="Its virtual host.")
    is_exclusive: bool = setting(BOOLEAN, False, key="exclusive",
        help="Whether the messages no longer reach the original address.")
    routing_name: str = setting(NAME, "", help="Accepted for Artemis' files.")
    routing_type: str = setting(DIVERT_ROUTING, "STRIP", help="Accepted for Artemis' files.")
    filter: str = setting(TEXT, "", default_text="all messages",
        help="Selector: only messages that match it are diverted.")
    origin: Origin = field(default=Origin("", 0), compare=False)
# fmt: on


#: How long messages are kept for replay, for listed topics without their own setting.
RETAIN_MS_DEFAULT = 86_400_000


# fmt: off
@frozen
class LoggedTopic:
    """`[[logged-topic]]`, or a `Topic` of a TransactionLog: one topic by its name, or all that match a pattern."""

    name: str
    is_pattern: bool = False
    vhost: str = setting(NAME, "/", help="Its virtual host.")
    message_type: str | None = setting(one_of(*MESSAGE_TYPES), None,
        help="Type of all its messages; a leased queue of another type may not select it.")
    retain_ms: int | None = setting(DELAY, None, default_text='`"24h"`',
        help="How long messages are kept for replay at least; the segments of the journal that they are in are kept.")
    origin: Origin = field(default=Origin("", 0), compare=False)
    # fmt: on

    @property
    def kept_ms(self) -> int:
        """How long its messages are kept for replay at least."""
        return RETAIN_MS_DEFAULT if self.retain_ms is None else self.retain_ms

    def records(self) -> Callable[[str], bool]:
        """A function that tells whether a topic is logged, by its name; a pattern is searched. Raises: PatternFault."""
        if not self.is_pattern:
            return self.name.__eq__
        from ...expressions.patterns.patterns import Pattern  # 5 ms, for patterns only

        return Pattern(self.name).search

    @property
    def title(self) -> str:
        """The name of the declaration in reports."""
        return f"logged topic {self.name!r}" + (" (pattern)" if self.is_pattern else "")
