"""Reads contents by LSN, for the broker that writes the journal: one content, or a run of them, also read ahead.

Source: ruling 21; queues page F.
"""

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct, unpack
from threading import Condition, Thread
from typing import NamedTuple

from ...engine import NATIVE
from ..disk.files import OUT_OF_RESOURCES, REAL, Files
from ..disk.segment import SegmentSummary, footer_of, path_of, segment_name, segments_in
from ..disk.segment_scan import SegmentScan
from ..format.block import HEADER_SIZE, IS_GAP, Block
from ..format.errors import BadRecord, Damaged, JournalError, NotInJournal
from ..format.heap import Content, decode_content
from ..format.record import MOVED, PUBLISHED, RECORD, RECORD_SIZE, Record, from_fields
from .recovered import RecoveredMessage, RecoveredQueue

OPEN_FILES_MAX = 16
#: Octets of one read of a file: about the distance of index entries.
READ_SIZE = 128 * 1024
#: Octets of one read of a file when reading ahead; an incomplete block at its end is read again.
AHEAD_READ_SIZE = 1024 * 1024
#: The most octets of blocks that are read ahead: a fast consumer takes them in some 10 ms.
AHEAD_OCTETS = 4 * 1024 * 1024
#: Octets of blocks that the reading thread hands over together, since at each hand-over a thread waits for the other.
BATCH_OCTETS = 512 * 1024
#: A record at most this many records after the last block is reached faster by reading on than by the index.
NEAR = 4096
#: Three fields of a record: offset of its heap entry, exchange, octets of the heap entry.
_PLACE = Struct("<24xI4xi20xI4x")
#: Offsets of the record's octets that must be equal in a run: those of the exchange and of the heap entry's size.
_EQUAL_OCTETS = (*range(32, 36), *range(56, 60))


class ContentRun(NamedTuple):
    """Consecutive contents with the same exchange, routing key and cause."""

    exchange_id: int
    routing_key: bytes
    cause_id: int  # of the dead message, of dead letters; 0: none
    header: bytes | None  # payload of their common header; None: headers may differ
    contents: Sequence[bytes]  # bodies if the header is given, else contents of the engine's framing


class ContentReader:
    """Reads contents by the LSN of their `published` or `moved` record. For one thread at a time.

    `open_segment`: the writer's summary of the open segment (None: there is no writer).
    `unwritten(lsn)`: the block with a record that is not written yet, as far as it is filled. The block stays open
    for further records of its turn.
    `ahead`: whether runs are read ahead by a thread.
    """

    def __init__(
        self,
        directory: str,
        files: Files = REAL,
        *,
        open_segment: Callable[[], SegmentSummary | None] = lambda: None,
        unwritten: Callable[[int], Block | None] = lambda lsn: None,
        ahead: bool = False,
    ) -> None:
        self._directory = directory
        self._files = files
        self._open_segment = open_segment
        self._unwritten = unwritten
        self._ahead = ahead
        self._bases: list[int] = []
        self._handles: OrderedDict[int, tuple[int, SegmentSummary]] = OrderedDict()
        self._segment = 0  # base LSN of the segment that is being read
        self._block: Block | None = None  # the last block that was read
        self._blocks: Iterator[Block] = iter(())  # the following blocks
        self._last_run = ContentRun(0, b"", 0, None, ())  # of equal sizes, without contents
        self._length, self._prefix = 0, b""  # of each heap entry of that run: octets, and the part before the body

    def forget(self, segment: int) -> None:
        """Drop a segment that was deleted."""
        self._close(segment)
        if segment in self._bases:
            self._bases.remove(segment)

    def _close(self, segment: int) -> None:
        if self._segment == segment:
            self._stop_reading()
        if segment in self._handles:
            self._files.close(self._handles.pop(segment)[0])

    def _stop_reading(self) -> None:
        if isinstance(self._blocks, ReadAhead):
            self._blocks.close()
        self._block, self._blocks = None, iter(())

    def close(self) -> None:
        """Close all files; later reads open them again."""
        self._stop_reading()
        while self._handles:
            self._files.close(self._handles.popitem()[1][0])

    def read(self, lsn: int) -> bytes:
        """The content (a content of the engine's framing). Raises: NotInJournal, Damaged, OSError."""
        return self.read_message(lsn)[1].content

    def read_message(self, lsn: int) -> tuple[Record, Content]:
        """The record and everything in its heap entry. Raises: as `read`."""
        block, index = self.find_block(lsn)
        start = HEADER_SIZE + RECORD_SIZE * index
        fields = RECORD.unpack_from(block.data, start)
        _check_kinds(block, index, bytes(block.data[start : start + RECORD_SIZE]))
        try:
            return from_fields(fields, b""), decode_content(block.heap_of(fields))
        except BadRecord as error:
            raise self._damaged(block, error) from error

    def messages(self, queue: RecoveredQueue) -> Iterator[tuple[RecoveredMessage, Record, Content]]:
        """The messages of a recovered queue with their contents, ids rising, one at a time. Raises: as `read`."""
        for message in queue.messages():
            record, content = self.read_message(message.content_lsn)
            yield message, record, content

    def runs(self, lsn: int, count: int) -> Iterator[ContentRun]:
        """The contents of `count` records from `lsn` on. Raises: as `read`. Cost: 0.5 us a content, and its octets."""
        while count > 0:
            block, index = self.find_block(lsn, ahead=self._ahead)
            in_block = min(count, block.header.record_count - index)
            try:
                yield from self._runs_in(block, index, in_block)
            except BadRecord as error:
                raise self._damaged(block, error) from error
            lsn += in_block
            count -= in_block

    def _runs_in(self, block: Block, index: int, count: int) -> Iterable[ContentRun]:
        """The contents of consecutive records of one block. Raises: BadRecord."""
        start = HEADER_SIZE + RECORD_SIZE * index
        records = bytes(block.data[start : start + RECORD_SIZE * count])
        _check_kinds(block, index, records)
        first, _, _ = _PLACE.unpack_from(records)
        last, _, length = _PLACE.unpack_from(records, RECORD_SIZE * (count - 1))
        if last + length > block.header.heap_size:
            raise BadRecord("a heap entry lies outside the heap")
        heap = block.data[block.heap_start + first : block.heap_start + last + length]
        run = self._run_of_equal_sizes(records, heap, count)
        return _runs_of(list(_PLACE.iter_unpack(records)), bytes(heap)) if run is None else (run,)

    def _run_of_equal_sizes(self, records: bytes, heap: memoryview, count: int) -> ContentRun | None:
        """Contents of one size that differ only in bodies, or in bodies and headers: cut out with one `unpack`.

        None: they differ in more, or a single one differs from the last run. Raises: BadRecord.
        """
        if any(records[at::RECORD_SIZE] != records[at : at + 1] * count for at in _EQUAL_OCTETS):
            return None
        _, exchange_id, length = _PLACE.unpack_from(records)
        if len(heap) != length * count:
            return None
        last, prefix = self._last_run, self._prefix
        if exchange_id != last.exchange_id or length != self._length or heap[: len(prefix)] != prefix:
            content = decode_content(bytes(heap[:length]))
            header, body = NATIVE.split(content.content)
            last = self._last_run = ContentRun(exchange_id, content.routing_key, content.cause_id, header, ())
            self._length, prefix = length, bytes(heap[: length - len(body)])
            self._prefix = prefix
            if count == 1:
                return None
        if heap[length * (count - 1) :][: len(prefix)] == prefix:
            parts = unpack(f"{len(prefix)}s{length - len(prefix)}s" * count, heap)
            if parts[::2].count(prefix) == count:
                return last._replace(contents=parts[1::2])
        assert last.header is not None
        prefix = prefix[: -4 - len(last.header)]
        parts = unpack(f"{len(prefix)}s{length - len(prefix)}s" * count, heap)
        return last._replace(header=None, contents=parts[1::2]) if parts[::2].count(prefix) == count else None

    def _damaged(self, block: Block, error: BadRecord) -> Damaged:
        return Damaged(segment_name(self._segment), block.offset, str(error))

    def find_block(self, lsn: int, *, ahead: bool = False) -> tuple[Block, int]:
        """The block with a record, and the record's index in it. Tries the last block first. Raises: as `read`."""
        block = self._block
        if block is not None:
            index = lsn - block.header.base_lsn
            if 0 <= index < block.header.record_count and not block.header.flags & IS_GAP:
                return block, index
            if 0 <= index < block.header.record_count + NEAR:
                found = self._search(lsn)  # a queue that is drained reads in order
                if found is not None:
                    return found
        self._stop_reading()
        block = self._unwritten(lsn)
        if block is not None:
            self._block = block  # the writer may append to it, but its records stay
            return block, lsn - block.header.base_lsn
        segment = self._segment_of(lsn)
        handle, summary = self._opened(segment)
        base_lsn, offset = summary.block_before(lsn)
        read_size = AHEAD_READ_SIZE if ahead else READ_SIZE
        scan = SegmentScan(self._files, handle, base_lsn, offset=offset, size=summary.size, window_size=read_size)
        self._segment, self._blocks = segment, ReadAhead(iter(scan)) if ahead else iter(scan)
        found = self._search(lsn)
        if found is None:
            # A block behind the record ends the search, too: then the record is in a gap that a repair left.
            if scan.lsn <= lsn and scan.position < summary.size and not scan.sealed:
                raise Damaged(segment_name(segment), scan.position, f"a bad block; record {lsn} is in it or behind it")
            raise NotInJournal(f"record {lsn} is not in the journal")
        return found

    def _search(self, lsn: int) -> tuple[Block, int] | None:
        """The block with the record among the following blocks, and the record's index; None: not among them."""
        for block in self._blocks:
            index = lsn - block.header.base_lsn
            if index < 0:
                break
            if index < block.header.record_count and not block.header.flags & IS_GAP:
                self._block = block
                return block, index
        self._stop_reading()
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
            raise NotInJournal(f"record {lsn} is no longer in the journal")
        return bases[at]

    def _opened(self, segment: int) -> tuple[int, SegmentSummary]:
        live = self._open_segment()
        cached = self._handles.get(segment)
        if cached is not None and (cached[1].sealed or cached[1] is live):
            self._handles.move_to_end(segment)
            return cached
        if cached is not None:
            self._close(segment)
        handle = self._open(segment)
        try:
            is_live = live is not None and live.base_lsn == segment
            summary = live if is_live else footer_of(self._files, handle, segment)
            if summary is None:
                summary = SegmentSummary(segment)
                for block in SegmentScan(self._files, handle, segment):
                    summary.add(block)
        except (OSError, JournalError):
            self._files.close(handle)
            raise
        self._handles[segment] = (handle, summary)
        while len(self._handles) > OPEN_FILES_MAX:
            self._close(next(iter(self._handles)))
        return handle, summary

    def _open(self, segment: int) -> int:
        path = path_of(self._directory, segment)
        try:
            try:
                return self._files.open(path)
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES or not self._handles:
                    raise
                self.close()  # frees the descriptors of files that are kept open for later reads
                return self._files.open(path)
        except FileNotFoundError as error:
            raise NotInJournal(f"segment {segment} is no longer in the journal") from error


def _check_kinds(block: Block, index: int, records: bytes) -> None:
    """Raises: NotInJournal, when some of the records have no contents."""
    kinds = records[28::RECORD_SIZE]
    if kinds.count(PUBLISHED) + kinds.count(MOVED) != len(kinds):
        raise NotInJournal(f"a record from {block.header.base_lsn + index} on has no content")


def _runs_of(places: list[tuple[int, int, int]], heap: bytes) -> Iterator[ContentRun]:
    """The contents at `places`, as runs; `heap` begins with the first one's heap entry. Raises: BadRecord."""
    first = places[0][0]
    if sum(length for _, _, length in places) != len(heap):
        raise BadRecord("heap entries do not lie one behind the other in the heap")
    starts_with = heap.startswith
    exchange_id, prefix, skip, key, cause_id = 0, b"", 0, b"", 0
    contents: list[bytes] = []
    for offset, exchange, length in places:
        offset -= first
        if not contents or exchange != exchange_id or not starts_with(prefix, offset):
            if contents:
                yield ContentRun(exchange_id, key, cause_id, None, contents)
            content = decode_content(heap[offset : offset + length])
            contents = []
            exchange_id, key, cause_id = exchange, content.routing_key, content.cause_id
            skip = length - len(content.content)
            prefix = heap[offset : offset + skip]
        contents.append(heap[offset + skip : offset + length])
    yield ContentRun(exchange_id, key, cause_id, None, contents)


class ReadAhead(Iterator[Block]):
    """Yields the blocks of an iterator. The caller's thread reads the first one, a thread of this object the others.

    So a single block costs no thread. An error is raised in place of the block that could not be read.
    """

    def __init__(self, blocks: Iterator[Block], ahead_octets: int = AHEAD_OCTETS) -> None:
        self._blocks = blocks
        self._ahead_octets = ahead_octets
        self._changed = Condition()
        self._ready: deque[Block] = deque()
        self._octets = 0
        self._is_full = False  # until half is taken, so that the thread seldom wakes and takes the interpreter's lock
        self._is_first = True
        self._thread: Thread | None = None
        self._is_over = False
        self._error: BaseException | None = None

    def __next__(self) -> Block:
        if self._is_first:
            self._is_first = False
            return next(self._blocks)
        if self._thread is None and not self._is_over:
            thread = Thread(target=self._read, name="leveret-read-ahead", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system cannot start another thread now: this one reads
                return next(self._blocks)
            self._thread = thread
        with self._changed:
            while not self._ready and not self._is_over:
                self._changed.wait()
            if self._ready:
                block = self._ready.popleft()
                self._octets -= block.header.size
                if self._is_full and self._octets <= self._ahead_octets // 2:
                    self._is_full = False
                    self._changed.notify()
                return block
        if self._error is not None:
            raise self._error
        raise StopIteration

    def close(self) -> None:
        """Stop reading; when this returns, the thread has ended."""
        with self._changed:
            self._is_over = True
            self._ready.clear()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _read(self) -> None:
        error: BaseException | None = None
        batch: list[Block] = []
        octets = 0
        try:
            for block in self._blocks:
                batch.append(block)
                octets += block.header.size
                if octets >= BATCH_OCTETS:
                    if not self._hand_over(batch, octets):
                        return
                    batch, octets = [], 0
        except BaseException as caught:
            error = caught
        with self._changed:
            self._ready += batch
            self._octets += octets
            self._error = error
            self._is_over = True
            self._changed.notify()

    def _hand_over(self, batch: list[Block], octets: int) -> bool:
        """Hand blocks over, then wait until there is room for more. False: closed."""
        with self._changed:
            self._ready += batch
            self._octets += octets
            self._changed.notify()
            self._is_full = self._octets >= self._ahead_octets
            while self._is_full and not self._is_over:
                self._changed.wait()
            return not self._is_over
