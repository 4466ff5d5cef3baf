"""What the engine knows of a journal: that something was recorded, and how far it is safe.

The journal listens to events like anybody else; this is the way back.
Source: rulings 21; architecture page, "The walk of one message".
"""

from typing import Protocol


class Durability(Protocol):
    """A journal, as sessions that wait for it see it. LSNs rise; 0: nothing."""

    def take_barrier(self) -> int:
        """The LSN behind what was recorded since this was last asked and must be safe before anybody hears of it."""

    @property
    def safe_lsn(self) -> int:
        """Everything below this is as safe as it ever will be."""

    @property
    def has_failed(self) -> bool:
        """Whether nothing more will be safe: what waits is refused."""
