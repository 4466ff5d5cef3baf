"""The introduction of a connection before AMQP: a PROXY header, the TLS handshake. It waits, under time limits.

Source: behaviour page 1.2; security page, "TLS-level exhaustion".
"""

import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace

import trio

from ..session.session import AmqpSession
from .certificates import Certificate, certificate_facts, user_name
from .proxy_protocol import SIZE_MAX, ProxyFault, ProxyHeader, proxied, read_header
from .tls import PIECE, TlsFault, TlsTransport

logger = logging.getLogger("leveret.amqp")

READ_SIZE = 128 * 1024


def note_tls(session: AmqpSession, protocol: str, cipher: str, certificate: Certificate | None) -> None:
    """Note that the peer uses TLS: the name that EXTERNAL logs in, and facts for operators.

    `certificate`: the peer's, verified; None: it showed none.
    """
    login, options = session.login, session.options
    name = certificate and user_name(
        certificate, options.ssl_cert_login_from, options.ssl_cert_login_san_type, options.ssl_cert_login_san_index
    )
    login.peer = replace(login.peer, is_secured=True, certified_name=name or None)
    connection_info = login.connection_info
    connection_info.tls_protocol, connection_info.tls_cipher = protocol, cipher
    connection_info.peer_certificate = None if certificate is None else certificate_facts(certificate)
    logger.debug("%s: %s, %s, certificate of %r", login.peer.name, protocol, cipher, name)


#: Reads at most the given number of octets from the peer; empty: the peer sends no more. Raises: OSError.
ReadSome = Callable[[int], Awaitable[bytes]]


async def read_proxy_header(read_some: ReadSome) -> tuple[ProxyHeader | None, bytes]:
    """Read a PROXY header. Returns: the header (None: the peer sent nothing), and the octets behind it.

    Raises: ProxyFault, OSError.
    """
    data = b""
    while (header := read_header(data)) is None:
        more = await read_some(SIZE_MAX)
        if not more:
            if data:
                raise ProxyFault(f"cut short after {len(data)} octets")
            return None, b""
        data += more
    return header, data[header.size :]


async def shake_hands(sock: socket.socket, tls: TlsTransport, data: bytes, read_some: ReadSome) -> bytes:
    """Do the TLS handshake. `data`: octets of it that were read already.

    Returns: octets that came in the same read as its end. Raises: TlsFault, OSError.
    """
    is_over = False
    while not is_over:
        data = data or await read_some(PIECE)
        if not data:
            raise TlsFault(f"handshake: cut short after {tls.handshake_octets} octets")
        is_over = tls.handshake(data)
        data = b""
        while not tls.flush():
            await trio.lowlevel.wait_writable(sock)
    return tls.early_data()


class Introduction:
    """The introduction of one connection.

    `on_proxied` is called when a proxy has named the peer (raises NoSlot), `on_begun` when the peer has sent octets.
    """

    def __init__(
        self,
        sock: socket.socket,
        session: AmqpSession,
        tls: TlsTransport | None,
        *,
        is_proxied: bool,
        wait_readable: Callable[[int], Awaitable[None]],
        on_proxied: Callable[[], None],
        on_begun: Callable[[], None],
    ) -> None:
        self._socket = sock
        self._session = session
        self._tls = tls
        self._is_proxied = is_proxied
        self._wait_readable = wait_readable
        self._on_proxied = on_proxied
        self._on_begun = on_begun

    async def first_octets(self) -> bytes:
        """Do the whole introduction.

        Returns: the octets of AMQP that came with it, if any. Raises: ProxyFault, TlsFault, NoSlot, OSError.
        """
        session = self._session
        data = await self._read_proxy_header() if self._is_proxied else b""
        if not data and not session.closing.finished:
            data = await self._read_some(PIECE if self._tls is not None else READ_SIZE)
            if not data:
                session.closing.finished = True  # a load balancer's health check; not logged
        if session.closing.finished:
            return b""
        self._on_begun()
        return data if self._tls is None else await self._shake_hands(self._tls, data)

    async def _read_proxy_header(self) -> bytes:
        """Returns: the octets behind the header."""
        header, data = await read_proxy_header(self._read_some)
        if header is None:
            self._session.closing.finished = True  # as in `first_octets`
            return b""
        login = self._session.login
        login.peer = proxied(login.peer, header)
        if header.source is not None:
            self._on_proxied()
        return data

    async def _shake_hands(self, tls: TlsTransport, data: bytes) -> bytes:
        """Returns: octets of AMQP that came in the same read as the end of the handshake."""
        early = await shake_hands(self._socket, tls, data, self._read_some)
        note_tls(self._session, tls.protocol, tls.cipher, tls.certificate)
        return early

    async def _read_some(self, size: int) -> bytes:
        """The next octets of the socket, empty at its end."""
        while True:
            await self._wait_readable(self._socket.fileno())
            try:
                return self._socket.recv(size)
            except BlockingIOError:
                pass
