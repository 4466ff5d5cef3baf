"""Two rules of a queue that meet in one turn, at one message, or around a reload: each still holds."""

from __future__ import annotations

from collections import deque

import pytest
from flow_bench import FlowBench, Publisher, make_content
from simulated_files import SimulatedFiles
from subscribers import Bench, Subscriber, topics

from leveret.engine import BrokerOptions
from leveret.settings import Policies, SettingsRepository, entry, make_policy
from leveret.testing.harness import Harness, messages
from leveret.testing.memory_pager import MemoryTempStore

SIZE = 500


def dead(name: str) -> dict[str, str]:
    """Arguments of a queue whose dead letters go to the queue of this name."""
    return {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": name}


@pytest.mark.parametrize(("arguments", "expiration"), [({}, "0"), ({"x_message_ttl": 0}, None)])
def test_a_message_that_may_not_wait_goes_out_behind_one_that_returns(
    arguments: dict[str, int], expiration: str | None
) -> None:
    """Both in one turn: the consumer has room for both, so none expires."""
    world = Harness()
    world.queue(**arguments)
    world.consume(no_ack=False)
    world.publish("a")
    world.ends_turns = False
    world.session.reject(1, requeue=True, why="nack")
    world.publish("b", **({} if expiration is None else {"expiration": expiration}))
    world.end_turn()
    assert world.taken() == "aab"


def test_a_delayed_message_in_front_of_what_a_filter_has_seen_is_found() -> None:
    """It becomes due at the head, which the consumer's filter has passed."""
    world = Harness()
    world.queue()
    world.consume(x_filter="k = 1")
    world.publish("late", headers={"k": 1, "x-delay": 100})
    world.publish("other", headers={"k": 2})
    world.advance(100)
    assert world.taken() == "late"


def test_a_head_behind_evicted_ones_expires_at_its_own_time() -> None:
    """A run of a slow subscriber replaces the head, which would have expired later."""
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit": 3}))
    slow = Subscriber(bench, "slow", prefetch=1).bind("PRICES.#")
    bench.publish("out")
    bench.publish("a", ttl=60_000)
    bench.publish("b", ttl=100)
    bench.publish("c", "d")
    assert slow.waiting == ["b", "c", "d"]
    bench.advance(100)
    assert slow.waiting == ["c", "d"]


def test_what_returns_to_a_queue_beyond_its_memory_is_paged_out_without_a_journal() -> None:
    """While it is out it counts and cannot leave memory; then its publishers go on."""
    temp = MemoryTempStore(1 << 20)
    bench = FlowBench(memory_limit=4 * SIZE, open_temp=lambda: temp)
    for _ in range(4):
        publisher = Publisher(bench, "p")
        publisher.publish(make_content(SIZE))
        bench.end_turn()
    tags = [got[0] for _ in range(bench.q.ready_count) if (got := bench.session.get(bench.q, no_ack=False))]
    bench.end_turn()
    waiting = Publisher(bench, "waiting")
    waiting.publish(*[make_content(SIZE)] * 4)
    bench.end_turn()
    assert waiting.wants
    bench.session.reject(tags[-1], multiple=True, requeue=True)
    bench.end_turn()
    assert (len(waiting.wants), bench.q.ready_count) == (0, 8)


def test_what_a_full_dead_letter_address_refuses_waits_also_if_its_consumer_is_lost() -> None:
    """It has a redelivery delay then, though what is lost with a connection has none."""
    full = entry("full", max_size_messages=1, address_full_policy="FAIL")
    rules = entry("q", dead_letter_address="full", max_delivery_attempts=1, redelivery_delay_ms=1000)
    world = Harness(SettingsRepository([rules, full]))
    world.queue("full")
    world.publish("x", key="full")
    world.queue()
    lost = world.connect("lost")
    world.consume(by=lost)
    world.publish("a")
    assert world.taken() == "a"
    lost.client.close(failed=True)
    world.end_turn()
    world.consume()
    assert (world.taken(), len(world.named().scheduled)) == ("", 1)
    world.advance(1000)
    assert world.taken() == "a"


def test_a_message_at_its_last_attempt_is_dead_lettered_before_it_is_purged() -> None:
    """Its queue is purged when it has no consumers; the limit of attempts is asked first (address-settings 4.5)."""
    rules = entry("q", max_delivery_attempts=1, dead_letter_address="dead", default_purge_on_no_consumers=True)
    world = Harness(SettingsRepository([rules]))
    world.queue("dead")
    world.queue()
    world.consume()
    world.publish("a")
    world.session.cancel("c")
    world.session.reject(1, requeue=True, why="nack")
    world.end_turn()
    assert world.all("dead") == "a"


def test_a_delayed_message_for_a_queue_beyond_its_limit() -> None:
    """A policy lowered the limit: what is there stays, and what comes due is refused."""
    world = Harness()
    queue = world.queue(x_overflow="reject-publish", **dead("dead"))
    world.queue("dead")
    world.publish(*"abc")
    world.publish("late", headers={"x-delay": 100})
    world.broker.reloading.replace_policies(Policies([make_policy("p", "/", "^q$", {"max-length": 2})]))
    world.end_turn()
    assert queue.ready_count == 3
    world.advance(100)
    assert (world.all(), world.all("dead")) == ("abc", "")


def test_a_full_ring_drops_what_returns_instead_of_delaying_it() -> None:
    """As in Artemis: the older message would cost a newer one its place when it is due."""
    world = Harness(SettingsRepository([entry("q", redelivery_delay_ms=1000, default_ring_size=2)]))
    queue = world.queue()
    world.publish("a")
    assert world.get(no_ack=False) is not None
    world.publish("b", "c")
    world.session.reject(1, requeue=True, why="nack")
    world.end_turn()
    assert (len(queue.scheduled), world.all()) == (0, "bc")


@pytest.mark.parametrize("by", ["get", "consume"])
def test_a_queue_that_was_polled_was_used(by: str) -> None:
    """So a queue that is created for a publish is deleted when it is empty and nobody consumes."""
    world = Harness(SettingsRepository([entry("auto", auto_create_queues=True, auto_delete_queues=True)]))
    queue = world.vhost.queues.create("auto", is_auto_created=True)
    assert not queue.was_used
    world.publish("a", key="auto")
    if by == "get":
        assert world.get("auto") is not None
    else:
        world.consume("auto")
    assert queue.was_used


def test_a_value_that_was_replaced_while_it_was_out_is_not_found_by_a_filter() -> None:
    """It returns to a queue of last values that has a newer one, whose consumer filters."""
    world = Harness()
    world.queue(x_last_value_key="stock")
    world.publish("old", headers={"stock": "A", "k": 1})
    got = world.get(no_ack=False)
    assert got is not None
    world.publish("new", headers={"stock": "A", "k": 1})
    reader = world.connect("reader")
    reader.set_flowing(False)
    world.consume(by=reader, x_filter="k = 1")
    world.session.reject(got[0], requeue=True, why="nack")
    world.end_turn()
    reader.set_flowing(True)
    world.end_turn()
    assert (world.taken(), world.named().ready_count) == ("new", 0)


def test_transient_messages_of_a_mixed_run_are_stored_in_a_quorum_queue() -> None:
    """Two kinds of messages, published together, survive a restart."""
    world = Harness(journal=SimulatedFiles(), kind="quorum")
    queue = world.queue()
    kinds = [world.envelope("", "q", messages([body], {"type": body})[0]) for body in "ab"]
    contents = [messages([body], {"type": body})[1][0] for body in "ab"]
    world.session.publish_mixed([queue, queue], kinds, contents)
    world.end_turn()
    world.restart()
    assert world.all() == "ab"


def test_a_mixed_run_crowds_a_queue_as_a_run_does() -> None:
    """Its publishers are slowed down; not if its consumers' filters take nothing of it."""
    for arguments, congested in (({}, "q"), ({"x_filter": "k = 1"}, None)):
        world = Harness(options=BrokerOptions(busy_queue_ready_max=3))
        queue = world.queue()
        world.consume(prefetch=1, **arguments)
        world.ends_turns = False
        kinds = [world.envelope("", "q", messages(["x"], {"type": body})[0]) for body in "abababab"]
        contents = [messages(["x"], {"type": body})[1][0] for body in "abababab"]
        world.session.publish_mixed([queue] * 8, kinds, contents)
        found = world.broker.context.turn.congested
        assert (found and found.name) == congested


def test_the_prefetch_of_a_channel_counts_for_what_may_wait() -> None:
    """The limit is a multiple of what may be out, of the consumer or of its channel."""
    bench = Bench(destinations=topics(PRICES_={"pending_message_limit_prefetch_rate": 2.0}))
    slow = Subscriber(bench, "slow", consumes=False).bind("PRICES.#")
    slow.session.set_prefetch(2, total=True)
    slow.consume()
    bench.publish(*"abcdefgh")
    assert (slow.got, slow.waiting) == ([*"ab"], [*"efgh"])


def test_publishers_that_wait_are_refused_when_a_reload_lets_their_address_fail() -> None:
    """Of a limit of memory: they do not wait for room that may never come."""
    bench = FlowBench(memory_limit=4 * SIZE, cursor="vm")
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(SIZE)] * 6)
    bench.end_turn()
    waiting = len(publisher.wants)
    assert waiting and publisher.refused == 0
    bench.configure(memory_limit=4 * SIZE, cursor="vm", send_fail_if_no_space=True)
    assert (publisher.wants, publisher.refused) == (deque(), waiting)


@pytest.mark.parametrize("bound", [{"x_ring_size": 3}, {"x_max_length": 3}])
def test_messages_of_a_run_expire_in_a_queue_with_one_limit(bound: dict[str, int]) -> None:
    """The queue's time to live holds for each message of a run that the limit could take as a whole."""
    world = Harness()
    world.queue(x_message_ttl=100, **bound)
    world.publish(*"abcd")
    world.advance(100)
    assert (world.all(), world.named().counters.expired) == ("", 3)


@pytest.mark.parametrize("arguments", [{}, {"x_non_destructive": True}], ids=["classic", "non-destructive"])
def test_a_lowered_limit_of_attempts_ends_what_is_beyond_it(arguments: dict[str, bool]) -> None:
    """At its next return, though it had more attempts before than the limit allows now."""
    dead_letters = entry("#", dead_letter_address="dead")
    world = Harness(SettingsRepository([dead_letters, entry("q", max_delivery_attempts=9)]))
    world.queue("dead")
    world.queue(**arguments)
    world.consume()
    world.publish("a")
    for limit, died in ((9, ""), (9, ""), (9, ""), (2, "a")):
        world.reload(SettingsRepository([dead_letters, entry("q", max_delivery_attempts=limit)]))
        assert world.taken() == "a"
        world.session.reject(0, multiple=True, requeue=True, why="nack")
        world.end_turn()
        assert world.all("dead") == died
