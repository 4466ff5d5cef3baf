"""Kinds of queues that only short worlds have, beside those of `queue_kinds`.

Where a feature says `apart`, the queue has an order of its own, which another book knows, and no exchange leads there.
"""

from __future__ import annotations

from random import Random

from .parts import QueuePlan
from .queue_kinds import Kind, Settings, _dead_letters, _number, _text

#: The header that the first message of a group has for its consumer, where a queue has such a header.
FIRST = "first"


def _selected(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """Some of its consumers have selectors."""
    queue.features["texts"] = True


def _later(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """Its publishers say when some of the messages are due."""
    queue.features |= {"apart": True, "unordered": True, "delays": [40, 300, 1500]}
    if chance.random() < 0.4:
        ttl_ms = chance.choice((100, 1000))
        queue.arguments["x-message-ttl"] = _number(ttl_ms)
        queue.features["ttl_ms"] = ttl_ms


def _grouped(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """Messages of a group go to one consumer."""
    queue.features |= {"apart": True, "unordered": True, "groups": chance.choice((2, 5))}
    if chance.random() < 0.3:
        queue.arguments["x-group-buckets"] = _number(2)
        queue.features["buckets"] = 2
    elif chance.random() < 0.4:
        queue.arguments["x-group-first-key"] = _text(FIRST)
        queue.features["first_key"] = True
    if chance.random() < 0.3:
        queue.arguments["x-group-rebalance"] = ("t", True)
        queue.arguments["x-group-rebalance-pause-dispatch"] = ("t", chance.random() < 0.5)
        queue.features["rebalances"] = True


def _heavy(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """With a limit of octets."""
    octets = chance.choice((20, 300, 5000))
    queue.arguments["x-max-length-bytes"] = _number(octets)
    queue.features["max_octets"] = octets
    if chance.random() < 0.5:
        _dead_letters(queue, other)


def _remembering(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """Its publishers give each message an id, some of them twice."""
    size = chance.choice((2, 10, 1000))
    settings.add(queue.name, id_cache_size=size)
    queue.features |= {"apart": True, "ids": size}


def _overdue(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """Its consumers have to settle in time, and some of them doze."""
    timeout_ms = chance.choice((100, 400))
    queue.arguments["x-consumer-timeout"] = _number(timeout_ms)
    queue.features["timeout_ms"] = timeout_ms


#: As `queue_kinds.QUEUE_KINDS`.
MORE_KINDS: dict[str, tuple[int, Kind]] = {
    "selected": (2, _selected),
    "later": (2, _later),
    "grouped": (2, _grouped),
    "heavy": (2, _heavy),
    "remembering": (2, _remembering),
    "overdue": (2, _overdue),
}
