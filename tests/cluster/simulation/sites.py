"""Leased queues with owners in a world of three nodes: what the nodes declare, and the book of their messages.

`owned` is of all nodes, `bills` of a and b, and each node has a `desk` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from owners_book import OwnersBook, Past, SitedQueue

from leveret.configured.typed_arguments import fields_of
from leveret.engine import DeliveredEvent, Event
from leveret.expressions.language import AMPS, compiled
from leveret.serving.cluster_sites import ClusterSites

if TYPE_CHECKING:
    from .node_broker import NodeBroker
    from .world import World

NAMES = ("a", "b", "c")
#: The nodes that have the queue `bills`; by their group, or by a domain that they name.
OF_BILLS = frozenset("ab")
GROUPS = {"a": "east", "b": "east", "c": "west"}
#: Of `owned`; a publisher's name, or empty: all messages.
PUBLISHERS = ("powned1", "powned2")
FILTERS = ("", "", *PUBLISHERS)
#: What queues may be like.
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"x-max-backlog-total": 5},
    {"x-lease-period": "700ms"},
    {"x-fairness": "round-robin", "x-max-backlog-total": 10},
)
PRIORITY: dict[str, Any] = {"x-priority-expr": "rank"}
BARRIER: dict[str, Any] = {"x-barrier-expr": "sync = 1"}
AT_MOST_ONCE: dict[str, Any] = {"x-semantics": "at-most-once", "x-max-backlog-total": 5}
#: What one of them is like in this share of the worlds.
SPECIAL, SPECIAL_SHARE = (PRIORITY, BARRIER, AT_MOST_ONCE), 0.6
#: Ranks, and messages of a publisher from barrier to barrier.
RANKS, SYNC_EVERY = 4, 13


class LoudBook(OwnersBook):
    """What it finds ends the world, also in a process that takes errors for its own."""

    world: World

    def attach(self, *arguments: Any) -> None:
        with self._is_loud():
            super().attach(*arguments)

    def served(self) -> None:
        with self._is_loud():
            super().served()

    def __call__(self, event: Event) -> None:
        with self._is_loud():
            super().__call__(event)

    def turn_ended(self, next_lsn: int, agreed_lsn: int) -> None:
        with self._is_loud():
            super().turn_ended(next_lsn, agreed_lsn)

    def _on_delivered(self, event: DeliveredEvent) -> None:
        super()._on_delivered(event)
        sites = self.world.sites
        if sites is not None and event.subject in sites.queues and sites.is_at_most_once(event.subject):
            for id_ in event.messages:  # it is gone, and may be lost on its way
                self.world.books.acknowledged(sites.bodies[id_])

    @contextmanager
    def _is_loud(self) -> Iterator[None]:
        try:
            yield
        except AssertionError as fault:
            self.world.fault = self.world.fault or fault
            raise


class WorldSites:
    """`queues`: by full name. `bodies`: by message id. `counted`: what the books of all brokers counted."""

    def __init__(self, world: World, seed: int) -> None:
        chance = Random(f"sites {seed}")
        self._world = world
        self._past: Past = {}
        self._sites: dict[str, str] = {}  # body -> where it is published
        self.bodies: dict[int, str] = {}
        self._ranks: dict[int, int] = {}
        self._barriers: set[int] = set()  # ids that are barriers where there are any
        self._keys = {compiled(filter_of(one), AMPS).key: one for one in PUBLISHERS}
        self.books: list[OwnersBook] = []
        initial = chance.choice(("a", "b", "x"))
        is_by_group = chance.random() < 0.5
        options = {name: chance.choice(OPTIONS) for name in ("owned", "desk", "bills")}
        more = Random(f"special {seed}")
        if more.random() < SPECIAL_SHARE:
            options[more.choice(tuple(options))] = more.choice(SPECIAL)
        self._arguments = {
            "owned": {"x-replication": "distributed", **options["owned"]},
            "desk": {"x-replication": "local", **options["desk"]},
            "bills": {
                "x-replication": "group",
                "x-initial-owner": initial,
                **({} if is_by_group else {"x-queue-domain": "money"}),
                **options["bills"],
            },
        }
        rules = {name: self._rules(one) for name, one in options.items()}
        domain = "east" if is_by_group else "money"
        self.queues = {
            "owned": SitedQueue("owned", **rules["owned"]),
            f"bills@{domain}": SitedQueue("bills", OF_BILLS, initial, **rules["bills"]),
            **{
                f"desk@{name}": SitedQueue("desk", frozenset(name), is_of_one_site=True, **rules["desk"])
                for name in NAMES
            },
        }
        world.note(f"sites: {self._arguments}")

    def _rules(self, options: dict[str, Any]) -> dict[str, Any]:
        """What the book needs to know of a queue."""
        return {
            "backlog": options.get("x-max-backlog-total"),
            "is_at_most_once": options is AT_MOST_ONCE,
            "rank_of": self._ranks.__getitem__ if options is PRIORITY else None,
            "is_barrier": self._barriers.__contains__ if options is BARRIER else None,
        }

    def is_at_most_once(self, queue: str) -> bool:
        """Whether what a queue hands out is gone from it."""
        return self.queues[queue].is_at_most_once

    def is_barrier(self, queue: str, body: str) -> bool:
        """Whether a message is for all consumers that are there when it is its turn."""
        return self.queues[queue].is_barrier is not None and headers_of(body)["sync"] == 1

    # -- what nodes say -----------------------------------------------------------------------------------------------

    def declared_by(self, name: str) -> list[list[Any]]:
        """The queues of a node's files: virtual host, name, arguments."""
        common = {"x-queue-type": "amps", "x-max-backlog-per-consumer": 100}
        return [
            ["/", queue, {**common, **arguments}]
            for queue, arguments in self._arguments.items()
            if queue != "bills" or name in OF_BILLS
        ]

    def said_by(self, name: str) -> dict[str, object]:
        """What a node says of its site."""
        return {"group": GROUPS[name], "queues": self.declared_by(name)}

    def options_of(self, name: str) -> dict[str, Any]:
        """Of a broker that leads there."""
        return {"site": name, "groups": {**dict.fromkeys(NAMES, ""), name: GROUPS[name]}}

    def began(self, broker: NodeBroker) -> ClusterSites:
        """A broker is restored."""
        book = LoudBook(self.queues, broker.clock.monotonic_ns, self._site_of, self._takes, self._past, is_strict=True)
        book.world = self._world
        book.attach(broker.broker, lambda queue: (one.id for one in queue.messages()))
        broker.book = book
        self.books.append(book)
        own = broker.node.name
        return ClusterSites(broker.broker, [name for name in NAMES if name != own], broker.end_turn)

    def declare(self, broker: NodeBroker) -> None:
        """The queues of the leader's own files, as it lets clients in."""
        assert broker.book is not None
        if broker.term == max(led.term for _, led in self._world.led):
            broker.book.served()
        for vhost, name, arguments in self.declared_by(broker.node.name):
            queues = broker.broker.virtual_hosts[vhost].queues
            queues.declare(name, client=None, durable=True, arguments=fields_of(arguments), site=broker.node.name)

    # -- what clients say ---------------------------------------------------------------------------------------------

    def publishes(self, body: str, site: str) -> None:
        """A client at a site is about to publish."""
        self._sites[body] = site

    def _site_of(self, id_: int, body: bytes) -> str | None:
        text = body.split(b",")[0].decode()
        self.bodies[id_] = text
        headers = headers_of(text)
        self._ranks[id_] = headers["rank"]
        if headers["sync"]:
            self._barriers.add(id_)
        return self._sites.get(text)

    def _takes(self, consumer: Any, id_: int) -> bool:
        return consumer.filter is None or self._keys[consumer.filter.key] == self.bodies[id_].partition(".")[0]

    @property
    def counted(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for book in self.books:
            for what, count in book.counted.items():
                total[what] = total.get(what, 0) + count
        return total


def headers_of(body: str) -> dict[str, int]:
    """Those that the expressions of queues read."""
    tail = body.partition("/")[0].rpartition(".")[2]
    number = int(tail) if tail.isdigit() else 1
    return {"rank": number * 7 % RANKS, "sync": int(number % SYNC_EVERY == 0)}


def filter_of(publisher: str) -> str:
    """Takes the messages of one publisher."""
    return f"key = '{publisher}'"
