"""Short worlds: what a seed says, what is small in them, and that what they hold the broker to is right."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from simulated_files import SimulatedFiles
from simulator.disk import DATA, Disk
from simulator.explored import EXCHANGES, QUEUES, explored_lines
from simulator.faults import FAULTS
from simulator.ledger import Broken, is_as_published
from simulator.parts import FaultPlan, Plan
from simulator.reader import BEHIND, Reader
from simulator.selectors import FILTERS, SELECTORS, TEXTS, arguments_of, of_in
from simulator.swarm import LONG_EVERY, SMALL, limited, make_swarm, make_world, vary
from simulator.temp import CHUNK_SIZE, SimulatedTempStore
from simulator.world import World, retained_ns

from leveret.amqp_frontend.session.closing import Closing
from leveret.engine.messages.content import encode_header
from leveret.engine.messages.field_table import Field
from leveret.expressions.language import AMPS, JMS, compiled
from leveret.expressions.subject import Subject
from leveret.expressions.values import Value
from leveret.settings import load_configuration


def test_a_plan_can_be_kept() -> None:
    """As JSON, all of it."""
    for seed in range(1, 30):
        plan = make_swarm(seed)
        assert Plan.from_json(plan.to_json()).to_json() == plan.to_json()
        assert make_swarm(seed).to_json() == plan.to_json()


def test_some_worlds_are_long() -> None:
    """And have no small limits."""
    assert not make_world(LONG_EVERY).limits
    assert make_world(LONG_EVERY).seconds > make_world(LONG_EVERY + 1).seconds


def test_a_short_world_is_the_same_again() -> None:
    """With limits, and with somebody who reads its journal."""
    plan = next(plan for seed in range(1, 99) if (plan := make_swarm(seed)).limits and plan.read_every)
    first, second = World(plan).run(), World(plan).run()
    assert first.fault is None
    assert first.hash == second.hash


def test_a_variant_has_the_same_inhabitants_and_another_story() -> None:
    """Each number gives one, which is a world of its own."""
    plan = next(plan for seed in range(1, 99) if (plan := make_swarm(seed)).faults)
    one, again, other = (make_swarm(plan.seed) for _ in range(3))
    vary(one, 1)
    vary(again, 1)
    vary(other, 2)
    assert one.to_json() == again.to_json() != other.to_json()
    assert (one.queues, one.configuration, one.limits) == (plan.queues, plan.configuration, plan.limits)
    assert [client.options for client in one.clients] == [client.options for client in plan.clients]
    assert [client.seed for client in one.clients] != [client.seed for client in plan.clients]
    assert sorted(fault.kind for fault in one.faults) == sorted(fault.kind for fault in plan.faults)


def test_a_password_that_is_refused_at_once_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever guesses passwords waits before each."""
    plan = make_swarm(7)
    plan.faults = [FaultPlan(0.1, "strangers", seed) for seed in range(10)]
    assert World(plan).run().fault is None

    def refuse(closing: Closing, why: str) -> None:
        closing.on_login(False)
        closing.abort = closing.finished = True

    monkeypatch.setattr(Closing, "refuse_silently", refuse)
    assert "login was refused" in str(World(plan).run().fault)


def test_files_of_the_temp_store_that_nobody_needs_are_noticed() -> None:
    """The last one may be empty: the next contents come there."""
    store = SimulatedTempStore(lambda: True, Counter())
    first, last = store.spool([bytes(CHUNK_SIZE)]), store.spool([b"a"])
    assert first is not None and last is not None
    store.check()
    store.release(last, 1)
    store.check()
    first.chunk.live = 0  # type: ignore[attr-defined]
    with pytest.raises(Broken, match="nobody needs"):
        store.check()
    first.chunk.live = CHUNK_SIZE - 1  # type: ignore[attr-defined]
    with pytest.raises(Broken, match="are counted"):
        store.check()


@pytest.mark.parametrize("path", [f"{module}.{name}" for module, names in SMALL.items() for name in names])
def test_each_limit_is_one_of_the_broker_and_comes_back(path: str) -> None:
    owner, _, name = f"leveret.{path}".rpartition(".")
    module = import_module(owner)
    before = getattr(module, name)
    values = SMALL[path.rpartition(".")[0]][name]
    assert max(values) < before
    with limited({path: values[0]}):
        assert getattr(module, name) == values[0]
    assert getattr(module, name) == before


def test_a_limit_is_small_wherever_it_is_known() -> None:
    """Also where a module has it by an import of its own."""
    with limited({"engine.dead_letters.DEAD_LETTERS_EFFORT": 7}):
        assert sys.modules["leveret.engine.broker"].DEAD_LETTERS_EFFORT == 7


class Headed(Subject):
    """A message of which only headers matter."""

    def __init__(self, headers: dict[str, Value]) -> None:
        super().__init__("", "q")
        self._headers = headers

    def body(self) -> bytes:
        return b""

    def headers(self) -> dict[str, Value]:
        return self._headers

    def property(self, name: str) -> int | str | None:
        return None


@pytest.mark.parametrize("text", [*FILTERS, *SELECTORS])
def test_what_a_selector_takes_is_what_it_says(text: str) -> None:
    """The predicate beside it, which worlds go by, against the broker's own, for each text and for none."""
    expression = compiled(text, JMS if text in SELECTORS else AMPS, {})
    for of in (*TEXTS, None):
        headers = {} if of is None else {"headers": {"of": Field("S", of.encode())}}
        header = encode_header(0, headers)
        assert of_in(header) == of
        assert expression.matches(Headed({} if of is None else {"of": of})) is (FILTERS | SELECTORS)[text](of)
    assert list(arguments_of(text)) == ["x-selector" if text in SELECTORS else "x-filter"]


def test_a_count_may_be_added_to_headers() -> None:
    """And nothing else."""
    published = encode_header(3, {"message_id": b"m"})
    counted = encode_header(3, {"message_id": b"m", "headers": {"x-delivery-count": Field("l", 1)}})
    assert is_as_published(published, published)
    assert is_as_published(counted, published)
    for other in (encode_header(4, {"message_id": b"m"}), encode_header(3, {"message_id": b"n"}), encode_header(3)):
        assert not is_as_published(other, published)


def test_some_short_worlds_are_calm_for_a_while() -> None:
    """Longer than a client may take to log in."""
    calms = [calm for seed in range(1, 60) for calm in make_swarm(seed).calms]
    assert calms
    assert all(end - start >= 12 for start, end in calms)


def test_what_is_explored_is_a_configuration() -> None:
    """Whatever a reload draws; and explorers use all of it in some world."""
    chance = Random(1)
    for _ in range(300):
        assert not load_configuration([("world.toml", explored_lines(chance))])[1]
    clients = [client for seed in range(1, 99) for client in make_swarm(seed).clients if client.kind == "explorer"]
    assert {queue for client in clients for queue in client.options["queues"]} == QUEUES.keys()
    assert {exchange for client in clients for exchange in client.options["exchanges"]} == EXCHANGES.keys()


def test_a_connection_that_ends_for_no_reason_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = map(make_swarm, range(1, 99))
    plan = next(plan for plan in plans if plan.clients and not plan.calms and not plan.sites)
    plan.faults = [FaultPlan(plan.seconds / 2, "operator looks", 1)]
    plan.pauses.clear()
    monkeypatch.setitem(FAULTS, "operator looks", FAULTS["reset"])
    assert "and nobody said why" in (World(plan).run().fault or "")


@pytest.mark.parametrize(("age_ms", "then", "is_kept"), [
    (189, None, True), (190, None, False), (189, Disk.begin, False), (189, Disk.started, False),
])  # fmt: skip
def test_a_segment_is_retained_after_its_end(
    age_ms: int, then: Callable[[Disk], object] | None, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that an earlier life wrote, or a start sealed, nobody here knows when it ended."""
    now_ns = [0]
    monkeypatch.setattr("simulator.disk.now_ns", lambda: now_ns[0])
    disk, path = Disk(Random(1)), f"{DATA}/1.log"
    disk.retain_ns = retained_ns('retain = "200ms"\n')
    handle = disk.files.open(path, create=True, writable=True)
    disk.files.write(handle, memoryview(b"octets"), 0)
    if then is not None:
        then(disk)
    now_ns[0] = age_ms * 1_000_000
    with pytest.raises(Broken, match="deleted 189.0 ms after its end") if is_kept else nullcontext():
        disk.files.unlink(path)


@pytest.mark.parametrize(("after_ms", "is_told"), [(9, False), (10, True)])
def test_what_a_slow_commit_left_waiting_may_be_older(
    after_ms: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit ends when the disk is not slow any more, and the next one writes what came in all that time."""
    now_ns = [0]
    monkeypatch.setattr("simulator.disk.now_ns", lambda: now_ns[0])
    disk, path = Disk(Random(1)), f"{DATA}/1.log"
    disk.retain_ns = retained_ns('retain = "200ms"\n')
    handle = disk.files.open(path, create=True, writable=True)
    disk.slow_until_ns = 1
    now_ns[0] = disk.commit_ns(0) + after_ms * 1_000_000
    disk.files.write(handle, memoryview(b"octets"), 0)
    disk.commit_ns(now_ns[0])
    now_ns[0] += 100_000_000
    with pytest.raises(Broken, match=r"deleted 100.0 ms after its end") if is_told else nullcontext():
        disk.files.unlink(path)


def reader_of() -> Reader:
    """Nobody reads for it: its looks are told."""
    schedule = SimpleNamespace(after=lambda delay_ns, action: None)
    world: Any = SimpleNamespace(schedule=schedule, disk=SimpleNamespace(files=SimulatedFiles(), path=DATA))
    return Reader(world, 1.0, SimpleNamespace(expovariate=lambda rate: 1.0))  # type: ignore[arg-type]


def records(first: int, last: int, kind: int = 2) -> list[tuple[int, tuple[int, int, int]]]:
    return [(lsn, (kind, 1, lsn)) for lsn in range(first, last + 1)]


def test_a_reader_goes_on_where_it_was() -> None:
    reader = reader_of()
    reader._look(0, records(0, 9), 10)
    reader._look(5, records(5, 9), 0)  # it may not trust them any more
    reader._look(10, [*records(10, 30), *records(31, 40, kind=3)], 21)
    reader._look(11, [*records(11, 30), *records(31, 35)], 25)  # others came instead, which it had not seen
    reader._look(36 - BEHIND, records(36 - BEHIND, 36), BEHIND + 1)


def test_a_reader_may_see_what_is_synced() -> None:
    reader_of()._look(0, records(0, 9), 8, 8)
    with pytest.raises(Broken, match="may see all up to 8, synced is up to 7"):
        reader_of()._look(0, records(0, 9), 8, 7)


@pytest.mark.parametrize(("ended_by", "expected"), [(None, 7), ("", 7), ("killed", None)])
def test_what_is_synced_a_broker_knows_that_runs(ended_by: str | None, expected: int | None) -> None:
    """World 39030008: the start after it was hit when it had made a segment of its own."""
    reader, journal = reader_of(), SimpleNamespace(durable_lsn=7)
    world: Any = reader._world
    world.host = SimpleNamespace(ended_by=ended_by, supervisor=SimpleNamespace(journal=journal))
    assert reader._synced_lsn() == expected
    world.host = None
    assert reader._synced_lsn() is None


@pytest.mark.parametrize(("sentence", "from_lsn", "found"), [
    ("needs 5, the first that it finds is 7", 5, records(7, 12)),
    ("needs 5, the first that it finds is None", 5, []),
    ("saw all up to 10, and finds up to 8 now", 5, records(5, 7)),
    ("finds up to 11 now", 5, [*records(5, 8), *records(10, 11)]),
    ("saw \\(2, 1, 5\\) as 5", 5, records(5, 9, kind=3)),
])  # fmt: skip
def test_a_reader_says_no(sentence: str, from_lsn: int, found: Any) -> None:
    reader = reader_of()
    reader._look(0, records(0, 9), 10)
    with pytest.raises(Broken, match=sentence):
        reader._look(from_lsn, found, len(found))
