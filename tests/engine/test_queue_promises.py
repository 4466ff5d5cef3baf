"""What a queue keeps to whatever happens around it: its counts, its consumers' messages, its deadlines."""

import pytest

from leveret.engine import MS, BrokerOptions, Choice, Envelope, EventKind, Moving, Queue, VirtualHostLimits, to_queue
from leveret.engine.errors import (
    ConsumerTagInUse,
    ExclusiveConsumerRefused,
    NotEmpty,
    QueueNotFound,
    QueuesMaxReached,
    StreamOperationNotSupported,
    UnknownDeliveryTag,
)
from leveret.engine.invariants import check_broker
from leveret.engine.messages.content import NATIVE
from leveret.engine.messages.field_table import Field
from leveret.engine.publishing.firehose import EXCHANGE, Firehose
from leveret.engine.publishing.route import Route
from leveret.engine.publishing.service import ServiceExchange
from leveret.engine.queues import queue as queue_module
from leveret.engine.queues import scheduled
from leveret.settings import NO_SETTINGS, Divert, Policies, SettingsRepository, WholeLimits, entry, make_policy
from leveret.testing.harness import Harness, arguments_of, messages


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


def test_a_time_to_live_of_zero_and_a_limit_of_zero() -> None:
    """As in RabbitMQ the limit kills a message that nobody takes, and its time where there are no dead letters."""
    world = Harness()
    dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}
    full = world.queue("full", x_message_ttl=0, x_max_length=0, **dead)
    brief = world.queue("brief", x_message_ttl=0, x_max_length=0)
    for name in ("full", "brief"):
        world.publish("a", key=name)
    assert (full.events.counters.expired, brief.events.counters.expired) == (0, 1)


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
    assert queue.store.in_memory == 0 and queue.paged_count == 2
    world.ends_turns = False
    world.consume()
    world.publish("c", delivery_mode=2)
    world.finish_turns()
    assert world.taken() == "abc"


def test_expired_messages_give_a_ring_room_as_dead_letters() -> None:
    """They are not dropped for a new message, although nobody looked since they expired."""
    world = Harness()
    world.queue("dead")
    world.queue(x_ring_size=2, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    world.publish("a", "b", expiration=b"1000")
    world.clock.advance_ns(1000 * MS)
    world.publish("c")
    assert (world.all("dead"), world.all()) == ("ab", "c")


def test_a_message_without_a_group_is_for_any_consumer_of_a_queue_with_groups() -> None:
    """Also if the consumer has messages of a group."""
    world = Harness()
    queue = world.queue()
    world.consume()
    world.publish("a", headers={"JMSXGroupID": "g"})
    assert queue.consumer_list.groups is not None
    world.publish("b")
    assert world.taken() == "ab"


def test_a_delayed_message_that_came_due_behind_paged_out_ones_can_be_taken() -> None:
    """Its id is the lowest, its place the last; messages are found by their ids wherever they stand."""
    world = Harness(memory=100_000)
    world.vhost.exchanges.declare("later", "x-delayed-message", arguments={"x-delayed-type": Field("S", b"fanout")})
    queue = world.queue()
    world.bind("q", "later")
    world.publish("late", key="", exchange="later", headers={"x-delay": 1000}, delivery_mode=2)
    (late,) = queue.scheduled
    world.publish(*"abc", delivery_mode=2)
    assert queue.pageable is not None
    queue.pageable.page_out(100_000)
    world.advance(1000)
    queue.pageable.load(20, 100_000)
    assert [message.body for message in queue.store] == [b"a", b"b", b"c", b"late"]
    assert [message.body for message in queue.evictable.take_at([late.id]).messages] == [b"late"]


def test_a_new_value_has_its_own_lifetime_and_attempts() -> None:
    """Not those of the one that it replaces."""
    world = Harness()
    world.queue(x_last_value=True, x_last_value_key="k")
    world.publish("a", headers={"k": "1"}, expiration=b"1000")
    got = world.get(no_ack=False)
    assert got is not None
    world.session.reject(got[0], requeue=True)
    world.publish("b", headers={"k": "1"})
    world.advance(2000)
    got = world.get()
    assert got is not None
    assert (got[1].body, got[2]) == (b"b", False)


def test_of_two_values_that_come_back_together_the_one_that_was_published_last_stays() -> None:
    """The other one came later into this queue, by a move."""
    world = Harness()
    world.queue("from")
    world.queue(x_last_value=True, x_last_value_key="k")
    world.publish("old", key="from", headers={"k": "1"})
    world.publish("new", headers={"k": "1"})
    world.consume()
    moving = Moving(
        world.named("from"), world.client, Choice(lambda message: True), to_queue(world.client, "q"), "moved"
    )
    moving.work()
    world.end_turn()
    assert world.taken() == "newold"
    world.session.cancel("c")
    world.session.reject(0, multiple=True, requeue=True)
    world.end_turn()
    assert world.all() == "new"


def test_a_dead_letter_is_as_old_as_its_message() -> None:
    """It does not replace a value of its key that was published after it."""
    world = Harness()
    world.queue(x_last_value=True, x_last_value_key="k")
    world.queue("brief", x_message_ttl=1000, x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    world.publish("old", key="brief", headers={"k": "1"})
    world.publish("new", headers={"k": "1"})
    world.advance(1000)
    assert (world.all("brief"), world.all()) == ("", "new")


@pytest.mark.parametrize("gone", [0, 2, 5])
def test_scheduled_messages_come_in_time_when_one_of_them_is_cancelled(gone: int) -> None:
    """Whichever it was."""
    world = Harness()
    queue = world.queue()
    for due_ms in (100, 500, 200, 600, 550, 300):
        world.publish(f"{due_ms} ", headers={"x-delay": due_ms})
    ids = [message.id for message in sorted(queue.scheduled, key=lambda message: message.id)]
    assert scheduled.cancel(queue, ids[gone])
    left = [due_ms for at, due_ms in enumerate((100, 500, 200, 600, 550, 300)) if at != gone]
    for due_ms in range(50, 650, 50):
        world.advance(50)
        assert world.all() == (f"{due_ms} " if due_ms in left else "")


def test_keys_of_bcc_are_kept_for_a_dead_letter_and_shown_to_nobody() -> None:
    """The dead letter goes to all keys of its message; x-death names those that it showed."""
    world = Harness()
    world.vhost.exchanges.declare("dlx", "direct")
    world.queue(x_dead_letter_exchange="dlx")
    for key in ("q", "seen", "hidden"):
        world.queue(f"dead {key}")
        world.bind(f"dead {key}", "dlx", key)
    world.publish("m", headers={"CC": ["seen"], "BCC": ["hidden"]})
    got = world.get(no_ack=False)
    assert got is not None
    world.session.reject(got[0], requeue=False)
    world.end_turn()
    letters = [world.get(f"dead {key}") for key in ("q", "seen", "hidden")]
    assert all(letters)
    assert not any(b"hidden" in letter[1].content for letter in letters if letter is not None)


def test_a_deep_queue_of_priorities_is_looked_through_to_its_end() -> None:
    """Messages of lower priority are older than those before them, and all are paged out."""
    world = Harness(memory=100_000)
    queue = world.queue(x_max_priority=2)
    for priority, bodies in ((0, "abc"), (1, "de"), (2, "fgh")):
        world.publish(*bodies, priority=priority, delivery_mode=2)
    assert queue.pageable is not None
    queue.pageable.page_out(100_000)
    assert queue.store.in_memory == 0
    for step in range(1, 9):
        seen, after = "", 0
        while found := queue.scan(after, step).found:
            seen += "".join(message.body.decode() for _, message in found)
            after = found[-1][0]
        assert seen == "fghdeabc"


def test_the_order_stays_when_one_is_taken_out_of_a_queue_whose_ids_do_not_rise() -> None:
    """A delayed message came behind newer ones; and it is found, also after the queue got another kind of list."""
    world = Harness()
    world.vhost.exchanges.declare("later", "x-delayed-message", arguments={"x-delayed-type": Field("S", b"fanout")})
    queue = world.queue()
    world.bind("q", "later")
    world.publish("late", key="", exchange="later", headers={"x-delay": 1000})
    (late,) = queue.scheduled
    world.publish(*"abcd")
    world.advance(1000)
    second = list(queue.store)[1]
    assert queue.evictable.take_at([second.id]).messages == [second]
    assert world.bodies() == [b"a", b"c", b"d", b"late"]
    world.broker.reloading.replace_policies(Policies([make_policy("p", "/", "^q$", {"max-length-bytes": 100})]))
    world.end_turn()
    assert queue.evictable.take_at([late.id]).messages == [late]
    assert world.bodies() == [b"a", b"c", b"d"]


def test_a_dead_letter_key_that_is_too_long_is_cut_between_characters() -> None:
    """What is left fits into a short string, and has no character that was not there."""
    world = Harness()
    world.vhost.exchanges.declare("dlx", "fanout")
    world.queue("dead")
    world.bind("dead", "dlx")
    world.queue(x_dead_letter_exchange="dlx", x_dead_letter_routing_key="k" * 254 + "\u00e9", x_message_ttl=0)
    world.publish("m")
    got = world.get("dead")
    assert got is not None and got[1].envelope.routing_key == "k" * 254


def test_acknowledgements_before_a_wrong_one_count() -> None:
    """They came in the same read; what they acknowledge does not come back with the rest."""
    world = Harness()
    queue = world.queue()
    world.publish(*"abc")
    tags = [got[0] for _ in range(3) if (got := world.get(no_ack=False)) is not None]
    with pytest.raises(UnknownDeliveryTag):
        world.session.ack_each([tags[0], 99, tags[1]])
    assert sorted(message.body for message in queue.unacked_messages()) == [b"b", b"c"]
    assert queue.events.unacked == 2
    world.session.close(failed=True)
    world.session = world.connect()
    assert world.all() == "bc"


def test_a_diverted_copy_is_no_duplicate() -> None:
    """An id is looked at where its publisher sent it; the place that the copy goes to remembers another publisher's."""
    world = Harness()
    for name in ("q", "copy"):
        world.queue(name)
    world.broker.reloading.replace_diverts([Divert("d", "q", ("copy",))])
    world.publish("a", key="copy", headers={"_AMQ_DUPL_ID": "1"})
    world.publish("b", headers={"_AMQ_DUPL_ID": "1"})
    world.publish("c", headers={"_AMQ_DUPL_ID": "1"})
    assert (world.all(), world.all("copy")) == ("b", "ab")


def test_a_slow_connection_gets_no_more_than_its_room_beside_a_quick_one() -> None:
    """Runs are dealt to both; it has room for a part of its share."""
    world = Harness(unsent_max=3000)
    world.queue()
    slow, quick = world.connect("slow"), world.connect("quick")
    world.stalled.add(slow.client)
    world.consume(tag="s", by=slow, no_ack=True)
    while slow.client.outbox_room() > 500:
        world.publish("x" * 100)
    world.consume(tag="q", by=quick, no_ack=True)
    world.publish(*["x" * 100] * 20)
    assert slow.client.unsent <= slow.client.unsent_max + 300
    world.stalled.clear()
    world.read(slow.client)
    world.end_turn()
    assert world.named().ready_count == 0


def test_a_consumer_is_not_exclusive_beside_another() -> None:
    """Nor does another one come beside it."""
    world = Harness()
    world.queue()
    world.consume(tag="a")
    with pytest.raises(ExclusiveConsumerRefused):
        world.consume(tag="b", exclusive=True)
    world.session.cancel("a")
    world.consume(tag="b", exclusive=True)
    with pytest.raises(ExclusiveConsumerRefused):
        world.consume(tag="a")


def test_values_that_are_read_back_are_counted() -> None:
    """Most contents of a last-value queue are on disk only; the invariants look at the counts after each turn."""
    world = Harness(memory=12_000)
    world.checks = True
    world.queue(x_last_value=True, x_last_value_key="k")
    for number in range(30):
        world.publish("x" * 1000, headers={"k": str(number)}, delivery_mode=2)
    for _ in range(3):
        for number in (*range(0, 30, 4), 17):
            world.publish("y" * 500, headers={"k": str(number)}, delivery_mode=2)
        got = [world.get(no_ack=False) for _ in range(7)]
        assert all(got)
        world.session.reject(0, multiple=True, requeue=True)
        world.end_turn()
    assert len(world.all()) in range(15_000, 30_000)


@pytest.mark.parametrize("is_first", [True, False])
def test_messages_expire_in_time_whatever_their_priority(is_first: bool) -> None:
    """The head of each priority counts, not only that of the highest."""
    world = Harness()
    queue = world.queue(x_max_priority=2)
    world.publish("low", priority=0, expiration=b"1000" if is_first else b"5000")
    world.publish("high", priority=1, expiration=b"5000" if is_first else b"1000")
    world.advance(1000)
    assert queue.ready_count == 1
    world.advance(4000)
    assert queue.ready_count == 0


def converted(world: Harness) -> None:
    """A policy limits octets: the queue gets another store."""
    policy = make_policy("p", "/", "^q$", {"max-length-bytes": 1 << 20})
    world.broker.reloading.replace_policies(Policies([policy]))
    world.end_turn()


def test_a_message_expires_in_time_when_its_queue_gets_another_store() -> None:
    """Also if it is out meanwhile, and comes back after that."""
    world = Harness()
    queue = world.queue()
    world.publish("a", expiration=b"1000")
    assert world.get(no_ack=False) is not None
    converted(world)
    world.session.reject(1, requeue=True)
    world.end_turn()
    assert queue.ready_count == 1
    world.advance(1000)
    assert queue.ready_count == 0


def test_the_limit_of_memory_holds_when_a_queue_gets_another_store() -> None:
    """Later messages are paged out as before."""
    settings = entry("q", address_full_policy="PAGE", max_size_messages=10)
    world = Harness(SettingsRepository([settings]), memory=1 << 20)
    queue = world.queue()
    converted(world)
    for number in range(50):
        world.publish(f"{number}", delivery_mode=2)
    assert (queue.ready_count, queue.store.in_memory) == (50, 10)


def test_what_is_read_back_counts_in_the_memory_of_all_queues() -> None:
    """A consumer reads a deep queue back while another queue becomes deep: together they keep to the limit."""
    world = Harness(memory=200_000)
    queues = [world.queue(name) for name in "ab"]
    bodies = ["x" * 1000] * 400
    world.publish(*bodies, key="a", delivery_mode=2)
    assert queues[0].pageable is not None
    queues[0].pageable.page_out(200_000)
    world.session.set_prefetch(1, total=False)
    world.consume("a")
    world.finish_turns()
    for body in bodies:
        world.publish(body, key="b", delivery_mode=2)
    held = [queue.pageable.held_octets for queue in queues if queue.pageable is not None]
    assert min(held) > 0 and sum(held) < 250_000


def test_what_came_back_and_was_paged_out_is_redelivered_from_the_disk() -> None:
    """To a consumer with room for all, which gets paged-out messages without a stop in memory."""
    world = Harness(memory=1 << 20)
    queue = world.queue()
    world.publish(*"x" * 200, delivery_mode=2)
    for _ in range(3):
        assert world.get(no_ack=False) is not None
    world.session.reject(0, multiple=True, requeue=True)
    world.end_turn()
    assert queue.pageable is not None
    queue.pageable.page_out(1 << 20)
    assert queue.store.in_memory == 0
    world.consume()
    world.finish_turns()
    assert (len(world.session.unacked), world.session.redelivered) == (200, 3)


def test_what_came_back_goes_out_before_a_new_message_drops_it() -> None:
    """In one turn: the consumer that waits gets it, and the limit of length does not count it."""
    world = Harness()
    queue = world.queue(x_max_length=1)
    world.session.set_prefetch(1, total=False)
    world.consume()
    world.publish("a")
    world.ends_turns = False
    world.session.reject(1, requeue=True)
    world.publish("b")
    world.finish_turns()
    assert (world.taken(), queue.ready_count) == ("aa", 1)


def test_the_next_message_expires_in_time_after_a_get() -> None:
    """Though it lives shorter than the one that was got before it."""
    world = Harness()
    queue = world.queue()
    world.publish("a", expiration=b"5000")
    world.publish("b", expiration=b"1000")
    assert world.get() is not None
    world.advance(1000)
    assert queue.ready_count == 0


def test_a_rejection_that_has_nowhere_to_go_is_no_attempt() -> None:
    """The address for dead letters is full: once it has room, the message has all its attempts."""
    full = entry("D", max_size_messages=1, address_full_policy="FAIL")
    world = Harness(SettingsRepository([entry("q", max_delivery_attempts=2, dead_letter_address="D"), full]))
    dead, queue = world.queue("D"), world.queue()
    world.publish("x", key="D")
    world.publish("a")
    for requeue in (False, False, False, True):
        got = world.get(no_ack=False)
        assert got is not None
        if requeue:
            dead.purge()
        world.session.reject(got[0], requeue=requeue)
        world.end_turn()
        assert (queue.ready_count, dead.ready_count) == (1, 0 if requeue else 1)
    got = world.get(no_ack=False)
    assert got is not None
    world.session.reject(got[0], requeue=True)
    world.end_turn()
    assert (queue.ready_count, dead.ready_count) == (0, 1)


@pytest.mark.parametrize(
    "said, arguments",
    [({}, {"x_max_length": 2}), ({}, {"x_ring_size": 2}), ({"pending_message_limit": 2}, {})],
)
def test_a_run_of_new_messages_does_not_drop_what_came_back(said: dict[str, int], arguments: dict[str, int]) -> None:
    """In one turn: the consumer that waits gets what came back, before a limit counts."""
    world = Harness(SettingsRepository([entry("q", **said)]))
    queue = world.queue(durable=False, exclusive=True, client=world.client, **arguments)
    world.consume(prefetch=1)
    world.publish("a")
    world.ends_turns = False
    world.session.reject(1, requeue=True)
    world.publish("b", "c")
    world.finish_turns()
    assert (world.taken(), queue.ready_count) == ("aa", 2)


def test_what_expired_behind_the_head_of_a_ring_is_a_dead_letter() -> None:
    """Though several messages come back at once, more than the ring has room for."""
    world = Harness(SettingsRepository([entry("q", expiry_address="dead")]))
    world.queue("dead")
    world.queue(x_ring_size=2)
    world.consume(prefetch=2)
    world.publish("a")
    world.publish("b", expiration=b"100")
    world.publish("c", "d")
    world.advance(200)
    world.session.cancel("c")
    world.session.reject(2, multiple=True, requeue=True)
    world.end_turn()
    assert (world.all("dead"), world.all()) == ("b", "cd")


def test_a_ring_drops_no_expired_message_for_want_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many dead letters are on their way; the ring's expired message is one of them all the same."""
    monkeypatch.setattr(queue_module, "DEAD_LETTERED_MAX", 1)
    world = Harness(SettingsRepository([entry("#", expiry_address="dead")]))
    for name in ("dead", "other"):
        world.queue(name)
    world.queue(x_ring_size=2)
    world.publish("x", "y", key="other", expiration=b"100")
    world.publish("a", expiration=b"100")
    world.publish("b")
    world.ends_turns = False
    world.clock.advance_ns(150 * MS)
    assert world.get("other") is None
    world.publish("c")
    world.ends_turns = True
    assert sorted(world.all("dead")) == ["a", "x", "y"]


def test_messages_that_expire_at_once_die_in_the_order_of_publishing() -> None:
    """Also one that waits for its redelivery until then."""
    world = Harness(SettingsRepository([entry("q", expiry_address="dead", redelivery_delay_ms=1000)]))
    world.queue("dead")
    world.queue()
    world.publish("a", "b", expiration=b"500")
    got = world.get(no_ack=False)
    assert got is not None
    world.session.reject(got[0], requeue=True)
    world.advance(600)
    assert world.all("dead") == "ab"


def test_the_attempts_of_a_copy_are_no_octets_of_its_queue() -> None:
    """A header says how often a reader of a non-destructive queue gave it back; the stored message stays as it is."""
    limits = {"max_size_bytes": 1 << 20, "address_full_policy": "BLOCK", "max_delivery_attempts": 9}
    world = Harness(SettingsRepository([entry("q", default_non_destructive=True, **limits)]))
    queue = world.queue()
    world.consume()
    world.publish("a")
    before = queue.events.octets
    assert before
    world.session.reject(1, requeue=True, why="nack")
    world.end_turn()
    again = world.deliveries[-1]
    assert (again.redelivered, [*again.headers]) == (True, ["x-delivery-count"])
    assert queue.events.octets == before


@pytest.mark.parametrize("headers", [{}, {"JMSXGroupID": "g"}], ids=["plain", "of a group"])
@pytest.mark.parametrize(("prefetch", "taken"), [(4, "aabb"), (20, "aaaabbbb")])
def test_queues_share_the_prefetch_of_a_channel_in_turn(prefetch: int, taken: str, headers: dict[str, str]) -> None:
    """With room for four messages two queues with four each give two each; with room for more they give all."""
    world = Harness()
    for name in "ab":
        world.queue(name)
        world.publish(*(name * 4), key=name, headers=headers)
    world.ends_turns = False
    world.session.set_prefetch(prefetch, total=True)
    for name in "ab":
        world.consume(name, name)
    world.finish_turns()
    assert sorted(world.taken()) == [*taken]


def test_messages_that_have_to_stay_in_memory_stay_there_in_another_store() -> None:
    """A policy limits the octets of a queue whose cursor keeps all messages in memory."""
    world = Harness(SettingsRepository([entry("q", memory_limit=1 << 20, cursor="vm")]), memory=1 << 20)
    queue = world.queue()
    assert queue.pageable is not None and not queue.pageable.share.may_page
    world.broker.reloading.replace_policies(Policies([make_policy("p", "/", "^q$", {"max-length-bytes": 1 << 20})]))
    world.end_turn()
    assert queue.pageable.counts_octets and not queue.pageable.share.may_page


def test_a_delayed_message_that_expires_before_it_is_due_is_delivered_to_nobody() -> None:
    """It expires once, though another one is due at that time."""
    world = Harness()
    queue = world.queue()
    world.publish("a", headers={"x-delay": 1000}, expiration=b"500")
    world.publish("b", headers={"x-delay": 500})
    world.advance(500)
    assert (queue.ready_count, queue.events.counters.expired) == (1, 1)
    assert world.all() == "b"


def test_a_delayed_message_comes_behind_what_is_paged_out() -> None:
    """From a delaying exchange: behind later ids, where a filter finds it as well."""
    world = Harness(memory=0)
    world.checks = True
    world.vhost.exchanges.declare("d", "x-delayed-message", arguments=arguments_of({"x-delayed-type": "fanout"}))
    queue = world.queue()
    world.bind("q", "d")
    world.publish("a", exchange="d", delivery_mode=2, headers={"x-delay": 100, "k": 1})
    world.publish(*(name * 10_000 for name in "bcdef"), delivery_mode=2)
    assert queue.store.has_tail
    world.advance(200)
    world.consume(tag="filtered", x_filter="k = 1")
    assert (world.taken(), world.all()[::10_000]) == ("a", "bcdef")


def test_the_limit_of_memory_holds_for_what_came_while_nothing_could_leave() -> None:
    """The cursor of a queue kept all its messages in memory; a reload lets them make room for another queue's."""
    world = Harness(SettingsRepository([entry("q", memory_limit=1 << 20, cursor="vm")]), memory=100_000)
    queues = [world.queue(name) for name in ("q", "other")]
    world.publish(*["x" * 1000] * 300, delivery_mode=2)
    assert queues[0].store.in_memory == 300
    world.reload(SettingsRepository([]))
    for number in range(400):
        world.publish("x" * 1000, key=("q", "other")[number % 2], delivery_mode=2)
    assert sum(queue.pageable.held_octets for queue in queues if queue.pageable is not None) < 150_000


def test_a_queue_that_is_read_as_fast_as_it_is_filled_stays_in_memory() -> None:
    """However much goes through it: nothing is read back from the disk."""
    world = Harness(memory=100_000)
    queue = world.queue()
    for _ in range(100):
        world.publish(*["x" * 1000] * 10, delivery_mode=2)
        assert queue.store.in_memory == queue.ready_count
        world.take(9)
        if queue.ready_count > 20:
            world.take(queue.ready_count)


def test_values_that_were_replaced_leave_nothing_behind() -> None:
    """Of a queue that keeps the newest value of each key: dead letters, which are older than they seem, come and go."""
    world = Harness()
    world.checks = True
    world.queue(x_last_value=True, x_last_value_key="k", x_non_destructive=True)
    world.queue("brief", x_message_ttl=1000, x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    for body in "abc":
        world.publish(body, key="brief", headers={"k": "1"})
        world.advance(1000)
    world.publish("d", headers={"k": "1"})
    world.end_turn()
    world.consume()
    assert world.taken() == "d"


def non_destructive(**settings: object) -> Harness:
    """A broker with a non-destructive queue of these settings."""
    world = Harness(SettingsRepository([entry("q", default_non_destructive=True, **settings)]))
    world.queue()
    return world


def test_a_delayed_message_of_a_non_destructive_queue_reaches_those_that_take_it() -> None:
    """Also consumers that have seen younger ones; but none whose filter excludes it."""
    world = non_destructive()
    for tag, text in (("one", "a = 1"), ("two", "a = 2"), ("all", "1 = 1")):
        world.consume(tag=tag, x_filter=text)
    due_ms = world.clock.wall_ms() + 100
    world.publish("late", headers={"a": 2, "_AMQ_SCHED_DELIVERY": due_ms})
    for number in (1, 2):
        world.publish(f"{number}", headers={"a": number})
    assert [world.taken(tag) for tag in ("one", "two", "all")] == ["1", "2", "12"]
    world.advance(100)
    assert [world.taken(tag) for tag in ("one", "two", "all")] == ["", "late", "late"]


def test_returned_copies_come_again_once_in_their_order_if_they_are_still_there() -> None:
    """Of a non-destructive queue, out of which another consumer has rejected one of them meanwhile."""
    world = non_destructive()
    other = world.connect("other")
    world.consume()
    world.consume(tag="o", by=other)
    world.publish(*"abc")
    assert (world.taken("c"), world.taken("o")) == ("abc", "abc")
    world.ends_turns = False
    for tag in (3, 1, 2):
        world.session.reject(tag, requeue=True)
    other.reject(1, requeue=False)
    world.finish_turns()
    assert world.taken() == "bc"
    world.publish("d")
    world.finish_turns()
    assert (world.taken("c"), world.taken("o")) == ("d", "d")


def test_a_queue_with_delayed_messages_is_not_empty() -> None:
    """queue.delete with if-empty refuses it, as messages would be lost."""
    world = Harness()
    world.queue(client=world.client, durable=True)
    world.publish("a", headers={"_AMQ_SCHED_DELIVERY": world.clock.wall_ms() + 100})
    with pytest.raises(NotEmpty):
        world.vhost.queues.delete("q", world.client, if_empty=True)
    world.advance(100)
    assert world.all() == "a"
    world.vhost.queues.delete("q", world.client, if_empty=True)
    assert "q" not in world.vhost.queues


def test_a_purge_takes_nothing_from_a_consumer_that_waits() -> None:
    """What was published before it, in the same turn, goes out first."""
    world = Harness()
    queue = world.queue(client=world.client, durable=True)
    world.publish("a", "b")
    world.consume(prefetch=1)
    assert world.taken() == "a"
    world.ends_turns = False
    world.session.ack(1)
    assert world.vhost.queues.purge("q", world.client) == 0
    world.finish_turns()
    assert (world.taken(), queue.unacked) == ("b", 1)


def test_a_virtual_host_that_may_have_no_queues_has_none() -> None:
    """A limit of 0 is one."""
    world = Harness()
    world.broker.virtual_hosts.limit(world.vhost, VirtualHostLimits(max_queues=0))
    with pytest.raises(QueuesMaxReached):
        world.vhost.queues.declare("q", client=world.client, durable=True)


def test_a_queue_whose_policy_went_is_not_deleted_for_it() -> None:
    """The policy deleted unused queues; the time that it set is forgotten."""
    world = Harness()
    world.queue()
    world.broker.reloading.replace_policies(Policies([make_policy("p", "/", "^q$", {"expires": 1000})]))
    world.end_turn()
    world.advance(500)
    world.broker.reloading.replace_policies(Policies([]))
    world.end_turn()
    world.advance(5000)
    assert "q" in world.vhost.queues


def test_a_reader_gets_a_message_again_whose_only_way_out_leads_back() -> None:
    """A non-destructive queue that is its own dead-letter address: no copy dies there, or it would go in circles."""
    world = non_destructive(dead_letter_address="q", max_delivery_attempts=1)
    world.consume()
    world.publish("a")
    for tag in (1, 2, 3):
        world.session.reject(tag, requeue=True, why="nack")
        world.end_turn()
    assert [one.redelivered for one in world.deliveries] == [False, True, True, True]
    assert world.named().events.counters.enqueued == 1


def test_groups_and_filters_hold_together() -> None:
    """The first message of a group says so; the others wait for its consumer, also those that its filter excludes."""
    world = Harness(SettingsRepository([entry("q", default_group_first_key="first")]))
    world.queue()
    for tag, text in (("one", "a = 1"), ("two", "a = 2")):
        world.consume(tag=tag, x_filter=text)
    for body, number in (("x", 1), ("y", 2), ("z", 1)):
        world.publish(body, headers={"JMSXGroupID": "g", "a": number})
    assert (world.taken("two"), [one.body for one in world.deliveries]) == ("", [b"x", b"z"])
    assert ["first" in one.headers for one in world.deliveries] == [True, False]
    world.session.ack(0, multiple=True)
    world.session.cancel("one")
    world.end_turn()
    assert (world.deliveries[-1].body, "first" in world.deliveries[-1].headers) == (b"y", True)


@pytest.mark.parametrize("headers", [{}, {"JMSXGroupID": "g"}], ids=["plain", "of a group"])
def test_no_consumer_with_a_filter_gets_what_has_just_expired(headers: dict[str, str]) -> None:
    """Behind a message that its filter excludes: it becomes a dead letter, and what is behind it goes out."""
    world = Harness()
    world.queue("dead")
    world.queue(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    world.consume(x_filter="a = 1", prefetch=1)
    for body, number, more in (("x", 1, {}), ("head", 2, {}), ("short", 1, {"expiration": b"500"}), ("y", 1, {})):
        world.publish(body, headers={**headers, "a": number}, **more)
    world.clock.advance_ns(500 * MS)
    world.session.ack(1)
    world.end_turn()
    assert (world.taken(), world.all("dead"), world.all()) == ("xy", "short", "head")


@pytest.mark.parametrize("expires", [True, False], ids=["expires", "is got"])
def test_what_is_gone_counts_for_no_consumer_with_a_filter(expires: bool) -> None:
    """A message that was found for a consumer expires behind another one, or a get takes it: the consumer of the
    highest priority gets the next one, and its turn in the order of service is not used up.
    """
    world = Harness()
    world.queue("dead")
    queue = world.queue(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    sessions = [world.client.open_session() for _ in range(3)]
    for session, tag, text, priority in zip(sessions, "hij", ("a > 0", "a = 2", "a > 0"), (5, 0, 5)):
        world.consume(tag=tag, by=session, x_filter=text, x_priority=priority, prefetch=1)
    world.publish("head", headers={"a": 0})
    world.publish("w", "x", headers={"a": 1})
    assert (world.taken("h"), world.taken("j"), world.taken("i")) == ("w", "x", "")
    sessions[1].set_flowing(False)
    world.publish("gone", headers={"a": 1}, **({"expiration": b"500"} if expires else {}))
    world.publish("y", "z", headers={"a": 2})
    world.clock.advance_ns(500 * MS)
    if not expires:
        assert [world.get()[1].body for _ in range(2)] == [b"head", b"gone"]  # type: ignore[index]
    sessions[1].set_flowing(True)
    sessions[0].ack(1)
    sessions[2].ack(1)
    world.end_turn()
    assert (world.taken("h"), world.taken("j"), world.taken("i")) == ("y", "z", "")
    assert [one.body for one in queue.store] == [b"head"] * expires
    assert world.all("dead") == "gone" * expires
    check_broker(world.broker)


def test_an_expired_message_makes_no_consumer_the_owner_of_its_group() -> None:
    """The next one of the group is its first, and says so."""
    world = Harness(SettingsRepository([entry("q", default_group_first_key="first")]))
    world.queue()
    world.consume(x_filter="a = 1", prefetch=1)
    world.publish("x", headers={"a": 1})
    world.publish("head", headers={"a": 2})
    world.publish("short", headers={"a": 1, "JMSXGroupID": "g"}, expiration=b"500")
    world.publish("y", headers={"a": 1, "JMSXGroupID": "g"})
    world.clock.advance_ns(500 * MS)
    world.session.ack(1)
    world.end_turn()
    assert [(one.body, "first" in one.headers) for one in world.deliveries] == [(b"x", False), (b"y", True)]


@pytest.mark.parametrize("name", ["", "amq.gone", "a\nb", "\u00e9" * 128])
def test_no_queue_is_made_for_a_name_that_no_queue_can_have(name: str) -> None:
    """As for dead letters to such an address, which are dropped."""
    world = Harness()
    assert not world.vhost.queues.create_missing(name)
    assert list(world.vhost.queues) == []


def test_no_queue_is_made_beyond_a_limit() -> None:
    """Nor for dead letters, and nothing fails."""
    world = Harness()
    world.queue()
    world.broker.virtual_hosts.limit(world.vhost, VirtualHostLimits(max_queues=1))
    assert world.vhost.queues.create_missing("q") and not world.vhost.queues.create_missing("dead")
    assert list(world.vhost.queues) == ["q"]


def test_a_consumer_replaces_itself_in_its_own_queue_alone() -> None:
    """With x-replace; the tag of a consumer of another queue stays taken."""
    world = Harness(kind="amps")
    for name in "qr":
        world.queue(name)
    world.consume("q", "t")
    with pytest.raises(ConsumerTagInUse):
        world.consume("r", "t", x_replace=True)
    world.publish("a")
    assert world.taken("t") == "a" and not world.named("r").consumers


def test_a_newer_value_takes_the_place_of_one_that_no_filter_takes() -> None:
    """Although a consumer waits for the newer one: the older one is gone."""
    world = Harness()
    queue = world.queue(x_last_value_key="k")
    world.consume(x_filter="a = 1")
    for body, number in (("old", 2), ("new", 1)):
        world.publish(body, headers={"k": "1", "a": number})
    assert (world.taken(), world.all(), queue.events.counters.replaced) == ("new", "", 1)


def test_the_right_messages_of_a_mixed_run_are_refused() -> None:
    """By a limit that came after their routes were known: those that did not come in are nacked, and no others."""
    world = Harness()
    queue = world.queue()
    world.session.select_confirms()
    policy = make_policy("p", "/", "^q$", {"max-length": 1, "overflow": "reject-publish"})
    world.broker.reloading.replace_policies(Policies([policy]))
    world.end_turn()
    envelopes, contents = [], []
    for number in range(4):
        summary, some = messages([f"{number}"], {"priority": number % 3})
        envelopes.append(world.envelope("", "q", summary))
        contents += some
    world.session.publish_mixed([queue] * 4, envelopes, contents)
    world.end_turn()
    assert (world.confirms(), world.all()) == ("ANNN", "0")
    world.session.publish_mixed([queue] * 4, envelopes, contents)
    world.end_turn()
    assert (world.confirms(), world.all()) == ("ANNN", "0")


def test_all_messages_of_a_deleted_queue_count_as_deleted() -> None:
    """Ready, delayed and unacknowledged ones, in the figures of the broker and for listeners."""
    world = Harness()
    world.queue()
    heard: list[int] = []
    world.broker.context.listeners.append(
        lambda event: heard.extend(event.messages) if event.kind is EventKind.DELETED else None
    )
    world.publish("a", "b", "c")
    world.publish("late", headers={"_AMQ_SCHED_DELIVERY": world.clock.wall_ms() + 100})
    world.get(no_ack=False)
    world.get(no_ack=False)
    world.vhost.queues.delete("q", world.client)
    assert (heard, world.broker.statistics().counters["deleted"]) == ([1, 2, 3, 4], 4)


def delayed(world: Harness, ms: int, *bodies: str, **properties: object) -> None:
    """Publish messages that are ready later."""
    world.publish(*bodies, headers={"_AMQ_SCHED_DELIVERY": world.clock.wall_ms() + ms}, **properties)


def test_delayed_messages_are_ready_in_the_order_of_their_times() -> None:
    """Of an exchange that delays, also where several times have passed at once; the next one is not forgotten, and a
    limit counts them.
    """
    world = Harness()
    queue = world.queue(x_max_length=3)
    world.vhost.exchanges.declare("d", "x-delayed-message", arguments=arguments_of({"x-delayed-type": "fanout"}))
    world.bind("q", "d")
    for ms, body in ((300, "d"), (200, "c"), (100, "b"), (50, "a"), (1000, "e")):
        world.publish(body, exchange="d", headers={"x-delay": ms})
    world.clock.advance_ns(300 * MS)
    world.advance(0)
    assert (queue.ready_count, len(queue.scheduled)) == (3, 1)
    assert world.all() == "bcd"
    world.advance(700)
    assert world.all() == "e"


def test_a_delayed_message_without_room_is_a_dead_letter() -> None:
    """When it is due, in a queue that refuses publishes: it was confirmed long ago."""
    world = Harness()
    world.queue("dead")
    queue = world.queue(
        x_max_length=1, x_overflow="reject-publish-dlx", x_dead_letter_exchange="", x_dead_letter_routing_key="dead"
    )
    delayed(world, 100, "a", "b")
    world.advance(100)
    assert (world.all(), world.all("dead"), len(queue.scheduled)) == ("a", "b", 0)


def test_a_delayed_message_that_expires_holds_up_no_other() -> None:
    """Nothing else is due at that time; the next one is ready at its own."""
    world = Harness()
    world.queue()
    world.publish("a", headers={"x-delay": 1000}, expiration=b"100")
    world.publish("b", headers={"x-delay": 500})
    world.advance(500)
    assert world.all() == "b"


@pytest.mark.parametrize("own", ["q", "queue:q", "jobs"])
def test_a_dead_letter_exchange_comes_before_a_dead_letter_address_that_is_its_own(own: str) -> None:
    """A queue that is its own dead-letter address has no limit of attempts; with an exchange the address counts not."""
    settings = SettingsRepository([entry("jobs", max_delivery_attempts=2, dead_letter_address=own)])
    for arguments, is_dead in (({}, False), ({"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}, True)):
        world = Harness(settings)
        world.queue("dead")
        queue = world.queue(x_address="jobs", **{f"x_{key}": value for key, value in arguments.items()})
        world.publish("a")
        world.consume()
        for _ in range(5):
            if world.taken():
                world.session.reject(0, multiple=True, requeue=True)
                world.end_turn()
        assert (world.all("dead") == "a", queue.unacked == 0) == (is_dead, is_dead)


def test_a_full_dead_letter_address_holds_up_no_queue_with_a_dead_letter_exchange() -> None:
    """Its rejected messages go to the exchange; without one they come back until there is room."""
    full = entry("full", max_size_messages=1, address_full_policy="FAIL")
    settings = SettingsRepository([entry("q", dead_letter_address="full"), full])
    for arguments, where in (({}, "q"), ({"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}, "dead")):
        world = Harness(settings)
        for name in ("dead", "full"):
            world.queue(name)
        world.queue(**{f"x_{key}": value for key, value in arguments.items()})
        world.publish("x", key="full")
        world.publish("a")
        got = world.get(no_ack=False)
        assert got is not None
        world.session.reject(got[0], requeue=False)
        world.end_turn()
        assert world.all(where) == "a"


def test_a_queue_that_is_purged_without_consumers_gives_them_again_what_they_return() -> None:
    world = Harness(SettingsRepository([entry("q", default_purge_on_no_consumers=True)]))
    world.queue()
    consumer = world.consume()
    world.publish("a")
    assert world.taken() == "a"
    world.session.reject(0, multiple=True, requeue=True)
    world.end_turn()
    assert world.taken() == "a"
    world.session.cancel(consumer.tag)
    world.session.reject(0, multiple=True, requeue=True)
    world.end_turn()
    assert world.all() == ""


def deep(world: Harness, count: int = 200) -> Queue:
    """A durable queue whose messages are all on disk."""
    queue = world.queue(durable=True)
    world.publish(*["a"] * count, delivery_mode=2)
    assert queue.pageable is not None
    queue.pageable.page_out(1 << 30)
    assert queue.paged_count == count
    return queue


def test_what_is_read_back_while_a_queue_is_frozen_goes_to_no_consumer() -> None:
    """It would overtake what is coming back to the queue."""
    world = Harness(memory=1 << 20)
    queue = deep(world)
    queue.freeze()
    world.consume()
    world.broker.scheduler.load_later(queue)
    while world.broker.scheduler.load():
        world.end_turn()
    assert world.taken() == ""
    queue.unfreeze()
    world.finish_turns()
    while world.broker.scheduler.load():
        world.finish_turns()
    assert world.taken() == "a" * 200


def test_a_message_on_disk_that_was_returned_tells_so_when_it_is_read_back() -> None:
    """After one failed attempt, too."""
    world = Harness(SettingsRepository([entry("#", max_delivery_attempts=5)]), memory=1 << 20)
    queue = world.queue(durable=True, x_queue_type="quorum")
    world.publish("a", delivery_mode=2)
    got = world.get(no_ack=False)
    assert got is not None
    world.session.reject(got[0], requeue=True)
    world.end_turn()
    assert queue.pageable is not None
    queue.pageable.page_out(1 << 30)
    assert queue.paged_count == 1
    again = world.get()
    assert again is not None and again[1].envelope.headers(again[1].content)["x-delivery-count"].value == 1


@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize("headers", [{}, {"JMSXGroupID": "g"}], ids=["plain", "with a group"])
def test_a_deep_queue_is_emptied_by_consumers_that_acknowledge_nothing(consumers: int, headers: dict[str, str]) -> None:
    """No acknowledgement asks for more: what is on disk comes by itself."""
    world = Harness(memory=1 << 20)
    deep(world, 5000)
    world.publish("b", headers=headers, delivery_mode=2)
    world.ends_turns = False  # all of them are there at the first dispatch
    for number in range(consumers):
        world.consume(tag=f"c{number}", by=world.connect(f"c{number}"), no_ack=True)
    world.finish_turns()
    while world.broker.scheduler.load():
        world.finish_turns()
    assert sorted(world.taken()) == [*"a" * 5000, "b"]


def test_messages_on_disk_that_were_returned_are_redelivered() -> None:
    """Also to a consumer with room for so many that they are handed on as they are read."""
    world = Harness(memory=1 << 20)
    queue = deep(world)
    tags = [got[0] for _ in range(3) if (got := world.get(no_ack=False)) is not None]
    for tag in tags:
        world.session.reject(tag, requeue=True)
    world.end_turn()
    assert queue.pageable is not None
    queue.pageable.page_out(1 << 30)
    assert queue.paged_count == 200
    world.consume()
    world.finish_turns()
    while world.broker.scheduler.load():
        world.finish_turns()
    assert [one.redelivered for one in world.deliveries] == [True] * 3 + [False] * 197


def test_the_messages_of_a_group_go_on_to_another_consumer_when_theirs_leaves() -> None:
    """At once, although the queue gets nothing new, and nothing is acknowledged."""
    world = Harness()
    world.queue()
    for tag in "ab":
        world.consume(tag=tag, by=world.connect(tag), prefetch=1)
    world.publish("1", "2", "3", headers={"JMSXGroupID": "g"})
    (first,) = world.deliveries
    world.deliveries.clear()
    first.consumer.session.cancel(first.consumer.tag)
    world.end_turn()
    assert [(one.body, one.consumer.tag != first.consumer.tag) for one in world.deliveries] == [(b"2", True)]


@pytest.mark.parametrize(("limit", "confirms"), [(1, "AN"), (0, "NN")])
def test_a_divert_is_no_confirm(limit: int, confirms: str) -> None:
    """What the queue of its address refuses is refused, although the copy is taken."""
    world = Harness()
    world.queue(x_max_length=limit, x_overflow="reject-publish")
    world.queue("copy")
    world.broker.reloading.replace_diverts([Divert("d", "q", ("copy",))])
    world.session.select_confirms()
    world.publish("a", "b")
    assert (world.confirms(), world.all("copy")) == (confirms, "ab")


def test_a_diverted_message_is_not_unroutable() -> None:
    """It is not returned to its publisher, where its address has no queue."""
    world = Harness()
    world.queue("copy")
    world.broker.reloading.replace_diverts([Divert("d", "q", ("copy",))])
    assert world.publish("a", mandatory=True) == []
    assert world.all("copy") == "a"


def test_a_returned_last_value_goes_out_before_a_newer_one_replaces_it() -> None:
    """Its consumer waits; both come in one read of a connection."""
    world = Harness()
    world.queue(x_last_value_key="k")
    world.consume(prefetch=2)
    world.publish("a", headers={"k": "1"})
    assert world.taken() == "a"
    world.ends_turns = False
    world.session.reject(0, multiple=True, requeue=True)
    world.publish("b", headers={"k": "1"})
    world.finish_turns()
    assert world.taken() == "ab"


def _dead_of(world: Harness, name: str = "q") -> None:
    """A message of a queue dies."""
    world.publish("a", key=name)
    got = world.get(name, no_ack=False)
    assert got is not None
    world.session.reject(got[0], requeue=False)
    world.end_turn()


DEAD_RESOURCES = {"dead_letter_address": "dead", "auto_create_dead_letter_resources": True}


@pytest.mark.parametrize("address", ["amq.dead", "exchange:amq.dead/k", "weights", "d" * 256])
def test_dead_letters_whose_queue_cannot_be_bound_are_counted_and_nothing_fails(address: str) -> None:
    """auto-create-dead-letter-resources: the name of the exchange is reserved or too long, or its keys are weights."""
    world = Harness(SettingsRepository([entry("q", **{**DEAD_RESOURCES, "dead_letter_address": address})]))
    world.vhost.exchanges.declare("weights", "x-consistent-hash")
    world.queue()
    _dead_of(world)
    assert list(world.vhost.queues) == ["q"]
    assert address not in set(world.vhost.exchanges) - {"weights"}
    assert world.broker.context.unroutable_letters.count == 1


@pytest.mark.parametrize(("name", "limit"), [("q" * 252, 9), ("q", 1)])
@pytest.mark.parametrize("address", ["dead", "queue:dead"])
def test_no_dead_letter_queue_is_made_beyond_a_limit(address: str, name: str, limit: int) -> None:
    """auto-create-dead-letter-resources: neither beyond max-queues, nor with a name that is too long."""
    world = Harness(SettingsRepository([entry("#", **{**DEAD_RESOURCES, "dead_letter_address": address})]))
    world.queue(name)
    world.broker.virtual_hosts.limit(world.vhost, VirtualHostLimits(max_queues=limit))
    _dead_of(world, name)
    assert list(world.vhost.queues) == [name]
    assert world.broker.context.unroutable_letters.count == 1


@pytest.mark.parametrize("name", ["amq.gone", "a\nb"])
def test_a_consumer_makes_no_queue_of_a_name_that_no_queue_can_have(name: str) -> None:
    """auto-create-queues: it finds none, as in RabbitMQ."""
    world = Harness(SettingsRepository([entry("#", auto_create_queues=True)]))
    with pytest.raises(QueueNotFound):
        world.vhost.queues.for_consumer(name, world.client)
    assert list(world.vhost.queues) == []


def test_what_an_address_retained_goes_when_that_is_switched_off() -> None:
    """A queue that is made after the reload gets nothing, also if it is on again later."""
    on = SettingsRepository([entry("news", retroactive_message_count=3)])
    world = Harness(on)
    world.publish(*"ab", key="news")
    world.reload(on)
    assert [len(kept) for kept in world.vhost.context.retained.values()] == [2]
    world.reload(SettingsRepository([]))
    assert not world.vhost.context.retained
    world.reload(on)
    world.queue("news")
    assert world.all("news") == ""


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_refused_reject_loses_no_message_of_another_queue(is_transactional: bool) -> None:
    """A stream refuses it, and the channel ends: what a classic queue had delivered comes back to it."""
    world = Harness()
    world.queue("s", x_queue_type="stream")
    queue = world.queue()
    session = world.client.open_session()
    for name in ("q", "s"):
        world.consume(name, name, by=session, prefetch=10)
        world.publish(name, key=name)
    assert len(session.unacked) == 2
    if is_transactional:
        session.select_transactions()
    with pytest.raises(StreamOperationNotSupported):
        session.reject(0, multiple=True, requeue=True)
    session.close(failed=True)
    world.end_turn()
    assert (queue.ready_count, queue.unacked) == (1, 0)
    check_broker(world.broker)


def test_a_raised_limit_of_unacknowledged_deliveries_acts_at_once() -> None:
    """A consumer that it stopped, and that acknowledges nothing yet, gets the next messages after the reload."""
    world = Harness(options=BrokerOptions(unacked_per_session_max=2))
    world.queue()
    world.consume()
    world.publish(*"abcd")
    assert world.taken() == "ab"
    world.broker.reloading.replace_settings(NO_SETTINGS, BrokerOptions(unacked_per_session_max=3))
    world.end_turn()
    assert world.taken() == "c"


def test_a_reload_drops_retained_messages_beyond_a_smaller_number() -> None:
    """A queue that is created next gets as many as the address retains now."""
    world = Harness(SettingsRepository([entry("amq.fanout", retroactive_message_count=3)]))
    world.publish(*"abc", key="", exchange="amq.fanout")
    world.reload(SettingsRepository([entry("amq.fanout", retroactive_message_count=1)]))
    world.queue()
    world.bind("q", "amq.fanout")
    assert world.all() == "c"


@pytest.mark.parametrize("has_limit", [False, True])
def test_queues_of_one_address_take_turns_for_what_the_broker_forwards(has_limit: bool) -> None:
    """Also if a limit makes the broker look which queues get a message before it forwards it."""
    options = BrokerOptions(whole_limits=WholeLimits(messages_max=100 if has_limit else None))
    world = Harness(options=options)
    for name in ("one", "two"):
        world.queue(name, x_address="jobs")
    world.broker.reloading.replace_diverts([Divert("d", "orders", ("jobs",))])
    world.queue("orders")
    world.publish(*"abcd", key="orders")
    assert (world.all("one"), world.all("two")) == ("ac", "bd")


def test_a_request_to_a_service_with_copies_is_served() -> None:
    """CC leads to no queue there, and the request is not lost."""
    world, requests = Harness(), list[bytes]()
    service = ServiceExchange("service", lambda envelope, content: requests.append(NATIVE.split(content)[1]))
    summary, contents = messages("a", {"headers": {"CC": ["q"]}})
    queue = world.queue()
    world.session.publish(Route(service, "k", []), Envelope("service", "k", summary), contents, mandatory=True)
    assert (requests, queue.ready_count) == ([b"a"], 0)


def test_tracing_a_transaction_takes_no_turns() -> None:
    """Queues that share an address get its messages in turn, traced or not, and the copies name the same queues."""
    world = Harness()
    for name in ("one", "two"):
        world.queue(name, x_address="jobs")
    world.queue("trace")
    world.bind("trace", EXCHANGE, "#")
    firehose = Firehose(world.broker.context)
    firehose.switch("/", on=True)
    world.session.select_transactions()
    for body in "abc":
        summary, contents = messages([body], {})
        envelope, route = Envelope("", "jobs", summary), world.route("jobs")
        firehose.expect(world.session, route, envelope, contents)
        world.session.publish(route, envelope, contents, mandatory=False)
    world.session.commit()
    world.end_turn()
    assert (world.all("one"), world.all("two")) == ("ac", "b")
