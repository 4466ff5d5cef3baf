"""What makes guessing passwords slow: logins that failed are counted, by user and origin, whatever the protocol. Pure.

The first few cost nothing. After each further one nobody's password is looked at for a while, the right one as little
as a wrong one, so that the answer tells nothing. Only logins of that user from there are refused: others stay free, and
the user is from elsewhere. Source: management page 20.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..clock import MS

#: Failures in a row that cost nothing.
FREE_FAILURES = 5
#: How long nothing is looked at after the next one; it doubles with each more, up to the second.
FIRST_NS, LONGEST_NS = 200 * MS, 5_000 * MS
#: After so long without a failure all are forgotten.
FORGOTTEN_NS = 15 * 60_000 * MS
#: Pairs of user and origin that are remembered, those that failed last; names of one origin, which count together when
#: there are more; and characters of a name.
REMEMBERED_MAX, NAMES_MAX, NAME_MAX = 10_000, 100, 64
_OTHERS = "\0others"

_Key = tuple[str, str]


@dataclass(slots=True)
class _Failures:
    count: int
    last_ns: int

    def over_ns(self) -> int:
        """When the next password is looked at."""
        over = self.count - FREE_FAILURES
        return self.last_ns + (0 if over <= 0 else min(LONGEST_NS, FIRST_NS << min(over - 1, 30)))


class LoginBrake:
    """`now_ns`: monotonic. All methods O(1)."""

    __slots__ = ("_failures", "_names", "_now_ns")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._failures: dict[_Key, _Failures] = {}  # that which failed last stands last
        self._names: dict[str, int] = {}  # of each origin

    def __len__(self) -> int:
        return len(self._failures)

    def wait_ns(self, name: str, origin: str) -> int:
        """How long no password of the user is looked at; 0: one is."""
        found = self._failures.get(self._key(name, origin))
        return 0 if found is None else max(0, found.over_ns() - self._now_ns())

    def failed(self, name: str, origin: str) -> None:
        """A password was wrong, or there is no such user: nobody learns which."""
        key, now_ns = self._key(name, origin), self._now_ns()
        found = self._forget(key)
        is_old = found is None or now_ns - found.last_ns > FORGOTTEN_NS
        self._failures[key] = _Failures(1 if found is None or is_old else found.count + 1, now_ns)
        self._names[origin] = self._names.get(origin, 0) + 1
        if len(self._failures) > REMEMBERED_MAX:
            self._forget(next(iter(self._failures)))

    def succeeded(self, name: str, origin: str) -> None:
        """The password was right, and looked at."""
        key = self._key(name, origin)
        if key[1] != _OTHERS:  # or whoever guesses would end it with a name of his own
            self._forget(key)

    def _key(self, name: str, origin: str) -> _Key:
        key = (origin, name[:NAME_MAX])
        return key if key in self._failures or self._names.get(origin, 0) < NAMES_MAX else (origin, _OTHERS)

    def _forget(self, key: _Key) -> _Failures | None:
        found = self._failures.pop(key, None)
        if found is not None:
            origin = key[0]
            self._names[origin] -= 1
            if not self._names[origin]:
                del self._names[origin]
        return found
