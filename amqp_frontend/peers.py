"""Where a connection comes from: its own addresses, or those that a listed proxy names. Pure."""

from dataclasses import replace
from ipaddress import IPv6Address, ip_address

from ..engine import THIS_MACHINE, address_origin
from .options import Network
from .proxy_protocol import ProxyHeader
from .sasl import Peer


def peer_of(address: object, local: object) -> Peer:
    """A peer by the socket's two addresses, as the socket module gives them; (host, port, ...) or a Unix socket's."""
    if not isinstance(address, tuple):
        return Peer("unix socket", True, origin=THIS_MACHINE)  # counts as loopback (ruling 19)
    name = f"{address[0]}:{address[1]}"
    if isinstance(local, tuple):
        name += f" -> {local[0]}:{local[1]}"
    return Peer(name, is_loopback(address[0]), origin=address_origin(address[0], is_loopback=is_loopback(address[0])))


def is_loopback(host: str) -> bool:
    """Whether an address, of either family, is this machine's own."""
    return host.startswith("127.") or host == "::1" or host.startswith("::ffff:127.")


def is_listed(address: object, networks: tuple[Network, ...]) -> bool:
    """Whether a peer is in one of the networks; IPv4 over an IPv6 socket is IPv4."""
    if not isinstance(address, tuple):
        return False
    host = ip_address(address[0])
    if isinstance(host, IPv6Address) and host.ipv4_mapped is not None:
        host = host.ipv4_mapped
    return any(host in network for network in networks)


def proxied(peer: Peer, header: ProxyHeader) -> Peer:
    """The peer as the proxy names it. One that it does not name may be anywhere, so it is not taken for loopback."""
    if header.is_local:
        return peer
    if header.source is None or header.destination is None:
        return replace(peer, is_loopback=False)
    return peer_of(header.source, header.destination)
