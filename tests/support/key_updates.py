"""A TLS 1.3 client that says what no library lets it say: key updates, as many as it likes (RFC 8446, 4.6.3, 7.2)."""

import hashlib
import hmac
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_HANDSHAKE, _APPLICATION_DATA, _KEY_UPDATE = 22, 23, 24


class KeyUpdater:
    """Goes on where a client's SSLObject stopped, by the secret that it wrote into its key log.

    Made for TLS_AES_256_GCM_SHA384 right after the handshake, before that client sent any data.
    """

    def __init__(self, key_log: Path) -> None:
        (line,) = [line for line in key_log.read_text().splitlines() if line.startswith("CLIENT_TRAFFIC_SECRET_0")]
        self._secret = bytes.fromhex(line.split()[2])
        self._start()

    def key_update(self, *, asks_for_answer: bool) -> bytes:
        """One record; what follows it is encrypted with the next secret."""
        record = self._record(bytes([_KEY_UPDATE, 0, 0, 1, asks_for_answer]), _HANDSHAKE)
        self._secret = self._expanded(b"traffic upd", 48)
        self._start()
        return record

    def data(self, content: bytes) -> bytes:
        """One record of application data."""
        return self._record(content, _APPLICATION_DATA)

    def _start(self) -> None:
        self._cipher = AESGCM(self._expanded(b"key", 32))
        self._iv = int.from_bytes(self._expanded(b"iv", 12))
        self._sequence = 0

    def _expanded(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label without a context; one block of SHA-384 is enough."""
        label = b"tls13 " + label
        info = size.to_bytes(2) + bytes([len(label)]) + label + b"\0"
        return hmac.digest(self._secret, info + b"\x01", hashlib.sha384)[:size]

    def _record(self, content: bytes, kind: int) -> bytes:
        inner = content + bytes([kind])
        head = bytes([_APPLICATION_DATA, 3, 3]) + (len(inner) + 16).to_bytes(2)
        nonce = (self._iv ^ self._sequence).to_bytes(12)
        self._sequence += 1
        return head + self._cipher.encrypt(nonce, inner, head)
