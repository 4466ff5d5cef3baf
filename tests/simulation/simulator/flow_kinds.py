"""What a world under flow control has: limits of queues, of the broker, and of what connections hold.

`features` of such a queue: `flow`, the keys of its settings that a reload may change, with their values; `may_refuse`:
a publish may be answered by a refusal of the frontend (queues page E.4, rows 5 to 8); `drops_full`, `fails_full`: what
the address does with a message when it is full.
"""

from __future__ import annotations

from random import Random
from typing import Any

from .parts import QueuePlan
from .queue_kinds import Kind, Settings, _number

#: Worlds that have any of this, and those among them with [system-usage].
SHARE, WITH_SYSTEM = 0.4, 0.4


def _add(queue: QueuePlan, settings: Settings, **values: Any) -> None:
    settings.add(queue.name, **values)
    limits = ("max_size_messages", "max_size_bytes", "memory_limit")
    queue.features["flow"] = {name.replace("_", "-"): values[name] for name in limits if name in values}


def _blocking(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    more: dict[str, Any] = {}
    if chance.random() < 0.5:
        more["max_size_messages"] = chance.choice((1, 5, 40))
    else:
        more["max_size_bytes"] = chance.choice((1, 3_000, 40_000))
        if chance.random() < 0.3:
            more["max_size_bytes_reject_threshold"] = more["max_size_bytes"] * 2
            queue.features["may_refuse"] = True
    _add(queue, settings, address_full_policy="BLOCK", **more)


def _in_memory(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """With a limit on what it has in memory, which holds; or spools, if its producers are not controlled."""
    more: dict[str, Any] = {"cursor": chance.choice(("vm", "vm", "store", "file"))}
    if chance.random() < 0.3:
        more["minimum_message_size"] = chance.choice((0, 100))
    if chance.random() < 0.25:
        more["producer_flow_control"] = False
    queue.durable = chance.random() < 0.7
    _add(queue, settings, memory_limit=chance.choice((1_000, 20_000, 100_000)), **more)


def _refused(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """Nobody is held, or not for long."""
    more: dict[str, Any] = {"cursor": "vm"}
    if chance.random() < 0.5:
        more["send_fail_if_no_space"] = True
    else:
        more["send_fail_if_no_space_after"] = chance.choice(("100ms", "2s"))
    queue.features["may_refuse"] = True
    _add(queue, settings, memory_limit=chance.choice((3_000, 20_000)), **more)


def _full(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """A message for which there is no room is refused, or dropped without a word."""
    policy = chance.choice(("FAIL", "DROP"))
    settings.add(queue.name, address_full_policy=policy, max_size_messages=chance.choice((3, 30)))
    queue.features["fails_full" if policy == "FAIL" else "drops_full"] = True


def _impatient(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """Its messages expire, also while they are held."""
    queue.features["expirations"] = ["50", "500", "5000"]
    _blocking(chance, queue, settings, other)


def _kept(chance: Random, queue: QueuePlan, settings: Settings, other: str) -> None:
    """It keeps its messages for a while; nobody is held, as nobody could make room."""
    queue.arguments["x-message-ttl"] = _number(1000)
    settings.add(
        queue.name,
        default_non_destructive=True,
        address_full_policy="DROP",
        max_size_bytes=chance.choice((5_000, 1_000_000)),
        max_delivery_attempts=1000,  # never reached: so that deliveries say how often a message came back
    )
    queue.features |= {"keeps": True, "ttl_ms": 1000, "drops_full": True}


#: As `queue_kinds.QUEUE_KINDS`.
FLOW_KINDS: dict[str, tuple[int, Kind]] = {
    "blocking": (4, _blocking),
    "in-memory": (3, _in_memory),
    "refused": (3, _refused),
    "full": (1, _full),
    "held-and-expiring": (1, _impatient),
    "kept-and-full": (2, _kept),
}


def limits_of_all(chance: Random, *, has_system: bool) -> str:
    """Tables of the configuration: what a connection may hold, and what the broker has for all."""
    lines = ["[flow]", f'hold-bytes = "{chance.choice(("2KiB", "16KiB", "1MiB"))}"']
    lines.append(f'hold-spool = "{chance.choice(("0B", "16KiB", "256KiB"))}"')
    if chance.random() < 0.3:
        lines.append(f'max-stall = "{chance.choice(("2s", "20s"))}"')
    if chance.random() < 0.3:
        lines.append(f"low-mark = {chance.choice((10, 50, 90))}")
    if has_system:
        lines += ["[system-usage]", f"memory = {chance.choice((20_000, 100_000, 1_000_000))}"]
        if chance.random() < 0.4:
            lines.append(f"store = {chance.choice((20_000, 200_000))}")
        if chance.random() < 0.4:
            lines.append(f"temp = {chance.choice((5_000, 100_000))}")
        luck = chance.random()
        if luck < 0.2:
            lines.append("send-fail-if-no-space = true")
        elif luck < 0.4:
            lines.append('send-fail-if-no-space-after = "1s"')
    return "\n".join(lines) + "\n"
