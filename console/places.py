"""Connections of a kind of listener: who has a place, and who loses it when a newcomer needs one. Pure.

A connection that waits for its peer costs a socket and nothing else, so the oldest of them makes room: of the
newcomer's own address if that has its share, otherwise of the address that has most. One that is at work, or streams,
keeps its place: of these there are few. Source: management page 20.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class NoPlace(Exception):
    """Nobody can make room; the message is for the log."""


class Place:
    """One connection's. `end`: closes it, when another needs the place."""

    __slots__ = ("_places", "end", "origin")

    def __init__(self, places: "Places", origin: str, end: Callable[[], None]) -> None:
        self._places = places
        self.origin = origin
        self.end = end

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Nobody takes it meanwhile."""
        self._places.move(self, is_waiting=False)
        try:
            yield
        finally:
            self._places.move(self, is_waiting=True)

    def leave(self) -> None:
        """The connection is over. Idempotent."""
        self._places.forget(self)


class Places:
    """All of them. `share`: what one address may have, unless it is this machine's or a listed proxy's."""

    def __init__(self, share: int) -> None:
        self._share = share
        self._waiting: dict[Place, None] = {}  # in the order in which they began to wait
        self._working: dict[Place, None] = {}

    def enter(self, origin: str, end: Callable[[], None], *, places: int, is_shared: bool) -> Place:
        """A newcomer's place, perhaps that of another. `is_shared`: by many who come from one address.

        Raises: NoPlace.
        """
        everybody = [*self._waiting, *self._working]
        mine = sum(one.origin == origin for one in everybody)
        if mine >= self._share and not is_shared:
            self._take(origin, f"{mine} connections from {origin} are at work")
        elif len(everybody) >= places:
            counts: dict[str, int] = {}
            for one in self._waiting:
                counts[one.origin] = counts.get(one.origin, 0) + 1
            self._take(max(counts, key=counts.__getitem__, default=""), f"{len(everybody)} connections are at work")
        place = Place(self, origin, end)
        self._waiting[place] = None
        return place

    def _take(self, origin: str, why: str) -> None:
        oldest = next((one for one in self._waiting if one.origin == origin), None)
        if oldest is None:
            raise NoPlace(why)
        del self._waiting[oldest]
        oldest.end()

    def move(self, place: Place, *, is_waiting: bool) -> None:
        """It begins to wait, or to work; nothing if it has lost its place."""
        here, there = (self._working, self._waiting) if is_waiting else (self._waiting, self._working)
        if place in here:
            del here[place]
            there[place] = None

    def forget(self, place: Place) -> None:
        """It is over. Idempotent."""
        self._waiting.pop(place, None)
        self._working.pop(place, None)
