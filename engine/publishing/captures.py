"""The capture of messages by leased queues, by topic name, regular expression and filter; and the logged topics.

A message published to an exchange belongs to the topics EXCHANGE and EXCHANGE/KEY; by the default exchange, to its
routing key. A publish to the name of a leased queue belongs to the queue's publish target. A message captured by
several queues is one message. Source: queues page A.2.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ...settings import LoggedTopic
from ...settings.leases import LeasedFault, LeasedSettings, is_regex, selects
from ...settings.values import shown
from ..context import HostContext
from ..messages.message import Message
from ..queues.queue import Queue
from ..rules.leased_rules import LeasedRules

if TYPE_CHECKING:
    from ..rules.logged_topics import LoggedTopics


class Captures:
    """The leased queues of one virtual host, by the topics that they select. `logged`: the topics listed as logged;
    None: there is no list. `log`: the destination of their messages; None without a list.
    """

    __slots__ = (
        "_context",
        "_literal",
        "_patterns",
        "_since",
        "_targets",
        "_told",
        "_under",
        "log",
        "logged",
    )

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._told: set[Queue] = set()
        self.log: Queue | None = None
        self.logged: LoggedTopics | None = None
        self._literal: dict[str, dict[Queue, LeasedRules]] = {}
        self._patterns: dict[Queue, tuple[Callable[[str], bool], LeasedRules]] = {}
        self._targets: dict[str, str] = {}  # queue name -> publish target
        self._under: dict[str, set[str]] = {}  # name before a slash -> topics
        self._since: dict[str, int] = {}  # queue name -> lowest id of a message that it may have captured

    def __bool__(self) -> bool:
        return bool(self._targets) or self.logged is not None

    def set_logged(self, topics: Sequence[LoggedTopic]) -> None:
        """Replace the list of logged topics."""
        self.logged = _logged(topics) if topics else None
        self.log = (self.log or _log(self._context)) if topics else None
        self._told.clear()

    def add(self, queue: Queue, next_id: int) -> None:
        """Add a new queue, if it is leased. `next_id`: the id of the next message."""
        rules = queue.rules.leased
        if rules is None:
            return
        self._place(queue, rules)
        self._since[queue.name] = next_id

    def _place(self, queue: Queue, rules: LeasedRules) -> None:
        topic = rules.settings.underlying_topic
        if is_regex(topic):
            self._patterns[queue] = (selects(topic), rules)
        else:
            self._literal.setdefault(topic, {})[queue] = rules
            for head in heads_of(topic):
                self._under.setdefault(head, set()).add(topic)
        self._targets[queue.name] = rules.settings.default_publish_target

    def changed(self, queue: Queue) -> None:
        """Update the topic or filter of a queue. O(topics)."""
        rules = queue.rules.leased
        assert rules is not None
        self._displace(queue)
        self._place(queue, rules)

    def _displace(self, queue: Queue) -> None:
        if self._patterns.pop(queue, None) is None:
            topic = next(topic for topic, queues in self._literal.items() if queue in queues)
            del self._literal[topic][queue]
            if not self._literal[topic]:
                del self._literal[topic]
                for head in heads_of(topic):
                    self._under[head].discard(topic)
        self._told.discard(queue)

    def remove(self, queue: Queue) -> None:
        """Remove a queue, if it is leased."""
        if queue.rules.leased is None:
            return
        self._displace(queue)
        del self._targets[queue.name], self._since[queue.name]

    def is_leased(self, name: str) -> bool:
        """Whether a leased queue has this name."""
        return name in self._targets

    def topic_of(self, exchange: str, routing_key: str) -> str:
        """The topic of a message as its deliveries name it."""
        return exchange or self._targets.get(routing_key, routing_key)

    def topics_of(self, exchange: str, keys: Iterable[str]) -> list[str]:
        """All topics that a message with these routing keys belongs to."""
        if exchange:
            return [exchange, *(f"{exchange}/{key}" for key in keys)]
        return [self._targets.get(key, key) for key in keys]

    def among(self, queues: Sequence[Queue]) -> list[str]:
        """The publish targets of the leased queues among those that a message reached by name or binding."""
        return [self._targets[queue.name] for queue in queues if queue.rules.leased is not None]

    def capturing(self, topics: Sequence[str]) -> dict[Queue, LeasedRules]:
        """The queues that select any of these topics by name, unordered; filters are not applied. O(patterns).

        If logged topics are listed, other topics are not captured (queues page A.3.2, E-TXLOG).
        """
        if self.logged is None:
            return self._selecting(topics)
        is_logged = {topic: self.logged.has(topic) for topic in topics}
        for topic in topics:
            if not is_logged[topic]:
                for queue in self._selecting((topic,)).keys() - self._told:
                    self._told.add(queue)
                    self._context.broker.on_unlogged(queue, topic)
        return self._selecting([topic for topic in topics if is_logged[topic]])

    def selecting_logged(self, topics: Sequence[str]) -> dict[Queue, LeasedRules]:
        """As `capturing`, but without reports of topics that are not logged."""
        return self._selecting([topic for topic in topics if self.logged is None or self.logged.has(topic)])

    def check_logged(self, settings: LeasedSettings) -> None:
        """Check that the topics of a new queue are listed as logged. A pattern's topics are known only with messages.

        Raises: LeasedFault (E-TXLOG).
        """
        if self.logged is None:
            return
        topics = {settings.default_publish_target: "x-default-publish-target", settings.name: "x-underlying-topic"}
        if not is_regex(settings.underlying_topic):
            topics[settings.underlying_topic] = "x-underlying-topic"
        for topic, argument in topics.items():
            if not self.logged.has(topic):
                raise LeasedFault("E-TXLOG", argument, shown(topic))

    def is_logged(self, topics: Sequence[str]) -> bool:
        """Whether messages of any of these topics go to the log, captured or not."""
        return self.logged is not None and any(map(self.logged.has, topics))

    def is_in_log(self, queue: Queue, exchange: str, routing_key: str, queues: Sequence[str], id_: int) -> bool:
        """Whether a message belongs to a leased queue's log: the queue captured it, or selects its logged topic.

        A topic that is not listed is logged as far as a still existing leased queue captured it. `queues`: the names of
        those that the message reached; the log's name is empty.
        """
        captured = [name for name in queues if not name or self._since.get(name, id_ + 1) <= id_]
        if not captured or queue.name in captured:
            return bool(captured)
        rules = queue.rules.leased
        return rules is not None and any(map(rules.selects, self.topics_of(exchange, (routing_key,))))

    def logged_since(self, queue: Queue) -> int | None:
        """The lowest id of a logged message that a leased queue may select although it did not capture it; None: there
        is none.

        A listed topic may always have been logged, another one since the first queue that selected it.
        """
        rules = queue.rules.leased
        assert rules is not None
        if self.logged is not None:
            return 0
        topic = rules.settings.underlying_topic
        known = self._literal
        if is_regex(topic):
            names = set(known)
        else:  # one message belongs to both E and E/key
            names = {topic, *heads_of(topic), *self._under.get(topic, ())} & known.keys()
        others = [other for name in names for other in known[name]] + list(self._patterns)
        return min((self._since[other.name] for other in others if other is not queue), default=None)

    def _selecting(self, topics: Sequence[str]) -> dict[Queue, LeasedRules]:
        found: dict[Queue, LeasedRules] = {}
        for topic in topics:
            found.update(self._literal.get(topic, {}))
        for queue, (is_selected, rules) in self._patterns.items():
            if any(map(is_selected, topics)):
                found[queue] = rules
        return found

    @staticmethod
    def decides_each(found: dict[Queue, LeasedRules]) -> bool:
        """Whether a filter among these queues makes the capture differ by message."""
        return any(rules.filter is not None for rules in found.values())

    @staticmethod
    def taking(found: dict[Queue, LeasedRules], message: Message | None) -> list[Queue]:
        """The queues among these that capture a message; without one (None) filters are not applied. The body is read
        at most once.
        """
        from ..delivery.filters import MessageSubject  # loads the filter language, which few brokers need

        subject = None
        taking: list[Queue] = []
        for queue, rules in found.items():
            if rules.filter is not None and message is not None:
                subject = subject or MessageSubject(message)
                if not rules.filter.matches(subject):
                    continue
            taking.append(queue)
        return taking


def heads_of(topic: str) -> list[str]:
    """The parts of a topic's name before each slash: exchanges that its messages may be published to."""
    return [topic[:at] for at, character in enumerate(topic) if character == "/"]


def _log(context: HostContext) -> Queue:
    from ..queues.log_sink import LogSink  # few brokers have logged topics

    return LogSink(context)


def _logged(topics: Sequence[LoggedTopic]) -> "LoggedTopics":
    from ..rules.logged_topics import LoggedTopics  # few brokers have logged topics

    return LoggedTopics(topics)
