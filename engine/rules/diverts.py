"""Diverts: messages to one address are also, or only, published to another. Source: address-settings page 3.7."""

from collections.abc import Iterable

from ...settings import Divert

#: Maximum number of diverts that one message passes, because a configuration may contain a cycle.
HOPS_MAX = 16


class Diverts:
    """The diverts of one virtual host, by address."""

    __slots__ = ("_by_address",)

    def __init__(self, diverts: Iterable[Divert] = ()) -> None:
        self._by_address: dict[str, list[Divert]] = {}
        for divert in diverts:
            self._by_address.setdefault(divert.address, []).append(divert)

    def of(self, address: str) -> tuple[Divert, ...]:
        """The diverts of messages to `address`; only the exclusive ones if one of these has no filter."""
        found = self._by_address.get(address, [])
        takes_all = any(one.is_exclusive and not one.filter for one in found)
        return tuple([one for one in found if one.is_exclusive] if takes_all else found)
