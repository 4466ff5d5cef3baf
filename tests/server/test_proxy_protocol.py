"""PROXY protocol through a real process: who must say it, who must not, and what it does to guest."""

import socket
import ssl
from pathlib import Path

import pytest
from broker_process import BrokerProcess, leveret_serve
from certificates import Authority, configuration
from pamqp import commands, frame

HELLO = b"AMQP\x00\x00\x09\x01"
FROM_HERE = "[broker]\nproxy-protocol-from = ['127.0.0.0/8', '::1']\n"
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
LOCAL = SIGNATURE + b"\x20\x00\x00\x00"
NEAR = b"PROXY TCP4 127.0.0.1 127.0.0.1 4711 5672\r\n"
FAR = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 5672\r\n"
FAR6 = (
    SIGNATURE + b"\x21\x21\x00\x28" + bytes(15) + b"\x02" + bytes(15) + b"\x03" + b"\x00\x07\x00\x08" + b"\x30\x00\x01x"
)


def connect(broker: BrokerProcess) -> socket.socket:
    """Nothing said yet."""
    return socket.create_connection(("127.0.0.1", broker.port), timeout=60)


def login(wire: socket.socket) -> str:
    """Name of the method that answers a login as guest, after connection.start."""
    properties = {"capabilities": {"authentication_failure_close": True}}
    wire.sendall(HELLO)
    assert b"".join(iter(lambda: wire.recv(1), b"\xce"))[:3] == b"\x01\0\0"
    wire.sendall(frame.marshal(commands.Connection.StartOk(properties, "PLAIN", "\0guest\0guest", "en_US"), 0))
    return frame.unmarshal(wire.recv(4096))[2].name


def end_of(wire: socket.socket) -> bytes:
    """What is said until the end."""
    data = b""
    try:
        while part := wire.recv(4096):
            data += part
    except ConnectionResetError:
        pass
    return data


@pytest.mark.parametrize(
    "header, answer",
    [
        (NEAR, "Connection.Tune"),
        (FAR, "Connection.Close"),
        (FAR6, "Connection.Close"),
        (LOCAL, "Connection.Tune"),  # the proxy itself, which is on this machine
        (b"PROXY UNKNOWN\r\n", "Connection.Close"),  # somebody, somewhere
        (SIGNATURE + b"\x21\x00\x00\x00", "Connection.Close"),
    ],
)
def test_guest_is_where_the_proxy_says(tmp_path: Path, header: bytes, answer: str) -> None:
    """The loopback rule looks at the address that is named, in one segment with the rest or octet by octet."""
    with leveret_serve(tmp_path, config=FROM_HERE) as broker:
        with connect(broker) as wire:
            wire.sendall(header)
            assert login(wire) == answer
        with connect(broker) as wire:
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for octet in header:
                wire.sendall(bytes([octet]))
            assert login(wire) == answer
        with connect(broker) as wire:
            wire.sendall(header + HELLO[:-1] + b"\x02")
            assert end_of(wire) == HELLO
        if header == FAR:
            broker.wait_for_log("192.0.2.7:4711 -> 198.51.100.1:5672: refused: the protocol header is not that of AMQP")


@pytest.mark.parametrize(
    "said, line",
    [
        (HELLO, "refused: PROXY header: there is none, but connections from this peer must begin with one"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n", "refused: PROXY header: version 1: not PROXY TCP4"),
        (b"PROXY TCP4 " + b"1" * 200, "refused: PROXY header: version 1: no end of line within 107 octets"),
        (SIGNATURE + b"\x21\x11\xff\xff", "refused: PROXY header: version 2: 65551 octets, more than 4096"),
    ],
)
def test_listed_peers_must_say_it_well(tmp_path: Path, said: bytes, line: str) -> None:
    """Otherwise they are hung up on without a word, and the log has the reason."""
    with leveret_serve(tmp_path, config=FROM_HERE) as broker, connect(broker) as wire:
        wire.sendall(said)
        assert end_of(wire) == b""
        broker.wait_for_log(line)


def test_headers_that_do_not_come_to_their_end(tmp_path: Path) -> None:
    """Cut short: a line. Slow: the handshake timeout. Nothing at all, as health checks do: no line."""
    with leveret_serve(tmp_path, config=FROM_HERE + "[limits]\nhandshake-timeout = '300ms'\n") as broker:
        connect(broker).close()
        with connect(broker) as wire:
            wire.sendall(b"PROXY TCP4 ")
            wire.shutdown(socket.SHUT_WR)
            assert end_of(wire) == b""
        with connect(broker) as wire:
            wire.sendall(SIGNATURE)
            assert end_of(wire) == b""
        assert broker.log().count("PROXY") == 1
        assert "refused: PROXY header: cut short after 11 octets" in broker.log()
        assert "handshake timed out" in broker.log()


@pytest.mark.parametrize("header", [NEAR, LOCAL, FAR6])
def test_nobody_else_may_say_it(tmp_path: Path, header: bytes) -> None:
    """From a peer that is not listed it is a bad protocol header, and is answered as one."""
    config = "[broker]\nproxy-protocol-from = '10.0.0.0/8'\n"
    with leveret_serve(tmp_path, config=config) as broker, connect(broker) as wire:
        wire.sendall(header)
        assert end_of(wire) == HELLO
        broker.wait_for_log("a PROXY header, but the peer is not in broker.proxy-protocol-from")
        with connect(broker) as plain:
            assert login(plain) == "Connection.Tune"


def test_before_tls(tmp_path: Path) -> None:
    """The header comes first, in the clear, then the handshake; here in one segment."""
    authority = Authority(tmp_path)
    authority.issue()
    config = FROM_HERE + configuration()
    with leveret_serve(tmp_path, config=config, listen=("amqps://127.0.0.1:0",)) as broker, connect(broker) as wire:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = authority.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
        prefix = FAR
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                wire.sendall(prefix + outgoing.read())
                prefix = b""
                incoming.write(wire.recv(65536))
        client.write(HELLO[:-1] + b"\x02")
        wire.sendall(outgoing.read())
        incoming.write(end_of(wire))
        assert client.read(100) == HELLO
        broker.wait_for_log("192.0.2.7:4711 -> 198.51.100.1:5672: refused: the protocol header is not that of AMQP")


def test_the_address_that_is_named_has_the_share(tmp_path: Path) -> None:
    """Strangers through one proxy: each address has its share of the half-open places, and none has all of them."""
    with leveret_serve(tmp_path, config=FROM_HERE + "[limits]\nhalf-open-connections = 40\n") as broker:
        waiting: dict[int, list[socket.socket]] = {}
        for number in (1, 2, 3, 4, 5):
            waiting[number] = [connect(broker) for _ in range(8)]
            for wire in waiting[number]:
                wire.sendall(FAR.replace(b"192.0.2.7", b"192.0.2.%d" % number))
                if number < 4:
                    wire.sendall(HELLO)
                    assert wire.recv(1) == b"\x01"  # of connection.start
        with connect(broker) as wire:
            wire.sendall(FAR + HELLO)
            assert wire.recv(1) == b"\x01"
        with connect(broker) as wire:
            wire.sendall(NEAR + HELLO)
            assert wire.recv(1) == b"\x01"
        for wires in waiting.values():
            for wire in wires:
                wire.close()


def test_many_behind_one_proxy_take_no_place_of_who_is_logged_in(tmp_path: Path) -> None:
    """A connection counts for the address that is named: the proxy itself has not used up its share by it."""
    limit = "[limits]\nhalf-open-connections = 8\n"
    with leveret_serve(tmp_path, config=FROM_HERE + limit) as broker, connect(broker) as first:
        first.sendall(NEAR)
        assert login(first) == "Connection.Tune"
        first.sendall(frame.marshal(commands.Connection.TuneOk(2047, 131072, 0), 0))
        first.sendall(frame.marshal(commands.Connection.Open("/"), 0))
        assert frame.unmarshal(first.recv(4096))[2].name == "Connection.OpenOk"
        for _ in range(20):
            with connect(broker) as wire:
                wire.sendall(FAR + HELLO)
                assert wire.recv(1) == b"\x01"
        first.sendall(frame.marshal(commands.Connection.Close(200, "", 0, 0), 0))
        assert frame.unmarshal(first.recv(4096))[2].name == "Connection.CloseOk"
