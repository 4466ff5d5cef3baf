"""A journal as the broker's sessions see it (`engine.Durability`), with nothing behind it: all is safe at once."""

from __future__ import annotations


class StandInJournal:
    """`is_congested`: it has too much to write. `takes_transient`: it records everything."""

    safe_lsn = 0
    has_failed = is_behind = is_lost = delays_deliveries = False

    def __init__(self, *, is_congested: bool = False, takes_transient: bool = False) -> None:
        self.is_congested = is_congested
        self.takes_transient = takes_transient

    def sync_lsn(self) -> int:
        return 0

    def sync_lsn_of_all(self) -> int:
        return 0

    def sync_lsn_of_objects(self) -> int:
        return 0

    def keep_id(self, vhost: str, address: str, id_: str, first_id: int, size: int) -> bool:
        return False
