"""Holes: records of a journal that cannot be read, between records that can.

The causes are a damaged block, a missing segment, a segment without its end, or records that were lost before an
earlier repair. A reader that is not strict skips holes, and reports each as a `Hole`, which becomes a row of the table
`holes`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ...journal.disk.files import ReadableFiles
from ...journal.disk.segment_scan import SegmentScan
from ...journal.format.block import HEADER_SIZE, Block
from ...journal.format.record import RECORD_SIZE

#: Why records are lost.
BAD_BLOCK = "a bad block"
CUT_END = "the end of the segment is missing"
LOST_BEFORE_REPAIR = "lost before a repair"
NO_SEGMENT = "the segment is missing"
DELETED = "deleted before they were read"


class Hole(NamedTuple):
    """Lost records, from `first_lsn` to `last_lsn`.

    octets: size of the unreadable part of the file; None: the file has no such part. before_us, after_us: times of the
    records around the hole; None: not known.
    """

    first_lsn: int
    last_lsn: int
    segment: int
    offset: int
    octets: int | None
    why: str
    before_us: int | None = None
    after_us: int | None = None
    journal: str = ""  # its id


class LostOctets(NamedTuple):
    """A part of a segment in which no block can be read. `lsn`: of the first lost record; `next_lsn`: of the first
    record behind it.
    """

    lsn: int
    next_lsn: int
    offset: int
    octets: int


def time_of(block: Block, index: int) -> int:
    """The time of a record of a block, in microseconds since 1970."""
    return int.from_bytes(block.data[HEADER_SIZE + RECORD_SIZE * index :][:8], "little", signed=True)


class SoundBlocks:
    """Iterates over the undamaged blocks of a segment, or of a part of it.

    lost: what was skipped. lsn, position: behind the present block. durable_lsn: the highest that a block had. sealed:
    a footer was read.
    """

    def __init__(
        self, files: ReadableFiles, handle: int, lsn: int, *, offset: int = 0, size: int | None = None
    ) -> None:
        self._files, self._handle, self._size = files, handle, size
        self._scan = SegmentScan(files, handle, lsn, offset=offset, size=size)
        self.lsn, self.position = lsn, offset
        self.durable_lsn = 0
        self.sealed = False
        self.lost: list[LostOctets] = []

    def __iter__(self) -> Iterator[Block]:
        tried = -1
        while True:
            for block in self._scan:
                self.lsn, self.position = self._scan.lsn, self._scan.position
                self.durable_lsn = max(self.durable_lsn, block.header.durable_lsn)
                self.sealed = self._scan.sealed
                yield block
            if self.sealed or self.position >= self._scan.size or self._scan.rest_is_empty():
                return
            later = self._scan.next_block()
            if later is None:
                return
            if tried != self.position:  # the broker may have been writing this block: read it again, once
                tried = self.position
                continue
            if later.header.base_lsn > self.lsn:
                octets = later.offset - self.position
                self.lost.append(LostOctets(self.lsn, later.header.base_lsn, self.position, octets))
            self._scan = SegmentScan(
                self._files, self._handle, later.header.base_lsn, offset=later.offset, size=self._size
            )

    def take_lost(self) -> list[LostOctets]:
        """Remove and return what was skipped since the last call."""
        found, self.lost = self.lost, []
        return found
