"""A broker whose messages may all have to leave memory, on virtual time, and books of what it tells. No files.

For tests that compare what queues do in memory with what they do where all that can be is paged out and metered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, NamedTuple

from depth_world import DepthWorld

from leveret.engine import (
    BrokerOptions,
    Consumer,
    Envelope,
    Event,
    Message,
    PublishedEvent,
    Queue,
)
from leveret.engine.delivery.consumer import holder_of
from leveret.engine.events import TERMINAL, EventKind
from leveret.engine.invariants import check_broker
from leveret.engine.messages.content import PropertySummary
from leveret.engine.messages.field_table import FieldTable
from leveret.engine.messages.levels import ONE_LEVEL
from leveret.engine.queues.queue_events import AckedEvent, LeftEvent, RequeuedEvent, ScheduledEvent
from leveret.engine.stores.tail_io import runs_of
from leveret.settings import SettingsRepository, SystemUsage, entry
from leveret.testing.harness import messages
from leveret.testing.memory_pager import MemoryTempStore

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


class QueueWorld(DepthWorld):
    """A world without a journal. `memory`: octets that messages may take; None: nothing is metered, either.

    `temp`: the temp store; `published`: all that was, by id.
    """

    checks = True
    has_journal = False
    memory_limits = MEMORY_LIMITS

    def __init__(
        self, arguments: FieldTable, said: dict[str, Any], *, memory: int | None = None, **options: Any
    ) -> None:
        self.others: dict[str, dict[str, Any]] = {}
        usage = None if memory is None else SystemUsage(memory=1 << 40, store=1 << 40, temp=1 << 40)
        self.temp = MemoryTempStore(1 << 40)
        self.envelopes: dict[tuple[str, PropertySummary], Envelope] = {}
        self.published: dict[int, tuple[Envelope, bytes]] = {}
        self.events: dict[str, dict[EventKind, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
        self.told: dict[str, Counter[EventKind]] = defaultdict(Counter)
        self.failed: dict[str, Counter[int]] = defaultdict(Counter)  # attempts that count, by queue and id
        super().__init__(arguments, said, memory=memory, options=BrokerOptions(system_usage=usage), **options)

    def begin(self) -> None:
        super().begin()
        self.broker.context.listeners.append(self.listen)
        if self.memory is not None:
            self.broker.context.storage.open_temp = lambda: self.temp

    @property
    def queues(self) -> list[Queue]:
        """All that are there."""
        return list(self.vhost.queues.values())

    def repository(self) -> SettingsRepository:
        others = [entry(name, **of) for name, of in self.others.items()]
        return SettingsRepository([*super().repository().entries, *others])

    def configure(self, said: dict[str, Any], **others: dict[str, Any]) -> None:
        """Other settings from now on, of `q` and of other queues by name."""
        self.others = others
        super().configure(said)

    # -- what is told ---------------------------------------------------------------------------------------------

    @staticmethod
    def content(envelope: Envelope, content: bytes) -> Any:
        return envelope.framing.split(content)[1].rstrip(b"\0"), sorted(envelope.headers(content)), envelope.routing_key

    def listen(self, event: Event) -> None:
        """The books; the pager has what was published."""
        if isinstance(event, PublishedEvent):
            self.published.update((id_, (event.run, content)) for id_, content in zip(event.messages, event.contents))
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

    # -- messages -------------------------------------------------------------------------------------------------

    def write(self, bodies: list[bytes], properties: dict[str, Any], key: str = "q.x", session: int = 2) -> None:
        """A run of messages that are alike."""
        self.publish(*bodies, key=key, exchange="e", by=self.sessions[session], **properties)

    def envelope(self, exchange: str, key: str, summary: PropertySummary) -> Envelope:
        """One for all that are alike, as frontends have them."""
        return self.envelopes.setdefault((key, summary), Envelope(exchange, key, summary))

    def publish_mixed(self, each: list[tuple[bytes, dict[str, Any]]], name: str = "q") -> None:
        """A run of messages that are not alike, of those that a frontend reads together."""
        made = [messages([body], properties) for body, properties in each]
        envelopes = [Envelope("", name, summary) for summary, _ in made]
        assert all(envelope.is_plain for envelope in envelopes)
        queue = self.route(name).only_queue
        assert queue is not None
        self.sessions[2].publish_mixed([queue] * len(made), envelopes, [content for _, (content,) in made])

    def join(
        self, tag: str, name: str = "q", *, no_ack: bool = False, key: bytes | None = None, **how: Any
    ) -> Consumer:  # fmt: skip
        """A subscription. `key`: to messages whose header `k` is that, and to no others."""
        if key is not None:
            how["x_filter"] = f"k = '{key.decode()}'"
        return super().join(tag, name, no_ack=no_ack, **how)

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
        return sorted(found) if queue.keeps_acked else found

    def facts(self) -> dict[str, Any]:
        """What is the same wherever messages are."""
        facts: dict[str, Any] = {"seen": self.seen}
        for queue in self.queues:
            facts[queue.name] = {
                "ready": self.ready(queue),
                "waiting": [(due_ns, _look(queue, message)) for due_ns, message in queue.scheduled.entries()],
                "counters": queue.counters.as_dict(),
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
            out = [] if queue.keeps_acked else [_look(queue, message) for message in queue.unacked_messages()]
            ended: Counter[int] = sum((book[kind] for kind in TERMINAL), Counter())
            assert max(ended.values(), default=1) == 1, f"{name}: some left twice: {ended}"
            left = book[EventKind.ENQUEUED].keys() - ended.keys()
            assert sorted(one.id for one in (*ready, *waiting, *out)) == sorted(left), f"{name}: here, and not left"
            counters = queue.counters.as_dict()
            told = {counter: sum(self.told[name][kind] for kind in kinds) for counter, kinds in COUNTED.items()}
            assert {counter: counters[counter] for counter in told} == told, f"{name}: counters, and what was told"
            if not queue.keeps_acked:
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
                assert queue.keeps_acked or not missed, f"{name}: a consumer waits for {missed}"
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
    levels = getattr(queue.store, "levels", None)
    rank = -(ONE_LEVEL if levels is None else levels.mapping).of(message.envelope.summary.priority)
    return Look(message.id, rank, message.expires_ns, message.deliveries - message.uncounted)
