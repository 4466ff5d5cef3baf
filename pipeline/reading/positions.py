"""Positions of a reader in a journal, and the slices between two positions: one for each segment.

A position is a block boundary: a segment and an offset in its file, with the LSN there. It stays valid when the broker
is killed and restarted, because the broker never overwrites durable records. Of the open segment only the part that is
surely durable is read. A node of a cluster may cut the end of its journal, so only records that all nodes have are read
from it (docs/journal-format.md, "What a reader may trust").
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ...journal import BadRecord, Damaged
from ...journal.disk.directory import find_journal, read_format
from ...journal.disk.readers import DroppedReader, dropped_readers, reader_offsets
from ...journal.disk.segment import SegmentSummary, path_of, read_footer, segment_name, segments_in
from ...journal.disk.segment_scan import SegmentScan
from ...journal.format.block import IS_GAP
from ...journal.format.errors import JournalError
from .arrow_files import locate
from .holes import DELETED, NO_SEGMENT, SoundBlocks, time_of

#: The most octets of a slice for one task. Segments have 64 MiB by default.
SLICE_MAX = 128 * 1024 * 1024


class Position(NamedTuple):
    """A boundary between two blocks. `journal`: the journal's id in hex. `lsn`: of the next record."""

    journal: str
    segment: int
    offset: int
    lsn: int

    @property
    def place(self) -> tuple[int, int]:
        """(segment, offset), by which positions in one journal are compared."""
        return self.segment, self.offset

    def as_dict(self) -> dict[str, Any]:
        """The position as Spark's checkpoints have it."""
        return {"journal": self.journal, "segment": self.segment, "position": self.offset, "lsn": self.lsn}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Position":
        """The inverse of `as_dict`. Raises: JournalError."""
        try:
            return cls(str(value["journal"]), int(value["segment"]), int(value["position"]), int(value["lsn"]))
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(f"{json.dumps(value)} is not a position in a journal") from error


class Slice(NamedTuple):
    """Consecutive blocks of one segment. `is_sealed`: the slice ends with the segment's footer.

    lost_from: the records from this LSN up to the segment's first one are lost; 0: none are. lost_why: the reason.
    """

    segment: int
    start: int
    start_lsn: int
    end: int
    end_lsn: int
    is_sealed: bool
    lost_from: int = 0
    lost_why: str = ""


class JournalGone(JournalError):
    """Records that a reader still needs have been deleted."""


class JournalPlan:
    """Finds the readable part of a journal. It locks nothing, and caches footers and how far one may read.

    strict: damage is an error; otherwise it is a hole (holes.py). past_deleted: records that were deleted before they
    were read are a hole; otherwise an error.
    """

    def __init__(self, where: str, *, strict: bool = True, past_deleted: bool = False) -> None:
        self._is_strict, self._goes_past_deleted = strict, past_deleted
        self.where = where
        self.files, path = locate(where)
        self.directory = find_journal(path, self.files)
        format_ = read_format(self.directory, self.files)
        self.journal_id = format_.journal_id.hex()
        self._is_cluster = format_.is_cluster
        self._footers: dict[int, SegmentSummary] = {}
        self._trusted = 0, 0, 0  # of the last segment: base LSN, end offset and end LSN of what may be read
        self._agreed_lsn = 0  # in a cluster: the highest agreed LSN in a block

    # -- positions ------------------------------------------------------------------------------------------------

    def first(self) -> Position:
        """The position of the oldest record that is not deleted."""
        bases = segments_in(self.files, self.directory)
        return self._at(bases[0], 0, bases[0]) if bases else self._at(0, 0, 0)

    def end(self) -> Position:
        """The position behind the last durable block. Raises: Damaged, OSError."""
        bases = segments_in(self.files, self.directory)
        if not bases:
            return self._at(0, 0, 0)
        if self._is_cluster:
            return self._agreed_end(bases)
        footer = self.footer(bases[-1], is_last=True)
        if footer is not None:
            return self._at(bases[-1], footer.size, footer.end_lsn)
        return self._at(bases[-1], *self._durable_end(bases[-1]))

    def check(self, place: Position, owner: str = "this reader") -> None:
        """Check that a position is one of this journal. `owner`: of the position, for the text of the error.

        Raises: JournalError (it is of another journal, or behind the last block of this journal), OSError.
        """
        if place.journal != self.journal_id:
            raise JournalError(
                f"{self.directory}: this is journal {self.journal_id}, not {place.journal}, which {owner} has read"
            )
        bases = segments_in(self.files, self.directory)
        last = bases[-1] if bases else 0
        if place.segment > last or (bases and place.segment == last and place.offset > self._written_end(last)):
            raise JournalError(
                f"{self.directory}: the journal ends before record {place.lsn}, up to which {owner} has read"
            )

    def check_available(self, place: Position) -> None:
        """Check that the record at a position is not deleted. Raises: JournalGone, Damaged, OSError."""
        next(self._parts(place, self.end()), None)

    def slices(
        self, start: Position, end: Position, wanted: Callable[[SegmentSummary], bool] | None = None
    ) -> list[Slice]:
        """The slices from `start` to `end`, one for each segment. `wanted`: sealed segments for which it returns False
        are skipped.

        Raises: JournalGone, Damaged, OSError.
        """
        return [
            part
            for part in self._parts(start, end)
            if wanted is None
            or not (part.is_sealed or part.segment in self._footers)
            or wanted(self._footers[part.segment])
        ]

    def whole_blocks(self, first_lsn: int, end_lsn: int) -> list[Slice]:
        """The undamaged blocks whose records all have first_lsn <= LSN < end_lsn, as slices. Damage is skipped.

        O(segments with such records). Raises: Damaged, OSError.
        """
        end_lsn = min(end_lsn, self.end().lsn)
        bases = segments_in(self.files, self.directory)
        found: list[Slice] = []
        for base, following in zip(bases, [*bases[1:], end_lsn]):
            if base >= end_lsn or following <= first_lsn:
                continue
            with self._open(base) as handle:
                for block in SoundBlocks(self.files, handle, base):
                    header = block.header
                    if header.base_lsn < first_lsn or block.end_lsn > end_lsn or header.flags & IS_GAP:
                        continue
                    at = Slice(base, block.offset, header.base_lsn, block.offset + header.size, block.end_lsn, False)
                    last = found[-1] if found else None
                    if last and (last.segment, last.end, last.end_lsn) == (base, at.start, at.start_lsn):
                        at = last._replace(end=at.end, end_lsn=at.end_lsn)
                        found.pop()
                    found.append(at)
        return [part for part in found if part.end_lsn > part.start_lsn]

    def advance(self, start: Position, end: Position, octets: int, records: int | None = None) -> Position:
        """The last position up to `end` at most `octets` and `records` after `start`, at least one block after it."""
        room, last_lsn = octets, end.lsn if records is None else start.lsn + records
        at = start
        for part in self._parts(start, end):
            size = part.end - part.start
            if size <= room and part.end_lsn <= last_lsn:
                room -= size
                at = self._behind(part)
                continue
            cut = self._cut(part, part.start + room, last_lsn)
            if cut is None:
                if at != start:
                    return at
                cut = self._next_cut(part)
            return self._at(part.segment, *cut) if cut[0] < part.end else self._behind(part)
        return at if at != start else end

    def split(self, parts: Sequence[Slice], count: int) -> list[Slice]:
        """Split slices into `count` or more, fewer if blocks are fewer. No slice is much larger than SLICE_MAX."""
        octets = max(1, min(SLICE_MAX, sum(part.end - part.start for part in parts) // count))
        found: list[Slice] = []
        for part in parts:
            while part.end - part.start > octets:
                offset, lsn = self._cut(part, part.start + octets, part.end_lsn) or self._next_cut(part)
                if offset >= part.end:
                    break
                found.append(part._replace(end=offset, end_lsn=lsn, is_sealed=False))
                part = part._replace(start=offset, start_lsn=lsn, lost_from=0, lost_why="")
            found.append(part)
        return found

    def position_at(self, moment_us: int) -> Position:
        """The position before the first block with a record of this time or later; the end if there is none.

        Raises: Damaged, OSError.
        """
        end = self.end()
        for part in self._parts(self.first(), end):
            footer = self._footers.get(part.segment)
            if footer is not None and footer.ts_max < moment_us:
                continue
            with self._open(part.segment) as handle:
                for block in self._scan(handle, part.start_lsn, part.start, part.end):
                    count = 0 if block.header.flags & IS_GAP else block.header.record_count
                    if any(time_of(block, index) >= moment_us for index in {0, count - 1} if count):
                        return self._at(part.segment, block.offset, block.header.base_lsn)
        return end

    def position_before(self, lsn: int) -> Position:
        """The position at which a reader that registered `lsn` continues: behind the last block with only lower LSNs.

        Raises: Damaged, OSError.
        """
        bases = segments_in(self.files, self.directory)
        at = bisect_right(bases, lsn) - 1
        if at < 0:
            return self._at(lsn, 0, lsn)  # the segment is deleted: reading from this position will be an error
        start = self._at(bases[at], 0, bases[at])
        part = next(self._parts(start, self.end()), None)
        cut = None if part is None else self._cut(part, part.end, lsn)
        return start if part is None or cut is None else self._at(part.segment, *cut)

    def _at(self, segment: int, offset: int, lsn: int) -> Position:
        return Position(self.journal_id, segment, offset, lsn)

    def _behind(self, part: Slice) -> Position:
        return self._at(part.segment, part.end, part.end_lsn)

    def readers(self) -> dict[str, int]:
        """Registered readers -> the first LSN that each needs. Raises: JournalError."""
        return reader_offsets(self.directory, self.files)

    def dropped_readers(self) -> dict[str, DroppedReader]:
        """The readers that the broker has dropped. Raises: OSError."""
        return dropped_readers(self.directory, self.files)

    # -- segments -----------------------------------------------------------------------------------------------------

    def _parts(self, start: Position, end: Position) -> Iterator[Slice]:
        for position in (start, end):
            if position.journal != self.journal_id:
                raise JournalError(f"{self.directory}: this is journal {self.journal_id}, not {position.journal}")
        if start.place >= end.place:
            return
        bases = segments_in(self.files, self.directory)
        if start.segment == 0 and start.lsn == 0 and bases:
            start = self._at(bases[0], 0, bases[0])  # the journal was empty when the position was taken
        chosen = [base for base in bases if start.segment <= base <= end.segment]
        lost_from, lost_why = 0, DELETED
        # The segment of `start` may be deleted if only its footer, which is one record, was unread.
        if not chosen or (chosen[0] != start.segment and chosen[0] > start.lsn + 1):
            if not (chosen and self._goes_past_deleted):
                raise self._gone_error(start, bases)
            lost_from = start.lsn
        if chosen[-1] != end.segment:
            raise JournalGone(f"{self.directory}: there is no segment {segment_name(end.segment)}")
        expected = chosen[0]
        for base, following in zip(chosen, [*chosen[1:], 0]):
            if base != expected:
                if self._is_strict:
                    raise Damaged(segment_name(base), 0, f"records {expected} to {base - 1} before it are missing")
                lost_from, lost_why = expected, NO_SEGMENT
            first = (start.offset, start.lsn) if base == start.segment else (0, base)
            if base == end.segment:
                footer = self._footers.get(base)
                is_whole = footer is not None and end.offset == footer.size
                if first[0] < end.offset:
                    yield Slice(base, *first, end.offset, end.lsn, is_whole, lost_from, lost_why)
                return
            sealed = self.footer(base, is_last=False)
            if sealed is None:
                behind = (self._size(base), following - 1)  # the last record of the segment was its footer
            else:
                behind = (sealed.size, sealed.end_lsn)
            if first[0] < behind[0]:
                yield Slice(base, *first, *behind, sealed is not None, lost_from, lost_why)
                lost_from = 0
            expected = following if sealed is None else sealed.end_lsn

    def _gone_error(self, start: Position, bases: list[int]) -> JournalGone:
        there = f"the first one is {bases[0]}" if bases else "none is left"
        dropped = [
            f"; the broker has dropped reader {name}, for which it had kept {one.why}"
            for name, one in self.dropped_readers().items()
            if one.lsn == start.lsn
        ]
        return JournalGone(
            f"{self.directory}: record {start.lsn} is deleted ({there}); a reader that is registered keeps its records"
            f"{''.join(dropped[:1])}; `ingest --past-deleted`, or `failOnDataLoss=false` of a"
            " query, skips them"
        )

    def _size(self, base: int) -> int:
        with self._open(base) as handle:
            return self.files.size(handle)

    def footer(self, base: int, *, is_last: bool) -> SegmentSummary | None:
        """The footer of a segment; None: the segment is open, or (if not strict) the footer is lost.

        Raises: Damaged, OSError.
        """
        found = self._footers.get(base)
        if found is None:
            with self._open(base) as handle:
                try:
                    found = read_footer(self.files, handle)
                except BadRecord as error:
                    raise Damaged(segment_name(base), 0, str(error)) from error
            if found is not None and found.base_lsn != base:
                found = None
            if found is None and not is_last and self._is_strict:
                raise Damaged(segment_name(base), 0, "no footer at its end: the segment is cut, or its end is damaged")
            if found is not None:
                self._footers[base] = found
        return found

    def _agreed_end(self, bases: list[int]) -> Position:
        """The position behind the last record that all nodes of the cluster have. It may be in a sealed segment.

        The node may cut the blocks behind it, also empty ones with its LSN, and write others: they are not
        cached.
        """
        newest: list[tuple[int, int]] = []
        base = 0
        for base in reversed(bases):
            newest, agreed_lsn = self._blocks_behind(base)
            if agreed_lsn:
                self._agreed_lsn = max(self._agreed_lsn, agreed_lsn)
                break  # otherwise the segment has no block yet
        at = bisect_left(bases, self._agreed_lsn) - 1
        if at < 0:
            return self._at(bases[0], 0, bases[0])
        last = bases[at]
        blocks = newest if last == base else self._blocks_behind(last)[0]
        offset, lsn = self._trusted[1:] if self._trusted[0] == last else (0, last)
        for end, end_lsn in blocks:
            if end_lsn > self._agreed_lsn:
                break
            if end_lsn > lsn:
                offset, lsn = end, end_lsn
        self._trusted = (last, offset, lsn)
        return self._at(last, offset, lsn)

    def _blocks_behind(self, base: int) -> tuple[list[tuple[int, int]], int]:
        """The blocks of a segment behind its trusted part, as (end offset, end LSN); and their highest agreed LSN."""
        offset, lsn = self._trusted[1:] if self._trusted[0] == base else (0, base)
        with self._open(base) as handle:
            scan = self._scan(handle, lsn, offset)
            blocks = [(block.offset + block.header.size, block.end_lsn) for block in scan]
            return blocks, max(scan.durable_lsn, self._agreed_lsn if offset else 0)

    def _durable_end(self, base: int) -> tuple[int, int]:
        """End offset and end LSN of the last durable block of the open segment. Reads only what is new since the last
        call.
        """
        offset, lsn = self._trusted[1:] if self._trusted[0] == base else (0, base)
        bad_before = -1
        while True:
            with self._open(base) as handle:
                scan = self._scan(handle, lsn, offset)
                read = [(block.offset + block.header.size, block.end_lsn) for block in scan]
                try:
                    if isinstance(scan, SegmentScan):
                        scan.check_tail(segment_name(base), is_last=True)
                except Damaged:
                    # The broker may have completed the block meanwhile: read it again, once.
                    if scan.position == bad_before:
                        raise
                    bad_before = scan.position
                    continue
            trusted = [one for one in read if scan.sealed or one[1] <= scan.durable_lsn]
            if trusted:
                offset, lsn = trusted[-1]
            self._trusted = (base, offset, lsn)
            return offset, lsn

    def _written_end(self, base: int) -> int:
        """The end offset of the last block of the newest segment, durable or not.

        A position may be there: in a cluster, the block that called the records before it agreed can be cut off.
        """
        offset, lsn = self._trusted[1:] if self._trusted[0] == base else (0, base)
        with self._open(base) as handle:
            blocks = SoundBlocks(self.files, handle, lsn, offset=offset)
            for _ in blocks:
                pass
            return blocks.position

    def _scan(self, handle: int, lsn: int, offset: int, size: int | None = None) -> SegmentScan | SoundBlocks:
        return (SegmentScan if self._is_strict else SoundBlocks)(self.files, handle, lsn, offset=offset, size=size)

    @contextmanager
    def _open(self, base: int) -> Iterator[int]:
        try:
            handle = self.files.open(path_of(self.directory, base))
        except FileNotFoundError as error:
            raise JournalGone(f"{self.directory}: segment {segment_name(base)} is no longer there") from error
        try:
            yield handle
        finally:
            self.files.close(handle)

    # -- cutting ------------------------------------------------------------------------------------------------------

    def _cut(self, part: Slice, offset: int, lsn: int) -> tuple[int, int] | None:
        """Offset and LSN of the last block boundary in a slice up to `offset` and `lsn`; None: there is none."""
        begin = part
        footer = self._footers.get(part.segment)
        if footer is not None:
            at = min(bisect_right(footer.index_offsets, offset), bisect_right(footer.index_lsns, lsn)) - 1
            if at >= 0 and footer.index_offsets[at] > part.start:
                begin = part._replace(start=footer.index_offsets[at], start_lsn=footer.index_lsns[at])
        found = None if begin is part else (begin.start, begin.start_lsn)
        for behind, end_lsn in self._boundaries(begin):
            if behind > offset or end_lsn > lsn:
                break
            found = behind, end_lsn
        return found

    def _next_cut(self, part: Slice) -> tuple[int, int]:
        """Offset and LSN of the first block boundary behind the start of a slice."""
        return next(self._boundaries(part), (part.end, part.end_lsn))

    def _boundaries(self, part: Slice) -> Iterator[tuple[int, int]]:
        with self._open(part.segment) as handle:
            for block in self._scan(handle, part.start_lsn, part.start, part.end):
                yield block.offset + block.header.size, block.end_lsn
