"""A consumer of a leased queue: it settles late, whoever has the message then, and discards what it does not hold."""

from __future__ import annotations

from typing import Any

from leveret.interop.wire.raw_codec import Method

from ..books.leases import Subscription
from ..lease_kinds import FILTERS
from ..ledger import Broken
from ..selectors import arguments_of
from .client import BUSY
from .wire import content, properties, publish_method, settle
from .worker import ACK, NACK, REJECT, REQUEUE, Worker

CONTROL, REQUEST = "amps.control", "sow_delete"
#: Bookmarks of this broker begin with it.
ORIGIN = 1


class Borrower(Worker):
    """`options`: as of a worker, and filter; renews: its leases are renewed. What it holds are tags, also those whose
    leases have ended.
    """

    @property
    def _rules(self) -> dict[str, Any]:
        rules: dict[str, Any] = self.queue.features["leased"]
        return rules

    def _limit(self, _: Method) -> None:
        self._prefetch = self.chance.choice((1, 5, 50, 0))
        self.ask("basic.qos", "basic.qos-ok", self._consume, prefetch_count=self._prefetch)

    def _consume(self, _: Method) -> None:
        self._consumers += 1
        tag = f"borrower-{self.client.number}-{self._consumers}"
        filter_ = self.options.get("filter", "")
        limit = self._rules["backlog"]
        leases = self.world.books.leases
        holder = (self.client.product, self.number, tag)
        renews = "renews" in self.options
        leases.subscribed(holder, Subscription(filter_, min(limit, self._prefetch or limit), self.no_ack, renews))
        self.ask(
            "basic.consume", "basic.consume-ok", self._consuming,
            queue=self._called, consumer_tag=tag, no_ack=self.no_ack,
            arguments=arguments_of(filter_) | ({"x-lease-auto-renew": ("t", True)} if renews else {}),
        )  # fmt: skip
        self._expects = tag

    def _arrived(self, consumer: str | None, tag: int, redelivered: bool, body: bytes) -> None:
        super()._arrived(consumer, tag, redelivered, body)
        rules = self._rules
        may_end = bool({"lease_ms", "by_policy"} & rules.keys())
        has_slots = rules.get("semantics") == "at-most-once" and not may_end and self._consumers == 1
        if has_slots and len(self._held) > rules["backlog"]:
            raise Broken(f"{self.queue.name}: {self._consumer} has {len(self._held)} of {rules['backlog']}")
        if self.client.mood is not BUSY and may_end:
            self.finish()  # or else the message would come again and again while everybody waits

    def credit(self) -> str | None:
        """The book of leases knows it."""
        return None

    def act(self) -> None:
        if self._consumer is not None and self.chance.random() < 0.01:
            self._discard()
        super().act()

    def _settlement(self, tag: int) -> bytes:
        """Some are rejected for good, wherever they go."""
        what = self.chance.random()
        name, id_ = self._held[tag]
        if what < 0.75:
            return settle(ACK, self.number, tag, 0)
        if what < 0.92:
            return settle(NACK, self.number, tag, REQUEUE) if what < 0.85 else settle(REJECT, self.number, tag, 1)
        self.world.books.leases.rejects(name, id_)
        return settle(NACK if what < 0.96 else REJECT, self.number, tag, 0)

    def _discard(self) -> None:
        """What it holds, by bookmarks, or what a filter takes."""
        chance, books = self.chance, self.world.books
        name = self.client.vhost, self.queue.name
        options = "expire" if chance.random() < 0.3 else ""
        headers = {"queue": self._called, "options": options}
        if self._held and chance.random() < 0.7:
            ids = [id_ for _, id_ in chance.sample(list(self._held.values()), min(len(self._held), 3))]
            headers["bookmark"] = ",".join(f"{ORIGIN}|{id_}|" for id_ in ids)
            for id_ in ids:
                books.leases.acks(name, id_, "", 0)
                if options:
                    books.leases.rejects(name, id_)
        elif self._has_transactions:
            return  # it would wait for the commit, and the book forgets filters when everything is at rest
        else:
            headers["filter"], headers["options"] = FILTERS[1], ""
            books.leases.discards(name, FILTERS[1])
        self.world.knowledge.happened["discard"] += 1
        self.world.knowledge.operations += 1
        head = properties(persistent=False, headers=headers)
        self.send(
            publish_method(self.number, CONTROL, REQUEST) + content(self.number, head, b"", self.client.frame_max)
        )
