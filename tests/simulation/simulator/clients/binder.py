"""A client that binds and unbinds the queues and exchanges of the world while others publish there."""

from __future__ import annotations

from typing import Any

from leveret.interop.wire.raw_codec import Method

from .channel import Channel, tagged
from .client import Client

#: Exchanges that each binder makes for itself, behind the world's, and takes away.
KINDS = ("direct", "fanout", "topic")
#: One that no client declares.
PREDEFINED = "amq.topic"
KEYS = ("a", "a.b", "a.*", "#", "*.d", "c.d", "")


class Binder(Channel):
    """One thing at a time. What it has bound it unbinds again, or leaves; bindings of the plan stay."""

    def __init__(self, client: Client, number: int, options: dict[str, Any], seed: int) -> None:
        super().__init__(client, number, options, seed)
        self._bound: list[dict[str, Any]] = []
        self._is_ready = False
        self._own = f"between-{client.number}-{number}"

    def opened(self) -> None:
        plan = self.world.plan
        self._queues = [queue for queue in plan.queues if "sited" not in queue.features]  # its site may not see those
        for queue in self._queues:
            self.declare(queue, _nothing)
        for exchange in plan.exchanges:
            self.declare_exchange(exchange, _nothing)
        self._make_own(self._begin)

    def _make_own(self, then: Any) -> None:
        kind = KINDS[self.client.number % len(KINDS)]
        self.ask("exchange.declare", "exchange.declare-ok", then, exchange=self._own, type=kind, durable=True)

    def _begin(self, _: Method) -> None:
        self._is_ready = True

    def lost(self) -> None:
        self._is_ready = False

    def act(self) -> None:
        if not self._is_ready or self.client.waiting:
            return
        chance = self.chance
        luck = chance.random()
        self.world.knowledge.happened["bindings changed"] += 1
        if self._bound and luck < 0.45:
            self._unbind(self._bound.pop(chance.randrange(len(self._bound))))
        elif luck < 0.97:
            self._bind()
        else:
            self._bound = [one for one in self._bound if self._own not in one.values()]
            self.ask("exchange.delete", "exchange.delete-ok", lambda _: None, exchange=self._own)
            self._make_own(_nothing)

    def _bind(self) -> None:
        chance, plan = self.chance, self.world.plan
        key = chance.choice(KEYS)
        exchanges = [exchange.name for exchange in plan.exchanges]
        source, destination = chance.sample([*exchanges, self._own, PREDEFINED], 2)
        arguments: dict[str, Any] = {}
        if source.startswith("headers"):
            arguments = {"x-match": ("S", "all"), "of": ("S", chance.choice("abc"))}
        if chance.random() < 0.6:
            queue = chance.choice(self._queues).name
            entry = {"queue": queue, "exchange": source, "routing_key": key, "arguments": arguments}
        else:
            entry = {"destination": destination, "source": source, "routing_key": key, "arguments": arguments}
        self._bound.append(entry)
        what = "queue" if "queue" in entry else "exchange"
        self.ask(f"{what}.bind", f"{what}.bind-ok", _nothing, **_told(entry))

    def _unbind(self, entry: dict[str, Any]) -> None:
        what = "queue" if "queue" in entry else "exchange"
        self.ask(f"{what}.unbind", f"{what}.unbind-ok", _nothing, **_told(entry))


def _told(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "arguments": tagged(entry["arguments"])}


def _nothing(_: Method) -> None:
    """Any answer will do."""
