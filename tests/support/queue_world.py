"""A broker whose messages may all have to leave memory, on virtual time, and books of what it tells. No files.

For tests that compare what queues do in memory with what they do where all that can be is paged out and metered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, NamedTuple

from leveret.engine import (
    Broker,
    BrokerOptions,
    Consumer,
    Delivered,
    Envelope,
    Event,
    ManualClock,
    Message,
    PublishedEvent,
    Queue,
    Session,
    User,
)
from leveret.engine.delivery.consumer import holder_of
from leveret.engine.events import TERMINAL, EventKind
from leveret.engine.invariants import check_broker
from leveret.engine.messages.content import PLAIN, PropertySummary, encode_header, scan_properties
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.messages.levels import ONE_LEVEL
from leveret.engine.queues.queue_events import AckedEvent, LeftEvent, RequeuedEvent, ScheduledEvent
from leveret.engine.stores.paging import runs_of
from leveret.settings import SettingsRepository, SystemUsage, entry
from leveret.testing.memory_pager import MemoryPager, MemoryTempStore

USER = User("guest")
MS = 1_000_000
#: Settings that page messages out, and change nothing else here.
MEMORY_LIMITS = frozenset({"memory_limit", "max_size_bytes", "max_size_messages"})
#: What is counted -> the events that say it.
COUNTED = {
    "enqueued": {EventKind.ENQUEUED},
    "delivered": {EventKind.DELIVERED},
    "requeued": {EventKind.REQUEUED},
    "acknowledged": {EventKind.ACKED},
    "expired": {EventKind.EXPIRED},
    "killed": {EventKind.KILLED, EventKind.DEAD_LETTERED},
    "replaced": {EventKind.REPLACED, EventKind.EVICTED},
    "dropped": {EventKind.DROPPED},
    "purged": {EventKind.PURGED},
    "deleted": {EventKind.DELETED},
    "cancelled": {EventKind.CANCELLED},
}


class QueueWorld:
    """Queues `q`, `other` and `dead` behind a topic exchange `e`, and three sessions of one client.

    `memory`: octets that messages may take; None: nothing leaves memory, and nothing is metered.
    `said`: settings of `q`.
    """

    def __init__(
        self,
        arguments: FieldTable,
        said: dict[str, Any],
        *,
        memory: int | None = None,
        durable: bool = True,
        unsent_max: int = 1 << 20,
    ) -> None:
        self.clock = ManualClock()
        self.others: dict[str, dict[str, Any]] = {}
        self.arguments, self.said, self.memory, self.durable = arguments, said, memory, durable
        usage = None if memory is None else SystemUsage(memory=1 << 40, store=1 << 40, temp=1 << 40)
        self.options = BrokerOptions(system_usage=usage)
        self.temp = MemoryTempStore(1 << 40)
        self.envelopes: dict[tuple[str, PropertySummary], Envelope] = {}
        self.published: dict[int, tuple[Envelope, bytes]] = {}  # by id; the pager reads here what it is asked for
        self.broker = Broker(self.clock, settings=self.repository(), options=self.options, unsent_max=unsent_max)
        self.broker.context.listeners.append(self.listen)
        if memory is not None:
            self.broker.context.storage.open_temp = lambda: self.temp
            self.broker.context.storage.pager = pager = MemoryPager(memory)
            pager.journal = self.published
        self.seen: dict[str, list[Any]] = {}
        self.events: dict[str, dict[EventKind, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
        self.told: dict[str, Counter[EventKind]] = defaultdict(Counter)
        self.failed: dict[str, Counter[int]] = defaultdict(Counter)  # attempts that count, by queue and id
        self.is_read = True
        self.client = self.broker.connections.open("/", USER, name="c", flush=self.flush)
        self.sessions: list[Session] = [self.client.open_session() for _ in range(3)]
        self.vhost = self.client.vhost
        self.vhost.exchanges.declare("e", "topic", durable=True)
        for name in ("q", "other", "dead"):
            self.declare(name)
        self.vhost.bindings.add("queue", "other", "e", "q.both", {})
        self.end_turn()

    def declare(self, name: str) -> None:
        """One of the queues, which may have been deleted."""
        arguments, durable = (self.arguments, self.durable) if name == "q" else ({}, True)
        self.vhost.queues.declare(name, client=self.client, durable=durable, arguments=arguments)
        self.vhost.bindings.add("queue", name, "e", f"{name}.#", {})

    @property
    def queue(self) -> Queue:
        """What it is about."""
        return self.vhost.queues.named("q")

    @property
    def queues(self) -> list[Queue]:
        """All that are there."""
        return list(self.vhost.queues.values())

    def repository(self) -> SettingsRepository:
        """The operator's settings; without limits on what is in memory where nothing leaves it."""
        said = self.said
        if self.memory is None:
            said = {key: value for key, value in said.items() if key not in MEMORY_LIMITS}
        others = [entry(name, **of) for name, of in self.others.items()]
        return SettingsRepository([entry("q", **said), *others])

    def configure(self, said: dict[str, Any], **others: dict[str, Any]) -> None:
        """Other settings from now on, of `q` and of other queues by name."""
        self.said, self.others = said, others
        self.broker.reloading.replace_settings(self.repository(), self.options)

    # -- what is told ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """The client reads what was put for it."""
        for effect in self.client.take_outbox():
            if isinstance(effect, Delivered):
                consumer: Any = effect.consumer
                self.seen.setdefault(consumer.tag, []).extend(
                    (effect.redelivered, self.content(envelope, content))
                    for _, envelope, contents in effect.runs()
                    for content in contents
                )
        if self.is_read:
            self.client.drained()

    @staticmethod
    def content(envelope: Envelope, content: bytes) -> Any:
        """What a client sees of a message."""
        return envelope.framing.split(content)[1].rstrip(b"\0"), sorted(envelope.headers(content)), envelope.routing_key

    def listen(self, event: Event) -> None:
        """The books; the pager has what was published."""
        if isinstance(event, PublishedEvent):
            self.published.update((id_, (event.of, content)) for id_, content in zip(event.messages, event.contents))
            return
        self.told[event.subject][event.kind] += len(event.messages)
        if isinstance(event, LeftEvent) and not event.came_in or isinstance(event, AckedEvent) and event.kept:
            return
        if event.kind is EventKind.UNDECLARED:
            for books in (self.events, self.told, self.failed):
                books.pop(event.subject, None)
        elif event.messages:
            self.events[event.subject][event.kind].update(event.messages)
        if isinstance(event, RequeuedEvent | ScheduledEvent) and event.counted:
            self.failed[event.subject].update(event.messages)

    # -- time -----------------------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Until there is nothing to do now, what is due already included. No turn leaves a contradiction."""
        self._end_turn()
        while (due := self.broker.next_deadline_ns()) is not None and due <= self.clock.monotonic_ns():
            self.broker.advance()
            self._end_turn()

    def _end_turn(self) -> None:
        while self.broker.end_turn() or self.broker.scheduler.load() or self.broker.scheduler.hungry:
            check_broker(self.broker)

    def advance(self, ms: int) -> None:
        """Time goes by, and what is due happens in time."""
        until = self.clock.monotonic_ns() + ms * MS
        while (due := self.broker.next_deadline_ns()) is not None and due <= until:
            self.clock.advance_ns(max(0, due - self.clock.monotonic_ns()))
            self.broker.advance()
            self.end_turn()
        self.clock.advance_ns(until - self.clock.monotonic_ns())

    # -- messages -------------------------------------------------------------------------------------------------

    def publish(self, bodies: list[bytes], properties: dict[str, Any], key: str = "q.x", session: int = 2) -> None:
        """A run of messages that are alike."""
        contents = [PLAIN.join(encode_header(len(body), properties), body) for body in bodies]
        facts = scan_properties(PLAIN.split(contents[0])[0][12:])
        route = self.vhost.router.route("e", key, USER)
        envelope = self.envelopes.setdefault((key, facts), Envelope("e", key, facts))  # as frontends have them
        self.sessions[session].publish(route, envelope, contents, mandatory=False)

    def publish_mixed(self, each: list[tuple[bytes, dict[str, Any]]], name: str = "q") -> None:
        """A run of messages that are not alike, of those that a frontend reads together."""
        contents = [PLAIN.join(encode_header(len(body), properties), body) for body, properties in each]
        facts = [scan_properties(PLAIN.split(content)[0][12:]) for content in contents]
        envelopes = [Envelope("", name, of) for of in facts]
        assert all(envelope.is_plain for envelope in envelopes)
        queue = self.vhost.router.route("", name, USER).only_queue
        assert queue is not None
        self.sessions[2].publish_mixed([queue] * len(contents), envelopes, contents)

    def get(self, name: str = "q", *, no_ack: bool = True, who: int = 2) -> Any:
        """What a get gives."""
        got = self.sessions[who].get(self.vhost.queues.named(name), no_ack=no_ack)
        if got is None:
            return None
        tag, message, redelivered, left = got
        return tag, redelivered, left, self.content(message.envelope, message.content)

    def consume(
        self, tag: str, name: str = "q", *, prefetch: int = 0, no_ack: bool = False, total: bool = False, who: int = 0,
        key: bytes | None = None,
    ) -> None:  # fmt: skip
        """A subscription. `key`: to messages whose header `k` is that, and to no others."""
        arguments = {} if key is None else {"x-filter": Field("S", b"k = '%s'" % key)}
        self.sessions[who].limit(prefetch, total=total)
        self.sessions[who].consume(
            self.vhost.queues.named(name), tag, no_ack=no_ack, exclusive=False, arguments=arguments
        )

    def is_wanted(self, consumer: Consumer, id_: int) -> bool:
        """Whether a subscription is to messages like this one."""
        if "x-filter" not in consumer.arguments:
            return True
        envelope, content = self.published[id_]
        key = envelope.headers(content).get("k")
        return key is not None and consumer.arguments["x-filter"].text == f"k = '{key.text}'"

    # -- what there is to compare ---------------------------------------------------------------------------------

    def ready(self, queue: Queue) -> list[Look]:
        """In order of delivery, wherever they are."""
        found = [_look(queue, message) for message in queue.store]
        for part in queue.store.paged_parts():
            if isinstance(part, Message):
                found.append(_look(queue, part))
            else:
                expires = part.expires or [0] * len(part.ids)
                found += [Look(id_, -part.level, due, part.attempts) for id_, due in zip(part.ids, expires[:])]
        return sorted(found) if queue.keeps else found

    def facts(self) -> dict[str, Any]:
        """What is the same wherever messages are."""
        facts: dict[str, Any] = {"seen": self.seen}
        for queue in self.queues:
            facts[queue.name] = {
                "ready": self.ready(queue),
                "waiting": [(due_ns, _look(queue, message)) for due_ns, message in queue.scheduled.entries()],
                "counters": queue.statistics().counters,
            }
        facts["out"] = [
            [(tag, _look(holder_of(message).queue, message)) for tag, message in session.unacked.items()]
            for session in self.sessions
        ]
        return facts

    def check(self, *, is_displaced: bool = False) -> None:
        """What was promised of each queue, after any step. `is_displaced`: some stand elsewhere than they came."""
        check_broker(self.broker)
        now_ns = self.clock.monotonic_ns()
        for queue in self.queues:
            name, book, ready = queue.name, self.events[queue.name], self.ready(queue)
            waiting = [_look(queue, message) for message in queue.scheduled]
            out = [] if queue.keeps else [_look(queue, message) for message in queue.unacked_messages()]
            ended: Counter[int] = sum((book[kind] for kind in TERMINAL), Counter())
            assert max(ended.values(), default=1) == 1, f"{name}: some left twice: {ended}"
            left = book[EventKind.ENQUEUED].keys() - ended.keys()
            assert sorted(one.id for one in (*ready, *waiting, *out)) == sorted(left), f"{name}: here, and not left"
            counters = queue.statistics().counters
            told = {counter: sum(self.told[name][kind] for kind in kinds) for counter, kinds in COUNTED.items()}
            assert {counter: counters[counter] for counter in told} == told, f"{name}: counters, and what was told"
            if not queue.keeps:
                for one in (*ready, *waiting, *out):
                    failed = self.failed[name][one.id]
                    assert one.attempts - (one in out) == failed, f"{name}: {one} failed {failed} times"
            if not is_displaced:
                places = [(one.rank, one.id) for one in ready]
                assert places == sorted(places), f"{name}: not in the order of publishing"
            self._check_contents(queue)
            if not queue.freeze_count and queue.consumer_list.groups is None:
                waiting_ones = [consumer for consumer in queue.consumer_list.served if consumer.credit() > 0]
                missed = [one.id for one in ready if any(self.is_wanted(each, one.id) for each in waiting_ones)]
                assert queue.keeps or not missed, f"{name}: a consumer waits for {missed}"
            assert not 0 < queue.store.next_expiry_ns <= now_ns, f"{name}: a head lives beyond its time"
            soonest = queue.scheduled.next_ns()
            assert soonest is None or soonest > now_ns, f"{name}: one waits beyond its time"

    def _check_contents(self, queue: Queue) -> None:
        """What is paged out can be read where its part says, and is what was published."""
        for part in queue.store.paged_parts():
            if isinstance(part, Message):
                continue
            columns = [part.sizes, *([] if part.expires is None else [part.expires])]
            assert {len(column) for column in columns} == {len(part.ids)}
            runs = runs_of(self.broker.context.storage, part, release=False)
            found = [self.content(envelope, content)[0] for envelope, contents in runs for content in contents]
            assert found == [self.content(*self.published[id_])[0] for id_ in part.ids], queue.name


class Look(NamedTuple):
    """What of a message does not depend on where it is. `rank`: lower ones come first.

    `attempts`: deliveries that count, the one that is out included.
    """

    id: int
    rank: int
    expires_ns: int
    attempts: int


def _look(queue: Queue, message: Message) -> Look:
    levels = getattr(queue.store, "levels", ONE_LEVEL)
    rank = -levels.of(message.envelope.summary.priority)
    return Look(message.id, rank, message.expires_ns, message.deliveries - message.uncounted)
