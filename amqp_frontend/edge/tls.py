"""TLS as a transport: `recv` and `send` as a non-blocking socket has them, through ssl's memory buffers.

An endpoint reads from and sends to its socket, or a `TlsTransport` in its place. This module has no task and no wait;
octets that the kernel does not take are stored, and are sent first at the next `send`.
Source: ruling 4; security page, "CVE classes", "TLS-level exhaustion".
"""

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

#: Octets of ciphertext, and of plaintext (one record), that are given to OpenSSL at once. Its buffers never shrink: 128
#: KiB at once would leave each idle connection with 170 KiB.
PIECE = 16 * 1024
RECORD = 16 * 1024
#: Octets of plaintext that are encrypted before one send.
BATCH = 8 * RECORD
#: Maximum octets of a client's hello; about 2 KiB are usual. OpenSSL accepts 128 KiB, and reserves the announced size.
HELLO_MAX = 16 * 1024
#: Maximum octets of a whole handshake, with a chain of client certificates.
HANDSHAKE_MAX = 64 * 1024
#: Maximum octets in a row without data. A record has at most 16 KiB, so an honest peer stays far below.
DATALESS_MAX = 64 * 1024
#: Maximum octets of TLS's own answers in the life of a connection: 1,200 key updates of 27 octets, which cost 16 us
#: each. An honest peer asks for one in millions of records.
ANSWERS_MAX = 32 * 1024

_HANDSHAKE_RECORD = 22
_HELLO_HEAD = 9  # octets: 5 of the record's header, 1 of the message's type, 3 of its length

_EXPLAINED = {
    "HTTP_REQUEST": "the peer speaks HTTP without TLS",
    "HTTPS_PROXY_REQUEST": "the peer speaks HTTP without TLS",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "the peer offers no version of TLS that is new enough (tls.minimum)",
    "NO_SHARED_CIPHER": "the peer offers no cipher that is accepted here",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer shows no certificate, but one is required (tls.verify)",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust our certificate: it does not know who issued it",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer refuses our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer refuses our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the peer refuses our certificate: it has expired",
}


class TlsFault(ConnectionError):
    """The peer broke TLS, or no common parameters exist; the text is for the log."""


class Wire(Protocol):
    """The methods of a non-blocking socket that `TlsTransport` calls."""

    def recv(self, size: int, /) -> bytes:
        """Raises: BlockingIOError, OSError."""

    def send(self, data: bytes | memoryview, /) -> int:
        """Raises: BlockingIOError, OSError."""


class TlsTransport:
    """The server's side of one TLS connection over `wire`.

    `on_goodbye` is called when the peer's close_notify came in the same read as data or the end of the handshake. That
    `recv` still returns the data; the owner has to call `recv` once more, which returns b"".
    """

    __slots__ = ("_answers", "_dataless", "_encrypted", "_ended", "_hello", "_incoming", "_on_goodbye",
                 "_outgoing", "_tls", "_unsent", "_wire", "handshake_octets")  # fmt: skip

    def __init__(self, wire: Wire, context: ssl.SSLContext, on_goodbye: Callable[[], None]) -> None:
        self._wire = wire
        self._on_goodbye = on_goodbye
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent: bytes | memoryview = b""  # ciphertext that the kernel has not taken
        self._encrypted = 0  # octets of plaintext in `_unsent` that `send` has not yet reported as sent
        self._ended = False  # the peer's close_notify came
        self._hello = b""  # the first octets of the handshake, at most `_HELLO_HEAD`
        self.handshake_octets = 0  # that the peer has sent
        self._dataless = 0
        self._answers = 0

    # -- the handshake ------------------------------------------------------------------------------------------------

    def handshake(self, received: bytes) -> bool:
        """Continue the handshake with octets from the wire; `flush` then sends the server's part.

        Returns: whether the handshake has ended; the octets after it are in `early_data`.
        Raises: TlsFault; the alert that OpenSSL has for the peer was sent if that was possible without waiting.
        """
        if len(self._hello) < _HELLO_HEAD:
            self._hello = (self._hello + received[:_HELLO_HEAD])[:_HELLO_HEAD]
            announced = int.from_bytes(self._hello[6:])
            if len(self._hello) == _HELLO_HEAD and self._hello[0] == _HANDSHAKE_RECORD and announced > HELLO_MAX:
                raise TlsFault(f"handshake: a hello of {announced} octets, more than {HELLO_MAX}")
        self.handshake_octets += len(received)
        try:
            self._incoming.write(received)
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            if self.handshake_octets > HANDSHAKE_MAX:
                raise TlsFault(f"handshake: not over after {HANDSHAKE_MAX} octets") from None
            return False
        except ssl.SSLError as error:
            self._queue_and_flush()
            raise TlsFault(self._explain(error)) from None
        finally:
            self._unsent = bytes(self._unsent) + self._outgoing.read()
        return True

    def early_data(self) -> bytes:
        """Data that came in the same read as the end of the handshake. Raises: TlsFault."""
        data = self._decrypt()
        if self._ended:
            self._say_goodbye()
        return data

    def _explain(self, error: ssl.SSLError) -> str:
        if self._hello.startswith(b"AMQP"):
            return "handshake: the peer speaks AMQP without TLS"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"handshake: the peer's certificate is refused: {error.verify_message}"
        reason = error.reason or "failed"
        return f"handshake: {_EXPLAINED.get(reason, reason.lower().replace('_', ' '))}"

    @property
    def protocol(self) -> str:
        """The version of TLS."""
        return self._tls.version() or ""

    @property
    def cipher(self) -> str:
        cipher = self._tls.cipher()
        return cipher[0] if cipher else "no cipher"

    @property
    def certificate(self) -> dict[str, object] | None:
        """The peer's verified certificate, decoded by `ssl`. None: it showed none."""
        return self._tls.getpeercert() or None  # type: ignore[return-value]

    # -- as a socket --------------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        """Data; empty when the peer is gone, with or without close_notify (AMQP has its own close).

        Raises: BlockingIOError: no data yet. TlsFault. OSError.
        """
        if self._ended:
            return b""
        received = self._wire.recv(size)
        if not received:
            return b""
        parts = []
        for start in range(0, len(received), PIECE):
            piece = received[start : start + PIECE]
            self._incoming.write(piece)
            if part := self._decrypt():
                self._dataless = 0
                parts.append(part)
            else:
                self._dataless += len(piece)
                if self._dataless > DATALESS_MAX:
                    raise TlsFault(f"more than {DATALESS_MAX} octets of TLS without data")
            if self._ended:
                break
        if parts:
            if self._ended:
                self._say_goodbye()
            return b"".join(parts) if len(parts) > 1 else parts[0]
        if self._ended:
            return b""
        raise BlockingIOError

    def _decrypt(self) -> bytes:
        """Decrypt as much as OpenSSL can. Returns: the data."""
        parts: list[bytes] = []
        read, incoming = self._tls.read, self._incoming
        try:
            # After a whole record OpenSSL holds no more octets, so this avoids most calls that end in an exception.
            while incoming.pending:
                part = read(RECORD)
                if not part:
                    self._ended = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._ended = True
        except ssl.SSLError as error:
            self._queue_and_flush()
            raise TlsFault((error.reason or "failed").lower().replace("_", " ")) from None
        if self._outgoing.pending:
            self._answers += self._outgoing.pending
            if self._answers > ANSWERS_MAX:
                raise TlsFault(f"more than {ANSWERS_MAX} octets of answers to TLS messages")
            self._queue_and_flush()
        return b"".join(parts) if len(parts) != 1 else parts[0]

    def _say_goodbye(self) -> None:
        with suppress(OSError):  # the peer has reset the connection meanwhile; its data are here all the same
            self._on_goodbye()

    def send(self, data: bytes | memoryview) -> int:
        """Encrypt and send. Returns the octets of `data` that the kernel took; the next call must begin with the rest.

        Raises: BlockingIOError: the kernel takes nothing now. OSError.
        """
        taken = self._encrypted
        if not self.flush():
            raise BlockingIOError
        self._encrypted = 0
        size = len(data)
        view = data if size <= RECORD else memoryview(data)
        write, read = self._tls.write, self._outgoing.read
        while taken < size:
            end = min(taken + BATCH, size)
            parts = []
            for start in range(taken, end, RECORD):
                write(view[start : min(start + RECORD, end)])
                parts.append(read())
            self._unsent = b"".join(parts)
            if not self.flush():
                self._encrypted = end - taken
                break
            taken = end
        if not taken:
            raise BlockingIOError
        return taken

    def flush(self) -> bool:
        """Send pending ciphertext. Returns: whether all was sent; False: the socket is full. Raises: OSError."""
        unsent = self._unsent
        while unsent:
            try:
                sent = self._wire.send(unsent)
            except BlockingIOError:
                return False
            unsent = self._unsent = memoryview(unsent)[sent:]
        self._unsent = b""
        return True

    def answer_close(self) -> None:
        """Send close_notify if that is possible without waiting. Nothing may be sent after it."""
        try:
            self._tls.unwrap()
        except OSError:  # the peer has not sent its close_notify
            pass
        self._queue_and_flush()

    def _queue_and_flush(self) -> None:
        """Send TLS's own octets at once, or else before the next data."""
        self._unsent = bytes(self._unsent) + self._outgoing.read()
        try:
            self.flush()
        except OSError:  # the peer is gone; reading will fail too
            pass
