"""Looking at a journal without believing it (verify), and saving what can be saved (repair)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from .block import IS_FOOTER, IS_HEAD, MODES, Block, encode_gap, read_block
from .directory import Directory, read_identity
from .errors import BadRecord, Damaged, ForeignDirectory
from .files import REAL, Files, write_all
from .heap import (
    Head,
    decode_bound,
    decode_content,
    decode_declared,
    decode_define,
    decode_head,
    decode_link,
    decode_runs,
    decode_text,
    encode_head,
)
from .names import Names
from .record import (
    BOUND,
    CHECKPOINT,
    DECLARED,
    DEFINE,
    ENQUEUED,
    FOOTER,
    HEAD,
    KIND_NAMES,
    MOVED,
    PUBLISHED,
    RANGE,
    SNAPSHOT,
    TRANSACTION,
    UNBOUND,
    UNDECLARED,
    Record,
)
from .recovered import RecoveredQueue
from .segment import Scan, Segment, path_of, segment_name, segments_in
from .snapshot import load_part


@dataclass(slots=True, frozen=True)
class Fault:
    """Damage: where, what, and what it costs."""

    segment: str
    offset: int
    what: str
    lost: str

    def __str__(self) -> str:
        return f"segment {self.segment}, offset {self.offset}: {self.what}; lost: {self.lost}"


@dataclass(slots=True)
class Report:
    """What `verify` found."""

    segments: int = 0
    blocks: int = 0
    records: int = 0
    first_lsn: int = 0
    next_lsn: int = 0
    torn_segment: str = ""
    torn_bytes: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)  # told by an earlier repair
    faults: list[Fault] = field(default_factory=list)


def verify(directory: str, files: Files = REAL) -> Report:
    """Check every octet of every segment: CRCs, LSNs without a gap, records, heap entries, names, footers.

    Raises: ForeignDirectory (no journal there), OSError.
    """
    journal_id = read_identity(directory, files)
    report = Report()
    bases = segments_in(files, directory)
    expected: int | None = None
    for at, base_lsn in enumerate(bases):
        name = segment_name(base_lsn)
        if expected is not None and base_lsn != expected:
            lost = f"records {expected} to {base_lsn - 1}"
            report.faults.append(Fault(name, 0, "it does not follow the segment before it", lost))
        expected = _verify_segment(files, directory, base_lsn, at == len(bases) - 1, journal_id, report)
    report.segments = len(bases)
    report.first_lsn = bases[0] if bases else 0
    report.next_lsn = expected or 0
    return report


def _verify_segment(
    files: Files, directory: str, base_lsn: int, is_last: bool, journal_id: bytes, report: Report
) -> int:
    name = segment_name(base_lsn)
    handle = files.open(path_of(directory, base_lsn))
    try:
        scan = Scan(files, handle, base_lsn)
        seen, names = Segment(base_lsn), Names()
        is_whole = True  # else what follows a bad block would be called bad as well
        while True:
            for block in scan:
                report.blocks += 1
                report.records += block.header.record_count
                for fault in _faults_of(block, seen, names, journal_id) if is_whole else ():
                    report.faults.append(Fault(name, block.offset, fault, "what these records say"))
                seen.note(block)
            report.gaps += scan.gaps
            try:
                torn = scan.check_tail(name, is_last=is_last)
            except Damaged as error:
                is_whole = False
                later = scan.next_block()
                lost = f"records from {scan.lsn} on" if later is None else _span(scan.lsn, later.header.base_lsn)
                if scan.sealed:
                    lost = "no record"
                report.faults.append(Fault(name, error.offset, error.why.split(";")[0], lost))
                if later is None:
                    return scan.lsn
                scan = Scan(files, handle, later.header.base_lsn, offset=later.offset)
                continue
            if torn:
                report.torn_segment, report.torn_bytes = name, torn
            return scan.lsn
    finally:
        files.close(handle)


def _span(first: int, behind: int) -> str:
    return "no record" if first == behind else f"records {first} to {behind - 1}"


def _faults_of(block: Block, seen: Segment, names: Names, journal_id: bytes) -> Iterator[str]:
    """What is wrong with a block whose CRC is right: a fault of the program that wrote, or a forgery."""
    header = block.header
    if bool(header.flags & IS_HEAD) != (seen.size == 0):
        yield "a segment's head block is missing or not the first"
    if header.flags & IS_FOOTER:
        try:
            told = Segment.from_footer(block)
        except BadRecord as error:
            yield str(error)
            return
        mine = {**seen.kinds, FOOTER: 1}
        if told.kinds != mine or told.base_lsn != seen.base_lsn or told.end_lsn != block.end_lsn:
            yield "the footer does not tell what the segment holds"
        return
    try:
        for lsn, record in block.records():
            _check_record(lsn, record, names if not seen.has_gaps else None, journal_id)
    except (BadRecord, ValueError) as error:
        yield str(error)


def _check_record(lsn: int, record: Record, names: Names | None, journal_id: bytes) -> None:
    """`names`: None where a repair lost some. Raises: BadRecord."""
    kind, heap = record.kind, record.heap
    if kind in (PUBLISHED, MOVED):
        for queue_id in decode_content(heap).queue_ids:
            _check_name(lsn, queue_id, names)
    elif kind == DEFINE:
        define = decode_define(heap)
        if names is not None:
            names.set(record.arg, define)
    elif kind in (DECLARED, UNDECLARED):
        decode_declared(heap)
    elif kind in (BOUND, UNBOUND):
        _check_name(lsn, decode_bound(heap).target_id, names)
    elif kind == ENQUEUED:
        if not record.link:
            decode_link(heap)
    elif kind == HEAD:
        if decode_head(heap).journal_id != journal_id:
            raise BadRecord("the segment is another journal's")
    elif kind == SNAPSHOT:
        load_part(heap, RecoveredQueue())
    elif kind not in KIND_NAMES:
        return  # of a later version
    elif record.flags & RANGE:
        if heap:
            decode_runs(heap)
    elif kind not in (CHECKPOINT, TRANSACTION):
        decode_text(heap)
    for id_ in (record.queue_id, record.address_id):
        _check_name(lsn, id_, names)


def _check_name(lsn: int, id_: int, names: Names | None) -> None:
    if id_ and names is not None and id_ not in names:
        raise BadRecord(f"record {lsn} speaks of id {id_}, which its segment does not define")


# -- repair ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Repaired:
    """What `repair` did."""

    records: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)  # LSNs: first, behind the last
    torn_bytes: int = 0


def repair(directory: str, out: str, files: Files = REAL) -> Repaired:
    """Copy every whole block to a new journal in `out`; what is lost between them is told by gap blocks.

    LSNs stay. The broker starts from `out`: messages whose contents are lost are left out, and a message whose
    acknowledgement is lost is there again. The old directory is not changed.
    Raises: ForeignDirectory (also when `out` is not empty), DirectoryLocked, OSError.
    """
    try:
        journal_id = read_identity(directory, files)
    except ForeignDirectory:
        journal_id = _id_of_segments(files, directory)
    if files.names(out):
        raise ForeignDirectory(f"{out}: it is not empty")
    target = Directory.open(out, files, new_id=journal_id)
    result = Repaired()
    state = _Known(journal_id)
    try:
        bases = segments_in(files, directory)
        for base_lsn in bases:
            _collect_names(files, directory, base_lsn, state.names)
        for at, base_lsn in enumerate(bases):
            following = bases[at + 1] if at + 1 < len(bases) else None
            copy = _Copy(files, out, base_lsn, state, result)
            _repair_segment(files, directory, base_lsn, following is None, copy, result)
            copy.finish(following)
        begin, _ = state.checkpoint
        if bases and begin and begin < bases[0]:  # where recovery would start is gone: a segment that says so
            copy = _Copy(files, out, begin - 1, state, result)
            copy.finish(bases[0])
        files.sync_directory(out)
    finally:
        target.close()
    return result


def _id_of_segments(files: Files, directory: str) -> bytes:
    """The journal's id where only segments are left. Raises: ForeignDirectory."""
    for base_lsn in segments_in(files, directory):
        handle = files.open(path_of(directory, base_lsn))
        try:
            for block in Scan(files, handle, base_lsn):
                for _, record in block.records():
                    if record.kind == HEAD:
                        return decode_head(record.heap).journal_id
                break
        except BadRecord:
            pass
        finally:
            files.close(handle)
    raise ForeignDirectory(f"{directory}: no journal here, and no segment that tells of one")


def _collect_names(files: Files, directory: str, base_lsn: int, names: Names) -> None:
    """Every name that any whole block of the segment gives: ids are never given twice."""
    handle = files.open(path_of(directory, base_lsn))
    try:
        scan: Scan | None = Scan(files, handle, base_lsn)
        while scan is not None:
            for block in scan:
                for _, record in block.records():
                    if record.kind == DEFINE:
                        names.set(record.arg, decode_define(record.heap))
            later = scan.next_block() if scan.position < scan.size else None
            scan = Scan(files, handle, later.header.base_lsn, offset=later.offset) if later is not None else None
    finally:
        files.close(handle)


def _repair_segment(
    files: Files, directory: str, base_lsn: int, is_last: bool, copy: "_Copy", result: Repaired
) -> None:
    handle = files.open(path_of(directory, base_lsn))
    try:
        scan = Scan(files, handle, base_lsn)
        while True:
            for block in scan:
                copy.add(block)
            try:
                result.torn_bytes += scan.check_tail(segment_name(base_lsn), is_last=is_last)
                return
            except Damaged:
                later = scan.next_block()
                if later is None:
                    return
                copy.gap(later.header.base_lsn)
                scan = Scan(files, handle, later.header.base_lsn, offset=later.offset)
    finally:
        files.close(handle)


class _Known:
    """What goes from segment to segment."""

    def __init__(self, journal_id: bytes) -> None:
        self.journal_id = journal_id
        self.names = Names()
        self.checkpoint = (0, 0)


class _Copy:
    """A segment that is written anew."""

    def __init__(self, files: Files, out: str, base_lsn: int, known: _Known, result: Repaired) -> None:
        self._files = files
        self._handle = files.open(path_of(out, base_lsn), create=True)
        self._segment = Segment(base_lsn, *known.checkpoint)
        self._known = known
        self._result = result

    def add(self, block: Block) -> None:
        """A whole block, as it is; only the footer is made new."""
        if block.header.flags & IS_FOOTER:
            return
        segment = self._segment
        if not segment.size:
            for _, record in block.records():
                if record.kind == HEAD:
                    head = decode_head(record.heap)
                    segment.checkpoint_begin, segment.checkpoint_end = head.checkpoint_begin, head.checkpoint_end
        self._write(block.data)
        self._result.records += block.header.record_count

    def gap(self, next_lsn: int) -> None:
        """What is up to there is lost. The gap block has the names that are known, after a head if that was lost."""
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
        """Gap up to the next segment, if any is there; footer; fsync."""
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
