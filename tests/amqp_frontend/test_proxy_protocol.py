"""PROXY protocol, as octets: what is read, what is refused. Source: haproxy's proxy-protocol.txt, 2.1, 2.2."""

from ipaddress import ip_network

import pytest

from leveret.amqp_frontend.edge.proxy_protocol import (
    LINE_MAX,
    SIZE_MAX,
    ProxyFault,
    ProxyHeader,
    is_listed,
    is_loopback,
    proxied,
    read_header,
)
from leveret.amqp_frontend.peer.login import Peer

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
ADDRESSES4 = bytes([192, 0, 2, 1, 198, 51, 100, 2]) + (56324).to_bytes(2, "big") + (5672).to_bytes(2, "big")
ADDRESSES6 = bytes(15) + b"\x01" + bytes(15) + b"\x02" + (1).to_bytes(2, "big") + (65535).to_bytes(2, "big")
PROXY = Peer("10.0.0.9:1 -> 10.0.0.1:5672", is_loopback=True)


def binary(command: int, family: int, content: bytes, length: int | None = None) -> bytes:
    """A header of version 2."""
    size = len(content) if length is None else length
    return SIGNATURE + bytes([command, family]) + size.to_bytes(2, "big") + content


READ = [
    (
        b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 5672\r\n",
        ProxyHeader(46, ("192.0.2.1", 56324), ("198.51.100.2", 5672)),
    ),
    (b"PROXY TCP6 2001:DB8::1 ::1 0 65535\r\n", ProxyHeader(36, ("2001:db8::1", 0), ("::1", 65535))),
    (b"PROXY UNKNOWN\r\n", ProxyHeader(15)),
    (b"PROXY UNKNOWN whatever the proxy likes to say\r\n", ProxyHeader(47)),
    (binary(0x21, 0x11, ADDRESSES4), ProxyHeader(28, ("192.0.2.1", 56324), ("198.51.100.2", 5672))),
    (binary(0x21, 0x21, ADDRESSES6), ProxyHeader(52, ("::1", 1), ("::2", 65535))),
    (
        binary(0x21, 0x11, ADDRESSES4 + b"\x03\x00\x04abcd\x30\x00\x01x"),  # TLVs: skipped
        ProxyHeader(39, ("192.0.2.1", 56324), ("198.51.100.2", 5672)),
    ),
    (binary(0x21, 0x31, bytes(216)), ProxyHeader(232)),
    (binary(0x21, 0x00, b""), ProxyHeader(16)),
    (binary(0x20, 0x00, b""), ProxyHeader(16, is_local=True)),
    (binary(0x20, 0x11, ADDRESSES4), ProxyHeader(28, is_local=True)),
    (
        binary(0x21, 0x11, ADDRESSES4 + bytes(SIZE_MAX - 28)),
        ProxyHeader(SIZE_MAX, ("192.0.2.1", 56324), ("198.51.100.2", 5672)),
    ),
]


@pytest.mark.parametrize("octets, header", READ)
def test_headers_are_read_however_they_are_cut(octets: bytes, header: ProxyHeader) -> None:
    """Octet by octet: nothing is said before the last one; what follows the header is left alone."""
    assert [read_header(octets[:size]) for size in range(len(octets))] == [None] * len(octets)
    assert read_header(octets) == header
    assert read_header(octets + b"AMQP\0\0\x09\x01") == header


REFUSED = [
    (b"AMQP", "there is none"),
    (b"\x16\x03\x01", "there is none"),
    (b"PROXX", "there is none"),
    (b"\r\n\r\n\x00\r\nQUIX", "there is none"),
    (b"PROXY \r\n", "four words"),
    (b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n", "four words"),
    (b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n", "four words"),
    (b"PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n", "four words"),
    (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n", "four words"),
    (b"PROXY TCP4 ::1 ::1 1 2\r\n", "other family"),
    (b"PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n", "other family"),
    (b"PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n", "address is invalid"),
    (b"PROXY TCP4 127.1 192.0.2.2 1 2\r\n", "address is invalid"),
    (b"PROXY TCP4 \xff\xfe 192.0.2.2 1 2\r\n", "address is invalid"),
    (b"PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n", "port is invalid"),
    (b"PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n", "port is invalid"),
    (b"PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n", "port is invalid"),
    (b"PROXY TCP4 192.0.2.1 192.0.2.2 99999999999 2\r\n", "port is invalid"),
    (b"PROXY TCP4 " + b"1" * LINE_MAX, "no end of line"),
    (b"PROXY UNKNOWN" + b" " * LINE_MAX + b"\r\n", "no end of line"),
    (binary(0x11, 0x11, ADDRESSES4), "version and command are 0x11"),
    (binary(0x22, 0x11, ADDRESSES4), "version and command are 0x22"),
    (binary(0x21, 0x12, ADDRESSES4), "transport are 0x12"),
    (binary(0x21, 0x41, ADDRESSES4), "transport are 0x41"),
    (binary(0x21, 0x11, ADDRESSES4[:-1]), "shorter"),
    (binary(0x21, 0x21, ADDRESSES4), "shorter"),
    (binary(0x21, 0x31, ADDRESSES4), "shorter"),
    (binary(0x21, 0x11, b"", 65535), "65551 octets"),
    (binary(0x20, 0x00, b"", SIZE_MAX), "4112 octets"),
]


@pytest.mark.parametrize("octets, problem", REFUSED)
def test_hostile_headers_are_refused(octets: bytes, problem: str) -> None:
    """Whole, or octet by octet: the same reason, and too large ones before they came."""
    with pytest.raises(ProxyFault, match=problem):
        read_header(octets)
    with pytest.raises(ProxyFault, match=problem):
        for size in range(len(octets) + 1):
            assert read_header(octets[:size]) is None


def test_whom_a_header_makes_of_a_peer() -> None:
    """Its source; the proxy itself for LOCAL; somebody who is not on loopback where the proxy does not say."""
    named = proxied(PROXY, ProxyHeader(1, ("192.0.2.1", 5), ("198.51.100.2", 6)))
    assert named == Peer("192.0.2.1:5 -> 198.51.100.2:6", is_loopback=False)
    assert proxied(named, ProxyHeader(1, ("127.0.0.1", 5), ("127.0.0.1", 6))).is_loopback
    assert proxied(PROXY, ProxyHeader(1, is_local=True)) == PROXY
    assert proxied(PROXY, ProxyHeader(1)) == Peer(PROXY.name, is_loopback=False)


@pytest.mark.parametrize(
    "address, is_in",
    [
        (("10.1.2.3", 5), True),
        (("11.1.2.3", 5), False),
        (("::ffff:10.1.2.3", 5, 0, 0), True),
        (("2001:db8::7", 5, 0, 0), True),
        (("fe80::1%eth0", 5, 0, 2), False),
        ("", False),  # a Unix socket
    ],
)
def test_who_is_listed(address: object, is_in: bool) -> None:
    """IPv4 over an IPv6 socket is IPv4."""
    assert is_listed(address, (ip_network("10.0.0.0/8"), ip_network("2001:db8::/32"))) is is_in


@pytest.mark.parametrize(
    "host, is_own",
    [("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("::2", False)],
)
def test_loopback_addresses(host: str, is_own: bool) -> None:
    """All of 127/8, and IPv6's one."""
    assert is_loopback(host) is is_own
