"""Reads slices of segments as columns: the records of many blocks in one numpy array, with LSNs and names.

Only blocks with a valid CRC are read. For a strict reader it is an error if a slice cannot be read to its end; for
others the lost records are holes. So an audit never mistakes damage for losses of the broker.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...journal.disk.directory import read_format
from ...journal.disk.segment import path_of, segment_name, segments_in
from ...journal.disk.segment_scan import SegmentScan
from ...journal.format.block import HEADER_SIZE, IS_GAP, MAGIC, Block, Header
from ...journal.format.errors import BadRecord, Damaged
from ...journal.format.heap import decode_define
from ...journal.format.names import Names
from ...journal.format.record import DEFINE, RECORD_SIZE
from .arrow_files import ArrowFiles
from .holes import BAD_BLOCK, CUT_END, LOST_BEFORE_REPAIR, Hole, SoundBlocks, time_of
from .positions import JournalGone, Slice

#: The layout of a record, as in journal/format/record.py.
RECORD = np.dtype(
    [
        ("ts_us", "<i8"),
        ("msg_id", "<i8"),
        ("arg", "<i8"),
        ("heap_off", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("priority", "u1"),
        ("reason", "u1"),
        ("address_id", "<i4"),
        ("queue_id", "<i4"),
        ("consumer_id", "<i4"),
        ("conn_id", "<i4"),
        ("attempt", "<u2"),
        ("zero", "<u2"),
        ("size", "<u4"),
        ("heap_len", "<u4"),
        ("link", "<u4"),
    ]
)
assert RECORD.itemsize == RECORD_SIZE
#: A chunk is complete when it has this many records, or this many octets of heap.
ROWS, HEAP_OCTETS = 65_536, 16 * 1024 * 1024
#: The header of a chunk that has only holes.
NO_HEADER = Header(0, MAGIC, 0, 0, 0, 0, 0)


@dataclass(slots=True)
class Chunk:
    """Consecutive records, without gap blocks. `records`, `lsns`: one entry for each record.

    holes: those before and between the records; in the last chunk of a slice also those behind them.
    """

    segment: int
    records: "np.ndarray[tuple[int], np.dtype[np.void]]"
    lsns: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    names: Names
    header: Header  # of the first block
    blocks: list[Block] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # index of each block's first record
    holes: list[Hole] = field(default_factory=list)

    def heap(self, index: int) -> bytes:
        """The heap entry of a record. Raises: Damaged."""
        record = self.records[index]
        length = int(record["heap_len"])
        if not length:
            return b""
        block = self.blocks[bisect_right(self.starts, index) - 1]
        start = int(record["heap_off"])
        if start + length > block.header.heap_size:
            raise Damaged(segment_name(self.segment), block.offset, "a heap entry lies outside the heap")
        start += block.heap_start
        return bytes(block.data[start : start + length])

    def heap_integers(self, indices: Any, offset: int) -> Any:
        """The 8-octet integers at `offset` of the heap entries of records. `indices`: ascending. Raises: Damaged."""
        found: Any = np.zeros(len(indices), np.int64)
        records = self.records[indices]
        owners = np.searchsorted(self.starts, indices, "right") - 1
        for at in np.unique(owners):
            block, rows = self.blocks[at], np.flatnonzero(owners == at)
            begins = records["heap_off"][rows].astype(np.int64) + offset
            if (begins + 8 > block.header.heap_size).any() or (records["heap_len"][rows] < offset + 8).any():
                raise Damaged(segment_name(self.segment), block.offset, "a heap entry is cut short")
            heap = np.frombuffer(block.data, np.uint8, offset=block.heap_start)
            found[rows] = heap[begins[:, None] + np.arange(8)].view("<i8")[:, 0]
        return found


def read_chunks(files: ArrowFiles, directory: str, part: Slice, *, strict: bool = True) -> Iterator[Chunk]:
    """Read a slice, chunk by chunk. One chunk and a window of the file are in memory.

    Raises: Damaged (the content of a block with a valid CRC is wrong; if strict, any bad block), JournalGone, OSError.
    """
    path = path_of(directory, part.segment)
    try:
        handle = files.open(path)
    except FileNotFoundError as error:
        name = segment_name(part.segment)
        raise JournalGone(f"{directory}: segment {name} is no longer there; register a reader to keep it") from error
    try:
        names = _names_before(files, handle, path, part, strict=strict)
        waiting: list[Block] = []
        holes: list[Hole] = []
        rows = octets = 0
        blocks = _strict_blocks if strict else _sound_blocks
        for found in blocks(files, handle, directory, part, names):
            if isinstance(found, Hole):
                holes.append(found._replace(journal=read_format(directory, files).journal_id.hex()))
                continue
            waiting.append(found)
            rows += found.header.record_count
            octets += found.header.heap_size
            if rows >= ROWS or octets >= HEAP_OCTETS:
                yield _make_chunk(part.segment, waiting, names, holes)
                waiting, holes, rows, octets = [], [], 0, 0
        if waiting or holes:
            yield _make_chunk(part.segment, waiting, names, holes)
        _remember_names(path, part, names)
    finally:
        files.close(handle)


def _strict_blocks(files: ArrowFiles, handle: int, directory: str, part: Slice, names: Names) -> Iterator[Block | Hole]:
    """The blocks of a slice, with the hole before it, and those that gap blocks mark, in their places.

    Raises: Damaged (a block cannot be read).
    """
    yield from _hole_before(part)
    scan, before_us = SegmentScan(files, handle, part.start_lsn, offset=part.start, size=part.end), None
    for block in scan:
        if block.header.flags & IS_GAP:
            yield _gap_hole(part.segment, block, before_us)
        before_us = _last_us(block, before_us)
        yield block
    if scan.position != part.end or scan.lsn != part.end_lsn or (part.is_sealed and not scan.sealed):
        raise _bad_block_error(scan, directory, part.segment, part.end_lsn)


def _sound_blocks(files: ArrowFiles, handle: int, directory: str, part: Slice, names: Names) -> Iterator[Block | Hole]:
    """The undamaged blocks of a slice, with its holes in their places."""
    yield from _hole_before(part)
    scan = SoundBlocks(files, handle, part.start_lsn, offset=part.start, size=part.end)
    before_us: int | None = None
    lsn, position = part.start_lsn, part.start
    for block in scan:
        if block.end_lsn > part.end_lsn:  # an old block, of an earlier use of the file
            break
        lost = scan.take_lost()
        if lost:
            _collect_names(files, directory, part.segment, names)
        for one in lost:
            after_us = _first_us(block)
            yield Hole(one.lsn, one.next_lsn - 1, part.segment, one.offset, one.octets, BAD_BLOCK, before_us, after_us)
        if block.header.flags & IS_GAP:
            yield _gap_hole(part.segment, block, before_us)
        before_us = _last_us(block, before_us)
        lsn, position = block.end_lsn, block.offset + block.header.size
        yield block
    if lsn < part.end_lsn:
        octets = part.end - position
        why = BAD_BLOCK if octets else CUT_END
        yield Hole(lsn, part.end_lsn - 1, part.segment, position, octets or None, why, before_us)


def _hole_before(part: Slice) -> Iterator[Hole]:
    """The hole before a slice, if any. A strict reader has one if it goes past deleted segments."""
    if part.lost_from:
        yield Hole(part.lost_from, part.segment - 1, part.segment, 0, None, part.lost_why)


def _gap_hole(segment: int, block: Block, before_us: int | None) -> Hole:
    return Hole(block.header.base_lsn, block.end_lsn - 1, segment, block.offset, None, LOST_BEFORE_REPAIR, before_us)


def _first_us(block: Block) -> int | None:
    return time_of(block, 0) if block.header.record_count and not block.header.flags & IS_GAP else None


def _last_us(block: Block, otherwise: int | None) -> int | None:
    if not block.header.record_count or block.header.flags & IS_GAP:
        return otherwise
    return time_of(block, block.header.record_count - 1)


def _collect_names(files: ArrowFiles, directory: str, segment: int, names: Names) -> None:
    """Add names that a lost block may have defined: from this segment, and from the next one, which defines all names
    in use. No id ever has two names.
    """
    bases = segments_in(files, directory)
    for base in (segment, *[one for one in bases if one > segment][:1]):
        handle = files.open(path_of(directory, base))
        try:
            for block in SoundBlocks(files, handle, base):
                _add_names(base, block, names)
        finally:
            files.close(handle)


def _bad_block_error(scan: SegmentScan, directory: str, segment: int, end_lsn: int) -> Damaged:
    """The error for a bad block, in the words of `leveret journal verify`. `end_lsn`: of the slice."""
    later = scan.next_block()
    last = (end_lsn if later is None else later.header.base_lsn) - 1
    return Damaged(
        segment_name(segment),
        scan.position,
        f"a bad block; records {scan.lsn} to {last} are lost; `leveret journal verify {directory}` shows all,"
        " `leveret journal repair` saves what can be read",
    )


def _make_chunk(segment: int, blocks: list[Block], names: Names, holes: list[Hole]) -> Chunk:
    """Make a chunk of blocks. Adds the names that they define to `names`."""
    kept: list[Block] = []
    starts: list[int] = []
    count = 0
    for block in blocks:
        _add_names(segment, block, names)
        if block.header.record_count and not block.header.flags & IS_GAP:
            kept.append(block)
            starts.append(count)
            count += block.header.record_count
    octets = b"".join([block.data[HEADER_SIZE : block.heap_start] for block in kept])
    records = np.frombuffer(octets, RECORD)
    counts = np.fromiter((block.header.record_count for block in kept), np.int64, len(kept))
    shifts = np.fromiter((block.header.base_lsn for block in kept), np.int64, len(kept)) - np.array(starts, np.int64)
    lsns = np.repeat(shifts, counts) + np.arange(count, dtype=np.int64)
    header = blocks[0].header if blocks else NO_HEADER
    return Chunk(segment, records, lsns, names, header, kept, starts, holes)


def _add_names(segment: int, block: Block, names: Names) -> None:
    kinds = bytes(block.data[HEADER_SIZE + 28 : block.heap_start : RECORD_SIZE])
    if DEFINE not in kinds:
        return
    try:
        for _, record in block.records():
            if record.kind == DEFINE:
                names.set(record.arg, decode_define(record.heap))
    except BadRecord as error:
        raise Damaged(segment_name(segment), block.offset, str(error)) from error


#: Path of a segment that a streaming query reads piece by piece -> (offset, LSN, the names defined before).
_names_read: dict[str, tuple[int, int, Names]] = {}
NAMES_READ_MAX = 8


def _names_before(files: ArrowFiles, handle: int, path: str, part: Slice, *, strict: bool) -> Names:
    """The names that a segment defines before a slice, and perhaps later ones: no id ever has two names."""
    offset, lsn, names = _names_read.get(path, (0, part.segment, Names()))
    if part.start > offset:
        scan = (SegmentScan if strict else SoundBlocks)(files, handle, lsn, offset=offset, size=part.start)
        for block in scan:
            _add_names(part.segment, block, names)
        if isinstance(scan, SegmentScan):
            if scan.position != part.start:
                raise _bad_block_error(scan, os.path.dirname(path), part.segment, part.start_lsn)
        elif scan.lost or scan.lsn != part.start_lsn:
            _collect_names(files, os.path.dirname(path), part.segment, names)
    return names


def _remember_names(path: str, part: Slice, names: Names) -> None:
    _names_read.pop(path, None)
    if not part.is_sealed:
        _names_read[path] = (part.end, part.end_lsn, names)
    while len(_names_read) > NAMES_READ_MAX:
        del _names_read[next(iter(_names_read))]
