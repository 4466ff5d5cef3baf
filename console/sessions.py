"""Sessions of the page's users: a signed token in a cookie, which outlives a restart of the broker.

A token has the user's name, the start of the session, and the time at which it was issued. The signature also covers
the hash of the user's password, so that a new password, or a new user of that name, ends the session. A logout revokes
the session.
Source: management page 20.
"""

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from ..engine import MS, Broker, User
from .session_file import SessionFile

COOKIE = "leveret-session"
HOUR_NS = 3_600_000_000_000
LIFETIME_NS, IDLE_NS = 8 * HOUR_NS, HOUR_NS
#: Maximum sessions whose last use is remembered. Other sessions count as used when their token was issued.
SESSIONS_MAX = 1_000
#: Age from which a token is replaced. How far in the future a token may have been issued, since clocks can be set back.
RENEWED_MS, SKEW_MS = 600_000, 60_000
_OCTETS = 16


@dataclass(slots=True, frozen=True)
class _Token:
    """The signed part of a cookie. Times are wall times."""

    user: str
    began_ms: int
    issued_ms: int
    id: str

    @property
    def expires_ms(self) -> int:
        """The end of the session, even if it is used until then."""
        return self.began_ms + LIFETIME_NS // MS

    def text(self) -> str:
        return f"{urlsafe_b64encode(self.user.encode()).decode()}.{self.began_ms}.{self.issued_ms}.{self.id}"


@dataclass(slots=True)
class _Session:
    """A session in memory. Times are monotonic."""

    began_ns: int
    used_ns: int


class Sessions:
    """Opens, finds and closes the sessions of a console. `header`, `host`: the headers `cookie` and `host`."""

    def __init__(
        self,
        now_ns: Callable[[], int],
        broker: Callable[[], Broker],
        directory: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`directory`: returns that of the journal; None: there is no journal."""
        self._now_ns = now_ns
        self._broker = broker
        self._directory = directory
        self._known: dict[str, _Session] = {}

    @cached_property
    def _file(self) -> SessionFile:
        return SessionFile(self._directory())

    def open(self, user: User, path: str, *, host: str = "", is_secure: bool = False) -> str:
        """Open a session. Returns the cookie with its token.

        `path`: the cookie's scope. `is_secure`: browsers send it only over TLS.
        """
        now_ms = self._wall_ms()
        token = _Token(user.name, now_ms, now_ms, secrets.token_urlsafe(_OCTETS))
        self._file.write()  # before the first cookie
        self._remember(token, _Session(self._now_ns(), self._now_ns()))
        return self._cookie(token, user, path, host, is_secure=is_secure)

    def find(self, header: str | None, host: str = "", *, is_attended: bool = True) -> User | None:
        """The user of a request's session; None: there is no valid one. `is_attended`: the request extends it."""
        found = self._valid(header, host)
        if found is None:
            return None
        token, session, user = found
        if is_attended:
            session.used_ns = self._now_ns()
            self._remember(token, session)
        return user

    def renewed(self, header: str | None, path: str, host: str = "", *, is_secure: bool = False) -> str | None:
        """A cookie with a new token for the session; None: the present one is new enough, or not valid."""
        found = self._valid(header, host)
        if found is None or self._wall_ms() - found[0].issued_ms < RENEWED_MS:
            return None
        token, _, user = found
        return self._cookie(replace(token, issued_ms=self._wall_ms()), user, path, host, is_secure=is_secure)

    def close(self, header: str | None, path: str, host: str = "") -> str:
        """Revoke a session. Returns a cookie that deletes the one in the browser."""
        found = self._valid(header, host)
        if found is not None:
            token = found[0]
            self._known.pop(token.id, None)
            self._file.revoke(token.user, token.id, token.expires_ms, self._wall_ms())
        return f"{cookie_name(host)}=; Path={path}; HttpOnly; SameSite=Strict; Max-Age=0"

    def _valid(self, header: str | None, host: str) -> tuple[_Token, _Session, User] | None:
        token, signature = _parsed(_value_of(header, host))
        user = None if token is None else self._broker().users.find(token.user)
        if token is None or user is None or not hmac.compare_digest(signature, self._signature(token, user)):
            return None
        if self._file.is_revoked(token.user, token.id, token.expires_ms):
            return None
        now_ns, now_ms = self._now_ns(), self._wall_ms()
        session = self._known.get(token.id)
        if session is None and token.issued_ms <= now_ms + SKEW_MS:  # the broker has restarted, or has forgotten it
            began_ns, issued_ns = (now_ns - (now_ms - at_ms) * MS for at_ms in (token.began_ms, token.issued_ms))
            session = _Session(began_ns, issued_ns)
        if session is None or now_ns - session.began_ns > LIFETIME_NS or now_ns - session.used_ns > IDLE_NS:
            return None
        return token, session, user

    def _remember(self, token: _Token, session: _Session) -> None:
        if token.id not in self._known and len(self._known) >= SESSIONS_MAX:
            del self._known[next(iter(self._known))]
        self._known[token.id] = session

    def _signature(self, token: _Token, user: User) -> str:
        signed = f"{token.text()} {user.password.text()}"
        return urlsafe_b64encode(hmac.digest(self._file.key, signed.encode(), "sha256")).decode().rstrip("=")

    def _cookie(self, token: _Token, user: User, path: str, host: str, *, is_secure: bool) -> str:
        value = f"{token.text()}.{self._signature(token, user)}"
        left_s = (token.expires_ms - self._wall_ms()) // 1000
        secure = "; Secure" if is_secure else ""
        return f"{cookie_name(host)}={value}; Path={path}; HttpOnly; SameSite=Strict; Max-Age={left_s}{secure}"

    def _wall_ms(self) -> int:
        return self._broker().context.clock.wall_ms()


def cookie_name(host: str) -> str:
    """The name of the cookie for a header `host`.

    It contains the port: browsers send a cookie to all ports of a host, so two consoles on one host would overwrite
    each other's cookies.
    """
    port = host.rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isascii() and port.isdigit() else COOKIE


def _value_of(header: str | None, host: str) -> str:
    """The value of the session's cookie; "": there is none."""
    wanted = cookie_name(host)
    for part in (header or "").split(";"):
        name, equals, value = part.strip().partition("=")
        if name == wanted and equals:
            return value
    return ""


def _parsed(text: str) -> tuple[_Token | None, str]:
    """The token in a text, and its signature, which is not checked here; None: the text has none."""
    try:
        user, began, issued, id_, signature = text.split(".")
        if not (text.isascii() and began.isdigit() and issued.isdigit() and len(began + issued) < 40):
            return None, ""
        return _Token(urlsafe_b64decode(user).decode(), int(began), int(issued), id_), signature
    except ValueError:
        return None, ""
