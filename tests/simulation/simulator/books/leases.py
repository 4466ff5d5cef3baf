"""Leases: one at most of each message, no more than backlogs allow, of the oldest message that a consumer takes, none
longer than its time; and what leaves a leased queue does so by what a client did, or by a limit of the queue.

Source: queues page A.4, A.5.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from leveret.engine import (
    AckedEvent,
    Broker,
    DeliveredEvent,
    EnqueuedEvent,
    Envelope,
    EventKind,
    LeaseEndedEvent,
    LeftEvent,
    PublishedEvent,
    QueueEvent,
)
from leveret.engine.leases.state import leases_of
from leveret.interop.wire.raw_codec import Content

from ..ledger import Broken, QueueName
from ..loop import SimulatedClock
from ..selectors import TAKES
from .book import Book, Handlers
from .whereabouts import Place, Whereabouts

MS = 1_000_000
#: A lease ends so late at most (queues page A.5).
LATE_NS = 50 * MS
HEADER_START = 12  # class, weight and size of the body come before the properties

#: Who has a lease: a connection's product, a channel, and a consumer's tag; None: it asked for the message.
Holder = tuple[str, int, str | None]
#: A message in the order of its queue: what is to go first is smallest.
Entry = tuple[int, int]
CANCELS = ("nacked", "rejected", "recovered")


class Subscription(NamedTuple):
    """What a client asked for. `limit`: of its backlog; `renews`: its leases begin again when they end."""

    filter: str
    limit: int
    no_ack: bool
    renews: bool = False


NOBODY = Subscription("", 0, no_ack=False)


class Lease(NamedTuple):
    """`since`: when it began. `counts`: for backlogs."""

    holder: Holder
    since_ns: int
    counts: bool


class Shelf:
    """One leased queue: what is ready, by filter; what is leased."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.rules: dict[str, Any] = place.features["leased"]
        self.ready: dict[str, list[Entry]] = {one: [] for one in TAKES}
        self.since: dict[int, int] = {}  # message id -> number of the event that made it ready
        self.leases: dict[int, Lease] = {}  # in the order in which they began
        self.used: Counter[Holder] = Counter()
        self.deliveries: Counter[int] = Counter()  # by message id, in this life
        self.cancels: Counter[int] = Counter()
        self.handed_out: list[tuple[int, str, Entry]] = []  # in this turn: number of the event, filter, message
        self.back: list[int] = []  # in this turn
        self.period_ms: int | None = self.rules.get("lease_ms")  # as far as a turn ended with it
        self.period_since_ns = 0


class Leases(Book):
    """`subscribed`, `acks` and `rejects` are what clients say before they send it."""

    def __init__(self, where: Whereabouts, clock: SimulatedClock) -> None:
        self._where = where
        self._clock = clock
        self._shelves: dict[QueueName, Shelf] = {}
        self._moved: dict[QueueName, Shelf] = {}
        self._subscriptions: dict[Holder, Subscription] = {}
        self._products: dict[Any, tuple[str, int]] = {}  # by session
        self._acked: dict[tuple[QueueName, int], set[tuple[str, int]]] = {}  # by whom
        self._rejected: set[tuple[QueueName, int]] = set()
        self._discards: dict[QueueName, set[str]] = {}  # filters, until everything is at rest
        self._of: dict[int, str | None] = {}  # what the header "of" of a message says
        self._ranks: dict[int, int] = {}
        self._known: dict[bytes, str | None] = {}
        self._number = 0  # of the event
        self._looked_ns = 0
        self._broker: Broker | None = None

    def handlers(self) -> Handlers:
        return {
            PublishedEvent: self._published,
            EnqueuedEvent: self._enqueued,
            DeliveredEvent: self._delivered,
            LeaseEndedEvent: self._ended,
            AckedEvent: self._on_acked,
            LeftEvent: self._left,
            QueueEvent: self._queue,
        }

    def attach(self, broker: Broker) -> None:
        """Leases and counts ended with the life before; what was out is ready."""
        self._broker = broker
        self._shelves.clear()
        self._moved.clear()
        self._products.clear()
        self._looked_ns = self._clock.monotonic_ns()
        for place in self._where.places.values():
            if "leased" in place.features:
                self._add(place)

    def _add(self, place: Place) -> None:
        shelf = self._shelves[place.name] = Shelf(place)
        for id_ in place.ready:
            self._ready(shelf, id_)

    def _queue(self, event: QueueEvent) -> None:
        name = event.vhost, event.subject
        if event.kind is EventKind.UNDECLARED:
            self._shelves.pop(name, None)
            self._moved.pop(name, None)
        elif event.kind is EventKind.DECLARED:
            features = self._where.features_of(event.subject)
            if "leased" in features:
                self._shelves[name] = Shelf(Place(event.queue, features))

    # -- what clients say ---------------------------------------------------------------------------------------------

    def subscribed(self, holder: Holder, subscription: Subscription) -> None:
        """A consumer is about to come."""
        self._subscriptions[holder] = subscription

    def acks(self, name: QueueName, id_: int, product: str, channel: int) -> None:
        """Somebody is about to acknowledge a message, whether or not he has it."""
        self._acked.setdefault((name, id_), set()).add((product, channel))

    def rejects(self, name: QueueName, id_: int) -> None:
        """The same for good."""
        self._rejected.add((name, id_))

    def discards(self, name: QueueName, filter_: str) -> None:
        """Somebody is about to acknowledge whatever a filter takes."""
        self._discards.setdefault(name, set()).add(filter_)

    def _was_acked(self, name: QueueName, id_: int) -> bool:
        return (name, id_) in self._acked or any(self._takes(one, id_) for one in self._discards.get(name, ()))

    def _may_ack(self, shelf: Shelf, id_: int, lease: Lease) -> bool:
        """Whether one of those who acknowledged a leased message may: with `strict` the client that has the lease."""
        products = {product for product, _ in self._acked.get((shelf.place.name, id_), ())}
        return shelf.rules.get("leasing") != "strict" or lease.holder[0] in products

    # -- events -------------------------------------------------------------------------------------------------------

    def _published(self, event: PublishedEvent) -> None:
        if not any((event.vhost, queue.name) in self._shelves for queue in event.queues):
            return
        split, known = event.run.framing.split, self._known
        for id_, content in zip(event.messages, event.contents):
            properties = bytes(split(content)[0][HEADER_START:])
            if properties not in known:
                tagged: Any = Content(properties, b"").headers.get("of")
                known[properties] = None if tagged is None else tagged[1].decode()
            self._of[id_] = known[properties]

    def _takes(self, filter_: str, id_: int) -> bool:
        return TAKES[filter_](self._of.get(id_))

    def _entry(self, shelf: Shelf, id_: int) -> Entry:
        return (-self._ranks.get(id_, 0) if "ranks" in shelf.place.features else 0), id_

    def _ready(self, shelf: Shelf, id_: int) -> None:
        shelf.since[id_] = self._number
        entry = self._entry(shelf, id_)
        for filter_, entries in shelf.ready.items():
            if self._takes(filter_, id_):
                insort(entries, entry)

    def _not_ready(self, shelf: Shelf, id_: int) -> bool:
        """Whether it was."""
        if shelf.since.pop(id_, None) is None:
            return False
        entry = self._entry(shelf, id_)
        for entries in shelf.ready.values():
            at = bisect_left(entries, entry)
            if at < len(entries) and entries[at] == entry:
                del entries[at]
        return True

    def _enqueued(self, event: EnqueuedEvent) -> None:
        shelf = self._shelves.get((event.vhost, event.subject))
        if shelf is None:
            return
        self._number += 1
        of = event.run
        for at, id_ in enumerate(event.messages):
            self._acked.pop((shelf.place.name, id_), None)  # an id that was lost with its message may come again
            self._rejected.discard((shelf.place.name, id_))
            envelope = of if isinstance(of, Envelope) else of[at].envelope
            self._ranks[id_] = envelope.summary.priority or 0
            self._ready(shelf, id_)

    def _delivered(self, event: DeliveredEvent) -> None:
        name = event.vhost, event.subject
        shelf = self._shelves.get(name)
        if shelf is None:
            return
        self._number += 1
        self._moved[name] = shelf
        session: Any = event.session
        if session not in self._products:
            self._products[session] = session.client.properties["product"].text, session.number
        holder = (*self._products[session], event.consumer)
        subscription = self._subscriptions.get(holder, NOBODY)
        counts = not subscription.no_ack and shelf.rules.get("semantics") != "at-most-once"
        highest, now_ns = shelf.rules.get("max_deliveries"), self._clock.monotonic_ns()
        for id_ in event.messages:
            if (other := shelf.leases.get(id_)) is not None:
                raise Broken(f"{name}: {id_} was leased to {holder}, and is to {other.holder}")
            if not self._takes(subscription.filter, id_):
                raise Broken(f"{name}: {id_} was leased to {holder}, which takes {subscription.filter}")
            if highest and shelf.deliveries[id_] >= highest:
                raise Broken(f"{name}: {id_} was delivered more than {highest} times")
            shelf.deliveries[id_] += 1
            self._not_ready(shelf, id_)
            shelf.leases[id_] = Lease(holder, now_ns, counts)
            shelf.used[holder] += counts
            shelf.handed_out.append((self._number, subscription.filter, self._entry(shelf, id_)))

    def _over(self, shelf: Shelf, id_: int) -> Lease | None:
        lease = shelf.leases.pop(id_, None)
        if lease is not None:
            shelf.used[lease.holder] -= lease.counts
        return lease

    def _ended(self, event: LeaseEndedEvent) -> None:
        name = event.vhost, event.subject
        if "foreign" in self._where.features_of(event.subject):
            return
        shelf = self._shelves[name]
        self._number += 1
        self._moved[name] = shelf
        for id_ in event.messages:
            lease = self._over(shelf, id_)
            if lease is None:
                raise Broken(f"{name}: the lease of {id_} ended ({event.why}), which nobody had")
            self._check_end(shelf, id_, lease, event.why)
            shelf.cancels[id_] += event.why in CANCELS
            self._ready(shelf, id_)
            shelf.back.append(id_)

    def _check_end(self, shelf: Shelf, id_: int, lease: Lease, why: str) -> None:
        name, lease_ms = shelf.place.name, self._period_ms(shelf)
        if why == "deadline":
            lasted_ns = self._clock.monotonic_ns() - lease.since_ns
            if lease_ms is None or lasted_ns < lease_ms * MS:
                raise Broken(f"{name}: the lease of {id_} ended after {lasted_ns / MS} ms, to be were {lease_ms}")
        elif why == "taken_over" and not (self._was_acked(name, id_) and self._may_ack(shelf, id_, lease)):
            raise Broken(f"{name}: the lease of {id_} was taken over from {lease.holder}, and nobody may, or did")
        elif why == "lifetime" and "ttl_ms" not in shelf.rules:
            raise Broken(f"{name}: {id_} has no lifetime, and is said to have reached it")

    def _on_acked(self, event: AckedEvent) -> None:
        name = event.vhost, event.subject
        shelf = self._shelves.get(name)
        if shelf is None:
            return
        for id_ in event.messages:
            lease = self._over(shelf, id_)
            if lease is None and not self._not_ready(shelf, id_):
                raise Broken(f"{name}: {id_} was acknowledged, and was not there")
            if shelf.rules.get("semantics") == "at-most-once" and lease is not None:
                continue
            if lease is not None and self._subscriptions.get(lease.holder, NOBODY).no_ack:
                continue
            if not self._was_acked(name, id_):
                raise Broken(f"{name}: {id_} was acknowledged, and by nobody")
            if lease is not None and not self._may_ack(shelf, id_, lease):
                raise Broken(f"{name}: {id_} was acknowledged by others, and is leased to {lease.holder}")

    def _left(self, event: LeftEvent) -> None:
        name = event.vhost, event.subject
        shelf = self._shelves.get(name)
        if shelf is None or not event.came_in:
            return
        is_purge = event.kind is EventKind.PURGED  # which the book of moves knows
        for id_ in event.messages:
            lease = self._over(shelf, id_)
            if lease is None:
                self._not_ready(shelf, id_)
            elif is_purge:
                raise Broken(f"{name}: {id_} was purged ({event.reason}), and is leased to {lease.holder}")
            if not is_purge and not self._may_die(shelf, id_, event.reason):
                raise Broken(f"{name}: {id_} left ({event.kind.value}, {event.reason}), and nothing says why")

    def _may_die(self, shelf: Shelf, id_: int, reason: str | None) -> bool:
        rules, name = shelf.rules, shelf.place.name
        if reason == "delivery_limit":
            return 0 < rules.get("max_deliveries", 0) <= shelf.deliveries[id_]
        if reason == "rejected":
            return (name, id_) in self._rejected or 0 < rules.get("max_cancels", 0) <= shelf.cancels[id_]
        return reason == "expired" and "ttl_ms" in rules

    # -- turns --------------------------------------------------------------------------------------------------------

    def turn_ended(self) -> None:
        for shelf in self._moved.values():
            self._check_turn(shelf)
            shelf.handed_out.clear()
            shelf.back.clear()
        self._moved.clear()
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._looked_ns >= LATE_NS:
            for shelf in self._shelves.values():
                self._check_times(shelf, self._looked_ns)
            self._looked_ns = now_ns

    def _check_turn(self, shelf: Shelf) -> None:
        name, rules = shelf.place.name, shelf.rules
        is_sited = "sited" in shelf.place.features  # then the book of owners knows backlogs and order
        total = None if is_sited else rules.get("backlog_total")
        if total is not None and (out := sum(shelf.used.values())) > total:
            raise Broken(f"{name} has {out} leases of {total}")
        for holder in {lease.holder for lease in shelf.leases.values()} if shelf.handed_out else ():
            subscription = self._subscriptions.get(holder)
            if holder[2] is not None and subscription is not None and shelf.used[holder] > subscription.limit:
                raise Broken(f"{name}: {holder} has {shelf.used[holder]} leases of {subscription.limit}")
        for number, filter_, entry in () if is_sited else shelf.handed_out:
            for older in shelf.ready[filter_]:
                if older >= entry:
                    break
                if shelf.since[older[1]] < number:
                    raise Broken(f"{name}: {entry[1]} was leased, and {older[1]} is still there ({filter_ or 'any'})")
        is_stopping = self._broker is not None and self._broker.context.is_stopping  # nothing dies of its attempts then
        for id_ in () if is_stopping else shelf.back:
            if id_ in shelf.since and (
                0 < rules.get("max_deliveries", 0) <= shelf.deliveries[id_]
                or 0 < rules.get("max_cancels", 0) <= shelf.cancels[id_]
            ):
                raise Broken(f"{name}: {id_} is ready again, after {shelf.deliveries[id_]} deliveries")

    def _period_ms(self, shelf: Shelf) -> int | None:
        """Where the declaration says nothing a policy may, which the operators of the world change."""
        given: int | None = shelf.rules.get("lease_ms")
        if given is None and "by_policy" in shelf.rules:
            given = leases_of(shelf.place.queue).rules.settings.lease_period_ms
        return given

    def _check_times(self, shelf: Shelf, at_ns: int) -> None:
        """What was to end before some turns ended has. Leases of a queue last equally long: the first is the oldest.

        Another period holds for the leases that there are, counted from when they began.
        """
        lease_ms = self._period_ms(shelf)
        if lease_ms != shelf.period_ms:
            shelf.period_ms, shelf.period_since_ns = lease_ms, self._clock.monotonic_ns()
        for id_, lease in shelf.leases.items() if lease_ms is not None else ():
            if not lease.counts or self._subscriptions.get(lease.holder, NOBODY).renews:
                continue
            if max(lease.since_ns + lease_ms * MS, shelf.period_since_ns) + LATE_NS < at_ns:
                raise Broken(f"{shelf.place.name}: the lease of {id_} to {lease.holder} goes on after its time")
            break

    def check(self) -> None:
        """Also: nobody waits for what is there, unless backlogs are full."""
        self._discards.clear()
        for name, shelf in self._shelves.items():
            self._check_times(shelf, self._clock.monotonic_ns())
            total = shelf.rules.get("backlog_total")
            if (
                "sited" in shelf.place.features
                or shelf.rules.get("semantics") == "at-most-once"
                or (total is not None and sum(shelf.used.values()) >= total)
            ):
                continue
            for holder in self._present(shelf):
                subscription = self._subscriptions[holder]
                has_room = subscription.no_ack or shelf.used[holder] < subscription.limit
                if has_room and (waiting := shelf.ready[subscription.filter]):
                    raise Broken(f"{name}: {holder} would take {waiting[0][1]}, and does not get it")

    def filter_of(self, consumer: Any) -> str:
        """What a consumer of the broker takes."""
        session = consumer.session
        holder = session.client.properties["product"].text, session.number, consumer.tag
        return self._subscriptions[holder].filter

    def takes(self, consumer: Any, id_: int) -> bool:
        """Whether a consumer of the broker takes a message."""
        return self._takes(self.filter_of(consumer), id_)

    def rank_of(self, id_: int) -> int:
        """The priority of a message."""
        return self._ranks.get(id_, 0)

    def _present(self, shelf: Shelf) -> Iterable[Holder]:
        """Who is subscribed, by the broker."""
        for consumer in self._where.places[shelf.place.name].queue.consumer_list.consumers:
            session: Any = consumer.session
            yield session.client.properties["product"].text, session.number, consumer.tag
