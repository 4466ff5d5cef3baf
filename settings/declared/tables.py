"""The tables of a native file that are not settings, one row for each key: objects, and the wildcards of matches.

Most rows are fields of the declarations. Source: interfaces page, "Configuration keys"; address-settings page 6.1, 6.5;
queues page A.2; behaviour page 3.12.
"""

from typing import Any

from ..lifetime import LIVE
from ..policies.policy import APPLY_TO
from ..rows.row import REQUIRED, Row, columns_of
from ..values import BOOLEAN, LONG_MAX, ROUTING_TYPE, TEXT, Kind, in_range, one_of
from .declarations import (
    ANYCAST,
    EXCHANGE_NAME,
    NAME,
    PATTERN,
    Divert,
    LimitsDeclaration,
    LoggedTopic,
    PermissionDeclaration,
    UserDeclaration,
)

Table = tuple[Row, ...]


def _rows_of(declaration: type) -> Table:
    return tuple(Row(**columns) for columns in columns_of(declaration))


def _row(key: str, kind: Kind, default: Any, help: str, *, attribute: str = "", shown: str = "") -> Row:
    """A row that is no field of a declaration. Its `acts` is not read: settings/difference.py says when changes act."""
    return Row(attribute or key.replace("-", "_"), key, kind, default, LIVE, help, default_text=shown)


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
#: For the documentation only: files/toml_queues.py reads queues, also `arguments`, a table. Other attributes of
#: queues are arguments of queue.declare.
QUEUE: Table = (
    _row("name", NAME, REQUIRED, "Name of the queue."),
    _row("routing-type", ROUTING_TYPE, None, "`anycast` or `multicast`.", shown="the address's"),
    _row("durable", BOOLEAN, True, "Whether the queue survives a restart."),
    _row("enabled", BOOLEAN, True, "Whether the queue accepts new messages.", attribute="is_enabled"),
    _row("arguments", TEXT, None, "Other arguments, as a client would pass them.", shown="none"),
)
#: Of a logged topic, besides its name or pattern.
LOGGED_TOPIC_OPTIONS = _rows_of(LoggedTopic)
LOGGED_TOPIC: Table = (
    _row("name", NAME, None, "A topic, by its name."),
    _row("pattern", NAME, None, "In place of a name: a regular expression, for all topics that it is found in."),
    *LOGGED_TOPIC_OPTIONS,
)
DIVERT = _rows_of(Divert)
VHOST_LIMITS = _rows_of(LimitsDeclaration)
VHOST: Table = (_row("name", NAME, REQUIRED, "Name of the virtual host."), *VHOST_LIMITS)
#: Of a policy files/toml_users.py finds `pattern` and `definition` missing, and reads the latter, which is a table.
POLICY: Table = (
    _row("name", NAME, REQUIRED, "Name of the policy."),
    _row("vhost", NAME, "/", "Its virtual host."),
    _row("pattern", TEXT, None, "Regular expression on the names of queues and exchanges.", shown="required"),
    _row("apply-to", one_of(*APPLY_TO), "all", "Queues, exchanges, or queues of one type."),
    _row("priority", in_range(-LONG_MAX, LONG_MAX), 0, "Of several policies that match, the highest priority wins."),
    _row("definition", TEXT, None, "A table of what the policy sets.", shown="required"),
)
USER = _rows_of(UserDeclaration)
PERMISSION = _rows_of(PermissionDeclaration)
EXCHANGE = _row("exchange", EXCHANGE_NAME, REQUIRED, "Exchange that a topic permission is for.")
TOPIC_PERMISSION: Table = (
    PERMISSION[0], EXCHANGE, *(_row(one.key, PATTERN, ".*", one.help) for one in PERMISSION[2:]),
)
# fmt: on
