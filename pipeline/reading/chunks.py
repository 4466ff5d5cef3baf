"""Slices of segments as columns: records of many blocks in one numpy array, with their LSNs and names.

Blocks are accepted only with a valid CRC. A slice that cannot be read to its end is reported as damaged, or, of a
reader that is not strict, what is lost of it as holes, so that an audit never invents losses.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...journal.disk.directory import read_identity
from ...journal.disk.segment import Scan, path_of, segment_name, segments_in
from ...journal.format.block import HEADER_SIZE, IS_GAP, MAGIC, Block, Header
from ...journal.format.errors import BadRecord, Damaged
from ...journal.format.heap import decode_define
from ...journal.format.names import Names
from ...journal.format.record import DEFINE, RECORD_SIZE
from .arrow_files import ArrowFiles
from .holes import BAD_BLOCK, CUT, REPAIRED, Hole, SoundBlocks, time_of
from .positions import JournalGone, Slice

#: The table of record.py.
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
#: A chunk is complete with this many records, or octets of heap.
ROWS, HEAP_OCTETS = 65_536, 16 * 1024 * 1024
#: The header of a chunk that has only holes.
NO_HEADER = Header(0, MAGIC, 0, 0, 0, 0, 0)


@dataclass(slots=True)
class Chunk:
    """Consecutive records. `records`, `lsns`: one for each; those of gap blocks, which have no LSN, are omitted.

    `holes`: what is lost between and before them, and at the end of the slice behind them.
    """

    segment: int
    records: "np.ndarray[tuple[int], np.dtype[np.void]]"
    lsns: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    names: Names
    header: Header  # of its first block
    blocks: list[Block] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # of each block's records
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
        """The integers of 8 octets at an offset of the heap entries of records (rising indices). Raises: Damaged."""
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
    """A slice, chunk by chunk. Memory: one chunk, and a window of the file.

    Raises: Damaged (strict: of bad blocks, else only of a whole block that says what cannot be), JournalGone, OSError.
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
                holes.append(found._replace(journal=read_identity(directory, files).hex()))
                continue
            waiting.append(found)
            rows += found.header.record_count
            octets += found.header.heap_size
            if rows >= ROWS or octets >= HEAP_OCTETS:
                yield _chunk(part.segment, waiting, names, holes)
                waiting, holes, rows, octets = [], [], 0, 0
        if waiting or holes:
            yield _chunk(part.segment, waiting, names, holes)
        _remember(path, part, names)
    finally:
        files.close(handle)


def _strict_blocks(files: ArrowFiles, handle: int, directory: str, part: Slice, names: Names) -> Iterator[Block | Hole]:
    """The blocks of a slice, the hole before it, and before each gap block the hole that it marks.

    Raises: Damaged (a part cannot be read).
    """
    yield from _hole_before(part)
    scan, before_us = Scan(files, handle, part.start_lsn, offset=part.start, size=part.end), None
    for block in scan:
        if block.header.flags & IS_GAP:
            yield _of_gap(part.segment, block, before_us)
        before_us = _last_us(block, before_us)
        yield block
    if scan.position != part.end or scan.lsn != part.end_lsn or (part.is_sealed and not scan.sealed):
        raise _bad_block(scan, directory, part.segment, part.end_lsn)


def _sound_blocks(files: ArrowFiles, handle: int, directory: str, part: Slice, names: Names) -> Iterator[Block | Hole]:
    """The undamaged blocks of a slice, and each hole before the block that follows it."""
    yield from _hole_before(part)
    scan = SoundBlocks(files, handle, part.start_lsn, offset=part.start, size=part.end)
    before_us: int | None = None
    lsn, position = part.start_lsn, part.start
    for block in scan:
        if block.end_lsn > part.end_lsn:  # of another segment
            break
        lost = scan.take_lost()
        if lost:
            _take_all_names(files, directory, part.segment, names)
        for one in lost:
            after_us = _first_us(block)
            yield Hole(one.lsn, one.next_lsn - 1, part.segment, one.offset, one.octets, BAD_BLOCK, before_us, after_us)
        if block.header.flags & IS_GAP:
            yield _of_gap(part.segment, block, before_us)
        before_us = _last_us(block, before_us)
        lsn, position = block.end_lsn, block.offset + block.header.size
        yield block
    if lsn < part.end_lsn:
        octets = part.end - position
        why = BAD_BLOCK if octets else CUT
        yield Hole(lsn, part.end_lsn - 1, part.segment, position, octets or None, why, before_us)


def _hole_before(part: Slice) -> Iterator[Hole]:
    """What is lost before a slice: a strict reader may also go past deleted segments."""
    if part.lost_from:
        yield Hole(part.lost_from, part.segment - 1, part.segment, 0, None, part.lost_why)


def _of_gap(segment: int, block: Block, before_us: int | None) -> Hole:
    return Hole(block.header.base_lsn, block.end_lsn - 1, segment, block.offset, None, REPAIRED, before_us)


def _first_us(block: Block) -> int | None:
    """The time of a block's first record."""
    return time_of(block, 0) if block.header.record_count and not block.header.flags & IS_GAP else None


def _last_us(block: Block, otherwise: int | None) -> int | None:
    if not block.header.record_count or block.header.flags & IS_GAP:
        return otherwise
    return time_of(block, block.header.record_count - 1)


def _take_all_names(files: ArrowFiles, directory: str, segment: int, names: Names) -> None:
    """Names that a lost block may have defined, as far as another tells them: of this segment, or of the next, which
    defines all that are alive. No id ever has two names."""
    bases = segments_in(files, directory)
    for base in (segment, *[one for one in bases if one > segment][:1]):
        handle = files.open(path_of(directory, base))
        try:
            for block in SoundBlocks(files, handle, base):
                _take_names(base, block, names)
        finally:
            files.close(handle)


def _bad_block(scan: Scan, directory: str, segment: int, end_lsn: int) -> Damaged:
    """The fault, as `leveret journal verify` words it. `end_lsn`: behind the last record that may be lost."""
    later = scan.next_block()
    last = (end_lsn if later is None else later.header.base_lsn) - 1
    return Damaged(
        segment_name(segment),
        scan.position,
        f"a bad block; records {scan.lsn} to {last} are lost; `leveret journal verify {directory}` shows all,"
        " `leveret journal repair` saves what can be read",
    )


def _chunk(segment: int, blocks: list[Block], names: Names, holes: list[Hole]) -> Chunk:
    """Adds the names that the blocks define: no id ever has two."""
    kept: list[Block] = []
    starts: list[int] = []
    count = 0
    for block in blocks:
        _take_names(segment, block, names)
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


def _take_names(segment: int, block: Block, names: Names) -> None:
    kinds = bytes(block.data[HEADER_SIZE + 28 : block.heap_start : RECORD_SIZE])
    if DEFINE not in kinds:
        return
    try:
        for _, record in block.records():
            if record.kind == DEFINE:
                names.set(record.arg, decode_define(record.heap))
    except BadRecord as error:
        raise Damaged(segment_name(segment), block.offset, str(error)) from error


#: Path -> (octets, LSN, the names defined up to there) of segments that streams read piece by piece.
_known: dict[str, tuple[int, int, Names]] = {}
KNOWN_MAX = 8


def _names_before(files: ArrowFiles, handle: int, path: str, part: Slice, *, strict: bool) -> Names:
    """The names that a segment defines before a slice of it. Later names do no harm: no id ever has two."""
    offset, lsn, names = _known.get(path, (0, part.segment, Names()))
    if part.start > offset:
        scan = (Scan if strict else SoundBlocks)(files, handle, lsn, offset=offset, size=part.start)
        for block in scan:
            _take_names(part.segment, block, names)
        if isinstance(scan, Scan):
            if scan.position != part.start:
                raise _bad_block(scan, os.path.dirname(path), part.segment, part.start_lsn)
        elif scan.lost or scan.lsn != part.start_lsn:
            _take_all_names(files, os.path.dirname(path), part.segment, names)
    return names


def _remember(path: str, part: Slice, names: Names) -> None:
    _known.pop(path, None)
    if not part.is_sealed:
        _known[path] = (part.end, part.end_lsn, names)
    while len(_known) > KNOWN_MAX:
        del _known[next(iter(_known))]
