"""Jobs that the broker's thread gives to the writer's thread, which does them in order. `size`: octets to write."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..format.block import HEADER_SIZE, BlockBuilder


@dataclass(slots=True)
class Roll:
    """Seal the segment and begin another with this block."""

    ts_us: int
    head: BlockBuilder
    checkpoint: tuple[int, int]

    @property
    def size(self) -> int:
        """Octets of the head."""
        return self.head.size


@dataclass(slots=True)
class Unlink:
    """Segments to delete."""

    base_lsns: Sequence[int]
    size: int = 0


@dataclass(slots=True)
class Tick:
    """An empty block that carries the durable LSN to readers."""

    size: int = HEADER_SIZE


@dataclass(slots=True)
class Hold:
    """Fill the reserve if the disk has room for it."""

    size: int = 0


Job = BlockBuilder | Roll | Unlink | Tick | Hold
