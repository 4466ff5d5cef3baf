"""The key that signs sessions, and the sessions that were ended before their time: in a file beside the journal.

Without a journal both are in memory, and a restart ends all sessions. Source: management page 20.
"""

import json
import logging
import os
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode

logger = logging.getLogger("leveret.console")

FILE = "sessions"
_OCTETS = 32
#: Maximum revoked sessions that are remembered; with more, those that end first by themselves are forgotten.
REVOKED_MAX = 1_000


class SessionFile:
    """`key`: signs; `revoked`: id of a session -> wall time (ms) at which it would have ended by itself."""

    def __init__(self, directory: str | None) -> None:
        self._path = None if directory is None else os.path.join(directory, FILE)
        found = self._read()
        self.key, self.revoked = found or (secrets.token_bytes(_OCTETS), {})
        self._is_kept = found is not None

    def _read(self) -> tuple[bytes, dict[str, int]] | None:
        """What the file has; None: there is none that can be used."""
        if self._path is None:
            return None
        try:
            with open(self._path, encoding="ascii") as file:
                given = json.load(file)
            key, revoked = urlsafe_b64decode(given["key"]), given["revoked"]
            if len(key) != _OCTETS or not isinstance(revoked, dict):
                raise ValueError("it is incomplete")
            return key, {str(one): int(until_ms) for one, until_ms in revoked.items()}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s: %s; all sessions of the page end", self._path, error)
            return None

    def revoke(self, id_: str, until_ms: int, now_ms: int) -> None:
        """End a session for good."""
        self.revoked = {one: end_ms for one, end_ms in self.revoked.items() if end_ms > now_ms} | {id_: until_ms}
        if len(self.revoked) > REVOKED_MAX:
            del self.revoked[min(self.revoked, key=self.revoked.__getitem__)]
        self._is_kept = False
        self.keep()

    def keep(self) -> None:
        """Write the file if need be, readable by its owner alone. If that fails, a restart ends the sessions.

        Without an fsync, for which the event loop would wait: after a power cut a logout may be lost.
        """
        if self._path is None or self._is_kept:
            return
        text = json.dumps({"key": urlsafe_b64encode(self.key).decode(), "revoked": self.revoked})
        new = f"{self._path}.new"
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
                file.write(text + "\n")
            os.replace(new, self._path)
            self._is_kept = True
        except OSError as error:
            logger.warning("%s: %s; a restart ends the sessions of the page", self._path, error)
