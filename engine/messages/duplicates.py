"""Duplicate detection: a message whose id was seen before at its address is not routed again.

Source: address-settings page 3.6 (id-cache-size).
"""

from .content import DUPLICATE_IDS
from .field_table import FieldTable


class IdCache:
    """The last `size` duplicate ids of one address, oldest forgotten first."""

    __slots__ = ("_seen", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._seen: dict[object, None] = {}

    def __contains__(self, id_: object) -> bool:
        return id_ in self._seen

    def is_new(self, id_: object) -> bool:
        """Whether this id was not among them; it is from now on."""
        if id_ in self._seen:
            return False
        self._seen[id_] = None
        while len(self._seen) > self.size:
            del self._seen[next(iter(self._seen))]
        return True


def duplicate_id(headers: FieldTable, *, asked_for: bool) -> object | None:
    """A message's id, or None. The plugin's header `x-deduplication-id` counts only where somebody `asked_for` it."""
    for name in DUPLICATE_IDS if asked_for else DUPLICATE_IDS[:1]:
        field = headers.get(name)
        if field is not None:
            return repr(field.comparable())
    return None
