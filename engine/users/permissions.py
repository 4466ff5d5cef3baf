"""What a user may do in one virtual host, by patterns on the names of queues and exchanges, and on routing keys.

Looked at when something is declared, deleted, bound, consumed from, got from, purged, and when a route is looked up:
never for each message. Source: behaviour page 3.14.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...expressions.patterns.patterns import Pattern

CONFIGURE, WRITE, READ = "configure", "write", "read"
QUEUE, EXCHANGE = "queue", "exchange"
#: Patterns that allow every name, as operators write them.
ALL = frozenset((".*", "^.*", ".*$", "^.*$"))
#: Answers that are remembered for each user and virtual host.
MEMORY_MAX = 1000


@dataclass(slots=True, frozen=True)
class TopicPermission:
    """On routing keys (write) and binding keys (read) of one topic exchange."""

    write: str = ".*"
    read: str = ".*"


@dataclass(slots=True, frozen=True)
class Grant:
    """The texts of a user's permissions in a virtual host. `topics` by exchange; one that is missing allows all."""

    configure: str = ".*"
    write: str = ".*"
    read: str = ".*"
    topics: Mapping[str, TopicPermission] = field(default_factory=lambda: MappingProxyType({}))


class Permissions:
    """A grant ready for asking. Raises: PatternFault."""

    __slots__ = ("_allowed", "_names", "_topics", "grant")

    def __init__(self, grant: Grant, *, user: str, vhost: str) -> None:
        from ...expressions.patterns.patterns import permission_pattern  # 3 ms that users who may do all need not wait

        self.grant = grant
        self._names = {
            CONFIGURE: permission_pattern(grant.configure),
            WRITE: permission_pattern(grant.write),
            READ: permission_pattern(grant.read),
        }
        known = {"username": user, "vhost": vhost}
        self._topics: dict[str, dict[str, Pattern]] = {
            exchange: {WRITE: permission_pattern(topic.write, known), READ: permission_pattern(topic.read, known)}
            for exchange, topic in grant.topics.items()
        }
        self._allowed: dict[tuple[str, str], bool] = {}

    def allows(self, action: str, name: str) -> bool:
        """Whether this may be done with the queue or exchange of that name."""
        key = (action, name)
        allowed = self._allowed.get(key)
        if allowed is None:
            if len(self._allowed) >= MEMORY_MAX:
                self._allowed.clear()
            allowed = self._allowed[key] = self._names[action].search(name)
        return allowed

    def allows_all(self, action: str) -> bool:
        """Whether this may be done with all queues and exchanges, also with those that come, and with all keys."""
        return getattr(self.grant, action) in ALL and not self.grant.topics

    def allows_topic(self, action: str, exchange: str, routing_key: str) -> bool:
        """Whether this may be done with a routing or binding key of that topic exchange."""
        topic = self._topics.get(exchange)
        return topic is None or topic[action].search(routing_key)
