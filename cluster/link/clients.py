"""Clients of a follower, passed on to the leader: a connection of the link that turns into the client's own.

The leader serves it like one that it accepted itself, under the client's address, which comes in a PROXY header of
version 2 (haproxy's doc/proxy-protocol.txt), with the fields for TLS if the follower ended TLS.
"""

import ipaddress
import socket
import ssl
import struct
from dataclasses import dataclass
from enum import Enum, auto

import trio

from .challenge import ChallengeFault, Circle
from .frames import VERSION, Accept, Client, FrameFault
from .introduction import Address, LinkFault, LinkOptions, connect
from .relay import relay

_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_PROXY = 0x21
_UNSPECIFIED, _STREAM4, _STREAM6 = 0x00, 0x11, 0x21
_FIELD_TLS, _FIELD_TLS_VERSION, _FIELD_TLS_NAME, _FIELD_TLS_CIPHER = 0x20, 0x21, 0x22, 0x23
_HAS_TLS, _HAS_CERTIFICATE, _HAS_CERTIFICATE_BEFORE = 0x01, 0x02, 0x04
_SIZE_MAX = 4096


@dataclass(slots=True, frozen=True)
class ClientTls:
    """TLS that the follower ended. `name`: common name of the verified client certificate; empty: it showed none."""

    version: str
    cipher: str
    name: str = ""


def client_header(
    source: tuple[str, int] | None, destination: tuple[str, int] | None, tls: ClientTls | None = None
) -> bytes:
    """The PROXY header of a client. `source`: (host, port); None: it came by a Unix socket. `destination`: None: it is
    not known, which does not make a client of another machine a local one.
    """
    family, addresses = _UNSPECIFIED, b""
    if source is not None:
        destination = destination or (_anywhere(source[0]), 0)
        hosts = [_address(host) for host, _ in (source, destination)]
        if all(host.version == 4 for host in hosts):
            family, packed = _STREAM4, [host.packed for host in hosts]
        else:
            family, packed = _STREAM6, [_as_six(host).packed for host in hosts]
        addresses = b"".join(packed) + struct.pack(">HH", source[1], destination[1])
    content = addresses + (_tls_field(tls) if tls is not None else b"")
    return _SIGNATURE + struct.pack(">BBH", _PROXY, family, len(content)) + content


def _anywhere(host: str) -> str:
    """No particular address, of the family of `host`."""
    return "0.0.0.0" if _address(host).version == 4 else "::"


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """IPv4 over an IPv6 socket is IPv4, else it would not count as loopback where the header is read."""
    address = ipaddress.ip_address(host.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _as_six(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv6Address:
    return address if isinstance(address, ipaddress.IPv6Address) else ipaddress.IPv6Address(f"::ffff:{address}")


def _tls_field(tls: ClientTls) -> bytes:
    flags = _HAS_TLS | (_HAS_CERTIFICATE | _HAS_CERTIFICATE_BEFORE if tls.name else 0)
    # Verify: 0, the certificate (if any) was verified.
    content = struct.pack(">BI", flags, 0) + _field(_FIELD_TLS_VERSION, tls.version)
    if tls.name:
        content += _field(_FIELD_TLS_NAME, tls.name)
    content += _field(_FIELD_TLS_CIPHER, tls.cipher)
    return struct.pack(">BH", _FIELD_TLS, len(content)) + content


def _field(kind: int, text: str) -> bytes:
    octets = text.encode()[:1024]
    return struct.pack(">BH", kind, len(octets)) + octets


def client_tls(header: bytes) -> ClientTls | None:
    """The fields for TLS in a PROXY header of `client_header`; None: there are none."""
    if header[13:14] not in (b"\x11", b"\x21", b"\x00") or len(header) < 16:
        return None
    start = 16 + {_STREAM4: 12, _STREAM6: 36, _UNSPECIFIED: 0}[header[13]]
    outer = dict(_fields(header[start:]))
    if _FIELD_TLS not in outer:
        return None
    inner = dict(_fields(outer[_FIELD_TLS][5:]))
    version, name, cipher = (
        inner.get(kind, b"").decode(errors="replace")
        for kind in (_FIELD_TLS_VERSION, _FIELD_TLS_NAME, _FIELD_TLS_CIPHER)
    )
    return ClientTls(version, cipher, name)


def _fields(octets: bytes) -> list[tuple[int, bytes]]:
    found = []
    while len(octets) >= 3:
        kind, size = struct.unpack_from(">BH", octets)
        found.append((kind, octets[3 : 3 + size]))
        octets = octets[3 + size :]
    return found


class Passed(Enum):
    """How passing a client on ended. REFUSED: nothing was sent to it and nothing read of it; it can be tried again."""

    SERVED = auto()
    REFUSED = auto()


class ClientPasser:
    """Passes the clients of one node on."""

    def __init__(
        self, circle: Circle, name: str, options: LinkOptions | None = None, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self._circle = circle
        self._name = name
        self._options = options or LinkOptions()
        self._tls = tls

    async def pass_on(
        self,
        client: socket.socket | trio.abc.Stream,
        first: bytes,
        leader: Address,
        header: bytes,
        service: str = "amqp",
    ) -> Passed:
        """Pass a client on until either side has ended, and close it then, unless the result is REFUSED.

        first: octets that were read of it. header: of `client_header`. service: the frontend that it wants.
        """
        options, circle = self._options, self._circle
        try:
            link = await connect(leader, circle, self._tls, options)
        except (LinkFault, FrameFault, ChallengeFault):
            return Passed.REFUSED
        stream = client if isinstance(client, trio.abc.Stream) else _stream_of(client)
        is_ours = False
        try:
            said = Client(VERSION, circle.cluster, circle.group, self._name, service, header)
            try:
                await link.send(said)
                await link.receive(Accept, timeout_s=options.introduction_s)
            except (LinkFault, FrameFault):
                return Passed.REFUSED
            is_ours = True
            await relay(stream, link.stream, first=first, early=link.take_rest())
            return Passed.SERVED
        finally:
            with trio.CancelScope(shield=True):
                await link.close()
                if is_ours:
                    await trio.aclose_forcefully(stream)


def _stream_of(client: socket.socket) -> trio.SocketStream:
    return trio.SocketStream(trio.socket.from_stdlib_socket(client))
