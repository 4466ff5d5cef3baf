"""Whom strangers are counted as, by where they come from. Pure."""

from ipaddress import IPv6Address

#: The origin of what comes over loopback or a Unix socket.
THIS_MACHINE = "this machine"


def address_origin(host: str, *, is_loopback: bool) -> str:
    """One machine, as far as can be known: an owner of one IPv6 address usually has its whole /64, and this machine all
    of 127.0.0.0/8. What is no address stands for itself."""
    if is_loopback:
        return THIS_MACHINE
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"
