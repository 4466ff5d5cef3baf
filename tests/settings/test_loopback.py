"""Which hosts are this machine: who logs in as guest, reads a node's state, and needs no TLS, goes by it."""

import pytest

from leveret.settings.loopback import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "::1%lo", "::ffff:127.0.0.1", "localhost"])
def test_this_machine(host: str) -> None:
    """Of either family, and IPv4 through a socket of IPv6."""
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["127.example.com", "127.0.0.1.example.com", "::12", "::ffff:10.0.0.1", "0.0.0.0", "::", "10.0.0.1", ""]
)
def test_other_machines(host: str) -> None:
    """A name that looks like an address is none, and an address that begins like ours is another one."""
    assert not is_loopback(host)
