"""Checks every octet of a journal."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..disk.directory import read_format
from ..disk.files import REAL, Files
from ..disk.segment import SegmentSummary, opened, segment_name, segments_in
from ..disk.segment_scan import SegmentScan
from ..format.block import IS_FOOTER, IS_HEAD, Block
from ..format.errors import BadRecord, Damaged
from ..format.heap import (
    decode_bound,
    decode_content,
    decode_declared,
    decode_define,
    decode_head,
    decode_ids_seen,
    decode_link,
    decode_runs,
    decode_text,
)
from ..format.names import Names
from ..format.record import (
    BOUND,
    CHECKPOINT,
    DECLARED,
    DEFINE,
    ENQUEUED,
    FOOTER,
    HEAD,
    IDS_SEEN,
    KIND_NAMES,
    MOVED,
    PUBLISHED,
    RANGE,
    SNAPSHOT,
    UNBOUND,
    UNDECLARED,
    Record,
)
from .recovered import RecoveredQueue
from .recovery import recover
from .snapshot import load_part


@dataclass(slots=True, frozen=True)
class Fault:
    """Damage at one place of a segment. `what`: what is wrong; `lost`: the records that it costs, in words."""

    segment: str
    offset: int
    what: str
    lost: str

    def __str__(self) -> str:
        return f"segment {self.segment}, offset {self.offset}: {self.what}; lost: {self.lost}"


@dataclass(slots=True)
class Report:
    """Result of `verify`."""

    segments: int = 0
    blocks: int = 0
    records: int = 0
    first_lsn: int = 0
    next_lsn: int = 0
    torn_segment: str = ""
    torn_bytes: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)  # lost before a repair: (first LSN, LSN after the last)
    faults: list[Fault] = field(default_factory=list)


def verify(directory: str, files: Files = REAL) -> Report:
    """Check every octet of every segment: CRCs, LSNs without a gap, records, heap entries, names, footers.

    Also runs recovery: if the broker would refuse to start, that is a fault. It may start in spite of other faults, in
    records that it need not read.
    Raises: ForeignDirectory (no journal there), OSError.
    """
    check = _Check(directory, files)
    check.run()
    return check.report


class _Check:
    """The check of one journal. Its results are in `report`."""

    def __init__(self, directory: str, files: Files) -> None:
        self._directory = directory
        self._files = files
        self._journal_id = read_format(directory, files).journal_id
        self.report = Report()

    def run(self) -> None:
        report, bases = self.report, segments_in(self._files, self._directory)
        expected: int | None = None
        for at, base_lsn in enumerate(bases):
            if expected is not None and base_lsn != expected:
                lost = f"records {expected} to {base_lsn - 1}"
                report.faults.append(Fault(segment_name(base_lsn), 0, "it does not follow the segment before it", lost))
            expected = self._check_segment(base_lsn, is_last=at == len(bases) - 1)
        self._add_fault_of_recovery()
        report.segments = len(bases)
        report.first_lsn = bases[0] if bases else 0
        report.next_lsn = expected or 0

    def _add_fault_of_recovery(self) -> None:
        """Run the recovery, and add its fault, such as a missing segment, if no other fault names that place."""
        report = self.report
        try:
            recover(self._files, self._directory)
        except Damaged as error:
            if not any(fault.segment == error.segment and fault.offset <= error.offset for fault in report.faults):
                what, _, lost = error.why.partition("; ")
                lost = lost.removesuffix(" are lost") or "unknown"
                report.faults.append(Fault(error.segment, error.offset, what, lost))

    def _check_segment(self, base_lsn: int, *, is_last: bool) -> int:
        """Check one segment. Returns the LSN after its last whole block."""
        name, report = segment_name(base_lsn), self.report
        with opened(self._files, self._directory, base_lsn) as handle:
            scan = SegmentScan(self._files, handle, base_lsn)
            counted, names = SegmentSummary(base_lsn), Names()
            is_whole = True  # after a bad block, records are not checked: names that it defined are unknown
            while True:
                for block in scan:
                    report.blocks += 1
                    report.records += block.header.record_count
                    for fault in self._faults_of(block, counted, names) if is_whole else ():
                        report.faults.append(Fault(name, block.offset, fault, "what these records say"))
                    counted.add(block)
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
                    scan = SegmentScan(self._files, handle, later.header.base_lsn, offset=later.offset)
                    continue
                if torn:
                    report.torn_segment, report.torn_bytes = name, torn
                return scan.lsn

    def _faults_of(self, block: Block, counted: SegmentSummary, names: Names) -> Iterator[str]:
        """Faults of a block whose CRC is right: errors of the program that wrote it, or a forgery.

        counted: the blocks of the segment before this one. names: those that they define.
        """
        header = block.header
        if bool(header.flags & IS_HEAD) != (counted.size == 0):
            yield "a segment's head block is missing or not the first"
        if header.flags & IS_FOOTER:
            try:
                in_footer = SegmentSummary.from_footer(block)
            except BadRecord as error:
                yield str(error)
                return
            kinds = {**counted.kinds, FOOTER: 1}
            if in_footer.kinds != kinds or in_footer.base_lsn != counted.base_lsn or in_footer.end_lsn != block.end_lsn:
                yield "the footer does not tell what the segment holds"
            return
        try:
            for lsn, record in block.records():
                _check_record(lsn, record, names if not counted.has_gaps else None, self._journal_id)
        except (BadRecord, ValueError) as error:
            yield str(error)


def _span(first: int, end: int) -> str:
    return "no record" if first == end else f"records {first} to {end - 1}"


def _check_record(lsn: int, record: Record, names: Names | None, journal_id: bytes) -> None:
    """Check one record. `names`: None if a repair lost some. Raises: BadRecord."""
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
    elif kind == IDS_SEEN:
        decode_ids_seen(heap)
        _check_name(lsn, record.arg, names)
    elif kind == SNAPSHOT:
        load_part(heap, RecoveredQueue())
    elif kind not in KIND_NAMES:
        return  # of a later version
    elif record.flags & RANGE:
        if heap:
            decode_runs(heap)
    elif kind != CHECKPOINT:
        decode_text(heap)
    for id_ in (record.queue_id, record.address_id):
        _check_name(lsn, id_, names)


def _check_name(lsn: int, id_: int, names: Names | None) -> None:
    if id_ and names is not None and id_ not in names:
        raise BadRecord(f"record {lsn} refers to id {id_}, which its segment does not define")
