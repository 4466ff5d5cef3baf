"""Checks of leased queues that need all files: the topics that they capture, and their dead-letter addresses.

Source: queues page A.2, A.3.1, A.3.2, H.1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..declared.configuration import Configuration
from ..declared.declarations import ExchangeDeclaration, LoggedTopic, QueueDeclaration
from ..faults import Origin, nearest
from ..files.builder import ConfigurationBuilder
from ..values import shown
from .element_values import REASONS
from .leased_settings import AMPS, LOCAL, LeasedFault, LeasedSettings, is_regex, leased_warnings, read_leased, selects

TOPIC_EXCHANGE = "topic"
DEAD_LETTER_EXCHANGE, DEAD_LETTER_KEY = "x-dead-letter-exchange", "x-dead-letter-routing-key"
NO_LOG = "W-TXLOG: there is no list of logged topics: a topic is logged from the first queue on that selects it"
NOT_READ = "expressions cannot look into such messages: every path into their bodies is NULL"
#: A template of the unchanged body.
WHOLE_MESSAGE = "{{AMPS_DATA}}"
#: Maximum names that are searched for a similar one.
NAMES_MAX = 100

_TOPIC, _TARGET, _TYPE = "x-underlying-topic", "x-default-publish-target", "x-message-type"

#: A fault: position, argument or `name`, fault.
Problem = tuple[Origin, str, LeasedFault]


def leased_of(queue: QueueDeclaration) -> LeasedSettings:
    """The settings of a leased queue that was checked."""
    return read_leased(queue.name, queue.arguments)[0]


def topic_exchanges(
    queues: Iterable[QueueDeclaration], taken: Mapping[tuple[str, str], object]
) -> Iterator[ExchangeDeclaration]:
    """An exchange for each topic that a leased queue names, so that it can be published to (queues page A.2).

    None for regular expressions, names of queues, and names in `taken` (virtual host and name).
    """
    leased = [queue for queue in queues if is_leased(queue.arguments)]
    names = {(queue.vhost, queue.name) for queue in queues} | taken.keys()
    for queue in leased:
        settings = leased_of(queue)
        for topic in (settings.underlying_topic, settings.default_publish_target):
            key = (queue.vhost, topic)
            if key not in names and not is_regex(topic):
                names.add(key)
                yield ExchangeDeclaration(topic, queue.vhost, TOPIC_EXCHANGE, queue.origin)


class TopicCheck:
    """Checks that the topics which leased queues name are logged, if a configuration lists logged topics."""

    def __init__(self, topics: Sequence[LoggedTopic], logged_vhosts: Iterable[str]) -> None:
        """Args: logged_vhosts: virtual hosts whose logged topics a file lists, even if it lists none."""
        self._logged_vhosts = {*logged_vhosts, *(topic.vhost for topic in topics)}
        self._by_name = {(topic.vhost, topic.name): topic for topic in topics if not topic.is_pattern}
        self._patterns = [(topic, topic.records()) for topic in topics if topic.is_pattern]

    def problems(self, queue: QueueDeclaration) -> Iterator[Problem]:
        """E-TXLOG and E-MTYPE-MISMATCH."""
        if queue.vhost not in self._logged_vhosts:
            return
        settings = leased_of(queue)
        topics = {settings.underlying_topic: _TOPIC}
        topics.setdefault(settings.default_publish_target, _TARGET)
        topics[settings.name] = "name"
        for topic, argument in topics.items():
            if argument == _TOPIC and is_regex(topic):
                continue  # the topics of a regular expression are unknown until messages come
            logged = self._logged(queue.vhost, topic)
            origin = queue.origin_of(argument)
            if logged is None:
                names = [name for vhost, name in self._by_name if vhost == queue.vhost]
                hint = nearest(topic, names[:NAMES_MAX])
                yield origin, argument, LeasedFault("E-TXLOG", argument, f"{shown(topic)}{hint}")
            elif logged.message_type not in (None, settings.message_type):
                detail = f"{settings.message_type}, and {logged.message_type} for {shown(topic)} at {logged.origin}"
                yield queue.origin_of(_TYPE), _TYPE, LeasedFault("E-MTYPE-MISMATCH", _TYPE, detail)
                return

    def _logged(self, vhost: str, topic: str) -> LoggedTopic | None:
        found = self._by_name.get((vhost, topic))
        if found is not None:
            return found
        return next((one for one, records in self._patterns if one.vhost == vhost and records(topic)), None)


def lint_of_leases(configuration: Configuration, logged_vhosts: Iterable[str]) -> Iterator[str]:
    """W-TXLOG, once for a virtual host; W-MTYPE, once for a type; and the warnings about each queue's settings.

    Args: logged_vhosts: virtual hosts whose logged topics a file lists, even if it lists none.
    """
    logged = {*logged_vhosts, *(topic.vhost for topic in configuration.logged_topics)}
    types: set[str] = set()
    for queue in configuration.queues:
        if not is_leased(queue.arguments):
            continue
        settings, where = leased_of(queue), f"queue {shown(queue.name)}"
        if queue.vhost not in logged:
            logged.add(queue.vhost)
            yield f"{queue.origin}: {where}: {NO_LOG}"
        if settings.message_type not in types and settings.message_type != "json":
            types.add(settings.message_type)
            yield f"{queue.origin_of(_TYPE)}: {where}: W-MTYPE: {settings.message_type}: {NOT_READ}"
        for warning in leased_warnings(settings, is_clustered=configuration.is_clustered):
            yield f"{queue.origin}: {where}: {warning}"


def is_leased(arguments: Mapping[str, object]) -> bool:
    """Whether a queue with these arguments is leased."""
    return arguments.get("x-queue-type") == AMPS


@dataclass(slots=True, frozen=True)
class ExpiryAction:
    """An AMPS action that publishes expired messages of queues. `topic`: of the queues, a name or a regular expression.

    `target`: the topic to publish to, in which `{{AMPS_TOPIC}}` is the queue's name. `reasons`: it publishes messages
    that expire for these. `data`: a template of the body. `path`: of the element that names the topic.
    """

    topic: str
    target: str
    reasons: tuple[str, ...]
    data: str
    origin: Origin
    path: str


@dataclass(slots=True)
class AmpsNotes:
    """What AMPS' files say besides their queues. `replicated`: topics that AMPS would replicate -> position and path.
    `local`: the virtual host and name of each LocalQueue.
    """

    actions: list[ExpiryAction] = field(default_factory=list)
    replicated: dict[str, tuple[Origin, str]] = field(default_factory=dict)
    local: set[tuple[str, str]] = field(default_factory=set)


def complete(builder: ConfigurationBuilder) -> None:
    """Give leased queues their dead-letter destinations and exchanges for publishing to them; check their topics.

    In a cluster, mark each LocalQueue as local. A local queue that AMPS would replicate is a fault.
    """
    notes = builder.notes(AmpsNotes)
    _add_dead_letters(builder, notes.actions)
    if builder.cluster_at is not None:  # other nodes have their own LocalQueue of that name
        for key in notes.local & builder.queues.keys():
            queue = builder.queues[key]
            builder.queues[key] = replace(queue, arguments={**queue.arguments, "x-replication": LOCAL})
    check = TopicCheck(tuple(builder.logged_topics.values()), builder.logged_vhosts)
    for key, queue in builder.queues.items():
        if not is_leased(queue.arguments):
            continue
        in_file = builder.in_file.get(key, {})
        for origin, argument, fault in check.problems(queue):
            builder.fault(origin, in_file.get(argument, argument), str(fault))
        if queue.arguments.get("x-replication") in (None, LOCAL) and queue.name in notes.replicated:
            origin, path = notes.replicated[queue.name]
            builder.fault(origin, path, str(LeasedFault("E-REPL-LOCAL", "name", shown(queue.name))))
    for exchange in topic_exchanges(builder.queues.values(), builder.exchanges):
        builder.add_exchange(exchange)


def _add_dead_letters(builder: ConfigurationBuilder, actions: Sequence[ExpiryAction]) -> None:
    """Give each queue the dead-letter arguments of its action.

    A second action for a queue is a fault. An action without a queue is a warning.
    """
    leased = [key for key, queue in builder.queues.items() if key[0] == "/" and is_leased(queue.arguments)]
    done: set[tuple[str, str]] = set()
    for action in actions:
        is_selected = selects(action.topic)
        selected = [key for key in leased if is_selected(builder.queues[key].name)]
        if not selected:
            builder.warn(action.origin, action.path, f"no queue here is called {shown(action.topic)}")
        for key in selected:
            if key in done:
                problem = f"a second action for queue {shown(key[1])}, whose dead letters go to one topic"
                builder.fault(action.origin, action.path, problem)
            else:
                builder.queues[key] = _with_dead_letters(builder.queues[key], action)
                done.add(key)


def _with_dead_letters(queue: QueueDeclaration, action: ExpiryAction) -> QueueDeclaration:
    given = {DEAD_LETTER_EXCHANGE: "", DEAD_LETTER_KEY: action.target.replace("{{AMPS_TOPIC}}", queue.name)}
    if action.reasons != REASONS:
        given["x-dead-letter-reasons"] = ",".join(action.reasons)
    if action.data != WHOLE_MESSAGE:
        given["x-dead-letter-data"] = action.data
    return replace(
        queue, arguments={**queue.arguments, **given}, origins={**queue.origins, **dict.fromkeys(given, action.origin)}
    )
