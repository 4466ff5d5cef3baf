"""Finds the client behind a proxy. Only listed proxies are trusted to name it. Source: management page 20, 21."""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address

from .http_messages import Peer
from .options import Network

Address = IPv4Address | IPv6Address


def is_trusted(address: str, proxies: Sequence[Network]) -> bool:
    """Whether an address belongs to a listed proxy."""
    found = _read(address) if proxies else None
    return found is not None and any(found in network for network in proxies)


def client_behind(peer: Peer, forwarded: str, scheme: str, proxies: Sequence[Network]) -> Peer:
    """The client of a request that came from `peer`.

    `forwarded`: X-Forwarded-For, to which each proxy appends its peer, so the client is the last entry that is no
    listed proxy. An entry that is not an address does not count as loopback. `scheme`: X-Forwarded-Proto.
    """
    if not is_trusted(peer.address, proxies):
        return peer
    is_secure = peer.is_secure or scheme.strip().lower() == "https"
    names = [name.strip() for name in forwarded.split(",") if name.strip()]
    while names:
        name = names.pop()
        address = _read(name)
        if address is None:
            return replace(peer, address=name[:64], is_loopback=False, is_secure=is_secure)
        if not names or not any(address in network for network in proxies):
            return replace(peer, address=str(address), is_loopback=address.is_loopback, is_secure=is_secure)
    return replace(peer, is_secure=is_secure)


def _read(text: str) -> Address | None:
    """Read an address as proxies write it, perhaps with a port or in brackets; None: it is none."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
