"""The temp store of a simulated broker: octets in memory that are gone with its process. See `engine.TempStore`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from leveret.engine import Location

from .ledger import Broken


class Chunk:
    """What was put there at once. `live`: octets that somebody will ask for."""

    __slots__ = ("live", "octets")

    def __init__(self, octets: bytes) -> None:
        self.octets = octets
        self.live = len(octets)


class SimulatedTempStore:
    """`has_room`: whether the disk takes anything. What nobody asks for any more is forgotten at once."""

    def __init__(self, has_room: Callable[[], bool], happened: Counter[str]) -> None:
        self.limit = 0
        self.used = 0
        self.on_change: Callable[[int], object] = lambda used: None
        self.has_failed = False
        self._has_room = has_room
        self._happened = happened

    def spool(self, contents: Sequence[bytes]) -> Location | None:
        octets = b"".join(contents)
        if 0 < self.limit <= self.used:
            self._happened["temp store: at its limit"] += 1
            return None
        if not self._has_room():
            self._happened["temp store: disk full"] += 1
            self.has_failed = True
            return None
        self._happened["temp store: spooled"] += 1
        self.has_failed = False
        self._count(len(octets))
        return Location(Chunk(octets), 0)

    def unspool(self, location: Location, size: int) -> bytes:
        """See `TempStore`. Raises: Broken, if nobody may ask for that any more."""
        chunk = location.chunk
        assert isinstance(chunk, Chunk)
        found = chunk.octets[location.offset : location.offset + size]
        if len(found) != size:
            raise Broken(f"{size} octets are asked for that are not in the temp store")
        self._happened["temp store: read back"] += 1
        return found

    def release(self, location: Location, size: int) -> None:
        """See `TempStore`. Raises: Broken, if that was released before."""
        chunk = location.chunk
        assert isinstance(chunk, Chunk)
        chunk.live -= size
        if chunk.live < 0:
            raise Broken("octets of the temp store were released twice")
        if not chunk.live:
            chunk.octets = b""
        self._count(-size)

    def close(self) -> None:
        self.used = 0

    def _count(self, octets: int) -> None:
        if octets:
            self.used += octets
            self.on_change(self.used)
