"""A segment: one file of blocks, `<base LSN, 20 digits>.log`, that can be read without its neighbors.

First block: flag head; record 0 is the `head` record, then a `define` for every name that is alive. Last block of a
sealed segment: flag footer, one `footer` record, written after an fsync of all blocks before it (so, but in a cluster,
the footer calls all before it durable) and followed by another fsync. Octets after the footer, and zeros after the last
block of the open segment, are not data.

Footer heap, version 1: `FOOTER_HEAD` = u8 version, u8 1 if there are gap blocks, u16 kinds, u32 index entries, i64 each
of: first LSN, LSN after the last record (the footer's own included), earliest and latest ts_us, id of the first and of
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
from dataclasses import field
from struct import Struct
from struct import error as StructError

from ...settings.slotted import slotted
from ..format.block import HEADER_SIZE, IS_FOOTER, IS_GAP, Block, encode_records, read_block
from ..format.errors import BadRecord
from ..format.heap import VERSION
from ..format.record import CHECKPOINT, FOOTER, PUBLISHED, RECORD, RECORD_SIZE, Record
from .files import ReadableFiles

NAME = re.compile(r"(\d{20})\.log")
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
    """Open a segment for reading; yields its handle. Raises: OSError."""
    handle = files.open(path_of(directory, base_lsn))
    try:
        yield handle
    finally:
        files.close(handle)


def segments_in(files: ReadableFiles, directory: str) -> list[int]:
    """Base LSNs of the segments there, in order."""
    return sorted(int(match[1]) for name in files.names(directory) if (match := NAME.fullmatch(name)))


@slotted
class SegmentSummary:
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

    def add(self, block: Block) -> None:
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
        """The footer block; its record has LSN `end_lsn`. `lag`: records before it that it does not call durable."""
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
    def from_footer(cls, block: Block) -> "SegmentSummary":
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


def read_footer(files: ReadableFiles, handle: int) -> SegmentSummary | None:
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
    return SegmentSummary.from_footer(block)


def footer_of(files: ReadableFiles, handle: int, base_lsn: int) -> SegmentSummary | None:
    """The summary in the footer of this segment; None: it has no whole footer, or another segment's."""
    with suppress(BadRecord):
        found = read_footer(files, handle)
        if found is not None and found.base_lsn == base_lsn:
            return found
    return None
