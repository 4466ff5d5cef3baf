"""Which topics of a virtual host are logged, where a configuration lists them. Source: queues page A.2, A.3.2, H.1."""

from collections.abc import Iterable

from ...settings import LoggedTopic


class LoggedTopics:
    """Those of one virtual host, of which there is at least one."""

    __slots__ = ("_names", "_patterns")

    def __init__(self, topics: Iterable[LoggedTopic]) -> None:
        topics = list(topics)
        self._names = frozenset(topic.name for topic in topics if not topic.is_pattern)
        self._patterns = tuple(topic.records() for topic in topics if topic.is_pattern)

    def has(self, topic: str) -> bool:
        """Whether messages of the topic of that name are logged. O(patterns)."""
        return topic in self._names or any(records(topic) for records in self._patterns)
