"""Both sides of a link prove that they know the shared secret. Pure.

    listener                                          connector
    Greet(nonce L)                 ->
                                   <-  Prove(nonce C, HMAC(secret, connector, cluster, group, L, C))
    Proof(HMAC(secret, listener, cluster, group, L, C)) ->

HMAC-SHA256. The side that connects proves itself first, so that a stranger gets no proof to test guessed secrets on.
Each proof covers its role and both nonces: a reflected proof, or one from another connection, is worthless. Octets that
follow are neither encrypted nor signed: a network that others can change needs TLS.
"""

import hmac
import os
from dataclasses import dataclass

from ...settings.loopback import is_loopback
from .frames import VERSION, VERSION_MIN, Greet, Proof, Prove

NONCE_SIZE = 32
#: Octets of a secret at least: `openssl rand -hex 16` makes 32.
SECRET_SIZE_MIN = 16

_LISTENER, _CONNECTOR = b"leveret link: listener", b"leveret link: connector"


class ChallengeFault(Exception):
    """The other side has not proven what it must. The text is for the log and, in a No, for the other side."""


@dataclass(slots=True, frozen=True)
class Credentials:
    """What both sides of a link must have in common: cluster, group, and the secret of its nodes (empty: none)."""

    cluster: str
    group: int = 0
    secret: bytes = b""

    def __post_init__(self) -> None:
        if self.secret and len(self.secret) < SECRET_SIZE_MIN:
            raise ValueError(f"a secret of {len(self.secret)} octets: at least {SECRET_SIZE_MIN} are needed")

    def check_host(self, host: str, *, is_tls: bool) -> None:
        """Allow only loopback without a secret and TLS. Raises: ChallengeFault."""
        if not self.secret and not is_tls and not is_loopback(host):
            raise ChallengeFault(
                f"links to other machines ({host}) need cluster.secret-file or cluster.tls; without them only loopback"
            )

    def proof(self, role: bytes, listener_nonce: bytes, connector_nonce: bytes) -> bytes:
        """HMAC of the role and both nonces; each part has its length before it, so that no two lists are alike."""
        parts = (role, self.cluster.encode(), str(self.group).encode(), listener_nonce, connector_nonce)
        said = b"".join(len(part).to_bytes(4) + part for part in parts)
        return hmac.digest(self.secret, said, "sha256")


def _check_version(version: int) -> None:
    """Raises: ChallengeFault."""
    if version < VERSION_MIN:
        raise ChallengeFault(
            f"the other node speaks version {version} of the link, this one {VERSION_MIN} to {VERSION}"
        )


class ListenerChallenge:
    """The side that accepted the connection."""

    def __init__(self, credentials: Credentials, nonce: bytes | None = None) -> None:
        self._credentials = credentials
        self._nonce = (os.urandom(NONCE_SIZE) if nonce is None else nonce) if credentials.secret else b""

    def greet(self) -> Greet:
        """The first frame."""
        return Greet(VERSION, self._nonce)

    def answer(self, said: Prove) -> Proof:
        """Check the connector's proof, and return this side's. Raises: ChallengeFault."""
        _check_version(said.version)
        credentials = self._credentials
        if not credentials.secret:
            if said.nonce or said.proof:
                raise ChallengeFault("the other node has a secret, this one has none (cluster.secret-file)")
            return Proof(b"")
        if len(said.nonce) != NONCE_SIZE:
            raise ChallengeFault("the other node has no secret, this one has (cluster.secret-file)")
        if not hmac.compare_digest(said.proof, credentials.proof(_CONNECTOR, self._nonce, said.nonce)):
            raise ChallengeFault("the other node has another secret, or belongs to another cluster")
        return Proof(credentials.proof(_LISTENER, self._nonce, said.nonce))


class ConnectorChallenge:
    """The side that connected."""

    def __init__(self, credentials: Credentials, nonce: bytes | None = None) -> None:
        self._credentials = credentials
        self._nonce = (os.urandom(NONCE_SIZE) if nonce is None else nonce) if credentials.secret else b""
        self._listener_nonce = b""

    def answer(self, said: Greet) -> Prove:
        """This side's nonce and proof. Raises: ChallengeFault."""
        _check_version(said.version)
        credentials = self._credentials
        if not credentials.secret:
            if said.nonce:
                raise ChallengeFault("the other node has a secret, this one has none (cluster.secret-file)")
            return Prove(VERSION, b"", b"")
        if len(said.nonce) != NONCE_SIZE:
            raise ChallengeFault("the other node has no secret, this one has (cluster.secret-file)")
        self._listener_nonce = said.nonce
        return Prove(VERSION, self._nonce, credentials.proof(_CONNECTOR, said.nonce, self._nonce))

    def check(self, said: Proof) -> None:
        """Check the listener's proof. Raises: ChallengeFault."""
        credentials = self._credentials
        expected = credentials.proof(_LISTENER, self._listener_nonce, self._nonce) if credentials.secret else b""
        if not hmac.compare_digest(said.proof, expected):
            raise ChallengeFault("the other node has not proven that it knows the secret")
