"""Both sides of a link prove that they know the shared secret. Pure.

    listener                                          connector
    Greet(nonce L)                 ->
                                   <-  Prove(nonce C, HMAC(secret, connector, cluster, group, L, C))
    Proof(HMAC(secret, listener, cluster, group, L, C)) ->

HMAC is HMAC-SHA256. The side that connects proves itself first, so that a stranger gets no proof on which to test
guessed secrets. Each proof covers the role and both nonces: a proof that is reflected, or from another connection, is
refused. Octets that follow are neither encrypted nor signed: where others can change them, use TLS.
"""

import hmac
import os
from dataclasses import dataclass

from ...settings.loopback import is_loopback
from .frames import VERSION, VERSION_MIN, Greet, Proof, Prove

NONCE_SIZE = 32
#: The least octets of a secret; `openssl rand -hex 16` makes 32.
SECRET_SIZE_MIN = 16

_LISTENER, _CONNECTOR = b"leveret link: listener", b"leveret link: connector"


class ChallengeFault(Exception):
    """The other side has not proven that it may connect. The text is for the log and, in a No, for that side."""


@dataclass(slots=True, frozen=True)
class Credentials:
    """What both sides of a link must have in common. secret: of the cluster's nodes; empty: none."""

    cluster: str
    group: int = 0
    secret: bytes = b""

    def __post_init__(self) -> None:
        if self.secret and len(self.secret) < SECRET_SIZE_MIN:
            raise ValueError(f"a secret of {len(self.secret)} octets: at least {SECRET_SIZE_MIN} are needed")

    def check_host(self, host: str, *, is_tls: bool) -> None:
        """Refuse other hosts than loopback if there is neither a secret nor TLS. Raises: ChallengeFault."""
        if not self.secret and not is_tls and not is_loopback(host):
            raise ChallengeFault(
                f"links to other machines ({host}) need cluster.secret-file or cluster.tls; without them only loopback"
            )

    def proof(self, role: bytes, listener_nonce: bytes, connector_nonce: bytes) -> bytes:
        """HMAC of the role and both nonces. Each part follows its length, so that no two lists have the same octets."""
        parts = (role, self.cluster.encode(), str(self.group).encode(), listener_nonce, connector_nonce)
        signed = b"".join(len(part).to_bytes(4) + part for part in parts)
        return hmac.digest(self.secret, signed, "sha256")


def _check_version(version: int) -> None:
    """Raises: ChallengeFault."""
    if version < VERSION_MIN:
        raise ChallengeFault(
            f"the other node speaks version {version} of the link, this one {VERSION_MIN} to {VERSION}"
        )


class ListenerChallenge:
    """The challenge at the side that accepted the connection."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._nonce = os.urandom(NONCE_SIZE) if credentials.secret else b""

    def greet(self) -> Greet:
        """The first frame of the connection."""
        return Greet(VERSION, self._nonce)

    def answer(self, prove: Prove) -> Proof:
        """Check the connector's proof, and return this side's. Raises: ChallengeFault."""
        _check_version(prove.version)
        credentials = self._credentials
        if not credentials.secret:
            if prove.nonce or prove.proof:
                raise ChallengeFault("the other node has a secret, this one has none (cluster.secret-file)")
            return Proof(b"")
        if len(prove.nonce) != NONCE_SIZE:
            raise ChallengeFault("the other node has no secret, this one has (cluster.secret-file)")
        if not hmac.compare_digest(prove.proof, credentials.proof(_CONNECTOR, self._nonce, prove.nonce)):
            raise ChallengeFault("the other node has another secret, or belongs to another cluster")
        return Proof(credentials.proof(_LISTENER, self._nonce, prove.nonce))


class ConnectorChallenge:
    """The challenge at the side that connected."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._nonce = os.urandom(NONCE_SIZE) if credentials.secret else b""
        self._listener_nonce = b""

    def answer(self, greet: Greet) -> Prove:
        """Answer with this side's nonce and proof. Raises: ChallengeFault."""
        _check_version(greet.version)
        credentials = self._credentials
        if not credentials.secret:
            if greet.nonce:
                raise ChallengeFault("the other node has a secret, this one has none (cluster.secret-file)")
            return Prove(VERSION, b"", b"")
        if len(greet.nonce) != NONCE_SIZE:
            raise ChallengeFault("the other node has no secret, this one has (cluster.secret-file)")
        self._listener_nonce = greet.nonce
        return Prove(VERSION, self._nonce, credentials.proof(_CONNECTOR, greet.nonce, self._nonce))

    def check(self, proof: Proof) -> None:
        """Check the listener's proof. Raises: ChallengeFault."""
        credentials = self._credentials
        expected = credentials.proof(_LISTENER, self._listener_nonce, self._nonce) if credentials.secret else b""
        if not hmac.compare_digest(proof.proof, expected):
            raise ChallengeFault("the other node has not proven that it knows the secret")
