"""Leased queues over restarts: each is kill -9 and a power cut at once. Source: queues page C.5, G.C, A.4."""

from __future__ import annotations

from dataclasses import replace
from struct import Struct
from typing import Any

import pytest
from desk import GETS, C, got_of
from durable_desk import PATH, DurableDesk
from peer import method
from simulated_files import SimulatedFiles

from leveret.engine.leases.deferred_acks import DeferredAcks
from leveret.engine.leases.state import leases_of
from leveret.journal import JournalReader
from leveret.journal.disk.segment import path_of, segments_in
from leveret.journal.format.record import REASONS
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recording.full_recorder import FullRecorder
from leveret.settings import WholeLimits
from leveret.testing.harness import Harness

DLX = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}


class LeasedDesk(DurableDesk):
    """A desk with a journal of all events. `memory`: octets of bodies beyond which queues are paged out."""

    def __init__(self, files: SimulatedFiles, *, wall_ms: int | None = None, memory: int = 0) -> None:
        self.memory = memory
        super().__init__(files, wall_ms=wall_ms, recorder=FullRecorder, memory=memory or None)

    def queue(self, name: str = "q", **arguments: Any) -> None:
        """A leased queue, and `dead` where it names a dead-letter exchange."""
        if "x_dead_letter_exchange" in arguments:
            self.declare("dead")
        self.declare(name, **{"x_queue_type": "amps", "x_max_backlog_per_consumer": 1000, **arguments})

    def subscribe(self, queue: str = "q", *, qos: int = 0, **arguments: Any) -> None:
        """basic.consume."""
        self._call(GETS, C.Basic.Qos, prefetch_count=qos)
        self._call(GETS, C.Basic.Consume, queue=queue, consumer_tag="t", arguments=arguments)

    def restarted(self, *, after_ms: int = 0) -> LeasedDesk:
        """A broker on what was safe, so much later."""
        self.settle()
        return LeasedDesk(self.files.power_cut(), wall_ms=self.wall_ms + after_ms, memory=self.memory)


@pytest.fixture
def desk() -> LeasedDesk:
    return LeasedDesk(SimulatedFiles())


def test_leases_and_counts_are_gone(desk: LeasedDesk) -> None:
    """Queues page, row A27: leased messages are ready, in their places; nothing counts. What was acknowledged is gone.

    Transient publishes are stored, too (queues page C.1).
    """
    desk.queue(x_max_deliveries=2, x_cancel_limit=2, x_lease_period=60_000, **DLX)
    desk.publish("a", "b", delivery_mode=2)
    desk.publish("c", "d")
    got = [desk.must_get() for _ in range(3)]
    desk.ack(got[1])
    desk.nack(got[2])
    again = desk.restarted()
    assert again.counts() == (3, 0, 0)
    found = [again.must_get() for _ in range(3)]
    assert [(one.body, one.redelivered, one.headers["x-delivery-count"]) for one in found] == [
        ("a", False, 1), ("c", False, 1), ("d", False, 1)]  # fmt: skip
    assert [one.headers["x-cancel-count"] for one in found] == [0, 0, 0]
    assert found[0].headers["x-bookmark"] == got[0].headers["x-bookmark"]
    again.reopen_channel()
    assert again.counts() == (3, 0, 0) and again.all("dead") == ""
    assert again.restarted().all() == "acd"


def test_counts_of_paged_messages_are_gone() -> None:
    """Queues page, row A27: a restart resets the counts, also of what stays in the journal."""
    desk = LeasedDesk(SimulatedFiles(), memory=20_000)
    desk.queue(x_max_deliveries=2, **DLX)
    desk.publish(*(f"{number:04}" + "x" * 200 for number in range(300)), delivery_mode=2)
    for got in [desk.must_get() for _ in range(200)]:
        desk.nack(got)
    desk.settle()
    for _ in checkpoint(desk.pair.broker, desk.journal, desk.recorder):
        desk.journal.commit()
    again = desk.restarted()
    found = [again.must_get() for _ in range(300)]
    assert {(one.redelivered, one.headers["x-delivery-count"]) for one in found} == {(False, 1)}
    again.reopen_channel()
    assert again.counts() == (300, 0, 0) and again.counts("dead") == (0, 0, 0)


def test_twice_restarted_and_gone(desk: LeasedDesk) -> None:
    """Queues page, row C02: all acknowledged, nothing comes back."""
    desk.queue(x_underlying_topic="T")
    desk.queue("twin", x_underlying_topic="T")
    desk.publish(*"abc", key="T")
    assert desk.all() == "abc"
    again = desk.restarted()
    assert again.counts() == (0, 0, 0) and again.counts("twin") == (3, 0, 0)
    again.publish("d", key="T")
    assert again.restarted().counts() == (1, 0, 0)


def test_c10(desk: LeasedDesk) -> None:
    """Queues page, row C10: the last record is torn; what was confirmed before it is there, also what was captured."""
    desk.queue(x_underlying_topic="T")
    desk.queue("twin", x_underlying_topic="T", x_queue_filter="1 = 1")
    desk.publish("a", "b", key="T", delivery_mode=2)
    desk.settle()
    files = desk.files
    before = {name: len(files.content(name).rstrip(b"\0")) for name in segments(files)}
    desk.publish("c", key="T", delivery_mode=2)
    desk.settle()
    after = files.power_cut()
    (torn,) = (name for name in segments(after) if len(after.content(name).rstrip(b"\0")) != before.get(name))
    after.put(torn, after.content(torn).rstrip(b"\0")[:-3])
    again = LeasedDesk(after, wall_ms=desk.wall_ms)
    assert again.counts() == again.counts("twin") == (2, 0, 0)
    again.publish("d", key="T", delivery_mode=2)
    third = again.restarted()
    assert (third.all(), third.all("twin")) == ("abd", "abd")


def segments(files: SimulatedFiles) -> list[str]:
    """Paths of the journal's."""
    return [path_of(PATH, base) for base in segments_in(files, PATH)]


def test_settings_survive(desk: LeasedDesk) -> None:
    """The same declaration is the same queue, another one is not; topics are captured, amps.control is there."""
    desk.queue(x_underlying_topic="^T.$", x_default_publish_target="T1", x_queue_filter="/n > 5", x_lease_period=500)
    again = desk.restarted()
    again.queue(x_underlying_topic="^T.$", x_default_publish_target="T1", x_queue_filter="/n > 5", x_lease_period=500)
    again.publish('{"n": 6}', '{"n": 5}', key="T7")
    assert again.counts() == (1, 0, 0)
    assert "amps.control" in again.vhost.exchanges
    again.must_get()
    again.advance_ms(500)
    assert again.counts() == (1, 0, 0)


def test_c11(desk: LeasedDesk) -> None:
    """Queues page, row C11: it expires once, also after a second restart; each at its time, wherever it stands."""
    desk.queue(x_message_ttl=1000, **DLX)
    desk.publish("a", delivery_mode=2)
    desk.publish("b", expiration="9000", delivery_mode=2)
    desk.publish("c", expiration="5000", delivery_mode=2)
    again = desk.restarted(after_ms=2000)
    again.advance_ms(1)
    assert again.counts() == (2, 0, 0)
    third = again.restarted()
    assert third.counts("dead") == (1, 0, 0)
    third.advance_ms(2999)
    assert third.counts() == (1, 0, 0)
    third.advance_ms(4000)
    assert third.counts() == (0, 0, 0)
    assert third.restarted().all("dead") == "acb"


def test_what_comes_after_a_restart_expires_before_what_lives_longer(desk: LeasedDesk) -> None:
    """Queues page A.5: each at its time, though all that was there when the broker started expires later."""
    desk.queue(x_message_ttl=100)
    desk.publish("a", expiration="300", delivery_mode=2)
    again = desk.restarted()
    again.publish("b")
    again.advance_ms(101)
    assert again.counts() == (1, 0, 0) and again.all() == "a"


def test_priorities_and_barriers_are_worked_out_again(desk: LeasedDesk) -> None:
    """Queues page C.5: priorities recomputed, barrier flags evaluated again."""
    desk.queue("p", x_priority_expr="/p")
    desk.queue("b", x_barrier_expr="/s = 1")
    desk.publish('{"p": 1}', '{"p": 3}', '{"p": 2}', key="p")
    desk.publish('{"n": 1}', '{"s": 1}', '{"n": 2}', key="b")
    again = desk.restarted()
    assert again.all("p") == '{"p": 3}{"p": 2}{"p": 1}'
    assert again.must_get("b").body == '{"n": 1}' and again.get("b") is None


def test_at_most_once_is_gone_before_it_is_sent(desk: LeasedDesk) -> None:
    """The removal is safe before octets leave: a crash between loses the message, never sends it twice (A.4)."""
    desk.queue(x_semantics="at-most-once")
    desk.publish(*"ab")
    desk.settle()
    desk.peer.take()
    desk.subscribe(qos=1)
    assert desk.peer.take() == []
    unsafe = LeasedDesk(desk.files.power_cut(), wall_ms=desk.wall_ms)
    assert unsafe.counts() == (2, 0, 0)
    desk.settle()
    consumed, delivered = desk.peer.take()
    assert isinstance(consumed.frame, C.Basic.ConsumeOk) and delivered.body == b"a"
    assert desk.restarted().counts() == (1, 0, 0)


def test_at_least_once_is_sent_at_once(desk: LeasedDesk) -> None:
    """A lease needs no record (queues page C.2)."""
    desk.queue()
    desk.publish("a")
    desk.settle()
    desk.peer.take()
    desk.subscribe()
    assert [got.body for got in desk.taken()] == ["a"]


@pytest.mark.parametrize("arguments", [{}, {"x_message_ttl": 60_000}, {"x_semantics": "at-most-once"}])
def test_deep_leased_queues(arguments: dict[str, Any]) -> None:
    """Paged out beyond a little memory: order, leases, late acknowledgements, browsing, and restarts are as ever."""
    desk = LeasedDesk(SimulatedFiles(), memory=20_000)
    desk.queue(x_lease_period=500, **arguments)
    bodies = [f"{number:04}" + "x" * 200 for number in range(1000)]
    desk.publish(*bodies)
    desk.settle()
    desk.peer.take()
    assert desk.vhost.queues["q"].store.is_deep
    desk = desk.restarted()
    assert desk.counts() == (1000, 0, 0)
    if "x_semantics" not in arguments:
        first = [desk.must_get() for _ in range(5)]
        desk.advance_ms(500)
        assert desk.counts() == (1000, 0, 0)
        desk.ack(first[1])
        desk.ack(first[3])
        desk.settle()
        expected = [bodies[0], bodies[2], *bodies[4:]]
    else:
        expected = bodies
    desk = desk.restarted()
    desk.peer.send(method(GETS, C.Basic.Qos, prefetch_count=300))
    desk.peer.take()
    desk.peer.send(method(GETS, C.Basic.Consume, queue="q", consumer_tag="t"))
    desk.settle()
    consumed, *delivered = desk.peer.take()
    assert isinstance(consumed.frame, C.Basic.ConsumeOk)
    desk._deliveries += [got_of(one) for one in delivered]
    seen: list[str] = []
    for _ in range(400):
        desk.settle()
        desk.pair.broker.scheduler.load()
        desk.pair.end_turn()
        got = desk.taken()
        assert len(got) <= 300
        for one in got:
            seen.append(one.body)
            desk.ack(one)
        if len(seen) == len(expected):
            break
    assert seen == expected and desk.counts() == (0, 0, 0)


@pytest.mark.parametrize("arguments", [{}, {"x-filter": "/n % 2 = 0"}])
def test_f11(arguments: dict[str, Any]) -> None:
    """Queues page, row F11: everything in memory is paged out again and again; the deliveries are the same."""
    seen: dict[bool, list[str]] = {}
    for is_dropped in (False, True):
        desk = LeasedDesk(SimulatedFiles(), memory=40_000)
        desk.queue()
        desk.publish(*(f'{{"n": {number}, "x": "{"x" * 200}"}}' for number in range(400)))
        desk = desk.restarted()
        desk.subscribe(qos=20, **arguments)
        store, bodies = desk.vhost.queues["q"].pageable, seen.setdefault(is_dropped, [])
        dropped = 0
        for _ in range(200):
            dropped += store.page_out(10**9) if is_dropped else 0
            desk.settle()
            desk.pair.broker.scheduler.load()
            desk.pair.end_turn()
            for got in desk.taken():
                bodies.append(got.body)
                desk.ack(got)
        assert is_dropped is (dropped > 0)
        desk.journal.close()
    assert len(seen[False]) == (200 if arguments else 400)
    assert seen[True] == seen[False]


@pytest.mark.parametrize("memory", [0, 20_000])
def test_deferred_acknowledgements_survive(memory: int) -> None:
    """Those of messages to come, of inactive ones, and of those that wait; not those whose time is over (C.5, C.6)."""
    desk = LeasedDesk(SimulatedFiles(), memory=memory)
    desk.exchange("later", "x-delayed-message", x_delayed_type="fanout")
    desk.queue(x_target_depth=1000, x_deferred_ack_ttl=60_000)
    desk.bind("q", "later")
    first = desk.pair.broker.context.next_id
    desk.publish(*(str(number) + "," for number in range(1003)), delivery_mode=2)
    desk.publish("L,", exchange="later", headers={"x-delay": 90_000}, delivery_mode=2)
    ids = [first + 1001, first + 1003, first + 1004]
    done = desk.command("discard", queue="q", bookmark=",".join(f"1|{id_}|" for id_ in ids))
    assert done["deferred"] == 3
    again = desk.restarted(after_ms=10_000).restarted()
    assert again._facts("q")["deferred_acks"] == 3
    assert again.pair.broker.context.next_id > ids[2]  # a start leaves ids out: this one never comes
    again.publish("a,", "b,", delivery_mode=2)
    third = again.restarted(after_ms=100_000)
    third.advance_ms(1)
    assert third.all() == "".join(f"{number}," for number in range(1003) if number != 1001) + "a,b,"
    assert third._facts("q")["deferred_acks"] == 0
    third.command("discard", queue="q", bookmark=f"1|{third.pair.broker.context.next_id}|")
    last = third.restarted(after_ms=60_000)
    last.publish("c")
    assert last.all() == "c"


@pytest.mark.parametrize("depth", [{}, {"x_target_depth": 1000}], ids=str)
def test_a_deferred_acknowledgement_is_used_once(desk: LeasedDesk, depth: dict[str, Any]) -> None:
    """Its message came, and is gone: after a restart nothing is remembered of it, however deep it stood (C.6)."""
    desk.queue(**depth)
    first = desk.pair.broker.context.next_id
    desk.command("discard", queue="q", bookmark=f"1|{first + 1000}|")
    desk.publish(*(f"{number}," for number in range(1003)), delivery_mode=2)
    desk.ack(desk.must_get())
    assert desk._facts("q")["deferred_acks"] == 0
    again = desk.restarted()
    assert again._facts("q")["deferred_acks"] == 0
    assert again.all() == "".join(f"{number}," for number in range(1, 1003) if number != 1000)
    assert again._facts("q")["deferred_acks"] == 0


def test_the_acknowledgement_of_a_delayed_message_waits_over_a_restart(desk: LeasedDesk) -> None:
    """It counts when the message is due (C.5, C.6)."""
    desk.queue()
    id_ = desk.pair.broker.context.next_id
    desk.publish("a", delivery_mode=2, headers={"x-delay": 60_000})
    assert desk.command("discard", queue="q", bookmark=f"1|{id_}|")["deferred"] == 1
    again = desk.restarted()
    again.advance_ms(60_001)
    assert again.all() == "" and again._facts("q")["deferred_acks"] == 0


def test_a_used_deferred_acknowledgement_is_not_back_after_a_restart(desk: LeasedDesk) -> None:
    """Also if no active message that is left stands behind the one that it was for (C.5, C.6)."""
    desk.queue(x_target_depth=1000)
    desk.command("discard", queue="q", bookmark=f"1|{desk.pair.broker.context.next_id + 1}|")
    desk.publish("a", "b", delivery_mode=2)
    again = desk.restarted()
    assert again._facts("q")["deferred_acks"] == 0 and again.all() == "a"


def test_a_message_whose_acknowledgement_is_not_safe_yet(desk: LeasedDesk) -> None:
    """The message is safe, what its deferred acknowledgement did is not: it is gone after the restart (C.5)."""
    desk.queue()
    id_ = desk.pair.broker.context.next_id
    desk.publish("a", "b", delivery_mode=2)
    queue = desk.vhost.queues["q"]
    leases_of(queue).deferred = DeferredAcks(Struct("<qq").pack(id_, desk.wall_ms + 60_000))
    queue.events.notes_changed()
    again = desk.restarted()
    assert again.counts() == (1, 0, 0) and again.counter("acknowledged") == 1
    third = again.restarted()
    assert third.all() == "b" and third._facts("q")["deferred_acks"] == 0


def test_browsing_what_is_paged_out() -> None:
    """Windows are read back between turns; nothing is taken (queues page A.7, F.6)."""
    desk = LeasedDesk(SimulatedFiles(), memory=20_000)
    desk.queue()
    desk.publish(*(f"{number:04}" + "x" * 200 for number in range(1500)))
    desk = desk.restarted()
    assert [body[:4] for body in browsed(desk)] == [f"{number:04}" for number in range(1500)]
    assert desk.counts() == (1500, 0, 0)


def browsed(desk: LeasedDesk) -> list[str]:
    """Bodies that a consumer gets who browses, until it is cancelled."""
    desk.peer.send(method(GETS, C.Basic.Consume, queue="q", consumer_tag="t", arguments={"x-browse": True}))
    seen: list[str] = []
    for _ in range(100):
        frames = desk.peer.take()
        seen += [one.body.decode() for one in frames if isinstance(one.frame, C.Basic.Deliver)]
        if any(isinstance(one.frame, C.Basic.Cancel) for one in frames):
            return seen
        desk.pair.broker.scheduler.load()
        desk.pair.end_turn()
    raise AssertionError("it was not cancelled")


def test_lease_ended_is_history(desk: LeasedDesk) -> None:
    """The journal of all events has it, with its reason; recovery passes over it."""
    desk.queue(x_lease_period=500)
    desk.publish("a")
    desk.must_get()
    desk.advance_ms(500)
    desk.nack(desk.must_get())
    desk.settle()
    assert desk.counter("lease_ended") == 2
    records = [record for _, record in JournalReader(PATH, desk.files).records(trust_open=True)]
    ended = [(REASONS[record.reason], record.attempt) for record in records if record.name == "lease_ended"]
    assert ended == [("deadline", 1), ("nacked", 2)]
    assert desk.restarted().counts() == (1, 0, 0)


@pytest.mark.parametrize("got", [0, 1, 2])
def test_a_target_depth_counts_what_is_not_loaded(got: int) -> None:
    """After a kill all is paged out behind another queue's messages, and nobody has loaded a page of it yet.

    It is counted, browsed and got as if it were in memory (queues page A.3).
    """
    desk = LeasedDesk(SimulatedFiles(), memory=4_000)
    desk.queue("other")
    desk.queue(x_target_depth=1000)
    desk.publish(*(["x" * 300] * 100), key="other", delivery_mode=2)
    desk.settle()
    desk.publish(*(f"{number}," for number in range(7)), delivery_mode=2)
    again = desk.restarted()
    leases = [again.must_get() for _ in range(got)]
    assert again.counts() == (7 - got, got, 0)
    assert again.declare("q", passive=True) == 7 - got
    items = again.command("browse", queue="q")["items"]
    assert len(items) == 7 - got
    assert browsed(again) == [f"{number}," for number in range(got, 7)]
    assert again.counts() == (7 - got, got, 0)
    for lease in leases:
        again.nack(lease)
    assert again.counts() == (7, 0, 0)
    assert again.all() == "0,1,2,3,4,5,6," and again.counts() == (0, 0, 0)


def test_a_full_backlog_is_no_reason_to_load() -> None:
    """A limit lets no message into memory, and consumers have credit, but the queue has none (MaxBacklog).

    The broker has nothing to do then. It loaded nothing, and tried again without a pause until a lease ended.
    """
    desk = LeasedDesk(SimulatedFiles(), memory=20_000)
    desk.queue(x_max_backlog_total=5)
    desk.subscribe(qos=50)
    desk.publish(*"abcdefg", delivery_mode=2)
    assert desk.counts() == (2, 5, 0)
    broker, queue = desk.pair.broker, desk.vhost.queues["q"]
    options = replace(broker.context.options, whole_limits=WholeLimits(messages_max=4))
    broker.reloading.replace_settings(broker.context.settings, options)
    queue.mark()
    turns = [broker.end_turn() or broker.scheduler.load() or bool(broker.scheduler.to_load) for _ in range(20)]
    assert not queue.store.in_memory and not turns[-1]
    for got in desk.taken():
        desk.ack(got)
    assert [got.body for got in desk.taken()] == ["f", "g"]


def test_a_consumer_without_leases_is_no_reason_to_load() -> None:
    """It gets only barriers. Its credit let each dispatch read messages that nobody could lease."""
    desk = LeasedDesk(SimulatedFiles(), memory=20_000)
    desk.queue()
    desk.subscribe(qos=2)
    desk._call(GETS, C.Basic.Consume, queue="q", consumer_tag="barriers", arguments={"x-max-backlog": 0})
    desk.publish(*"abcdefg", delivery_mode=2)
    broker, queue = desk.pair.broker, desk.vhost.queues["q"]
    options = replace(broker.context.options, whole_limits=WholeLimits(messages_max=1))
    broker.reloading.replace_settings(broker.context.settings, options)
    queue.mark()
    turns = [broker.end_turn() or broker.scheduler.load() or bool(broker.scheduler.to_load) for _ in range(20)]
    assert not queue.store.in_memory and not turns[-1]
    queue.mark()
    broker.end_turn()
    assert not queue.store.in_memory


def test_what_comes_late_among_active_messages_is_counted() -> None:
    """A delayed message becomes due, whose place is among those that are active already."""
    desk = LeasedDesk(SimulatedFiles(), memory=20_000)
    desk.exchange("later", "x-delayed-message", x_delayed_type="fanout")
    desk.queue(x_target_depth=1000)
    desk.bind("q", "later")
    desk.publish("L,", exchange="later", headers={"x-delay": 1000}, delivery_mode=2)
    desk.publish("a,", "b,", delivery_mode=2)
    assert desk.counts() == (2, 0, 1)
    desk.advance_ms(1001)
    assert desk.counts() == (3, 0, 0)
    assert desk.must_get().body and desk.counts() == (2, 1, 0)


def test_the_newest_bookmark_of_a_leased_queue_is_the_same_after_a_restart() -> None:
    """All its messages were acknowledged: a bookmark that says "what comes next" means the same message as before."""
    one = Harness(journal=SimulatedFiles(), kind="amps")
    one.queue()
    one.publish(*"ABC", delivery_mode=2)
    newest = leases_of(one.named()).last_id
    assert newest
    one.named().purge()
    one.end_turn()
    for _ in range(2):  # the second checkpoint has no message to tell it from
        one.restart()
        assert leases_of(one.named()).last_id == newest
