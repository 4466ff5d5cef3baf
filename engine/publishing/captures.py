"""The capture of messages by topic, for queues of capturing kinds and for the log of listed topics.

The topics of a message at a named exchange are EXCHANGE and EXCHANGE/KEY. At the default exchange its topic is the
routing key or, if that names a capturing queue, the queue's publish target. A binding to a capturing queue adds the
queue's publish target. A message that several queues capture is one message. Source: queues page A.2.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...settings import LoggedTopic
from ..context import HostContext
from ..messages.message import Envelope, Message
from ..queues.kinds import REPLY
from ..queues.parts import Capture, Kind
from ..queues.queue import Queue

if TYPE_CHECKING:
    from ...expressions.language import Expression


class Captures:
    """The captures of one virtual host, by kind of queue, and its log of listed topics.

    `targets`: name of a capturing queue -> its publish target. `logged`: the listed topics, and `log`: the destination
    of their messages; None: no topic is listed.
    """

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._by_kind: dict[str, Capture] = {}
        self.targets: dict[str, str] = {}
        self.log: Queue | None = None
        self.logged: LoggedTopics | None = None

    def __bool__(self) -> bool:
        return bool(self.targets) or self.logged is not None

    def set_logged(self, topics: Sequence[LoggedTopic]) -> None:
        self.logged = LoggedTopics(topics) if topics else None
        self.log = (self.log or LogSink(self._context)) if topics else None

    def of(self, kind: Kind) -> Capture:
        capture = self._by_kind.get(kind.name)
        if capture is None:
            assert kind.make_capture is not None
            capture = self._by_kind[kind.name] = kind.make_capture(self._context)
        return capture

    def is_capturing(self, name: str) -> bool:
        """Whether the present site sees a capturing queue of this name."""
        return self._full_name(name) in self.targets

    def _full_name(self, name: str) -> str:
        """The full name of the queue that the present site sees as `name`; `name` itself if no queue has it.

        Empty: only another site sees a capturing queue of this name.
        """
        scopes = self._context.scopes
        if scopes is None:
            return name
        queue = scopes.seen(name, self._context.broker.sites.now)
        if queue is not None:
            return queue.name
        if name in self.targets:
            return ""
        return name

    def topic_of(self, exchange: str, routing_key: str) -> str:
        """The one of the topics of a message that its consumers are told."""
        return exchange or self.targets.get(self._full_name(routing_key), routing_key)

    def topics_of(self, exchange: str, keys: Iterable[str]) -> list[str]:
        """All topics of a message with these routing keys."""
        if exchange:
            return [exchange, *(f"{exchange}/{key}" for key in keys)]
        return [self.targets.get(self._full_name(key), key) for key in keys]

    def targets_among(self, queues: Iterable[Queue]) -> list[str]:
        """The publish targets of the capturing queues among those that a message reached by name or binding."""
        return [self.targets[queue.name] for queue in queues if queue.kind.captures]

    def capturing(self, topics: Sequence[str], *, is_dry: bool = False) -> "dict[Queue, Expression | None]":
        """The queues, seen by the present site, that capture messages of any of these topics, with their filters.

        `is_dry`: no message is published; topics that are not logged are not reported (`BrokerContext.on_unlogged`).
        """
        found: dict[Queue, Expression | None] = {}
        for capture in self._by_kind.values():
            found.update(capture.capturing(topics, is_dry=is_dry))
        scopes, site = self._context.scopes, self._context.broker.sites.now
        if scopes is None:
            return found
        return {queue: filter_ for queue, filter_ in found.items() if scopes.has(queue, site)}

    def is_logged(self, topics: Sequence[str]) -> bool:
        """Whether messages of any of these topics go to the log."""
        return self.logged is not None and any(map(self.logged.has, topics))

    @staticmethod
    def matching(found: "Mapping[Queue, Expression | None]", message: Message | None) -> list[Queue]:
        """The queues whose filters match a message; all if it is None. All filters together read its body once."""
        from ..delivery.filters import MessageSubject  # loads the filter language, which few brokers need

        subject = None
        matching: list[Queue] = []
        for queue, filter_ in found.items():
            if filter_ is not None and message is not None:
                subject = subject or MessageSubject(message)
                if not filter_.matches(subject):
                    continue
            matching.append(queue)
        return matching


class LoggedTopics:
    """The topics of one virtual host that the configuration lists as logged; at least one.

    Source: queues page A.2, A.3.2, H.1.
    """

    def __init__(self, topics: Iterable[LoggedTopic]) -> None:
        topics = list(topics)
        self._names = frozenset(topic.name for topic in topics if not topic.is_pattern)
        self._patterns = tuple(topic.records() for topic in topics if topic.is_pattern)

    def has(self, topic: str) -> bool:
        """Whether messages of this topic are logged. O(patterns)."""
        return topic in self._names or any(records(topic) for records in self._patterns)


#: The kind of the log. Like that of direct replies it has no limits; but it has no consumers, and stays without them.
SINK = replace(REPLY, name="log", goes_with_consumers=False)


class LogSink(Queue):
    """The log destination of one virtual host. Listeners skip it by its name, which is empty, unlike any queue's."""

    def __init__(self, context: HostContext) -> None:
        super().__init__(context, "", kind=SINK, durable=True)

    def stores(self, envelope: Envelope) -> bool:
        return True  # in any delivery mode

    def enqueue(
        self, first_id: int, envelope: Envelope, contents: Sequence[bytes], due_ns: int | None = None
    ) -> Sequence[int]:
        """Note the run in the memory log. A journal needs no call: it listens to publishes."""
        context = self.context
        storage = context.broker.storage
        if storage.durability is None:
            wall_ms = context.broker.clock.wall_ms()
            storage.memory_log.note(context.name, self.name, first_id, envelope, contents, wall_ms)
        return ()

    def enqueue_mixed(self, first_id: int, envelopes: Sequence[Envelope], contents: Sequence[bytes]) -> Sequence[int]:
        return self.enqueue_stretches(first_id, envelopes, contents)
