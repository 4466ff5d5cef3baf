"""The capture of messages by leased queues, by topic name, regular expression and filter. Source: queues page A.2."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...settings.leases.leased_settings import LeasedFault, LeasedSettings, is_regex, selects
from ...settings.values import shown
from ..context import HostContext
from ..queues.queue import Queue
from .rules import LeasedRules
from .state import leases_of, rules_of

if TYPE_CHECKING:
    from ...expressions.language import Expression
    from ..publishing.captures import LoggedTopics


class TopicCapture:
    """The leased queues of one virtual host, by the topics that they select."""

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._captures = context.router.captures
        self._literal: dict[str, dict[Queue, LeasedRules]] = {}
        self._patterns: dict[Queue, tuple[Callable[[str], bool], LeasedRules]] = {}
        self._under: dict[str, set[str]] = {}  # name before a slash -> topics
        self._since: dict[str, int] = {}  # queue name -> lowest id of a message that it may have captured
        self._reported: set[Queue] = set()  # a topic that they select was reported as not logged
        self._reported_list: LoggedTopics | None = None  # the list of logged topics at that time

    def add(self, queue: Queue, next_id: int) -> None:
        self._place(queue)
        self._since[queue.name] = next_id

    def _place(self, queue: Queue) -> None:
        rules = rules_of(queue)
        topic = rules.settings.underlying_topic
        if is_regex(topic):
            self._patterns[queue] = (selects(topic), rules)
        else:
            self._literal.setdefault(topic, {})[queue] = rules
            for head in heads_of(topic):
                self._under.setdefault(head, set()).add(topic)
        self._captures.targets[queue.name] = rules.settings.default_publish_target

    def changed(self, queue: Queue) -> None:
        self._displace(queue)
        self._place(queue)

    def _displace(self, queue: Queue) -> None:
        if self._patterns.pop(queue, None) is None:
            topic = next(topic for topic, queues in self._literal.items() if queue in queues)
            del self._literal[topic][queue]
            if not self._literal[topic]:
                del self._literal[topic]
                for head in heads_of(topic):
                    self._under[head].discard(topic)
        self._reported.discard(queue)

    def remove(self, queue: Queue) -> None:
        self._displace(queue)
        del self._captures.targets[queue.name], self._since[queue.name]

    def capturing(self, topics: Sequence[str], *, is_dry: bool) -> "dict[Queue, Expression | None]":
        """See `Capture`. O(patterns). If logged topics are listed, no other ones are captured (queues page A.3.2)."""
        logged = self._captures.logged
        if logged is None:
            return self._selecting(topics)
        is_logged = {topic: logged.has(topic) for topic in topics}
        if not is_dry:
            self._report([topic for topic in topics if not is_logged[topic]], logged)
        return self._selecting([topic for topic in topics if is_logged[topic]])

    def _report(self, topics: Sequence[str], logged: "LoggedTopics") -> None:
        if self._reported_list is not logged:
            self._reported_list = logged
            self._reported.clear()
        for topic in topics:
            for queue in self._selecting((topic,)).keys() - self._reported:
                self._reported.add(queue)
                self._context.broker.on_unlogged(queue, topic)

    def _selecting(self, topics: Sequence[str]) -> "dict[Queue, Expression | None]":
        found: dict[Queue, Expression | None] = {}
        for topic in topics:
            for queue, rules in self._literal.get(topic, {}).items():
                found[queue] = rules.filter
        for queue, (is_selected, rules) in self._patterns.items():
            if any(map(is_selected, topics)):
                found[queue] = rules.filter
        return found

    # -- the log ------------------------------------------------------------------------------------------------------

    def is_in_log(self, queue: Queue, exchange: str, routing_key: str, queues: Sequence[str], id_: int) -> bool:
        """Whether a logged message belongs to a queue: the queue captured it, or selects its topic.

        `queues`: the names of the queues that the message reached; an empty name: its topic is listed as logged. A
        message of another topic counts only while a leased queue that captured it exists. A queue of one site or domain
        has only messages that it captured.
        """
        captured = [name for name in queues if not name or self._since.get(name, id_ + 1) <= id_]
        if not captured or queue.name in captured:
            return bool(captured)
        if not self._is_of_all(queue):
            return False  # the record does not say at which site it was published
        return any(map(rules_of(queue).selects, self._captures.topics_of(exchange, (routing_key,))))

    @staticmethod
    def _is_of_all(queue: Queue) -> bool:
        """Whether the queue captures the messages of all sites."""
        hosts = leases_of(queue).hosts
        return hosts is None or not hosts.scope

    def logged_since(self, queue: Queue) -> int | None:
        """The lowest id of a logged message that `is_in_log` may find though the queue did not capture it; None: none.

        Listed topics may always have been logged, other ones only since the first other queue that may select them.
        """
        if not self._is_of_all(queue):
            return None
        if self._captures.logged is not None:
            return 0
        topic = rules_of(queue).settings.underlying_topic
        known = self._literal
        if is_regex(topic):
            names = set(known)
        else:  # a message to exchange E with key K has the topics E and E/K
            names = {topic, *heads_of(topic), *self._under.get(topic, ())} & known.keys()
        others = [other for name in names for other in known[name]] + list(self._patterns)
        return min((self._since[other.name] for other in others if other is not queue), default=None)


def capture_of(queue: Queue) -> TopicCapture:
    capture = queue.context.router.captures.of(queue.kind)
    assert isinstance(capture, TopicCapture)
    return capture


def check_logged(context: HostContext, settings: LeasedSettings) -> None:
    """Check that the topics of a new queue are listed as logged. A pattern's topics are known only with messages.

    Raises: LeasedFault (E-TXLOG).
    """
    logged = context.router.captures.logged
    if logged is None:
        return
    topics = {settings.default_publish_target: "x-default-publish-target", settings.name: "x-underlying-topic"}
    if not is_regex(settings.underlying_topic):
        topics[settings.underlying_topic] = "x-underlying-topic"
    for topic, argument in topics.items():
        if not logged.has(topic):
            raise LeasedFault("E-TXLOG", argument, shown(topic))


def heads_of(topic: str) -> list[str]:
    """The parts of a topic's name before each slash: exchanges that its messages may be published to."""
    return [topic[:at] for at, character in enumerate(topic) if character == "/"]
