"""The engine's interface to a journal: up to which LSN records are safe. The journal gets events as a listener.

Source: ruling 21; docs/architecture.md, "The path of a message".
"""

from typing import Protocol

#: The sync LSN while the journal takes no records: it is reached when the whole state is recorded again.
UNTIL_CAUGHT_UP = 1 << 62


class Durability(Protocol):
    """A journal for which sessions wait. LSNs rise; 0: there is no record to wait for.

    `Turn.records` tells whether a call recorded an event. Records below a requested sync LSN are written when the turn
    ends, other records later.
    """

    @property
    def takes_transient(self) -> bool:
        """Whether it also records transient messages."""

    def sync_lsn(self) -> int:
        """The LSN after the records so far, for an answer that has to wait for them."""

    @property
    def safe_lsn(self) -> int:
        """All records below this LSN are safe."""

    def sync_lsn_of_all(self) -> int:
        """The LSN after the records of all clients; 0: all are safe, or the journal `is_behind`."""

    def sync_lsn_of_objects(self) -> int:
        """The LSN after the last change of queues, exchanges or bindings by any client; 0 as in `sync_lsn_of_all`."""

    def recall(self, vhost: str, queue: str, id_: int, location: int, size: int) -> None:
        """Announce that an old message comes into this queue next. `location`: that of its content in the journal.

        `size`: octets of its body.
        """

    def keep_id(self, vhost: str, address: str, id_: str, first_id: int, size: int) -> bool:
        """Record the duplicate id of messages whose ids begin at `first_id`, if one of them is recorded.

        The address stores the last `size` ids. Returns whether one of these messages is recorded. Then the id is as
        safe as they are, unless `persist-id-cache` is off: then no id is recorded.
        """

    def retain(self, ms: int) -> None:
        """Keep all records for at least this time; 0: only while a queue needs them."""

    @property
    def delays_deliveries(self) -> bool:
        """Whether, in a cluster, deliveries of quorum, stream and leased queues wait until messages are safe."""

    @property
    def has_failed(self) -> bool:
        """Whether the journal stores no publishes now: it takes no records, or only those that free room.

        Publishes that wait for a confirm are nacked.
        """

    @property
    def failed_ms(self) -> int:
        """The wall time of the failure in ms, if it `has_failed`."""

    @property
    def is_behind(self) -> bool:
        """Whether events were not recorded. Until the whole state is recorded again, no record counts as safe."""

    @property
    def is_congested(self) -> bool:
        """Whether too many records are unwritten, so that publishers should wait."""

    @property
    def is_lost(self) -> bool:
        """Whether the journal cannot recover before a restart, because the disk is not trustworthy."""
