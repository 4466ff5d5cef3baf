"""Password hashes in RabbitMQ's formats: a salt of four octets, then the digest of salt and password.

Source: behaviour page 3.15; rabbit_password_hashing_sha256, _sha512, _md5.
"""

import base64
import hashlib
import hmac

from ...settings.frozen import frozen

SALT_SIZE = 4
#: Ignored in base64, as by RabbitMQ, because commands that write it wrap their lines. Python's decoder refuses them.
_SPACE = dict.fromkeys(map(ord, " \t\r\n"))
SHA256 = "rabbit_password_hashing_sha256"

#: Name in definitions -> (hash, octets of the digest).
ALGORITHMS = {
    SHA256: (hashlib.sha256, 32),
    "rabbit_password_hashing_sha512": (hashlib.sha512, 64),
    "rabbit_password_hashing_md5": (hashlib.md5, 16),
}


@frozen
class PasswordHash:
    """The hash of a password. `octets`: salt and digest; empty: no password is right. `repr` hides it, for logs."""

    octets: bytes = b""
    algorithm: str = SHA256

    def __repr__(self) -> str:
        return f"PasswordHash({'...' if self.octets else 'none'}, {self.algorithm})"

    def is_right(self, password: str) -> bool:
        """Whether the password is right. The time does not depend on the answer, nor on whether a hash is set."""
        salt = self.octets[:SALT_SIZE] or bytes(SALT_SIZE)
        return hmac.compare_digest(_octets(password, salt, self.algorithm), self.octets) and password != ""

    def text(self) -> str:
        """The base64 text for definitions."""
        return base64.b64encode(self.octets).decode()


NO_PASSWORD = PasswordHash()


def hash_password(password: str, salt: bytes, algorithm: str = SHA256) -> PasswordHash:
    """The hash of a password. An empty password is never right."""
    assert len(salt) == SALT_SIZE
    return PasswordHash(_octets(password, salt, algorithm), algorithm) if password else NO_PASSWORD


def read_password_hash(text: str, algorithm: str | None = None) -> PasswordHash:
    """Read a hash from definitions or a configuration; empty text: no login by password.

    `algorithm`: None: inferred from the length, as for definitions of RabbitMQ up to 3.6.0.
    Raises: ValueError, whose text does not contain the hash.
    """
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise ValueError(f"one of {', '.join(ALGORITHMS)}")
    if not text:
        return NO_PASSWORD
    try:
        octets = octets_of_base64(text)
    except ValueError:
        octets = b""
    if algorithm is None:
        sizes = {SALT_SIZE + size: name for name, (_, size) in ALGORITHMS.items()}
        algorithm = sizes.get(len(octets), SHA256)
    size = SALT_SIZE + ALGORITHMS[algorithm][1]
    if len(octets) != size:
        raise ValueError(f"the base64 text of {size} octets ({SALT_SIZE} of salt, then {algorithm.rpartition('_')[2]})")
    return PasswordHash(octets, algorithm)


def _octets(password: str, salt: bytes, algorithm: str) -> bytes:
    return salt + ALGORITHMS[algorithm][0](salt + password.encode(errors="surrogatepass")).digest()


def octets_of_base64(text: str) -> bytes:
    """The octets of a base64 text, as in definitions and requests. Raises: ValueError."""
    return base64.b64decode(text.translate(_SPACE), validate=True)
