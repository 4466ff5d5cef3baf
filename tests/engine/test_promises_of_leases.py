"""What leased queues keep to: a target depth when messages are purged or due, barriers for gets, turns at a site."""

from pathlib import Path

import pytest
from owned_sites import owned_queue

from leveret.testing.harness import Harness

#: The least target depth.
DEPTH = 1000


def desk() -> Harness:
    """A broker with a leased queue `q`."""
    world = Harness(kind="amps")
    world.queue(x_target_depth=DEPTH, x_max_backlog_per_consumer=DEPTH)
    return world


def test_a_purged_queue_with_a_target_depth_goes_on() -> None:
    """The active messages are gone, and later ones take their places (queues page A.3)."""
    world = desk()
    world.publish(*["x"] * (DEPTH + 1))
    assert world.named().ready_count == DEPTH
    world.named().purge()
    world.publish(*"ab")
    world.consume(tag="browses", x_browse=True)
    assert world.taken() == "ab"
    world.consume(prefetch=10)
    assert world.taken() == "ab"


def test_a_message_that_is_due_among_the_active_ones_is_one_more() -> None:
    """Its place is that of its id, and it takes no place of another (queues page A.3)."""
    world = desk()
    world.publish("a", headers={"x-delay": 1000})
    world.publish(*["x"] * (DEPTH + 1))
    assert world.named().ready_count == DEPTH
    world.advance(1000)
    assert world.named().ready_count == DEPTH + 1


def with_barrier() -> Harness:
    """A message, a barrier, a message."""
    world = Harness(kind="amps")
    world.queue(x_barrier_expr="sync = 1")
    world.publish("a")
    world.publish("S", headers={"sync": 1})
    world.publish("b")
    return world


def test_a_get_has_no_barrier_while_what_is_before_it_is_leased() -> None:
    """Although there is nobody who subscribes (queues page A.9)."""
    world = with_barrier()
    got = world.get(no_ack=False)
    assert got is not None and got[1].body == b"a"
    assert world.get(no_ack=False) is None
    world.session.ack(got[0])
    assert world.all() == "Sb"


def test_a_barrier_that_a_get_gives_back_is_one_again() -> None:
    """Each of those who subscribe later gets it (queues page A.9)."""
    world = with_barrier()
    assert world.take(1) == [b"a"]
    got = world.get(no_ack=False)
    assert got is not None and got[1].body == b"S"
    behind = world.get(no_ack=False)
    assert behind is not None and behind[1].body == b"b"
    world.session.reject(0, multiple=True, requeue=True)
    world.end_turn()
    world.ends_turns = False
    for tag in "xy":
        world.consume(tag=tag, prefetch=1)
    world.end_turn()
    assert sorted(world.taken()) == ["S", "S", "b"]


def test_turns_at_a_site_go_on_behind_a_consumer_that_left() -> None:
    """It was served last (queues page A.4; cluster page 12)."""
    sites = owned_queue(x_fairness="round-robin")
    for tag in "abc":
        sites.reader("n1", tag, prefetch=100)
    for _ in range(2):
        sites.publish("x", by=sites.at["n1"])
    served = [one.consumer.tag for one in sites.deliveries]
    sites.deliveries.clear()
    last = sites.client_of(served[-1])
    last.ack(1)
    last.close()
    sites.end_turn()
    sites.publish("x", by=sites.at["n1"])
    (third,) = [one.consumer.tag for one in sites.deliveries]
    assert {*served, third} == set("abc")


def test_a_reader_without_acknowledgements_gets_all_of_a_deep_queue() -> None:
    """Messages that it got are no longer active (queues page A.3)."""
    world = desk()
    world.consume(no_ack=True)
    world.publish(*["x"] * (2 * DEPTH))
    assert len(world.taken()) == 2 * DEPTH


def test_turns_go_on_behind_a_consumer_that_left() -> None:
    """The next one is served next (queues page A.4)."""
    world = Harness(kind="amps")
    world.queue(x_fairness="round-robin")
    sessions = {tag: world.connect() for tag in "abc"}
    for tag, session in sessions.items():
        world.consume(tag=tag, prefetch=5, by=session)
    world.publish("x")
    assert world.taken("a") == "x"
    sessions["a"].ack(1)
    sessions["a"].close()
    world.end_turn()
    world.publish("y")
    assert (world.taken("b"), world.taken("c")) == ("y", "")


def test_a_consumer_that_takes_a_lower_priority_gives_way() -> None:
    """Also if it subscribed first (docs/leases.md, x-replace)."""
    world = Harness(kind="amps")
    world.queue(x_fairness="fast")
    session = world.connect()
    world.consume(tag="first", prefetch=5, by=session)
    world.consume(tag="other", prefetch=5)
    world.consume(tag="first", by=session, x_priority=-1, x_replace=True)
    world.publish("x")
    assert (world.taken("first"), world.taken("other")) == ("", "x")


def test_nothing_is_left_of_filters_that_were_replaced() -> None:
    """A queue without filters is searched for nobody."""
    world = Harness(kind="amps")
    queue = world.queue(x_max_backlog_per_consumer=5)
    for number in range(3):
        world.consume(prefetch=5, x_filter=f"a = {number}", x_replace=True)
    world.publish("x", headers={"a": 2})
    assert world.taken() == "x"
    world.consume(prefetch=5, x_replace=True)
    world.publish("y")
    assert world.taken() == "y"
    assert queue.selection is None


def test_a_message_that_was_found_for_its_former_site_stays() -> None:
    """It went to another site and came back, while a filter of its first site had found it (cluster page 12)."""
    sites = owned_queue()
    sites.reader("n1", "busy", x_filter="a > 0")
    sites.reader("n2", "other", x_filter="a > 1")
    sites.publish("x", by=sites.at["n1"], headers={"a": 1})
    sites.publish("y", by=sites.at["n1"], headers={"a": 2})
    sites.advance(60)
    assert (sites.taken("busy"), sites.taken("other")) == ("x", "y")
    sites.ends_turns = False
    sites.client_of("other").cancel("other")
    sites.client_of("busy").ack(1)
    sites.end_turn()
    sites.advance(60)
    assert sites.taken("busy") == "y"


def test_a_get_of_a_message_that_came_back_to_its_new_site() -> None:
    """It is ready there no longer (cluster page 12)."""
    sites = owned_queue()
    sites.reader("n2")
    sites.publish("x", by=sites.at["n1"])
    sites.client_of("n2").cancel("n2")
    sites.end_turn()
    got = sites.get(by=sites.at["n2"], no_ack=False)
    assert got is not None and sites.owner_of(got[1].id) == "n2"
    assert sites.get(by=sites.at["n2"], no_ack=False) is None
    sites.at["n2"].reject(got[0], requeue=True)
    sites.end_turn()
    assert sites.get(by=sites.at["n2"]) is not None


def test_owners_of_messages_that_are_gone_are_forgotten_at_a_restart(tmp_path: Path) -> None:
    """The journal names all that went to other sites (cluster page 12)."""
    sites = owned_queue(journal=tmp_path)
    sites.reader("n2", prefetch=2)
    sites.publish("x", "y", by=sites.at["n1"], delivery_mode=2)
    sites.client_of("n2").ack(1)
    sites.end_turn()
    for end in (sites.kill, sites.restart):
        end()
        sites.end_turn()
        assert list(sites.owners.moved) == [2] and sites.owner_of(2) == "n2"
    assert sites.all() == "y"


# -- what a restart with other settings changes -----------------------------------------------------------------------

RANKED = '[[queue]]\nname = "q"\ntype = "amps"\npriority-expr = "rank"\n'
PLAIN = '[[queue]]\nname = "q"\ntype = "amps"\n'


def restarted_plain(tmp_path: Path, limits: str) -> Harness:
    """A queue with 100 messages that lost its priorities while the broker was stopped."""
    limits = f'[[address-setting]]\nmatch = "q"\n{limits}'
    world = Harness(RANKED + limits, journal=tmp_path, memory=1 << 20)
    world.publish(*["x" * 100] * 100, delivery_mode=2)
    world.settings = PLAIN + limits
    world.restart()
    assert world.named().ready_count == 100
    return world


def test_a_queue_that_lost_its_priorities_has_its_memory_limit(tmp_path: Path) -> None:
    """Older messages leave memory (queues page E.1)."""
    world = restarted_plain(tmp_path, "memory-limit = 20000\n")
    world.publish(*["y" * 100] * 400, delivery_mode=2)
    queue = world.named()
    assert queue.store.held_octets <= 20_000 and queue.meter is not None
    assert queue.meter.paged == queue.paged_count > 300
    assert world.all() == "x" * 10_000 + "y" * 40_000


@pytest.mark.parametrize(("before", "after"), [(RANKED, PLAIN), (PLAIN, RANKED)], ids=["lost", "got"])
def test_a_queue_with_other_priorities_counts_what_is_in_memory(tmp_path: Path, before: str, after: str) -> None:
    """With priorities all messages are (queues page E.1)."""
    limits = '[[address-setting]]\nmatch = "q"\nmemory-limit = 5000\n'
    world = Harness(before + limits, journal=tmp_path, memory=1 << 20)
    world.publish(*["x" * 100] * 100, delivery_mode=2)
    world.settings = after + limits
    world.restart()
    queue = world.named()
    assert queue.meter is not None
    assert queue.meter.paged == queue.paged_count and (queue.paged_count > 0) == (after == PLAIN)


def test_a_queue_that_lost_its_priorities_keeps_in_memory_what_its_cursor_says(tmp_path: Path) -> None:
    """`vm`: however little memory there is (queues page E.1)."""
    world = restarted_plain(tmp_path, 'memory-limit = 1000000\ncursor = "vm"\n')
    world.publish(*["y" * 1000] * 800, delivery_mode=2)
    assert world.named().paged_count == 0


LOGGED = '[[logged-topic]]\nname = "t"\n[[logged-topic]]\nname = "q"\n'
DEEP = f'{LOGGED}{PLAIN}underlying-topic = "t"\ntarget-depth = {DEPTH}\nmax-backlog-per-consumer = {DEPTH}\n'


def test_a_deep_queue_that_is_built_from_another_point(tmp_path: Path) -> None:
    """Those before it are gone, active or not, and the first ones after it are active (queues page A.3, C.5)."""
    world = Harness(DEEP + 'recovery-point = "now"\n', journal=tmp_path)
    first = world.broker.context.next_id
    world.publish(*["x"] * (DEPTH + 500), key="t", delivery_mode=2)
    world.settings = f'{DEEP}recovery-point = "1|{first + DEPTH + 200}|"\n'
    world.restart()
    assert world.named().ready_count == DEPTH  # as a metrics page asks, before the queue is built
    world.broker.virtual_hosts.started()
    world.end_turn()
    world.consume(x_browse=True)
    assert len(world.taken()) == 300


def test_a_queue_is_built_while_a_filter_waits() -> None:
    """The consumer was there before the first message (queues page C.5)."""
    world = Harness(kind="amps")
    world.queue("first", x_underlying_topic="t")
    world.publish(*"abc", key="t", headers={"a": 1})
    world.ends_turns = False
    world.queue(x_underlying_topic="t", x_max_backlog_per_consumer=5)
    world.consume(prefetch=5, x_filter="a = 1")
    world.end_turn()
    assert world.taken() == "abc"
