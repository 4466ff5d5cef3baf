"""What explorers declare and use (`clients/explorer.py`), of a seed of its own: features for which no book has rules.

All of their objects have names that begin with `EXPLORED`. What holds of every queue holds of these, too: each message
is in one place, survives, and comes once; the engine's invariants; objects after a restart.
"""

from __future__ import annotations

from random import Random
from typing import Any

from .calm import BROKER
from .parts import ClientPlan, FaultPlan, Plan

EXPLORED = "e."
#: A leased queue, which captures a topic. A consumer of it may be replaced by one with the same tag.
LEASED = f"{EXPLORED}leased"
#: Of those that the configuration makes; it may be another one when the broker starts again.
CONFIGURED = "e.c."
#: What operators do to it.
FAULT = "operator changes what is explored"
#: How many short worlds have explorers.
SHARE = 0.4
#: In a configuration it comes before what a reload replaces.
MARK = "# explored\n"

#: Arguments of queues, by the end of their names. What one name means never changes.
QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "other": {},
    "ranked": {"x-max-priority": ("I", 3)},
    "short": {"x-message-ttl": ("I", 200), "x-dead-letter-exchange": ("S", "e.all")},
    "unused": {"x-expires": ("I", 300)},
    "quorum": {"x-queue-type": ("S", "quorum"), "x-delivery-limit": ("I", 2), "x-dead-letter-exchange": ("S", "e.all")},
    "single": {"x-single-active-consumer": ("t", True)},
    "shared-a": {"x-address": ("S", "e.shared")},
    "shared-b": {"x-address": ("S", "e.shared")},
    "chosen": {"x-selector": ("S", "of = 'a'")},
    "few": {"x-max-consumers": ("I", 1)},
    "passing": {"x-purge-on-no-consumers": ("t", True)},
    "pair": {"x-consumers-before-dispatch": ("I", 2), "x-delay-before-dispatch": ("l", 150)},
    "slow": {"x-consumer-timeout": ("I", 200)},
    "retried": {"x-redelivery-delay": ("l", 30), "x-max-delivery-attempts": ("l", 3)},
    "expiring": {"x-message-ttl": ("I", 100), "x-expiry-address": ("S", "exchange:e.topic/a.b")},
    "listener": {},  # transient
    "leased": {"x-queue-type": ("S", "amps"), "x-underlying-topic": ("S", "e.all")},
}  # fmt: skip
#: Types and arguments of exchanges. `e.shared` makes queues of that address multicast.
EXCHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "direct": ("direct", {}),
    "all": ("fanout", {}),
    "topic": ("topic", {}),
    "headers": ("headers", {}),
    "shared": ("fanout", {}),
    "else": ("direct", {"alternate-exchange": ("S", "e.all")}),
    "late": ("x-delayed-message", {"x-delayed-type": ("S", "topic")}),
    "hash": ("x-consistent-hash", {}),
    "random": ("x-random", {}),
    "inner": ("topic", {}),  # internal
}
#: Exchanges that an operator's policy may give an alternate exchange, and which one.
PASSING_ON, ALTERNATES = "^e\\.(direct|topic|headers|hash)$", ("e.all", "e.shared", "e.random")
KEYS = ("a", "b", "a.b", "b.a", "a.b.c")
PATTERNS = (*KEYS, "*", "a.*", "*.b", "#", "a.#", "#.b", "*.b.*", "#.a.#", "")
#: Settings of their addresses, one or two of which the configuration has.
SETTINGS: tuple[str, ...] = (
    'auto-create-queues = true\nauto-delete-queues-delay = "100ms"',
    'auto-delete-created-queues = true\nauto-delete-queues-delay = "200ms"',
    'redelivery-delay = "20ms"\nredelivery-delay-multiplier = 2.0',
    'abort-slow-consumer-after = "200ms"\nabort-slow-consumer-check-period = "100ms"',
    'slow-consumer-threshold = 1000\nslow-consumer-check-period = 1\nslow-consumer-policy = "KILL"',
    "enable-ingress-timestamp = true",
    "expiry-delay = 150\nexpiry-address = 'exchange:e.topic/b.a'",
    "max-delivery-attempts = 2\ndead-letter-address = 'exchange:e.direct/a'",
    "default-max-consumers = 2",
    "pending-message-limit-prefetch-rate = 0.5",
    'pending-message-limit = 3\nmessage-eviction = "lowest-priority"',
    'max-size-messages = 10\naddress-full-policy = "FAIL"',
    'max-size-bytes = 2000\naddress-full-policy = "DROP"',
)
#: A channel of an explorer has at most so many consumers; in some worlds the broker allows no more.
CONSUMERS_MAX = 4
#: Limits of the whole broker, and how many messages reach them.
WHOLE_LIMITS = {"global-max-size = 0": 1, "global-max-messages = 20": 20}


def add_explorers(plan: Plan) -> None:
    """Give a plan explorers, or leave it as it is."""
    chance = Random(f"explored {plan.seed}")
    if chance.random() >= SHARE:
        return
    if chance.random() < 0.5:
        limit = f"[limits]\nconsumers-per-channel = {CONSUMERS_MAX}\n"
        plan.configuration = plan.configuration.replace("[limits]\n", limit)
    if chance.random() < 0.2 and "address-full-policy" not in plan.configuration:
        _limit_all(plan, chance)
    plan.configuration = f"{plan.configuration}{MARK}{explored_lines(chance)}"
    for _ in range(chance.choice((1, 2, 2, 3))):
        options = {
            "queues": chance.sample(list(QUEUES), chance.choice((2, 4, 7))),
            "exchanges": chance.sample(list(EXCHANGES), chance.choice((1, 3, 5))),
            "confirms": chance.random() < 0.5,
            "keeps": chance.random() < 0.5,
        }
        plan.clients.append(ClientPlan("explorer", len(plan.clients) + 1, chance.getrandbits(32), options))
    at_s = 0.0
    while chance.random() < 0.9 and (at_s := at_s + chance.expovariate(2)) < plan.seconds:
        plan.faults.append(FaultPlan(at_s, FAULT, chance.getrandbits(32)))
    plan.faults.sort(key=lambda fault: fault.at_s)


def _limit_all(plan: Plan, chance: Random) -> None:
    """A limit of all addresses together, at which those of explorers refuse messages. The others page out."""
    if BROKER not in plan.configuration:
        plan.configuration += BROKER
    plan.configuration = plan.configuration.replace(BROKER, f"{BROKER}{chance.choice(tuple(WHOLE_LIMITS))}\n")
    policy = chance.choice(("FAIL", "DROP"))
    plan.configuration += f'[[address-setting]]\nmatch = "{EXPLORED}*"\naddress-full-policy = "{policy}"\n'


def whole_limit(configuration: str) -> int | None:
    """How many messages reach the limit of all addresses together; None: there is none."""
    return next((count for line, count in WHOLE_LIMITS.items() if line in configuration), None)


def explored_lines(chance: Random) -> str:
    """Settings, diverts and queues of the configuration."""
    lines: list[str] = []
    matches = [f"{EXPLORED}#"] * 4 + [f"{EXPLORED}{name}" for name in QUEUES]
    for match in dict.fromkeys(chance.sample(matches, chance.choice((0, 1, 2)))):
        lines += ["[[address-setting]]", f'match = "{match}"', chance.choice(SETTINGS)]
    for number in range(chance.choice((0, 1, 2))):
        address = chance.choice(("e.direct", "e.topic", "e.plain", "e.shared", "e.all"))
        target = chance.choice(("queue:e.other", "exchange:e.topic/b", "queue:e.ranked"))
        lines += ["[[divert]]", f'name = "d{number}"', f'address = "{address}"', f'forwarding-address = "{target}"']
        if chance.random() < 0.5:
            lines.append("exclusive = true")
        if chance.random() < 0.3:
            lines.append("filter = \"of = 'a'\"")
    if chance.random() < 0.6:
        lines += ["[[address]]", f'name = "{CONFIGURED}place"']
        for number in range(1, chance.choice((2, 3, 4))):
            lines += ["[[address.queue]]", f'name = "{CONFIGURED}{number}"']
            lines.append(f'routing-type = "{chance.choice(("anycast", "anycast", "multicast"))}"')
            lines.append(f"enabled = {str(chance.random() < 0.7).lower()}")
            if chance.random() < 0.3:
                lines.append("filter = \"of = 'a'\"")
    return "\n".join((*lines, ""))
