"""TLS of a client whose connection is passed on ends at the node that it is connected to."""

import socket
import ssl
from pathlib import Path

import pytest
import trio
from certificates import Authority

from leveret.serving.served_node import end_tls


def contexts(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of the node, and of a client that trusts it."""
    authority = Authority(directory)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = authority.issue()
    server.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return server, ssl.create_default_context(cafile=str(authority.file))


def test_the_octets_behind_the_handshake_are_the_clients(tmp_path: Path) -> None:
    """And the leader is told which TLS it was."""
    server, client = contexts(tmp_path)

    async def main() -> None:
        ours, theirs = socket.socketpair()
        peer = trio.SSLStream(
            trio.SocketStream(trio.socket.from_stdlib_socket(theirs)), client, server_hostname="localhost"
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, b"AMQP\0\0\x09\x01")
            stream, tls = await end_tls(ours, server)
            assert await stream.receive_some() == b"AMQP\0\0\x09\x01"
        assert tls.version == "TLSv1.3" and tls.cipher.startswith("TLS_")

    trio.run(main)


def test_what_is_no_tls_is_refused(tmp_path: Path) -> None:
    """As by the frontend."""
    server, _ = contexts(tmp_path)

    async def main() -> None:
        ours, theirs = socket.socketpair()
        theirs.sendall(b"AMQP\0\0\x09\x01")
        with pytest.raises(trio.BrokenResourceError):
            await end_tls(ours, server)
        theirs.close()

    trio.run(main)
