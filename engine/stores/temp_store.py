"""The temp store: bodies put aside on disk until somebody asks for them or the broker stops; one for the whole broker.

Deep queues put transient messages there, frontends the publishes that they hold. All of it is in one account.
Source: queues page E.1 (tempUsage), E.5, G.E E15, E16, E30.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from .paged_run import Place


class TempStore(Protocol):
    """Nothing in it survives the process. `unspool` reads files: not within a turn's budget."""

    #: Octets from which on nothing more is taken; 0: as many as the disk has room for. It may change at any time.
    limit: int
    #: Called with `used` whenever that has changed, within a turn.
    on_change: Callable[[int], object]
    #: The disk did not take what it was given last: it may take it later.
    has_failed: bool

    @property
    def used(self) -> int:
        """Octets that are in it and were not released."""

    def spool(self, blobs: Sequence[bytes]) -> Place | None:
        """Put blobs there, one behind the other; None: the limit is reached, or the disk has no room for them."""

    def unspool(self, place: Place, size: int) -> bytes:
        """So many octets from a place on: of what was put there, or a part of it. Raises: Unreadable."""

    def release(self, place: Place, size: int) -> None:
        """Nobody will ask for these octets again. Each is released once, in any parts."""

    def close(self) -> None:
        """All is given back; nobody asks for anything any more."""


class NoTempStore:
    """Has room for nothing: where a broker was given no disk."""

    __slots__ = ("has_failed", "limit", "on_change", "used")

    def __init__(self) -> None:
        self.limit = self.used = 0
        self.has_failed = False
        self.on_change: Callable[[int], object] = lambda used: None

    def spool(self, blobs: Sequence[bytes]) -> Place | None:
        return None

    def unspool(self, place: Place, size: int) -> bytes:
        raise AssertionError

    def release(self, place: Place, size: int) -> None:
        """See `TempStore`. Nothing is here: it was in one that is closed."""

    def close(self) -> None:
        pass
