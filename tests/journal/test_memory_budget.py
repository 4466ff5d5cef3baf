"""One budget for the ready messages of all queues: all together keep to it (queues page F.7 and G.F, row F12)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_files import SimulatedFiles
from steps import steps

from leveret.engine import Client, Message, Queue, Session
from leveret.engine.clients.session import NACKED
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.stores import memory_budget, tailed_store
from leveret.engine.stores.memory_budget import PAGE_OUT_MAX, SMALL, held_octets
from leveret.engine.stores.read_windows import WINDOW_OCTETS
from leveret.journal import JournalOptions
from leveret.journal.recording.temp_store import FileTempStore
from leveret.testing.harness import Harness

MEMORY = 1024 * 1024
LARGEST = 60_000


class Desk(Harness):
    """A broker whose messages may take one MiB."""

    has_temp_store = False

    def __init__(self, spool: str | None = None) -> None:
        super().__init__(journal=SimulatedFiles(), journal_options=JournalOptions(segment_size=1 << 20), memory=MEMORY)
        if spool is not None:
            self.broker.context.storage.open_temp = partial(FileTempStore, spool)
        self.queues: list[Queue] = []
        self.number = 0

    def read(self, client: Client) -> None:
        client.take_outbox()
        client.drained()

    def declare(self, arguments: FieldTable) -> None:
        """One more queue."""
        self.queues.append(self.queue(f"q{len(self.queues)}", client=self.client, **arguments))

    def fill(self, queue: Queue, count: int, size: int, *, mode: int = 2, priority: int = 0) -> None:
        """A run of messages."""
        bodies = [b"%d." % (self.number + at) + bytes(size) for at in range(count)]
        self.number += count
        self.publish(*bodies, key=queue.name, delivery_mode=mode, priority=priority)

    def _write(self) -> None:
        self.journal.commit()

    @property
    def held(self) -> int:
        """Octets that ready messages take in memory now."""
        return sum(held_octets(list(queue.store)) for queue in self.queues)

    @property
    def bound(self) -> int:
        """All of them, and what is too little to be left elsewhere."""
        return MEMORY + SMALL * len(self.queues)


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Closed afterwards."""
    made = Desk()
    yield made
    made.journal.close()


def test_many_queues_share_it(desk: Desk) -> None:
    """F12, scaled: each of fifty has more than all may take together."""
    for _ in range(50):
        desk.declare({})
    for _ in range(30):
        for queue in desk.queues:
            desk.fill(queue, 50, 1000)
            assert desk.held <= desk.bound
    assert all(queue.ready_count == 1500 for queue in desk.queues)
    for queue in desk.queues:
        assert desk.session.get(queue, no_ack=True) is not None
        assert desk.held <= desk.bound


def test_who_came_first_makes_room(desk: Desk) -> None:
    """A queue that has everything gives some of it to one that comes later, and loses no message by it."""
    for _ in range(2):
        desk.declare({})
    first, second = desk.queues
    desk.fill(first, 500, 1000)
    assert not first.store.is_deep
    desk.fill(second, 500, 1000)
    assert desk.held <= desk.bound
    assert first.store.is_deep and second.store.in_memory > 200
    for queue in desk.queues:
        bodies = [desk.session.get(queue, no_ack=True) for _ in range(500)]
        numbers = [int(got[1].body.partition(b".")[0]) for got in bodies if got is not None]
        assert numbers == list(range(numbers[0], numbers[0] + 500))


def test_room_is_made_in_slices(desk: Desk) -> None:
    """Of many small messages a queue gives no more at once than a turn has time for."""
    desk.broker.context.storage.pager.memory = 8 * MEMORY  # type: ignore[union-attr]
    for _ in range(2):
        desk.declare({})
    first, second = desk.queues
    desk.fill(first, 30_000, 0)
    in_memory, gave = first.store.in_memory, 0
    for at in range(400):
        desk.fill(second, 50, 0)
        assert in_memory - first.store.in_memory <= PAGE_OUT_MAX
        gave += in_memory > first.store.in_memory
        in_memory = first.store.in_memory
        assert at % 20 or desk.held <= 8 * MEMORY + 2 * SMALL  # a sum over 30,000 messages
    assert gave > 1 and in_memory < 2 * second.store.in_memory


@pytest.mark.parametrize("size", [10_000, 400_000, 3_000_000])
def test_large_messages(desk: Desk, size: int) -> None:
    """They count by their octets: not even one that is larger than everything stays for long."""
    desk.declare({})
    (queue,) = desk.queues
    for _ in range(20):
        desk.fill(queue, 1, size)
        assert desk.held <= max(MEMORY, 2 * size)
    assert queue.ready_count == 20


def test_what_comes_back_leaves_again(desk: Desk) -> None:
    """A consumer that took all of a deep queue and acknowledged every tenth: the rest is in the journal alone again."""
    desk.declare({})
    (queue,) = desk.queues
    for _ in range(40):
        desk.fill(queue, 100, 1000)
    desk.session.consume(queue, "c", no_ack=False, exclusive=False, arguments={})
    desk.end_turn()
    assert len(desk.session.unacked) == 4000
    desk.session.ack_each(list(desk.session.unacked)[9::10])
    desk.session.close()
    desk.end_turn()
    assert queue.ready_count == 3600
    assert desk.held <= desk.bound
    assert len(queue.store.paged_parts()) < 10
    again = desk.client.open_session()
    found = [again.get(queue, no_ack=True) for _ in range(3600)]
    numbers = [int(got[1].body.partition(b".")[0]) for got in found if got is not None]
    assert numbers == [number for number in range(4000) if number % 10 != 9]
    assert all(got is not None and got[2] for got in found)  # redelivered


@pytest.mark.parametrize("priorities", [False, True])
def test_looking_is_amortized(desk: Desk, monkeypatch: pytest.MonkeyPatch, priorities: bool) -> None:
    """Where memory is full, a message that comes, or comes back, does not cost a look at all that is ready."""
    looked_at: list[int] = []

    def counted(messages: Iterable[Message]) -> int:
        here = list(messages)
        looked_at.append(len(here))
        return held_octets(here)

    monkeypatch.setattr(memory_budget, "held_octets", counted)
    for _ in range(2):
        desk.declare({"x-max-priority": Field("l", 9)} if priorities else {})
    full, other = desk.queues
    for _ in range(100):
        desk.fill(full, 50, 100)
    tags = [got[0] for _ in range(1500) if (got := desk.session.get(full, no_ack=False)) is not None]
    for _ in range(100):
        desk.fill(other, 50, 100)
    looked_at.clear()
    for number, tag in enumerate(tags):
        desk.session.reject(tag, multiple=False, requeue=True, why=NACKED)
        desk.fill(full, 1, 100, priority=number % 10)
    assert sum(looked_at) < 100 * len(tags)
    assert desk.held <= desk.bound + MEMORY // 3  # and what was read back in advance


def test_a_queue_that_only_grows_is_not_looked_at(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it holds is known: what it was granted, but for the rest. A look would be a long turn in a deep queue."""
    looked_at: list[int] = []

    def counted(messages: deque[Message]) -> int:
        looked_at.append(len(messages))
        return held_octets(messages)

    monkeypatch.setattr(tailed_store, "held_octets", counted)
    desk.declare({})
    (queue,) = desk.queues
    store, memory = queue.store, desk.broker.context.storage.memory
    for number in range(300):
        desk.fill(queue, 1 + number % 7, number)
        assert memory.charge_of(store) - queue.pageable.share.quota == held_octets(store.ready)  # type: ignore[arg-type]
    assert not looked_at
    desk.session.get(queue, no_ack=True)
    while not looked_at:
        desk.fill(queue, 10, 100)
    assert memory.charge_of(store) - queue.pageable.share.quota == held_octets(store.ready)  # type: ignore[arg-type]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "publish", "get", "consume", "close", "purge", "declare"]),
        st.integers(0, 20),
        st.sampled_from([10, 1000, LARGEST]),
        st.sampled_from([1, 5, 40]),
    ),
    min_size=5,
    max_size=40,
)
KINDS: list[FieldTable] = [{}, {"x-max-priority": Field("l", 5)}, {"x-max-length-bytes": Field("l", 600_000)}]


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_whatever_happens(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int, int]]) -> None:
    """Held messages never exceed the bound by more than one message of each queue and what one run brought."""
    desk = Desk(str(tmp_path_factory.mktemp("spool")))
    desk.declare({})
    consumer: Session | None = None
    for what, which, size, count in steps:
        queue = desk.queues[which % len(desk.queues)]
        if what == "publish":
            desk.fill(queue, count, size, mode=1 + which % 2, priority=which % 7)
        elif what == "get":
            for _ in range(count):
                desk.session.get(queue, no_ack=bool(which % 2))
        elif what == "consume" and consumer is None:
            consumer = desk.client.open_session()
            consumer.consume(queue, "c", no_ack=False, exclusive=False, arguments={})
        elif what == "close" and consumer is not None:
            consumer.close(failed=bool(which % 2))
            consumer = None
        elif what == "purge":
            queue.purge()
        elif what == "declare" and len(desk.queues) < 8:
            desk.declare(KINDS[which % len(KINDS)])
        desk.end_turn()
        assert desk.held <= desk.bound + len(desk.queues) * LARGEST + count * (size + 300)
    desk.broker.context.storage.close()
    desk.journal.close()


def test_many_queues_that_grow_alike() -> None:
    """Each that wants more than there is does not cost a look at all the others: twice the queues, twice the work."""

    def work(queues: int) -> int:
        desk = Desk()
        for _ in range(queues):
            desk.declare({})
        size = 2 * MEMORY // queues // 10

        def fill() -> None:
            for _ in range(10):
                for queue in desk.queues:
                    desk.fill(queue, 1, size)

        count = steps(fill)
        assert any(queue.store.is_deep for queue in desk.queues)
        return count

    assert work(400) <= 2.2 * work(200)


def test_direct_replies_that_nobody_reads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """They wait like messages of any queue, and leave nothing behind when the one who asked goes."""
    desk = Desk(str(tmp_path_factory.mktemp("spool")))
    mute = desk.connect("mute", flush=lambda: None).client
    consumer = mute.open_session().consume_replies("t", "amq.rabbitmq.reply-to.x", no_ack=True)
    count = 60
    for _ in range(count):
        desk.fill(consumer.queue, 1, 100_000, mode=1)
    queue = consumer.queue
    handed_out = queue.counters.delivered
    assert mute.paused and queue.ready_count == count - handed_out > 0
    assert 0 < held_octets(list(queue.store)) <= MEMORY and queue.store.is_deep
    mute.close(failed=True)
    assert not queue.has_ready and desk.broker.context.storage.memory.total == 0
    assert desk.broker.context.counters.deleted == count - handed_out


def test_a_scan_reads_no_more_than_its_window() -> None:
    """However large the messages are that it looks at."""
    world = Harness(journal=SimulatedFiles(), memory=1 << 20)
    queue = world.queue()
    world.publish(*[b"-" * 100_000] * 60, delivery_mode=2)
    world.ends_turns = False
    world.consume(x_filter="k = 1")
    assert queue.pageable is not None
    found = 0
    while world.turn():
        found = max(found, sum(len(one.content) for one in queue.pageable.levels._window.values()))
    assert 0 < found <= WINDOW_OCTETS + 101_000
