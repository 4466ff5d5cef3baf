"""Whose messages they are, in a world with sites: the book of the cluster's simulation, told of clients as they are."""

from __future__ import annotations

from collections import Counter
from typing import Any

from owners_book import OwnersBook, Past, SitedQueue

from leveret.engine import Broker

from ..ledger import KEY_SIZE
from ..loop import SimulatedClock
from ..plan import Plan
from .book import Book
from .leases import Leases
from .whereabouts import Whereabouts


class Owners(Book):
    """One book for each life of the broker; what was agreed is what was durable. Raises: AssertionError."""

    def __init__(
        self, plan: Plan, where: Whereabouts, leases: Leases, clock: SimulatedClock, happened: Counter[str]
    ) -> None:
        self._where = where
        self._clock = clock
        self._broker: Broker | None = None
        self._leases = leases
        self._happened = happened
        self._past: Past = {}
        self._book: OwnersBook | None = None
        self._lsns = 0, 0
        self._is_told = True  # the journal has all owners
        self._sites = {client.number: client.options.get("site") for client in plan.clients}
        self._queues = {queue.name: self._rules(queue.features) for queue in plan.queues if "sited" in queue.features}

    def _rules(self, features: dict[str, Any]) -> SitedQueue:
        sited, leased = features["sited"], features["leased"]
        return SitedQueue(
            sited["called"],
            frozenset(sited["hosts"]),
            sited["initial"],
            leased.get("backlog_total"),
            is_of_one_site=len(sited["hosts"]) == 1,
            is_at_most_once=leased.get("semantics") == "at-most-once",
            rank_of=self._leases.rank_of if "ranks" in features else None,
        )

    def attach(self, broker: Broker) -> None:
        if not self._queues:
            return
        clock, own = self._clock, broker.sites.own

        def site_of(id_: int, body: bytes) -> str:
            return self._sites.get(publisher_in(body)) or own

        self._count()
        book = OwnersBook(self._queues, clock.monotonic_ns, site_of, self._leases.takes, self._past, is_strict=False)
        book.attach(broker, lambda queue: self._where.places[queue.vhost_name, queue.name].ready)
        if self._is_told:
            book.served()
        self._broker, self._book, self._is_told = broker, book, True

    def _count(self) -> None:
        """Add what the last book counted."""
        if self._book is not None:
            self._happened.update(self._book.counted)
            self._book.counted.clear()

    def recorded(self, lsn: int, durable_lsn: int, *, takes_nothing: bool) -> None:
        """As of all books."""
        self._lsns = lsn, durable_lsn
        self._is_told &= not takes_nothing

    def turn_ended(self) -> None:
        if self._book is None:
            return
        assert self._broker is not None
        due_ns = self._broker.next_deadline_ns()
        if due_ns is None or due_ns > self._clock.monotonic_ns():
            self._book.turn_ended(*self._lsns)

    def check(self) -> None:
        self._count()
        if self._book is not None:
            self._book.check()


def publisher_in(body: bytes) -> int:
    """The number of the client that published this body, if a client of the world did."""
    return int.from_bytes(body[-KEY_SIZE:][:4], "big") >> 16
