"""The temp store of a simulated broker: the product's, whose files are in memory and are gone with its process."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

from leveret.engine import Location
from leveret.journal.recording.temp_store import Chunk, FileTempStore

from .ledger import Broken

#: So small that worlds come to the next chunk.
CHUNK_SIZE = 3000


class _File(BytesIO):
    def __init__(self, has_room: Callable[[], bool]) -> None:
        super().__init__()
        self._has_room = has_room

    def write(self, octets: Any) -> int:
        if not self._has_room():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(octets)


class SimulatedTempStore(FileTempStore):
    """`has_room`: whether the disk takes anything."""

    def __init__(self, has_room: Callable[[], bool], happened: Counter[str]) -> None:
        super().__init__(chunk_size=CHUNK_SIZE)
        self._has_room = has_room
        self._happened = happened

    def _new_chunk(self) -> Chunk:
        chunk = Chunk.__new__(Chunk)
        chunk.file, chunk.size, chunk.live = _File(self._has_room), 0, 0  # type: ignore[assignment]
        return chunk

    def spool(self, contents: Sequence[bytes]) -> Location | None:
        """See `TempStore`. Raises: Broken, if it takes something above its limit."""
        is_full = 0 < self.limit <= self.used
        location = super().spool(contents)
        if is_full and location is not None:
            raise Broken(f"the temp store took something with {self.used} octets in it, its limit is {self.limit}")
        what = "spooled" if location is not None else "at its limit" if is_full else "disk full"
        self._happened[f"temp store: {what}"] += 1
        return location

    def unspool(self, location: Location, size: int) -> bytes:
        self._happened["temp store: read back"] += 1
        return super().unspool(location, size)

    def check(self) -> None:
        """Its files are those of which somebody needs something, and the last one. Raises: Broken."""
        if idle := [chunk for chunk in self._open if not chunk.live and chunk is not self._chunk]:
            raise Broken(f"{len(idle)} files of the temp store are open, and nobody needs anything of them")
        if (live := sum(chunk.live for chunk in self._open)) != self.used:
            raise Broken(f"{live} octets of the temp store are needed, and {self.used} are counted")
