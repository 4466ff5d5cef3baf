"""What kinds of queues a world may have. `features` is what the oracle has to know of one, said once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from .parts import QueuePlan

Kind = Callable[[Random, QueuePlan, "Settings", str], None]


class Settings:
    """Address settings of a world, as TOML. A queue's come from its arguments or from here."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, object]] = {}

    def add(self, queue: str, **values: object) -> None:
        """For one queue. Keys have `_` for `-`."""
        self._entries.setdefault(queue, {}).update(values)

    def __str__(self) -> str:
        lines = []
        for queue, values in self._entries.items():
            lines += ["[[address-setting]]", f'match = "{queue}"']
            lines += [f"{key.replace('_', '-')} = {_toml(value)}" for key, value in values.items()]
        return "\n".join((*lines, ""))


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def _number(value: int) -> tuple[str, int]:
    return "I", value


def _text(value: str) -> tuple[str, str]:
    return "S", value


def _plain(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """Nothing is special about it."""


def _volatile(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    queue.durable = False


def _ring(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    size = chance.choice((1, 3, 20, 200))
    if chance.random() < 0.5:
        queue.arguments["x-ring-size"] = _number(size)
    else:
        settings.add(queue.name, default_ring_size=size)
    queue.features["ring_size"] = size


def _bounded(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    size = chance.choice((1, 10, 100))
    queue.arguments["x-max-length"] = _number(size)
    queue.features["max_length"] = size
    if chance.random() < 0.5:
        _dead_letters(queue, other)


def _refusing(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    size = chance.choice((5, 50))
    queue.arguments |= {"x-max-length": _number(size), "x-overflow": _text("reject-publish")}
    queue.features |= {"refuses_at": size}


def _expiring(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    ttl_ms = chance.choice((0, 100, 1000, 5000))
    queue.arguments["x-message-ttl"] = _number(ttl_ms)
    queue.features["ttl_ms"] = ttl_ms
    if chance.random() < 0.5:
        _dead_letters(queue, other)


def _impatient(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """Messages say themselves how long they live."""
    queue.features["expirations"] = ["100", "1000", "5000"]
    if chance.random() < 0.5:
        _dead_letters(queue, other)


def _priorities(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    highest = chance.choice((1, 5, 10))
    queue.arguments["x-max-priority"] = _number(highest)
    queue.features["priority_max"] = highest


def _rejecting(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """What is rejected becomes a dead letter, as is what was tried too often."""
    queue.features["rejects"] = True
    if chance.random() < 0.5:
        _dead_letters(queue, other)
        return
    attempts = chance.choice((1, 2, 5))
    settings.add(queue.name, max_delivery_attempts=attempts, dead_letter_address=other)
    queue.features |= {"attempts_max": attempts, "dead_letter_address": other}


def _delayed(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    delay_ms, multiplier = chance.choice((10, 200, 1000)), chance.choice((1.0, 1.5, 3.0))
    highest_ms = chance.choice((None, 4000))
    attempts = chance.choice((0, 3, 6))
    more: dict[str, Any] = {} if highest_ms is None else {"max_redelivery_delay": highest_ms}
    settings.add(
        queue.name,
        redelivery_delay=delay_ms,
        redelivery_delay_multiplier=multiplier,
        max_delivery_attempts=attempts,
        dead_letter_address=other,
        **more,
    )
    queue.features |= {
        "delay_ms": delay_ms,
        "delay_multiplier": multiplier,
        "delay_max_ms": 10 * delay_ms if highest_ms is None else highest_ms,
        "attempts_max": attempts,
        "dead_letter_address": other,
        "rejects": True,
    }


def _last_value(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    settings.add(queue.name, default_last_value_key="key")
    queue.features["last_value_keys"] = chance.choice((2, 20))
    if chance.random() < 0.4:
        attempts = chance.choice((2, 5))
        settings.add(queue.name, max_delivery_attempts=attempts, dead_letter_address=other)
        queue.features |= {"attempts_max": attempts, "dead_letter_address": other}


def _non_destructive(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    settings.add(queue.name, default_non_destructive=True)
    queue.features["keeps"] = True
    if chance.random() < 0.5:
        _ring(chance, queue, settings, other)
    else:
        queue.arguments["x-message-ttl"] = _number(2000)
        queue.features["ttl_ms"] = 2000


def _stream(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    queue.arguments |= {
        "x-queue-type": _text("stream"),
        "x-max-length-bytes": _number(chance.choice((10_000, 200_000))),
    }
    queue.features |= {"keeps": True, "stream": True, "stores_all": True}


def _single_active(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    queue.arguments["x-single-active-consumer"] = ("t", True)
    queue.features["single_active"] = True
    if chance.random() < 0.5:
        queue.arguments["x-queue-type"] = _text("quorum")
        queue.features |= {"stores_all": True, "quorum": True}


def _quorum(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    queue.arguments["x-queue-type"] = _text("quorum")
    queue.features |= {"stores_all": True, "quorum": True}
    if chance.random() < 0.5:
        limit = chance.choice((1, 4))
        queue.arguments["x-delivery-limit"] = _number(limit)
        queue.features["attempts_max"] = limit + 1
        if queue.name != other:
            _dead_letters(queue, other)


def _dead_letters(queue: QueuePlan, other: str) -> None:
    queue.arguments |= {"x-dead-letter-exchange": _text(""), "x-dead-letter-routing-key": _text(other)}
    queue.features |= {"dead_letter_exchange": "", "dead_letter_to": other}


#: Each kind with how often it comes beside the others. All durable but for the transient.
QUEUE_KINDS: dict[str, tuple[int, Kind]] = {
    "plain": (6, _plain),
    "volatile": (1, _volatile),
    "ring": (2, _ring),
    "bounded": (2, _bounded),
    "refusing": (1, _refusing),
    "expiring": (2, _expiring),
    "impatient": (1, _impatient),
    "priorities": (2, _priorities),
    "rejecting": (3, _rejecting),
    "delayed": (3, _delayed),
    "last-value": (1, _last_value),
    "non-destructive": (1, _non_destructive),
    "stream": (1, _stream),
    "single-active": (1, _single_active),
    "quorum": (2, _quorum),
}


def make_queue(
    chance: Random,
    number: int,
    settings: Settings,
    other: str,
    *,
    kind: str | None = None,
    name: str | None = None,
    kinds: Mapping[str, tuple[int, Kind]] = QUEUE_KINDS,
) -> QueuePlan:
    """A queue of some kind. `other`: where its dead letters go, if any."""
    if kind is None:
        kind = chance.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
    queue = QueuePlan(name or f"{kind}-{number}")
    queue.features["kind"] = kind
    kinds[kind][1](chance, queue, settings, other)
    return queue
