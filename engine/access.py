"""Users: who may log in, from where, and into which virtual hosts.

Passwords are kept as salt + SHA-256, the format that RabbitMQ's definitions use (behaviour page 3.15).
"""

import hashlib
import hmac
from dataclasses import dataclass

from .errors import LoginRefused, VirtualHostRefused

SALT_SIZE = 4


def hash_password(password: str, salt: bytes) -> bytes:
    """Salt (4 octets) followed by SHA-256 of salt and password."""
    assert len(salt) == SALT_SIZE
    return salt + hashlib.sha256(salt + password.encode()).digest()


@dataclass(slots=True, frozen=True)
class User:
    """`password_hash` empty: no login by password. `vhosts` None: all of them."""

    name: str
    password_hash: bytes = b""
    tags: frozenset[str] = frozenset()
    loopback_only: bool = False
    vhosts: frozenset[str] | None = None

    @property
    def is_administrator(self) -> bool:
        """May rule the broker through its control table."""
        return "administrator" in self.tags

    def check_vhost(self, vhost: str) -> None:
        """Raises: VirtualHostRefused."""
        if self.vhosts is not None and vhost not in self.vhosts:
            raise VirtualHostRefused(vhost=vhost, user=self.name)


class Users:
    """All users by name."""

    __slots__ = ("_by_name",)

    def __init__(self, users: "list[User] | tuple[User, ...]" = ()) -> None:
        self._by_name = {user.name: user for user in users}

    def add(self, user: User) -> None:
        """Add or replace a user."""
        self._by_name[user.name] = user

    def log_in(self, name: str, password: str, *, mechanism: str, is_loopback: bool) -> User:
        """The user, if name and password are right and the peer may be where it is.

        Raises: LoginRefused, without saying why: the reason belongs into the log only.
        """
        user = self._by_name.get(name)
        stored = user.password_hash if user is not None else b""
        salt = stored[:SALT_SIZE] or bytes(SALT_SIZE)
        # Compare even for unknown users, so that the answer takes as long.
        right = hmac.compare_digest(hash_password(password, salt), stored) and password != ""
        if user is None or not right:
            raise LoginRefused(mechanism=mechanism)
        return self._checked(user, mechanism, is_loopback)

    def identify(self, name: str, *, mechanism: str, is_loopback: bool) -> User:
        """The user whose identity was proven in another way. Raises: LoginRefused."""
        user = self._by_name.get(name)
        if user is None:
            raise LoginRefused(mechanism=mechanism)
        return self._checked(user, mechanism, is_loopback)

    @staticmethod
    def _checked(user: User, mechanism: str, is_loopback: bool) -> User:
        if user.loopback_only and not is_loopback:
            raise LoginRefused(mechanism=mechanism)
        return user
