"""What a queue keeps to when consumers come and go, rules change, and messages become due."""

from typing import Any

import pytest
from simulated_files import SimulatedFiles

from leveret.engine.options import BrokerOptions
from leveret.settings import Policies, SettingsRepository, entry, make_policy
from leveret.testing.harness import Harness


def test_a_queue_is_unused_since_its_last_consumer_left() -> None:
    """And not since it was made: it stays for the whole delay after that."""
    settings = SettingsRepository([entry("q", auto_delete_queues_delay_ms=10_000)])
    world = Harness(settings, options=BrokerOptions(address_queue_scan_period_ms=1000))
    world.vhost.queues.create("q", is_auto_created=True)
    world.consume()
    world.publish("a")
    world.session.ack(1)
    world.advance(60_000)
    world.session.cancel("c")
    world.end_turn()
    world.advance(9_000)
    assert "q" in world.vhost.queues
    world.advance(4_000)
    assert "q" not in world.vhost.queues


def test_a_queue_with_x_expires_stays_while_it_has_a_consumer() -> None:
    """However little happens; its time begins when the last one leaves."""
    world = Harness()
    world.queue(x_expires=10_000)
    world.consume()
    world.advance(60_000)
    assert "q" in world.vhost.queues
    world.session.cancel("c")
    world.end_turn()
    world.advance(9_000)
    assert "q" in world.vhost.queues
    world.advance(2_000)
    assert "q" not in world.vhost.queues


def test_an_auto_created_queue_is_removed_also_after_a_restart() -> None:
    """It is known as one that nobody declared."""
    toml = '[[address-setting]]\nmatch = "#"\nauto-delete-queues-skip-usage-check = true\n'
    world = Harness(toml, journal=SimulatedFiles())
    world.vhost.queues.create("made", is_auto_created=True)
    world.queue("declared")
    world.end_turn()
    world.kill()
    world.advance(120_000)
    assert list(world.vhost.queues) == ["declared"]


def test_a_queue_without_consumers_takes_nothing_if_it_is_purged_then() -> None:
    """purge-on-no-consumers: known routes hear of the last consumer that leaves, and of the first that comes."""
    world = Harness(SettingsRepository([entry("q", default_purge_on_no_consumers=True)]))
    world.queue()
    for _ in range(2):
        route = world.route("q")
        assert world.publish("a", mandatory=True) == [b"a"]
        world.consume()
        assert route.is_stale
        route = world.route("q")
        assert world.publish("b", mandatory=True) == []
        world.session.cancel("c")
        assert route.is_stale and world.named().ready_count == 0


def test_a_dispatch_that_has_begun_goes_on_while_a_delivery_is_out() -> None:
    """consumers-before-dispatch: the next consumer need not wait for another one, until all is settled."""
    world = Harness(SettingsRepository([entry("q", default_consumers_before_dispatch=2)]))
    world.queue()
    for tag in "ab":
        world.consume(tag=tag, prefetch=1)
    world.publish("1")
    (first,) = (one.tag for one in world.deliveries)
    for tag in "ab":
        world.session.cancel(tag)
    world.publish("2")
    world.taken()
    world.consume(tag="c", prefetch=2)
    assert world.taken() == "2"
    world.session.ack(first)
    world.session.ack(first + 1)
    world.session.cancel("c")
    world.publish("3")
    world.consume(tag="d", prefetch=2)
    assert world.taken() == ""


def test_a_policy_gives_an_unused_queue_a_time_to_live() -> None:
    """It counts from the policy, and ends with it."""
    world = Harness()
    world.queue()
    policy = make_policy("p", "/", "^q$", {"expires": 5000}, apply_to="queues")
    world.broker.reloading.replace_policies(Policies([policy]))
    world.advance(4000)
    world.broker.reloading.replace_policies(Policies())
    world.advance(4000)
    assert "q" in world.vhost.queues
    world.broker.reloading.replace_policies(Policies([policy]))
    world.advance(5000)
    assert "q" not in world.vhost.queues


@pytest.mark.parametrize("consumes", [True, False])
def test_what_is_due_in_a_full_queue_goes_to_a_consumer_or_to_the_dead_letters(consumes: bool) -> None:
    """reject-publish-dlx: of messages that are due together the first is taken, and the next has its room."""
    world = Harness()
    world.queue("dead")
    world.queue(
        x_max_length=1, x_overflow="reject-publish-dlx", x_dead_letter_exchange="", x_dead_letter_routing_key="dead"
    )
    world.publish("a", "b", "c", headers={"x-delay": 100})
    if consumes:
        world.consume(no_ack=True)
    world.advance(100)
    if consumes:
        assert (world.taken(), world.all("dead")) == ("abc", "")
    else:
        assert (world.all(), world.all("dead")) == ("a", "bc")


def test_a_reader_of_a_stream_goes_on_behind_what_was_dropped() -> None:
    """It was slower than the bound of octets."""
    world = Harness()
    queue = world.queue(x_queue_type="stream", x_max_length_bytes=2000, x_stream_max_segment_size_bytes=500)
    world.publish(*[f"{number:0100d}" for number in range(3)])
    world.consume(prefetch=1, x_stream_offset="first")
    assert int(world.taken()) == 0
    world.publish(*[f"{number:0100d}" for number in range(3, 60)])
    first = queue.first_offset
    assert first is not None and first > 3
    world.session.ack(1)
    world.end_turn()
    assert int(world.taken()) == first


def test_a_stream_may_have_as_many_octets_as_its_bound() -> None:
    """Its oldest segment goes for the first octet beyond it."""

    def first_offset(bound: int) -> tuple[int | None, int]:
        world = Harness()
        queue = world.queue(x_queue_type="stream", x_stream_max_segment_size_bytes=100, x_max_length_bytes=bound)
        for number in range(10):
            world.publish(f"{number:0100d}")
        store: Any = queue.store
        return queue.first_offset, store.octets

    _, octets = first_offset(1_000_000)
    assert first_offset(octets) == (0, octets)
    assert first_offset(octets - 1)[0] == 1


def test_a_reader_that_is_gone_leaves_nothing_behind() -> None:
    """What it gave back, and where it stood: clients may come and go for years."""
    world = Harness(SettingsRepository([entry("#", default_non_destructive=True)]))
    queue = world.queue()
    world.publish(*"abc")
    parts: Any = queue.delivery
    for number in range(3):
        session = world.connect(str(number))
        world.consume(by=session, prefetch=2)
        session.set_flowing(False)
        session.reject(0, multiple=True, requeue=True)
        session.close()
        world.end_turn()
    known = parts._positions
    assert not known.seen and not known.returned and not known.waiting
