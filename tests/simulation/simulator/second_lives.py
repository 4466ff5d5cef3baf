"""A broker that a rehearsal has started goes on alone: it gives out what it found, unbinds and deletes, makes
checkpoints, and is killed. The broker after it finds what it left, and nothing else.

So what a start remembers wrongly shows at once, also what shows only at the next change, or at the start after that.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from random import Random
from typing import Any

from leveret.engine import Broker, Client, EngineError, Message, Queue, User
from leveret.engine.invariants import check_broker
from leveret.journal.recording.checkpoint import checkpoint, empty_segment
from leveret.serving.composition import BuiltBroker

from .books.memories import ROUNDED_NS, lives_of
from .ledger import KEY_SIZE, Broken, QueueName
from .objects import difference, facts_of

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
        pager: Any = built.broker.context.storage.pager
        pager.pause = lambda: None

    def live(self) -> None:
        """A few things, in any order; then all of it is on the disk. Raises: Broken."""
        self._work()
        for action in self._chance.sample((self._give_out, self._unbind, self._delete, self._checkpoint), 3):
            action()
            self._work()
        check_broker(self._broker)

    def compare(self, after: Broker) -> None:
        """What the broker after it found. Raises: Broken."""
        found, left = facts_of(after), facts_of(self._broker)
        if found != left:
            raise Broken(f"the start after the next {difference(found, left)}")
        there, here = _durable_in(after), _durable_in(self._broker)
        lost, more = here.keys() - there.keys(), there.keys() - here.keys()
        now_ns = after.context.clock.monotonic_ns()
        lost = {key for key in lost if not 0 < here[key] <= now_ns + ROUNDED_NS}
        if lost or more:
            raise Broken(f"the start after the next lost {sorted(lost)[:10]}, and brought back {sorted(more)[:10]}")

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
        broker.more_is_safe()

    # -- what it does -------------------------------------------------------------------------------------------------

    def _give_out(self) -> None:
        """All that is ready in some queues; each has its own body. Not of what keeps it, and what others have alone."""
        for queue in self._some_queues(0.5):
            known = self._known.get((queue.vhost_name, queue.name), {})
            vhost = self._broker.virtual_hosts[queue.vhost_name]
            session = Client(vhost, User("alone"), "alone", lambda: None, {}, "").open_session()
            while (message := self._got(session, queue)) is not None:
                key = known.get(message.id)
                if key and message.body[-KEY_SIZE:] != key:
                    raise Broken(f"{queue.name}: {message.id} has the body of another message after a restart")

    def _got(self, session: Any, queue: Queue) -> Any:
        try:
            got = session.get(queue, no_ack=True)
        except EngineError:  # a stream, or it has a single active consumer
            return None
        if got is None:
            self._work()  # what was paged out is loaded
            got = session.get(queue, no_ack=True)
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


def _durable_in(broker: Broker) -> dict[tuple[str, str, int], int]:
    """The messages that a restart finds, where they are, and until when (0: for ever)."""
    found: dict[tuple[str, str, int], int] = {}
    for queue in broker.virtual_hosts.queues():
        aside = (part for part in queue.store.paged_parts() if isinstance(part, Message))
        transient = {one.id for one in chain(queue.messages(), aside) if not queue.stores(one.envelope)}
        for id_, expires_ns in lives_of(queue) if queue.durable else ():
            if id_ not in transient:
                found[queue.vhost_name, queue.name, id_] = expires_ns
    return found
