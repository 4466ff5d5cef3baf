"""What `verify` says of a journal: which records damage costs, and where; and nothing of one that is whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from journal_workload import PATH, Driver, opened
from simulated_files import SimulatedFiles

from leveret.journal import JournalOptions
from leveret.journal.disk.segment import FOOTER_HEAD, path_of, segment_name, segments_in
from leveret.journal.disk.segment_scan import SegmentScan
from leveret.journal.format.block import Block, encode_records
from leveret.journal.recovery.check import Report, verify


def written() -> SimulatedFiles:
    """A journal of several segments of several blocks, closed."""
    files = SimulatedFiles()
    options = JournalOptions(segment_size=1500, preallocate_size=0)
    driver = Driver(opened(files, options))
    driver.declare("a")
    for _ in range(20):
        driver.publish([b"x" * 200], "a")
        assert driver.journal.wait(driver.journal.commit())
    driver.journal.close()
    assert len(segments_in(files, PATH)) > 4
    return files


def blocks_of(files: SimulatedFiles, base_lsn: int) -> list[Block]:
    handle = files.open(path_of(PATH, base_lsn))
    try:
        return list(SegmentScan(files, handle, base_lsn))
    finally:
        files.close(handle)


def told(report: Report) -> list[tuple[str, int, str]]:
    return [(fault.segment, fault.offset, fault.lost) for fault in report.faults]


def test_a_whole_journal() -> None:
    """It counts what there is."""
    files = written()
    report = verify(PATH, files)
    bases = segments_in(files, PATH)
    blocks = [block for base_lsn in bases for block in blocks_of(files, base_lsn)]
    assert (report.faults, report.gaps, report.torn_bytes, report.torn_segment) == ([], [], 0, "")
    assert (report.segments, report.blocks) == (len(bases), len(blocks))
    assert (report.first_lsn, report.next_lsn) == (1, blocks[-1].end_lsn)
    assert report.records == blocks[-1].end_lsn - 1


@pytest.mark.parametrize("at", [1, 2])
def test_a_segment_that_is_missing(at: int) -> None:
    """All of its records, said where the next one begins; and nothing else is wrong."""
    files = written()
    bases = segments_in(files, PATH)
    files.unlink(path_of(PATH, bases[at]))
    assert told(verify(PATH, files)) == [
        (segment_name(bases[at + 1]), 0, f"records {bases[at]} to {bases[at + 1] - 1}")
    ]


@pytest.mark.parametrize("where", [0, 1, -2])
def test_a_block_that_is_damaged(where: int) -> None:
    """Its records, from its first octet on; those behind it are read, and not called bad as well."""
    files = written()
    base_lsn = segments_in(files, PATH)[2]
    block = blocks_of(files, base_lsn)[where]
    path = path_of(PATH, base_lsn)
    data = bytearray(files.content(path))
    data[block.offset + block.header.size // 2] ^= 1
    files.put(path, bytes(data))
    assert told(verify(PATH, files)) == [
        (segment_name(base_lsn), block.offset, f"records {block.header.base_lsn} to {block.end_lsn - 1}")
    ]


def _without_footer(blocks: list[Block]) -> tuple[int, str]:
    return blocks[-1].offset, f"records from {blocks[-1].header.base_lsn} on"


def _without_the_last_two(blocks: list[Block]) -> tuple[int, str]:
    return blocks[-2].offset, f"records from {blocks[-2].header.base_lsn} on"


@pytest.mark.parametrize("cut", [_without_footer, _without_the_last_two])
def test_a_segment_that_is_cut(cut: Callable[[list[Block]], tuple[int, str]]) -> None:
    """From where on its records are missing."""
    files = written()
    bases = segments_in(files, PATH)
    offset, lost = cut(blocks_of(files, bases[1]))
    path = path_of(PATH, bases[1])
    files.put(path, files.content(path)[:offset])
    assert (segment_name(bases[1]), offset, lost) in told(verify(PATH, files))


def test_a_torn_tail_is_no_fault() -> None:
    """It is told of: where, and how much."""
    files = written()
    base_lsn = segments_in(files, PATH)[-1]
    blocks = blocks_of(files, base_lsn)
    path = path_of(PATH, base_lsn)
    files.put(path, files.content(path)[: blocks[-1].offset] + b"torn")
    report = verify(PATH, files)
    assert not report.faults
    assert (report.torn_segment, report.torn_bytes) == (segment_name(base_lsn), 4)
    assert report.next_lsn == blocks[-1].header.base_lsn


@pytest.mark.parametrize("offset", [8, 16, FOOTER_HEAD.size + 4], ids=["begin", "end", "kinds"])
def test_a_footer_that_tells_something_else(offset: int) -> None:
    """Whose CRC is right: where its segment begins, where it ends, and how many records of a kind there are."""
    files = written()
    base_lsn = segments_in(files, PATH)[1]
    footer = blocks_of(files, base_lsn)[-1]
    ((_, record),) = footer.records()
    heap = bytearray(record.heap)
    heap[offset] ^= 1
    forged = encode_records(footer.header.base_lsn, footer.header.flags, [record._replace(heap=bytes(heap))])
    path = path_of(PATH, base_lsn)
    files.put(path, files.content(path)[: footer.offset] + forged)
    assert told(verify(PATH, files)) == [(segment_name(base_lsn), footer.offset, "what these records say")]
