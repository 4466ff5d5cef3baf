"""The addresses of a connection: its own, or those that a listed proxy names in a PROXY header. Pure.

Versions 1 and 2 of the PROXY protocol. The header is read from listed peers only, and they must send it: if it were
optional, clients could forge it. Source: haproxy's doc/proxy-protocol.txt, sections 2.1 and 2.2.
"""

import struct
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address

from ...engine import THIS_MACHINE, address_origin
from ...settings.frozen import frozen
from ...settings.loopback import is_loopback
from ..options import Network
from ..peer.login import Peer

#: Maximum octets of a line of version 1, with its end.
LINE_MAX = 107
#: Maximum octets of a header of version 2: fixed part, addresses (at most 216), additional fields (some hundred).
SIZE_MAX = 4096

_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_FIXED = struct.Struct(">12sBBH")
_TCP4 = struct.Struct(">4s4sHH")
_TCP6 = struct.Struct(">16s16sHH")
_UNIX_SIZE = 216
#: Octets of version 2: version and command; address family and transport.
_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED, _STREAM4, _STREAM6, _UNIX = 0x00, 0x11, 0x21, 0x31


class ProxyFault(Exception):
    """The octets are no PROXY header; the text is for the log."""


@frozen
class ProxyHeader:
    """A PROXY header. `size`: its octets. `source`, `destination`: (host, port); None: the proxy names none.

    `is_local`: the proxy speaks for itself (a health check), so the connection's own addresses count.
    """

    size: int
    source: tuple[str, int] | None = None
    destination: tuple[str, int] | None = None
    is_local: bool = False


def read_header(data: bytes) -> ProxyHeader | None:
    """The header at the start of `data`; None: more octets are needed. Raises: ProxyFault, at the first wrong octet."""
    if data.startswith(b"PROXY "[: len(data)]):
        return _read_line(data)
    if data.startswith(_SIGNATURE[: len(data)]):
        return _read_binary(data)
    raise ProxyFault("there is none, but connections from this peer must begin with one (broker.proxy-protocol-from)")


def _read_line(data: bytes) -> ProxyHeader | None:
    """Read version 1, such as `PROXY TCP4 192.0.2.1 198.51.100.1 56324 5672`, CR, LF."""
    line, end, _ = data[:LINE_MAX].partition(b"\r\n")
    if not end:
        if len(data) >= LINE_MAX:
            raise ProxyFault(f"version 1: no end of line within {LINE_MAX} octets")
        return None
    size = len(line) + len(end)
    words = line.split(b" ")
    if words[1] == b"UNKNOWN":  # the rest is to be ignored
        return ProxyHeader(size)
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise ProxyFault("version 1: not PROXY TCP4|TCP6|UNKNOWN and four words")
    kind = IPv4Address if words[1] == b"TCP4" else IPv6Address
    return ProxyHeader(size, (_address(words[2], kind), _port(words[4])), (_address(words[3], kind), _port(words[5])))


def _address(word: bytes, kind: type[IPv4Address] | type[IPv6Address]) -> str:
    try:
        address = ip_address(word.decode("ascii"))
    except ValueError:
        raise ProxyFault("version 1: an address is invalid") from None
    if not isinstance(address, kind):
        raise ProxyFault("version 1: an address is of the other family")
    return str(address)


def _port(word: bytes) -> int:
    # As the specification requires: int() alone would accept "+1", "1_0", and digits of any script.
    if not word.isdigit() or len(word) > 5 or (word[:1] == b"0" and len(word) > 1) or int(word) > 65535:
        raise ProxyFault("version 1: a port is invalid")
    return int(word)


def _read_binary(data: bytes) -> ProxyHeader | None:
    if len(data) < _FIXED.size:
        return None
    _, command, family, length = _FIXED.unpack_from(data)
    size = _FIXED.size + length
    if command not in (_LOCAL, _PROXY):
        raise ProxyFault(f"version 2: version and command are {command:#04x}")
    if size > SIZE_MAX:
        raise ProxyFault(f"version 2: {size} octets, more than {SIZE_MAX}")
    if len(data) < size:
        return None
    if command == _LOCAL:
        return ProxyHeader(size, is_local=True)
    if family == _UNSPECIFIED:
        return ProxyHeader(size)
    if family == _UNIX:
        if length < _UNIX_SIZE:
            raise ProxyFault("version 2: shorter than its addresses")
        return ProxyHeader(size)  # a path on the proxy's machine has no meaning here
    form = {_STREAM4: _TCP4, _STREAM6: _TCP6}.get(family)
    if form is None:
        raise ProxyFault(f"version 2: address family and transport are {family:#04x}")
    if length < form.size:
        raise ProxyFault("version 2: shorter than its addresses")
    source, destination, source_port, destination_port = form.unpack_from(data, _FIXED.size)
    return ProxyHeader(
        size, (str(ip_address(source)), source_port), (str(ip_address(destination)), destination_port)
    )  # additional fields (TLVs) after the addresses are skipped


def peer_of(address: object, local: object) -> Peer:
    """The peer of a socket with these two addresses, in the socket module's form: a tuple, or a Unix socket's text."""
    if not isinstance(address, tuple):
        return Peer("unix socket", True, origin=THIS_MACHINE)  # counts as loopback (ruling 19)
    name = f"{address[0]}:{address[1]}"
    if isinstance(local, tuple):
        name += f" -> {local[0]}:{local[1]}"
    is_local = is_loopback(address[0])
    return Peer(name, is_local, origin=address_origin(address[0], is_loopback=is_local))


def is_listed(address: object, networks: tuple[Network, ...]) -> bool:
    """Whether a peer is in one of the networks. An IPv4 peer of an IPv6 socket counts as IPv4."""
    if not isinstance(address, tuple):
        return False
    host = ip_address(address[0])
    if isinstance(host, IPv6Address) and host.ipv4_mapped is not None:
        host = host.ipv4_mapped
    return any(host in network for network in networks)


def proxied(peer: Peer, header: ProxyHeader) -> Peer:
    """The peer that the proxy names. If it names none, the peer may be anywhere, so it does not count as loopback."""
    if header.is_local:
        return peer
    if header.source is None or header.destination is None:
        return replace(peer, is_loopback=False)
    return peer_of(header.source, header.destination)
