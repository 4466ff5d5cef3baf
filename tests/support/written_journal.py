"""A leader's journal for tests of links: real segments of real blocks, written when the test says so."""

import os
from collections.abc import Callable

from leveret.cluster.link.follower_links import LeaderJournal
from leveret.journal import TermTable
from leveret.journal.disk.segment import SegmentSummary, path_of
from leveret.journal.disk.segment_file import as_block
from leveret.journal.format.block import IS_HEAD, encode_block, encode_records
from leveret.journal.format.record import HEAD, PUBLISHED, Record

JOURNAL_ID = b"J" * 16


def node_id(number: int) -> bytes:
    return bytes([number]) * 16


class WrittenJournal:
    """`on_written(base_lsn, offset, octets, end_lsn)` is told what is written."""

    def __init__(self, path: str, *starts: tuple[int, int]) -> None:
        os.makedirs(path)
        self.path = path
        self.terms = TermTable(node_id(200), starts or ((1, 1),))
        self.end = 1
        self.on_written: Callable[[int, int, bytes, int], object] = lambda *said: None
        self._segment: SegmentSummary | None = None
        self.roll()

    @property
    def led(self) -> LeaderJournal:
        return LeaderJournal(self.path, JOURNAL_ID, self.terms)

    @property
    def position(self) -> tuple[int, int]:
        assert self._segment is not None
        return self._segment.base_lsn, self._segment.size

    def roll(self) -> None:
        """Seal the segment and begin another."""
        if self._segment is not None:
            self._write(bytes(self._segment.footer(1, 0)))
        self._segment = SegmentSummary(self.end)
        self._write(bytes(encode_records(self.end, IS_HEAD, [Record(HEAD)])))

    def block(self, count: int = 2, size: int = 100) -> None:
        """Records with `size` octets of heap each; the last is no zero: `segments` takes zeros for reserved room."""
        heaps = [os.urandom(size - 1) + b"\1" for _ in range(count)]
        records = [Record(PUBLISHED, msg_id=self.end + at, heap=heap) for at, heap in enumerate(heaps)]
        self._write(bytes(encode_records(self.end, 0, records)))

    def tick(self) -> None:
        """A block without records."""
        self._write(bytes(encode_block(self.end, 0, 0, 0, (), (), 0)))

    def term(self, number: int) -> None:
        """Another leader goes on: a new term, and a new segment in it."""
        self.terms = self.terms.with_term(number, self.end)
        self.roll()

    def _write(self, octets: bytes) -> None:
        segment = self._segment
        assert segment is not None
        offset = segment.size
        with open(path_of(self.path, segment.base_lsn), "ab") as file:
            file.write(octets)
        block = as_block(bytearray(octets), offset)
        segment.add(block)
        self.end = block.end_lsn
        self.on_written(segment.base_lsn, offset, octets, self.end)

    def unlink(self) -> int:
        """Delete the oldest segment. Returns its base LSN."""
        base_lsn = min(self.segments())
        os.unlink(path_of(self.path, base_lsn))
        return base_lsn

    def segments(self) -> dict[int, bytes]:
        return segments(self.path)


def segments(path: str) -> dict[int, bytes]:
    """Base LSN -> octets of the segments in a directory, without zeros that are reserved behind the last block."""
    found = {}
    for name in sorted(os.listdir(path)):
        if name.endswith(".log"):
            with open(os.path.join(path, name), "rb") as file:
                found[int(name.removesuffix(".log"))] = file.read().rstrip(b"\0")
    return found
