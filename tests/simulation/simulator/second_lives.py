"""A broker that a rehearsal has started goes on alone: it publishes and gives out what it found, takes some of it back,
unbinds and deletes, makes checkpoints, and is killed. The broker after it finds what it left, and nothing else.

So what a start remembers wrongly shows at once, also what shows only at the next change, or at the start after that.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from random import Random
from typing import Any, NamedTuple

from leveret.engine import Broker, Client, EngineError, Envelope, Message, Queue, Route, Session, User
from leveret.engine.invariants import check_broker
from leveret.journal.recording.checkpoint import checkpoint, empty_segment
from leveret.serving.composition import BuiltBroker
from leveret.testing.harness import messages

from .books.memories import COUNTS_MAX, ROUNDED_NS, lives_of
from .ledger import KEY_SIZE, Broken, QueueName
from .objects import difference, facts_of

#: By which it publishes, and properties of what it publishes.
KEYS = ("a", "a.b", "c.d")
PROPERTIES: tuple[dict[str, Any], ...] = (
    {"delivery_mode": 2},
    {"delivery_mode": 2, "expiration": "5000"},
    {"delivery_mode": 2, "priority": 2},
    {"delivery_mode": 2, "headers": {"x-delay": 7000}},
    {"delivery_mode": 1},
)
#: After so many turns a broker that is alone has nothing left to do.
TURNS_MAX = 100_000


class SecondLife:
    """`known`: queue -> message id -> key, of what the first broker has."""

    def __init__(self, built: BuiltBroker, chance: Random, known: Mapping[QueueName, Mapping[int, bytes]]) -> None:
        assert built.supervisor is not None
        self._broker = built.broker
        self._supervisor = built.supervisor
        self._chance = chance
        self._known = known
        self._routes: list[Route] = []  # publishers keep theirs
        pager: Any = built.broker.context.storage.pager
        pager.pause = lambda: None

    def live(self) -> None:
        """A few things, in any order; then all of it is on the disk. Raises: Broken."""
        self._work()
        self._check_limits()
        ends = self._give_out, self._give_back, self._unbind, self._delete
        for action in self._chance.sample((self._publish, *ends, self._checkpoint), 4):
            action()
            self._work()
        check_broker(self._broker)

    def _check_limits(self) -> None:
        """What was out is ready again, as far as there is room."""
        for queue in self._broker.virtual_hosts.queues():
            rules, count = queue.rules, len(queue.store)
            limits = rules.ring_size, rules.max_length if rules.overflow == "drop-head" else None
            if queue.bounds and any(limit is not None and count > limit for limit in limits):
                raise Broken(f"{queue.name} has {count} messages after a restart, its limits are {limits}")

    def compare(self, after: Broker) -> None:
        """What the broker after it found. Raises: Broken."""
        found, left = facts_of(after), facts_of(self._broker)
        if found != left:
            raise Broken(f"the start after the next {difference(found, left)}")
        there, here = _durable_in(after), _durable_in(self._broker)
        lost, more = here.keys() - there.keys(), there.keys() - here.keys()
        soon_ns = after.context.clock.monotonic_ns() + ROUNDED_NS
        lost = {key for key in lost if not 0 < here[key].expires_ns <= soon_ns}
        if lost or more:
            raise Broken(f"the start after the next lost {sorted(lost)[:10]}, and brought back {sorted(more)[:10]}")
        for key, of in there.items():
            before = here[key]
            is_like = abs(of.expires_ns - before.expires_ns) <= ROUNDED_NS
            is_like = is_like and of.tries >= min(before.tries, COUNTS_MAX)
            is_due_like = before.tries > COUNTS_MAX or _is_due_like(of.due_ns, before.due_ns, soon_ns)
            if not is_like or not is_due_like:
                raise Broken(f"the start after the next finds {of} of {key}, instead of {before}")

    def _work(self) -> None:
        broker, journal = self._broker, self._supervisor.journal
        for _ in range(TURNS_MAX):
            broker.advance()
            if not (broker.end_turn() or broker.scheduler.load()):
                break
            if not broker.is_unfinished:
                journal.commit()
        else:
            raise Broken("a broker that is alone has always something to do")
        journal.commit()
        if not journal.wait(journal.next_lsn):
            raise Broken("what a broker recorded alone is never safe")
        broker.release_awaiting()

    # -- what it does -------------------------------------------------------------------------------------------------

    def _session(self, vhost: str) -> Session:
        return Client(self._broker.virtual_hosts[vhost], User("alone"), "alone", lambda: None, {}, "").open_session()

    def _publish(self) -> None:
        """To some queues by name, and to all exchanges; the routes stay known."""
        for name, vhost in self._broker.virtual_hosts.items():
            session = self._session(name)
            places = [("", queue) for queue in vhost.queues if self._chance.random() < 0.5]
            places += [(exchange, key) for exchange, one in vhost.exchanges.items() if one.bindings for key in KEYS]
            for exchange, key in places:
                properties = self._chance.choice(PROPERTIES)
                summary, contents = messages([b"alone"] * self._chance.choice((1, 1, 3)), properties)
                try:
                    route = vhost.router.route(exchange, key, User("alone"), session.client)
                    session.publish(route, Envelope(exchange, key, summary), contents, mandatory=False)
                except EngineError:  # it is internal, or a queue of services
                    continue
                self._routes.append(route)

    def _give_out(self) -> None:
        """All that is ready in some queues; each has its own body. Not of what keeps it, and what others have alone."""
        for queue in self._some_queues(0.5):
            known = self._known.get((queue.vhost_name, queue.name), {})
            session = self._session(queue.vhost_name)
            while (message := self._got(session, queue, no_ack=True)) is not None:
                key = known.get(message.id)
                if key and message.body[-KEY_SIZE:] != key:
                    raise Broken(f"{queue.name}: {message.id} has the body of another message after a restart")

    def _give_back(self) -> None:
        """Some of what is ready, as an attempt that has failed."""
        for queue in self._some_queues(0.5):
            session = self._session(queue.vhost_name)
            for _ in range(3):
                self._got(session, queue, no_ack=False)
            if session.unacked:
                session.reject(max(session.unacked), multiple=True, requeue=True)

    def _got(self, session: Session, queue: Queue, *, no_ack: bool) -> Any:
        try:
            got = session.get(queue, no_ack=no_ack)
        except EngineError:  # a stream, or it has a single active consumer
            return None
        if got is None:
            self._work()  # what was paged out is loaded
            got = session.get(queue, no_ack=no_ack)
        return None if got is None else got[1]

    def _unbind(self) -> None:
        for vhost in self._broker.virtual_hosts.values():
            for exchange in list(vhost.exchanges.values()):
                bindings: list[Any] = list(exchange.bindings.values())
                for one in bindings:
                    if self._chance.random() < 0.3 and exchange.bindings.get(one.identity) is one:
                        kind = "queue" if isinstance(one.destination, Queue) else "exchange"
                        name = one.destination.name
                        vhost.bindings.remove(kind, name, exchange.name, one.routing_key, dict(one.arguments))

    def _delete(self) -> None:
        for queue in self._some_queues(0.2):
            self._broker.virtual_hosts[queue.vhost_name].queues.remove(queue)

    def _checkpoint(self) -> None:
        """And with it the contents of a segment are moved, if that pays."""
        journal, recorder = self._supervisor.journal, self._supervisor.recorder
        for _ in checkpoint(self._broker, journal, recorder):
            journal.commit()
        self._work()
        journal.old_segments.reclaim()
        base_lsn = journal.old_segments.worth_emptying()
        if base_lsn is not None:
            for _ in empty_segment(self._broker, journal, recorder, base_lsn):
                journal.commit()

    def _some_queues(self, share: float) -> list[Queue]:
        queues = [queue for queue in self._broker.virtual_hosts.queues() if not queue.keeps_acked]
        return [queue for queue in queues if self._chance.random() < share]


def _is_due_like(found_ns: int, due_ns: int, soon_ns: int) -> bool:
    """`soon_ns`: what is due until then may be ready, or not."""
    return abs(found_ns - due_ns) <= ROUNDED_NS or max(found_ns, due_ns) <= soon_ns


class _Found(NamedTuple):
    """Of a message: until when it lives (0: for ever), when it is due (0: it is ready), how often it was tried."""

    expires_ns: int
    due_ns: int
    tries: int


def _durable_in(broker: Broker) -> dict[tuple[str, str, int], _Found]:
    """The messages that a restart finds, by where they are and their ids."""
    found: dict[tuple[str, str, int], _Found] = {}
    for queue in broker.virtual_hosts.queues():
        parts = queue.store.paged_parts()
        here = {one.id: one for one in chain(queue.messages(), (one for one in parts if isinstance(one, Message)))}
        tries = {one.id: one.deliveries - one.uncounted for one in here.values()}
        for part in parts:
            tries |= {} if isinstance(part, Message) else dict.fromkeys(part.ids, part.attempts)
        if queue.kind.captures:  # a restart forgets the attempts of leases
            tries.clear()
        due = {message.id: due_ns for due_ns, message in queue.scheduled.entries()}
        for id_, expires_ns in lives_of(queue) if queue.durable else ():
            message = here.get(id_)
            if message is None or queue.stores(message.envelope):
                found[queue.vhost_name, queue.name, id_] = _Found(expires_ns, due.get(id_, 0), tries.get(id_, 0))
    return found
