"""A disk that had no room, or a system without descriptors, is well again: everything goes on by itself.

Whatever the journal was doing when it met the fault, and also if nobody does anything afterwards.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

import pytest
import trio
from simulated_files import SimulatedFiles
from trio.testing import MockClock, wait_all_tasks_blocked

from leveret.engine import NATIVE, Envelope, PropertySummary, Unreadable, encode_header
from leveret.journal import JournalOptions, JournalReader, WriterState, recover
from leveret.serving.supervisor import Supervisor
from leveret.testing.harness import Harness

STEP_S = 0.05
PERSISTENT = Envelope("", "q", PropertySummary(persistent=True))
#: More messages than a turn commits.
LARGE = 2_000


class Life(Harness):
    """A broker with its keeper, on simulated files; time passes by `passes`."""

    ends_turns = False

    def __init__(self, fsync: str = "commit", *, files: SimulatedFiles | None = None, **options: int) -> None:
        self.trio_clock = MockClock()
        taken = JournalOptions(preallocate_size=0, fsync=fsync, **options)
        super().__init__(journal=files or SimulatedFiles(), journal_options=taken)
        self.supervisor = Supervisor(self.broker, self.journal, self.recorder)
        self.session.select_confirms()
        if "q" not in self.vhost.queues:
            self.queue(client=self.client)
        self.work()

    def send(self, size: int = 1) -> None:
        self.publish(bytes(size), delivery_mode=2)

    def is_confirmed(self) -> bool:
        """All that was published, and nothing of it refused."""
        confirms = self.session.confirms
        assert confirms is not None
        taken = confirms.take(self.recorder.safe_lsn)
        return bool(taken) and all(is_ack for *_, is_ack in taken) and not confirms.waiting

    def work(self) -> None:
        while self.broker.end_turn():
            self.supervisor.commit()
        self.supervisor.commit()

    async def passes(self, seconds: float) -> None:
        """Deadlines come, and the journal's thread writes; no client does anything."""
        for _ in range(round(seconds / STEP_S)):
            self.clock.advance_ns(int(STEP_S * 1e9))
            if self.broker.advance():
                self.work()  # as `Runtime` does
            self.journal.writer.run_once()
            self.trio_clock.jump(STEP_S)
            await wait_all_tasks_blocked()


def run(life: Life, story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.supervisor.tend)
            await wait_all_tasks_blocked()
            await story()
            nursery.cancel_scope.cancel()

    trio.run(main, clock=life.trio_clock)


def _record(life: Life) -> None:
    life.send()
    life.work()


def _long_record(life: Life) -> None:
    """Of which the beginning fits."""
    for _ in range(100):
        life.send()
    life.work()


def _roll(life: Life) -> None:
    life.journal.begin_segment()


def _checkpoint(life: Life) -> None:
    life.supervisor._request_checkpoint()


def _tick(life: Life) -> None:
    """Of an idle broker: no record, so that no LSN rises when there is room again."""
    life.journal.tick()


def _reserve(life: Life) -> None:
    life.journal.refill_reserve()
    life.journal.tick()


DOINGS = [_record, _long_record, _roll, _checkpoint, _tick, _reserve]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENOMEM])
@pytest.mark.parametrize("fsync", ["commit", "interval", "never"])
@pytest.mark.parametrize("doing", DOINGS)
def test_whatever_met_the_fault(doing: Callable[[Life], None], fsync: str, error: int) -> None:
    """Three seconds of it: some seconds later a durable publish is confirmed, and nothing is refused any more."""
    life = Life(fsync)

    async def story() -> None:
        await life.passes(1)

        def fail(operation: str, path: str) -> None:
            if operation in ("write", "open", "truncate"):
                raise OSError(error, "ordered", path)

        life.files.fault = fail
        doing(life)
        await life.passes(3)
        life.files.fault = lambda operation, path: None
        await life.passes(3)
        assert life.journal.state is WriterState.RUNNING
        assert not life.recorder.has_failed and not life.recorder.is_behind
        if life.session.confirms is not None:
            life.session.confirms.refuse_waiting()
            life.session.confirms.take(life.recorder.safe_lsn)
        life.send()
        life.work()
        await life.passes(1)
        assert life.is_confirmed()

    run(life, story)


@pytest.mark.parametrize("room", [0, 40, 100, 200])
@pytest.mark.parametrize("doing", DOINGS)
def test_a_disk_that_is_full_again_and_again(doing: Callable[[Life], None], room: int) -> None:
    """Each time there is room for a little only."""
    life = Life()

    async def story() -> None:
        await life.passes(1)
        for _ in range(3):
            life.files.capacity = life.files.used
            doing(life)
            await life.passes(1.5)
            life.files.capacity += room
            await life.passes(1.5)
        life.files.capacity = None
        await life.passes(4)
        assert not life.recorder.has_failed and not life.recorder.is_behind

    run(life, story)


def test_a_disk_that_was_full_before_anybody_waited_for_room() -> None:
    """As after a start whose own records did not fit: publishes are not held for ever."""
    life = Life()
    life.files.capacity = life.files.used
    _tick(life)
    life.journal.writer.run_once()
    assert life.journal.state is WriterState.FULL

    async def story() -> None:
        life.files.capacity = None
        await life.passes(3)
        life.send()
        life.work()
        await life.passes(1)
        assert life.is_confirmed()

    run(life, story)


@pytest.mark.parametrize("fsync", ["commit", "never"])
def test_a_publish_before_all_is_written_again(fsync: str) -> None:
    """Its confirm waits for the checkpoint, and goes out when that is done, although nobody does anything."""
    life, told = Life(fsync), []

    def flush() -> None:
        """As frontends do, which wait until there is something to send."""
        if life.is_confirmed():
            told.append(life.journal.next_lsn)
        else:
            life.broker.context.awaiting[life.client] = None

    async def story() -> None:
        await life.passes(1)
        life.files.capacity = life.files.used
        _tick(life)
        await life.passes(1)
        life.files.capacity = None
        while life.recorder.takes_nothing:
            await life.passes(STEP_S)
        assert life.recorder.is_behind
        life.send()
        life.work()
        life.client.flush = flush
        flush()
        life.journal.writer.run_once()
        await wait_all_tasks_blocked()
        assert not told, "the checkpoint waits for time to pass"
        await life.passes(2)
        assert told

    run(life, story)


@pytest.mark.parametrize("fsync, interval_ms", [("commit", 200), ("interval", 600)])
def test_readers_see_the_last_records_of_an_idle_broker(fsync: str, interval_ms: int) -> None:
    """Each time that it is idle again, also when they become durable long after they were written."""
    life = Life(fsync, fsync_interval_ms=interval_ms)

    async def story() -> None:
        for _ in range(3):
            life.send()
            life.work()
            await life.passes(2)
            seen = [lsn for lsn, _ in JournalReader(life.path, life.files).records()]
            assert seen[-1] == life.journal.next_lsn - 1

    run(life, story)


def test_a_busy_broker_writes_nothing_but_records() -> None:
    """Each block states that the one before it is durable: an idle broker alone writes that by itself."""
    life = Life()

    async def story() -> None:
        await life.passes(1)
        commits = life.journal.statistics().commits
        for _ in range(20):
            life.send()
            life.work()
            await life.passes(0.1)
        assert life.journal.statistics().commits == commits + 20

    run(life, story)


def test_a_large_commit_that_had_not_begun() -> None:
    """It waited for the disk, and nobody else does: the end of that is the beginning of a turn."""
    life = Life()

    async def story() -> None:
        session = life.client.open_session()
        session.select_transactions()
        content = NATIVE.join(encode_header(1, {"delivery_mode": 2}), b"x")
        for _ in range(LARGE):
            session.publish(life.route("q"), PERSISTENT, [content], mandatory=False)
        life.files.capacity = life.files.used
        life.send()
        life.supervisor.commit()
        await life.passes(0.5)
        assert life.recorder.has_failed
        commit = session.commit()
        life.work()
        assert not commit.has_begun
        life.files.capacity = None
        await life.passes(5)
        assert commit.is_done

    run(life, story)


def test_a_stop_in_the_midst_of_a_large_commit() -> None:
    """It is finished before the last record is written: the next broker has all of it."""
    files = SimulatedFiles()
    life = Life(files=files)
    session = life.client.open_session()
    session.select_transactions()
    content = NATIVE.join(encode_header(1, {"delivery_mode": 2}), b"x")
    for _ in range(LARGE):
        session.publish(life.route("q"), PERSISTENT, [content], mandatory=False)
    session.commit()
    life.broker.end_turn()
    assert life.broker.is_unfinished
    life.supervisor.close()
    assert Life(files=files).named().ready_count == LARGE


def test_a_failed_sync_is_the_end() -> None:
    """Nobody knows what is on the disk then: that ends with a restart alone."""
    life = Life()

    async def story() -> None:
        def fail(operation: str, path: str) -> None:
            if operation == "sync":
                raise OSError(errno.ENOSPC, "ordered", path)

        life.files.fault = fail
        _record(life)
        await life.passes(1)
        life.files.fault = lambda operation, path: None
        await life.passes(5)
        assert life.journal.state is WriterState.FAILED and life.recorder.has_failed

    run(life, story)


@pytest.mark.parametrize("fsync", ["interval", "never"])
def test_what_cannot_be_read_back_ends_the_broker_during_a_checkpoint(fsync: str) -> None:
    """Its messages are nowhere until the broker stops: that does not wait for a sync, which may be hours away."""
    life = Life(fsync, fsync_interval_ms=3_600_000)

    async def story() -> None:
        _checkpoint(life)
        await life.passes(1)
        life.broker.context.storage.on_unreadable(Unreadable("an octet is wrong"))
        await life.passes(1)

    with pytest.raises(ExceptionGroup) as raised:
        run(life, story)
    assert raised.group_contains(Unreadable, match="an octet is wrong")


def test_a_start_that_needs_what_was_held_back() -> None:
    """Publishers are refused from the first on; when there is room, it is held back again, and they are not."""
    files = SimulatedFiles()
    Life(files=files, reserve_size=100_000).journal.close()
    files.capacity = files.used
    life = Life(files=files, reserve_size=100_000)

    async def story() -> None:
        await life.passes(1)
        life.send()
        life.work()
        await life.passes(1)
        assert life.recorder.is_low and not life.is_confirmed()
        life.broker.flow.disk.switch("low on disk")  # as frontends do when they refuse
        life.files.capacity = None
        await life.passes(4)
        assert not life.recorder.is_low and not life.journal.has_spent_reserve
        assert not life.broker.flow.disk.is_full, "clients stay blocked, although nobody refuses them"
        life.send()
        life.work()
        await life.passes(1)
        assert life.is_confirmed()

    run(life, story)


def test_times_of_a_clock_that_ran_ahead_are_moved_once() -> None:
    """A start writes them: each further one would give what waits, or expires, its time once more."""
    ahead = Life()
    ahead.clock.jump_wall_ms(4 * 365 * 24 * 3_600_000)
    ahead.publish(b"x", delivery_mode=2, expiration=b"9000")
    ahead.work()
    ahead.journal.wait(ahead.journal.next_lsn)
    life = Life(files=ahead.files.power_cut())
    assert life.journal.recovered.has_moved_times and life.named().ready_count == 1

    async def story() -> None:
        await life.passes(1)
        assert not recover(life.files.power_cut(), life.path, now_ms=life.clock.wall_ms()).has_moved_times

    run(life, story)


@pytest.mark.parametrize("is_there_room", [False, True])
@pytest.mark.parametrize("segment_size", [50_000, 1_000_000])
def test_consumers_make_room(segment_size: int, is_there_room: bool) -> None:
    """In what was held back, while publishers are refused; then it is held back again, and they are not. Also when
    somebody else makes room meanwhile, and when all was in the segment that is being written."""
    life = Life(segment_size=segment_size, reserve_size=100_000)

    async def story() -> None:
        await life.passes(1)
        assert not life.journal.has_spent_reserve
        for _ in range(30):
            life.send(10_000)
            life.work()
            life.journal.writer.run_once()
        life.files.capacity = life.files.used
        life.send(10_000)
        life.work()
        await life.passes(2.5)
        assert life.journal.state is WriterState.FULL and not life.recorder.is_low, "there is nothing to win yet"
        while life.session.get(life.named(), no_ack=True) is not None:
            life.work()
        was_low = False
        for _ in range(60):
            await life.passes(0.2)
            was_low |= life.recorder.is_low
            if life.recorder.is_low and is_there_room:
                life.files.capacity = None
        assert was_low and not life.recorder.is_low
        assert not life.recorder.has_failed and not life.recorder.is_behind and not life.journal.has_spent_reserve
        assert life.session.confirms is not None
        life.session.confirms.refuse_waiting()
        life.session.confirms.take(life.recorder.safe_lsn)
        life.send()
        life.work()
        await life.passes(1)
        assert life.is_confirmed()
        assert life.files.capacity is None or life.files.used <= life.files.capacity

    run(life, story)


def test_a_message_that_expires_with_the_deadline_of_the_reserve_ends_no_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its record is in the turn in which the deadline comes: the next segment begins behind that turn, not in it."""
    life = Life(reserve_size=100_000, segment_size=50_000)
    life.publish(b"x", delivery_mode=2, expiration="1000")
    life.work()
    life.journal.writer.run_once()
    life.journal._reserve.is_spent, life.journal._reserve.is_full = True, False
    monkeypatch.setattr(life.supervisor, "_can_make_room", lambda: True)
    life.supervisor._begin_low()
    before = life.journal.next_lsn

    async def story() -> None:
        await life.passes(0.95)
        assert life.journal.next_lsn == before and life.journal.has_spent_reserve
        life.clock.advance_ns(100_000_000)
        life.broker.advance()
        assert life.journal.turns.block is not None, "the record of what expired"
        life.work()
        await life.passes(2)

    run(life, story)
    assert not life.journal.has_spent_reserve and not life.recorder.is_low
    assert Life(files=life.files.power_cut()).get() is None


async def _consumers_take(life: Life, count: int) -> None:
    """Some of the messages, each in a turn of its own; then until the checkpoint after it is done."""
    for _ in range(count):
        assert life.session.get(life.named(), no_ack=True) is not None
        life.work()
    await life.passes(8)


async def _publishers_go_on(life: Life) -> None:
    assert not life.recorder.has_failed and not life.recorder.is_behind and not life.journal.has_spent_reserve
    assert life.session.confirms is not None
    life.session.confirms.refuse_waiting()
    life.session.confirms.take(life.recorder.safe_lsn)
    life.send()
    life.work()
    await life.passes(1)
    assert life.is_confirmed()


def test_what_was_held_back_needs_room_for_one_checkpoint_alone() -> None:
    """Long keys of bindings make it long. It begins a segment, so that all before it goes, and no second one is needed,
    for which there would be no room: publishers would be refused until an operator makes some."""
    life = Life(segment_size=2_000_000, reserve_size=300_000)
    for name in range(60):
        queue = life.queue(f"q{name}")
        for key in range(8):
            life.vhost.bindings.add("queue", queue.name, "amq.direct", f"{key}" * 250, {}, life.client)
        life.work()

    async def story() -> None:
        await life.passes(1)
        for _ in range(60):
            life.send(10_000)
            life.work()
            life.journal.writer.run_once()
        life.files.capacity = life.files.used
        life.send()
        life.work()
        await life.passes(2.5)
        await _consumers_take(life, 61)
        await _publishers_go_on(life)

    run(life, story)


def test_what_was_written_while_low_makes_room_too() -> None:
    """Acknowledgements of many messages, in the segment of the first checkpoint. Others take what old segments gave."""
    life = Life(segment_size=10_000_000, reserve_size=400_000)
    files = life.files

    async def story() -> None:
        await life.passes(1)
        for size, count in ((10_000, 100), (100, 2_000)):
            for _ in range(count):
                life.send(size)
                life.work()
            life.journal.begin_segment()
            life.journal.writer.run_once()
        old = {path for path in files.names_now if path.endswith(".log")}

        def others_take(operation: str, path: str) -> None:
            if operation == "unlink" and path in old:
                assert files.capacity is not None
                files.capacity -= files.names_now[path].size

        files.capacity, files.fault = files.used, others_take
        life.send()
        life.work()
        await life.passes(2.5)
        await _consumers_take(life, 100)
        assert life.recorder.is_low and life.journal.state is WriterState.RUNNING
        await _consumers_take(life, 2_001)
        files.capacity += 30_000
        await life.passes(5)
        await _publishers_go_on(life)

    run(life, story)


def _begun_commit(life: Life) -> None:
    """A large commit, of which some turns are still to come. Its records are released as a whole."""
    session = life.client.open_session()
    session.select_transactions()
    content = NATIVE.join(encode_header(1, {"delivery_mode": 2}), b"x")
    for _ in range(LARGE):
        session.publish(life.route("q"), PERSISTENT, [content], mandatory=False)
    session.commit()
    life.broker.end_turn()
    life.supervisor.commit()
    assert life.broker.is_unfinished


def test_a_checkpoint_waits_for_the_end_of_a_large_commit() -> None:
    """It begins between turns, and the broker goes on."""
    life = Life()

    async def story() -> None:
        await life.passes(0.5)
        _begun_commit(life)
        before = life.journal.turns.checkpoint
        life.supervisor._request_checkpoint()
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        assert life.journal.turns.checkpoint == before
        life.work()
        await life.passes(1)
        assert life.journal.turns.checkpoint > before
        life.send()
        life.work()
        await life.passes(1)
        assert life.is_confirmed()

    run(life, story)


def test_a_disk_that_fills_up_in_the_midst_of_a_large_commit() -> None:
    """The commit is finished first, then publishers are refused, and the disk is tried again."""
    life = Life()

    async def story() -> None:
        await life.passes(0.5)
        life.files.capacity = life.files.used
        _begun_commit(life)
        life.journal.tick()
        life.journal.writer.run_once()
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        assert life.journal.state is WriterState.FULL and not life.recorder.has_failed
        life.work()
        assert life.recorder.has_failed, "publishers are refused now"
        life.files.capacity = None
        await life.passes(3)
        assert not life.recorder.has_failed and life.journal.state is WriterState.RUNNING
        await life.passes(1)
        assert Life(files=life.files.power_cut()).named().ready_count == LARGE

    run(life, story)


def test_readers_see_the_last_records_of_a_broker_that_is_idle_after_a_full_disk() -> None:
    """The block that tells them was due while nothing could be written: it comes with the next idle time."""
    life = Life()

    async def story() -> None:
        await life.passes(0.5)
        life.send()
        life.work()
        life.journal.writer.run_once()
        await wait_all_tasks_blocked()
        life.files.capacity = life.files.used
        life.send()
        life.work()
        await life.passes(2.5)
        life.files.capacity = None
        await life.passes(5)
        life.send()
        life.work()
        await life.passes(2)
        seen = [lsn for lsn, _ in JournalReader(life.path, life.files).records()]
        assert seen[-1] == life.journal.next_lsn - 1

    run(life, story)


def test_who_waits_for_a_confirm_hears_at_once_that_the_disk_is_full() -> None:
    """Not when there is room again: the publisher may have another place for the message."""
    life = Life()
    told: list[bool] = []

    async def story() -> None:
        await life.passes(0.5)
        life.files.capacity = life.files.used
        life.send()
        life.work()
        life.broker.context.awaiting[life.client] = None
        life.client.flush = lambda: told.append(life.recorder.has_failed)
        life.journal.writer.run_once()
        await wait_all_tasks_blocked()
        assert True in told

    run(life, story)
