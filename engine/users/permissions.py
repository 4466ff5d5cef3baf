"""A user's permissions in one virtual host: patterns on names of queues and exchanges, and on routing keys.

They are checked for each declare, delete, bind, consume, get, purge and route look-up, and for the keys in CC and BCC
of a message; other messages need no check.
Source: behaviour page 3.14.
"""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...settings.frozen import frozen

if TYPE_CHECKING:
    from ...expressions.patterns.patterns import Pattern

CONFIGURE, WRITE, READ = "configure", "write", "read"
QUEUE, EXCHANGE = "queue", "exchange"
#: The patterns, in operators' spellings, that allow every name.
ALL = frozenset((".*", "^.*", ".*$", "^.*$"))
#: Maximum number of cached answers for each user and virtual host.
CACHED_MAX = 1000


@frozen
class TopicPermission:
    """Patterns on routing keys (write) and binding keys (read) of one topic exchange."""

    write: str = ".*"
    read: str = ".*"


@frozen
class Grant:
    """The pattern texts of a user's permissions in a virtual host. `topics`: by exchange; missing ones allow all."""

    configure: str = ".*"
    write: str = ".*"
    read: str = ".*"
    topics: Mapping[str, TopicPermission] = field(default_factory=lambda: MappingProxyType({}))


class Permissions:
    """A grant with its compiled patterns. They are compiled on first use, because a user may have thousands."""

    __slots__ = ("_allowed", "_literals", "_names", "_topics", "grant")

    def __init__(self, grant: Grant, *, user: str, vhost: str) -> None:
        self.grant = grant
        self._literals = {"username": user, "vhost": vhost}
        self._names: dict[str, Pattern] = {}  # by action
        self._topics: dict[tuple[str, str], Pattern] = {}  # by action and exchange
        self._allowed: dict[tuple[str, str], bool] = {}

    def check(self) -> None:
        """Compile all patterns. Raises: PatternFault."""
        for action in (CONFIGURE, WRITE, READ):
            self._name_pattern(action)
        for exchange in self.grant.topics:
            self._topic_pattern(WRITE, exchange)
            self._topic_pattern(READ, exchange)

    def allows(self, action: str, name: str) -> bool:
        """Whether the user may do `action` with the queue or exchange `name`."""
        key = (action, name)
        allowed = self._allowed.get(key)
        if allowed is None:
            if len(self._allowed) >= CACHED_MAX:
                self._allowed.clear()
            allowed = self._allowed[key] = self._name_pattern(action).search(name)
        return allowed

    def allows_all(self, action: str) -> bool:
        """Whether the user may do `action` with all queues and exchanges, also future ones, and with all keys."""
        return getattr(self.grant, action) in ALL and not self.grant.topics

    def allows_topic(self, action: str, exchange: str, routing_key: str) -> bool:
        """Whether the user may do `action` with a routing or binding key of a topic exchange."""
        return exchange not in self.grant.topics or self._topic_pattern(action, exchange).search(routing_key)

    def _name_pattern(self, action: str) -> "Pattern":
        found = self._names.get(action)
        if found is None:
            found = self._names[action] = _read(getattr(self.grant, action))
        return found

    def _topic_pattern(self, action: str, exchange: str) -> "Pattern":
        found = self._topics.get((action, exchange))
        if found is None:
            found = _read(getattr(self.grant.topics[exchange], action), self._literals)
            self._topics[action, exchange] = found
        return found


def _read(text: str, literals: dict[str, str] | None = None) -> "Pattern":
    from ...expressions.patterns.patterns import permission_pattern  # loading takes 3 ms

    return permission_pattern(text, literals)
