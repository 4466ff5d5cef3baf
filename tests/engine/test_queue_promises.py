"""What a queue keeps to whatever happens around it: its counts, its consumers' messages, its deadlines."""

from leveret.settings import SettingsRepository, entry
from leveret.testing.harness import Harness


def test_what_a_full_queue_refuses_is_not_counted_out_of_it() -> None:
    """reject-publish-dlx: it goes to the dead letters, and the queue's counts stay those of what is in it."""
    world = Harness(SettingsRepository([entry("q", max_size_bytes=1 << 20)]))
    world.queue("dead")
    queue = world.queue(
        x_max_length=1, x_overflow="reject-publish-dlx", x_dead_letter_exchange="", x_dead_letter_routing_key="dead"
    )
    world.publish("a")
    before = queue.events.octets
    world.publish("b", "c")
    assert queue.events.octets == before is not None
    assert (world.all("dead"), world.all()) == ("bc", "a")


def test_a_consumer_that_gives_very_many_back_gets_all_of_them_again() -> None:
    """Of a non-destructive queue, which hands them out in batches."""
    world = Harness(SettingsRepository([entry("#", default_non_destructive=True)]))
    world.queue()
    bodies = [f"{number} " for number in range(700)]
    world.publish(*bodies)
    world.consume()
    assert world.taken() == "".join(bodies)
    world.session.reject(0, multiple=True, requeue=True)
    world.end_turn()
    assert world.taken() == "".join(bodies)


def test_a_deleted_queue_leaves_no_deadline() -> None:
    """Not even one that waits for more consumers, or for a time."""
    settings = entry("#", default_consumers_before_dispatch=3, default_delay_before_dispatch_ms=60_000)
    world = Harness(SettingsRepository([settings]))
    world.queue(x_message_ttl=1000, x_expires=5000)
    world.publish("a")
    world.consume()
    assert world.broker.next_deadline_ns() is not None
    world.vhost.queues.delete("q", client=None)
    world.end_turn()
    assert world.broker.next_deadline_ns() is None


def test_a_message_that_was_delayed_expires_in_time() -> None:
    """Its lifetime counts from when it was published, and it leaves the queue though nobody asks for it."""
    world = Harness()
    queue = world.queue()
    world.publish("a", expiration=b"1000", headers={"x-delay": 400})
    world.publish("b", expiration=b"2000", headers={"x-delay": 400})
    world.advance(400)
    assert queue.ready_count == 2
    world.advance(600)
    assert queue.ready_count == 1
    world.advance(1000)
    assert queue.ready_count == 0


def test_a_new_message_does_not_overtake_those_that_are_paged_out() -> None:
    """A consumer comes and a message is published before any of the others is read back."""
    world = Harness(memory=10_000)
    queue = world.queue()
    world.publish("a", "b", delivery_mode=2)
    assert queue.pageable is not None
    queue.pageable.page_out(10_000)
    assert queue.in_memory_count == 0 and queue.paged_count == 2
    world.ends_turns = False
    world.consume()
    world.publish("c", delivery_mode=2)
    world.finish_turns()
    assert world.taken() == "abc"
