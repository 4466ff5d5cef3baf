"""Reading: contents by LSN for the broker, records in order for everybody else.

A reader may trust: every record of a sealed segment; of the open one, the records below the highest durable LSN that
any whole block tells. Source: rulings 21.
"""

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from .block import HEADER_SIZE, IS_GAP, Block
from .errors import BadRecord, Damaged, NotInJournal
from .files import REAL, Files
from .heap import CONTENT_HEAD, Content, decode_content, decode_define
from .names import Names
from .record import DEFINE, MOVED, PUBLISHED, RECORD, RECORD_SIZE, Record, from_fields
from .recovered import RecoveredMessage, RecoveredQueue
from .segment import Scan, Segment, path_of, read_footer, segments_in

OPEN_FILES_MAX = 16
#: What one read of a content asks the system for: about the distance of index entries.
READ_SIZE = 128 * 1024
#: So many records behind the last block it is worth reading on instead of looking up.
NEAR = 4096


class ContentPosition(NamedTuple):
    """Where a content is: octets of file `segment_name(segment)`."""

    segment: int
    offset: int
    length: int


class ContentReader:
    """Contents by the LSN of their `published` or `moved` record. For one thread at a time.

    `open_segment`: the one that is being written, by the writer's own account (None: what is on the disk is all).
    """

    def __init__(
        self, directory: str, files: Files = REAL, *, open_segment: Callable[[], Segment | None] = lambda: None
    ) -> None:
        self._directory = directory
        self._files = files
        self._open_segment = open_segment
        self._bases: list[int] = []
        self._handles: OrderedDict[int, tuple[int, Segment]] = OrderedDict()
        self._block: tuple[int, Block] | None = None  # segment, the block that was read last
        self._blocks: Iterator[Block] | None = None  # those behind it

    def close(self) -> None:
        """Give all handles back."""
        while self._handles:
            self._files.close(self._handles.popitem()[1][0])
        self._block = self._blocks = None

    def forget(self, segment: int) -> None:
        """A segment is gone."""
        self._close(segment)
        if segment in self._bases:
            self._bases.remove(segment)

    def _close(self, segment: int) -> None:
        if self._block is not None and self._block[0] == segment:
            self._block = self._blocks = None
        if segment in self._handles:
            self._files.close(self._handles.pop(segment)[0])

    def read(self, lsn: int) -> bytes:
        """The content (a blob of the engine's plain framing). Raises: NotInJournal, Damaged, OSError."""
        segment, block, index = self._find(lsn)
        return self._decoded(segment, block, index).content

    def read_message(self, lsn: int) -> tuple[Record, Content]:
        """The record and everything in its heap entry. Raises: as `read`."""
        segment, block, index = self._find(lsn)
        fields = RECORD.unpack_from(block.data, HEADER_SIZE + RECORD_SIZE * index)
        return from_fields(fields, b""), self._decoded(segment, block, index)

    def messages(self, queue: RecoveredQueue) -> Iterator[tuple[RecoveredMessage, Record, Content]]:
        """The messages of a recovered queue with their contents, ids rising, one at a time. Raises: as `read`."""
        for message in queue.messages():
            record, content = self.read_message(message.content_lsn)
            yield message, record, content

    def locate(self, lsn: int) -> ContentPosition:
        """Where the content is. Raises: as `read`."""
        segment, block, index = self._find(lsn)
        fields = RECORD.unpack_from(block.data, HEADER_SIZE + RECORD_SIZE * index)
        start = block.heap_start + fields[3]
        _, key_size, queue_count, _, _ = CONTENT_HEAD.unpack_from(block.data, start)
        prefix = CONTENT_HEAD.size + 4 * queue_count + key_size
        return ContentPosition(segment, block.offset + start + prefix, fields[15] - prefix)

    def read_at(self, position: ContentPosition) -> bytes:
        """The content at a position that `locate` gave; its CRC was looked at then. Raises: NotInJournal, OSError."""
        handle, _ = self._opened(position.segment)
        return self._files.read(handle, position.length, position.offset)

    def _decoded(self, segment: int, block: Block, index: int) -> Content:
        fields = RECORD.unpack_from(block.data, HEADER_SIZE + RECORD_SIZE * index)
        if fields[4] not in (PUBLISHED, MOVED):
            raise NotInJournal(f"record {block.header.base_lsn + index} has no content")
        try:
            return decode_content(block.heap_of(fields))
        except BadRecord as error:
            raise Damaged(os.path.basename(path_of(self._directory, segment)), block.offset, str(error)) from error

    def _find(self, lsn: int) -> tuple[int, Block, int]:
        """(segment, block, index in it) of a record. The block read last serves its neighbours."""
        if self._block is not None:
            segment, block = self._block
            index = lsn - block.header.base_lsn
            if 0 <= index < block.header.record_count and not block.header.flags & IS_GAP:
                return segment, block, index
            if 0 <= index < block.header.record_count + NEAR and self._blocks is not None:
                found = self._search(segment, self._blocks, lsn)  # reading on in order, as a queue is drained
                if found is not None:
                    return found
        segment = self._segment_of(lsn)
        handle, facts = self._opened(segment)
        base_lsn, offset = facts.block_before(lsn)
        scan = Scan(self._files, handle, base_lsn, offset=offset, size=facts.size, window_size=READ_SIZE)
        self._blocks = iter(scan)
        found = self._search(segment, self._blocks, lsn)
        if found is not None:
            return found
        raise NotInJournal(f"record {lsn} is not in the journal")

    def _search(self, segment: int, blocks: Iterator[Block], lsn: int) -> tuple[int, Block, int] | None:
        """The block with the record among those that come."""
        for block in blocks:
            index = lsn - block.header.base_lsn
            if index < 0:
                break
            if index < block.header.record_count and not block.header.flags & IS_GAP:
                self._block = (segment, block)
                return segment, block, index
        self._block = self._blocks = None
        return None

    def _segment_of(self, lsn: int) -> int:
        bases = self._bases
        live = self._open_segment()
        if live is not None and lsn >= live.base_lsn:
            return live.base_lsn
        if not bases or lsn < bases[0] or lsn >= bases[-1]:
            bases = self._bases = segments_in(self._files, self._directory)
        at = bisect_right(bases, lsn) - 1
        if at < 0:
            raise NotInJournal(f"record {lsn} is not in the journal any more")
        return bases[at]

    def _opened(self, segment: int) -> tuple[int, Segment]:
        live = self._open_segment()
        cached = self._handles.get(segment)
        if cached is not None and (cached[1].sealed or cached[1] is live):
            self._handles.move_to_end(segment)
            return cached
        if cached is not None:
            self._close(segment)
        try:
            handle = self._files.open(path_of(self._directory, segment))
        except FileNotFoundError as error:
            raise NotInJournal(f"segment {segment} is not in the journal any more") from error
        facts = live if live is not None and live.base_lsn == segment else read_footer(self._files, handle)
        if facts is None:
            facts = Segment(segment)
            for block in Scan(self._files, handle, segment):
                facts.note(block)
        self._handles[segment] = (handle, facts)
        while len(self._handles) > OPEN_FILES_MAX:
            self._close(next(iter(self._handles)))
        return handle, facts


class JournalReader:
    """The records of a journal in order, with the names that they speak of. Locks nothing, changes nothing."""

    def __init__(self, directory: str, files: Files = REAL) -> None:
        self.directory = directory
        self.files = files
        self.names = Names()

    def segments(self) -> list[int]:
        """Base LSNs of the segments, oldest first."""
        return segments_in(self.files, self.directory)

    def records(self, from_lsn: int = 0, *, trust_open: bool = False) -> Iterator[tuple[int, Record]]:
        """(LSN, record) from an LSN on, up to what may be trusted now; ask again later for what came since.

        `trust_open`: also what no block calls durable yet. Raises: Damaged, OSError.
        """
        bases = self.segments()
        start = max(bisect_right(bases, from_lsn) - 1, 0)
        expected: int | None = None
        for at, base_lsn in enumerate(bases[start:], start):
            if expected is not None and base_lsn != expected:
                name = os.path.basename(path_of(self.directory, base_lsn))
                raise Damaged(name, 0, f"records {expected} to {base_lsn - 1} before it are missing")
            is_last = at == len(bases) - 1
            expected = yield from self._segment(base_lsn, is_last, from_lsn, trust_open)

    def _segment(
        self, base_lsn: int, is_last: bool, from_lsn: int, trust_open: bool
    ) -> Generator[tuple[int, Record], None, int]:
        name = os.path.basename(path_of(self.directory, base_lsn))
        handle = self.files.open(path_of(self.directory, base_lsn))
        try:
            scan = Scan(self.files, handle, base_lsn)
            waiting: list[Block] = []  # not yet proved durable
            for block in scan:
                waiting.append(block)
                while waiting and (trust_open or scan.sealed or waiting[0].end_lsn <= scan.durable_lsn):
                    yield from self._block(name, waiting.pop(0), from_lsn)
            scan.check_tail(name, is_last=is_last)
            return scan.lsn
        finally:
            self.files.close(handle)

    def _block(self, name: str, block: Block, from_lsn: int) -> Iterator[tuple[int, Record]]:
        try:
            for lsn, record in block.records():
                if record.kind == DEFINE:
                    self.names.set(record.arg, decode_define(record.heap))
                if lsn >= from_lsn:
                    yield lsn, record
        except BadRecord as error:
            raise Damaged(name, block.offset, str(error)) from error
