"""The routes that lead through an exchange, so that a change of its bindings makes only the affected routes stale.

Frontends own the routes; this file has weak references to them. The caches of the frontends limit their number.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import Any, Protocol
from weakref import ref

from .topic import normalised, split


class RegisteredRoute(Protocol):
    """The result of a look-up of a routing key. It is valid until `is_stale` is set."""

    routing_key: str
    is_stale: bool


class Registration(ref[RegisteredRoute]):
    """A weak reference to a route. `through`: the registries of the exchanges on its way."""

    __slots__ = ("routing_key", "through")
    __eq__ = object.__eq__
    __hash__ = object.__hash__  # by identity: the route's own hash is lost when the route is freed

    def __new__(cls, route: RegisteredRoute, through: "Iterable[RouteRegistry]") -> "Registration":
        return super().__new__(cls, route, _route_freed)

    def __init__(self, route: RegisteredRoute, through: "Iterable[RouteRegistry]") -> None:
        self.routing_key = route.routing_key
        self.through = tuple(through)


class RouteRegistry:
    """The routes of one exchange: those that begin there, one for each routing key, and those that pass through it.

    A route that is valid only for some publishers counts as passing, also where it begins.
    """

    __slots__ = ("_beginning", "_passing")

    def __init__(self) -> None:
        self._beginning: dict[str, Registration] = {}
        self._passing: dict[str, dict[Registration, None]] = {}

    def __len__(self) -> int:
        return len(self._beginning) + sum(map(len, self._passing.values()))

    def find(self, routing_key: str) -> RegisteredRoute | None:
        """The valid route with this key that begins here; None: no frontend has one."""
        found = self._beginning.get(routing_key)
        route = None if found is None else found()
        return None if route is None or route.is_stale else route

    def register(self, route: RegisteredRoute, others: "Iterable[RouteRegistry]", *, is_shared: bool = True) -> None:
        """Add a route that begins here and leads through others. `is_shared`: `find` returns it."""
        registration = Registration(route, (self, *others))
        if is_shared:
            self._beginning[route.routing_key] = registration
            self._key_added(route.routing_key)
        for registry in registration.through[is_shared:]:
            registry._passing.setdefault(route.routing_key, {})[registration] = None
            registry._key_added(route.routing_key)

    def forget(self, routing_key: str) -> None:
        """Make the routes with this key stale. O(these routes)."""
        found = self._beginning.pop(routing_key, None)
        passing = self._passing.pop(routing_key, None)
        if found is not None:
            _make_stale(found)
        for one in passing or ():
            _make_stale(one)
        if found is not None or passing:
            self._key_removed(routing_key)

    def forget_all(self) -> None:
        """Make all routes stale. O(routes looked up since the last call)."""
        beginning, self._beginning = self._beginning, {}
        passing, self._passing = self._passing, {}
        for found in beginning.values():
            _make_stale(found)
        for same_key in passing.values():
            for found in same_key:
                _make_stale(found)

    def drop(self, registration: Registration) -> None:
        """Remove the registration of a route that was freed."""
        key = registration.routing_key
        if self._beginning.get(key) is registration:
            del self._beginning[key]
        passing = self._passing.get(key)
        if passing is not None:
            passing.pop(registration, None)
            if not passing:
                del self._passing[key]
        if key not in self._beginning and key not in self._passing:
            self._key_removed(key)

    def _key_added(self, routing_key: str) -> None:
        """Called when a route with this key was registered."""

    def _key_removed(self, routing_key: str) -> None:
        """Called when the last route with this key was removed."""


def _make_stale(registration: Registration) -> None:
    route = registration()
    if route is not None:
        route.is_stale = True


def _route_freed(registration: Any) -> None:
    for registry in registration.through:
        registry.drop(registration)


#: Number of words of a key, from the first, that are indexed. Limits the cost of one route.
WORDS_MAX = 8


class TopicRouteRegistry(RouteRegistry):
    """Indexes its keys by word and position, so that a new pattern makes only routes stale that it may match."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[tuple[int, str], dict[str, None]] = {}  # by (position, word)

    def forget_pattern(self, pattern: str) -> None:
        """Make the routes stale that a pattern may match, and perhaps others. O(words + these routes)."""
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

    def _key_added(self, routing_key: str) -> None:
        for place in enumerate(split(routing_key)[:WORDS_MAX]):
            self._keys.setdefault(place, {})[routing_key] = None

    def _key_removed(self, routing_key: str) -> None:
        for place in enumerate(split(routing_key)[:WORDS_MAX]):
            keys = self._keys.get(place)
            if keys is not None:
                keys.pop(routing_key, None)
                if not keys:
                    del self._keys[place]
