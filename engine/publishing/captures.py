"""Which leased queues capture messages of a topic: by name, by regular expression, and by what is in a message; and
which topics are logged.

A message published to an exchange is of the topic of its name, and of EXCHANGE/KEY; by the default exchange, of its
routing key. A publish to the name of a leased queue is of the topic that the queue names as its publish target. A
message that is captured by several queues is one message. Source: queues page A.2.
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
    """The leased queues of one virtual host, by what they select. `logged`: the topics that are; None: none is listed.

    `log`: where messages of these go; None while none is listed.
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
        self._under: dict[str, set[str]] = {}  # what stands before a slash -> topics
        self._since: dict[str, int] = {}  # queue name -> what it captured has this id, or a higher one

    def __bool__(self) -> bool:
        return bool(self._targets) or self.logged is not None

    def set_logged(self, topics: Sequence[LoggedTopic]) -> None:
        """These topics are listed as logged from now on."""
        self.logged = _logged(topics) if topics else None
        self.log = (self.log or _log(self._context)) if topics else None
        self._told.clear()

    def add(self, queue: Queue, next_id: int) -> None:
        """A new queue, if it is a leased one. `next_id`: messages that came before have lower ones."""
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
        """It selects other messages from now on: another topic, or another filter. O(topics)."""
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
        """It is gone, if it was one."""
        if queue.rules.leased is None:
            return
        self._displace(queue)
        del self._targets[queue.name], self._since[queue.name]

    def is_leased(self, name: str) -> bool:
        """Whether a leased queue has this name."""
        return name in self._targets

    def topic_of(self, exchange: str, routing_key: str) -> str:
        """The topic under which a message is told."""
        return exchange or self._targets.get(routing_key, routing_key)

    def topics_of(self, exchange: str, keys: Iterable[str]) -> list[str]:
        """All topics that a message with these routing keys is of."""
        if exchange:
            return [exchange, *(f"{exchange}/{key}" for key in keys)]
        return [self._targets.get(key, key) for key in keys]

    def among(self, queues: Sequence[Queue]) -> list[str]:
        """Topics of messages that came to these queues by their names or bindings: the targets of the leased ones."""
        return [self._targets[queue.name] for queue in queues if queue.rules.leased is not None]

    def capturing(self, topics: Sequence[str]) -> dict[Queue, LeasedRules]:
        """The queues that select any of these topics, as far as names go, in no order of meaning. O(patterns).

        Where logged topics are listed others are not captured (queues page A.3.2, E-TXLOG).
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
        """The same as `capturing`, and nobody is told of what is not logged."""
        return self._selecting([topic for topic in topics if self.logged is None or self.logged.has(topic)])

    def check_logged(self, settings: LeasedSettings) -> None:
        """Whether the topics of a new queue are listed; what a pattern selects is known only when messages come.

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
        """Whether messages of any of these topics go to the log, whoever captures them."""
        return self.logged is not None and any(map(self.logged.has, topics))

    def is_in_log(self, queue: Queue, exchange: str, routing_key: str, queues: Sequence[str], id_: int) -> bool:
        """Whether a message is of a leased queue's log: it captured it, or selects its topic, which was logged.

        What no list names is logged as far as a leased queue captured it that is still there. `queues`: those that the
        message reached; the log's own name is empty.
        """
        captured = [name for name in queues if not name or self._since.get(name, id_ + 1) <= id_]
        if not captured or queue.name in captured:
            return bool(captured)
        rules = queue.rules.leased
        return rules is not None and any(map(rules.selects, self.topics_of(exchange, (routing_key,))))

    def logged_since(self, queue: Queue) -> int | None:
        """The log may have messages for a leased queue from this id on that it did not capture; None: it has none.

        A listed topic may have been logged for ever, another since the first queue that selected it.
        """
        rules = queue.rules.leased
        assert rules is not None
        if self.logged is not None:
            return 0
        topic = rules.settings.underlying_topic
        known = self._literal
        if is_regex(topic):
            names = set(known)
        else:  # E and E/key are of one message
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
        """Whether it depends on the message which of these capture it."""
        return any(rules.filter is not None for rules in found.values())

    @staticmethod
    def taking(found: dict[Queue, LeasedRules], message: Message | None) -> list[Queue]:
        """Of these the ones that capture a message; None: there is none yet. Its body is read at most once."""
        from ..delivery.filters import MessageSubject  # with the language of filters, which others need not have

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
    """The names that stand before a slash in the name of a topic: exchanges that its messages may be published to."""
    return [topic[:at] for at, character in enumerate(topic) if character == "/"]


def _log(context: HostContext) -> Queue:
    from ..queues.log_sink import LogSink  # few have logged topics

    return LogSink(context)


def _logged(topics: Sequence[LoggedTopic]) -> "LoggedTopics":
    from ..rules.logged_topics import LoggedTopics  # few have them

    return LoggedTopics(topics)
