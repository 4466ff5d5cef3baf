"""The builder of a configuration: it collects entries, declarations and faults from the loaders of all formats."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from ...expressions.patterns.pattern_syntax import PatternFault
from ..addresses.destinations import parse_destination
from ..addresses.matching import Match, MatchFault, Wildcards, parse_match
from ..addresses.queue_arguments import check_selector, settings_of_arguments
from ..declared.declarations import (
    MULTICAST,
    Divert,
    ExchangeDeclaration,
    LimitsDeclaration,
    LoggedTopic,
    QueueDeclaration,
    UserDeclaration,
)
from ..declared.tables import WILDCARDS
from ..faults import ArgumentFault, Fault, Origin, nearest
from ..policies.policy import Policy
from ..queue_types import added_type
from ..rows.address_settings import Setting
from ..rows.broker_keys import KEYS
from ..rows.queue_attributes import SELECTOR
from ..values import shown

T = TypeVar("T")

#: The reason why a divert's transformer is refused.
NO_TRANSFORMER = "code that changes messages cannot run here; a divert passes them on as they are"
BAD_PATTERN = "E-REGEX: UnderlyingTopic does not compile"
#: Maximum patterns of logged topics: each queue is compared with every one.
LOGGED_PATTERNS_MAX = 100
NOT_IN_THIS_VERSION = "accepted, but without effect in this version"
#: (file, the path that it names) -> name and text of the file there. Raises: ValueError with the fault.
Fetch = Callable[[str, str], tuple[str, str]]
#: Names of the wildcard syntax' keys in TOML and XML -> attribute.
WILDCARD_KEYS = {row.key: row.attribute for row in WILDCARDS}
MARKERS = "literal-match-markers"
#: Ranks of entries that become one match here: `#`, `jms.topic.#`, `jms.queue.#` of HornetQ.
PLAIN, OF_TOPICS, OF_QUEUES = range(3)


@dataclass(slots=True)
class RawEntry:
    """An address-setting as read from a file."""

    match: str
    vhost: str | None
    origin: Origin
    values: dict[str, Any] = field(default_factory=dict)  # attribute -> value
    origins: dict[str, Origin] = field(default_factory=dict)
    in_file: str = ""  # the match in the file, if it differs
    rank: int = PLAIN  # if entries become one match, each setting is that of the highest rank that has it
    parse: Callable[[str, Wildcards], Match] = parse_match


class ConfigurationBuilder:
    """Collects the contents of files. One for all files of a configuration."""

    def __init__(self, environment: Mapping[str, str] = MappingProxyType({}), fetch: Fetch | None = None) -> None:
        """Args: environment: variables that files may name; fetch: reads files that others include."""
        self.environment = environment
        self.fetch = fetch
        self.included: list[str] = []  # one entry for each inclusion
        self.included_elements = 0  # of all included XML files
        self.explicit: dict[tuple[str, str], Any] = {}  # values of `[table] key` that a file sets
        self.explicit_at: dict[tuple[str, str], Origin] = {}
        self.implied: dict[tuple[str, str], tuple[Any, Origin]] = {}  # see `imply`
        self.faults: list[Fault] = []
        self.warnings: list[str] = []
        self.entries: dict[tuple[str | None, str], RawEntry] = {}
        self.wildcards: dict[str, str] = {}
        self.wildcards_origin = Origin("", 1)
        self.queues: dict[tuple[str, str], QueueDeclaration] = {}
        self.exchanges: dict[tuple[str, str], ExchangeDeclaration] = {}
        self.diverts: dict[tuple[str, str], Divert] = {}
        self.vhosts: list[str] = []
        self.limits: dict[str, LimitsDeclaration] = {}
        self.users: dict[str, UserDeclaration] = {}
        self.policies: dict[tuple[str, bool, str], Policy] = {}
        self.has_system_usage = False
        self.cluster_at: Origin | None = None  # of [cluster]
        self.destinations: dict[tuple[str, str], RawEntry] = {}
        self.discarded: set[str] = set()  # attributes that ActiveMQ's plug-ins clear in all destination policies
        self.logged_vhosts: set[str] = set()  # virtual hosts with a list of logged topics, even an empty one
        self.logged_topics: dict[tuple[str, bool, str], LoggedTopic] = {}
        #: Virtual host and name of a queue of an added type -> argument -> its key in the file.
        self.in_file: dict[tuple[str, str], Mapping[str, str]] = {}
        self._notes: dict[type, Any] = {}
        self._warned: set[str] = set()

    def notes(self, kind: type[T]) -> T:
        """The object of this class in which a package keeps what it has read for its own use."""
        found: T = self._notes.setdefault(kind, kind())
        return found

    def fault(self, origin: Origin, key: str, problem: str) -> None:
        self.faults.append(Fault(origin.file, origin.line, shorten(key), problem))

    def unknown(self, origin: Origin, key: str, where: str, known: Iterable[str], owner: str = "") -> None:
        """Add a fault: unknown key. `owner`: another table that has this key, if one does."""
        hint = f" (it is a key of {owner})" if owner else ""
        self.fault(origin, key, f"unknown key in {where}{nearest(key, known)}{hint}")

    def invalid(self, origin: Origin, key: str, value: object, error: object) -> None:
        """Add a fault: invalid value of a known key."""
        self.fault(origin, key, f"{shown(value)} is invalid, expected {error}")

    def _repeated(self, origin: Origin, key: str, name: str, earlier: Origin | None) -> None:
        """Add a fault: an earlier declaration has the same name."""
        self.fault(origin, key, f"{shown(name)} is already declared at {earlier}")

    def warn(self, origin: Origin, key: str, problem: str) -> None:
        self.warnings.append(f"{origin}: {shorten(key)}: {problem}")

    def no_effect(self, origin: Origin, key: str, reason: str = "") -> None:
        """Warn about a known key, or an element of another broker's file, that has no effect. Once for each name."""
        if key not in self._warned:
            self._warned.add(key)
            why = f"accepted, but means nothing here: {reason}" if reason else NOT_IN_THIS_VERSION
            self.warn(origin, key, why)

    def broker_value(self, origin: Origin, table: str, key: str, value: object, in_file: str = "") -> None:
        """Set `[table] key` of KEYS. `in_file`: the key in the file, if it differs."""
        row = KEYS[table][key]
        try:
            self.explicit[table, key] = row.kind.read(value)
            self.explicit_at[table, key] = origin
        except ValueError as error:
            self.invalid(origin, in_file or key, value, error)
            return
        if not row.is_supported:
            self.no_effect(origin, in_file or key, row.reason)

    def set_wildcard(self, origin: Origin, key: str, value: object) -> None:
        """`key`: one of WILDCARD_KEYS."""
        lengths, expected = ((0, 2), "two characters") if key == MARKERS else ((1,), "a single character")
        if not isinstance(value, str) or len(value) not in lengths:
            self.invalid(origin, key, value, expected)
            return
        self.wildcards[WILDCARD_KEYS[key]] = value
        self.wildcards_origin = origin

    def add_entry(self, raw: RawEntry) -> None:
        """Add an address-setting; no other file may have one for the same match and virtual host."""
        earlier = self.entries.setdefault((raw.vhost, raw.in_file or raw.match), raw)
        if earlier is not raw:
            where = f" in vhost {raw.vhost!r}" if raw.vhost is not None else ""
            self.fault(raw.origin, "match", f"{shown(raw.match)}{where} is already declared at {earlier.origin}")

    def replace_entry(self, raw: RawEntry) -> None:
        """Add an address-setting of a file format in which the last one of a match replaces the others."""
        earlier = self.entries.get((raw.vhost, raw.in_file or raw.match))
        if earlier is not None and earlier.origin.file == raw.origin.file:
            del self.entries[raw.vhost, raw.in_file or raw.match]
            what = f"{shown(raw.in_file or raw.match)} is already declared at {earlier.origin}: only this one applies"
            self.warn(raw.origin, "match", what)
        self.add_entry(raw)

    def imply(self, origin: Origin, table: str, key: str, value: object) -> None:
        """Set `[table] key` if no file sets it: the default of a foreign system."""
        self.implied.setdefault((table, key), (value, origin))

    def set_field(self, raw: RawEntry, origin: Origin, key: str, row: Setting, value: object, *, as_text: bool) -> None:
        """Set one field of an address-setting."""
        try:
            read = row.kind.read_text(value) if as_text and isinstance(value, str) else row.kind.read(value)
        except ValueError as error:
            self.invalid(origin, key, value, error)
            return
        raw.values[row.attribute] = read
        raw.origins[row.attribute] = origin
        if not row.is_supported:
            self.no_effect(origin, key, row.reason)
        elif row.attribute == "max_delivery_attempts" and read == 0:
            self.warn(origin, key, "0 means unlimited, as -1 does")
        elif row.attribute == "redelivery_delay_multiplier" and read < 1:
            self.warn(origin, key, f"{read:g} makes each wait shorter than the one before")

    def add_destination(self, kind: str, raw: RawEntry) -> None:
        """Add a destination policy: QUEUE_ENTRY, TOPIC_ENTRY, or DEFAULT_ENTRY for all; its match is checked here."""
        try:
            parse_destination(raw.match)
        except MatchFault as error:
            self.fault(raw.origin, kind.partition(" ")[0], f"{shown(raw.match)}: {error}")
            return
        earlier = self.destinations.get((kind, raw.match), raw)
        self.destinations[kind, raw.match] = raw
        what = f"{shown(raw.match)} is already declared at {earlier.origin}"
        if earlier.origin.file != raw.origin.file:
            self.fault(raw.origin, kind.partition(" ")[0], what)
        elif earlier is not raw:
            self.warn(raw.origin, kind.partition(" ")[0], f"{what}: only this one applies, where ActiveMQ uses either")

    def add_queue(self, queue: QueueDeclaration, in_file: Mapping[str, str]) -> None:
        """Add a queue; its arguments are checked here. `in_file`: argument -> the key in the file."""
        queue_type = added_type(queue.arguments)
        if queue_type is not None:
            self.in_file[queue.vhost, queue.name] = in_file
            for fault in queue_type.read(queue.name, queue.arguments)[1]:
                self.fault(queue.origin_of(fault.key), in_file.get(fault.key, fault.key), fault.problem)
            queue = replace(queue, arguments=queue_type.plain_arguments(queue.arguments))
        earlier = self.queues.setdefault((queue.vhost, queue.name), queue)
        if earlier is not queue:
            problem = f"{shown(queue.name)} is already declared at {earlier.origin}"
            if queue_type is not None and queue_type is added_type(earlier.arguments):
                problem = queue_type.duplicate_fault(problem)
            self.fault(queue.origin, in_file.get("name", "queue"), problem)
            return
        self.add_vhost(queue.vhost)
        try:
            settings_of_arguments(queue.arguments)
        except ArgumentFault as error:
            self.fault(queue.origin_of(error.key), in_file.get(error.key, error.key), error.problem)
        if SELECTOR in queue.arguments:
            key = in_file.get(SELECTOR, SELECTOR)
            self.check_selector(queue.origin_of(SELECTOR), key, queue.arguments[SELECTOR])
        if queue.routing_type == MULTICAST:
            self.add_exchange(ExchangeDeclaration(queue.address, queue.vhost, origin=queue.origin))

    def check_selector(self, origin: Origin, key: str, value: object) -> None:
        try:
            check_selector(value)
        except ValueError as error:
            self.invalid(origin, key, value, error)

    def add_logged_topic(self, topic: LoggedTopic, key: str) -> None:
        """Add a logged topic, or a pattern of several. `key`: its name in the file."""
        self.add_vhost(topic.vhost)
        self.logged_vhosts.add(topic.vhost)
        earlier = self.logged_topics.setdefault((topic.vhost, topic.is_pattern, topic.name), topic)
        if earlier is not topic:
            self._repeated(topic.origin, key, topic.name, earlier.origin)
            return
        try:
            topic.records()
        except PatternFault as error:
            self.fault(topic.origin, key, f"{BAD_PATTERN}: {error}")
        count = sum(one.is_pattern for one in self.logged_topics.values()) if topic.is_pattern else 0
        if count == LOGGED_PATTERNS_MAX + 1:
            self.fault(topic.origin, key, f"more than {LOGGED_PATTERNS_MAX} patterns of logged topics")

    def add_exchange(self, exchange: ExchangeDeclaration) -> None:
        """Add an exchange. It may be declared several times; the first declaration applies."""
        self.add_vhost(exchange.vhost)
        self.exchanges.setdefault((exchange.vhost, exchange.name), exchange)

    def add_divert(self, divert: Divert) -> None:
        """Add a divert; names are unique."""
        earlier = self.diverts.setdefault((divert.vhost, divert.name), divert)
        if divert.filter:
            self.check_selector(divert.origin, "filter", divert.filter)
        if earlier is not divert:
            self._repeated(divert.origin, "divert", divert.name, earlier.origin)
        self.add_vhost(divert.vhost)

    def add_vhost(self, name: str) -> None:
        """Add a virtual host, if it is new."""
        if name != "/" and name not in self.vhosts:
            self.vhosts.append(name)

    def limit_vhost(self, origin: Origin, name: str, limits: LimitsDeclaration) -> None:
        """Set the limits of a virtual host; a repeated declaration must be equal."""
        if self.limits.setdefault(name, limits) != limits:
            self.fault(origin, "vhost", f"{shown(name)} is already declared elsewhere, with other limits")

    def add_user(self, user: UserDeclaration) -> None:
        """Add a user; names are unique, and so are the virtual hosts of its permissions."""
        earlier = self.users.setdefault(user.name, user)
        if earlier is not user:
            self._repeated(user.origin, "user", user.name, earlier.origin)
        vhosts = [permission.vhost for permission in user.permissions]
        for vhost in vhosts:
            self.add_vhost(vhost)
        if len(set(vhosts)) < len(vhosts):
            self.fault(user.origin, "permission", f"user {shown(user.name)} has two for one virtual host")
        exchanges = [(topic.vhost, topic.exchange) for topic in user.topic_permissions]
        if len(set(exchanges)) < len(exchanges):
            self.fault(user.origin, "topic-permission", f"user {shown(user.name)} has two for one exchange")
        for topic in user.topic_permissions:
            if topic.vhost not in vhosts:
                problem = f"user {shown(user.name)} has no [[user.permission]] in virtual host {shown(topic.vhost)}"
                self.fault(user.origin, "topic-permission", problem)

    def add_policy(self, policy: Policy, origin: Origin) -> None:
        """Add a policy. Its name is unique among the policies, or the operator policies, of its virtual host."""
        earlier = self.policies.setdefault(policy.identity, policy)
        if earlier is not policy:
            self._repeated(origin, "operator-policy" if policy.is_operator else "policy", policy.name, earlier.origin)
        self.add_vhost(policy.vhost)


def shorten(key: str) -> str:
    """A key for messages: one line, at most 80 characters."""
    plain = "".join(character if character.isprintable() else "?" for character in key)
    return plain if len(plain) <= 80 else plain[:77] + "..."
