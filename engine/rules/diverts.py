"""Diverts: messages to one address go to others, too or instead. Source: address-settings page 3.7."""

from collections.abc import Iterable

from ...settings import Divert

#: A message is diverted at most so often, whatever circle the configuration makes.
HOPS_MAX = 16


class Diverts:
    """The diverts of one virtual host, by address."""

    __slots__ = ("_by_address",)

    def __init__(self, diverts: Iterable[Divert] = ()) -> None:
        self._by_address: dict[str, list[Divert]] = {}
        for divert in diverts:
            self._by_address.setdefault(divert.address, []).append(divert)

    def of(self, address: str) -> tuple[Divert, ...]:
        """Those that may take messages to `address`: the exclusive ones alone if one of these takes all."""
        found = self._by_address.get(address, [])
        takes_all = any(one.is_exclusive and not one.filter for one in found)
        return tuple([one for one in found if one.is_exclusive] if takes_all else found)
