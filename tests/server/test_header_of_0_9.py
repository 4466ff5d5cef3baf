"""The protocol header of AMQP 0-9 through every kind of listener, octet by octet: it is read in one place."""

import socket
import ssl
from pathlib import Path

import pytest
from broker_process import leveret_serve
from certificates import Authority, configuration

HEADER = b"AMQP\x01\x01\x00\x09"
#: A method frame on channel 0: connection.start, version 0.9; its size is in between.
START = (b"\x01\x00\x00", b"\x00\x0a\x00\x0a\x00\x09")
PROXY = b"PROXY TCP4 127.0.0.1 127.0.0.1 4711 5672\r\n"
FROM_HERE = "[broker]\nproxy-protocol-from = ['127.0.0.0/8']\n"


def start_of(wire: socket.socket, said: bytes) -> tuple[bytes, bytes]:
    """What comes back, its size left out."""
    wire.settimeout(60)
    for octet in said:
        wire.sendall(bytes([octet]))
    got = b""
    while len(got) < 13:
        got += wire.recv(13 - len(got))
    return got[:3], got[7:]


def tcp(port: int) -> socket.socket:
    """One octet in a packet."""
    wire = socket.create_connection(("127.0.0.1", port), timeout=60)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return wire


def test_tcp_and_tls(tmp_path: Path) -> None:
    """An octet in a packet, an octet in a record."""
    authority = Authority(tmp_path)
    authority.issue()
    with leveret_serve(tmp_path, config=configuration(), listen=("127.0.0.1:0", "amqps://127.0.0.1:0")) as broker:
        plain, secured = (int(line.rstrip("/").rpartition(":")[2]) for line in broker.lines)
        with tcp(plain) as wire:
            assert start_of(wire, HEADER) == START
        with authority.trusting().wrap_socket(tcp(secured), server_hostname="localhost") as wire:
            assert isinstance(wire, ssl.SSLSocket)
            assert start_of(wire, HEADER) == START


def test_behind_a_proxy(tmp_path: Path) -> None:
    """After its own header."""
    with leveret_serve(tmp_path, config=FROM_HERE) as broker, tcp(broker.port) as wire:
        assert start_of(wire, PROXY + HEADER) == START


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets on this system")
def test_on_a_unix_socket(tmp_path: Path) -> None:
    """As on the others."""
    path = tmp_path / "s"
    with leveret_serve(tmp_path, listen=(f"unix:{path}",)), socket.socket(socket.AF_UNIX) as wire:
        wire.connect(str(path))
        assert start_of(wire, HEADER) == START
