"""The rows of address-settings page 8 that restart the broker. `cut`: kill -9 and a power cut at once."""

from functools import partial
from types import MappingProxyType
from typing import Any

import pytest
from durable_desk import DurableDesk
from simulated_files import SimulatedFiles
from toml_text import settings

from leveret.engine import Field, Grant, Permissions, User
from leveret.engine.clients.session import NACKED
from leveret.journal.recording import checkpoint as checkpoints
from leveret.journal.recording.recorder import Recorder
from leveret.settings import SettingsRepository, entry
from leveret.testing.harness import Harness


def cut(desk: DurableDesk, text: str = "", **options: Any) -> DurableDesk:
    """A broker on what was safe."""
    desk.settle()
    return DurableDesk(desk.files.power_cut(), text, **options)


def test_r21_a_ring_is_a_ring_after_a_restart() -> None:
    """Ring 2: A B C leaves B C."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare(x_ring_size=2)
    desk.publish(*"ABC", delivery_mode=2)
    assert cut(desk).all() == "BC"


@pytest.mark.parametrize("memory", [None, 0, 4000])
def test_r22_what_was_out_counts_again(memory: int | None) -> None:
    """A B C D unacknowledged, killed: the two newest are ready, not redelivered; in memory or paged out."""
    desk = DurableDesk(SimulatedFiles(), memory=memory)
    desk.declare(x_ring_size=2)
    desk.consume(prefetch=10)
    desk.publish(*"ABCD", delivery_mode=2)
    assert len(desk.taken()) == 4
    again = cut(desk, memory=memory)
    assert again.counts()[0] == 2
    got = [again.must_get(), again.must_get()]
    assert [(one.body, one.redelivered) for one in got] == [("C", False), ("D", False)]
    assert again.counts() == (0, 2, 0)


def test_last_values_are_by_age_after_a_restart() -> None:
    """Each key has its newest value; b2 stood at the place of b1, which the journal no longer has."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare(x_last_value_key="key")
    for body in ("a1", "b1", "c1", "b2"):
        desk.publish(body, delivery_mode=2, headers={"key": body[0]})
    desk.settle()
    desk.peer.take()
    assert [desk.must_get().body for _ in range(3)] == ["a1", "b2", "c1"]
    again = cut(desk)
    assert [again.must_get().body for _ in range(3)] == ["a1", "c1", "b2"]


def test_d17_attempts_go_on_after_a_restart() -> None:
    """Three before, two after: dead at the fifth."""
    text = settings(q={"max_delivery_attempts": 5, "dead_letter_address": "D"})
    desk = DurableDesk(SimulatedFiles(), text)
    for queue in ("q", "D"):
        desk.declare(queue)
    desk.publish("A", delivery_mode=2)
    for _ in range(3):
        desk.nack(desk.must_get())
    again = cut(desk, text)
    got = again.must_get()
    assert (got.redelivered, got.headers["x-delivery-count"]) == (True, 3)
    again.nack(got)
    again.nack(again.must_get())
    assert (again.counts(), again.all("D")) == ((0, 0, 0), "A")


def test_a_lower_limit_holds_from_the_next_return_on() -> None:
    """Not from the restart that brings it: a message that has had as many attempts is delivered once more."""
    desk = DurableDesk(SimulatedFiles(), settings(q={"max_delivery_attempts": 5, "dead_letter_address": "D"}))
    for queue in ("q", "D"):
        desk.declare(queue)
    desk.publish("A", delivery_mode=2)
    for _ in range(2):
        desk.nack(desk.must_get())
    again = cut(desk, settings(q={"max_delivery_attempts": 2, "dead_letter_address": "D"}))
    assert (again.counts(), again.counts("D")) == ((1, 0, 0), (0, 0, 0))
    again.nack(again.must_get())
    assert (again.counts(), again.all("D")) == ((0, 0, 0), "A")


def test_d18_d19_counts_before_deliveries() -> None:
    """persist-delivery-count-before-delivery: the delivery that was lost counts; without it, it does not."""
    for persists, expected in ((True, (True, 1)), (False, (False, None))):
        desk = DurableDesk(SimulatedFiles(), persists=persists)
        desk.declare(x_max_delivery_attempts=9)
        desk.publish("A", delivery_mode=2)
        desk.must_get()
        got = cut(desk, persists=persists).must_get()
        assert (got.redelivered, got.headers.get("x-delivery-count")) == expected


def test_counts_before_deliveries_are_not_for_transient_queues() -> None:
    """Which the journal does not know: persistent messages reach their consumers all the same."""
    broker = Harness(journal=SimulatedFiles(), recorder=partial(Recorder, persists_deliveries=True))
    broker.queue(durable=False)
    broker.consume()
    broker.publish("A", delivery_mode=2)
    broker.settle()
    assert [one.body for one in broker.deliveries] == [b"A"]


def test_d20_who_waits_goes_on_waiting() -> None:
    """A nacked message keeps its due time; transient ones are gone."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare(x_redelivery_delay=1000)
    desk.publish("A", delivery_mode=2)
    desk.publish("B")
    desk.nack(desk.must_get())
    again = cut(desk)
    assert again.counts() == (0, 0, 1)
    again.advance_ms(990)
    assert again.counts() == (0, 0, 1)
    again.advance_ms(10)
    assert again.counts() == (1, 0, 0)


def test_all_who_wait_go_on_waiting() -> None:
    """Messages that come back at once, with the same due time, are each recorded."""
    broker = Harness(journal=SimulatedFiles())
    broker.queue(x_redelivery_delay=1000)
    broker.publish(*"ABCDE", delivery_mode=2)
    broker.consume()
    broker.settle()
    broker.session.cancel("c")
    broker.session.reject(5, multiple=True, requeue=True, why=NACKED)
    broker.settle()
    broker.kill(power_cut=True)
    assert (broker.named("q").ready_count, len(broker.named("q").scheduled)) == (0, 5)


@pytest.mark.parametrize("limit", ["x_max_length", "x_ring_size"])
def test_what_a_limit_dropped_stays_away(limit: str) -> None:
    """2 of A B C D, then C and D are taken: nothing comes back, and the segment holds nothing live."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare(**{limit: 2})
    desk.publish(*"ABCD", delivery_mode=2)
    assert desk.all() == "CD"
    desk.settle()
    assert sum(row.live for row in desk.journal.usage.segments) == 0
    assert cut(desk).all() == ""


def test_what_a_limit_refused_counts_nothing_as_gone() -> None:
    """reject-publish and reject-publish-dlx: what never came in is not taken out of the journal's count of the live."""
    for overflow in ("reject-publish", "reject-publish-dlx"):
        desk = DurableDesk(SimulatedFiles())
        desk.declare("D")
        desk.declare(x_max_length=1, x_overflow=overflow, x_dead_letter_exchange="", x_dead_letter_routing_key="gone")
        desk.publish(*"ABCD", delivery_mode=2)
        desk.settle()
        assert sum(row.live for row in desk.journal.usage.segments) == 1, overflow
        assert cut(desk).all() == "A", overflow


def test_deaths_go_on_after_a_restart() -> None:
    """In RabbitMQ 4's profile only the broker's own x-death counts on: it knows it again, a client's it does not."""
    text = '[broker]\nprofile = "rabbitmq-4.0"\n'
    desk = DurableDesk(SimulatedFiles(), text)
    for queue, other in (("q", "D"), ("D", "q")):
        desk.declare(queue, x_dead_letter_exchange="", x_dead_letter_routing_key=other)
    desk.publish("A", delivery_mode=2)
    desk.reject(desk.must_get(), requeue=False)
    again = cut(desk, text)
    again.reject(again.must_get("D"), requeue=False)
    got = again.must_get()
    deaths = got.headers["x-death"]
    assert [(death["queue"], death["count"]) for death in deaths] == [("D", 1), ("q", 1)]
    again.ack(got)
    again.publish("B", delivery_mode=2, headers={"x-death": deaths})
    last = cut(again, text)
    last.reject(last.must_get(), requeue=False)
    assert [death["queue"] for death in last.must_get("D").headers["x-death"]] == ["q"]


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_these_types_store_whatever_the_delivery_mode(kind: str) -> None:
    """Classic: what was transient is gone; quorum and stream have it still, with the property as published."""
    desk = DurableDesk(SimulatedFiles())
    desk.exchange("both")
    for queue, arguments in (("kept", {"x_queue_type": kind}), ("classic", {})):
        desk.declare(queue, **arguments)
        desk.bind(queue, "both")
    desk.publish(*"AB", exchange="both", delivery_mode=1)
    desk.publish("C", exchange="both")
    desk.publish("D", exchange="both", delivery_mode=2)
    again = cut(desk)
    assert (again.declare("classic", passive=True), again.declare("kept", passive=True)) == (1, 4)
    if kind == "quorum":
        got = [again.must_get("kept") for _ in range(4)]
        assert [(one.body, one.properties.delivery_mode) for one in got] == [("A", 1), ("B", 1), ("C", None), ("D", 2)]


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_what_these_types_store_is_kept_by_the_checkpoints_of_later_brokers(kind: str) -> None:
    """A transient message that was read back from the journal is as durable as it was."""
    world = Harness(journal=SimulatedFiles())
    world.queue(x_queue_type=kind)
    world.publish("A", delivery_mode=1)
    for _ in range(2):
        world.kill()
        world.checkpoint(reclaims=True)
    world.kill()
    assert world.named().ready_count == 1


def test_returns_that_do_not_count_leave_room_for_those_that_do() -> None:
    """`max-redelivery-records` limits attempts: one of many deliveries that failed is known after a kill."""
    said = entry("q", max_delivery_attempts=2, dead_letter_address="D")
    recorder = partial(Recorder, counts_max=1)
    world = Harness(SettingsRepository([said]), journal=SimulatedFiles(), recorder=recorder)
    for name in ("q", "D"):
        world.queue(name)
    world.publish("A", delivery_mode=2)

    def deliver() -> int:
        got = world.get(no_ack=False)
        assert got is not None
        return got[0]

    for _ in range(3):
        deliver()
        world.session.recover()
        world.end_turn()
    world.session.reject(deliver(), requeue=True, why=NACKED)
    world.settle()
    world.kill()
    world.session.reject(deliver(), requeue=True, why=NACKED)
    world.settle()
    assert world.all("D") == "A"


def test_dead_letters_of_a_full_disk_are_the_brokers_own_after_a_kill() -> None:
    """And each of their queues counts for the segment that they are in."""
    world = Harness(journal=SimulatedFiles())
    world.vhost.exchanges.declare("x", "fanout", durable=True)
    world.queue(x_dead_letter_exchange="x")
    for name in ("one", "two"):
        world.queue(name)
        world.bind(name, "x")
    world.publish("A", delivery_mode=2)
    got = world.get(no_ack=False)
    assert got is not None
    world.recorder.fail(for_good=False)
    world.session.reject(got[0], requeue=False)
    world.end_turn()
    world.recorder.recover()
    world.checkpoint()
    world.recorder.checkpoint_done()
    assert world.journal.statistics().live == 2
    world.kill()
    for name in ("one", "two"):
        (message,) = world.named(name).messages()
        assert message.body == b"A" and message.envelope.cause_id == got[1].id


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_what_was_out_of_a_queue_that_refuses_is_back_beyond_its_limit(overflow: str) -> None:
    """It had been confirmed: only what is new is refused, as when a connection is lost."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare(x_max_length=2, x_overflow=overflow)
    desk.consume()
    desk.publish(*"ABCDE", delivery_mode=2)
    assert len(desk.taken()) == 5
    again = cut(desk)
    assert again.all() == "ABCDE"


def test_what_was_made_for_dead_letters_is_there_again() -> None:
    """A durable queue, auto-created; so are the dead letters."""
    text = settings(q={"dead_letter_address": "failed"})
    desk = DurableDesk(SimulatedFiles(), text)
    desk.declare()
    desk.publish("A", delivery_mode=2)
    desk.settle()
    desk.peer.take()
    desk.reject(desk.must_get(), requeue=False)
    again = cut(desk, text)
    assert again.vhost.queues["failed"].is_auto_created
    assert again.all("failed") == "A"


def test_who_may_not_declare_has_no_queue_made() -> None:
    """A client's queue names an address; it might not have declared that, so nobody does for it, restart or not."""
    desk = DurableDesk(SimulatedFiles())
    grant = Permissions(Grant("mine.*"), user="weak", vhost="/")
    user = User("weak", permissions=MappingProxyType({"/": grant}))
    desk.pair.broker.connections.replace_user(user)
    client = desk.pair.broker.connections.open("/", user, name="weak", flush=lambda: None)
    for queue, address in (("mine.1", "failed"), ("mine.2", "mine.failed")):
        desk.vhost.queues.declare(
            queue, client=client, durable=True, arguments={"x-dead-letter-address": Field("S", address.encode())}
        )
    for _ in range(2):
        for queue in ("mine.1", "mine.2"):
            desk.publish("A", key=queue, delivery_mode=2)
            desk.settle()
            desk.peer.take()
            desk.reject(desk.must_get(queue), requeue=False)
        assert (desk.exists("failed"), desk.exists("mine.failed")) == (False, True)
        desk = cut(desk)


def delivered_and_killed(desk: DurableDesk, text: str, times: int) -> DurableDesk:
    """So often the broker is killed while the message is out."""
    for _ in range(times):
        desk.must_get()
        desk = cut(desk, text, persists=True)
    return desk


@pytest.mark.parametrize("attempts", [1, 3])
def test_no_delivery_comes_after_the_last_one(attempts: int) -> None:
    """persist-delivery-count-before-delivery: a message that kills its consumer and the broker is a dead letter."""
    text = settings(q={"max_delivery_attempts": attempts, "dead_letter_address": "D"})
    desk = DurableDesk(SimulatedFiles(), text, persists=True)
    for queue in ("q", "D"):
        desk.declare(queue)
    desk.publish("A", "B", delivery_mode=2)
    again = delivered_and_killed(desk, text, attempts)
    assert again.counts() == (1, 0, 0)
    assert (again.all("D"), again.all()) == ("A", "B")
    assert cut(again, text, persists=True).counts() == (0, 0, 0)


def test_what_came_back_without_counting_does_not_count_after_a_restart() -> None:
    """Its delivery was recorded before, and taken back."""
    text = settings(q={"max_delivery_attempts": 2, "dead_letter_address": "D"})
    desk = DurableDesk(SimulatedFiles(), text, persists=True)
    for queue in ("q", "D"):
        desk.declare(queue)
    desk.publish("A", delivery_mode=2)
    for _ in range(3):
        desk.must_get()
        desk.recover()
    again = cut(desk, text, persists=True)
    assert (again.counts(), again.counts("D")) == ((1, 0, 0), (0, 0, 0))
    again = delivered_and_killed(again, text, 2)
    assert (again.counts(), again.all("D")) == ((0, 0, 0), "A")


def test_the_dead_of_a_restart_stay_where_their_address_refuses() -> None:
    """As those that come back while the broker runs (address-settings page 8.5, row L19)."""
    text = settings(
        q={"max_delivery_attempts": 1, "dead_letter_address": "D", "redelivery_delay": 1000},
        D={"max_size_messages": 1, "address_full_policy": "FAIL"},
    )
    desk = DurableDesk(SimulatedFiles(), text, persists=True)
    for queue in ("q", "D"):
        desk.declare(queue)
    desk.publish("full", key="D", delivery_mode=2)
    desk.publish("A", delivery_mode=2)
    again = delivered_and_killed(desk, text, 1)
    assert again.counts() == (0, 0, 1) and again.counts("D")[0] == 1


def test_a_delivery_goes_out_when_its_count_is_on_the_disk() -> None:
    """Else a kill at that moment is an attempt that nobody knows of."""
    desk = DurableDesk(SimulatedFiles(), persists=True)
    desk.declare()
    desk.consume()
    desk.publish("A", delivery_mode=2)
    assert desk.peer.take() == []
    desk.settle()
    assert [one.body.decode() for one in desk.peer.take() if one.body is not None] == ["A"]


def test_all_that_reached_their_last_attempt_are_dead_after_a_restart() -> None:
    """However many, each once, in the order of the queue; and others stay."""
    text = settings(q={"max_delivery_attempts": 1, "dead_letter_address": "D"})
    desk = DurableDesk(SimulatedFiles(), text, persists=True)
    for queue in ("q", "D"):
        desk.declare(queue)
    desk.publish(*"ABCDEFG", delivery_mode=2)
    for _ in range(5):
        desk.must_get()
    desk.settle()
    again = cut(desk, text, persists=True)
    assert (again.all("D"), again.all()) == ("ABCDE", "FG")


def test_what_is_out_is_kept_by_each_checkpoint() -> None:
    """Though it is older than all that is ready, and what lay between them is gone."""
    world = Harness(journal=SimulatedFiles())
    world.queue()
    world.publish("a", delivery_mode=2)
    assert world.get(no_ack=False) is not None
    for _ in range(20):
        world.publish("x", delivery_mode=2)
        world.take()
    world.publish("z", delivery_mode=2)
    for _ in range(2):
        world.checkpoint()
    world.kill()
    assert world.all() == "az"


@pytest.mark.parametrize("memory", [None, 0])
def test_priorities_are_kept_by_each_checkpoint(memory: int | None) -> None:
    """Of messages that nobody has taken yet; a start reads all of them back, or leaves them in the journal."""
    world = Harness(journal=SimulatedFiles(), memory=memory)
    world.queue(x_max_priority=9)
    world.publish(*"x" * 200, delivery_mode=2)
    for body, priority in (("b", 5), ("a", 9), ("c", 5)):
        world.publish(body, priority=priority, delivery_mode=2)
    for _ in range(2):
        world.checkpoint()
        world.kill()
    assert world.all().startswith("abcx")


def test_what_comes_while_a_checkpoint_forgets_others_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the checkpoint after that, too."""
    monkeypatch.setattr(checkpoints, "EXAMINED_SLICE", 2)
    monkeypatch.setattr(checkpoints, "RUNS_SPARE", 0)
    world = Harness(journal=SimulatedFiles())
    queue = world.queue()
    for _ in range(60):
        world.publish("x", delivery_mode=2)
    assert world.get(no_ack=False) is not None
    world.take(50)
    for _ in checkpoints.checkpoint(world.broker, world.journal, world.recorder):
        world.journal.commit()
        world.publish("n", delivery_mode=2)
    world.checkpoint()
    count = queue.ready_count + queue.unacked
    world.kill()
    assert world.named("q").ready_count == count > 10


@pytest.mark.parametrize("is_paged", [False, True])
def test_attempts_are_kept_by_each_checkpoint(is_paged: bool) -> None:
    """Also of messages that are paged out."""
    world = Harness(journal=SimulatedFiles(), memory=1 << 20)
    world.queue(x_max_delivery_attempts=3)
    world.publish(*"ab", delivery_mode=2)
    got = world.get(no_ack=False)
    assert got is not None
    world.session.reject(got[0], requeue=True)
    world.end_turn()
    for _ in range(2):
        pageable = world.named("q").pageable
        assert pageable is not None
        if is_paged:
            pageable.page_out(1 << 20)
        world.checkpoint()
        world.kill()
    again = [world.get(), world.get()]
    assert [one is not None and one[2] for one in again] == [True, False]


def test_each_message_of_a_run_has_its_own_size_after_a_restart() -> None:
    """In the journal alone, where a limit of octets counts them."""
    world = Harness(journal=SimulatedFiles(), memory=0)
    world.queue(x_max_length_bytes=1 << 20)
    world.publish("a", "b" * 1000, "c" * 10, delivery_mode=2)
    assert world.named("q").store.body_octets == 1011
    world.kill()
    assert world.named("q").store.body_octets == 1011


def test_a_group_keeps_its_consumer_among_messages_without_a_group() -> None:
    """All are read back together after a kill, and only some of them say a group."""
    world = Harness(journal=SimulatedFiles(), memory=0)
    world.queue()
    for number in range(12):
        world.publish(f"{number},", delivery_mode=2, headers={"JMSXGroupID": "g"} if number % 3 else {})
    world.kill()
    world.ends_turns = False
    for tag in "ab":
        world.consume(tag=tag, prefetch=100)
    world.finish_turns()
    owners = {one.consumer.tag for one in world.deliveries if int(one.body[:-1]) % 3}
    assert (len(owners), len(world.deliveries)) == (1, 12)


def a_second_and_a_first_delivery() -> Harness:
    """A and B are unacknowledged, A for the second time. If both are rejected, A waits for two seconds, B for one."""
    said = entry("q", redelivery_delay_ms=1000, redelivery_delay_multiplier=2.0)
    broker = Harness(SettingsRepository([said]), journal=SimulatedFiles())
    broker.queue()
    broker.consume()
    broker.publish("A", delivery_mode=2)
    broker.session.reject(1, requeue=True, why=NACKED)
    broker.end_turn()
    broker.advance(1000)
    broker.publish("B", delivery_mode=2)
    broker.settle()
    assert broker.taken() == "AAB"
    broker.session.cancel("c")
    return broker


def in_each_second(broker: Harness) -> str:
    """What becomes ready in three seconds."""
    found = ""
    for _ in range(3):
        found += broker.all() + "."
        broker.advance(1000)
    return found


def test_each_of_several_that_come_back_at_once_waits_for_its_own_time() -> None:
    """Those that failed more often wait longer, also after a kill."""
    broker = a_second_and_a_first_delivery()
    broker.session.reject(3, multiple=True, requeue=True, why=NACKED)
    broker.settle()
    broker.kill(power_cut=True)
    assert in_each_second(broker) == ".B.A."


def test_each_of_several_that_come_back_during_a_checkpoint_waits_for_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind whichever of its slices they come back, they are stated with the times that they have then."""
    monkeypatch.setattr(checkpoints, "EXAMINED_SLICE", 1)
    monkeypatch.setattr(checkpoints, "PART_MESSAGES", 1)
    slices = at = 0
    while at <= slices:
        broker = a_second_and_a_first_delivery()
        for slices, _ in enumerate(checkpoints.checkpoint(broker.broker, broker.journal, broker.recorder)):
            broker.settle()
            if slices == at:
                broker.session.reject(3, multiple=True, requeue=True, why=NACKED)
                broker.settle()
        broker.settle()
        broker.kill(power_cut=True)
        assert in_each_second(broker) == ".B.A.", f"behind slice {at}"
        at += 1
    assert slices > 5


def test_an_exclusive_queue_is_gone_after_a_restart() -> None:
    """Though its client asked for a durable one: its messages went with the connection."""
    broker = Harness(journal=SimulatedFiles())
    queue = broker.vhost.queues.declare("mine", client=broker.client, durable=True, exclusive=True)
    broker.publish("A", key="mine", delivery_mode=2)
    broker.settle()
    assert not queue.durable
    broker.kill()
    assert "mine" not in broker.vhost.queues
