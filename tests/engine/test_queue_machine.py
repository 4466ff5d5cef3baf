"""Any order of operations against a model that hands out one message at a time (behaviour page 2.7 to 2.15 and 4)."""

from __future__ import annotations

import unittest
from bisect import insort
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from effort import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.engine import (
    Broker,
    Client,
    Consumer,
    ConsumerCancelled,
    Delivered,
    Envelope,
    Event,
    ManualClock,
    PublishedEvent,
    Session,
    User,
)
from leveret.engine.errors import NotTransactional, UnknownDeliveryTag
from leveret.engine.events import TERMINAL, EventKind
from leveret.engine.messages.content import NATIVE, encode_header

CLIENTS, SESSIONS_A_CLIENT = 3, 2
NAMES = ("a", "b")
USER = User("guest")
UNLIMITED = 10**9

#: Event -> the counter that must count it.
COUNTED = {
    EventKind.ENQUEUED: "enqueued",
    EventKind.DELIVERED: "delivered",
    EventKind.REQUEUED: "requeued",
    EventKind.ACKED: "acknowledged",
    EventKind.KILLED: "killed",
    EventKind.PURGED: "purged",
    EventKind.DELETED: "deleted",
}

#: Settled in the order in which the consumer said so; everything else names messages oldest first.
IN_ANY_ORDER = frozenset({EventKind.ACKED, EventKind.KILLED})


# -- the model ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class ModelConsumer:
    """A subscription: what it holds, and what it must get in this turn."""

    session: ModelSession
    queue: ModelQueue
    tag: str
    no_ack: bool
    prefetch: int
    out: int = 0
    expected: list[tuple[int, bool]] = field(default_factory=list)

    def credit(self) -> int:
        """How many more it may be given."""
        session = self.session
        if session.is_paused[0] or not session.flowing:
            return 0
        if self.no_ack:  # waits as the others do while they have all that they share
            return UNLIMITED if not session.total or session.out < session.total else 0
        own = self.prefetch - self.out if self.prefetch else UNLIMITED
        return min(own, session.total - session.out) if session.total else own


@dataclass(eq=False)
class ModelQueue:
    """Ten lines of queue: a sorted list, a consumer list, and one message at a time."""

    name: str
    auto_delete: bool
    ready: list[int] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)  # handed out before
    consumer_list: deque[ModelConsumer] = field(default_factory=deque)
    unacked: int = 0
    deleted: bool = False

    def dispatch(self) -> None:
        """To the first in the consumer list with credit, while there is one."""
        while self.ready:
            index = next((index for index, consumer in enumerate(self.consumer_list) if consumer.credit() > 0), None)
            if index is None:
                return
            consumer = self.consumer_list[index]
            self.consumer_list.rotate(-index - 1)
            number = self.ready.pop(0)
            consumer.expected.append((number, number in self.seen))
            self.hand_out(number, consumer)

    def hand_out(self, number: int, consumer: ModelConsumer | None) -> None:
        """A delivery, by consumer or (None) get with acknowledgement."""
        self.seen.add(number)
        if consumer is None or not consumer.no_ack:
            self.unacked += 1
        if consumer is not None and not consumer.no_ack:
            consumer.out += 1
            consumer.session.out += 1


@dataclass
class Outstanding:
    """What a delivery tag stands for."""

    queue: ModelQueue
    number: int
    consumer: ModelConsumer | None


@dataclass
class ModelTransaction:
    """What waits for the commit."""

    publishes: list[tuple[list[str], list[int]]] = field(default_factory=list)
    acked: list[Outstanding] = field(default_factory=list)
    rejected: list[tuple[list[Outstanding], bool]] = field(default_factory=list)
    tags: dict[int, Outstanding] = field(default_factory=dict)


@dataclass(eq=False)
class ModelSession:
    """One numbering of deliveries."""

    is_paused: list[bool]  # shared by the client's sessions
    next_tag: int = 1
    unacked: dict[int, Outstanding] = field(default_factory=dict)
    consumers: dict[str, ModelConsumer] = field(default_factory=dict)
    prefetch: int = 0
    total: int = 0
    out: int = 0
    flowing: bool = True
    transaction: ModelTransaction | None = None


# -- the machine ----------------------------------------------------------------------------------------------------

sessions = st.integers(0, CLIENTS * SESSIONS_A_CLIENT - 1)
names = st.sampled_from(NAMES)
counts = st.sampled_from((1, 1, 2, 3, 5, 8, 70, 200))
picks = st.integers(0, 1 << 16)
prefetches = st.sampled_from((None, 0, 1, 2, 5))
limits = st.sampled_from((0, 1, 2, 3, 10))


class QueueMachine(RuleBasedStateMachine):
    """Two queues, three clients with two sessions each, and everything that can be done to them."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count(1)
        self.places: dict[int, int] = {}  # of numbers, in the order of arrival: a transaction's arrive at its commit
        self.tags = count(1)
        self.queues: dict[str, ModelQueue] = {}
        self.events_seen: dict[tuple[str, int], dict[EventKind, Counter[int]]] = defaultdict(
            lambda: defaultdict(Counter)
        )
        self.generation: Counter[str] = Counter()
        self.number_of_id: dict[int, int] = {}
        self.order_problems: list[str] = []
        self.arrived: dict[int, list[Any]] = defaultdict(list)  # client -> effects of this turn
        self.several = False  # several consumers gave back in this turn

    @initialize(
        one_queue_a_session=st.booleans(),
        unsent_max=st.sampled_from((1 << 40, 1 << 40, 150)),
        totals=st.lists(st.tuples(sessions, limits), max_size=2),
        backlog=st.sampled_from((0, 6, 6)),
        consumers=st.lists(st.tuples(sessions, names, st.booleans(), prefetches), max_size=6),
    )
    def start(
        self,
        one_queue_a_session: bool,
        unsent_max: int,
        totals: list[tuple[int, int]],
        backlog: int,
        consumers: list[tuple[int, str, bool, int | None]],
    ) -> None:
        """A shared limit over two queues, or clients that fill up, leave more than one right answer: see `exact`."""
        self.one_queue_a_session = one_queue_a_session
        self.exact = one_queue_a_session and unsent_max > 150
        self.broker = Broker(ManualClock(), unsent_max=unsent_max)
        self.broker.context.listeners.append(self.listen)
        self.vhost = self.broker.virtual_hosts["/"]
        self.clients: list[Client] = []
        self.engine: list[Session] = []
        self.model: list[ModelSession] = []
        for index in range(CLIENTS):
            self.connect(index)
        for name in NAMES:
            self.declare(name, False)
        for index, limit in totals:
            self.limit_total(index, limit)
        if backlog:
            self.publish(0, [("both", backlog)])
        for consumer in consumers:
            self.consume(*consumer)

    def connect(self, index: int) -> None:
        """A client with its sessions, in the place of one that is gone."""
        client = self.broker.connections.open("/", USER, name=f"client {index}", flush=lambda: self.flush(index))
        paused = [False]
        place = slice(index * SESSIONS_A_CLIENT, (index + 1) * SESSIONS_A_CLIENT)
        self.clients[index : index + 1] = [client]
        self.engine[place] = [client.open_session() for _ in range(SESSIONS_A_CLIENT)]
        self.model[place] = [ModelSession(paused) for _ in range(SESSIONS_A_CLIENT)]

    def flush(self, index: int) -> None:
        """What the frontend does: take everything, send it, say that it is sent (unless the test paused the client)."""
        client = self.clients[index]
        self.arrived[index] += client.take_outbox()
        if not self.model[index * SESSIONS_A_CLIENT].is_paused[0]:
            client.drained()

    def listen(self, event: Event) -> None:
        """Books: every message event by (queue, generation), kind and id."""
        kind, name = event.kind, event.subject
        if kind is EventKind.DECLARED:
            self.generation[name] += 1
        elif isinstance(event, PublishedEvent):
            for id_, content in zip(event.messages, event.contents):
                self.number_of_id[id_] = int(NATIVE.split(content)[1])
        elif kind in COUNTED or kind in TERMINAL:
            book = self.events_seen[name, self.generation[name]]
            if kind not in IN_ANY_ORDER and list(event.messages) != sorted(event.messages):
                self.order_problems.append(f"{kind}: {list(event.messages)}")
            for id_ in event.messages:
                number = self.number_of_id[id_]
                book[kind][number] += 1
                if kind is EventKind.ENQUEUED:
                    assert book[kind][number] == 1, f"{number} enqueued twice in {name}"
                else:
                    assert book[EventKind.ENQUEUED][number], f"{number}: {kind} without enqueued in {name}"
                if kind is not EventKind.ENQUEUED:
                    terminal = sum(book[each][number] for each in TERMINAL)
                    assert terminal <= (kind in TERMINAL), f"{number} in {name}: {kind} after the end"

    # -- the end of a turn ------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """The engine's turn ends; what came to the consumers is compared with the model."""
        while self.broker.end_turn():
            pass
        effects = [effect for index in range(CLIENTS) for effect in self.arrived.pop(index, ())]
        got: dict[Consumer, list[tuple[int, bool]]] = defaultdict(list)
        new_tags: dict[Session, list[tuple[int, Consumer, int]]] = defaultdict(list)
        for effect in effects:
            if isinstance(effect, Delivered):
                consumer = effect.consumer
                assert isinstance(consumer, Consumer)
                for tag, content in enumerate(effect.contents, effect.first_tag):
                    number = int(NATIVE.split(content)[1])
                    got[consumer].append((number, effect.redelivered))
                    new_tags[consumer.session].append((tag, consumer, number))
        if self.exact:
            for queue in self.queues.values():
                queue.dispatch()
        else:
            self.adopt(got)
        for session, model in zip(self.engine, self.model):
            for consumer in session.consumers.values():
                of_model = model.consumers[consumer.tag]
                assert got.pop(consumer, []) == of_model.expected, "not what one message at a time gives"
                of_model.expected.clear()
        assert not got, "deliveries to somebody who is gone"
        for session, model in zip(self.engine, self.model):
            for tag, consumer, number in sorted(new_tags.pop(session, ()), key=lambda each: each[0]):
                assert tag == model.next_tag, "delivery tags have no gaps"
                model.next_tag += 1
                if not consumer.no_ack:
                    of_model = model.consumers[consumer.tag]
                    model.unacked[tag] = Outstanding(of_model.queue, number, of_model)
                    assert not of_model.prefetch or of_model.out <= of_model.prefetch, "prefetch exceeded"
                    assert not model.total or model.out <= model.total, "shared prefetch exceeded"
        for cancelled in effects:
            if isinstance(cancelled, ConsumerCancelled):
                assert cancelled.consumer.queue.deleted
        for queue in self.queues.values():
            assert not queue.ready or all(consumer.credit() <= 0 for consumer in queue.consumer_list), (
                "credit left unused"
            )

    def adopt(self, got: dict[Consumer, list[tuple[int, bool]]]) -> None:
        """More than one hand-out is right: take the engine's, if it took the oldest and each consumer sees an order."""
        taken: dict[ModelQueue, list[int]] = defaultdict(list)
        for consumer, deliveries in got.items():
            model = self.model[self.engine.index(consumer.session)].consumers[consumer.tag]
            numbers = [number for number, _ in deliveries]
            if not self.several:
                assert numbers == sorted(numbers, key=self.places.__getitem__), (
                    "a consumer sees the order of publishing"
                )
            assert model.queue.ready, "from an empty queue"
            for number, redelivered in deliveries:
                assert redelivered is (number in model.queue.seen)
                model.queue.hand_out(number, model)
            model.expected += deliveries
            taken[model.queue] += numbers
        for queue, numbers in taken.items():
            if self.several:
                queue.ready = [number for number in queue.ready if number not in numbers]
                continue
            assert sorted(numbers, key=self.places.__getitem__) == queue.ready[: len(numbers)], "not the oldest"
            del queue.ready[: len(numbers)]
        self.several = False

    # -- in ---------------------------------------------------------------------------------------------------------

    @rule(name=names, auto_delete=st.booleans())
    def declare(self, name: str, auto_delete: bool) -> None:
        """queue.declare; both queues hang on the fanout exchange, too."""
        if name not in self.queues:
            self.vhost.queues.declare(name, client=self.clients[0], auto_delete=auto_delete)
            self.vhost.bindings.add("queue", name, "amq.fanout", "", {})
            self.queues[name] = ModelQueue(name, auto_delete)

    @rule(index=sessions, runs=st.lists(st.tuples(st.sampled_from((*NAMES, "both")), counts), min_size=1, max_size=4))
    def publish(self, index: int, runs: list[tuple[str, int]]) -> None:
        """Several runs in one turn, to one queue or to both."""
        session, model = self.engine[index], self.model[index]
        for target, size in runs:
            numbers = [next(self.numbers) for _ in range(size)]
            exchange, key = ("amq.fanout", "") if target == "both" else ("", target)
            contents = [_content(number) for number in numbers]
            returned = session.publish(
                self.vhost.router.route(exchange, key, USER), Envelope(exchange, key), contents, mandatory=True
            )
            if model.transaction is not None:
                assert not returned
                model.transaction.publishes.append((self.chosen(target), numbers))
            else:
                assert _numbers(returned) == self.enqueue(self.chosen(target), numbers)
        self.turn()

    def chosen(self, target: str) -> list[str]:
        """The queues that are there for a publish."""
        return [name for name in NAMES if name in self.queues and target in (name, "both")]

    def enqueue(self, chosen: list[str], numbers: list[int]) -> list[int]:
        """To the model; returns what no queue takes."""
        for number in numbers:
            self.places[number] = len(self.places)
        targets = [self.queues[name] for name in chosen if name in self.queues]
        for queue in targets:
            queue.ready += numbers
            if self.exact:
                queue.dispatch()
        return [] if targets else numbers

    # -- out --------------------------------------------------------------------------------------------------------

    @rule(index=sessions, name=names, no_ack=st.booleans(), prefetch=prefetches)
    def consume(self, index: int, name: str, no_ack: bool, prefetch: int | None) -> None:
        """basic.consume, perhaps with a basic.qos before it."""
        if self.one_queue_a_session:
            name = NAMES[index % 2]
        queue, session, model = self.queues.get(name), self.engine[index], self.model[index]
        if queue is None or len(queue.consumer_list) > 5:
            return
        if prefetch is not None:
            session.set_prefetch(prefetch, total=False)
            model.prefetch = prefetch
            model.total = 0
        tag = f"c{next(self.tags)}"
        session.consume(self.vhost.queues.named(name), tag, no_ack=no_ack, exclusive=False, arguments={})
        model.consumers[tag] = consumer = ModelConsumer(model, queue, tag, no_ack, model.prefetch)
        queue.consumer_list.append(consumer)
        self.turn()

    @rule(index=sessions, limit=limits)
    def limit_total(self, index: int, limit: int) -> None:
        """basic.qos(global)."""
        self.engine[index].set_prefetch(limit, total=True)
        self.model[index].total = limit
        self.turn()

    @rule(index=sessions, pick=picks)
    def cancel(self, index: int, pick: int) -> None:
        """basic.cancel; unknown tags are fine."""
        model = self.model[index]
        tag = _pick(list(model.consumers), pick)
        assert self.engine[index].cancel(tag or "unknown") is (tag is not None)
        if tag is not None:
            self.leave(model, tag)
        self.turn()

    def leave(self, model: ModelSession, tag: str) -> None:
        """The model's cancel."""
        consumer = model.consumers.pop(tag)
        queue = consumer.queue
        queue.consumer_list.remove(consumer)
        if queue.auto_delete and not queue.consumer_list:
            self.gone(queue)

    def gone(self, queue: ModelQueue) -> None:
        """The model's queue.delete."""
        queue.deleted = True
        queue.ready.clear()
        queue.unacked = 0
        for consumer in queue.consumer_list:
            del consumer.session.consumers[consumer.tag]
        queue.consumer_list.clear()
        del self.queues[queue.name]

    @rule(index=sessions, name=names, no_ack=st.booleans())
    def get(self, index: int, name: str, no_ack: bool) -> None:
        """basic.get, whatever the prefetch."""
        queue, model = self.queues.get(name), self.model[index]
        if queue is None:
            return
        got = self.engine[index].get(self.vhost.queues.named(name), no_ack=no_ack)
        if not queue.ready:
            assert got is None
            return
        assert got is not None
        tag, message, redelivered, left = got
        number = queue.ready.pop(0)
        assert (tag, int(message.body), redelivered, left) == (
            model.next_tag,
            number,
            number in queue.seen,
            len(queue.ready),
        )
        model.next_tag += 1
        queue.seen.add(number)
        if not no_ack:
            queue.hand_out(number, None)
            model.unacked[tag] = Outstanding(queue, number, None)
        self.turn()

    @rule(index=sessions, other=sessions, name=names, turns=st.lists(st.booleans(), min_size=2, max_size=6))
    def get_in_turn(self, index: int, other: int, name: str, turns: list[bool]) -> None:
        """Two sessions get from one queue, so that what each holds has gaps that the other fills."""
        for is_first in turns:
            self.get(index if is_first else other, name, False)

    # -- settling ---------------------------------------------------------------------------------------------------

    def take(self, model: ModelSession, tag: int, multiple: bool) -> list[Outstanding]:
        """The model's tags; raises KeyError for unknown ones."""
        if multiple:
            if tag and tag not in model.unacked:
                raise KeyError(tag)
            tags = [each for each in model.unacked if not tag or each <= tag]
        else:
            tags = [tag]
        taken = {each: model.unacked.pop(each) for each in tags}
        if model.transaction is not None:
            model.transaction.tags.update(taken)
        return list(taken.values())

    def release(self, model: ModelSession, settled: Sequence[Outstanding], *, requeue: bool = False) -> None:
        """The model's end of deliveries."""
        for each in settled:
            if each.consumer is not None:
                each.consumer.out -= 1
                model.out -= 1
            if not each.queue.deleted:
                each.queue.unacked -= 1
                if requeue:
                    insort(each.queue.ready, each.number, key=self.places.__getitem__)

    def settled(self, model: ModelSession, settled: Sequence[Outstanding], *, requeue: bool) -> None:
        """What is given back comes back consumer by consumer, what was got first; in between is a hand-out."""
        groups: dict[tuple[str, str, int], list[Outstanding]] = defaultdict(list)
        for position, each in enumerate(settled):
            tag, own = ("", position) if each.consumer is None else (each.consumer.tag, 0)
            groups[each.queue.name, tag, own].append(each)
        self.several = self.several or (requeue and len(groups) > 1)
        for _, group in sorted(groups.items()):
            self.release(model, group, requeue=requeue)
            if requeue and self.exact:
                group[0].queue.dispatch()

    @rule(index=sessions, pick=picks, multiple=st.booleans(), how=st.sampled_from(("ack", "requeue", "kill")))
    def settle(self, index: int, pick: int, multiple: bool, how: str) -> None:
        """basic.ack, nack or reject of an outstanding tag, or of all up to it."""
        model = self.model[index]
        tag = _pick(list(model.unacked), pick)
        if tag is not None:
            self.settle_tag(index, tag, multiple, how)

    @rule(index=sessions, how=st.sampled_from(("ack", "requeue", "kill")))
    def settle_all(self, index: int, how: str) -> None:
        """Tag 0 with multiple is everything; nothing outstanding is fine."""
        self.settle_tag(index, 0, True, how)

    @rule(index=sessions, pick=st.integers(0, 400), multiple=st.booleans(), how=st.sampled_from(("ack", "requeue")))
    def settle_any(self, index: int, pick: int, multiple: bool, how: str) -> None:
        """Any tag: an unknown one is refused and changes nothing."""
        self.settle_tag(index, pick, multiple, how)

    def settle_tag(self, index: int, tag: int, multiple: bool, how: str) -> None:
        """The same to the engine and to the model."""
        session, model = self.engine[index], self.model[index]
        try:
            settled = self.take(model, tag, multiple)
        except KeyError:
            with pytest.raises(UnknownDeliveryTag):
                if how == "ack":
                    session.ack(tag, multiple=multiple)
                else:
                    session.reject(tag, multiple=multiple, requeue=True)
            return
        if how == "ack":
            session.ack(tag, multiple=multiple)
        else:
            session.reject(tag, multiple=multiple, requeue=how == "requeue")
        if model.transaction is None:
            self.settled(model, settled, requeue=how == "requeue")
        elif how == "ack":
            model.transaction.acked += settled
        else:
            model.transaction.rejected.append((settled, how == "requeue"))
        self.turn()

    @rule(index=sessions, order=st.lists(picks, min_size=1, max_size=8), wrong=st.booleans())
    def settle_each(self, index: int, order: list[int], wrong: bool) -> None:
        """A run of single acks: what stands before an unknown tag is settled."""
        session, model = self.engine[index], self.model[index]
        left = list(model.unacked)
        tags = [left.pop(pick % len(left)) for pick in order if left]
        settled = [model.unacked.pop(tag) for tag in tags]
        if model.transaction is not None:
            model.transaction.tags.update(zip(tags, settled))
            model.transaction.acked += settled
        else:
            self.release(model, settled)
        if wrong:
            with pytest.raises(UnknownDeliveryTag):
                session.ack_each([*tags, 10**6, *left[:1]])
        else:
            session.ack_each(tags)
        self.turn()

    @rule(index=sessions)
    def recover(self, index: int) -> None:
        """basic.recover: all that is outstanding, but not what waits for a commit."""
        self.engine[index].recover()
        model = self.model[index]
        settled = list(model.unacked.values())
        model.unacked.clear()
        self.settled(model, settled, requeue=True)
        self.turn()

    def requeue_all(self, model: ModelSession) -> None:
        """The end of a session: all of it comes back at once."""
        settled = list(model.unacked.values())
        model.unacked.clear()
        self.release(model, settled, requeue=True)

    # -- transactions -----------------------------------------------------------------------------------------------

    @rule(index=sessions)
    def tx_select(self, index: int) -> None:
        """tx.select, any number of times."""
        self.engine[index].select_transactions()
        if self.model[index].transaction is None:
            self.model[index].transaction = ModelTransaction()

    @rule(index=sessions)
    def commit(self, index: int) -> None:
        """tx.commit: publishes, then acknowledgements."""
        session, model = self.engine[index], self.model[index]
        if model.transaction is None:
            with pytest.raises(NotTransactional):
                session.commit()
            return
        transaction, model.transaction = model.transaction, ModelTransaction()
        unroutable = [number for chosen, run in transaction.publishes for number in self.enqueue(chosen, run)]
        self.release(model, transaction.acked)
        for settled, requeue in transaction.rejected:
            self.settled(model, settled, requeue=requeue)
        assert _numbers(session.commit().outcome()) == unroutable
        self.turn()

    @rule(index=sessions)
    def roll_back(self, index: int) -> None:
        """tx.rollback: acknowledged tags are outstanding again, publishes are forgotten."""
        session, model = self.engine[index], self.model[index]
        if model.transaction is None:
            with pytest.raises(NotTransactional):
                session.roll_back()
            return
        session.roll_back()
        model.unacked = dict(sorted({**model.unacked, **model.transaction.tags}.items(), key=lambda item: item[0]))
        model.transaction = ModelTransaction()
        self.turn()

    # -- stops ------------------------------------------------------------------------------------------------------

    @rule(index=sessions, flowing=st.booleans())
    def flow(self, index: int, flowing: bool) -> None:
        """channel.flow."""
        self.engine[index].set_flowing(flowing)
        self.model[index].flowing = flowing
        self.turn()

    @rule(index=st.integers(0, CLIENTS - 1))
    def pause(self, index: int) -> None:
        """The client stops reading."""
        self.clients[index].paused = True
        self.model[index * SESSIONS_A_CLIENT].is_paused[0] = True

    @rule(index=st.integers(0, CLIENTS - 1))
    def drain(self, index: int) -> None:
        """Everything went out."""
        self.model[index * SESSIONS_A_CLIENT].is_paused[0] = False
        self.clients[index].drained()
        self.turn()

    # -- ends -------------------------------------------------------------------------------------------------------

    @rule(name=names)
    def purge(self, name: str) -> None:
        """queue.purge takes what is ready."""
        queue = self.queues.get(name)
        if queue is not None:
            assert self.vhost.queues.purge(name, self.clients[0]) == len(queue.ready)
            queue.ready.clear()
            self.turn()

    @precondition(lambda self: len(self.queues) == len(NAMES))
    @rule(name=names)
    def delete(self, name: str) -> None:
        """queue.delete returns how many were ready; its consumers hear of it."""
        queue = self.queues[name]
        assert self.vhost.queues.delete(name, self.clients[0]) == len(queue.ready)
        self.gone(queue)
        self.turn()

    def end_session(self, model: ModelSession) -> None:
        """The model's end of a session: rollback, requeue, cancel."""
        if model.transaction is not None:
            model.unacked.update(model.transaction.tags)
            model.transaction = None
        self.requeue_all(model)
        for tag in list(model.consumers):
            if tag in model.consumers:
                self.leave(model, tag)

    @rule(index=sessions)
    def close_session(self, index: int) -> None:
        """channel.close, and the number is opened again."""
        self.engine[index].close()
        self.end_session(self.model[index])
        self.engine[index] = self.clients[index // SESSIONS_A_CLIENT].open_session()
        self.model[index] = ModelSession(self.model[index].is_paused)
        self.turn()

    @rule(index=st.integers(0, CLIENTS - 1))
    def close_client(self, index: int) -> None:
        """The connection is gone; another one takes its place."""
        self.clients[index].close()
        for model in self.model[index * SESSIONS_A_CLIENT : (index + 1) * SESSIONS_A_CLIENT]:
            self.end_session(model)
        self.arrived.pop(index, None)
        self.connect(index)
        self.turn()

    # -- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def queues_are_as_the_model_says(self) -> None:
        """Ready lists by publish order, numbers of unacked, rota."""
        if not hasattr(self, "vhost"):
            return
        assert set(self.vhost.queues) == set(self.queues)
        for name, model in self.queues.items():
            queue = self.vhost.queues[name]
            ids = [message.id for message in queue.store]
            assert ids == sorted(set(ids)), "ready messages stand in publish order"
            assert [self.number_of_id[id_] for id_ in ids] == model.ready
            assert queue.unacked == model.unacked
            assert {consumer.tag for consumer in queue.consumers} == {consumer.tag for consumer in model.consumer_list}
        for session, of_model in zip(self.engine, self.model):
            assert list(session.unacked) == list(of_model.unacked)
            assert session.unacked_by_consumers == of_model.out

    @invariant()
    def messages_are_conserved(self) -> None:
        """Enqueued without a terminal event: it is ready or out now. And the counters count the events."""
        assert not self.order_problems
        here: dict[tuple[str, int], list[int]] = defaultdict(list)
        for name, queue in self.queues.items():
            here[name, self.generation[name]] += queue.ready
        for model in getattr(self, "model", ()):
            held = [*model.unacked.values(), *(model.transaction.tags.values() if model.transaction else ())]
            for each in held:
                if not each.queue.deleted:
                    here[each.queue.name, self.generation[each.queue.name]].append(each.number)
        for key, book in self.events_seen.items():
            ended = {number for kind in TERMINAL for number in book[kind]}
            assert set(book[EventKind.ENQUEUED]) - ended == set(here[key]), f"messages of {key} were lost"
            assert len(here[key]) == len(set(here[key])), f"messages of {key} are there twice"
        for name in self.queues:
            book = self.events_seen[name, self.generation[name]]
            counters = self.vhost.queues[name].counters.as_dict()
            for kind, counter in COUNTED.items():
                assert counters[counter] == book[kind].total(), f"{counter} of {name}"

    @invariant()
    def statistics_add_up(self) -> None:
        """The broker's totals are those of all queues, the deleted ones included."""
        if not hasattr(self, "broker"):
            return
        totals: Counter[EventKind] = Counter()
        for book in self.events_seen.values():
            for kind, numbers in book.items():
                totals[kind] += numbers.total()
        statistics = self.broker.statistics()
        for kind, counter in COUNTED.items():
            assert statistics.counters[counter] == totals[kind], counter
        assert statistics.ready == sum(len(queue.ready) for queue in self.queues.values())
        assert statistics.unacked == sum(queue.unacked for queue in self.queues.values())

    def teardown(self) -> None:
        """After the last connection nothing is out."""
        if hasattr(self, "clients"):
            for client in self.clients:
                client.close()
            while self.broker.end_turn():
                pass  # of very many deliveries a slice is given back in each turn
            assert self.broker.statistics().unacked == 0
            assert not self.broker.connections and not self.broker.context.touched


def _content(number: int) -> bytes:
    body = b"%d" % number
    return NATIVE.join(encode_header(len(body)), body)


def _numbers(returned: Sequence[tuple[Envelope, Sequence[bytes]]]) -> list[int]:
    return [int(NATIVE.split(content)[1]) for _, contents in returned for content in contents]


def _pick(things: list[Any], pick: int) -> Any:
    return things[pick % len(things)] if things else None


QueueMachine.TestCase.settings = settings(
    max_examples=examples(250),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class TestQueueMachine(QueueMachine.TestCase, unittest.TestCase):  # type: ignore[misc,valid-type]
    """Hypothesis looks for an order of operations in which engine and model part."""
