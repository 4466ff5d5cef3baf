"""Whose messages they are, by the rules of the reference alone: a book of one broker's leased queues with sites.

The book hears the broker's events, and asks the world where clients publish and what filters take. Of the engine it
asks who is subscribed with how much credit, which sites are there, and, at the start of a broker and at rest, the
owners. Source: cluster page 12.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leveret.engine import (
    AckedEvent,
    Broker,
    DeliveredEvent,
    DueEvent,
    EnqueuedEvent,
    Event,
    EventKind,
    LeaseEndedEvent,
    LeftEvent,
    PublishedEvent,
    QueueEvent,
    ScheduledEvent,
    TransferredEvent,
)
from leveret.engine.leases.state import leases_of

MS = 1_000_000
#: How long a lost site is waited for.
GIVEN_UP_NS = 3000 * MS
#: Of many messages those that come within 1 ms go with the last of them.
LATE_NS = MS
NEVER_NS = 1 << 62
#: As the number of an event: delayed messages stand behind others, as far as no rank says otherwise.
DELAYED = 1 << 62
#: What is to happen in a turn has happened when a later turn ends.
PATIENCE_NS = 30 * MS


@dataclass(frozen=True, slots=True)
class SitedQueue:
    """A queue as a world declares it. `called`: its name at its sites; `hosts`: these sites, empty: all; `initial`: the
    owner of all its messages, empty: the site of the publisher; `backlog`: of each site, None: no limit.

    `is_of_one_site`: it is a LocalQueue. `is_at_most_once`: what is out is gone from it. `rank_of`: of a message, the
    highest first; `is_barrier`: of a message; None: there are none. `depth`: of messages that may be leased where they
    are, None: no limit.
    """

    called: str
    hosts: frozenset[str] = frozenset()
    initial: str = ""
    backlog: int | None = None
    is_of_one_site: bool = False
    is_at_most_once: bool = False
    rank_of: Callable[[int], int] | None = None
    is_barrier: Callable[[int], bool] | None = None
    depth: int | None = None

    def has(self, site: str) -> bool:
        """Whether a site hosts it."""
        return not self.hosts or site in self.hosts

    def place_of(self, id_: int) -> tuple[int, int]:
        """In the order in which messages are delivered."""
        return (0 if self.rank_of is None else -self.rank_of(id_)), id_


@dataclass(slots=True)
class Owned:
    """An owner of a message; an empty one is whichever site the broker is at. `is_agreed`: the record that says so is
    lost no more.
    """

    site: str
    is_agreed: bool = False


#: What is known of owners in all lives of a world: (queue, message id) -> its owners, in order.
Past = dict[tuple[str, int], list[Owned]]


class Lease(NamedTuple):
    """`counts`: for backlogs. `number`: of the event that began it."""

    site: str
    session: Any
    counts: bool
    number: int


@dataclass(slots=True)
class _Book:
    """What the book knows of one queue."""

    rules: SitedQueue
    queue: Any
    ready: dict[int, int] = field(default_factory=dict)  # id -> when it came (ns)
    places: list[tuple[int, int]] = field(default_factory=list)  # of what is ready, in order
    came: dict[int, int] = field(default_factory=dict)  # when it came, also of what is leased
    order: dict[int, int] = field(default_factory=dict)  # id -> number of the event that made it ready
    owners: dict[int, str] = field(default_factory=dict)
    leased: dict[int, Lease] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)  # leases by site
    moved: dict[int, str] = field(default_factory=dict)  # transferred, and not handed out yet -> from where
    #: Event, id, owner before, consumer, and up to when others that were to go first had come (ns).
    handed_out: list[tuple[int, int, str, Any, int]] = field(default_factory=list)
    starving: dict[int, int] = field(default_factory=dict)  # id -> since when it could be taken (ns)
    looked_ns: int = 0
    barriers: set[int] = field(default_factory=set)  # that are ready

    def gate(self) -> int | None:
        """The first barrier: what is behind it waits."""
        return min(self.barriers, default=None)

    def is_open(self, id_: int) -> bool:
        """Whether no barrier stands before a message, nor is it one."""
        gate = self.gate()
        return gate is None or id_ < gate

    def is_active(self, id_: int) -> bool:
        """Whether a message may be leased where it is: it is among the first ones of the queue."""
        depth = self.rules.depth
        if depth is None:
            return True
        return sum(one < id_ for one in self.ready) + sum(one < id_ for one in self.leased) < depth

    def add_ready(self, id_: int, now_ns: int, number: int) -> None:
        """A message is ready since then, by this event."""
        self.ready[id_], self.order[id_] = now_ns, number
        insort(self.places, self.rules.place_of(id_))
        if self.rules.is_barrier is not None and self.rules.is_barrier(id_):
            self.barriers.add(id_)

    def remove_ready(self, id_: int) -> None:
        """A message is leased, waits for its time, or is gone."""
        if self.ready.pop(id_, None) is not None:
            at = bisect_left(self.places, self.rules.place_of(id_))
            assert self.places.pop(at)[1] == id_


class OwnersBook:
    """Of one broker. Raises AssertionError.

    `now_ns`: monotonic. `site_of`: where a message with this id and body was published; None: its owner is not known.
    `takes`: whether a consumer takes a message. `past`: what was known before. `is_strict`: clients read at once, so a
    message that could be taken is taken in that turn; else only when all is at rest.
    """

    takes_mixed = False

    def __init__(
        self,
        queues: Mapping[str, SitedQueue],
        now_ns: Callable[[], int],
        site_of: Callable[[int, bytes], str | None],
        takes: Callable[[Any, int], bool],
        past: Past,
        *,
        is_strict: bool,
    ) -> None:
        self._rules = queues
        self._now_ns = now_ns
        self._site_of = site_of
        self._takes = takes
        self._past = past
        self._is_strict = is_strict
        self._published: dict[int, str | None] = {}
        self._routed: dict[int, set[str]] = {}  # the queues that a message was published to; others have it of the log
        self._books: dict[str, _Book] = {}
        self._changed: dict[str, _Book] = {}
        self._gone_ns: dict[str, int] = {}
        self._said: list[Owned] = []  # in this turn
        self._recorded: deque[tuple[int, list[Owned]]] = deque()  # LSN behind them
        self._number = 0
        self._odd = ""  # an owner that is not the one that was agreed
        self.counted: Counter[str] = Counter()
        self._handlers: dict[type[Event], Callable[[Any], object]] = {
            PublishedEvent: self._on_published,
            EnqueuedEvent: self._on_enqueued,
            TransferredEvent: self._on_transferred,
            DeliveredEvent: self._on_delivered,
            LeaseEndedEvent: self._on_ended,
            AckedEvent: self._on_left,
            LeftEvent: self._on_left,
            QueueEvent: self._on_queue,
            ScheduledEvent: self._on_scheduled,
            DueEvent: self._on_due,
        }

    # -- a life -------------------------------------------------------------------------------------------------------

    def attach(self, broker: Broker, ids_of: Callable[[Any], Iterable[int]]) -> None:
        """A broker begins with what its journal has."""
        self._sites = broker.sites
        self._after_ns = broker.sites.transfer_after_ns
        broker.context.listeners.append(self)
        broker.sites.watchers[self] = None  # type: ignore[index]
        for queue in broker.virtual_hosts["/"].queues.values():
            if queue.name in self._rules:
                self._add(queue, ids_of(queue))
            else:
                self._check_name(queue)

    def _check_name(self, queue: Any) -> None:
        called = queue.name.partition("@")[0]
        assert called not in {one.called for one in self._rules.values()}, f"{queue.name} is in no scope of the world"

    def _add(self, queue: Any, ids: Iterable[int]) -> None:
        rules = self._rules[queue.name]
        book = self._books[queue.name] = _Book(rules, queue)
        delayed = {message.id for message in queue.scheduled}
        for id_ in sorted(ids):
            if id_ not in delayed:
                book.add_ready(id_, -NEVER_NS, 0)
            if rules.is_of_one_site:
                continue
            owner = book.owners[id_] = _engine_owner(queue, id_)
            known = self._past.get((queue.name, id_))
            assert known is not None, f"{id_} of {queue.name} is there, and never came"
            first = max((at for at, one in enumerate(known) if one.is_agreed), default=0)
            may_be = {one.site or self._sites.own for one in known[first:]}
            if owner not in may_be:
                self._odd = f"{id_} of {queue.name} belongs to {owner} after a takeover, not {sorted(may_be)}"

    def served(self) -> None:
        """It lets clients in, so it has all that is agreed; one that was replaced before that may have less."""
        assert not self._odd, self._odd

    def site_went(self, site: str) -> None:
        """The broker's sites say so (`SiteWatcher`)."""
        self._gone_ns[site] = self._now_ns()
        self.counted["sites went"] += 1

    def sites_changed(self) -> None:
        if self._after_ns != self._sites.transfer_after_ns:
            self._wait_otherwise()
        for site in self._sites.groups:
            if self._gone_ns.pop(site, None) is not None:
                self.counted["sites returned"] += 1

    def _wait_otherwise(self) -> None:
        """`transfer-after` is another one. What has waited long enough by the old one need not wait again."""
        since_ns = self._now_ns() - self._after_ns
        for book in self._books.values():
            for times in (book.ready, book.came):
                times.update({id_: -NEVER_NS for id_, came_ns in times.items() if came_ns <= since_ns})
        self._after_ns = self._sites.transfer_after_ns

    def _is_lost(self, site: str) -> bool:
        """Whether a site is given up, by the time for which it is gone."""
        gone_ns = self._gone_ns.get(site)
        if gone_ns is None:
            return site not in self._sites.groups
        return self._now_ns() - gone_ns >= GIVEN_UP_NS

    # -- events -------------------------------------------------------------------------------------------------------

    def __call__(self, event: Event) -> None:
        if (handler := self._handlers.get(type(event))) is not None:
            self._number += 1
            handler(event)

    def _on_queue(self, event: QueueEvent) -> None:
        if event.kind is EventKind.DECLARED and event.vhost == "/":
            if event.subject in self._rules:
                self._add(event.queue, ())
            else:
                self._check_name(event.queue)
        elif event.kind is EventKind.UNDECLARED:
            self._books.pop(event.subject, None)

    def _on_published(self, event: PublishedEvent) -> None:
        if event.vhost != "/" or event.cause is not None:
            self._published.update(dict.fromkeys(event.messages))
            return
        mine = [self._books[queue.name] for queue in event.queues if queue.name in self._books]
        self._routed.update(dict.fromkeys(event.messages, {book.queue.name for book in mine}))
        for id_, content in zip(event.messages, event.contents):
            site = self._published[id_] = self._site_of(id_, event.run.framing.split(content)[1])
            for book in mine if site is not None else ():
                name = book.queue.name
                assert book.rules.has(site or ""), f"{name} captured {id_}, which was published at {site}"

    def _of(self, event: Any) -> _Book | None:
        return self._books.get(event.subject) if event.vhost == "/" else None

    def _on_enqueued(self, event: EnqueuedEvent) -> None:
        book = self._of(event)
        if book is None:
            return
        now_ns = self._now_ns()
        for id_ in event.messages:
            assert id_ not in book.ready and id_ not in book.leased, f"{id_} comes to {event.subject} twice"
            book.add_ready(id_, now_ns, self._number)
            book.came[id_] = now_ns
            if book.rules.is_of_one_site:
                continue
            is_of_log = event.subject not in self._routed.get(id_, (event.subject,))
            owner = None if is_of_log else book.rules.initial or self._published.get(id_)
            owner = book.owners[id_] = owner or _engine_owner(book.queue, id_)
            self._past[event.subject, id_] = said = [Owned("" if is_of_log else owner)]
            self._said += said

    def _on_scheduled(self, event: ScheduledEvent) -> None:
        book = self._of(event)
        if book is None:
            return
        for id_ in event.messages:
            assert id_ in book.ready, f"{id_} of {event.subject} is delayed, and is not new"
            book.remove_ready(id_)
            book.barriers.discard(id_)

    def _on_due(self, event: DueEvent) -> None:
        book = self._of(event)
        if book is None:
            return
        for id_ in event.messages:
            book.add_ready(id_, self._now_ns(), DELAYED)
            book.came[id_] = self._now_ns()
            self.counted["delayed messages"] += 1

    def _on_transferred(self, event: TransferredEvent) -> None:
        book = self._of(event)
        if book is None:
            return
        source, target, now_ns, what = event.source, event.target, self._now_ns(), event.subject
        self.counted["transfers"] += len(event.messages)
        served = {self._at(one) for one in book.queue.consumer_list.consumers}
        for id_ in event.messages:
            assert id_ in book.ready, f"{id_} of {what} is transferred, and is not ready"
            owner = book.owners[id_]
            assert owner == source != target, (
                f"{id_} of {what} is transferred from {source} to {target}, it is {owner}'s"
            )
            assert book.rules.has(target), f"{id_} of {what} is transferred to {target}, which does not host it"
            able = self._able(book, source, id_)
            assert not able, f"{id_} of {what} leaves {source}, where {able[0].tag} could take it"
            waited = now_ns - book.ready[id_] >= self._after_ns
            assert waited or source not in served or self._is_lost(source), f"{id_} of {what} leaves {source} too early"
            if self._is_lost(source):
                self.counted["stranded, and served"] += 1
            book.owners[id_], book.moved[id_] = target, source
            self._said.append(Owned(target))
            self._past[what, id_].append(self._said[-1])

    def _on_delivered(self, event: DeliveredEvent) -> None:
        book = self._of(event)
        if book is None:
            return
        what, session, rules = event.subject, event.session, book.rules
        site = session.client.site or self._sites.own
        assert rules.has(site), f"{event.messages} of {what} go to {site}, which does not host it"
        if not book.barriers.isdisjoint(event.messages):
            self._check_barrier(book, event.messages)
            if event.consumer is not None:
                return
            book.barriers.difference_update(event.messages)  # a client that asked for it has it as any other
        consumer = None
        for one in book.queue.consumer_list.consumers:
            if one.session is session and one.tag == event.consumer:
                consumer = one
        for id_ in event.messages:
            other = book.leased.get(id_)
            assert other is None, f"{id_} of {what} is leased at {site} and at {other.site if other else ''}"
            assert id_ in book.ready, f"{id_} of {what} is delivered, and is not there"
            owner = book.owners.get(id_, site)
            assert owner == site, f"{id_} of {what} belongs to {owner}, and goes to {site}"
            assert book.is_open(id_), f"{id_} of {what} is leased, behind the barrier {book.gate()}"
            book.remove_ready(id_)
            waits = id_ in book.moved and rules.rank_of is not None  # those of higher ranks may have to
            came_until_ns = self._now_ns() - self._after_ns - LATE_NS if waits else NEVER_NS
            book.handed_out.append((self._number, id_, book.moved.get(id_, owner), consumer, came_until_ns))
            counts = consumer is None or not consumer.no_ack
            book.leased[id_] = Lease(site, session, counts, self._number)
            book.used[site] += counts
        if consumer is not None and not book.moved.keys().isdisjoint(event.messages):
            own = [id_ for id_ in book.ready if book.owners.get(id_) == site and id_ not in book.moved]
            own = [id_ for id_ in own if self._takes(consumer, id_) and book.is_open(id_) and book.is_active(id_)]
            assert not own, f"{consumer.tag} at {site} gets {event.messages} of others, and {own[:5]} wait at home"
        for id_ in event.messages:
            book.moved.pop(id_, None)
        self.counted[f"deliveries of {rules.called}"] += len(event.messages)
        backlog = rules.backlog
        assert backlog is None or book.used[site] <= backlog, (
            f"{what}: {book.used[site]} leases at {site}, of {backlog}"
        )
        assert rules.depth is None or len(book.leased) <= rules.depth, f"{what}: {len(book.leased)} leases"
        self._changed[what] = book

    def _check_barrier(self, book: _Book, ids: Iterable[int]) -> None:
        """One is delivered: all that was before it is settled, at all sites. It stays until all have it."""
        (id_,) = ids
        before = [one for one in (*book.ready, *book.leased) if one < id_]
        assert not before, f"the barrier {id_} of {book.queue.name} comes before {before[:5]} is settled"
        self.counted["barriers"] += 1

    def _over(self, book: _Book, id_: int) -> Lease | None:
        lease = book.leased.pop(id_, None)
        if lease is not None:
            book.used[lease.site] -= lease.counts
        return lease

    def _on_ended(self, event: LeaseEndedEvent) -> None:
        book = self._of(event)
        if book is None:
            return
        for id_ in event.messages:
            lease = self._over(book, id_)
            assert lease is not None, f"the lease of {id_} of {event.subject} ended, which nobody had"
            if event.why == "site_lost":
                assert lease.site not in self._sites.groups, (
                    f"the lease of {id_} ended for {lease.site}, which is there"
                )
                self.counted["leases of lost sites"] += 1
            book.add_ready(id_, book.came.get(id_, -NEVER_NS), self._number)

    def _on_left(self, event: Any) -> None:
        book = self._of(event)
        if book is None or not getattr(event, "came_in", True):
            return
        for id_ in event.messages:
            if self._over(book, id_) is None:
                book.remove_ready(id_)
                book.barriers.discard(id_)
            book.owners.pop(id_, None)
            book.came.pop(id_, None)

    def holder(self, queue: str, id_: int) -> Any:
        """The session that has the lease of a message; None: none."""
        book = self._books.get(queue)
        lease = None if book is None else book.leased.get(id_)
        return None if lease is None else lease.session

    # -- consumers ----------------------------------------------------------------------------------------------------

    def _at(self, consumer: Any) -> str:
        return consumer.client.site or self._sites.own

    def _has_room(self, book: _Book, site: str) -> bool:
        rules = book.rules
        if site not in self._sites.groups or not rules.has(site):
            return False
        if rules.is_at_most_once:  # that a client acknowledged what is gone is no event
            return leases_of(book.queue).room(None if rules.is_of_one_site else site) > 0
        has_depth = rules.depth is None or len(book.leased) < rules.depth
        return has_depth and (rules.backlog is None or book.used[site] < rules.backlog)

    def _able(self, book: _Book, site: str, id_: int) -> list[Any]:
        """The consumers at a site that could take a message now."""
        if not (book.is_open(id_) and book.is_active(id_) and self._has_room(book, site)):
            return []
        consumers = book.queue.consumer_list.consumers
        return [one for one in consumers if self._at(one) == site and one.credit() > 0 and self._takes(one, id_)]

    # -- turns --------------------------------------------------------------------------------------------------------

    def turn_ended(self, next_lsn: int, agreed_lsn: int) -> None:
        """Nothing is left to do now, and what was due is done. `next_lsn`: behind all that was recorded; what is below
        `agreed_lsn` is lost no more.
        """
        if self._said:
            self._recorded.append((next_lsn, self._said))
            self._said = []
        while self._recorded and self._recorded[0][0] <= agreed_lsn:
            for one in self._recorded.popleft()[1]:
                one.is_agreed = True
        for book in self._changed.values():
            self._check_order(book)
        self._changed.clear()
        now_ns = self._now_ns()
        for site in {*self._gone_ns, *self._sites.groups}:
            is_lost = self._sites.is_lost(site)
            assert is_lost == self._is_lost(site), f"{site} is {'' if is_lost else 'not '}given up"
        for name, book in self._books.items():
            for id_, lease in book.leased.items() if self._gone_ns else ():
                assert lease.site not in self._gone_ns, f"{id_} of {name} is leased at {lease.site}, which is gone"
            if self._is_strict and now_ns - book.looked_ns >= 10 * MS:
                self._look(book, now_ns)

    def _check_order(self, book: _Book) -> None:
        """Of the messages of one owner the oldest that the consumer takes goes first."""
        places = book.places
        for number, id_, owner, consumer, came_until_ns in book.handed_out:
            for _, older in places[: bisect_left(places, book.rules.place_of(id_))]:
                if (
                    book.order[older] < number
                    and book.ready[older] <= came_until_ns
                    and book.owners.get(older, owner) == owner
                    and (consumer is None or self._takes(consumer, older))
                ):
                    raise AssertionError(
                        f"{id_} of {book.queue.name} was leased, and {older} of {owner} is still there"
                    )
        book.handed_out.clear()

    def _look(self, book: _Book, now_ns: int) -> None:
        book.looked_ns = now_ns
        starving = {id_: book.starving.get(id_, now_ns) for id_ in self._starving(book, now_ns)}
        for id_, since_ns in starving.items():
            if now_ns - since_ns >= PATIENCE_NS:
                raise AssertionError(
                    f"{id_} of {book.queue.name} waits at {book.owners.get(id_)}: {self._why(book, id_)}"
                )
        book.starving = starving

    def _why(self, book: _Book, id_: int) -> str:
        able = [one for site in self._sites.groups for one in self._able(book, site, id_)]
        return f"{', '.join(f'{one.tag} at {self._at(one)}' for one in able)} could take it"

    def _starving(self, book: _Book, now_ns: int) -> list[int]:
        """The messages that a consumer could have now. For each consumer the first is enough."""
        consumers = book.queue.consumer_list.consumers
        if not book.ready or not consumers:
            return []
        served = {self._at(one) for one in consumers}
        found: list[int] = []
        able = [one for one in consumers if one.credit() > 0 and self._has_room(book, self._at(one))]
        for one in able:
            site = self._at(one)
            for id_, since_ns in book.ready.items():
                owner = book.owners.get(id_, site)
                is_for_all = (
                    owner == site
                    or owner not in served
                    or self._is_lost(owner)
                    or now_ns - since_ns >= self._after_ns + LATE_NS
                )
                is_there = book.is_open(id_) and (owner != site or book.is_active(id_))
                if is_for_all and is_there and self._takes(one, id_):
                    found.append(id_)
                    break
        return found

    def check(self) -> None:
        """All is at rest: owners agree, and nobody waits for what is there."""
        now_ns = self._now_ns()
        for name, book in self._books.items():
            for id_, owner in book.owners.items():
                here = _engine_owner(book.queue, id_)
                assert here == owner, f"{id_} of {name} belongs to {here}, by its events to {owner}"
            starving = self._starving(book, now_ns)
            assert not starving, f"{starving[0]} of {name} is ready: {self._why(book, starving[0])}"


def _engine_owner(queue: Any, id_: int) -> str:
    owners = leases_of(queue).owners
    assert owners is not None
    return str(owners.site_of(id_))
