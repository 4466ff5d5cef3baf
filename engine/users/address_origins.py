"""The origin of a peer, by which failed logins are counted. Pure."""

from ipaddress import IPv6Address

#: The origin of peers over loopback or a Unix socket.
THIS_MACHINE = "this machine"


def address_origin(host: str, *, is_loopback: bool) -> str:
    """The machine of a peer: an IPv4 address, or the /64 network of an IPv6 address, which usually has one owner.

    All loopback addresses are `THIS_MACHINE`. A host that is not an IP address is its own origin.
    """
    if is_loopback:
        return THIS_MACHINE
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"
