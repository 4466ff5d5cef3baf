"""Reads the blocks of a segment in order, and tells a torn tail from damage."""

from collections.abc import Iterator

from ..format.block import HEADER, HEADER_SIZE, IS_FOOTER, IS_GAP, MAGIC, MAGIC_OCTETS, Block, Header, read_block
from ..format.errors import Damaged
from ..format.record import RECORD_SIZE
from .files import ReadableFiles
from .segment import opened, segments_in

#: Octets of one read of a file.
WINDOW_SIZE = 1024 * 1024


class SegmentScan:
    """Yields the blocks of a segment in order, up to a block that is damaged or out of order, or the end.

    Memory: a window of 1 MiB, or the largest block. `position`, `lsn`: where the next block should be, and its LSN.
    """

    def __init__(
        self,
        files: ReadableFiles,
        handle: int,
        lsn: int,
        *,
        offset: int = 0,
        size: int | None = None,
        window_size: int = WINDOW_SIZE,
    ) -> None:
        self._files = files
        self._window_size = window_size
        self._handle = handle
        self.size = files.size(handle) if size is None else size
        self.position = offset
        self.lsn = lsn
        self.durable_lsn = 0  # the highest in any block
        self.gaps: list[tuple[int, int]] = []
        self.sealed = False  # a footer has been read

    def __iter__(self) -> Iterator[Block]:
        window, start = memoryview(b""), self.position
        while not self.sealed:
            at = self.position - start
            block = read_block(window, at, self.position)
            if block is None:
                need = self._size_here(window, at)
                if len(window) - at >= need or start + len(window) >= self.size:
                    return
                start = self.position
                window = memoryview(
                    self._files.read(self._handle, min(max(need, self._window_size), self.size - start), start)
                )
                if len(window) < min(need, self.size - start):
                    return
                continue
            if block.header.base_lsn != self.lsn or not _is_sane(block):
                return
            if block.header.flags & IS_GAP:
                self.gaps.append((self.lsn, block.end_lsn))
            self.sealed = bool(block.header.flags & IS_FOOTER)
            self.position += block.header.size
            self.lsn = block.end_lsn
            self.durable_lsn = max(self.durable_lsn, block.header.durable_lsn)
            yield block

    def _size_here(self, window: memoryview, at: int) -> int:
        """Octets that the window must hold to decide whether a whole block begins at `at`."""
        if len(window) - at < HEADER_SIZE:
            return HEADER_SIZE
        header = Header._make(HEADER.unpack_from(window, at))
        if header.magic != MAGIC:
            return HEADER_SIZE
        return min(header.size, self.size - self.position)

    def rest_is_empty(self) -> bool:
        """Whether only zeros (preallocated room) follow the blocks that were read."""
        position = self.position
        while position < self.size:
            data = self._files.read(self._handle, WINDOW_SIZE, position)
            if not data:
                return True
            if data != bytes(len(data)):  # in a tenth of the time that counting takes
                return False
            position += len(data)
        return True

    def next_block(self, after: int | None = None) -> Block | None:
        """The next whole block with a plausible LSN, after a bad one or the offset `after`. O(rest of the file)."""
        position = (self.position if after is None else after) + 1
        while position + HEADER_SIZE <= self.size:
            data = self._files.read(self._handle, WINDOW_SIZE, position)
            found = data.find(MAGIC_OCTETS, 4)
            while found >= 0:
                block = self._block_at(position + found - 4)
                if block is not None:
                    return block
                found = data.find(MAGIC_OCTETS, found + 1)
            if len(data) < WINDOW_SIZE:
                return None
            position += WINDOW_SIZE - 7
        return None

    def _block_at(self, offset: int) -> Block | None:
        raw = self._files.read(self._handle, HEADER_SIZE, offset)
        if len(raw) < HEADER_SIZE:
            return None
        header = Header._make(HEADER.unpack(raw))
        lost_max = (offset - self.position) // RECORD_SIZE
        if header.size > self.size - offset or not self.lsn <= header.base_lsn <= self.lsn + lost_max:
            return None
        return read_block(memoryview(self._files.read(self._handle, header.size, offset)), 0, offset)

    def check_tail(self, name: str, *, is_last: bool) -> int:
        """Octets of torn tail after the blocks that were read (0: none).

        Octets are a torn tail if nothing proves that they were durable: they are in the newest segment, and no later
        block says that their records were durable. Raises: Damaged.
        """
        if self.position >= self.size or (is_last and self.rest_is_empty()):
            if is_last or self.sealed:
                return 0
            raise Damaged(name, self.position, f"it ends without a footer; records from {self.lsn} on may be lost")
        if self.sealed:
            if is_last:
                return self.size - self.position
            raise Damaged(name, self.position, "octets follow the footer")
        later = self.next_block()
        witness = later
        while witness is not None and witness.header.durable_lsn <= self.lsn:
            witness = self.next_block(witness.offset)
        if witness is not None:
            assert later is not None
            raise Damaged(
                name, self.position, f"a bad block; records {self.lsn} to {later.header.base_lsn - 1} are lost"
            )
        if not is_last:
            raise Damaged(name, self.position, f"a bad block; records from {self.lsn} on are lost")
        return self.size - self.position


def _is_sane(block: Block) -> bool:
    """Whether the block is not a gap, or a gap that ends after its begin."""
    header = block.header
    return not header.flags & IS_GAP or (header.heap_size >= 8 and block.end_lsn > header.base_lsn)


def agreed_lsn(files: ReadableFiles, directory: str) -> int:
    """The highest durable LSN that a whole block states; in a cluster that is the agreed LSN. 0: there is none.

    The newest segment with a whole block suffices: its head states the highest durable LSN of older ones. O(segment).
    """
    for base_lsn in reversed(segments_in(files, directory)):
        with opened(files, directory, base_lsn) as handle:
            scan = SegmentScan(files, handle, base_lsn)
            for _ in scan:
                pass
            if scan.position:
                return scan.durable_lsn
    return 0
