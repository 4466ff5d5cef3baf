"""The file of the page's sessions: the key that signs tokens, and the sessions that a logout has revoked.

It is in the journal's directory. Without a journal key and sessions are in memory, and a restart ends all sessions.
Source: management page 20.
"""

import json
import logging
import os
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass, field

logger = logging.getLogger("leveret.console")

FILE = "sessions"
_KEY_OCTETS = 32
#: Maximum revoked sessions of a user that are remembered one by one.
REVOKED_MAX = 100
#: Stands for the user of sessions in files of older releases, which did not record users.
_UNKNOWN_USER = ""


@dataclass(slots=True)
class _Revoked:
    """The revoked sessions of one user. Times are wall times (ms) at which sessions would have expired.

    `sessions`: id -> time. `expiring_until_ms`: each session of the user that expires by then is revoked. This time
    replaces entries beyond `REVOKED_MAX`: no logout is forgotten, but older sessions of the user end, too.
    """

    sessions: dict[str, int] = field(default_factory=dict)
    expiring_until_ms: int = 0

    def add(self, id_: str, expires_ms: int) -> None:
        self.sessions[id_] = expires_ms
        if len(self.sessions) > REVOKED_MAX:
            earliest = min(self.sessions, key=self.sessions.__getitem__)
            self.expiring_until_ms = max(self.expiring_until_ms, self.sessions.pop(earliest))

    def forget_expired(self, now_ms: int) -> bool:
        """Forget the sessions that have expired. Returns whether anything is still revoked."""
        self.sessions = {id_: expires_ms for id_, expires_ms in self.sessions.items() if expires_ms > now_ms}
        return bool(self.sessions)  # none of these expires before `expiring_until_ms`


class SessionFile:
    """Reads and writes the file. `key`: signs tokens."""

    def __init__(self, directory: str | None) -> None:
        self._path = None if directory is None else os.path.join(directory, FILE)
        found = self._read()
        self.key, self._revoked = found or (secrets.token_bytes(_KEY_OCTETS), {})
        self._is_written = found is not None

    def _read(self) -> tuple[bytes, dict[str, _Revoked]] | None:
        """The key, and the revoked sessions by user; None: there is no file, or it cannot be used."""
        if self._path is None:
            return None
        try:
            with open(self._path, encoding="ascii") as file:
                given = json.load(file)
            key = urlsafe_b64decode(given["key"])
            if len(key) != _KEY_OCTETS:
                raise ValueError("the key is incomplete")
            return key, _revoked_in(given["revoked"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("%s: %s; all sessions of the page end", self._path, error)
            return None

    def is_revoked(self, user: str, id_: str, expires_ms: int) -> bool:
        """Whether a logout has ended a session of this user. `expires_ms`: when the session would expire."""
        of_user = self._revoked.get(user)
        if of_user is not None and (id_ in of_user.sessions or expires_ms <= of_user.expiring_until_ms):
            return True
        return _UNKNOWN_USER in self._revoked and id_ in self._revoked[_UNKNOWN_USER].sessions

    def revoke(self, user: str, id_: str, expires_ms: int, now_ms: int) -> None:
        """Note that a logout has ended a session. `expires_ms`: when the session would expire."""
        self._revoked = {name: one for name, one in self._revoked.items() if one.forget_expired(now_ms)}
        self._revoked.setdefault(user, _Revoked()).add(id_, expires_ms)
        self._is_written = False
        self.write()

    def write(self) -> None:
        """Write the file, unless it is up to date. Only its owner can read it.

        If that fails, a restart ends all sessions. The event loop would wait for an fsync, so there is none: a power
        failure may undo a logout.
        """
        if self._path is None or self._is_written:
            return
        revoked = {user: asdict(one) for user, one in self._revoked.items()}
        text = json.dumps({"key": urlsafe_b64encode(self.key).decode(), "revoked": revoked})
        new = f"{self._path}.new"
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
                file.write(text + "\n")
            os.replace(new, self._path)
            self._is_written = True
        except OSError as error:
            logger.warning("%s: %s; a restart ends the sessions of the page", self._path, error)


def _revoked_in(given: dict[str, object]) -> dict[str, _Revoked]:
    """The revoked sessions by user, from the file. Older releases wrote id -> expiry, for all users together."""
    found: dict[str, _Revoked] = {}
    for name, value in given.items():
        if isinstance(value, dict):
            sessions = {str(id_): int(expires_ms) for id_, expires_ms in value["sessions"].items()}
            found[name] = _Revoked(sessions, int(value["expiring_until_ms"]))
        else:
            found.setdefault(_UNKNOWN_USER, _Revoked()).sessions[name] = int(value)  # type: ignore[call-overload]
    return found
