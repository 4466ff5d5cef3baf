"""A client that the gate of a node has accepted: its socket, its addresses, and its TLS, which is terminated here."""

import socket
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any

import trio

from ..amqp_frontend.edge.arrival import Arrival, TerminatedTls
from ..amqp_frontend.edge.introduction import read_proxy_header, receive_some, shake_hands
from ..amqp_frontend.edge.proxy_protocol import is_listed
from ..amqp_frontend.edge.tls import TlsFault, TlsTransport
from ..amqp_frontend.options import FrontendOptions

#: Seconds for a client's PROXY header and TLS handshake.
HANDSHAKE_S = 5.0
#: Maximum octets of one read.
READ_SIZE = 128 * 1024
#: The address of a client that its proxy does not name: it must not count as loopback.
ANYWHERE = ("0.0.0.0", 0)


class Service(Enum):
    """The service whose port a client connected to; the value is the frontend's name."""

    AMQP = "amqp"
    CONSOLE = "console"
    METRICS = "metrics"


class TlsStream(trio.abc.Stream):
    """Terminated TLS as a stream of trio. Closing it does not wait."""

    def __init__(self, sock: socket.socket, tls: TlsTransport) -> None:
        self._socket, self._tls = sock, tls

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        while True:
            try:
                return self._tls.recv(max_bytes or READ_SIZE)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
            except OSError as error:
                raise trio.BrokenResourceError from error

    async def send_all(self, data: Any) -> None:
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        while len(rest):
            try:
                rest = rest[self._tls.send(rest) :]
            except BlockingIOError:
                await self.wait_send_all_might_not_block()
            except OSError as error:
                raise trio.BrokenResourceError from error
        try:
            while not self._tls.flush():
                await self.wait_send_all_might_not_block()
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    async def aclose(self) -> None:
        close(self._socket, self._tls)


def close(sock: socket.socket, tls: TlsTransport | None) -> None:
    """Close a socket, after closing its TLS. Idempotent."""
    if sock.fileno() >= 0:
        if tls is not None:
            with suppress(OSError):
                tls.answer_close()
        trio.lowlevel.notify_closing(sock)
        sock.close()


class GateClient:
    """An accepted client. `first`: octets already read from it, decrypted."""

    def __init__(self, arrival: Arrival, service: Service) -> None:
        self.socket = arrival.socket
        self.service = service
        self.first = b"" if arrival.tls is None else arrival.tls.first
        self._arrival = arrival
        self._transport = None if arrival.tls is None else arrival.tls.transport
        self._read_some = partial(receive_some, arrival.socket, trio.lowlevel.wait_readable)

    @property
    def address(self) -> object:
        """The client's address, from `accept` or from a proxy."""
        return self._arrival.address

    @property
    def local(self) -> object:
        """The address that the client connected to."""
        try:
            return self._arrival.local or self.socket.getsockname()
        except OSError:
            return ""

    @property
    def tls(self) -> TerminatedTls | None:
        """The client's TLS, if this or another node has terminated it."""
        return self._arrival.tls

    @property
    def must_shake_hands(self) -> bool:
        """Whether the TLS handshake is still to come; before it nothing can be read or sent."""
        return self._arrival.is_tls

    async def terminate_tls(self, options: FrontendOptions) -> None:
        """Read a proxy's header, then shake hands. Raises: TlsFault, ProxyFault, OSError."""
        assert options.tls is not None, "a TLS listener without a certificate"
        transport = TlsTransport(self.socket, options.tls, partial(self.socket.shutdown, socket.SHUT_RD))
        with trio.move_on_after(HANDSHAKE_S) as scope:
            data = b""
            if self.service is Service.AMQP and is_listed(self.address, options.proxy_protocol_from):
                data = await self._read_proxy_header()
            self.first = await shake_hands(self.socket, transport, data, self._read_some)
        if scope.cancelled_caught:
            raise TlsFault("handshake: not completed in time")
        terminated = TerminatedTls(transport.protocol, transport.cipher, transport.certificate, transport)
        self._transport = transport
        self._arrival = replace(self._arrival, is_tls=False, tls=terminated)

    async def _read_proxy_header(self) -> bytes:
        """Returns the octets after the header."""
        header, data = await read_proxy_header(self._read_some)
        if header is None:
            raise ConnectionError("closed at once: a load balancer's health check")
        if not header.is_local:
            self._arrival = replace(self._arrival, address=header.source or ANYWHERE, local=header.destination)
        return data

    async def peek(self, size: int) -> bytes:
        """Wait for the client's first octets, and return up to `size` of them; `stream` and `arrival` keep them.

        Returns b"" if the client closed. Raises: OSError.
        """
        transport = self._transport
        if transport is None:
            await trio.lowlevel.wait_readable(self.socket)
            return self.socket.recv(size, socket.MSG_PEEK)
        while len(self.first) < size:
            try:
                more = transport.recv(READ_SIZE)
            except BlockingIOError:
                if self.first:
                    break
                await trio.lowlevel.wait_readable(self.socket)
                continue
            if not more:
                break
            self.first += more
        return self.first[:size]

    def stream(self) -> trio.SocketStream | TlsStream:
        """The stream of the octets after `first`."""
        if self._transport is not None:
            return TlsStream(self.socket, self._transport)
        return trio.SocketStream(trio.socket.from_stdlib_socket(self.socket))

    def arrival(self) -> Arrival:
        """The arrival for this process's frontends."""
        tls = self._arrival.tls
        return self._arrival if tls is None else replace(self._arrival, tls=replace(tls, first=self.first))

    def send_goodbye(self, octets: bytes) -> None:
        """Send a last answer, or as much of it as can be sent without waiting."""
        if self.must_shake_hands:
            return
        try:
            self._drain()  # closing a socket with unread octets resets it, and the client may lose this answer
            if self._transport is not None:
                self._transport.send(octets)
                self._transport.answer_close()
            else:
                self.socket.send(octets)
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _drain(self) -> None:
        try:
            while self.socket.recv(READ_SIZE):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Close the socket, unless it is closed."""
        close(self.socket, self._transport)
