"""The rules of a leased queue: its settings, with its expressions compiled. Frozen. Source: queues page A.3, A.5."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...settings.leases import BY_QUEUE, EARLIEST, LATEST, LeasedSettings, read_leased, selects
from ..messages.field_table import FieldTable
from .arguments import plain_arguments

if TYPE_CHECKING:
    from ...expressions.language import Expression


@dataclass(slots=True, frozen=True)
class LeasedRules:
    """`filter`: only messages that it takes are captured. `priority`, `barrier`: asked once, as a message arrives."""

    settings: LeasedSettings
    filter: "Expression | None"
    priority: "Expression | None"
    barrier: "Expression | None"

    def selects(self, topic: str) -> bool:
        """Whether messages of a topic are captured, as far as its name goes."""
        return selects(self.settings.underlying_topic)(topic)

    def lifetime_ms(self, message_ms: int | None) -> int | None:
        """How long a message may be in the queue; None: for ever. `message_ms`: by its own expiration, if it has one.

        Source: queues page A.5.
        """
        queue_ms, model = self.settings.expiration_ms, self.settings.expiration_model
        if model == BY_QUEUE or message_ms is None:
            return queue_ms
        if model == LATEST:
            return None if queue_ms is None else max(message_ms, queue_ms)
        if model == EARLIEST and queue_ms is not None:
            return min(message_ms, queue_ms)
        return message_ms


def leased_rules(
    name: str, arguments: FieldTable, given: Mapping[str, object], known: LeasedRules | None = None
) -> LeasedRules:
    """Those of the leased queue of that name; `known` itself if it has them. Its arguments were checked.

    `given`: what its policy gives in addition or makes smaller; what contradicts the declaration is passed over.
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
    from ...expressions.language import AMPS, compiled  # 20 ms, and 2 MiB, that others need not have

    return compiled(text, AMPS)
