"""The rules of a leased queue: its settings, with its expressions compiled. Frozen. Source: queues page A.3, A.5."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...settings.leases.leased_settings import BY_QUEUE, EARLIEST, LATEST, LeasedSettings, read_leased, selects
from ..messages.field_table import FieldTable
from ..queues.parts import RulesRequest
from ..rules.arguments import plain_arguments
from ..rules.queue_rules import NO_RULES, QueueRules, changed_rules, effective_arguments

if TYPE_CHECKING:
    from ...expressions.language import Expression


@dataclass(slots=True, frozen=True)
class LeasedRules:
    """The settings of a leased queue, and its compiled expressions.

    `filter`: selects the messages to capture. `priority`: gives a message its rank when it arrives. `barrier`: selects
    barriers.
    """

    settings: LeasedSettings
    filter: "Expression | None"
    priority: "Expression | None"
    barrier: "Expression | None"

    @property
    def is_ranked(self) -> bool:
        """Whether messages have ranks or may be barriers. Such a queue has all its messages in memory."""
        return self.priority is not None or self.barrier is not None

    def selects(self, topic: str) -> bool:
        """Whether the queue captures messages of this topic, before its filter is applied."""
        return selects(self.settings.underlying_topic)(topic)

    def lifetime_ms(self, message_ms: int | None) -> int | None:
        """The time to live of a message in the queue, in ms; None: no limit. `message_ms`: the message's expiration."""
        queue_ms, model = self.settings.expiration_ms, self.settings.expiration_model
        if model == BY_QUEUE or message_ms is None:
            return queue_ms
        if model == LATEST:
            return None if queue_ms is None else max(message_ms, queue_ms)
        if model == EARLIEST and queue_ms is not None:
            return min(message_ms, queue_ms)
        return message_ms


def make_rules(request: RulesRequest) -> QueueRules:
    """The rules of a leased queue: leases, dead-letter targets, expiry of the unused queue, size limits."""
    before = None if request.before is None else rules_in(request.before)
    extra = leased_rules(request.name, request.arguments, request.layer.arguments, before)
    effective = effective_arguments(request.arguments, request.layer)
    live = changed_rules(NO_RULES, effective, request.settings, None)
    return QueueRules(
        extra=extra,
        expires_ms=live.expires_ms,
        dead_letter_exchange=live.dead_letter_exchange,
        dead_letter_routing_key=live.dead_letter_routing_key,
        dead_letter_address=live.dead_letter_address,
        dead_letter_resources=live.dead_letter_resources,
        makes_missing_queues=live.makes_missing_queues,
        expiry_address=live.expiry_address,
        expiry_resources=live.expiry_resources,
        size=live.size,
        flow=live.flow,
    )


def rules_in(rules: QueueRules) -> LeasedRules:
    """The part of a leased queue's rules that other queues lack."""
    assert isinstance(rules.extra, LeasedRules)
    return rules.extra


def leased_rules(
    name: str, arguments: FieldTable, given: Mapping[str, object], known: LeasedRules | None = None
) -> LeasedRules:
    """The rules of the leased queue `name`; `known` itself if they are equal. The arguments are already checked.

    `given`: arguments of its policy. They override declared ones; those that make the whole invalid are ignored.
    Raises: LeasedFault.
    """
    declared, given = plain_arguments(arguments), dict(given)
    while True:
        settings, faults = read_leased(name, {**declared, **given})
        wrong = [fault.argument for fault in faults if given.pop(fault.argument, None) is not None]
        if not wrong:
            break
    if faults:
        raise faults[0]
    if known is not None and known.settings == settings:
        return known
    return LeasedRules(settings, _compiled(settings.filter), _compiled(settings.priority), _compiled(settings.barrier))


def _compiled(text: str | None) -> "Expression | None":
    if text is None:
        return None
    from ...expressions.language import AMPS, compiled  # loading takes 20 ms and 2 MiB

    return compiled(text, AMPS)
