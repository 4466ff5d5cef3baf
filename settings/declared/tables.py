"""The keys of declaring tables in a native file: one row each, with reader, default and sentence.

A row's attribute is that of the declaration. Source: interfaces page, "Configuration keys"; address-settings page 6.1,
6.5; queues page A.2; behaviour page 3.12.
"""

from typing import Any

from ...expressions.patterns.pattern_syntax import PatternFault
from ...expressions.patterns.patterns import permission_pattern
from ..lifetime import AT_CONNECTION, AT_CREATION, LIVE, Lifetime
from ..policies.policies import APPLY_TO
from ..rows.message_types import MESSAGE_TYPES
from ..rows.row import Row
from ..values import (
    BOOLEAN,
    DELAY,
    INT_MAX,
    LONG_MAX,
    ROUTING_TYPE,
    TEXT,
    TEXTS,
    Kind,
    choice,
    integer,
    name_text,
    one_of,
    text,
    texts,
    whole,
)
from .declarations import ANYCAST

Table = tuple[Row, ...]

#: The default of a required key.
REQUIRED: Any = object()
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


def pattern_text(value: object) -> str:
    """A permission pattern; empty text matches no name."""
    pattern = text(value)
    try:
        permission_pattern(pattern)
    except PatternFault as fault:
        raise ValueError(f"a regular expression; this one {fault}") from None
    return pattern


NAME, AT_MOST, PATTERN = Kind(name_text), Kind(limit_or_none), Kind(pattern_text)
DIVERT_ROUTING = choice("ANYCAST", "MULTICAST", "PASS", "STRIP")


def _row(
    key: str, kind: Kind, default: Any, help: str, acts: Lifetime = LIVE, *, attribute: str = "", shown: str = ""
) -> Row:
    shown = "required" if default is REQUIRED else shown
    return Row(attribute or key.replace("-", "_"), key, kind, default, acts, help, default_text=shown)


# fmt: off
WILDCARDS: Table = (
    _row("delimiter", TEXT, ".", "Character between the words of an address."),
    _row("any-words", TEXT, "#", "Matches zero or more words; only as the last word."),
    _row("single-word", TEXT, "*", "Matches exactly one word that is not empty."),
    _row("literal-match-markers", TEXT, None, "Two characters: a match between them is taken literally.",
        attribute="literal_markers"),
)
ADDRESS: Table = (
    _row("name", NAME, REQUIRED, "Name of the address."),
    _row("vhost", NAME, "/", "Its virtual host."),
    _row("routing-type", ROUTING_TYPE, ANYCAST,
        "`multicast` makes a fanout exchange of that name and binds its queues.", shown='`"anycast"`'),
)
#: Queues also have attributes that are arguments of queue.declare.
QUEUE: Table = (
    _row("name", NAME, REQUIRED, "Name of the queue."),
    _row("routing-type", ROUTING_TYPE, None, "`anycast` or `multicast`.", shown="the address's"),
    _row("durable", BOOLEAN, True, "Whether the queue survives a restart."),
    _row("enabled", BOOLEAN, True, "Whether the queue accepts new messages.", attribute="is_enabled"),
    _row("arguments", TEXT, None, "Other arguments, as a client would pass them.", shown="none"),
)
LOGGED_TOPIC: Table = (
    _row("name", NAME, None, "A topic, by its name."),
    _row("pattern", NAME, None, "In place of a name: a regular expression, for all topics that it is found in."),
    _row("vhost", NAME, "/", "Its virtual host."),
    _row("message-type", one_of(*MESSAGE_TYPES), None,
        "Type of all its messages; a leased queue of another type may not select it."),
    _row("retain", DELAY, None, attribute="retain_ms", shown='`"24h"`',
        help="How long messages are kept for replay at least; the segments of the journal that they are in are kept."),
)
DIVERT: Table = (
    _row("name", NAME, REQUIRED, "Name of the divert."),
    _row("address", NAME, REQUIRED, "An exchange, or a routing key of the default exchange."),
    _row("forwarding-address", TEXTS, (), "Where the messages go: one address or a list.",
        attribute="forwarding_addresses", shown="required"),
    _row("exclusive", BOOLEAN, False, "Whether the messages no longer reach the original address.",
        attribute="is_exclusive"),
    _row("filter", TEXT, "", "Selector: only messages that it takes are diverted.", shown="all messages"),
    _row("routing-name", NAME, None, "Accepted for Artemis' files."),
    _row("routing-type", DIVERT_ROUTING, "STRIP", "Accepted for Artemis' files."),
    _row("vhost", NAME, "/", "Its virtual host."),
)
VHOST: Table = (
    _row("name", NAME, REQUIRED, "Name of the virtual host."),
    _row("max-connections", AT_MOST, None, "Connections to it; -1 is no limit, 0 none at all.", AT_CONNECTION,
        shown="`-1`"),
    _row("max-queues", AT_MOST, None, "Queues in it; -1 is no limit, 0 none at all.", AT_CREATION, shown="`-1`"),
    _row("default-queue-type", one_of("classic", "quorum", "stream"), None,
        "`classic`, `quorum` or `stream`: type of queues declared without one.", AT_CREATION),
)
POLICY: Table = (
    _row("name", NAME, REQUIRED, "Name of the policy."),
    _row("vhost", NAME, "/", "Its virtual host."),
    _row("pattern", TEXT, None, "Regular expression on the names of queues and exchanges.", shown="required"),
    _row("apply-to", one_of(*APPLY_TO), "all", "Queues, exchanges, or queues of one type."),
    _row("priority", whole(-LONG_MAX, LONG_MAX), 0, "Of several policies that match, the highest priority wins."),
    _row("definition", TEXT, None, "A table of what the policy sets.", shown="required"),
)
USER: Table = (
    _row("name", NAME, REQUIRED, "Name of the user."),
    _row("password-hash", TEXT, "",
        "Base64 of salt and digest, as in RabbitMQ's definitions; unset: no login by password."),
    _row("hashing-algorithm", one_of(*ALGORITHMS), ALGORITHMS[0],
        "How it was hashed: this or " + ", ".join(f"`{name}`" for name in ALGORITHMS[1:]) + "."),
    _row("password", TEXT, "", "In clear; only in a file that only its owner can read (`chmod 600`)."),
    _row("tags", Kind(user_tags), frozenset(), f"Any of {', '.join(USER_TAGS)}.", shown="none"),
    _row("loopback-only", BOOLEAN, False, "Whether the user may only connect from this machine.", AT_CONNECTION),
    _row("max-connections", AT_MOST, None, "Connections of the user; -1 is no limit.", AT_CONNECTION, shown="`-1`"),
    _row("max-channels", AT_MOST, None, "Channels over all connections of the user; -1 is no limit.", shown="`-1`"),
)
PERMISSION: Table = (
    _row("vhost", NAME, "/", "Virtual host that the permission is for."),
    _row("configure", PATTERN, "", "Pattern of names the user may declare and delete (not of topic permissions).",
        shown="nothing"),
    _row("write", PATTERN, "", "Pattern of names the user may publish to or bind to another; of routing keys.",
        shown="nothing; keys: all"),
    _row("read", PATTERN, "", "Pattern of names the user may consume from or bind another to; of routing keys.",
        shown="nothing; keys: all"),
)
EXCHANGE = _row("exchange", NAME, REQUIRED, "Exchange that a topic permission is for.")
TOPIC_PERMISSION: Table = (
    PERMISSION[0], EXCHANGE, *(_row(one.key, PATTERN, ".*", one.help) for one in PERMISSION[2:]),
)
# fmt: on
