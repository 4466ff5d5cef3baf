"""Slows the guessing of passwords: counts failed logins by user and origin, over all protocols. Pure.

The first failures cost nothing. After each further one, logins of this user from this origin are refused for a while
without comparing the password, so that the refusal reveals nothing. The user from other origins is not affected, nor
are other users, unless one origin tries more than `NAMES_MAX` names. Source: management page 20.
"""

from collections.abc import Callable
from ipaddress import IPv6Address

from ...settings.slotted import slotted
from ..clock import MS

#: Number of failures in a row without a delay.
FREE_FAILURES = 5
#: The delay after the next failure; it doubles with each further one, up to `LONGEST_NS`.
FIRST_NS, LONGEST_NS = 200 * MS, 5_000 * MS
#: The failures of a pair are forgotten after this time without another one.
FORGOTTEN_NS = 15 * 60_000 * MS
#: Maximum pairs of user and origin that are remembered; the latest stay.
REMEMBERED_MAX = 10_000
#: Maximum names of one origin; further ones share one count.
NAMES_MAX = 100
#: Maximum characters of a name that are remembered.
NAME_MAX = 64
_OTHERS = "\0others"
#: The origin of peers over loopback or a Unix socket.
THIS_MACHINE = "this machine"

_Key = tuple[str, str]


@slotted
class _Failures:
    """Failed logins in a row, and the time of the last one."""

    count: int
    last_ns: int

    def delay_end_ns(self) -> int:
        """The end of the delay, in monotonic ns."""
        beyond = self.count - FREE_FAILURES
        return self.last_ns + (0 if beyond <= 0 else min(LONGEST_NS, FIRST_NS << min(beyond - 1, 30)))


class LoginThrottle:
    """Counts failed logins and computes delays. `now_ns`: monotonic.

    All methods are O(1), except `failed` when it drops the oldest pair: O(REMEMBERED_MAX).
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._failures: dict[_Key, _Failures] = {}  # the latest failure last
        self._names: dict[str, int] = {}  # number of names by origin

    def __len__(self) -> int:
        return len(self._failures)

    def wait_ns(self, name: str, origin: str) -> int:
        """The rest of the user's delay in ns; 0: the password may be compared."""
        found = self._failures.get(self._key(name, origin))
        return 0 if found is None else max(0, found.delay_end_ns() - self._now_ns())

    def failed(self, name: str, origin: str) -> None:
        """Count a failure: an unknown user, a wrong password, or a user that may not log in from there.

        The peer cannot distinguish them.
        """
        key, now_ns = self._key(name, origin), self._now_ns()
        found = self._forget(key)
        is_old = found is None or now_ns - found.last_ns > FORGOTTEN_NS
        self._failures[key] = _Failures(1 if found is None or is_old else found.count + 1, now_ns)
        self._names[origin] = self._names.get(origin, 0) + 1
        if len(self._failures) > REMEMBERED_MAX:
            self._forget(next(iter(self._failures)))

    def succeeded(self, name: str, origin: str) -> None:
        """Forget the failures of a user whose password was right, but not the count that names share."""
        key = self._key(name, origin)
        if key[1] != _OTHERS:  # otherwise one valid account would clear the shared count
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


def address_origin(host: str, *, is_loopback: bool) -> str:
    """The origin of a peer, by which failed logins are counted.

    An IPv4 address, or the /64 network of an IPv6 address, which usually has one owner. All loopback addresses are
    `THIS_MACHINE`. A host that is not an IP address is its own origin.
    """
    if is_loopback:
        return THIS_MACHINE
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"
