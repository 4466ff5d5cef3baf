"""What leased queues keep to: a target depth when messages are purged or due, barriers for gets, turns at a site."""

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
