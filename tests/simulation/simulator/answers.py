"""An answer says that what it is about is safe, and what its connection did before it.

Source: journal-format.md, "What a killed broker leaves". While the disk is full, and until a checkpoint has what was
done meanwhile, nothing is said of that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .disk import Disk
from .ledger import Broken, Ledger, QueueName
from .objects import Objects


class Answers:
    """Asked by clients when an answer has come. `happened`: counts them."""

    def __init__(self, ledger: Ledger, objects: Objects, disk: Disk, happened: Counter[str]) -> None:
        self._ledger = ledger
        self._objects = objects
        self._disk = disk
        self._happened = happened

    @property
    def _may_be_full(self) -> bool:
        return self._disk.is_troubled or self._disk.has_been_full

    def of(self, *key: object, is_there: bool = True) -> None:
        """Something was declared, or deleted. `key`: the begin of one of `objects.facts_of`. Raises: Broken."""
        if self._may_be_full:
            return
        if not self._objects.is_safe(self._ledger.committed_lsn(), *key, is_there=is_there):
            raise Broken(f"{key} was answered before it was durably {'there' if is_there else 'gone'}")
        self._happened["answer of what is safe"] += 1

    def after(self, left: Iterable[tuple[QueueName, int]], published: Iterable[bytes] = ()) -> None:
        """Something was answered behind these acknowledgements and publishes of its connection. Raises: Broken."""
        if self._may_be_full:
            return
        if (place := self._ledger.first_left(left)) is not None:
            raise Broken(f"{place[0]}: the acknowledgement of {place[1]} was not durable before a later answer")
        if any(not self._ledger.is_safe(key) for key in published):
            raise Broken("a message was not durable before a later answer to its publisher")
        self._happened["answer of what was before it"] += 1
