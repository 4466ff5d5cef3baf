"""A client that asks for each message: basic.get, and then acknowledges, gives back, or rejects it."""

from __future__ import annotations

from typing import Any

from leveret.interop.wire.raw_codec import Method

from ..ledger import Broken
from .client import Client
from .worker import Worker

#: It has at most so many that are not settled.
PARKED_MAX = 20


class Getter(Worker):
    """`options`: as of a worker."""

    def __init__(self, client: Client, number: int, options: dict[str, Any], seed: int) -> None:
        super().__init__(client, number, options, seed)
        self.drains = ()
        self._is_ready = False

    def _limit(self, _: Method) -> None:
        self._is_ready = True

    def lost(self) -> None:
        super().lost()
        self._is_ready = False

    def act(self) -> None:
        if not self._is_ready or self.client.waiting:
            return
        if self._held and (len(self._held) >= PARKED_MAX or self.chance.random() < 0.4):
            self._act_on_held()
            return
        for _ in range(self.chance.randint(1, 4)):
            self.ask("basic.get", "basic.get-ok|basic.get-empty", self._got, queue=self._called, no_ack=self.no_ack)

    def _got(self, method: Method) -> None:
        self.world.knowledge.happened[method.name] += 1
        if method.name == "basic.get-ok":
            self.world.knowledge.deliveries += 1
            counted = self.world.books.deliveries.left_behind(self.client.product, self.number, method["delivery_tag"])
            is_giving_up = self.world.host is not None and self.world.host.is_giving_up
            if counted is not None and method["message_count"] != counted and not is_giving_up:
                raise Broken(f"{self.queue.name} says that it has {method['message_count']} left, there were {counted}")
            self._arrived(None, method["delivery_tag"], method["redelivered"], method["body"])
