"""What a store has to know of the queue that it is of, and of what the broker lends: where contents can be left."""

from typing import Protocol

from ..durability import Durability
from ..messages.message import Envelope
from .tail import Pager


class Surroundings(Protocol):
    """Both may come later than the store; None: there is no journal."""

    @property
    def pager(self) -> Pager | None:
        """What gives messages back."""

    @property
    def durability(self) -> Durability | None:
        """What says whether the journal is up to date."""


class Owner(Protocol):
    """The queue of a store."""

    @property
    def broker(self) -> Surroundings:
        """What is lent to it."""

    def stores(self, envelope: Envelope) -> bool:
        """Whether messages of this kind survive a restart in this queue."""
