"""The oracle's other books: what each of them knows comes from the events of the engine and from the plan alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from leveret.engine import Broker, Event

from ..explored import whole_limit
from ..loop import SimulatedClock
from ..plan import Plan
from .addresses import Addresses
from .book import Book
from .deaths import Deaths
from .deliveries import Deliveries
from .duplicates import Duplicates
from .expiries import Expiries
from .flow import Flow
from .groups import Groups
from .leases import Leases
from .lifetimes import Lifetimes
from .limits import Limits
from .memories import Memories
from .moves import Moves
from .owners import Owners
from .precedence import Precedence
from .priorities import Priorities
from .quotas import Quotas
from .redelivery import Redelivery
from .returns import Returns
from .routes import Routes
from .routing import Routing
from .settlements import Settlements
from .statistics import Statistics
from .timeouts import Timeouts
from .whereabouts import Whereabouts


class Books:
    """All of them. A listener of the broker that gives each event to those who care for it, in order."""

    takes_mixed = False

    def __init__(self, plan: Plan, clock: SimulatedClock, happened: Counter[str]) -> None:
        """`happened`: what the books counted."""
        self.events = 0
        self._plan = plan
        self.whereabouts = where = Whereabouts(plan)
        self.routing = Routing(
            {queue.name for queue in plan.queues if "drops_full" in queue.features},
            {queue.name for queue in plan.queues if "leased" in queue.features},
        )
        self.flow = Flow(clock, happened)
        routes = Routes({queue.name for queue in plan.queues if "leased" in queue.features}, self.flow.committing)
        self.moves = Moves(self.routing, {queue.name for queue in plan.queues})
        self.deaths = Deaths(where)
        self.deliveries = Deliveries(where, self.routing)
        self.statistics = Statistics(where)
        self.redelivery = Redelivery(where, clock)
        self.leases = Leases(where, clock)
        self.groups = Groups(where, self.routing)
        self.duplicates = Duplicates(where)
        self.timeouts = Timeouts(where, clock)
        self.settlements = Settlements(where)
        self._memories = Memories(where, clock)
        self.owners = Owners(plan, where, self.leases, clock, happened)
        books: Iterable[Any] = (
            *(self.routing, self.moves, self.deaths, self.deliveries, self.statistics, self.redelivery),
            Limits(where, whole_limit(plan.configuration)),
            *(self.flow, routes, self._memories, Priorities(where), Expiries(where, clock), self.leases, self.owners),
            *(
                Addresses(),
                Quotas(),
                Lifetimes(),
                self.groups,
                self.duplicates,
                self.timeouts,
                self.settlements,
                Returns(where),
                Precedence(where),
            ),
            where,  # it comes last: the others see what was before
        )
        self._books = list(books)
        self._at_ends = [book for book in self._books if type(book).turn_ended is not Book.turn_ended]
        self._handlers: dict[type[Event], list[Callable[[Any], object]]] = {}
        for book in self._books:
            for kind, handler in book.handlers().items():
                self._handlers.setdefault(kind, []).append(handler)

    def __call__(self, event: Event) -> None:
        self.events += 1
        for handler in self._handlers.get(type(event), ()):
            handler(event)

    def attach(self, broker: Broker) -> None:
        """A new life begins. Whereabouts first: the others may ask it. Raises: Broken."""
        broker.context.listeners.append(self)  # before the book of owners, which asks the book of leases for ranks
        for book in reversed(self._books):
            book.attach(broker)

    def recorded(self, lsn: int, durable_lsn: int, *, takes_nothing: bool) -> None:
        """What happened since the last call is safe when all below `lsn` is, unless the journal takes nothing."""
        self._memories.recorded(lsn, durable_lsn, takes_nothing=takes_nothing)
        self.owners.recorded(lsn, durable_lsn, takes_nothing=takes_nothing)
        self.duplicates.recorded(lsn, durable_lsn, takes_nothing=takes_nothing)

    def survived(self, written_lsn: int) -> None:
        """The next life finds all that was written below."""
        self._memories.survived(written_lsn)
        self.duplicates.survived(written_lsn)

    def compare_restart(self, broker: Broker) -> None:
        """What another broker remembers that started now, after all that was written. Raises: Broken."""
        where = Whereabouts(self._plan)
        where.attach(broker)
        self._memories.compare(where.places.values())

    def turn_ended(self) -> None:
        """The engine has nothing left to do for now. Raises: Broken."""
        for book in self._at_ends:
            book.turn_ended()

    def check(self) -> None:
        """Nothing happens at the moment, and nobody does anything. Raises: Broken."""
        for book in self._books:
            book.check()
