"""Whatever is wrong with a journal's files: where the broker refuses to start, `verify` says so, and `repair` helps."""

from collections.abc import Callable, Iterator

import pytest
from simulated_files import SimulatedFiles

from leveret.engine import Broker, Envelope, ManualClock, User
from leveret.engine.messages.content import NATIVE, encode_header, scan_properties
from leveret.journal import Journal, JournalError, JournalOptions
from leveret.journal.disk import segment_scan
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recording.pager import JournalPager
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recording.restore import restore
from leveret.journal.recovery.check import verify
from leveret.journal.recovery.repair import repair

PATH, OUT, ID = "data", "out", b"0123456789abcdef"
OPTIONS = JournalOptions(segment_size=1500, preallocate_size=0)
#: Which of the five segments or so; -1: the newest.
PLACES = (0, 1, 2, -2, -1)


def broker_on(
    files: SimulatedFiles, path: str = PATH, new_id: bytes = ID, *, deep: bool = False
) -> tuple[Broker, Journal, Recorder]:
    """`deep`: with memory for nothing, so that messages stay in the journal. Raises: JournalError."""
    clock = ManualClock()
    broker = Broker(clock)
    journal = Journal.open(path, clock, OPTIONS, files=files, threaded=False, new_id=new_id)
    recorder = Recorder(broker, journal)
    if deep:
        broker.context.storage.pager = JournalPager(broker, journal, recorder, 0)
    restore(broker, journal, recorder)
    return broker, journal, recorder


def made(*, checkpoints: bool, new_id: bytes = ID) -> SimulatedFiles:
    """A queue with messages in several segments; with a checkpoint near the end, or none at all."""
    files = SimulatedFiles()
    broker, journal, recorder = broker_on(files, new_id=new_id)
    vhost = broker.virtual_hosts["/"]
    vhost.queues.declare("q", client=None, durable=True)
    me = User("me")
    session = broker.connections.open("/", me, name="c", flush=lambda: None).open_session()
    header = encode_header(200, {"delivery_mode": 2})
    for at in range(24):
        envelope = Envelope("", "q", scan_properties(header[12:]))
        content = NATIVE.join(header, b"%03d " % at * 50)
        session.publish(vhost.router.route("", "q", me), envelope, [content], mandatory=False)
        broker.end_turn()
        journal.wait(journal.commit())
        if checkpoints and at == 18:
            for _ in checkpoint(broker, journal, recorder):
                journal.commit()
            journal.wait(journal.commit())
    journal.close()
    return files


WITH, WITHOUT = made(checkpoints=True), made(checkpoints=False)
OTHER = made(checkpoints=True, new_id=b"fedcba9876543210")


def segments(files: SimulatedFiles) -> list[str]:
    return sorted(name for name in files.names_now if name.endswith(".log"))


def missing(files: SimulatedFiles, name: str) -> None:
    files.unlink(name)


def missing_before(files: SimulatedFiles, name: str) -> None:
    for other in segments(files):
        if other < name:
            files.unlink(other)


def missing_behind(files: SimulatedFiles, name: str) -> None:
    for other in segments(files):
        if other > name:
            files.unlink(other)


def empty(files: SimulatedFiles, name: str) -> None:
    files.put(name, b"")


def zeros(files: SimulatedFiles, name: str) -> None:
    files.put(name, bytes(len(files.content(name))))


def other_file(files: SimulatedFiles, name: str) -> None:
    files.put(name, b"something else\n" * 100)


def of_another_journal(files: SimulatedFiles, name: str) -> None:
    files.put(name, OTHER.content(name) if name in OTHER.names_now else OTHER.content(segments(OTHER)[0]))


def no_head(files: SimulatedFiles, name: str) -> None:
    files.put(name, bytes(100) + files.content(name)[100:])


def head_cut_off(files: SimulatedFiles, name: str) -> None:
    files.put(name, files.content(name)[300:])


def no_footer(files: SimulatedFiles, name: str) -> None:
    files.put(name, files.content(name)[:-200])


def half(files: SimulatedFiles, name: str) -> None:
    files.put(name, files.content(name)[: len(files.content(name)) // 2])


def more_behind(files: SimulatedFiles, name: str) -> None:
    files.put(name, files.content(name) + b"more")


def bad_in_the_middle(files: SimulatedFiles, name: str) -> None:
    data = bytearray(files.content(name))
    data[len(data) // 2] ^= 1
    files.put(name, bytes(data))


def swapped(files: SimulatedFiles, name: str) -> None:
    names = segments(files)
    other = names[names.index(name) - 1]
    mine, theirs = files.content(name), files.content(other)
    files.put(name, theirs)
    files.put(other, mine)


def other_name(files: SimulatedFiles, name: str) -> None:
    files.put(f"{PATH}/{int(name[-24:-4]) + 1:020d}.log", files.content(name))
    files.unlink(name)


def twice(files: SimulatedFiles, name: str) -> None:
    files.put(f"{PATH}/{int(name[-24:-4]) + 7:020d}.log", files.content(name))


def other_format(files: SimulatedFiles, name: str) -> None:
    files.put(f"{PATH}/format", OTHER.content(f"{PATH}/format"))


def no_format(files: SimulatedFiles, name: str) -> None:
    files.unlink(f"{PATH}/format")


DAMAGES: list[Callable[[SimulatedFiles, str], None]] = [
    missing, missing_before, missing_behind, empty, zeros, other_file, of_another_journal, no_head, head_cut_off,
    no_footer, half, more_behind, bad_in_the_middle, swapped, other_name, twice, other_format, no_format,
]  # fmt: skip


def cases() -> Iterator[tuple[Callable[[SimulatedFiles, str], None], int, SimulatedFiles]]:
    for damage in DAMAGES:
        for place in PLACES:
            for files in (WITH, WITHOUT):
                yield damage, place, files


def is_refused(files: SimulatedFiles, path: str = PATH) -> bool:
    """By a broker that starts on it, or that reads its messages back later."""
    for deep in (False, True):
        try:
            broker, journal, _ = broker_on(files.crash(), path, deep=deep)
            queue = broker.virtual_hosts["/"].queues.get("q")
            while queue is not None and queue.ready_count:
                queue.load() if hasattr(queue, "load") else None
                queue.purge()
            journal.close()
        except JournalError:
            return True
    return False


@pytest.mark.parametrize("damage, place, base", list(cases()))
def test_where_the_broker_refuses_verify_finds_a_fault(
    damage: Callable[[SimulatedFiles, str], None], place: int, base: SimulatedFiles
) -> None:
    """And what `repair` makes of it starts, if it makes anything of it."""
    files = base.crash()
    assert len(segments(files)) > 4
    damage(files, segments(files)[place])
    try:
        is_damaged = bool(verify(PATH, files).faults)
    except JournalError:
        is_damaged = True
    if is_refused(files):
        assert is_damaged
    try:
        repair(PATH, OUT, files)
    except JournalError:
        return
    report = verify(OUT, files)
    assert not report.faults and not report.torn_bytes
    assert verify(OUT, files.power_cut()) == report, "it is on the disk when it is done"
    assert not is_refused(files, OUT)


def test_whole_blocks_are_found_wherever_the_pieces_end_in_which_they_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is saved behind damage does not depend on how the file is read."""
    lost = set()
    for size in range(100, 140):
        files = WITH.crash()
        bad_in_the_middle(files, segments(files)[1])
        lost.add(tuple(repair(PATH, OUT, files).lost))
        monkeypatch.setattr(segment_scan, "WINDOW_SIZE", size)
    assert len(lost) == 1


@pytest.mark.parametrize("damage", [no_head, head_cut_off])
def test_nothing_tells_which_journal_it_was(damage: Callable[[SimulatedFiles, str], None]) -> None:
    """Neither `format` nor the head of the one segment that there is: what it holds is saved under a new id."""
    files = WITHOUT.crash()
    missing_behind(files, segments(files)[0])
    damage(files, segments(files)[0])
    no_format(files, "")
    with pytest.raises(JournalError):
        verify(PATH, files)
    assert repair(PATH, OUT, files).lost
    assert verify(OUT, files).records > 1 and not verify(OUT, files).faults
    assert not is_refused(files, OUT)


def test_no_segment_has_anything() -> None:
    """Then there is nothing to save, and no journal is made."""
    files = WITHOUT.crash()
    missing_behind(files, segments(files)[0])
    other_file(files, segments(files)[0])
    no_format(files, "")
    with pytest.raises(JournalError, match="no journal here, and no segment with a whole block"):
        repair(PATH, OUT, files)


@pytest.mark.parametrize("base", [WITH, WITHOUT])
def test_a_missing_first_segment(base: SimulatedFiles) -> None:
    """The broker and `verify` name the same records, with a checkpoint behind them as without one."""
    files = base.crash()
    first, second = segments(files)[:2]
    files.unlink(first)
    with pytest.raises(JournalError, match=f"{second[5:]}, offset 0") as error:
        broker_on(files.crash())
    (fault,) = verify(PATH, files).faults
    assert f"{fault.segment}, offset {fault.offset}: {fault.what}; {fault.lost} are lost" in str(error.value)
    assert fault.lost.startswith("records ")
