"""The topics of a virtual host that the configuration lists as logged. Source: queues page A.2, A.3.2, H.1."""

from collections.abc import Iterable

from ...settings import LoggedTopic


class LoggedTopics:
    """The logged topics of one virtual host; at least one."""

    __slots__ = ("_names", "_patterns")

    def __init__(self, topics: Iterable[LoggedTopic]) -> None:
        topics = list(topics)
        self._names = frozenset(topic.name for topic in topics if not topic.is_pattern)
        self._patterns = tuple(topic.records() for topic in topics if topic.is_pattern)

    def has(self, topic: str) -> bool:
        """Whether messages of this topic are logged. O(patterns)."""
        return topic in self._names or any(records(topic) for records in self._patterns)
