"""Whether a host is this machine itself, for peers as well as for hosts in a configuration."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address of either family, also one of IPv4 in IPv6, or `localhost`.

    Other names are not, whatever they resolve to.
    """
    if host == "localhost":
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
