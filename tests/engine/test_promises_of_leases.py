"""What a leased queue with a target depth keeps to when messages are purged, or are due among others."""

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
