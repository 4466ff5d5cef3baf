"""A pager and a temp store in memory, for tests of brokers without files that page messages out."""

from collections.abc import Callable, Sequence

from ..engine import NATIVE, Envelope, Event, Location, PublishedEvent, Unreadable


class MemoryPager:
    """The engine's `Pager`. `memory`: maximum octets of messages; `journal`: the readable messages by id."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.journal: dict[int, tuple[Envelope, bytes]] = {}
        self.is_broken = False

    def record(self, event: Event) -> None:
        """Make published messages readable, as a listener."""
        if isinstance(event, PublishedEvent):
            envelopes = [event.run] * len(event.contents) if isinstance(event.run, Envelope) else event.run
            self.journal.update(zip(event.messages, zip(envelopes, event.contents)))

    def budget(self) -> int:
        return self.memory // 2

    def has(self, id_: int) -> bool:
        return id_ in self.journal

    def load(self, ids: Sequence[int]) -> list[tuple[Envelope, list[bytes]]]:
        """See `Pager`. Neighbors with the same envelope are one run."""
        assert list(ids) == sorted(set(ids))
        if self.is_broken or not all(id_ in self.journal for id_ in ids):
            raise Unreadable("broken")
        runs: list[tuple[Envelope, list[bytes]]] = []
        for id_ in ids:
            envelope, content = self.journal[id_]
            if not runs or runs[-1][0] is not envelope.stored():
                runs.append((envelope.stored(), []))
            runs[-1][1].append(NATIVE.join(*envelope.framing.split(content)))
        return runs


class MemoryTempStore:
    """The engine's `TempStore`. `room`: maximum octets."""

    def __init__(self, room: int) -> None:
        self.limit = 0
        self.used = 0
        self.on_change: Callable[[int], object] = lambda used: None
        self.is_broken = self.has_failed = False
        self._room = room
        self._octets = b""

    def give_room(self, octets: int) -> None:
        """Change the maximum octets."""
        self._room = octets

    def spool(self, contents: Sequence[bytes]) -> Location | None:
        octets = b"".join(contents)
        self.has_failed = self.used + len(octets) > self._room
        if self.has_failed or 0 < self.limit <= self.used:
            return None
        location = Location(self, len(self._octets))
        self._octets += octets
        self.used += len(octets)
        self.on_change(self.used)
        return location

    def unspool(self, location: Location, size: int) -> bytes:
        if self.is_broken:
            raise Unreadable("broken")
        assert location.chunk is self
        assert location.offset + size <= len(self._octets)
        return self._octets[location.offset : location.offset + size]

    def release(self, location: Location, size: int) -> None:
        assert location.chunk is self
        self.used -= size
        assert self.used >= 0
        self.on_change(self.used)

    def close(self) -> None:
        pass
