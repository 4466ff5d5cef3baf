"""A client that asks how many messages are in a queue, as tools do, and compares with the books where nothing moves."""

from __future__ import annotations

from leveret.interop.wire.raw_codec import Method

from ..ledger import Broken
from .channel import Channel


class Inspector(Channel):
    """By passive declarations."""

    def act(self) -> None:
        if self.client.waiting:
            return
        queue = self.chance.choice(self.world.plan.queues)
        if queue.durable and "sited" not in queue.features:  # others are gone after a restart, or not of its site
            self.declare(queue, lambda _: self._inspect(queue.name))

    def _inspect(self, name: str) -> None:
        asked = self.world.books.events
        self.ask("queue.declare", "queue.declare-ok", lambda it: self._told(it, asked), queue=name, passive=True)

    def _told(self, method: Method, asked: int) -> None:
        if asked != self.world.books.events:
            return
        name = method["queue"]
        place = self.world.books.whereabouts.places[self.client.vhost, name]
        self.world.knowledge.happened["inspection"] += 1
        if place.features.get("stream"):
            return
        if method["message_count"] != len(place.ready):
            raise Broken(f"{name} says that it has {method['message_count']} ready, there are {len(place.ready)}")
        if method["consumer_count"] != len(place.queue.consumers):
            raise Broken(f"{name} says that it has {method['consumer_count']} consumers")
