"""What the engine knows of a journal: that something was recorded, and how far it is safe.

The journal listens to events like anybody else; this is the way back.
Source: ruling 21; docs/architecture.md, "The path of a message".
"""

from typing import Protocol

#: A barrier that is reached when nothing is behind any more.
UNTIL_STATED = 1 << 62


class Durability(Protocol):
    """A journal, as sessions that wait for it see it. LSNs rise; 0: nothing.

    What somebody has a barrier for is written at once when the turn ends, the rest in a while.
    """

    @property
    def takes_transient(self) -> bool:
        """Whether it also records what no restart brings back."""

    def take_sync_lsn(self) -> int:
        """The LSN behind what was recorded since this was last asked and must be safe before anybody hears of it."""

    @property
    def safe_lsn(self) -> int:
        """Everything below this is as safe as it ever will be."""

    def sync_lsn_of_all(self) -> int:
        """The LSN behind all that was recorded for any client; 0: it is safe already, or it can't be now (no room)."""

    def recall(self, id_: int, place: int, size: int) -> None:
        """A message that was published long ago comes into a queue next.

        `place`: where its content is, which has a body of so many octets.
        """

    def keep_id(self, vhost: str, address: str, id_: str, first_id: int, size: int) -> bool:
        """A duplicate id came to an address, which remembers the last `size`, with the messages from `first_id` on.

        Returns: whether any of them is recorded. Then the id is as safe as they are, where ids are kept.
        """

    def await_recorded(self) -> None:
        """The next barrier is behind all that was recorded: an answer says that an earlier message is safe."""

    def retain(self, ms: int) -> None:
        """What was recorded is kept for so long at least, whoever needs it; 0: as long as a queue needs it."""

    @property
    def has_failed(self) -> bool:
        """Whether nothing more is taken now: confirms that wait are refused."""

    @property
    def failed_ms(self) -> int:
        """Since when (wall time), if it has failed."""

    @property
    def is_behind(self) -> bool:
        """Whether things happened that were not recorded: until all is stated again, none counts as safe."""

    @property
    def is_congested(self) -> bool:
        """Whether so much waits to be written that publishers should wait, too."""

    @property
    def is_lost(self) -> bool:
        """Whether that will never be: the disk is not to be trusted before a restart."""
