"""The parts of a plan, as data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

#: Of clients in long worlds.
NORMAL_PACE = 20.0
#: In a configuration: each delivery counts as an attempt, also after a kill.
COUNTS_DELIVERIES = "persist-delivery-count-before-delivery = true\n"


@dataclass(slots=True)
class QueuePlan:
    """A queue that clients declare. `arguments`: as (tag, value); `features`: what the oracle has to know of it."""

    name: str
    durable: bool = True
    arguments: dict[str, Any] = field(default_factory=dict)
    features: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ExchangePlan:
    """An exchange that clients declare. `bindings`: (destination, is it a queue, routing key, arguments) each."""

    name: str
    kind: str
    arguments: dict[str, Any] = field(default_factory=dict)
    bindings: list[list[Any]] = field(default_factory=list)


@dataclass(slots=True)
class ClientPlan:
    """A client: its kind (`clients.KINDS`), its number, and what its kind wants to know.

    Of the kind "several", its options name one kind and its options for each channel: {"channels": [[kind, options]]}.
    """

    kind: str
    number: int
    seed: int
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class FaultPlan:
    """Something that happens to the world: its kind (`faults.FAULTS`), and when."""

    at_s: float
    kind: str
    seed: int


@dataclass(slots=True)
class Plan:
    """`seconds`: virtual, before everything comes to rest. `planted`: a fault of the broker (`planted.PLANTED`).

    Of one that is kept as a regression, `found` says what broke, and `meets` what has to happen in it (`coverage`).
    """

    seed: int
    seconds: float
    configuration: str
    queues: list[QueuePlan] = field(default_factory=list)
    clients: list[ClientPlan] = field(default_factory=list)
    faults: list[FaultPlan] = field(default_factory=list)
    planted: str | None = None
    past: str = ""  # a journal of an earlier release (`past`), which the first broker finds
    calms: list[list[float]] = field(default_factory=list)  # from when to when nobody begins anything
    found: str = ""
    meets: list[str] = field(default_factory=list)
    exchanges: list[ExchangePlan] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)  # when everything rests, is looked at, and goes on
    limits: dict[str, int] = field(default_factory=dict)  # constants of the broker that are others in it (`swarm`)
    read_every: float = 0  # seconds, on average, between two reads of somebody who reads the journal; 0: nobody does
    sites: dict[str, str] = field(default_factory=dict)  # of clients, with the group of each; none in most worlds
    pace: float = NORMAL_PACE  # how often a second each client acts, on average; it connects again as much sooner
    rehearsed: float = 0  # the part of its turns after which a restart is rehearsed
    punctual: bool = False  # clients come when the first broker listens; else they try again later
    checked: float = 1.0  # the part of its turns after which the engine's invariants are looked at

    def queue(self, name: str) -> QueuePlan:
        """By its name."""
        return next(queue for queue in self.queues if queue.name == name)

    def exchange(self, name: str) -> ExchangePlan:
        """By its name."""
        return next(exchange for exchange in self.exchanges if exchange.name == name)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """What `to_json` wrote."""
        values = json.loads(text)
        values["queues"] = [QueuePlan(**one) for one in values["queues"]]
        values["clients"] = [ClientPlan(**one) for one in values["clients"]]
        values["faults"] = [FaultPlan(**one) for one in values["faults"]]
        values["exchanges"] = [ExchangePlan(**one) for one in values.get("exchanges", ())]
        return cls(**values)


def behind(plan: Plan, name: str) -> set[str]:
    """The queues that an exchange may reach."""
    exchange = plan.exchange(name)
    found: set[str] = set()
    for destination, is_queue, _, _ in exchange.bindings:
        found |= {destination} if is_queue else behind(plan, destination)
    other = exchange.arguments.get("alternate-exchange")
    return found if other is None else found | behind(plan, other[1])
