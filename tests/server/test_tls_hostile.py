"""Peers that begin TLS and mean something else, or nothing: bounded, said in the log, and nobody else is disturbed."""

import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
from broker_process import leveret_serve
from certificates import Authority, configuration

HELLO = b"AMQP\x00\x00\x09\x01"
TLS = "amqps://127.0.0.1:0"
#: Half of a client's hello: the broker waits for the rest.
HALF_A_HELLO = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" + bytes(8000)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Whose certificate the broker of the test has."""
    authority = Authority(tmp_path)
    authority.issue()
    return authority


def wire_to(port: int) -> socket.socket:
    """A connection on which nothing was said yet."""
    wire = socket.create_connection(("127.0.0.1", port), timeout=60)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return wire


def is_served(port: int, context: ssl.SSLContext) -> bool:
    """Whether somebody who does it right gets connection.start."""
    with context.wrap_socket(wire_to(port), server_hostname="localhost") as client:
        client.sendall(HELLO)
        return client.recv(3) == b"\x01\0\0"


def read_to_end(wire: socket.socket) -> bytes:
    """What the broker says until it hangs up."""
    data = b""
    try:
        while part := wire.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    return data


def test_the_wrong_port(tmp_path: Path, authority: Authority) -> None:
    """AMQP to the TLS port, HTTP to it, TLS to the plain one: the end at once, and a line that says what it was."""
    with leveret_serve(tmp_path, config=configuration(), listen=(TLS, "127.0.0.1:0")) as broker:
        plain = int(broker.lines[1].rstrip("/").rpartition(":")[2])
        for said, line in (
            (HELLO, "the peer speaks AMQP without TLS"),
            (b"GET / HTTP/1.1\r\n\r\n", "the peer speaks HTTP"),
        ):
            wire = wire_to(broker.port)
            wire.sendall(said)
            read_to_end(wire)
            broker.wait_for_log(f"TLS: handshake: {line}")
        with pytest.raises(ssl.SSLError):
            is_served(plain, authority.trusting())
        broker.wait_for_log("the peer speaks TLS, but this port does not")
        assert is_served(broker.port, authority.trusting())


def test_a_handshake_octet_by_octet(tmp_path: Path, authority: Authority) -> None:
    """Each octet in a segment of its own; AMQP follows in the same way."""
    with leveret_serve(tmp_path, config=configuration(), listen=(TLS,)) as broker, wire_to(broker.port) as wire:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = authority.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")

        def send() -> None:
            for octet in outgoing.read():
                wire.sendall(bytes([octet]))

        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                send()
                incoming.write(wire.recv(7))
        client.write(HELLO)
        send()
        while True:
            try:
                assert client.read(3) == b"\x01\0\0"
                break
            except ssl.SSLWantReadError:
                incoming.write(wire.recv(7))


def test_cut_short(tmp_path: Path, authority: Authority) -> None:
    """Half a hello and the end: a line. Nothing and the end, as balancers look whether we are there: none."""
    with leveret_serve(tmp_path, config=configuration(), listen=(TLS,)) as broker:
        wire_to(broker.port).close()
        with wire_to(broker.port) as wire:
            wire.sendall(HALF_A_HELLO)
        broker.wait_for_log(f"TLS: handshake: cut short after {len(HALF_A_HELLO)} octets")
        assert is_served(broker.port, authority.trusting())
        assert broker.log().count("TLS:") == 1


def test_handshakes_that_do_not_go_on_are_ended(tmp_path: Path, authority: Authority) -> None:
    """Silence, half a hello, a handshake and no AMQP: each is over when the handshake timeout is."""
    config = configuration() + "[limits]\nhandshake-timeout = '300ms'\n"
    with leveret_serve(tmp_path, config=config, listen=(TLS,)) as broker:
        silent, half = wire_to(broker.port), wire_to(broker.port)
        half.sendall(HALF_A_HELLO)
        mute = authority.trusting().wrap_socket(wire_to(broker.port), server_hostname="localhost")
        for wire in (silent, half, mute):
            try:
                assert read_to_end(wire) == b""
            except ssl.SSLError:  # no close_notify: it was dropped
                pass
        assert broker.log().count("handshake timed out") == 3


def half_hellos(port: int, count: int) -> list[socket.socket]:
    """So many connections that have begun. Each begins at once: one that is silent for 3 s is hung up on."""
    wires = []
    for _ in range(count):
        wires.append(wire_to(port))
        wires[-1].sendall(HALF_A_HELLO)
    return wires


def test_two_hundred_half_open_handshakes(tmp_path: Path, authority: Authority) -> None:
    """8 KB of a hello each, and no more: under 100 KiB each, somebody else is served, and it all comes back."""
    config = configuration() + "[limits]\nhalf-open-connections = 205\n"
    with leveret_serve(tmp_path, config=config, listen=(TLS,)) as broker:
        for wire in half_hellos(broker.port, 5):  # what only refused peers need is loaded then
            wire.close()
        assert is_served(broker.port, authority.trusting())
        before = broker.rss_kib()
        wires = half_hellos(broker.port, 200)
        assert is_served(broker.port, authority.trusting())
        assert broker.rss_kib() - before < 200 * 100
        for wire in wires:
            wire.close()
        again = half_hellos(broker.port, 200)
        assert is_served(broker.port, authority.trusting())
        assert broker.rss_kib() - before < 200 * 100  # not twice that
        more = [wire_to(broker.port) for _ in range(10)]
        broker.wait_for_log("205 connections are not logged in")
        for wire in (*again, *more):
            wire.close()


def test_more_half_open_handshakes_than_places(tmp_path: Path, authority: Authority) -> None:
    """Whoever comes at once after them, from the same machine, waits for the place of the oldest."""
    config = configuration() + "[limits]\nhalf-open-connections = 20\nhandshake-timeout = '1h'\n"
    with leveret_serve(tmp_path, config=config, listen=(TLS,)) as broker:
        wires = []
        for _ in range(100):
            wires.append(wire_to(broker.port))
            wires[-1].sendall(HALF_A_HELLO)
        assert is_served(broker.port, authority.trusting())
        assert "refused" not in broker.log()
        for wire in wires:
            wire.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command on this machine")
def test_renegotiation_is_refused(tmp_path: Path, authority: Authority) -> None:
    """TLS 1.2 lets a client ask for a new handshake again and again, each dear for us: the answer is no."""
    with leveret_serve(tmp_path, config=configuration(), listen=(TLS,)) as broker:
        command = [
            "openssl",
            "s_client",
            "-connect",
            f"127.0.0.1:{broker.port}",
            "-tls1_2",
            "-CAfile",
            str(authority.file),
        ]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as client:
            assert client.stdin is not None and client.stdout is not None
            said = b""
            while b"Verify return code" not in said:
                said += client.stdout.readline()
            assert b"Compression: NONE" in said
            client.stdin.write(b"R\n")  # s_client's word for: renegotiate
            client.stdin.flush()
            rest = client.communicate(timeout=60)[0]
            assert b"RENEGOTIATING" in rest and b"no renegotiation" in rest
        assert is_served(broker.port, authority.trusting())
