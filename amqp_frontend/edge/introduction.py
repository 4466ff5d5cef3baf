"""The introduction of a connection before AMQP: a PROXY header, the TLS handshake. Callers limit its time.

Source: behaviour page 1.2; security page, "TLS-level exhaustion".
"""

import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace

import trio

from ..session.session import AmqpSession
from .certificates import Certificate, certificate_facts, user_name
from .proxy_protocol import SIZE_MAX, ProxyFault, ProxyHeader, read_header
from .tls import PIECE, TlsFault, TlsTransport

logger = logging.getLogger("leveret.amqp")


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
    """Read a PROXY header. Returns: the header (None: the peer sent nothing), and the octets after it.

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


async def receive_some(sock: socket.socket, wait_readable: Callable[[int], Awaitable[None]], size: int) -> bytes:
    """The next octets of a socket, at most `size`; empty at its end. Raises: OSError."""
    while True:
        await wait_readable(sock.fileno())
        try:
            return sock.recv(size)
        except BlockingIOError:
            pass
