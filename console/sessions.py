"""Sessions of people who logged in by the page: an opaque name in a cookie.

Source: management page 20.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from ..engine import Broker, User

COOKIE = "leveret-session"
HOUR_NS = 3_600_000_000_000
LIFETIME_NS, IDLE_NS = 8 * HOUR_NS, HOUR_NS
SESSIONS_MAX = 1_000
_OCTETS = 32


@dataclass(slots=True)
class _Session:
    user: User
    began_ns: int
    used_ns: int


class Sessions:
    """The sessions, in memory: a restart ends them, and so does a change of the user or the password."""

    def __init__(self, now_ns: Callable[[], int], broker: Callable[[], Broker]) -> None:
        self._now_ns = now_ns
        self._broker = broker
        self._known: dict[str, _Session] = {}

    def open(self, user: User, path: str, *, host: str = "", is_secure: bool = False) -> str:
        """Open a session. Returns the cookie that names it. `path`: the cookie's scope. `host`: see `cookie_name`.
        `is_secure`: over TLS only.
        """
        if len(self._known) >= SESSIONS_MAX:
            del self._known[next(iter(self._known))]
        name = secrets.token_urlsafe(_OCTETS)
        now_ns = self._now_ns()
        self._known[name] = _Session(user, now_ns, now_ns)
        lifetime_s = LIFETIME_NS // 1_000_000_000
        secure = "; Secure" if is_secure else ""
        scope = f"Path={path}; HttpOnly; SameSite=Strict"
        return f"{cookie_name(host)}={name}; {scope}; Max-Age={lifetime_s}{secure}"

    def find(self, header: str | None, host: str = "") -> User | None:
        """The user of a request's headers `cookie` and `host`."""
        name = _named(header, host)
        session = None if name is None else self._known.get(name)
        if name is None or session is None:
            return None
        now_ns = self._now_ns()
        current = self._broker().users.find(session.user.name)
        is_over = now_ns - session.began_ns > LIFETIME_NS or now_ns - session.used_ns > IDLE_NS
        if is_over or current is None or current.password != session.user.password:
            del self._known[name]
            return None
        session.used_ns = now_ns
        return current

    def close(self, header: str | None, path: str, host: str = "") -> str:
        """End a session. Returns the cookie that removes its name."""
        name = _named(header, host)
        if name is not None:
            self._known.pop(name, None)
        return f"{cookie_name(host)}=; Path={path}; HttpOnly; SameSite=Strict; Max-Age=0"


def cookie_name(host: str) -> str:
    """The cookie's name for a `host` header. It has the port, which browsers ignore in the scope of a cookie: so that
    two consoles on one host do not end each other's sessions.
    """
    port = host.rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isascii() and port.isdigit() else COOKIE


def _named(header: str | None, host: str) -> str | None:
    wanted = cookie_name(host)
    for part in (header or "").split(";"):
        name, equals, value = part.strip().partition("=")
        if name == wanted and equals:
            return value
    return None
