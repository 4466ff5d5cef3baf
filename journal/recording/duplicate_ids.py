"""Records and restores duplicate ids, so that the id caches of addresses survive a restart.

Only ids of recorded messages are kept: the publisher of a lost message must be able to send it again.
Source: address-settings page 3.6 (persist-id-cache).
"""

from collections.abc import Iterator

from ...engine import Broker
from ...engine.state import IdCache
from ..appending.journal import Journal
from ..format.heap import IdsSeen
from ..format.record import VHOST
from ..recovery.replay import Recovered

#: Maximum duplicate ids that a checkpoint records between two turns (about 2 ms).
RECORDED_SLICE = 1000
#: Octets that an id takes in the journal in addition to its text (approximate).
ID_OCTETS = 16


class DuplicateIds:
    """Duplicate ids in the journal. `is_on`: whether they are recorded (`persist-id-cache`)."""

    def __init__(self, broker: Broker, journal: Journal, *, is_on: bool) -> None:
        self._broker = broker
        self._journal = journal
        self.is_on = is_on

    def keep(self, vhost: str, address: str, id_: str, first_id: int, size: int) -> None:
        """Record an id in the turn of its message, so that both are durable or neither."""
        if self.is_on:
            self._write(vhost, IdsSeen(address, size, [(id_, first_id)]))

    def _write(self, vhost: str, seen: IdsSeen, *, restated: bool = False) -> None:
        objects = self._journal.objects
        self._journal.turns.ids_bytes += objects.ids_seen(objects.define(VHOST, 0, vhost), seen, restated=restated)

    @property
    def octets(self) -> int:
        """Approximate octets that a checkpoint takes to state the ids. O(addresses)."""
        caches = (cache for vhost in self._broker.virtual_hosts.values() for cache in vhost.context.id_caches.values())
        return sum(ID_OCTETS * len(cache) + cache.characters for cache in caches) if self.is_on else 0

    def record_all(self) -> Iterator[None]:
        """Record all ids again for a checkpoint, one slice for each `next`."""
        if not self.is_on:
            return
        self._journal.turns.ids_bytes = 0
        for vhost in list(self._broker.virtual_hosts.values()):
            for address, cache in list(vhost.context.id_caches.items()):
                ids = cache.ids()  # O(ids), 7 ns each
                for start in range(0, len(ids), RECORDED_SLICE):
                    if vhost.context.is_being_deleted:
                        break
                    recorded = _recorded(cache, ids[start : start + RECORDED_SLICE])
                    if recorded:
                        self._write(vhost.name, IdsSeen(address, cache.size, recorded), restated=True)
                        yield

    def restore(self, found: Recovered) -> None:
        """If `is_on`, fill the id caches with the newest ids, up to the cache size of each address."""
        if not self.is_on:
            return
        broker, names = self._broker, found.names
        for (vhost_id, address), recovered in found.ids.items():
            vhost = broker.virtual_hosts.get(names.text(vhost_id)) if vhost_id in names else None
            if vhost is None:
                continue
            size = broker.context.settings.resolve(address, vhost.name).id_cache_size
            if size:
                cache = vhost.context.id_caches[address] = IdCache(size)
                for id_, message_id in recovered.newest(size):
                    cache.remember(id_, message_id)
                    self._journal.turns.ids_bytes += ID_OCTETS + len(id_)


def _recorded(cache: IdCache, ids: list[str]) -> list[tuple[str, int]]:
    """The ids that are still cached and whose first message is in the journal, each with the id of that message."""
    return [(id_, message_id) for id_ in ids if (message_id := cache.message_id_of(id_))]
