"""The routes of a topic exchange, found by words of their keys: a new pattern makes only possible matches stale."""

from itertools import takewhile

from .route_memory import RouteMemory
from .topic import normalised, split

#: The number of leading words of a key that are indexed: limits the cost of one route.
WORDS_MAX = 8


class TopicRouteMemory(RouteMemory):
    """A `RouteMemory` with an index of its keys by word and position."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[tuple[int, str], dict[str, None]] = {}  # (place, word) -> keys that have it there

    def forget_pattern(self, pattern: str) -> None:
        """Make the routes stale that the pattern may match, and perhaps some others. O(words + these routes)."""
        start = takewhile(lambda word: word != "#", normalised(pattern)[:WORDS_MAX])
        places = [place for place in enumerate(start) if place[1] != "*"]
        if not places:
            self.forget_all()
            return
        candidates = min((self._keys.get(place, {}) for place in places), key=len)
        for key in list(candidates):
            self.forget(key)

    def forget_all(self) -> None:
        super().forget_all()
        self._keys.clear()

    def _note(self, routing_key: str) -> None:
        for place in enumerate(split(routing_key)[:WORDS_MAX]):
            self._keys.setdefault(place, {})[routing_key] = None

    def _drop_note(self, routing_key: str) -> None:
        for place in enumerate(split(routing_key)[:WORDS_MAX]):
            keys = self._keys.get(place)
            if keys is not None:
                keys.pop(routing_key, None)
                if not keys:
                    del self._keys[place]
