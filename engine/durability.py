"""The engine's interface to a journal: what was recorded, and up to which LSN it is safe.

The journal itself receives events as a listener.
Source: ruling 21; docs/architecture.md, "The path of a message".
"""

from typing import Protocol

#: The sync LSN while the journal `is_behind`: it is reached when the whole state is recorded again.
UNTIL_STATED = 1 << 62


class Durability(Protocol):
    """A journal, for the sessions that wait for it. LSNs rise; 0: nothing to wait for.

    `Turn.records` tells whether a call recorded something. Records below a requested sync LSN are written when the turn
    ends, other records later.
    """

    @property
    def takes_transient(self) -> bool:
        """Whether it also records transient messages."""

    def sync_lsn(self) -> int:
        """The LSN after the records so far, for an answer that says that they are safe."""

    @property
    def safe_lsn(self) -> int:
        """All records below this LSN are as safe as they will be."""

    def sync_lsn_of_all(self) -> int:
        """The LSN after all records, of all clients; 0: all are safe, or cannot be made safe now (no room)."""

    def recall(self, id_: int, location: int, size: int) -> None:
        """Announce that an old message enters a queue next.

        `location`: the location of its content in the journal. `size`: octets of its body.
        """

    def keep_id(self, vhost: str, address: str, id_: str, first_id: int, size: int) -> bool:
        """Record the duplicate id of messages, whose ids start at `first_id`. The address stores the last `size` ids.

        Returns: whether any of these messages is recorded. Then the id is as safe as they are, if ids are persistent.
        """

    def retain(self, ms: int) -> None:
        """Keep all records for at least this time, even if no queue needs them; 0: only while a queue does."""

    @property
    def holds_deliveries(self) -> bool:
        """Whether deliveries of quorum, stream and leased queues wait until the messages are safe: in a cluster."""

    @property
    def has_failed(self) -> bool:
        """Whether the journal cannot write now. Publishes that wait for a confirm are nacked."""

    @property
    def failed_ms(self) -> int:
        """The wall time of the failure in ms, if it has failed."""

    @property
    def is_behind(self) -> bool:
        """Whether events were not recorded. Until the whole state is recorded again, nothing counts as safe."""

    @property
    def is_congested(self) -> bool:
        """Whether too many records wait to be written, so that publishers should wait."""

    @property
    def is_lost(self) -> bool:
        """Whether the journal cannot recover before a restart, because the disk is not trustworthy."""
