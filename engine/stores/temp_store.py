"""The temp store of a broker: contents on disk until they are released or the broker stops.

It has transient messages of deep queues, and publishes that frontends park. Both count in `used`.
Source: queues page E.1 (tempUsage), E.5, G.E E15, E16, E30.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from .paged_run import Location


class TempStore(Protocol):
    """Files for messages that do not survive the process. `unspool` reads files, which may take longer than a turn."""

    #: Maximum octets; 0: limited by the disk only. It may change at any time.
    limit: int
    #: Called, within a turn, with `used` after each change.
    on_change: Callable[[int], object]
    #: The last write failed; a later one may succeed.
    has_failed: bool

    @property
    def used(self) -> int:
        """Octets that were spooled and not released."""

    def spool(self, contents: Sequence[bytes]) -> Location | None:
        """Store contents consecutively. None: the limit is reached, or the disk is full."""

    def unspool(self, location: Location, size: int) -> bytes:
        """Read `size` octets from a location. Raises: Unreadable."""

    def release(self, location: Location, size: int) -> None:
        """Free octets that are no longer needed: parts of any size, but each octet only once."""

    def close(self) -> None:
        """Free everything. No method may be called afterwards."""


class NoTempStore:
    """The temp store of a broker without a disk. It stores nothing."""

    def __init__(self) -> None:
        self.limit = self.used = 0
        self.has_failed = False
        self.on_change: Callable[[int], object] = lambda used: None

    def spool(self, contents: Sequence[bytes]) -> Location | None:
        return None

    def unspool(self, location: Location, size: int) -> bytes:
        raise AssertionError

    def release(self, location: Location, size: int) -> None:
        """Called only for locations in a store that was closed."""

    def close(self) -> None:
        pass
