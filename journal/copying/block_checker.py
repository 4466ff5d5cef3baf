"""Checks the octets of a segment block by block, however they are cut into pieces."""

from zlib import crc32

from ..format.block import HEADER, HEADER_SIZE, IS_FOOTER, IS_GAP, IS_HEAD, MAGIC, Block, Header
from ..format.errors import BadOctets


class BlockChecker:
    """Takes the octets of one segment in any pieces, and checks each block when it is whole.

    `lsn`: after the last whole block; `size`: octets up to its end. `record_size`: as `size`, without the ticks at the
    end. `is_sealed`: the last block was the footer. `taken`: octets taken so far, including an incomplete block.
    """

    __slots__ = ("_crc", "_gap", "_header", "_head", "is_sealed", "lsn", "record_size", "size", "taken")

    def __init__(self, lsn: int, size: int = 0, record_size: int = 0) -> None:
        self.lsn = lsn
        self.size = self.taken = size
        self.record_size = record_size
        self.is_sealed = False
        self._head = b""  # the octets of the incomplete block's header, ...
        self._header: Header | None = None  # ... and the header, once it is whole
        self._crc = 0
        self._gap = b""  # octets of a gap, which are needed to learn where it ends

    def copy(self) -> "BlockChecker":
        """A copy of the current state."""
        other = BlockChecker(self.lsn)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def take(self, octets: memoryview) -> None:
        """Check the next octets. Raises: BadOctets; after that the checker must not be used."""
        position, end = 0, len(octets)
        while position < end:
            if self.is_sealed:
                raise BadOctets(f"octets behind the footer of a segment, at {self.taken}")
            if self.taken == self.size and end - position >= HEADER_SIZE:
                header = Header._make(HEADER.unpack_from(octets, position))
                self._check_header(header)
                behind = position + header.size
                if behind <= end:  # the usual case: `octets` have the whole block
                    crc = crc32(octets[position + 4 : behind])
                    self.taken += header.size
                    self._end_block(header, crc, octets[position:behind])
                    position = behind
                    continue
            position += self._take_part(octets[position:])

    def _take_part(self, octets: memoryview) -> int:
        """Take octets of one block that is not whole yet. Returns how many."""
        if self._header is None:
            piece = octets[: HEADER_SIZE - len(self._head)]
            self._head += bytes(piece)
            self.taken += len(piece)
            if len(self._head) == HEADER_SIZE:
                self._header = header = Header._make(HEADER.unpack(self._head))
                self._check_header(header)
                self._crc = crc32(self._head[4:])
                if header.flags & IS_GAP:
                    self._gap = self._head
                if header.size == HEADER_SIZE:
                    self._end_block(header, self._crc, memoryview(self._head))
            return len(piece)
        header = self._header
        piece = octets[: self.size + header.size - self.taken]
        self.taken += len(piece)
        self._crc = crc32(piece, self._crc)
        if header.flags & IS_GAP:
            self._gap += bytes(piece)
        if self.taken == self.size + header.size:
            self._end_block(header, self._crc, memoryview(self._gap))
        return len(piece)

    def _check_header(self, header: Header) -> None:
        """Raises: BadOctets."""
        if header.magic != MAGIC:
            raise BadOctets(f"no block begins at {self.size}")
        if header.base_lsn != self.lsn:
            raise BadOctets(f"a block that begins with record {header.base_lsn}, not {self.lsn}, at {self.size}")
        if bool(header.flags & IS_HEAD) != (self.size == 0):
            raise BadOctets(f"a segment's head block that is missing or not the first, at {self.size}")
        if header.flags & IS_GAP and header.heap_size < 8:
            raise BadOctets(f"a gap without an end, at {self.size}")

    def _end_block(self, header: Header, crc: int, data: memoryview) -> None:
        """Take the end of a block. `data`: the whole block; used only for a gap. Raises: BadOctets."""
        if crc != header.crc:
            raise BadOctets(f"a block with a wrong CRC, at {self.size}")
        end_lsn = header.base_lsn + header.record_count
        if header.flags & IS_GAP:
            end_lsn = Block(self.size, header, data).end_lsn
            if end_lsn <= self.lsn:
                raise BadOctets(f"a gap that ends before it begins, at {self.size}")
        is_tick = end_lsn == self.lsn
        self.lsn = end_lsn
        self.size = self.taken
        if not is_tick:
            self.record_size = self.size
        self.is_sealed = bool(header.flags & IS_FOOTER)
        self._head, self._header, self._gap = b"", None, b""
