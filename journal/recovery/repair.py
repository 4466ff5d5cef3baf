"""Copies the whole blocks of a damaged journal to a new one."""

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..disk.directory import Directory, Format, read_format
from ..disk.files import REAL, Files, write_all
from ..disk.segment import Scan, Segment, footer_of, opened, path_of, segment_name, segments_in
from ..format.block import IS_FOOTER, IS_HEAD, MODES, Block, encode_gap, read_block
from ..format.errors import BadRecord, Damaged, ForeignDirectory, NewerJournal
from ..format.heap import Head, decode_define, decode_head, encode_head
from ..format.names import Names
from ..format.record import DEFINE, HEAD, Record
from .recovery import first_content, replayed


@dataclass(slots=True)
class Repaired:
    """Result of `repair`."""

    records: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)  # LSNs: first, behind the last
    torn_bytes: int = 0


def repair(directory: str, out: str, files: Files = REAL) -> Repaired:
    """Copy every whole block to a new journal in `out`; gap blocks mark the records that are lost between them.

    LSNs stay. The broker can start from `out`: messages whose contents are lost are left out, and a message whose
    acknowledgement is lost is ready again. The old directory is not changed.
    Raises: ForeignDirectory (also when `out` is not empty), DirectoryLocked, OSError.
    """
    format_ = _format_of(files, directory)
    journal_id = format_.journal_id
    if files.names(out):
        raise ForeignDirectory(f"{out}: it is not empty")
    target = Directory.open(out, files, new_id=journal_id)
    target.add_needs(format_.needs)
    result = Repaired()
    state = _Known(journal_id)
    try:
        bases = _own_segments(files, directory, journal_id)
        for base_lsn in bases:
            _collect_names(files, directory, base_lsn, state.names)
        for at, base_lsn in enumerate(bases):
            following = bases[at + 1] if at + 1 < len(bases) else None
            copy = _Copy(files, out, base_lsn, state, result)
            _repair_segment(files, directory, base_lsn, following, copy, result)
            copy.finish(following)
        if bases:
            _tell_what_is_before(files, out, bases[0], state, result)
        files.sync_directory(out)
    finally:
        target.close()
    return result


def _own_segments(files: Files, directory: str, journal_id: bytes) -> list[int]:
    """Base LSNs of the segments of this journal that do not overlap the one before."""
    found: list[int] = []
    end = 0
    for base_lsn in segments_in(files, directory):
        if base_lsn < end or _id_of_segment(files, directory, base_lsn) not in (journal_id, None):
            continue
        found.append(base_lsn)
        with opened(files, directory, base_lsn) as handle:
            footer = footer_of(files, handle, base_lsn)
        if footer is not None:
            end = footer.end_lsn
    return found


def _tell_what_is_before(files: Files, out: str, base_lsn: int, state: "_Known", result: Repaired) -> None:
    """Add a segment that marks a gap, if the checkpoint's begin or a needed content is before the first segment."""
    begin, _ = state.checkpoint
    first = base_lsn
    if begin < base_lsn and base_lsn != 1:
        first = max(begin - 1, 1)
        _Copy(files, out, first, state, result).finish(base_lsn)
    content = first_content(replayed(files, out))
    if content < first:  # one segment instead of two: each footer takes an LSN
        if first != base_lsn:
            files.unlink(path_of(out, first))
            result.lost.pop()
        _Copy(files, out, content - 1, state, result).finish(base_lsn)


def _format_of(files: Files, directory: str) -> Format:
    """The directory's format, if any segment agrees; else one with the id of the first segment that has one; else new.

    Raises: NewerJournal; ForeignDirectory: no segment has a whole block.
    """
    ids = [id_ for base_lsn in segments_in(files, directory) if (id_ := _id_of_segment(files, directory, base_lsn))]
    try:
        told = read_format(directory, files)
    except NewerJournal:
        raise
    except ForeignDirectory:
        if ids:
            return Format(ids[0])
        if not any(_has_whole_block(files, directory, base_lsn) for base_lsn in segments_in(files, directory)):
            raise ForeignDirectory(f"{directory}: no journal here, and no segment that tells of one") from None
        return Format(os.urandom(16))  # the id is lost, but there are whole blocks
    return replace(told, journal_id=ids[0]) if ids and told.journal_id not in ids else told


def _has_whole_block(files: Files, directory: str, base_lsn: int) -> bool:
    with opened(files, directory, base_lsn) as handle:
        return Scan(files, handle, base_lsn).next_block() is not None


def _id_of_segment(files: Files, directory: str, base_lsn: int) -> bytes | None:
    """The id of a segment's journal; None: the head is lost."""
    with opened(files, directory, base_lsn) as handle, suppress(BadRecord):
        for block in Scan(files, handle, base_lsn):
            for _, record in block.records():
                if record.kind == HEAD:
                    return decode_head(record.heap).journal_id
            break
    return None


def _collect_names(files: Files, directory: str, base_lsn: int, names: Names) -> None:
    """Add the names that any whole block of the segment defines; they agree, as no id is assigned twice."""
    with opened(files, directory, base_lsn) as handle:
        scan: Scan | None = Scan(files, handle, base_lsn)
        while scan is not None:
            for block in scan:
                for _, record in block.records():
                    if record.kind == DEFINE:
                        names.set(record.arg, decode_define(record.heap))
            later = scan.next_block() if scan.position < scan.size else None
            scan = Scan(files, handle, later.header.base_lsn, offset=later.offset) if later is not None else None


def _repair_segment(
    files: Files, directory: str, base_lsn: int, following: int | None, copy: "_Copy", result: Repaired
) -> None:
    """Copy the blocks of a segment. `following`: base LSN of the next one, from which on no block is taken."""
    with opened(files, directory, base_lsn) as handle:
        scan = Scan(files, handle, base_lsn)
        while True:
            for block in scan:
                if following is not None and block.end_lsn > following:
                    return
                copy.add(block)
            try:
                result.torn_bytes += scan.check_tail(segment_name(base_lsn), is_last=following is None)
                return
            except Damaged:
                later = scan.next_block()
                if later is None or (following is not None and later.header.base_lsn >= following):
                    return
                copy.gap(later.header.base_lsn)
                scan = Scan(files, handle, later.header.base_lsn, offset=later.offset)


class _Known:
    """State that is carried from segment to segment: journal id, names, last checkpoint."""

    def __init__(self, journal_id: bytes) -> None:
        self.journal_id = journal_id
        self.names = Names()
        self.checkpoint = (0, 0)


class _Copy:
    """The copy of a segment."""

    def __init__(self, files: Files, out: str, base_lsn: int, known: _Known, result: Repaired) -> None:
        self._files = files
        self._handle = files.open(path_of(out, base_lsn), create=True)
        self._segment = Segment(base_lsn, *known.checkpoint)
        self._known = known
        self._result = result

    def add(self, block: Block) -> None:
        """Append a whole block unchanged, unless it is a footer: `finish` makes a new one."""
        segment = self._segment
        if block.header.flags & IS_FOOTER:
            return
        if not segment.size and not block.header.flags & IS_HEAD:
            self.gap(block.end_lsn)  # the head was the block before, under another LSN: this cannot be the first block
            return
        if not segment.size:
            for _, record in block.records():
                if record.kind == HEAD:
                    head = decode_head(record.heap)
                    segment.checkpoint_begin, segment.checkpoint_end = head.checkpoint_begin, head.checkpoint_end
        self._write(block.data)
        self._result.records += block.header.record_count

    def gap(self, next_lsn: int) -> None:
        """Append a gap block for lost records up to `next_lsn`, with all known names, after a head if that was lost."""
        lsn = self._segment.end_lsn
        if next_lsn <= lsn:
            return
        self._result.lost.append((lsn, next_lsn))
        names = list(self._known.names.records())
        flags = 0
        if not self._segment.size:
            heap = encode_head(Head(self._known.journal_id, *self._known.checkpoint, "leveret repair"))
            names.insert(0, Record(HEAD, arg=self._known.names.next_id, heap=heap))
            flags = IS_HEAD
        self._write(encode_gap(lsn, next_lsn, flags, names))

    def finish(self, next_base: int | None) -> None:
        """Add a gap up to the next segment, if there is one, and the footer; fsync."""
        segment = self._segment
        if next_base is not None:
            self.gap(next_base - 1)
        if segment.size:
            self._write(segment.footer(segment.ts_max, MODES.index("commit")))
        self._files.truncate(self._handle, segment.size)
        self._files.sync(self._handle)
        self._files.close(self._handle)
        self._known.checkpoint = (segment.checkpoint_begin, segment.checkpoint_end)

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        segment = self._segment
        block = read_block(memoryview(data), 0, segment.size)
        assert block is not None
        write_all(self._files, self._handle, data, segment.size)
        segment.note(block)
