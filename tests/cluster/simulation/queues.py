"""The queues of simulated worlds, by name, and what each of them promises."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class QueueKind:
    """`arguments`: see `Harness.queue`. `kept`: its messages stay. `is_agreed`: it delivers only what is agreed.

    `dead_letters`: the queue that rejected messages go to. `is_sited`: the nodes declare it (`sites.py`).
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    kept: bool = False
    is_agreed: bool = False
    is_sited: bool = False
    dead_letters: str = ""
    properties: dict[str, Any] = field(default_factory=dict)


#: Messages that a ring keeps: `ring` by its limit, `circle` as a ring queue of Artemis.
RING = 5
#: How late messages of the queue `later` come, in milliseconds.
LATE_MS = 1_500

KINDS: dict[str, QueueKind] = {
    "classic": QueueKind(),
    "quorum": QueueKind({"x_queue_type": "quorum"}, is_agreed=True),
    "stream": QueueKind({"x_queue_type": "stream"}, is_agreed=True),
    "leased": QueueKind({"x_queue_type": "amps", "x_max_backlog_per_consumer": 100}, is_agreed=True),
    "later": QueueKind(),
    "ring": QueueKind({"x_max_length": RING}, kept=True),
    "circle": QueueKind({"x_ring_size": RING}, kept=True),
    "newest": QueueKind({"x_last_value_key": "key"}, kept=True),
    "work": QueueKind({"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}, dead_letters="dead"),
    "dead": QueueKind({"x_queue_type": "quorum"}, is_agreed=True),
    **{name: QueueKind({"x_queue_type": "amps"}, is_agreed=True, is_sited=True) for name in ("owned", "desk", "bills")},
}
#: Those to which clients publish in every world.
TARGETS = [name for name, kind in KINDS.items() if name != "dead" and not kind.is_sited]


def kind_of(queue: str) -> QueueKind:
    """The kind of a queue, whose name may be NAME@SCOPE."""
    return KINDS[queue.partition("@")[0]]
