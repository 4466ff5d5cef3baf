"""Contents in a row: the same as one by one, read ahead by a thread or not, whatever stands between them."""

import errno
import threading
from collections.abc import Iterator
from itertools import groupby

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from journal_workload import make_content
from simulated_files import SimulatedFiles

from leveret.engine.clock import ManualClock
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.journal import Damaged, Journal, JournalOptions, NotInJournal
from leveret.journal.disk import segment as segment_module
from leveret.journal.format.block import Block, encode_records, read_block
from leveret.journal.format.record import PUBLISHED, Record
from leveret.journal.recovery import content_reader
from leveret.journal.recovery.content_reader import ReadAhead

#: A turn: runs of (routing key, octets of body of each); those called "mixed" have several headers.
TURNS = st.lists(
    st.lists(
        st.tuples(st.sampled_from([b"", b"key", b"mixed"]), st.lists(st.sampled_from([0, 5, 5, 5, 900]), min_size=1)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=8,
)


def write(journal: Journal, turns: list[list[tuple[bytes, list[int]]]]) -> list[tuple[int, int, bytes, bytes]]:
    """(LSN, exchange id, routing key, content) of each message; other records stand between the runs."""
    written = []
    for number, turn in enumerate(turns):
        exchange = journal.objects.define(2, 0, f"exchange {number % 2}")
        for key, sizes in turn:
            ids = range(journal.next_message_id, journal.next_message_id + len(sizes))
            bodies = [b"%d" % id_ * size for id_, size in zip(ids, sizes)]
            if key == b"mixed":
                headers = [encode_header(len(body), {"priority": id_ % 3}) for id_, body in zip(ids, bodies)]
                contents = [NATIVE.join(header, body) for header, body in zip(headers, bodies)]
            else:
                contents = [make_content(body) for body in bodies]
            lsn = journal.messages.published(ids, exchange, key, NATIVE.columns(contents), queue_ids=[7])
            written += [(lsn + at, exchange, key, one) for at, one in enumerate(contents)]
            journal.messages.enqueued(7, ids, lsn, sizes)
        journal.wait(journal.commit())
    return written


def in_runs(journal: Journal, written: list[tuple[int, int, bytes, bytes]]) -> list[tuple[int, int, bytes, bytes]]:
    """The same, read by runs of consecutive LSNs."""
    found = []
    for _, group in groupby(enumerate(written), lambda item: item[1][0] - item[0]):
        lsns = [row[0] for _, row in group]
        lsn = lsns[0]
        for run in journal.contents.runs(lsn, len(lsns)):
            for content in run.contents:
                whole = content if run.header is None else NATIVE.join(run.header, content)
                found.append((lsn, run.exchange_id, run.routing_key, whole))
                lsn += 1
    return found


@given(TURNS)
@example([[(b"mixed", [5, 5, 5, 5, 5])], [(b"key", [5, 5, 5])], [(b"mixed", [5])]])
def test_runs_are_what_stands_there(turns: list[list[tuple[bytes, list[int]]]]) -> None:
    """Any mixture of exchanges, keys and sizes, over several segments."""
    journal = Journal.open(
        "j", ManualClock(), JournalOptions(segment_size=4000), files=SimulatedFiles(), threaded=False, new_id=bytes(16)
    )
    written = write(journal, turns)
    assert in_runs(journal, written) == written
    assert [(lsn, journal.contents.read(lsn)) for lsn, _, _, _ in written] == [(row[0], row[3]) for row in written]
    with pytest.raises(NotInJournal, match="no content"):
        list(journal.contents.runs(written[0][0], 4000))
    journal.close()


def test_reading_ahead(tmp_path: object) -> None:
    """With the thread, over segments that are reclaimed under its feet, back and forth."""
    journal = Journal.open(str(tmp_path), ManualClock(), JournalOptions(segment_size=100_000))
    written = write(journal, [[(b"key", [900] * 40)]] * 60)
    assert in_runs(journal, written) == written
    assert in_runs(journal, written[800:900]) == written[800:900]
    first = in_runs(journal, written[:50])
    segments = sorted(journal.contents._handles)
    journal.contents.forget(segments[0])
    assert first == written[:50] == in_runs(journal, written[:50])
    runs = journal.contents.runs(written[0][0], 40)
    next(runs)
    journal.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "leveret-read-ahead"]


def blocks(count: int, *, fails: bool = False) -> Iterator[Block]:
    """Blocks with a record each, and perhaps an error behind them."""
    for lsn in range(count):
        block = read_block(memoryview(encode_records(lsn, 0, [Record(PUBLISHED, 1, heap=bytes(100))])), 0, 0)
        assert block is not None
        yield block
    if fails:
        raise OSError(5, "a bad disk")


@pytest.mark.parametrize("batch_octets", [1, 300, content_reader.BATCH_OCTETS])
@pytest.mark.parametrize("ahead_octets", [1, 500, 1 << 20])
def test_order_end_and_errors(ahead_octets: int, batch_octets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks in order, then the end; an error comes where its block would have."""
    monkeypatch.setattr(content_reader, "BATCH_OCTETS", batch_octets)
    assert [block.header.base_lsn for block in ReadAhead(blocks(100), ahead_octets)] == list(range(100))
    reading = ReadAhead(blocks(10, fails=True), ahead_octets)
    assert [next(reading).header.base_lsn for _ in range(10)] == list(range(10))
    with pytest.raises(OSError, match="a bad disk"):
        next(reading)


def test_closing_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread has ended when `close` returns, also when it waits for room."""
    monkeypatch.setattr(content_reader, "BATCH_OCTETS", 1)
    reading = ReadAhead(blocks(1000), 1)
    next(reading), next(reading)
    reading.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "leveret-read-ahead"]
    unread = ReadAhead(blocks(3), 1)
    unread.close()


def test_a_heap_that_does_not_fit_its_records() -> None:
    """A block with a right CRC whose heap entries lie elsewhere: damaged, with segment and offset."""
    files = SimulatedFiles()
    journal = Journal.open("j", ManualClock(), files=files, threaded=False, new_id=bytes(16))
    ((lsn, _, _, _),) = write(journal, [[(b"key", [900])]])
    block, index = journal.contents.find_block(lsn)
    bad = bytearray(block.data)
    bad[32 + 64 * index + 24] ^= 8
    journal.contents._block = block._replace(data=memoryview(bad))
    with pytest.raises(Damaged, match=r"\.log.*heap"):
        list(journal.contents.runs(lsn, 1))
    journal.close()


def test_a_segment_that_was_deleted_is_not_kept_open() -> None:
    """Its room on the disk would not be free. At most some segments are open, however many are read."""
    files = SimulatedFiles()
    journal = Journal.open(
        "j", ManualClock(), JournalOptions(segment_size=4000), files=files, threaded=False, new_id=bytes(16)
    )
    written = write(journal, [[(b"key", [900] * 4)]] * 60)
    before = len(files.handles)
    for lsn, _, _, content in written:
        assert journal.contents.read(lsn) == content
    opened = len(files.handles) - before
    assert 1 < opened <= content_reader.OPEN_FILES_MAX + 1
    for segment in list(journal.contents._handles):
        journal.contents.forget(segment)
    assert len(files.handles) == before
    journal.close()


def test_a_segment_that_cannot_be_read_is_not_kept_open() -> None:
    """A disk with errors does not use up the descriptors, however often contents are asked for."""
    files = SimulatedFiles()
    options = JournalOptions(segment_size=4000)
    journal = Journal.open("j", ManualClock(), options, files=files, threaded=False, new_id=bytes(16))
    (lsn, *_), *_ = write(journal, [[(b"key", [900] * 4)]] * 3)
    before = len(files.handles)

    def fails(operation: str, _: str) -> None:
        if operation == "read":
            raise OSError(errno.EIO, "it is broken")

    files.fault = fails
    for _ in range(3):
        with pytest.raises(OSError, match="it is broken"):
            journal.contents.read(lsn)
    assert len(files.handles) == before
    files.fault = lambda operation, path: None
    assert journal.contents.read(lsn)
    journal.close()


def test_a_footer_of_another_version_hides_no_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its segment is read block by block, and takes one descriptor."""
    files = SimulatedFiles()
    options = JournalOptions(segment_size=4000)
    with monkeypatch.context() as patch:
        patch.setattr(segment_module, "VERSION", 99)
        journal = Journal.open("j", ManualClock(), options, files=files, threaded=False, new_id=bytes(16))
        written = write(journal, [[(b"key", [900] * 4)]] * 3)
    before = len(files.handles)
    for _ in range(3):
        for lsn, *_ in written:
            assert journal.contents.read(lsn)
    assert len(files.handles) <= before + 3
    journal.close()


def test_what_is_in_or_behind_a_bad_block_is_damaged() -> None:
    """It is not said to be in no journal: that is what a message means which is gone."""
    files = SimulatedFiles()
    journal = Journal.open("j", ManualClock(), JournalOptions(), files=files, threaded=False, new_id=bytes(16))
    (first, *_), (second, *_), (third, *_) = write(journal, [[(b"key", [900])]] * 3)
    block, _ = journal.contents.find_block(second)
    (path,) = {path for path, _ in files.handles.values() if "segment" in path or path.endswith(".log")}
    files.rot(path, block.offset + 200)
    for lsn in (second, third):
        journal.contents.close()  # it has read nothing yet
        with pytest.raises(Damaged, match="a bad block"):
            journal.contents.read(lsn)
    assert journal.contents.read(first)
    journal.close()
