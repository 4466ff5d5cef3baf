"""Copies the whole blocks of a damaged journal to a new one."""

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..disk.directory import Directory, Format, read_format
from ..disk.files import REAL, Files, write_all
from ..disk.segment import SegmentSummary, footer_of, opened, path_of, segment_name, segments_in
from ..disk.segment_scan import SegmentScan
from ..format.block import IS_FOOTER, IS_HEAD, MODES, Block, encode_gap, read_block
from ..format.errors import BadRecord, Damaged, ForeignDirectory, NewerJournal
from ..format.heap import Head, decode_define, decode_head, encode_head
from ..format.names import Names
from ..format.record import DEFINE, DURABLE, HEAD, Record
from .recovery import first_content, recover_unchecked


@dataclass(slots=True)
class Repaired:
    """Result of `repair`."""

    records: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)  # records: (first LSN, LSN after the last)
    torn_bytes: int = 0


def repair(directory: str, out: str, files: Files = REAL) -> Repaired:
    """Copy every whole block to a new journal in `out`; gap blocks mark the records that are lost between them.

    LSNs stay. The broker can start from `out`: messages whose contents are lost are left out, and a message whose
    acknowledgement is lost is ready again. The old directory is not changed.
    Raises: ForeignDirectory (also when `out` is not empty), DirectoryLocked, OSError.
    """
    format_ = _format_of(files, directory)
    if files.names(out):
        raise ForeignDirectory(f"{out}: it is not empty")
    target = Directory.open(out, files, new_id=format_.journal_id)
    target.add_needs(format_.needs)
    try:
        return _Repair(files, directory, out, format_.journal_id).run()
    finally:
        target.close()


class _Repair:
    """A repair under way: the names so far, the last checkpoint, the result."""

    def __init__(self, files: Files, directory: str, out: str, journal_id: bytes) -> None:
        self.files = files
        self._directory = directory
        self.out = out
        self.journal_id = journal_id
        self.names = Names()
        self.checkpoint = (0, 0)
        self.result = Repaired()

    def run(self) -> Repaired:
        bases = self._segments_of_this_journal()
        for base_lsn in bases:
            self._collect_names(base_lsn)
        for base_lsn, following in zip(bases, [*bases[1:], None]):
            copy = _Copy(self, base_lsn)
            self._copy_segment(base_lsn, following, copy)
            copy.finish(following)
        if bases:
            self._add_gap_before(bases[0])
        self.files.sync_directory(self.out)
        return self.result

    def _segments_of_this_journal(self) -> list[int]:
        """Base LSNs of the segments of this journal that do not overlap the one before."""
        files, directory = self.files, self._directory
        found: list[int] = []
        end = 0
        for base_lsn in segments_in(files, directory):
            if base_lsn < end or _id_of_segment(files, directory, base_lsn) not in (self.journal_id, None):
                continue
            found.append(base_lsn)
            with opened(files, directory, base_lsn) as handle:
                footer = footer_of(files, handle, base_lsn)
            if footer is not None:
                end = footer.end_lsn
        return found

    def _collect_names(self, base_lsn: int) -> None:
        """Add the names that the segment's whole blocks define. They agree, as no id is assigned twice."""
        with opened(self.files, self._directory, base_lsn) as handle:
            scan: SegmentScan | None = SegmentScan(self.files, handle, base_lsn)
            while scan is not None:
                for block in scan:
                    for _, record in block.records():
                        if record.kind == DEFINE:
                            self.names.set(record.arg, decode_define(record.heap))
                later = scan.next_block() if scan.position < scan.size else None
                scan = (
                    None
                    if later is None
                    else SegmentScan(self.files, handle, later.header.base_lsn, offset=later.offset)
                )

    def _copy_segment(self, base_lsn: int, following: int | None, copy: "_Copy") -> None:
        """Copy the blocks of a segment, up to `following`: the base LSN of the next one; None: there is none."""
        with opened(self.files, self._directory, base_lsn) as handle:
            scan = SegmentScan(self.files, handle, base_lsn)
            while True:
                for block in scan:
                    if following is not None and block.end_lsn > following:
                        return
                    copy.add(block)
                try:
                    self.result.torn_bytes += scan.check_tail(segment_name(base_lsn), is_last=following is None)
                    return
                except Damaged:
                    later = scan.next_block()
                    if later is None or (following is not None and later.header.base_lsn >= following):
                        return
                    copy.add_gap(later.header.base_lsn)
                    scan = SegmentScan(self.files, handle, later.header.base_lsn, offset=later.offset)

    def _add_gap_before(self, base_lsn: int) -> None:
        """Add a segment with a gap if the checkpoint, or a content that is needed, begins before the first segment."""
        begin, _ = self.checkpoint
        first = base_lsn
        if begin < base_lsn and base_lsn != 1:
            first = max(begin - 1, 1)
            _Copy(self, first).finish(base_lsn)
        content = first_content(recover_unchecked(self.files, self.out))
        if content < first:  # one segment instead of two: each footer takes an LSN
            if first != base_lsn:
                self.files.unlink(path_of(self.out, first))
                self.result.lost.pop()
            _Copy(self, content - 1).finish(base_lsn)


class _Copy:
    """The copy of a segment."""

    def __init__(self, repair: _Repair, base_lsn: int) -> None:
        self._repair = repair
        self._files = repair.files
        self._handle = repair.files.open(path_of(repair.out, base_lsn), create=True)
        self._segment = SegmentSummary(base_lsn, *repair.checkpoint)

    def add(self, block: Block) -> None:
        """Append a whole block unchanged, unless it is a footer: `finish` makes a new one."""
        segment = self._segment
        if block.header.flags & IS_FOOTER:
            return
        if not segment.size and not block.header.flags & IS_HEAD:
            self.add_gap(block.end_lsn)  # the head, which had a wrong LSN, is lost: no other block may be the first
            return
        if not segment.size:
            for _, record in block.records():
                if record.kind == HEAD:
                    head = decode_head(record.heap)
                    segment.checkpoint_begin, segment.checkpoint_end = head.checkpoint_begin, head.checkpoint_end
        self._write(block.data)
        self._repair.result.records += block.header.record_count

    def add_gap(self, next_lsn: int) -> None:
        """Append a gap block for lost records up to `next_lsn`, with all known names, after a head if that was lost."""
        lsn = self._segment.end_lsn
        if next_lsn <= lsn:
            return
        self._repair.result.lost.append((lsn, next_lsn))
        names = [
            Record(DEFINE, msg_id=retired_lsn, arg=id_, flags=DURABLE, heap=heap)
            for id_, retired_lsn, heap in zip(*self._repair.names.columns())
        ]
        flags = 0
        if not self._segment.size:
            heap = encode_head(Head(self._repair.journal_id, *self._repair.checkpoint, "leveret repair"))
            names.insert(0, Record(HEAD, arg=self._repair.names.next_id, heap=heap))
            flags = IS_HEAD
        self._write(encode_gap(lsn, next_lsn, flags, names))

    def finish(self, next_base: int | None) -> None:
        """Add a gap up to the next segment, if there is one, and the footer; fsync."""
        segment = self._segment
        if next_base is not None:
            self.add_gap(next_base - 1)
        if segment.size:
            self._write(segment.footer(segment.ts_max, MODES.index("commit")))
        self._files.truncate(self._handle, segment.size)
        self._files.sync(self._handle)
        self._files.close(self._handle)
        self._repair.checkpoint = (segment.checkpoint_begin, segment.checkpoint_end)

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        segment = self._segment
        block = read_block(memoryview(data), 0, segment.size)
        assert block is not None
        write_all(self._files, self._handle, data, segment.size)
        segment.add(block)


def _format_of(files: Files, directory: str) -> Format:
    """The directory's format. If no segment has its id, the id is that of the first segment that has any.

    If all ids are lost, the id is new. Raises: NewerJournal; ForeignDirectory: no format, and no whole block.
    """
    ids = [id_ for base_lsn in segments_in(files, directory) if (id_ := _id_of_segment(files, directory, base_lsn))]
    try:
        format_ = read_format(directory, files)
    except NewerJournal:
        raise
    except ForeignDirectory:
        if ids:
            return Format(ids[0])
        if not any(_has_whole_block(files, directory, base_lsn) for base_lsn in segments_in(files, directory)):
            raise ForeignDirectory(f"{directory}: no journal here, and no segment with a whole block") from None
        return Format(os.urandom(16))  # the id is lost, but there are whole blocks
    return replace(format_, journal_id=ids[0]) if ids and format_.journal_id not in ids else format_


def _has_whole_block(files: Files, directory: str, base_lsn: int) -> bool:
    with opened(files, directory, base_lsn) as handle:
        return SegmentScan(files, handle, base_lsn).next_block() is not None


def _id_of_segment(files: Files, directory: str, base_lsn: int) -> bytes | None:
    """The id of a segment's journal; None: the head is lost."""
    with opened(files, directory, base_lsn) as handle, suppress(BadRecord):
        for block in SegmentScan(files, handle, base_lsn):
            for _, record in block.records():
                if record.kind == HEAD:
                    return decode_head(record.heap).journal_id
            break
    return None
