"""The settings of one leased queue, resolved: every default filled in, frozen. Source: queues page A.3.

A loader makes queue arguments of the elements (`elements.BY_TAG`), a client sends them; `leased_settings` reads both.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .elements import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    BY_ARGUMENT,
    BY_DEFAULT,
    GROUP,
    IMMEDIATE,
    LOCAL,
    PROPORTIONAL,
    ROUND_ROBIN,
    SUBLET,
)
from .faults import LeasedFault
from .readers import BadValue
from .topics import is_regex, selects

DEFERRED_ACK_MS_DEFAULT = 86_400_000


@dataclass(slots=True, frozen=True)
class LeasedSettings:
    """None: unset. All times in milliseconds. 0 deliveries, 0 cancels: no maximum.

    `dead_letter_reasons`: only for these, with commas between them; `dead_letter_data`: a template of the body.
    `filter`, `priority`, `barrier`: expressions as they were written. `underlying_topic`: a name or a regular
    expression (`topics.is_regex`); `default_publish_target`: where a publish to the queue's name is recorded.
    """

    name: str
    underlying_topic: str
    default_publish_target: str
    replication: str = LOCAL
    message_type: str = "json"
    lease_period_ms: int | None = None
    semantics: str = AT_LEAST_ONCE
    max_backlog: int | None = None
    max_per_subscription_backlog: int = 1
    expiration_ms: int | None = None
    expiration_model: str = BY_DEFAULT
    expire_leased: str = IMMEDIATE
    dead_letter_reasons: str | None = None
    dead_letter_data: str | None = None
    filter: str | None = None
    recovery_point: str = "epoch"
    fairness: str = PROPORTIONAL
    leasing: str = SUBLET
    max_deliveries: int = 0
    max_cancels: int = 0
    priority: str | None = None
    barrier: str | None = None
    is_file_backed: bool = False
    target_queue_depth: int | None = None
    deferred_ack_ms: int = DEFERRED_ACK_MS_DEFAULT
    initial_owner: str | None = None
    domain: str | None = None

    @property
    def is_at_most_once(self) -> bool:
        """Whether messages are removed as they are sent."""
        return self.semantics == AT_MOST_ONCE


def leased_settings(name: str, arguments: Mapping[str, object]) -> LeasedSettings:
    """The settings of the queue of that name. `arguments`: those of queue.declare in plain Python; others are ignored.

    Raises: LeasedFault, the first one.
    """
    settings, faults = read_leased(name, arguments)
    if faults:
        raise faults[0]
    return settings


def read_leased(name: str, arguments: Mapping[str, object]) -> tuple[LeasedSettings, list[LeasedFault]]:
    """The same with all faults at once, for loaders; what is at fault has its default."""
    faults: list[LeasedFault] = []
    if not 0 < len(name.encode("utf-8", "replace")) <= 255:
        faults.append(LeasedFault("E-NAME", "name"))
    given: dict[str, object] = {}
    for argument, value in arguments.items():
        element = BY_ARGUMENT.get(argument)
        if element is None:
            continue
        try:
            given[element.attribute] = element.read(value)
        except BadValue as error:
            code = "E-MTYPE" if argument == "x-message-type" else error.code
            faults.append(LeasedFault(code, argument, str(error)))
    _check_topics(name, given, faults)
    _check_expressions(given, faults)
    _check_together(given, faults)
    underlying = given.setdefault("underlying_topic", name)
    given.setdefault("default_publish_target", underlying)
    if given.get("semantics") == AT_MOST_ONCE:
        given.setdefault("fairness", ROUND_ROBIN)
    return LeasedSettings(name, **given), faults  # type: ignore[arg-type]


def _check_topics(name: str, given: dict[str, object], faults: list[LeasedFault]) -> None:
    topic = str(given.get("underlying_topic", name))
    target = given.get("default_publish_target")
    from ...expressions.patterns.pattern_syntax import PatternFault  # 5 ms that others need not wait

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
        from ...expressions.language import AMPS, ExpressionError, compiled  # 20 ms that others need not wait

        try:
            compiled(str(expression), AMPS)  # refuses functions that are another value each time, too
        except ExpressionError as error:
            faults.append(LeasedFault("E-EXPR", argument, str(error)))


def _check_together(given: dict[str, object], faults: list[LeasedFault]) -> None:
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


def leased_warnings(settings: LeasedSettings) -> list[str]:
    """What deserves a word though it is accepted: W-FBM-TQD, W-OWNER (queues page A.3.2); W-LOCAL is ours."""
    warnings: list[str] = []
    if settings.replication != LOCAL:
        warnings.append(
            f"W-LOCAL: its replication is {settings.replication}: without a cluster it acts as a LocalQueue"
        )
    if settings.is_file_backed and settings.target_queue_depth is not None:
        warnings.append("W-FBM-TQD: TargetQueueDepth beside FileBackedMetadata")
    if settings.initial_owner is not None:
        warnings.append("W-OWNER: nobody checks that the InitialOwner exists and can be reached")
    return warnings
