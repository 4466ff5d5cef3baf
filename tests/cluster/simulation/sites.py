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
from leveret.engine import Event
from leveret.expressions.language import AMPS, compiled
from leveret.serving.cluster_sites import ClusterSites

if TYPE_CHECKING:
    from .node import NodeBroker
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

    @contextmanager
    def _is_loud(self) -> Iterator[None]:
        try:
            yield
        except AssertionError as fault:
            self.world.fault = self.world.fault or fault
            raise


class WorldSites:
    """`queues`: by full name. `counted`: what the books of all brokers counted."""

    def __init__(self, world: World, seed: int) -> None:
        chance = Random(f"sites {seed}")
        self._world = world
        self._past: Past = {}
        self._sites: dict[str, str] = {}  # body -> where it is published
        self._publishers: dict[int, str] = {}  # message id -> who published it
        self._keys = {compiled(filter_of(one), AMPS).key: one for one in PUBLISHERS}
        self.books: list[OwnersBook] = []
        initial = chance.choice(("a", "b", "x"))
        is_by_group = chance.random() < 0.5
        options = {name: chance.choice(OPTIONS) for name in ("owned", "desk", "bills")}
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
        backlogs = {name: one.get("x-max-backlog-total") for name, one in options.items()}
        domain = "east" if is_by_group else "money"
        self.queues = {
            "owned": SitedQueue("owned", backlog=backlogs["owned"]),
            f"bills@{domain}": SitedQueue("bills", OF_BILLS, initial, backlogs["bills"]),
            **{
                f"desk@{name}": SitedQueue("desk", frozenset(name), backlog=backlogs["desk"], is_of_one_site=True)
                for name in NAMES
            },
        }
        world.note(f"sites: {self._arguments}")

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
        self._publishers[id_] = text.partition(".")[0]
        return self._sites.get(text)

    def _takes(self, consumer: Any, id_: int) -> bool:
        return consumer.filter is None or self._keys[consumer.filter.key] == self._publishers[id_]

    @property
    def counted(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for book in self.books:
            for what, count in book.counted.items():
                total[what] = total.get(what, 0) + count
        return total


def filter_of(publisher: str) -> str:
    """Takes the messages of one publisher."""
    return f"key = '{publisher}'"
