"""Reads the octets of a journal for a follower that is behind."""

from bisect import bisect_right

from ..disk.files import OUT_OF_RESOURCES, REAL, ReadableFiles
from ..disk.segment import footer_of, opened, path_of, segment_name, segments_in
from ..disk.segment_scan import SegmentScan
from ..format.errors import Damaged, NotInJournal

#: The most octets that one read returns.
PIECE_SIZE = 256 * 1024


def position_of(path: str, lsn: int, files: ReadableFiles = REAL) -> tuple[int, int]:
    """(base LSN of the segment, offset) at which to begin reading to get the records from `lsn` on.

    (`lsn`, 0): a segment begins with `lsn`, or the next one will. Blocks without records that have this LSN come after
    the position. O(segment) in the open segment.
    Raises: NotInJournal (it is before the first segment, after the last record, or within a block), OSError.
    """
    bases = segments_in(files, path)
    at = bisect_right(bases, lsn) - 1
    if at < 0:
        raise NotInJournal(f"record {lsn} is no longer in the journal")
    base_lsn = bases[at]
    if base_lsn == lsn:
        return lsn, 0
    with opened(files, path, base_lsn) as handle:
        footer = footer_of(files, handle, base_lsn)
        start_lsn, offset = footer.block_before(lsn - 1) if footer is not None else (base_lsn, 0)
        scan = SegmentScan(files, handle, start_lsn, offset=offset)
        for block in scan:
            if block.end_lsn == lsn:
                return (lsn, 0) if scan.sealed else (base_lsn, scan.position)
            if block.end_lsn > lsn:
                raise NotInJournal(f"record {lsn} is within the block that begins with {block.header.base_lsn}")
    raise NotInJournal(f"record {lsn} is behind the last record of the journal, {scan.lsn - 1}")


def damage_in(path: str, base_lsn: int, end: tuple[int, int], files: ReadableFiles = REAL) -> Damaged | None:
    """The first damage in a leader's segments from `base_lsn` on, up to `end`, see `OctetReader.read`. O(octets).

    None: there is none, or this process lacks descriptors or memory to look. Segments that are deleted meanwhile are
    skipped.
    """
    bases = [one for one in segments_in(files, path) if base_lsn <= one <= end[0]]
    for one, following in zip(bases, [*bases[1:], 0]):
        is_open = one == end[0]
        try:
            with opened(files, path, one) as handle:
                scan = SegmentScan(files, handle, one, size=end[1] if is_open else None)
                for _ in scan:
                    pass
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno in OUT_OF_RESOURCES:
                return None
            return Damaged(segment_name(one), 0, f"it cannot be read: {error}")
        if scan.position < end[1] if is_open else not scan.sealed or scan.lsn != following:
            return Damaged(segment_name(one), scan.position, "no whole block is here, and more was written")
    return None


class OctetReader:
    """Reads from a position on, through all segments. Its calls wait for the disk; for one thread at a time.

    `position`: base LSN of the segment and offset of the next octet.
    """

    def __init__(self, path: str, base_lsn: int, offset: int, files: ReadableFiles = REAL) -> None:
        self.position = (base_lsn, offset)
        self._path = path
        self._files = files
        self._handle = -1

    def read(self, end: tuple[int, int], length: int = PIECE_SIZE) -> tuple[int, int, bytes] | None:
        """The next (base LSN of the segment, offset, octets), at most `length`; None: there are none before `end`.

        `end`: (base LSN of the open segment, octets) up to which the journal is written; segments before it are sealed.
        Raises: NotInJournal (the segment was deleted), OSError.
        """
        while self.position < end:
            base_lsn, offset = self.position
            if self._handle < 0:
                self._handle = self._open(base_lsn)
            is_sealed = base_lsn < end[0]
            limit = self._files.size(self._handle) if is_sealed else end[1]
            octets = self._files.read(self._handle, min(length, limit - offset), offset) if offset < limit else b""
            if octets:
                self.position = (base_lsn, offset + len(octets))
                return base_lsn, offset, octets
            if not is_sealed:
                return None
            following = self._next_segment(base_lsn)
            self.close()
            self.position = (following, 0)
        return None

    def close(self) -> None:
        """Close the file; `read` opens it again."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1

    def _open(self, base_lsn: int) -> int:
        try:
            return self._files.open(path_of(self._path, base_lsn))
        except FileNotFoundError as error:
            raise NotInJournal(f"segment {base_lsn} is no longer in the journal") from error

    def _next_segment(self, base_lsn: int) -> int:
        """Base LSN of the next segment, by this one's footer, so that a missing segment is noticed."""
        footer = footer_of(self._files, self._handle, base_lsn)
        if footer is None:
            raise NotInJournal(f"segment {base_lsn} has no footer: it is damaged")
        return footer.end_lsn
