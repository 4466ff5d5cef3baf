"""The settings of leased queues in AMPS' terms: one row for each element, which is also a queue argument.

A client sends arguments, and the loaders of TOML and of AMPS' XML make arguments of what they read (`BY_TAG`);
`leased_settings` reads them. Source: queues page A.2, A.3, H.2; conflict K11: a dot alone does not make a topic a
regular expression.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..faults import ArgumentFault
from ..frozen import frozen
from ..lifetime import ARRIVAL, AT_CONSUMER, LIVE, NEVER, RESTART, WITHOUT_MEANING, Lifetime
from ..rows.row import Row, columns_of, setting
from ..values import ADDRESS, DURATION_UNITS, MESSAGE_TYPES, NO_UNITS, Kind, shown
from .element_values import (
    BadValue,
    Reader,
    duration,
    enabled,
    integer,
    one_of,
    reasons,
    recovery_point,
    template,
    text,
    topic,
)

#: Code -> the condition, in the words of reports.
CONDITIONS: dict[str, str] = {
    "E-NAME": "neither Name nor Topic, or one that is empty, longer than 255 bytes, or of another queue",
    "E-MTYPE": "missing or unknown MessageType",
    "E-MTYPE-MISMATCH": "MessageType differs from that of the logged topic",
    "E-DPT-REQUIRED": "regex UnderlyingTopic without DefaultPublishTarget",
    "E-DPT-OUTSIDE": "DefaultPublishTarget not captured by UnderlyingTopic",
    "E-REGEX": "UnderlyingTopic does not compile",
    "E-TXLOG": "the TransactionLog does not record the topic",
    "E-ENUM": "value outside the enum",
    "E-INT": "not a decimal integer",
    "E-MIN": "below minimum",
    "E-DUR": "bad duration",
    "E-EXPR": "bad expression",
    "E-EXCL": "Priority with BarrierExpression, or TargetQueueDepth with either",
    "E-FBM": "FileBackedMetadata is not enabled",
    "E-OWNER-REQUIRED": "GroupLocalQueue without InitialOwner",
    "E-SCOPE": "a scope that is not the end of the name, or of a queue without replication",
    "E-MISMATCH": "other nodes declare the queue otherwise",
    "E-OWNER-TAG": "InitialOwner or GroupLocalQueueDomain on another tag",
    "E-RP": "RecoveryPoint is not a keyword, bookmark or timestamp",
    "E-RP-UNKNOWN": "the log does not have the RecoveryPoint",
    "E-REPL-LOCAL": "a LocalQueue topic is listed for replication",
    "E-DUP-ELEM": "repeated element",
    "E-UNKNOWN": "unknown element",
}


class LeasedFault(ArgumentFault):
    """One fault. `code`: of `CONDITIONS`; `argument`: the queue argument with the fault; `detail`: more about it.

    Its text is the code, the condition and the detail. The detail of E-EXPR and E-REGEX names a column.
    """

    def __init__(self, code: str, argument: str, detail: str = "") -> None:
        super().__init__(argument, f"{code}: {CONDITIONS[code]}" + (f": {detail}" if detail else ""))
        self.code = code
        self.argument = argument
        self.detail = detail

    def __str__(self) -> str:
        return self.problem


_REGEX_CHARACTERS = frozenset("^$*+?()[]{}|\\")


def is_regex(topic: str) -> bool:
    """Whether an UnderlyingTopic is a regular expression, not a name."""
    return not _REGEX_CHARACTERS.isdisjoint(topic)


def selects(topic: str) -> Callable[[str], bool]:
    """A function that tells whether an UnderlyingTopic selects the topic of a name, in linear time.

    Raises: PatternFault.
    """
    if not is_regex(topic):
        return topic.__eq__
    from ...expressions.patterns.patterns import Pattern  # takes 5 ms; names do not need it

    return Pattern(topic).search


#: Queue argument: the site or domain that a queue's name is valid in; its full name is NAME@SCOPE.
SCOPE = "x-queue-scope"
#: Queue argument `x-queue-type` of a leased queue.
AMPS = "amps"
AT_LEAST_ONCE, AT_MOST_ONCE = "at-least-once", "at-most-once"
FAST, ROUND_ROBIN, PROPORTIONAL = "fast", "round-robin", "proportional"
STRICT, SUBLET = "strict", "sublet"
BY_QUEUE, LATEST, EARLIEST, BY_DEFAULT = "queue", "latest", "earliest", "default"
EXPIRATION_MODELS = (BY_QUEUE, LATEST, EARLIEST, BY_DEFAULT)
LOCAL, DISTRIBUTED, GROUP = "local", "distributed", "group"
IMMEDIATE, AT_LEASE_END = "immediate", "at-lease-end"

#: Tag of a queue -> its `x-replication`.
TAGS = {"Queue": DISTRIBUTED, "QueueDefinition": DISTRIBUTED, "LocalQueue": LOCAL, "GroupLocalQueue": GROUP}
#: Other names of elements.
SYNONYMS = {"Topic": "Name"}
#: The element with the queue's name, which is not an argument.
NAME = "Name"


@frozen
class Element(Row):
    """The row of an element. `argument`: of queue.declare. `tag`: its name in AMPS; None: only Leveret has it."""

    argument: str = ""
    tag: str | None = None


def element(read: Reader, default: object, acts: Lifetime, **columns: Any) -> Any:
    """A row. The reader accepts text, too. `columns`: help; tag; key, if it differs from the attribute's name."""
    return setting(Kind(read, units=DURATION_UNITS if read is duration else NO_UNITS), default, acts, **columns)


DEFERRED_ACK_MS_DEFAULT = 86_400_000


# A queue's counting and order of delivery are fixed when its state is built: such settings act at a restart.
@frozen
class LeasedSettings:
    """The settings of a leased queue. None: unset. Times in milliseconds. 0 deliveries, 0 cancels: no maximum.

    `dead_letter_reasons`: the reasons that make dead letters, separated by commas. `dead_letter_data`: a template of
    their bodies.
    `name`: without the scope. `filter`, `priority`, `barrier`: texts of expressions. `underlying_topic`: a name or a
    regular expression (`is_regex`); `default_publish_target`: where a publish to the queue's name is recorded.
    """

    name: str
    # fmt: off
    replication: str = element(one_of(LOCAL, DISTRIBUTED, GROUP), LOCAL, WITHOUT_MEANING,
        default_text="unset: all nodes alike",
        help="Nodes of a cluster that have the queue: `local`, `group`, `distributed` (docs/from-amps.md).")
    message_type: str = element(one_of(*MESSAGE_TYPES), "json", NEVER, tag="MessageType",
        help="Type of the bodies; expressions look only into those of type `json`.")
    underlying_topic: str = element(topic("E-NAME"), "", ARRIVAL, tag="UnderlyingTopic", default_text="the name",
        help="Topic whose messages are captured, or a regular expression that is searched in topics.")
    default_publish_target: str = element(topic("E-NAME"), "", ARRIVAL,
        tag="DefaultPublishTarget", default_text="`underlying-topic`",
        help="Topic of messages that are published to the queue's name; a pattern needs it.")
    lease_period_ms: int | None = element(duration, None, LIVE, tag="LeasePeriod",
        help="How long a consumer has a message before others may get it.")
    semantics: str = element(one_of(AT_LEAST_ONCE, AT_MOST_ONCE), AT_LEAST_ONCE, RESTART, tag="Semantics",
        help="`at-least-once`, or `at-most-once`: messages are removed as they are sent.")
    max_backlog: int | None = element(integer(1), None, LIVE, tag="MaxBacklog", key="max-backlog-total",
        help="Messages that all consumers together may have unacknowledged.")
    max_per_subscription_backlog: int = element(integer(1), 1, AT_CONSUMER,
        tag="MaxPerSubscriptionBacklog", key="max-backlog-per-consumer",
        help="Messages that one consumer may have unacknowledged, if it asks for as many.")
    expiration_ms: int | None = element(duration, None, ARRIVAL, tag="Expiration", key="message-ttl",
        help="How long a message may be in the queue, leased or not.")
    expiration_model: str = element(one_of(*EXPIRATION_MODELS), BY_DEFAULT, ARRIVAL, tag="ExpirationModel",
        help="Which expiration applies, the queue's or the message's: `queue`, `latest`, `earliest`, `default`.")
    expire_leased: str = element(one_of(IMMEDIATE, AT_LEASE_END), IMMEDIATE, LIVE,
        help="Whether the lifetime ends a lease (`immediate`), or waits for it (`at-lease-end`).")
    dead_letter_reasons: str | None = element(reasons, None, LIVE,
        help="Only these reasons make dead letters: some of `time_limit,forced_expire,max_cancels,max_deliveries`.")
    dead_letter_data: str | None = element(template, None, LIVE,
        help="Body of a dead letter: a text with `{{AMPS_DATA}}` or `{{AMPS_REASON}}` in it, and the like.")
    filter: str | None = element(text("E-EXPR"), None, ARRIVAL, tag="Filter", key="queue-filter",
        help="Expression: only messages for which it is true are captured.")
    recovery_point: str = element(recovery_point, "epoch", RESTART, tag="RecoveryPoint",
        help="Where in the log a new queue begins: at `epoch`, `now`, `creation`, a bookmark or a time.")
    fairness: str = element(one_of(FAST, ROUND_ROBIN, PROPORTIONAL), PROPORTIONAL, LIVE,
        tag="FairnessModel", default_text='`"proportional"`; `"round-robin"` where at most once',
        help="How the next consumer is chosen: `fast`, `round-robin` or `proportional`.")
    leasing: str = element(one_of(STRICT, SUBLET), SUBLET, LIVE, tag="Leasing",
        help="Whether anybody may acknowledge a leased message (`sublet`), or its holder alone (`strict`).")
    max_deliveries: int = element(integer(0), 0, LIVE, tag="MaxDeliveries",
        help="Deliveries after which a message expires when its lease ends; 0 is no limit.")
    max_cancels: int = element(integer(0), 0, LIVE, tag="MaxCancels", key="cancel-limit",
        help="Returns by consumers (nack, reject with requeue) after which a message expires; 0 is no limit.")
    priority: str | None = element(text("E-EXPR"), None, RESTART, tag="Priority", key="priority-expr",
        help="Expression, or a field, that ranks messages; higher numbers are delivered first.")
    barrier: str | None = element(text("E-EXPR"), None, RESTART, tag="BarrierExpression", key="barrier-expr",
        help="Expression: a message for which it is true waits until all earlier ones left; every consumer gets it.")
    is_file_backed: bool = element(enabled, False, WITHOUT_MEANING, tag="FileBackedMetadata", key="file-backed",
        help="Accepted for the files of AMPS: the state of each queue is in the journal.")
    target_queue_depth: int | None = element(integer(1000), None, RESTART, tag="TargetQueueDepth", key="target-depth",
        help="Messages that are active, at least 1000; the others wait in the journal.")
    deferred_ack_ms: int = element(duration, DEFERRED_ACK_MS_DEFAULT, LIVE,
        tag="DeferredAckExpiration", key="deferred-ack-ttl",
        help="How long an acknowledgement waits for a message that is not there yet.")
    initial_owner: str | None = element(topic("E-OWNER-REQUIRED"), None, WITHOUT_MEANING, tag="InitialOwner",
        help="Of a `group` queue, which needs one: the node whose consumers get all new messages first.")
    domain: str | None = element(topic("E-OWNER-TAG"), None, WITHOUT_MEANING,
        tag="GroupLocalQueueDomain", key="queue-domain",
        help="Of a `group` queue: the nodes that declare it with this domain share it. Unset: `[cluster] group`.")
    # fmt: on

    @property
    def is_at_most_once(self) -> bool:
        """Whether messages are removed when they are sent."""
        return self.semantics == AT_MOST_ONCE


ELEMENTS: tuple[Element, ...] = tuple(
    Element(argument=f"x-{columns['key']}", **columns) for columns in columns_of(LeasedSettings)
)
BY_ARGUMENT: dict[str, Element] = {one.argument: one for one in ELEMENTS}
BY_TAG: dict[str, Element] = {one.tag: one for one in ELEMENTS if one.tag is not None}
#: Attributes that leased queues share with other queues.
IN_COMMON = tuple(
    Element("", key, ADDRESS, None, LIVE, help, default_text="of the address", argument=f"x-{key}")
    for key, help in (
        ("dead-letter-address", "Exchange or queue that gets messages that expired for another reason than time."),
        ("expiry-address", "Exchange or queue that gets messages whose time to live is over."),
    )
)
#: Attribute of a configured leased queue -> argument.
LEASED_ATTRIBUTES: dict[str, str] = {one.key: one.argument for one in (*ELEMENTS, *IN_COMMON)}
#: Argument -> when a changed value takes effect.
ACTS: dict[str, Lifetime] = {one.argument: one.acts for one in ELEMENTS}
#: Arguments that can change on an existing leased queue.
LIVE_LEASED = frozenset(argument for argument, acts in ACTS.items() if acts in (LIVE, ARRIVAL, AT_CONSUMER))
#: Live arguments that policies cannot set: they decide which topics the queue captures.
OF_CAPTURE = frozenset(("x-underlying-topic", "x-default-publish-target", "x-queue-filter"))


def leased_settings(name: str, arguments: Mapping[str, object]) -> LeasedSettings:
    """The settings of the queue of that name. `arguments`: those of queue.declare as plain values; others are ignored.

    Raises: LeasedFault, the first one.
    """
    settings, faults = read_leased(name, arguments)
    if faults:
        raise faults[0]
    return settings


def read_leased(name: str, arguments: Mapping[str, object]) -> tuple[LeasedSettings, list[LeasedFault]]:
    """Like `leased_settings`, but with all faults at once; an invalid value is replaced by its default."""
    faults: list[LeasedFault] = []
    scope = arguments.get(SCOPE)
    plain_name = name if scope is None else name.removesuffix(f"@{scope}")
    if not _is_name(plain_name or name):
        faults.append(LeasedFault("E-NAME", "name"))
    given: dict[str, object] = {}
    for argument, value in arguments.items():
        found = BY_ARGUMENT.get(argument)
        if found is None:
            continue
        try:
            given[found.attribute] = found.read(value)
        except BadValue as error:
            code = "E-MTYPE" if argument == "x-message-type" else error.code
            faults.append(LeasedFault(code, argument, str(error)))
    if not faults and not _is_name(name):  # valid alone, but too long with its scope
        faults.append(LeasedFault("E-NAME", "name"))
    if scope is not None:
        if given.get("replication") not in (LOCAL, GROUP) or not scope or plain_name in ("", name):
            faults.append(LeasedFault("E-SCOPE", SCOPE, shown(scope)))
        name = plain_name or name
    _check_topics(name, given, faults)
    _check_expressions(given, faults)
    _check_combinations(given, faults)
    underlying = given.setdefault("underlying_topic", name)
    given.setdefault("default_publish_target", underlying)
    if given.get("semantics") == AT_MOST_ONCE:
        given.setdefault("fairness", ROUND_ROBIN)
    return LeasedSettings(name, **given), faults  # type: ignore[arg-type]


def _is_name(name: str) -> bool:
    return 0 < len(name.encode("utf-8", "replace")) <= 255


def _check_topics(name: str, given: dict[str, object], faults: list[LeasedFault]) -> None:
    topic = str(given.get("underlying_topic", name))
    target = given.get("default_publish_target")
    from ...expressions.patterns.pattern_syntax import PatternFault  # takes 5 ms; only leased queues need it

    try:
        is_selected = selects(topic)
    except PatternFault as error:
        faults.append(LeasedFault("E-REGEX", "x-underlying-topic", str(error)))
        return
    if target is None:
        if is_regex(topic):
            faults.append(LeasedFault("E-DPT-REQUIRED", "x-default-publish-target"))
    elif not is_selected(str(target)):
        faults.append(LeasedFault("E-DPT-OUTSIDE", "x-default-publish-target", str(target)))


def _check_expressions(given: dict[str, object], faults: list[LeasedFault]) -> None:
    for attribute, argument in (
        ("filter", "x-queue-filter"),
        ("priority", "x-priority-expr"),
        ("barrier", "x-barrier-expr"),
    ):
        expression = given.get(attribute)
        if expression is None:
            continue
        from ...expressions.language import AMPS, ExpressionError, compiled  # takes 20 ms; most queues do not need it

        try:
            compiled(str(expression), AMPS)  # also refuses functions whose value changes
        except ExpressionError as error:
            faults.append(LeasedFault("E-EXPR", argument, str(error)))


def _check_combinations(given: dict[str, object], faults: list[LeasedFault]) -> None:
    has_priority, has_barrier = "priority" in given, "barrier" in given
    if has_priority and has_barrier:
        faults.append(LeasedFault("E-EXCL", "x-barrier-expr"))
    if "target_queue_depth" in given and (has_priority or has_barrier):
        faults.append(LeasedFault("E-EXCL", "x-target-depth"))
    if given.get("replication") == GROUP:
        if "initial_owner" not in given:
            faults.append(LeasedFault("E-OWNER-REQUIRED", "x-initial-owner"))
    else:
        for attribute, argument in (("initial_owner", "x-initial-owner"), ("domain", "x-queue-domain")):
            if attribute in given:
                faults.append(LeasedFault("E-OWNER-TAG", argument))


def leased_warnings(settings: LeasedSettings, *, is_clustered: bool = False) -> list[str]:
    """Warnings about accepted settings: W-FBM-TQD, W-OWNER (queues page A.3.2); W-LOCAL is Leveret's."""
    warnings: list[str] = []
    if settings.replication != LOCAL and not is_clustered:
        warnings.append(
            f"W-LOCAL: its replication is {settings.replication}: without a cluster it acts as a LocalQueue"
        )
    if settings.is_file_backed and settings.target_queue_depth is not None:
        warnings.append("W-FBM-TQD: TargetQueueDepth beside FileBackedMetadata")
    if settings.initial_owner is not None:
        warnings.append("W-OWNER: nobody checks that the InitialOwner exists and can be reached")
    return warnings
