"""Reads the records of a journal in order, for any program but the broker that writes it.

A reader may trust every record of a sealed segment, and the records of the open one below the highest durable LSN in
any whole block. In the directory of a node of a cluster, where the end of a sealed segment may be cut, too, that LSN
alone decides. Source: ruling 21; docs/journal-format.md, "What a reader may trust".
"""

from bisect import bisect_right
from collections.abc import Generator, Iterator

from ..disk.directory import is_of_cluster
from ..disk.files import REAL, Files
from ..disk.segment import opened, segment_name, segments_in
from ..disk.segment_scan import SegmentScan, agreed_lsn
from ..format.block import Block
from ..format.errors import BadRecord, Damaged
from ..format.heap import decode_define
from ..format.names import Names
from ..format.record import DEFINE, Record


class JournalReader:
    """The records of a journal in order, with the names that they refer to. Locks and changes nothing."""

    def __init__(self, directory: str, files: Files = REAL) -> None:
        self.directory = directory
        self.files = files
        self.names = Names()

    def segments(self) -> list[int]:
        """Base LSNs of the segments, oldest first."""
        return segments_in(self.files, self.directory)

    def records(self, from_lsn: int = 0, *, trust_open: bool = False) -> Iterator[tuple[int, Record]]:
        """(LSN, record) from an LSN on, up to the last record that may be trusted; call it again for later ones.

        `trust_open`: also records that no block calls durable yet. Raises: Damaged, OSError.
        """
        end_lsn: int | None = None
        if not trust_open and is_of_cluster(self.directory, self.files):
            end_lsn = agreed_lsn(self.files, self.directory)
        bases = self.segments()
        start = max(bisect_right(bases, from_lsn) - 1, 0)
        expected: int | None = None
        for at, base_lsn in enumerate(bases[start:], start):
            if end_lsn is not None and base_lsn >= end_lsn:
                return
            if expected is not None and base_lsn != expected:
                name = segment_name(base_lsn)
                raise Damaged(name, 0, f"records {expected} to {base_lsn - 1} before it are missing")
            is_last = at == len(bases) - 1
            expected = yield from self._segment(base_lsn, is_last, from_lsn, trust_open, end_lsn)

    def _segment(
        self, base_lsn: int, is_last: bool, from_lsn: int, trust_open: bool, end_lsn: int | None
    ) -> Generator[tuple[int, Record], None, int]:
        """Read one segment. `end_lsn`: in a cluster, the records from this LSN on are not trusted."""
        name = segment_name(base_lsn)
        with opened(self.files, self.directory, base_lsn) as handle:
            scan = SegmentScan(self.files, handle, base_lsn)
            waiting: list[Block] = []  # not known to be durable yet
            for block in scan:
                if end_lsn is not None:
                    if block.end_lsn > end_lsn:
                        return scan.lsn
                    yield from self._block(name, block, from_lsn)
                    continue
                waiting.append(block)
                while waiting and (trust_open or scan.sealed or waiting[0].end_lsn <= scan.durable_lsn):
                    yield from self._block(name, waiting.pop(0), from_lsn)
            if end_lsn is None or scan.lsn < end_lsn:
                scan.check_tail(name, is_last=is_last)
            return scan.lsn

    def _block(self, name: str, block: Block, from_lsn: int) -> Iterator[tuple[int, Record]]:
        try:
            for lsn, record in block.records():
                if record.kind == DEFINE:
                    self.names.set(record.arg, decode_define(record.heap))
                if lsn >= from_lsn:
                    yield lsn, record
        except BadRecord as error:
            raise Damaged(name, block.offset, str(error)) from error
