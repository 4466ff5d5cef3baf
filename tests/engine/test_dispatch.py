"""Who gets what, and when the rest goes: groups, mixed runs, long turns, messages behind others that expire."""

from __future__ import annotations

import gc

import pytest
from queue_world import QueueWorld as World

from leveret.engine import Consumer, broker
from leveret.engine.clients import session, settling
from leveret.engine.delivery import consumer_list
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.queues import classic
from leveret.engine.queues import queue as queue_module
from leveret.engine.stores import memory_budget, tailed_store


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deep queue has two messages in memory."""
    monkeypatch.setattr(memory_budget, "SMALL", 0)
    monkeypatch.setattr(tailed_store, "LOAD_SLICE", 2)
    monkeypatch.setattr(tailed_store, "LOW", 2)
    monkeypatch.setattr(tailed_store, "HIGH", 2)


def of_group(name: bytes) -> dict[str, object]:
    return {"delivery_mode": 2, "headers": {"JMSXGroupID": Field("S", name)}}


@pytest.mark.parametrize("has_groups", [False, True])
def test_what_comes_to_the_head_expires_on_time(has_groups: bool) -> None:
    """Also where it stood behind a message that never expires, and that a consumer took."""
    world = World({}, {})
    world.write([b"stays"], of_group(b"g") if has_groups else {})
    world.write([b"expires"], {"expiration": b"500"})
    world.join("t", prefetch=1)
    world.end_turn()
    world.advance(501)
    world.check()
    assert world.q.ready_count == 0
    assert world.q.counters.expired == 1


@pytest.mark.parametrize("dead_letters", [False, True])
@pytest.mark.parametrize("way", ["one", "two", "groups", "filters", "kept"])
def test_what_lives_behind_many_that_expired_is_handed_out(
    way: str, dead_letters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are more than one slice, and nobody has seen yet that their time is over."""
    monkeypatch.setattr(queue_module, "EXPIRE_SLICE", 2)
    arguments = {"x-non-destructive": Field("t", True)} if way == "kept" else {}
    world = World(arguments, {"expiry_address": "dead"} if dead_letters else {})
    world.write([b"expires"] * 3, {"expiration": b"500"})
    world.write([b"lives"], of_group(b"g") if way == "groups" else {})
    world.clock.advance_ns(500 * 1_000_000)
    for who in range(1 if way == "one" else 2):
        filter_ = {"x-filter": Field("S", b"1 = 1")} if way == "filters" else {}
        world.sessions[who].consume(world.q, f"t{who}", no_ack=True, exclusive=False, arguments=filter_)
    world.end_turn()
    world.check()
    wanted = 2 if way == "kept" else 1
    assert [body for seen in world.seen.values() for _, (body, *_) in seen] == [b"lives"] * wanted
    assert world.q.counters.expired == 3


def published(world: World, way: str, bodies: list[bytes]) -> None:
    """A run of one kind, one with two kinds, or one after the other."""
    if way == "run":
        world.write(bodies, {"delivery_mode": 2})
    elif way == "mixed run":
        world.publish_mixed([(body, {"delivery_mode": 1 + at % 2}) for at, body in enumerate(bodies)])
    else:
        for body in bodies:
            world.write([body], {"delivery_mode": 2})


WAYS = ["run", "mixed run", "one by one"]


@pytest.mark.parametrize("prefetch", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("way", WAYS)
def test_the_rest_of_a_run_stands_where_it_was_published(way: str, prefetch: int) -> None:
    """A waiting consumer takes the first of it; what it gives back comes before the rest again."""
    world = World({}, {})
    world.join("t", prefetch=prefetch)
    world.end_turn()
    bodies = [b"%d" % number for number in range(5)]
    published(world, way, bodies)
    world.end_turn()
    world.check()
    taken = bodies[:prefetch]
    assert [body for _, (body, *_) in world.seen["t"]] == taken
    world.sessions[0].cancel("t")
    world.sessions[0].reject(0, multiple=True, requeue=True)
    world.end_turn()
    world.check()
    got = [world.fetch()[3][0] for _ in bodies]
    assert (got, world.fetch()) == (bodies, None)


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": Field("l", 2)}], ids=["plain", "priorities"])
@pytest.mark.parametrize("way", WAYS)
def test_what_comes_stays_behind_what_is_paged_out(way: str, arguments: FieldTable) -> None:
    """Also while nothing is in memory, and a consumer waits."""
    world = World(arguments, {}, memory=0)
    bodies = [b"%d" % number for number in range(12)]
    world.write(bodies[:8], {"delivery_mode": 2})
    world.end_turn()
    store = world.q.store
    first = [world.fetch()[3][0]]
    while store.ready:
        first.append(world.fetch()[3][0])
    assert store.has_tail
    world.join("t", no_ack=True)
    published(world, way, bodies[8:])
    world.end_turn()
    world.check()
    assert first + [body for _, (body, *_) in world.seen["t"]] == bodies


@pytest.mark.parametrize("names", [["q", "other"], ["other", "q"], ["q", "other", "dead"]])
def test_every_queue_goes_on_after_a_large_return(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is lost that had much of several queues: all of it is for who waits, also what came back first."""
    for module in (settling, session):
        monkeypatch.setattr(module, "REQUEUE_SLICE", 2)
    world = World({}, {})
    for name in names:
        world.write([b"1", b"2", b"3"], {}, f"{name}.x")
        world.join(name, name)
        world.end_turn()
    for name in names:
        world.join(f"next {name}", name, who=1)
    world.sessions[0].close(failed=True)
    world.end_turn()
    world.check()
    for name in names:
        assert [body for _, (body, *_) in world.seen[f"next {name}"]] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("is_dead_wanted", [False, True])
@pytest.mark.parametrize("depth", [None, 0], ids=["in memory", "deep"])
def test_a_get_finds_what_lives_behind_what_expired(
    depth: int | None, is_dead_wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever both are, and however many slices of them expire just now."""
    monkeypatch.setattr(queue_module, "EXPIRE_SLICE", 2)
    world = World({}, {"expiry_address": "dead"} if is_dead_wanted else {}, memory=depth)
    world.write([b"expires"] * 7, {"delivery_mode": 2, "expiration": b"500"})
    world.write([b"1", b"2"], {"delivery_mode": 2})
    world.end_turn()
    world.clock.advance_ns(500 * 1_000_000)
    assert [world.fetch()[3][0], world.fetch()[3][0], world.fetch()] == [b"1", b"2", None]
    world.end_turn()
    world.check()
    assert world.named("dead").ready_count == 7 * is_dead_wanted


def test_groups_that_were_passed_over_keep_their_order() -> None:
    """Their consumer is busy; others have what stands behind. Later it gets them as they were published."""
    world = World({}, {})
    for who in range(2):
        world.join(f"t{who}", prefetch=1, who=who)
    world.end_turn()
    for body, group in ((b"a1", b"a"), (b"b1", b"b"), (b"a2", b"a"), (b"a3", b"a"), (b"b2", b"b"), (b"a4", b"a")):
        world.write([body], of_group(group))
        world.end_turn()
    world.sessions[1].ack(0, multiple=True)
    world.end_turn()
    world.check()
    for _ in range(3):
        world.sessions[0].ack(0, multiple=True)
        world.end_turn()
        world.check()
    bodies = {tag: [body for _, (body, *_) in seen] for tag, seen in world.seen.items()}
    assert bodies == {"t0": [b"a1", b"a2", b"a3", b"a4"], "t1": [b"b1", b"b2"]}


@pytest.mark.parametrize("depth", [None, 0], ids=["in memory", "deep"])
@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.parametrize("way", ["one", "two", "shared", "groups", "filters", "kept", "priorities"])
def test_the_rest_of_a_long_turn_goes_out_in_the_next(
    way: str, expires: bool, depth: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that comes gets all that it may have, however many turns that takes, in order."""
    for module, name, value in ((broker, "TURN_END_EFFORT", 2), (classic, "RUN_MAX", 3), (consumer_list, "RUN_MAX", 3)):
        monkeypatch.setattr(module, name, value)
    kinds: dict[str, FieldTable] = {
        "kept": {"x-non-destructive": Field("t", True)},
        "priorities": {"x-max-priority": Field("l", 2)},
    }
    world = World(kinds.get(way, {}), {}, memory=depth)
    bodies = [b"%02d" % number for number in range(20)]
    for body in bodies:
        properties = of_group(b"g") if way == "groups" else {"delivery_mode": 2}
        world.write([body], properties | ({"expiration": b"500"} if expires else {}))
    world.end_turn()
    for who in range(1 if way in ("one", "groups", "kept") else 2):
        taker = world.sessions[who]
        taker.set_prefetch(50 if way == "shared" else 0, total=way == "shared")
        filter_ = {"x-filter": Field("S", b"1 = 1")} if way == "filters" else {}
        taker.consume(world.q, f"t{who}", no_ack=False, exclusive=False, arguments=filter_)
    world.end_turn()
    world.check()
    seen = [[body for _, (body, *_) in of] for of in world.seen.values()]
    assert sorted(body for of in seen for body in of) == bodies
    assert all(of == sorted(of) for of in seen)


@pytest.mark.parametrize("names", [["q", "other"], ["q", "other", "dead"]])
def test_queues_that_share_a_prefetch_have_turns(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits while the session may have more of any of them."""
    monkeypatch.setattr(broker, "TURN_END_EFFORT", 2)
    world = World({}, {})
    for name in names:
        world.write([b"%d" % number for number in range(9)], {}, f"{name}.x")
    for name in names:
        world.join(name, name, prefetch=4, total=True)
    left = 9 * len(names)
    while left:
        world.end_turn()
        world.check()
        assert len(world.sessions[0].unacked) == min(4, left)
        world.sessions[0].ack_each(list(world.sessions[0].unacked))
        left -= min(4, left)
    for name in names:
        assert [body for _, (body, *_) in world.seen[name]] == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("comes", ["before", "after"])
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_does_not_read_has_no_more_than_its_room(way: str, width: int, comes: str) -> None:
    """Of a run it gets what its room allows, at least one; the rest is ready, and goes out when it reads again."""
    world = World({}, {}, unsent_max=1000)
    world.stalled.add(world.client)
    bodies = [b"%02d" % number + bytes(98) for number in range(30)]
    if comes == "after":
        published(world, way, bodies)
    for who in range(width):
        world.join(f"t{who}", no_ack=True, who=who)
    world.end_turn()
    if comes == "before":
        published(world, way, bodies)
    world.end_turn()
    assert 5 <= 30 - world.q.ready_count <= 10
    world.stalled.clear()
    world.client.drained()
    world.end_turn()
    world.check()
    assert sorted(body for seen in world.seen.values() for _, (body, *_) in seen) == [b"%02d" % at for at in range(30)]


@pytest.mark.parametrize("kind", ["plain", "kept"])
def test_a_deleted_queue_counts_all_that_it_had(kind: str) -> None:
    """Ready, out and waiting; of what is kept that is ready, for what is out are copies."""
    world = World({"x-non-destructive": Field("t", True)} if kind == "kept" else {}, {})
    world.write([b"1", b"2", b"3", b"4", b"5"], {})
    world.write([b"waits"] * 2, {"headers": {"x-delay": Field("l", 5000)}})
    world.join("t", prefetch=3)
    world.end_turn()
    assert world.q.unacked == 3
    ready = 5 if kind == "kept" else 2
    assert world.vhost.queues.delete("q", world.client) == ready + 2
    world.end_turn()
    assert world.broker.statistics().counters["deleted"] == 7


@pytest.mark.parametrize("arguments", [{}, {"x-non-destructive": Field("t", True)}], ids=["plain", "kept"])
@pytest.mark.parametrize("memory", [None, 4000], ids=["in memory", "deep"])
def test_nothing_is_kept_of_a_consumer_that_left(arguments: FieldTable, memory: int | None) -> None:
    """Consumers come and go for as long as their queue is there."""
    world = World(arguments, {}, memory=memory)
    world.write([b"%d" % number for number in range(60)], {"delivery_mode": 2})
    world.end_turn()
    for key in (None, b"a"):
        world.join("t", key=key)
        world.end_turn()
        world.sessions[0].reject(0, multiple=True, requeue=True)
        world.sessions[0].cancel("t")
        world.end_turn()
        world.seen.clear()
        world.sessions[0].close()
        world.sessions[0] = world.client.open_session()
        world.end_turn()
        gc.collect()
        left = [one for one in gc.get_objects() if isinstance(one, Consumer) and one.queue is world.q]
        assert len(left) <= world.q.keeps_acked  # whose turn it was
    world.check()
