"""What a queue has in memory stays within its own limit of memory, and within the size of an address that pages.

Queues page E.1, E.4 (row 9), G.E; address-settings page 3.3. Virtual time, a journal and a temp store; the same over
sockets: tests/server/test_memory_caps.py.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from flow_bench import MIB, FlowBench, Publisher
from simulated_files import SimulatedFiles

from leveret.engine import Delivered, Location, Message, PropertySummary, Queue, Route, Session
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.stores import tailed_store
from leveret.journal.recording.temp_store import Chunk, FileTempStore
from leveret.settings import SettingsRepository, SystemUsage, WholeLimits, entry
from leveret.testing.harness import GUEST

KIB = 1024
STORED, TRANSIENT = PropertySummary(persistent=True), PropertySummary()
#: What a message of `numbered` has beside the 1,000 octets of its body.
FRONT = encode_header(1000)
HEADER = len(NATIVE.join(FRONT, b""))


class Bench(FlowBench):
    """Its messages go to a journal, if it `has_journal`, and to a temp store.

    `memory`: octets that messages of all queues may take.
    """

    def __init__(
        self,
        *,
        has_journal: bool = True,
        memory: int = 64 * MIB,
        files: SimulatedFiles | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            open_temp=FileTempStore,
            journal=(files or SimulatedFiles()) if has_journal else None,
            memory=memory if has_journal else None,
            **settings,
        )

    def advance_ms(self, ms: int) -> None:
        """Time passes, and what is due is done."""
        for _ in range(ms // 100):
            self.advance(100)

    def route(self, key: str, exchange: str = "") -> Route:
        """Of prices to a topic exchange."""
        return super().route(key, "amq.topic" if key.startswith("PRICES") else exchange)

    @property
    def temp_used(self) -> int:
        return self.broker.context.storage.temp.used


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Messages of 1,000 octets of body."""
    return [NATIVE.join(FRONT, b"%01000d" % number) for number in range(first, first + count)]


def number_of(body: bytes) -> int:
    return int(body)


def in_memory(queue: Queue) -> int:
    """Octets of messages, each of them 1 KiB at least: those that are ready, wait or are out."""
    aside = [part for part in queue.store.paged_parts() if isinstance(part, Message)]
    here = [*queue.messages(), *aside, *queue.unacked_messages()]
    return max(sum(len(one.content) for one in here), KIB * len(here))


def published(bench: Bench, facts: PropertySummary, count: int, first: int = 0) -> Publisher:
    """One publisher in runs of 50."""
    bench.summary = facts
    publisher = Publisher(bench, "p")
    messages = numbered(count, first)
    for start in range(0, count, 50):
        publisher.publish(*messages[start : start + 50])
        bench.end_turn()
    return publisher


class Subscriber:
    """A consumer on a connection of its own."""

    def __init__(self, bench: Bench, queue: Queue | None = None, *, prefetch: int) -> None:
        self.bench = bench
        self.client = bench.broker.connections.open("/", GUEST, name="s", flush=self._read)
        self.session: Session = self.client.open_session()
        self.session.set_prefetch(prefetch, total=False)
        self.queue = queue or bench.q
        self.got: list[int] = []
        self.attempts: list[object] = []  # x-delivery-count of each, None without one
        self.most = 0  # octets that were in memory at some time
        self.session.consume(self.queue, "c", no_ack=False, exclusive=False, arguments={})
        bench.end_turn()

    def _read(self) -> None:
        self.most = max(self.most, in_memory(self.queue))
        for effect in self.client.take_outbox():
            assert isinstance(effect, Delivered)
            for _, one, contents in effect.runs():
                for content in contents:
                    self.got.append(number_of(one.framing.split(content)[1]))
                    told = one.headers(content).get("x-delivery-count")
                    self.attempts.append(None if told is None else told.value)
        self.client.drained()

    def ack(self) -> None:
        self.session.ack(0, multiple=True)
        self.bench.end_turn()

    def drain(self) -> None:
        """Acknowledge until there is nothing more."""
        for _ in range(10_000):
            if not self.session.unacked:
                return
            self.ack()
        raise AssertionError("there is no end to it")


@pytest.fixture(params=[True, False], ids=["journal", "memory"])
def has_journal(request: pytest.FixtureRequest) -> Iterator[bool]:
    """With a data directory and without."""
    yield request.param


LIMIT = 200 * KIB
#: Of that, what is in memory: 70 %, and the low mark where publishers wait, which is 136 KiB.
CAPS = {True: LIMIT - 64 * KIB, False: LIMIT * 70 // 100}


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("facts", [STORED, TRANSIENT], ids=["stored", "transient"])
def test_where_messages_go_that_leave_memory(has_journal: bool, facts: PropertySummary, holds: bool) -> None:
    """Queues page G.E, row E15: nobody waits, memory keeps to its share, the temp store has the rest, until it is read.

    Stored messages are in the journal anyway.
    """
    bench = Bench(has_journal=has_journal, memory_limit=LIMIT, producer_flow_control=holds)
    publisher = published(bench, facts, 2000)
    assert (publisher.published, publisher.wants) == (2000, type(publisher.wants)())
    cap = CAPS[holds]
    assert cap - 50 * KIB <= in_memory(bench.q) <= cap
    size = HEADER + 1000
    is_spooled = facts is TRANSIENT or not has_journal
    assert bench.temp_used == (2000 * size - bench.q.store.in_memory * size if is_spooled else 0)
    subscriber = Subscriber(bench, prefetch=20)
    subscriber.drain()
    assert subscriber.got == list(range(2000))
    assert subscriber.most <= cap + KIB
    assert (bench.temp_used, in_memory(bench.q)) == (0, 0)
    bench.close()


def test_the_temp_store_is_full(has_journal: bool) -> None:
    """Queues page G.E, row E16: beyond its limit publishers of transient messages wait; what is read makes room."""
    system = SystemUsage(memory=0, store=0, temp=MIB)
    bench = Bench(has_journal=has_journal, system=system, memory_limit=LIMIT, producer_flow_control=False)
    publisher = published(bench, TRANSIENT, 2000)
    size = HEADER + 1000
    assert publisher.published == len(bench.q.store)
    assert MIB <= bench.temp_used <= MIB + 50 * size
    assert CAPS[False] - 50 * KIB <= in_memory(bench.q) <= CAPS[False]
    assert publisher.full is not None
    assert (publisher.full.node.destination, publisher.full.node.limit_name) == ("broker", "temp")
    subscriber = Subscriber(bench, prefetch=20)
    subscriber.drain()
    assert subscriber.got == list(range(2000))
    assert publisher.published == 2000
    assert bench.temp_used == 0
    bench.close()


class Ailing(FileTempStore):
    """Its disk has no room for a while."""

    is_ill = False

    def spool(self, contents: Sequence[bytes]) -> Location | None:
        self._chunk_size = 0  # a file each
        return super().spool(contents)

    def _new_chunk(self) -> Chunk:
        if self.is_ill:
            raise OSError(errno.ENOSPC, "ordered")
        return super()._new_chunk()


@pytest.mark.parametrize("before", [0, 100, 300])
def test_a_temp_store_whose_disk_is_well_again(before: int) -> None:
    """Publishers wait for memory that nobody reads: what stayed there leaves when the disk takes it, and they go on."""
    bench = Bench(has_journal=False, memory_limit=LIMIT)
    temp = Ailing()
    bench.broker.context.storage.open_temp = lambda: temp
    publisher = published(bench, TRANSIENT, before)
    temp.is_ill = True
    publisher.publish(*numbered(2000 - before, before))
    bench.end_turn()
    assert publisher.published < 2000 and publisher.full is not None
    bench.advance_ms(3000)
    assert publisher.published < 2000
    temp.is_ill = False
    for _ in range(5):
        bench.advance_ms(1000)
    assert publisher.published == 2000
    assert in_memory(bench.q) <= CAPS[True]
    subscriber = Subscriber(bench, prefetch=20)
    subscriber.drain()
    assert subscriber.got == list(range(2000))
    assert (bench.temp_used, in_memory(bench.q)) == (0, 0)
    bench.broker.context.clock.advance_ns(5_000_000_000)  # type: ignore[attr-defined]
    assert bench.broker.advance() == 0  # nobody tries any more
    bench.close()


def test_the_cursor_that_keeps_all_in_memory(has_journal: bool) -> None:
    """Queues page G.E, row E01: everything counts, nothing leaves, and publishers wait at the limit."""
    bench = Bench(has_journal=has_journal, memory_limit=LIMIT, cursor="vm")
    publisher = published(bench, STORED, 300)
    assert (publisher.published, bench.q.store.in_memory) == (200, 200)
    assert not bench.q.store.is_deep
    bench.take(200)
    assert publisher.published == 300
    bench.close()


def topic_subscriber(bench: Bench, name: str, prefetch: int) -> Subscriber:
    """A queue of its own at the topic exchange."""
    client = bench.broker.connections.open("/", GUEST, name=name, flush=lambda: None)
    queue = bench.vhost.queues.declare(name, client=client, auto_delete=True)
    bench.vhost.bindings.add("queue", name, "amq.topic", "PRICES.#", {})
    subscriber = Subscriber(bench, queue, prefetch=prefetch)
    return subscriber


@pytest.fixture
def prices(has_journal: bool) -> Iterator[tuple[Bench, Subscriber, Subscriber]]:
    """A slow subscriber and a fast one, each of whose queues may have so much in memory; ten times of it is published.

    Without producer flow control, and without a limit on what is pending.
    """
    bench = Bench(has_journal=has_journal)
    bench.broker.reloading.replace_settings(
        SettingsRepository([entry("#", memory_limit=LIMIT, producer_flow_control=False)]), bench.broker.context.options
    )
    slow, fast = (topic_subscriber(bench, name, prefetch) for name, prefetch in (("slow", 5), ("fast", 0)))
    bench.summary = TRANSIENT
    publisher = Publisher(bench, "p")
    for start in range(0, 2000, 50):
        publisher.publish(*numbered(50, start), to="PRICES.X")
        bench.end_turn()
    assert publisher.published == 2000
    yield bench, slow, fast
    bench.close()


def test_publishers_go_on_when_what_is_out_is_settled(has_journal: bool) -> None:
    """What is out may fill a limit; when it is acknowledged, what is read back in its place does not keep it full."""
    limit = 100 * KIB  # with a low mark of one half
    bench = Bench(has_journal=has_journal, memory_limit=limit)
    assert published(bench, STORED, 1000).published == 1000
    subscriber = Subscriber(bench, prefetch=150)
    assert (len(subscriber.got), bench.q.store.in_memory) == (150, 0)
    publisher = published(bench, STORED, 10, 1000)
    assert publisher.published == 0
    subscriber.session.cancel("c")
    subscriber.ack()
    assert publisher.published == 10
    assert in_memory(bench.q) <= limit // 2
    assert list(map(number_of, bench.take(860))) == list(range(150, 1010))
    bench.close()


def test_what_comes_back_leaves_again(has_journal: bool) -> None:
    """Of messages that were out, no more stays in memory than may, and the rest is in order, and redelivered."""
    bench = Bench(has_journal=has_journal, memory_limit=LIMIT, producer_flow_control=False)
    published(bench, STORED, 1000)
    subscribers = [Subscriber(bench, prefetch=400) for _ in range(2)]
    assert in_memory(bench.q) >= 800 * KIB
    for one in subscribers:
        one.client.close(failed=True)
        bench.end_turn()
    assert in_memory(bench.q) <= CAPS[False]
    assert bench.q.meter is not None
    assert bench.temp_used == (0 if has_journal else bench.q.meter.paged * (HEADER + 1000))
    last = Subscriber(bench, prefetch=10)
    last.drain()
    assert last.got == list(range(1000))
    bench.close()


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-max-length-bytes": Field("l", 100 * MIB)},
        {"x-last-value-key": Field("S", b"k")},
    ],
)
def test_what_stays_in_memory_counts(arguments: FieldTable) -> None:
    """Transient messages of such queues: publishers wait at the limit."""
    bench = Bench()
    bench.broker.reloading.replace_settings(
        SettingsRepository([entry("#", memory_limit=LIMIT)]), bench.broker.context.options
    )
    queue = bench.vhost.queues.declare("other", client=None, durable=True, arguments=arguments)
    publisher = Publisher(bench, "p")
    publisher.publish(*numbered(300), to="other")
    bench.end_turn()
    assert 200 <= publisher.published == len(queue.store) <= 202
    assert in_memory(queue) >= 200 * KIB
    bench.close()


def test_a_slow_subscriber_and_a_fast_one(prices: tuple[Bench, Subscriber, Subscriber]) -> None:
    """Queues page G.E, row E29: the fast one has all at once; the slow one's backlog is in the temp store, in order."""
    bench, slow, fast = prices
    assert fast.got == list(range(2000))
    assert slow.got == list(range(5))
    assert bench.temp_used >= (2000 - 200) * 1000
    assert in_memory(slow.queue) <= CAPS[False]
    slow.drain()
    assert slow.got == list(range(2000))
    assert bench.temp_used == 0


def test_a_slow_subscriber_dies(prices: tuple[Bench, Subscriber, Subscriber]) -> None:
    """Queues page G.E, row E30: its queue goes, and so does what was in the temp store."""
    bench, slow, _ = prices
    assert bench.temp_used > 0
    slow.client.close(failed=True)
    bench.end_turn()
    assert "slow" not in bench.vhost.queues
    assert bench.temp_used == 0


@pytest.mark.parametrize(
    "limits",
    [
        {"max_size_bytes": LIMIT},
        {"max_size_messages": 100},
        {"max_size_bytes": LIMIT, "max_size_messages": 100},
        {"max_size_bytes": 0},
        {"max_size_messages": 0},
    ],
)
def test_an_address_that_pages(has_journal: bool, limits: dict[str, int]) -> None:
    """Address-settings page 3.3: nobody waits, and no more than its size is in memory; 0 pages all."""
    bench = Bench(has_journal=has_journal, **limits)
    assert published(bench, STORED, 2000).published == 2000
    store = bench.q.store
    assert store.in_memory <= limits.get("max_size_messages", 1000)
    assert store.held_octets <= limits.get("max_size_bytes", MIB) + 200 * store.in_memory
    assert (store.in_memory == 0) is (0 in limits.values())
    subscriber = Subscriber(bench, prefetch=20)
    subscriber.drain()
    assert subscriber.got == list(range(2000))
    assert bench.temp_used == 0
    bench.close()


@pytest.mark.parametrize("whole", [WholeLimits(octets_max=LIMIT), WholeLimits(messages_max=190)])
def test_all_addresses_together(has_journal: bool, whole: WholeLimits) -> None:
    """At a limit on the whole an address that pages does so; none waits (Artemis' global-max-size, -messages)."""
    bench = Bench(has_journal=has_journal, whole=whole)
    queues = [bench.q, *(bench.queue(name) for name in ("a", "b"))]
    for queue in queues:
        publisher = Publisher(bench, queue.name)
        for start in range(0, 500, 50):
            publisher.publish(*numbered(50, start), to=queue.name)
            bench.end_turn()
        assert publisher.published == 500
    assert sum(sum(len(one.content) for one in queue.messages()) for queue in queues) <= LIMIT
    assert queues[0].store.in_memory > 100 and not queues[2].store.in_memory
    for queue in reversed(queues):
        subscriber = Subscriber(bench, queue, prefetch=20)
        subscriber.drain()
        assert subscriber.got == list(range(500))
    assert bench.temp_used == 0
    bench.close()


def test_a_limit_that_comes_later(has_journal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too much leaves memory in slices, so that no turn is long; without the limit all is read as ever."""
    monkeypatch.setattr(tailed_store, "PAGE_OUT_MAX", 100)
    bench = Bench(has_journal=has_journal)
    published(bench, STORED, 2000)
    assert bench.q.store.in_memory == 2000
    bench.broker.reloading.replace_settings(
        SettingsRepository([entry("q", max_size_messages=300)]), bench.broker.context.options
    )
    steps: list[int] = [bench.q.store.in_memory]
    while len(steps) < 3 or steps[-1] != steps[-3]:
        bench.broker.end_turn()
        steps.append(bench.q.store.in_memory)
    assert steps[-1] == 300
    assert max(before - after for before, after in pairwise(steps)) == 100
    bench.end_turn()
    assert bench.q.store.in_memory == 300
    bench.configure()
    subscriber = Subscriber(bench, prefetch=20)
    subscriber.drain()
    assert subscriber.got == list(range(2000))
    assert bench.temp_used == 0
    bench.close()


def test_what_was_just_read_back_stays(has_journal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One who has more out than the limit and one who waits: each message is read once, and nothing goes round."""
    bench = Bench(has_journal=has_journal, memory_limit=LIMIT, producer_flow_control=False)
    published(bench, STORED, 1000)
    hoarder = Subscriber(bench, prefetch=500)
    assert len(hoarder.got) == 500
    loads: list[int] = []
    load = tailed_store.TailedStore.load

    def counted(store: tailed_store.TailedStore, *wanted: int) -> None:
        loads.append(1)
        load(store, *wanted)

    monkeypatch.setattr(tailed_store.TailedStore, "load", counted)
    other = Subscriber(bench, prefetch=1)
    for _ in range(99):
        other.ack()
        assert bench.q.store.in_memory <= 1
    assert other.got == list(range(500, 600))
    assert len(loads) <= 2 * 100
    hoarder.client.close(failed=True)
    bench.end_turn()
    assert in_memory(bench.q) <= CAPS[False]
    other.drain()
    assert other.got == [*range(500, 600), *range(500), *range(600, 1000)]
    bench.close()


def test_after_a_restart() -> None:
    """By places alone: memory is within the limit from the start, what was counted is there, and all is in order."""
    settings: dict[str, Any] = {"memory_limit": LIMIT, "system": SystemUsage(memory=0, store=100 * MIB, temp=0)}
    bench = Bench(**settings)
    published(bench, STORED, 1000)
    bench.take(100)
    assert bench.files is not None
    files = bench.files.power_cut()
    bench.close()
    again = Bench(files=files, **settings)
    again.end_turn()
    assert len(again.q.store) == 900
    assert in_memory(again.q) <= CAPS[True]
    stored = next(node for node in again.broker.flow.nodes() if node.limit_name == "store")
    assert 900 * 1000 <= stored.used <= 900 * (1000 + 48)
    subscriber = Subscriber(again, prefetch=20)
    subscriber.drain()
    assert subscriber.got == list(range(100, 1000))
    assert stored.used == 0
    again.close()


@pytest.mark.parametrize("has_headers", [True, False])
def test_what_deliveries_say_is_counted(has_journal: bool, has_headers: bool) -> None:
    """Messages that grow by x-delivery-count, leave memory and come back: the usage ends at nothing."""
    system = SystemUsage(memory=100 * MIB, store=100 * MIB, temp=0)
    attempts = {"max_delivery_attempts": 50} if has_headers else {}
    bench = Bench(has_journal=has_journal, system=system, memory_limit=LIMIT, **attempts)
    queue = bench.vhost.queues.declare(
        "q2", client=None, durable=True, arguments={"x-queue-type": Field("S", b"quorum")} if has_headers else {}
    )
    bench.broker.reloading.replace_settings(
        SettingsRepository([entry("#", memory_limit=LIMIT, **attempts)], usage=system), bench.broker.context.options
    )
    publisher = Publisher(bench, "p")
    publisher.publish(*numbered(500), to="q2")
    bench.end_turn()
    for _ in range(3):
        subscriber = Subscriber(bench, queue, prefetch=300)
        subscriber.client.close(failed=True)
        bench.end_turn()
    last = Subscriber(bench, queue, prefetch=20)
    last.drain()
    assert last.got == list(range(500))
    assert last.attempts == ([3] * 300 + [None] * 200 if has_headers else [None] * 500)
    assert [node.used for node in bench.broker.flow.nodes()] == [0] * len(bench.broker.flow.nodes())
    bench.close()
