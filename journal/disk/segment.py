"""A segment: one file of blocks, `<base LSN, 20 digits>.log`, that can be read without its neighbors.

First block: flag head; record 0 is the `head` record, then a `define` for every name that is alive. Last block of a
sealed segment: flag footer, one `footer` record, written after an fsync of all blocks before it (so the footer calls
all before it durable) and followed by another fsync. Octets behind the footer, and zeros behind the last block of the
open segment, are no data.

Footer heap, version 1: `FOOTER_HEAD` = u8 version, u8 1 if there are gap blocks, u16 kinds, u32 index entries, i64 each
of: first LSN, LSN behind the last record (the footer's own included), earliest and latest ts_us, id of the first and of
the last published message (0 none), octets of heap, begin and end of the last checkpoint (0 none). Then for each kind
(u32 kind, u32 records), then (i64 base LSN, u32 offset, u32 0) of about one block in 64 KiB, in order; at the very end
u32 octets of the whole footer block and the octets "LVJF", so that a reader finds it from the end of the file.
Source: Spark page 4.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError

from ..format.block import (
    HEADER,
    HEADER_SIZE,
    IS_FOOTER,
    IS_GAP,
    MAGIC,
    MAGIC_OCTETS,
    Block,
    Header,
    encode_records,
    read_block,
)
from ..format.errors import BadRecord, Damaged
from ..format.heap import VERSION
from ..format.record import CHECKPOINT, FOOTER, PUBLISHED, RECORD, RECORD_SIZE, Record
from .files import ReadableFiles

NAME = re.compile(r"(\d{20})\.log")
WINDOW_SIZE = 1024 * 1024
INDEX_STEP = 64 * 1024

FOOTER_HEAD = Struct("<BBHIqqqqqqqqq")
_KIND = Struct("<II")
_INDEX = Struct("<qII")
_TRAILER = Struct("<I4s")
FOOTER_MAGIC = b"LVJF"


def segment_name(base_lsn: int) -> str:
    """File name of the segment that begins at this LSN."""
    return f"{base_lsn:020d}.log"


def path_of(directory: str, base_lsn: int) -> str:
    return os.path.join(directory, segment_name(base_lsn))


@contextmanager
def opened(files: ReadableFiles, directory: str, base_lsn: int) -> Iterator[int]:
    """The handle of a segment that is read. Raises: OSError."""
    handle = files.open(path_of(directory, base_lsn))
    try:
        yield handle
    finally:
        files.close(handle)


def segments_in(files: ReadableFiles, directory: str) -> list[int]:
    """Base LSNs of the segments there, in order."""
    return sorted(int(match[1]) for name in files.names(directory) if (match := NAME.fullmatch(name)))


@dataclass(slots=True, eq=False, repr=False)
class Segment:
    """Summary of a segment: the fields of its footer, and a sparse index."""

    base_lsn: int
    checkpoint_begin: int = 0
    checkpoint_end: int = 0
    end_lsn: int = field(init=False)
    ts_min: int = field(default=0, init=False)
    ts_max: int = field(default=0, init=False)
    first_id: int = field(default=0, init=False)
    last_id: int = field(default=0, init=False)
    heap_size: int = field(default=0, init=False)
    kinds: dict[int, int] = field(default_factory=dict, init=False)
    index_lsns: list[int] = field(default_factory=list, init=False)
    index_offsets: list[int] = field(default_factory=list, init=False)
    size: int = field(default=0, init=False)  # octets up to the end of the last block
    sealed: bool = field(default=False, init=False)
    has_gaps: bool = field(default=False, init=False)  # blocks in place of records that a repair could not save

    def __post_init__(self) -> None:
        self.end_lsn = self.base_lsn

    @property
    def name(self) -> str:
        """Name of its file."""
        return segment_name(self.base_lsn)

    def note(self, block: Block) -> None:
        """Add a block to the summary. The offset of its index entry is appended before its LSN: one thread may write
        while another looks up."""
        header, data = block.header, block.data
        if not self.index_offsets or block.offset >= self.index_offsets[-1] + INDEX_STEP:
            self.index_offsets.append(block.offset)
            self.index_lsns.append(header.base_lsn)
        if header.record_count:
            kinds = bytes(data[HEADER_SIZE + 28 : block.heap_start : RECORD_SIZE])
            for kind in set(kinds):
                self.kinds[kind] = self.kinds.get(kind, 0) + kinds.count(kind)
            first = kinds.find(PUBLISHED)
            if first >= 0:
                ids = [
                    RECORD.unpack_from(data, HEADER_SIZE + RECORD_SIZE * i)[1] for i in (first, kinds.rfind(PUBLISHED))
                ]
                self.first_id = self.first_id or ids[0]
                self.last_id = max(self.last_id, *ids)
            checkpoint = kinds.rfind(CHECKPOINT)
            if checkpoint >= 0:
                self.checkpoint_begin = RECORD.unpack_from(data, HEADER_SIZE + RECORD_SIZE * checkpoint)[2]
                self.checkpoint_end = header.base_lsn + checkpoint + 1
            # Times rise within a block, but for jumps of the clock: its first and last record are enough.
            for index in (0, header.record_count - 1):
                ts_us = RECORD.unpack_from(data, HEADER_SIZE + RECORD_SIZE * index)[0]
                self.ts_min = min(self.ts_min or ts_us, ts_us)
                self.ts_max = max(self.ts_max, ts_us)
        self.has_gaps |= bool(header.flags & IS_GAP)
        self.heap_size += header.heap_size
        self.end_lsn = block.end_lsn
        self.size = block.offset + header.size

    def block_before(self, lsn: int) -> tuple[int, int]:
        """(base LSN, offset) of an indexed block that begins at or before `lsn`."""
        found = bisect_right(self.index_lsns, lsn) - 1
        return (self.index_lsns[found], self.index_offsets[found]) if found >= 0 else (self.base_lsn, 0)

    def footer(self, ts_us: int, flags: int, lag: int = 0) -> bytearray:
        """The footer block; its record has LSN `end_lsn`. `lag`: records before it that may not be durable."""
        kinds = dict(sorted({**self.kinds, FOOTER: 1}.items()))
        index = list(zip(self.index_lsns, self.index_offsets))
        heap = b"".join(
            (
                FOOTER_HEAD.pack(
                    VERSION,
                    int(self.has_gaps),
                    len(kinds),
                    len(index),
                    self.base_lsn,
                    self.end_lsn + 1,
                    self.ts_min,
                    self.ts_max,
                    self.first_id,
                    self.last_id,
                    self.heap_size,
                    self.checkpoint_begin,
                    self.checkpoint_end,
                ),  # fmt: skip
                *(_KIND.pack(*item) for item in kinds.items()),
                *(_INDEX.pack(lsn, offset, 0) for lsn, offset in index),
            )
        )
        size = HEADER_SIZE + RECORD_SIZE + len(heap) + _TRAILER.size
        record = Record(FOOTER, ts_us, arg=self.base_lsn, heap=heap + _TRAILER.pack(size, FOOTER_MAGIC))
        return encode_records(self.end_lsn, flags | IS_FOOTER, [record], lag=lag)

    @classmethod
    def from_footer(cls, block: Block) -> "Segment":
        """The summary in a footer block. Raises: BadRecord."""
        try:
            (fields,) = block.fields()
            heap = block.heap_of(fields)
            fixed = FOOTER_HEAD.unpack_from(heap)
            version, has_gaps, kind_count, index_count, base, end, ts_min, ts_max, first, last, heap_size = fixed[:11]
            if version != VERSION:
                raise BadRecord(f"a footer of version {version}")
            position = FOOTER_HEAD.size
            found = cls(base, *fixed[11:])
            found.has_gaps = bool(has_gaps)
            for _ in range(kind_count):
                kind, count = _KIND.unpack_from(heap, position)
                found.kinds[kind] = count
                position += _KIND.size
            for _ in range(index_count):
                lsn, offset, _ = _INDEX.unpack_from(heap, position)
                found.index_lsns.append(lsn)
                found.index_offsets.append(offset)
                position += _INDEX.size
        except (StructError, ValueError) as error:
            raise BadRecord("a footer that is cut short") from error
        found.end_lsn, found.ts_min, found.ts_max = end, ts_min, ts_max
        found.first_id, found.last_id, found.heap_size = first, last, heap_size
        found.size = block.offset + block.header.size
        found.sealed = True
        return found


def read_footer(files: ReadableFiles, handle: int) -> Segment | None:
    """The summary in the footer at the end of a file; None: it has no whole footer. Raises: BadRecord."""
    size = files.size(handle)
    trailer = files.read(handle, _TRAILER.size, max(size - _TRAILER.size, 0))
    if len(trailer) < _TRAILER.size or trailer[4:] != FOOTER_MAGIC:
        return None
    length = _TRAILER.unpack(trailer)[0]
    if not HEADER_SIZE < length <= size:
        return None
    block = read_block(memoryview(files.read(handle, length, size - length)), 0, size - length)
    if block is None or not block.header.flags & IS_FOOTER or block.header.size != length:
        return None
    return Segment.from_footer(block)


def footer_of(files: ReadableFiles, handle: int, base_lsn: int) -> Segment | None:
    """The summary in the footer of this segment; None: it has no whole footer, or another one's."""
    with suppress(BadRecord):
        found = read_footer(files, handle)
        if found is not None and found.base_lsn == base_lsn:
            return found
    return None


def agreed_lsn(files: ReadableFiles, directory: str) -> int:
    """The highest durable LSN that a whole block states; of a cluster, the agreed LSN. 0: there is none.

    It is taken from the newest segment with a whole block, whose head has the value of all before. O(segment).
    """
    for base_lsn in reversed(segments_in(files, directory)):
        with opened(files, directory, base_lsn) as handle:
            scan = Scan(files, handle, base_lsn)
            for _ in scan:
                pass
            if scan.position:
                return scan.durable_lsn
    return 0


class Scan:
    """Yields the blocks of a segment in order, until one is not whole or does not follow, or the file ends.

    Memory: a window of 1 MiB, or the largest block. `position`, `lsn`: where the next block should be, and its LSN.
    """

    def __init__(
        self,
        files: ReadableFiles,
        handle: int,
        lsn: int,
        *,
        offset: int = 0,
        size: int | None = None,
        window_size: int = WINDOW_SIZE,
    ) -> None:
        self._files = files
        self._window_size = window_size
        self._handle = handle
        self.size = files.size(handle) if size is None else size
        self.position = offset
        self.lsn = lsn
        self.durable_lsn = 0  # the highest in any block
        self.gaps: list[tuple[int, int]] = []
        self.sealed = False  # a footer has been read

    def __iter__(self) -> Iterator[Block]:
        window, start = memoryview(b""), self.position
        while not self.sealed:
            at = self.position - start
            block = read_block(window, at, self.position)
            if block is None:
                need = self._size_here(window, at)
                if len(window) - at >= need or start + len(window) >= self.size:
                    return
                start = self.position
                window = memoryview(
                    self._files.read(self._handle, min(max(need, self._window_size), self.size - start), start)
                )
                if len(window) < min(need, self.size - start):
                    return
                continue
            if block.header.base_lsn != self.lsn or not _is_sane(block):
                return
            if block.header.flags & IS_GAP:
                self.gaps.append((self.lsn, block.end_lsn))
            self.sealed = bool(block.header.flags & IS_FOOTER)
            self.position += block.header.size
            self.lsn = block.end_lsn
            self.durable_lsn = max(self.durable_lsn, block.header.durable_lsn)
            yield block

    def _size_here(self, window: memoryview, at: int) -> int:
        """Octets that the window must hold to decide whether a whole block begins at `at`."""
        if len(window) - at < HEADER_SIZE:
            return HEADER_SIZE
        header = Header._make(HEADER.unpack_from(window, at))
        if header.magic != MAGIC:
            return HEADER_SIZE
        return min(header.size, self.size - self.position)

    def rest_is_empty(self) -> bool:
        """Whether only zeros (preallocated room) follow the blocks that were read."""
        position = self.position
        while position < self.size:
            data = self._files.read(self._handle, WINDOW_SIZE, position)
            if not data:
                return True
            if data.count(0) != len(data):
                return False
            position += len(data)
        return True

    def next_block(self, after: int | None = None) -> Block | None:
        """The next whole block with a plausible LSN, after a bad one or the offset `after`. O(rest of the file)."""
        position = (self.position if after is None else after) + 1
        while position + HEADER_SIZE <= self.size:
            data = self._files.read(self._handle, WINDOW_SIZE, position)
            found = data.find(MAGIC_OCTETS, 4)
            while found >= 0:
                block = self._block_at(position + found - 4)
                if block is not None:
                    return block
                found = data.find(MAGIC_OCTETS, found + 1)
            if len(data) < WINDOW_SIZE:
                return None
            position += WINDOW_SIZE - 7
        return None

    def _block_at(self, offset: int) -> Block | None:
        raw = self._files.read(self._handle, HEADER_SIZE, offset)
        if len(raw) < HEADER_SIZE:
            return None
        header = Header._make(HEADER.unpack(raw))
        lost_max = (offset - self.position) // RECORD_SIZE
        if header.size > self.size - offset or not self.lsn <= header.base_lsn <= self.lsn + lost_max:
            return None
        return read_block(memoryview(self._files.read(self._handle, header.size, offset)), 0, offset)

    def check_tail(self, name: str, *, is_last: bool) -> int:
        """Octets of torn tail behind the blocks that were read (0: none).

        Octets are a torn tail if nothing proves that they were durable: they are in the newest segment, and no later
        block says that their records were durable. Raises: Damaged.
        """
        if self.position >= self.size or (is_last and self.rest_is_empty()):
            if is_last or self.sealed:
                return 0
            raise Damaged(name, self.position, f"it ends without a footer; records from {self.lsn} on may be lost")
        if self.sealed:
            if is_last:
                return self.size - self.position
            raise Damaged(name, self.position, "something stands behind the footer")
        later = self.next_block()
        witness = later
        while witness is not None and witness.header.durable_lsn <= self.lsn:
            witness = self.next_block(witness.offset)
        if witness is not None:
            assert later is not None
            raise Damaged(
                name, self.position, f"a bad block; records {self.lsn} to {later.header.base_lsn - 1} are lost"
            )
        if not is_last:
            raise Damaged(name, self.position, f"a bad block; records from {self.lsn} on are lost")
        return self.size - self.position


def _is_sane(block: Block) -> bool:
    """Whether the block is no gap, or a gap with its end behind its begin."""
    header = block.header
    return not header.flags & IS_GAP or (header.heap_size >= 8 and block.end_lsn > header.base_lsn)
