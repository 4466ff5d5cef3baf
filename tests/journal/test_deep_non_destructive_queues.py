"""Non-destructive and last-value queues whose contents only the journal has: clients see what they see without.

Two brokers do the same, one leaves all it can to its journal; power cuts are among the steps. Compared after each: what
each consumer and get received, how much is ready, unacknowledged and waiting, all counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from depth_world import PERSISTENT, DepthMachine, DepthWorld, stories
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from leveret.engine import MS, Session
from leveret.engine.clients.session import NACKED
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.queues import queue as queue_module
from leveret.engine.stores import read_windows
from leveret.engine.stores.non_destructive_store import NonDestructiveStore
from leveret.journal.recording.checkpoint import checkpoint
from leveret.settings import SettingsRepository, entry
from leveret.testing.queue_surgery import take_ready
from leveret.testing.snapshots import snapshot_of


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """What is read back comes in threes; few expire at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_windows, "WINDOW_MESSAGES", 3)
        patch.setattr(queue_module, "EXPIRE_SLICE", 4)
        patch.setattr(queue_module, "DEAD_LETTERED_MAX", 4)
        yield


class World(DepthWorld):
    """With a queue that keeps its messages, unless it is one of last values alone (`is_kept` False)."""

    has_temp_store = False

    def __init__(
        self, arguments: FieldTable, said: dict[str, Any], *, memory: int | None, is_kept: bool = True
    ) -> None:
        self.is_kept = is_kept
        super().__init__(arguments, said, memory=memory)
        assert isinstance(self.q.store, NonDestructiveStore) is is_kept

    def repository(self) -> SettingsRepository:
        return SettingsRepository([entry("q", **{"default_non_destructive": self.is_kept, **self.said})])

    @property
    def log(self) -> NonDestructiveStore:
        """The messages of a queue that keeps them."""
        assert isinstance(self.q.store, NonDestructiveStore)
        return self.q.store


ARGUMENTS = st.sampled_from(
    [
        *[FieldTable()] * 3,
        {"x-message-ttl": Field("l", 900)},
        {"x-message-ttl": Field("l", 900), "x-dead-letter-exchange": Field("S", b"e")},
        {"x-max-length": Field("l", 6)},
        {"x-max-length": Field("l", 6), "x-dead-letter-exchange": Field("S", b"e")},
        {"x-max-length-bytes": Field("l", 200), "x-dead-letter-exchange": Field("S", b"")},
        {"x-max-length": Field("l", 7), "x-overflow": Field("S", b"reject-publish")},
        {"x-max-priority": Field("l", 3)},
        {"x-single-active-consumer": Field("t", True)},
        {"x-ring-size": Field("l", 8)},
    ]
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "max_delivery_attempts": st.sampled_from([-1, 2, 5]),
        "dead_letter_address": st.sampled_from(["", "dead"]),
        "expiry_address": st.sampled_from(["", "dead"]),
        "default_last_value_key": st.sampled_from(["", "k"]),
        "max_size_messages": st.sampled_from([-1, 9]),
        "max_size_bytes": st.sampled_from([-1, 900]),
        "address_full_policy": st.sampled_from(["PAGE", "DROP", "FAIL"]),
    },
)
FIXED = {"default_last_value_key", "max_size_bytes", "address_full_policy"}
SIZES = st.lists(st.sampled_from([0, 3, 50]), min_size=1, max_size=7)


class KeptMachine(DepthMachine):
    """A queue that keeps its messages."""

    is_kept = True
    has_keys = False

    @initialize(
        arguments=ARGUMENTS,
        said=SETTINGS,
        memory=st.sampled_from([0, 0, 4000]),
        runs=st.lists(st.tuples(SIZES, st.sampled_from([True, True, False])), min_size=1, max_size=5),
    )
    def start(
        self, arguments: FieldTable, said: dict[str, Any], memory: int, runs: list[tuple[list[int], bool]]
    ) -> None:
        if self.has_keys:
            said = said | {"default_last_value_key": "k"}
        self.worlds = [World(arguments, said, memory=share, is_kept=self.is_kept) for share in (None, memory)]
        self.number = 0
        for sizes, persistent in runs:
            self.publish(sizes, persistent, None, None, None, None, "q.x")

    @rule(
        sizes=SIZES,
        persistent=st.sampled_from([True, True, True, False]),
        expiration=st.sampled_from([None, None, None, b"400", b"2000"]),
        priority=st.sampled_from([None, None, 2]),
        key=st.sampled_from([None, b"a", b"a", b"b", b"c"]),
        delay=st.sampled_from([None, None, None, None, 300]),
        routing_key=st.sampled_from(["q.x", "q.x", "q.both", "other"]),
    )
    def publish(
        self,
        sizes: list[int],
        persistent: bool,
        expiration: bytes | None,
        priority: int | None,
        key: bytes | None,
        delay: int | None,
        routing_key: str,
    ) -> None:
        self.number += 1
        headers = {} if key is None else {"k": Field("S", key)}

        def act(world: World) -> None:
            if delay is not None:
                due_ms = world.clock.wall_ms() + delay
                headers["x-opt-delivery-time"] = headers["_AMQ_SCHED_DELIVERY"] = Field("l", due_ms)
            mode = 2 if persistent else 1
            properties = {"delivery_mode": mode, "expiration": expiration, "priority": priority}
            if headers:
                properties["headers"] = headers
            world.fill(sizes, properties, self.number, routing_key)

        self.both(act)

    @rule(no_ack=st.booleans(), count=st.integers(1, 3), name=st.sampled_from(["q", "q", "dead", "other"]))
    def get(self, no_ack: bool, count: int, name: str) -> None:
        self.both(lambda world: [world.fetch(name, no_ack=no_ack) for _ in range(count)])

    @rule(
        who=st.integers(0, 1),
        prefetch=st.integers(0, 4),
        total=st.booleans(),
        no_ack=st.booleans(),
        count=st.integers(1, 2),
    )
    def consume(self, who: int, prefetch: int, total: bool, no_ack: bool, count: int) -> None:
        def act(world: World) -> None:
            if not world.sessions[who].consumers:
                for number in range(count):
                    tag = f"t{self.number}.{number}"
                    world.join(tag, prefetch=prefetch, no_ack=no_ack, total=total, who=who)

        self.number += 1
        self.both(act)

    def settleable(self, session: Session) -> list[int]:
        """Whose deliveries come first is no rule where several consumers share a channel."""
        return [tag for _, _, tag in _held(session)]

    def may_settle_many(self, session: Session) -> bool:
        held = _held(session)
        return held[0][0] == held[-1][0]

    @rule(what=st.sampled_from(["purge", "recover", "ring", "no ring", "settings", "delete"]), said=SETTINGS)
    def intervene(self, what: str, said: dict[str, Any]) -> None:
        def delete(world: World) -> object:
            count = world.vhost.queues.delete("q", world.client)
            world.end_turn()
            world.declare("q")
            return count

        def change(world: World) -> None:
            # A limit on octets that is new after a restart begins with an estimate of what only the journal has.
            fixed = {key: value for key, value in world.said.items() if key in FIXED}
            world.configure({key: value for key, value in said.items() if key not in FIXED} | fixed)

        self.both({"settings": change, "delete": delete}.get(what) or self.intervention(what))

    @rule(ms=st.sampled_from([0, 500]))
    def restart(self, ms: int) -> None:
        """The power goes, for so long."""
        for world in self.worlds:
            world.clock.advance_ns(ms * MS)
            world.kill(power_cut=True)

    @precondition(lambda self: hasattr(self, "worlds"))
    @invariant()
    def nothing_leaves_the_memory_of_the_other(self) -> None:
        assert not self.worlds[0].q.store.is_deep


def _held(session: Session) -> list[tuple[str, int, int]]:
    """Consumer, id and tag of what is out."""
    return sorted((getattr(one.holder, "tag", ""), one.id, tag) for tag, one in session.unacked.items())


class LastValueMachine(KeptMachine):
    """The same with a destructive queue of last values."""

    is_kept = False
    has_keys = True


class KeptLastValueMachine(KeptMachine):
    """The same with a queue of last values that keeps them."""

    has_keys = True


STORIES = stories(60)


class TestKept(KeptMachine.TestCase):  # type: ignore[misc,valid-type]
    """Many short stories."""

    settings = STORIES


class TestLastValues(LastValueMachine.TestCase):  # type: ignore[misc,valid-type]
    """Many short stories."""

    settings = STORIES


class TestKeptLastValues(KeptLastValueMachine.TestCase):  # type: ignore[misc,valid-type]
    """Many short stories."""

    settings = STORIES


def of_key(key: bytes) -> dict[str, Any]:
    return PERSISTENT | {"headers": {"k": Field("S", key)}}


@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("is_kept", [True, False])
def test_the_keys_of_last_values_are_known_after_a_restart(memory: int | None, is_kept: bool) -> None:
    """A value that comes then replaces the one from before."""
    world = World({}, {"default_last_value_key": "k"}, memory=memory, is_kept=is_kept)
    for number, key in enumerate((b"a", b"b", b"c")):
        world.fill([50], of_key(key), number)
    world.end_turn()
    world.kill(power_cut=True)
    assert world.q.store.is_deep is (memory == 0)
    world.fill([50], of_key(b"b"), 3)
    world.end_turn()
    assert (world.q.ready_count, world.q.counters.replaced) == (3, 1)
    world.join("t")
    world.end_turn()
    assert world.got("t") == ([b"0.0", b"2.0", b"3.0"] if is_kept else [b"0.0", b"3.0", b"2.0"])


def test_what_was_replaced_does_not_come_back() -> None:
    """A consumer gives back what has a newer value meanwhile; what is there still, comes again."""
    world = World({}, {"default_last_value_key": "k"}, memory=0)
    for number, key in enumerate((b"a", b"b", b"c", b"d")):
        world.fill([50], of_key(key), number)
    world.join("t", no_ack=False)
    world.end_turn()
    world.fill([50], of_key(b"b"), 4)
    world.end_turn()
    world.sessions[0].reject(3, multiple=True, requeue=True, why=NACKED)
    world.end_turn()
    assert world.got("t") == [b"0.0", b"1.0", b"2.0", b"3.0", b"4.0", b"0.0", b"2.0"]


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_full_disk(is_kept: bool) -> None:
    """What the journal does not have stays in memory, and leaves it when it has been stated; nothing is lost."""
    world = World({}, {"default_last_value_key": "k"}, memory=0, is_kept=is_kept)
    for number in range(5):
        world.fill([50], of_key(b"%d" % number), number)
    arguments = {"x-dead-letter-exchange": Field("S", b"e"), "x-dead-letter-routing-key": Field("S", b"q.x")}
    getter = world.sessions[2]
    source = world.queue("source", **arguments)
    world.bind("source", "e", "source")
    world.fill([50], of_key(b"6"), 6, "source")
    world.end_turn()

    def fault(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(28, "No space left on device")

    world.files.fault = fault
    world.fill([50], of_key(b"5"), 5)
    world.broker.end_turn()
    world.journal.commit()
    assert not world.journal.wait(world.journal.next_lsn)
    world.recorder.fail(for_good=False)
    getter.get(source, no_ack=False)
    getter.reject(1, requeue=False)  # the journal does not get what dies
    world.join("t", prefetch=9, no_ack=False)
    while world.broker.end_turn() or world.broker.scheduler.load():
        pass
    assert world.got("t") == [b"%d.0" % number for number in range(7)]
    world.files.fault = lambda operation, path: None
    world.journal.retry()
    world.recorder.recover()
    world.checkpoint(reclaims=True)
    world.recorder.checkpoint_done()
    world.sessions[0].reject(7, multiple=True, requeue=True, why=NACKED)
    world.fill([50], of_key(b"7"), 7)
    world.end_turn()
    world.kill(power_cut=True)
    world.join("again")
    world.end_turn()
    assert world.got("again") == [b"%d.0" % number for number in range(8)]


@pytest.mark.parametrize("memory", [None, 0, 4000])
def test_messages_that_only_memory_has_stand_where_they_came(memory: int | None) -> None:
    """Transient ones among those that were left to the journal; delayed ones whose time has come."""
    world = World({}, {}, memory=memory)
    for number in range(12):
        properties: dict[str, Any] = {"delivery_mode": 1 if number % 3 else 2}
        if number == 4:
            due_ms = world.clock.wall_ms() + 300
            properties |= {"delivery_mode": 2, "headers": {"_AMQ_SCHED_DELIVERY": Field("l", due_ms)}}
        world.fill([50] * 3, properties, number)
    world.join("before")
    world.end_turn()
    world.advance(400)
    world.join("after", who=1)
    world.end_turn()
    expected = [b"%d.%d" % (number, at) for number in range(12) for at in range(3)]
    late = [b"4.0", b"4.1", b"4.2"]
    assert world.got("after") == expected
    assert world.got("before") == [body for body in expected if body not in late] + late


def test_the_tests_own_tools_see_all() -> None:
    """A picture of the queue, and messages taken out of its middle."""
    world = World({}, {}, memory=0)
    for number in range(6):
        world.fill([50], {"delivery_mode": 1 if number == 3 else 2}, number)
    world.end_turn()
    picture = snapshot_of(world.q)
    assert [message.body.rstrip(b"\0") for message in picture.ready] == [b"%d.0" % number for number in range(6)]
    take_ready(world.q, lambda message: message.body[:1] in b"24")
    world.end_turn()
    assert world.q.counters.purged == 2
    world.kill(power_cut=True)
    world.join("t")
    world.end_turn()
    assert world.got("t") == [b"0.0", b"1.0", b"5.0"]


def test_a_checkpoint_before_dead_letters_are_made() -> None:
    """Last values that expired, of which only the journal has the contents, and is asked for them afterwards."""
    arguments = {"x-message-ttl": Field("l", 900), "x-dead-letter-exchange": Field("S", b"")}
    arguments["x-dead-letter-routing-key"] = Field("S", b"dead")
    world = World(arguments, {"default_last_value_key": "k"}, memory=0, is_kept=False)
    for number in range(5):
        world.fill([50], of_key(b"%d" % number), number)
    world.end_turn()
    world.clock.advance_ns(1000 * MS)
    world.broker.advance()
    assert len(world.broker.dead_letters.waiting) == queue_module.DEAD_LETTERED_MAX
    world.journal.commit()
    for _ in checkpoint(world.broker, world.journal, world.recorder):
        world.journal.commit()
    world.fill([50], PERSISTENT, 5, "other")
    world.end_turn()
    assert [world.fetch("dead")[3][0].rstrip(b"\0") for _ in range(5)] == [b"%d.0" % number for number in range(5)]
