"""Two accounts of one thing agree at the end of each turn: what a queue, a store and the broker's limits say is there.

Each of these was wrong in a planted fault that no other test found.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flow_bench import FlowBench, Publisher, make_content

from leveret.engine import PropertySummary, Queue, Session
from leveret.engine.clients.settling import REQUEUE_SLICE
from leveret.engine.clients.transaction import COMMIT_SLICE
from leveret.settings import SystemUsage
from leveret.testing.harness import GUEST, Harness
from leveret.testing.memory_pager import MemoryPager


class World(Harness):
    """A broker whose clients take all that they are sent."""

    ends_turns = False

    def __init__(self) -> None:
        super().__init__(unsent_max=1 << 40)

    def fill(self, name: str, bodies: range, session: Session | None = None) -> None:
        self.publish(*map(str, bodies), key=name, by=session)


def numbers(queue: Queue) -> list[int]:
    return [int(message.body) for message in queue.messages()]


def test_a_large_transaction_comes_whole_and_in_order() -> None:
    """tx.commit publishes in slices, that end within a run: each message once, in the order of the publishes."""
    world = World()
    queue, other = world.queue("q"), world.queue("o")
    world.session.select_transactions()
    size, at = COMMIT_SLICE - 500, 0
    for name in ("q", "o", "q", "q"):
        world.fill(name, range(at, at + size))
        at += size
    commit = world.session.commit()
    world.end_turn()
    assert commit.is_done
    assert numbers(queue) == [*range(size), *range(2 * size, 4 * size)]
    assert numbers(other) == [*range(size, 2 * size)]


def test_what_a_large_transaction_settles_counts_until_it_is_settled() -> None:
    """Between its slices a queue's unacknowledged messages are those that its sessions name."""
    world = World()
    queue = world.queue("q")
    count = 2 * COMMIT_SLICE + 700
    world.consume(queue)
    world.fill("q", range(count), world.connect())
    assert queue.unacked == count
    world.session.select_transactions()
    world.session.ack(count - 300, multiple=True)
    world.session.reject(count, multiple=True, requeue=False)
    world.session.commit()
    seen = []
    while world.turn():
        assert len(world.session.unacked_of(queue)) == queue.unacked == world.session.unacked_by_consumers
        seen.append(queue.unacked)
    assert seen[-1] == 0 and len(set(seen)) > 2


@pytest.mark.parametrize("failed", [False, True])
def test_many_that_come_back_from_a_closed_channel_are_overtaken_by_none(failed: bool) -> None:
    """They come back in slices; who waits gets them in the order in which they were published, newer ones behind."""
    world = World()
    queue = world.queue("q")
    count = 2 * REQUEUE_SLICE + 10
    world.consume(queue)
    world.fill("q", range(count), world.connect())
    heir = world.connect()
    consumer = world.consume(queue, by=heir)
    world.session.close(failed=failed)
    world.fill("q", range(count, count + 3), world.connect())
    while world.turn():
        assert queue.unacked + queue.ready_count <= count + 3
    bodies = [int(message.body) for message in heir.unacked.values()]
    assert bodies == [*range(count + 3)]
    assert consumer.unacked == queue.unacked == count + 3


def _take_all(bench: FlowBench) -> None:
    while bench.q.ready_count:
        bench.take(1)


def _take_without_acknowledgement(bench: FlowBench) -> None:
    while bench.consumer.get(bench.q, no_ack=True) is not None:
        bench.end_turn()


@pytest.mark.parametrize("empties", [_take_all, lambda bench: bench.q.purge(), _take_without_acknowledgement])
def test_the_usage_of_the_store_falls_with_what_leaves_it(empties: Callable[[FlowBench], object]) -> None:
    """Wherever it was: in memory or paged out, to a journal (queues page E.4, rows 8 and 9). Who was held goes on."""
    system = SystemUsage(memory=6_000, store=30_000, temp=0)
    pager = MemoryPager(1 << 20)
    bench = FlowBench(system=system, pager=pager, producer_flow_control=False, minimum_message_size=0)
    bench.broker.context.listeners.append(pager.record)
    bench.summary = PropertySummary(persistent=True)
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(1_000)] * 40)
    bench.end_turn()
    store = next(node for node in bench.broker.flow.nodes() if node.limit_name == "store")
    assert bench.q.store.paged_parts()
    assert store.is_full and 0 < publisher.published < 40
    for _ in range(4):
        empties(bench)
        bench.end_turn()
    assert publisher.published == 40
    assert [node.used for node in bench.broker.flow.nodes()] == [0] * len(bench.broker.flow.nodes())


def test_routes_end_with_a_binding_between_exchanges() -> None:
    """Who publishes by a route that it keeps hears of it: exchange.unbind two exchanges away (behaviour page 2.10)."""
    world = World()
    vhost = world.vhost
    world.queue("q")
    for name, kind in (("a", "direct"), ("b", "topic"), ("c", "fanout")):
        vhost.exchanges.declare(name, kind)
    vhost.bindings.add("exchange", "b", "a", "k", {})
    vhost.bindings.add("exchange", "c", "b", "#", {})
    vhost.bindings.add("queue", "q", "c", "", {})
    for unbind, bind in (
        (
            lambda: vhost.bindings.remove("queue", "q", "c", "", {}),
            lambda: vhost.bindings.add("queue", "q", "c", "", {}),
        ),
        (
            lambda: vhost.bindings.remove("exchange", "c", "b", "#", {}),
            lambda: vhost.bindings.add("exchange", "c", "b", "#", {}),
        ),
        (
            lambda: vhost.bindings.remove("exchange", "b", "a", "k", {}),
            lambda: vhost.bindings.add("exchange", "b", "a", "k", {}),
        ),
    ):
        kept = vhost.router.route("a", "k", GUEST)
        assert [queue.name for queue in kept.queues or ()] == ["q"]
        unbind()
        assert kept.is_stale
        kept = vhost.router.route("a", "k", GUEST)
        assert kept.queues == []
        bind()
        assert kept.is_stale


@pytest.mark.parametrize("limit", ["memory", "address"])
def test_a_raised_limit_lets_go_on_who_waits(limit: str) -> None:
    """At once, not with the next message that leaves."""

    def configured(octets: int) -> dict[str, object]:
        if limit == "address":
            return {"max_size_bytes": octets, "address_full_policy": "BLOCK"}
        return {"system": SystemUsage(memory=octets, store=0, temp=0), "cursor": "vm", "minimum_message_size": 0}

    bench = FlowBench(**configured(5_000))  # type: ignore[arg-type]
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(1_000)] * 20)
    bench.end_turn()
    assert publisher.published == 5
    bench.configure(**configured(50_000))  # type: ignore[arg-type]
    assert publisher.published == 20
    assert bench.broker.flow.blocked() == []


def test_who_was_let_go_comes_behind_those_that_still_wait() -> None:
    """Letting many go on takes several turns: what a client publishes between them passes nobody (queues page E.5)."""
    bench = FlowBench(max_size_messages=5_000, address_full_policy="BLOCK")
    Publisher(bench, "filler").publish(*[make_content(100)] * 5_000)
    publishers = [Publisher(bench, f"p{number}") for number in range(400)]
    for one in publishers:
        one.publish(*[make_content(100)] * 10)
    bench.q.purge()
    bench.broker.end_turn()
    gone_on = [one for one in publishers if one.published]
    assert 0 < len(gone_on) < 400
    for one in gone_on:
        one.publish(make_content(100))
        assert (one.published, len(one.wants)) == (10, 1)
    bench.end_turn()
    assert {one.published for one in gone_on} == {11}
    assert sum(one.published for one in publishers) == 4_000 + len(gone_on)
