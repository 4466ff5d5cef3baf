"""A disk that is full, or fails, under a broker: publishers hear it, consumers go on, nothing confirmed is lost."""

from collections.abc import Sequence

import pytest
from desk import GETS
from durable_desk import DurableDesk
from pamqp import commands
from peer import method
from simulated_files import SimulatedFiles

from leveret.engine import User
from leveret.engine.durability import UNTIL_CAUGHT_UP
from leveret.journal import WriterState
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recording.full_recorder import FullRecorder


def no_room(operation: str, path: str) -> None:
    """The fault of a full disk."""
    if operation == "write":
        raise OSError(28, "No space left on device")


def test_confirms_wait_for_the_disk() -> None:
    """Nothing before the commit; all in order after it; transient messages behind persistent ones wait too."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare()
    assert desk.publish("A", "B", delivery_mode=2) == ["", ""]
    desk.settle()
    assert desk.confirms() == ["Ack"]


def test_a_transient_message_does_not_wait() -> None:
    """It is not in the journal."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare()
    assert desk.publish("A") == ["ack"]


def test_a_failing_disk_refuses_and_consumers_go_on() -> None:
    """What waits is nacked, new persistent messages are nacked at once, transient ones and deliveries go on."""
    files = SimulatedFiles()
    desk = DurableDesk(files)
    desk.declare()
    desk.publish("safe", delivery_mode=2)
    desk.settle()
    assert desk.confirms() == ["Ack"]

    def fail(operation: str, path: str) -> None:
        if operation == "sync":
            raise OSError(5, "Input/output error")

    files.fault = fail
    desk.publish("A", delivery_mode=2)
    desk.settle()
    assert desk.confirms() == ["Nack"]
    assert desk.failures and desk.journal.state is WriterState.FAILED
    assert desk.publish("B", delivery_mode=2) == ["nack"]
    assert desk.publish("C") == ["ack"]
    got = desk.get()
    assert got is not None and got.body == "safe"
    desk.ack(got)


def test_a_disk_that_fails_while_a_turn_goes_on() -> None:
    """The journal's thread knows before the broker does: the turn goes to its end, and what it published is nacked."""
    files = SimulatedFiles()
    desk = DurableDesk(files)
    desk.declare()
    desk.journal.set_callbacks(lambda lsn: None, lambda error: None)
    files.fault = lambda operation, path: (_ for _ in ()).throw(OSError(5, "EIO")) if operation == "sync" else None
    desk.publish("A", delivery_mode=2)
    desk.journal.commit()
    desk.journal.wait(desk.journal.next_lsn)
    assert desk.journal.state is WriterState.FAILED and not desk.recorder.has_failed
    assert desk.publish("B", delivery_mode=2) in ([""], ["nack"])
    desk.recorder.fail(for_good=True)
    desk.pair.broker.release_awaiting()
    desk.pair.end_turn()
    assert "Ack" not in desk.confirms()
    got = desk.get()
    assert got is not None and got.body == "A"
    desk.ack(got)


def test_a_restart_finds_what_was_confirmed() -> None:
    """After the failure and a power cut: the confirmed message, and no other."""
    files = SimulatedFiles()
    desk = DurableDesk(files)
    desk.declare()
    desk.publish("safe", delivery_mode=2)
    desk.settle()
    files.fault = lambda operation, path: (_ for _ in ()).throw(OSError(5, "EIO")) if operation == "sync" else None
    desk.publish("lost", delivery_mode=2)
    desk.settle()
    again = DurableDesk(files.power_cut())
    assert again.all() == "safe"


def test_what_is_set_while_the_disk_is_full_is_stated_later() -> None:
    """Users, policies, durable queues: nobody hears that they are safe before a checkpoint has them."""
    files = SimulatedFiles()
    desk = DurableDesk(files)
    desk.declare()
    broker, recorder = desk.pair.broker, desk.recorder

    files.fault = no_room
    desk.publish("A", delivery_mode=2)
    desk.settle()
    assert desk.journal.state is WriterState.FULL and recorder.is_behind
    vhost = broker.virtual_hosts["/"]
    turn = broker.context.turn
    before = turn.records
    vhost.queues.declare("passing", client=None)
    assert turn.records == before
    for act in (
        lambda: broker.connections.replace_user(User("late")),
        lambda: vhost.queues.declare("late", client=None, durable=True),
        lambda: vhost.bindings.add("queue", "late", "amq.topic", "#", {}),
        lambda: broker.virtual_hosts.create("late"),
    ):
        before = turn.records
        act()
        assert turn.records > before and recorder.sync_lsn() == UNTIL_CAUGHT_UP
    files.fault = lambda operation, path: None
    desk.journal.retry()
    desk.journal.wait(desk.journal.next_lsn)
    recorder.recover()
    assert recorder.is_behind and recorder.safe_lsn < desk.journal.committed_lsn
    for _ in checkpoint(broker, desk.journal, recorder):
        desk.journal.commit()
    desk.settle()
    recorder.checkpoint_done()
    assert recorder.safe_lsn == desk.journal.committed_lsn
    again = DurableDesk(files.power_cut()).pair.broker
    assert {"late", "/"} <= set(again.virtual_hosts) and again.users.find("late") is not None
    assert "late" in again.virtual_hosts["/"].queues and "passing" not in again.virtual_hosts["/"].queues


def test_what_is_done_before_all_is_stated_is_answered_when_it_is_safe_itself() -> None:
    """There is room again, and the checkpoint of what was missed is under way, or over but not yet known to be."""
    files = SimulatedFiles()
    desk = DurableDesk(files)
    desk.declare()
    files.fault = no_room
    assert desk.publish("A", delivery_mode=2) == [""]
    desk.settle()
    assert desk.confirms() == ["Nack"]
    recover(desk)
    desk.publish("B", delivery_mode=2)
    desk.settle()
    for _ in checkpoint(desk.pair.broker, desk.journal, desk.recorder):
        desk.journal.commit()
    desk.settle()
    desk.publish("C", delivery_mode=2)
    assert desk.confirms() == []
    desk.recorder.checkpoint_done()
    desk.pair.broker.release_awaiting()
    desk.pair.end_turn()
    assert desk.confirms() == ["Ack"]  # of B alone: C is not written
    desk.settle()
    assert desk.confirms() == ["Ack"]


def test_what_others_recorded_holds_no_answer_up() -> None:
    """An acknowledgement, a checkpoint: neither is what the next declaration's answer is about."""
    files = SimulatedFiles()
    desk = DurableDesk(files)
    desk.declare()
    desk.publish("A", delivery_mode=2)
    desk.settle()
    desk.confirms()
    before = desk.pair.broker.context.turn.records
    for _ in checkpoint(desk.pair.broker, desk.journal, desk.recorder):
        desk.journal.commit()
    assert desk.pair.broker.context.turn.records == before
    got = desk.get()
    assert got is not None
    desk.ack(got)  # not written yet
    assert desk.peer.take() == []
    desk.peer.send(method(GETS, commands.Queue.Declare, queue="q", passive=True))
    assert [type(one.frame) for one in desk.peer.take()] == [commands.Queue.DeclareOk]


def full(desk: DurableDesk) -> None:
    """The disk is, and the broker knows."""

    desk.files.fault = no_room
    desk.publish("refused", key="elsewhere", delivery_mode=2)
    desk.settle()
    assert desk.recorder.has_failed
    desk.confirms()


def recover(desk: DurableDesk) -> None:
    """The disk has room again, and nothing is stated yet."""
    desk.files.fault = lambda operation, path: None
    desk.journal.retry()
    desk.journal.wait(desk.journal.next_lsn)
    desk.recorder.recover()


def full_desk_with_dead_letters(*published: str, to: Sequence[str] = ("d1",)) -> DurableDesk:
    """`q` has messages, its dead letters go to these queues; then the disk is full."""
    desk = DurableDesk(SimulatedFiles())
    for queue in ("elsewhere", *to):
        desk.declare(queue)
    desk.declare(x_dead_letter_exchange="dead")
    desk.exchange("dead")
    for queue in to:
        desk.bind(queue, "dead")
    desk.publish(*published, delivery_mode=2)
    desk.settle()
    full(desk)
    return desk


def has_room(desk: DurableDesk) -> None:
    """Again, and all is stated."""
    recover(desk)
    for _ in checkpoint(desk.pair.broker, desk.journal, desk.recorder):
        desk.journal.commit()
    desk.settle()
    desk.recorder.checkpoint_done()
    desk.journal.old_segments.reclaim()
    desk.settle()


def test_what_dies_while_the_disk_is_full_is_written_later() -> None:
    """Into two queues; what leaves one of them then leaves the journal, too."""
    desk = full_desk_with_dead_letters("A", "B", to=("d1", "d2"))
    for _ in range(2):
        desk.nack(desk.must_get(), requeue=False)
    assert desk.recorder.late_octets > 0
    has_room(desk)
    assert desk.recorder.late_octets == 0, "what is written needs no room any more"
    again = DurableDesk(desk.files.power_cut())
    assert [again.all(queue) for queue in ("q", "d1", "d2")] == ["", "AB", "AB"]
    desk.all("d1")
    desk.settle()
    again = DurableDesk(desk.files.power_cut())
    assert [again.all(queue) for queue in ("d1", "d2")] == ["", "AB"]
    desk.all("d2")
    desk.settle()
    assert sum(row.live for row in desk.journal.usage.segments) == 1  # the one in elsewhere


def test_what_dies_during_a_checkpoint_while_the_disk_is_full() -> None:
    """It has stated the queue of the dead letter already, but not yet that of the message: it does not count."""
    steps = 0
    is_over = False
    while not is_over:
        desk = DurableDesk(SimulatedFiles())
        desk.exchange("dead")
        for queue in ("elsewhere", "d1"):
            desk.declare(queue)
        desk.bind("d1", "dead")
        desk.declare(x_dead_letter_exchange="dead")
        desk.publish("A", key="d1", delivery_mode=2)
        desk.publish("B", delivery_mode=2)
        desk.settle()
        stating = checkpoint(desk.pair.broker, desk.journal, desk.recorder)
        is_over = any(next(stating, "over") == "over" or desk.journal.commit() < 0 for _ in range(steps))
        full(desk)
        desk.nack(desk.must_get(), requeue=False)
        recover(desk)
        for _ in stating:
            desk.journal.commit()
        desk.settle()
        again = DurableDesk(desk.files.power_cut())
        assert "B" in again.all("d1") + again.all(), f"lost after {steps} slices"
        steps += 1
    assert steps > 4


def test_what_was_taken_while_the_disk_was_full_holds_no_segments() -> None:
    """Acknowledgements of that time are in no record."""
    desk = DurableDesk(SimulatedFiles())
    for queue in ("elsewhere", "q"):
        desk.declare(queue)
    desk.publish(*"ABCD", delivery_mode=2)
    desk.settle()
    full(desk)
    assert desk.all() == "ABCD"
    has_room(desk)
    assert sum(row.live for row in desk.journal.usage.segments) == 1
    assert DurableDesk(desk.files.power_cut()).all() == ""


def test_what_died_while_the_disk_was_full_and_was_taken_at_once() -> None:
    """Between room and the checkpoint: it is nowhere on the disk, and neither comes back nor holds a segment."""
    desk = full_desk_with_dead_letters("A", "B")
    for _ in range(2):
        desk.nack(desk.must_get(), requeue=False)
    recover(desk)
    desk.ack(desk.must_get("d1"))
    stating = checkpoint(desk.pair.broker, desk.journal, desk.recorder)
    next(stating)
    desk.ack(desk.must_get("d1"))
    for _ in stating:
        desk.journal.commit()
    desk.settle()
    desk.recorder.checkpoint_done()
    assert [row.live for row in desk.journal.usage.segments if row.live < 0] == []
    assert sum(row.live for row in desk.journal.usage.segments) == 1  # the one in elsewhere
    again = DurableDesk(desk.files.power_cut())
    assert [again.all(queue) for queue in ("q", "d1")] == ["", ""]


def test_what_is_recorded_behind_what_is_missing_is_safe_when_that_is_stated() -> None:
    """A second failure makes nothing safe, and what the time of the first one needed is kept no longer than that."""
    desk = full_desk_with_dead_letters("A")
    safe_lsn = desk.recorder.safe_lsn
    desk.nack(desk.must_get(), requeue=False)
    recover(desk)
    desk.publish("B", key="elsewhere", delivery_mode=2)
    desk.settle()
    assert desk.journal.committed_lsn > safe_lsn == desk.recorder.safe_lsn
    full(desk)
    assert desk.recorder.safe_lsn == safe_lsn
    has_room(desk)
    assert desk.recorder.safe_lsn > safe_lsn
    assert not desk.recorder.messages.late


def test_what_dies_when_the_disk_is_full_again_is_written_later() -> None:
    """Before the checkpoint after the first time is known to be whole. The second of two failures is no other one."""
    desk = full_desk_with_dead_letters("A", "B")
    since_ms = desk.recorder.failed_ms
    desk.advance_ms(1000)
    desk.recorder.fail(for_good=False)
    assert desk.recorder.failed_ms == since_ms, "it is full since then"
    desk.nack(desk.must_get(), requeue=False)
    recover(desk)
    for _ in checkpoint(desk.pair.broker, desk.journal, desk.recorder):
        desk.journal.commit()
    desk.settle()
    full(desk)
    assert desk.recorder.failed_ms > since_ms
    desk.recorder.checkpoint_done()
    desk.nack(desk.must_get(), requeue=False)
    has_room(desk)
    assert DurableDesk(desk.files.power_cut()).all("d1") == "AB"


def test_a_full_disk_holds_nothing_up_that_does_not_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers of what is delivered at most once, and publishers whose octets are not behind in its queue."""
    monkeypatch.setattr("leveret.journal.recording.recorder.BACKLOG_MAX", 0)
    desk = DurableDesk(SimulatedFiles())
    desk.declare("elsewhere")
    desk.declare(x_queue_type="amps", x_semantics="at-most-once")
    desk.publish("A", delivery_mode=2)
    assert desk.recorder.is_congested
    desk.settle()
    full(desk)
    assert desk.journal.backlog_bytes and not desk.recorder.is_congested
    desk._call(GETS, commands.Basic.Consume, queue="q", consumer_tag="t")
    assert [got.body for got in desk.taken()] == ["A"]


def test_little_room_is_for_what_makes_room() -> None:
    """Publishers are refused, and not one octet of theirs is written; acks and dead letters are."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare(x_dead_letter_exchange="dead")
    desk.declare("d1")
    desk.exchange("dead")
    desk.bind("d1", "dead")
    desk.publish("A", "B", "C", delivery_mode=2)
    desk.settle()
    desk.confirms()
    desk.recorder.set_low(True)
    before = desk.journal.writer.next_lsn
    assert desk.publish("refused", delivery_mode=2) == ["nack"]
    assert desk.journal.writer.next_lsn == before
    desk.ack(desk.must_get())
    desk.nack(desk.must_get(), requeue=False)
    desk.settle()
    again = DurableDesk(desk.files.power_cut())
    assert [again.all(queue) for queue in ("q", "d1")] == ["C", "B"]
    desk.recorder.set_low(False)
    desk.publish("D", delivery_mode=2)
    desk.settle()
    assert desk.confirms() == ["Ack"]
    assert desk.all() == "CD"


def test_what_one_queue_gives_up_before_it_is_stated_does_not_count_against_another() -> None:
    """A dead letter of that time is in two queues, and the checkpoint has stated the first alone."""
    desk = full_desk_with_dead_letters("A", to=("d1", "d2"))
    desk.nack(desk.must_get(), requeue=False)
    recover(desk)
    stating = checkpoint(desk.pair.broker, desk.journal, desk.recorder)
    while not desk.recorder.messages.late:
        next(stating)
        desk.journal.commit()
    desk.ack(desk.must_get("d2"))
    for _ in stating:
        desk.journal.commit()
    desk.settle()
    desk.recorder.checkpoint_done()
    assert sum(row.live for row in desk.journal.usage.segments) == 2  # the one in elsewhere, and that in d1
    again = DurableDesk(desk.files.power_cut())
    assert [again.all(queue) for queue in ("d1", "d2")] == ["A", ""]


def test_a_transient_queue_counts_for_no_segment_while_the_disk_is_full() -> None:
    """It has the same messages as a durable one, and all is recorded: only what leaves that one is counted."""
    desk = DurableDesk(SimulatedFiles(), recorder=FullRecorder)
    for queue in ("elsewhere", "q"):
        desk.declare(queue)
    desk.pair.broker.virtual_hosts["/"].queues.declare("passing", client=None)
    desk.exchange("all")
    for queue in ("q", "passing"):
        desk.bind(queue, "all")
    desk.publish(*"AB", exchange="all", delivery_mode=2)
    desk.settle()
    full(desk)
    assert desk.all("passing") == "AB"
    assert sum(row.live for row in desk.journal.usage.segments) == 3
    has_room(desk)
    assert DurableDesk(desk.files.power_cut()).all() == "AB"
