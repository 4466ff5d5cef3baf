"""The directory of a test broker that has one: what is durable is in a journal there, as with `leveret serve --data`.

Wall time is part of it, so that delays and expiries of a virtual clock go on where they were.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from ..engine import Broker
from ..journal import JournalError, ended_us, forget_journal
from ..serving.keeper import Keeper, why_unusable
from ..settings import Configuration
from .options import BrokerOptionsError
from .virtual_clock import EngineClock


class DataDirectory:
    """At most one broker at a time has it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._keeper: Keeper | None = None
        self._tending = trio.CancelScope()

    def ended_ms(self) -> int | None:
        """The wall time at which the last broker stopped using it; None: none did. Raises: BrokerOptionsError."""
        with self._usable():
            return ended_us(self.path) // 1000 or None

    def open(self, clock: EngineClock, broker: Broker, configuration: Configuration) -> None:
        """Give a new broker what was there; it is recorded from now on. Raises: BrokerOptionsError."""
        with self._usable():
            self._keeper = Keeper.open(self.path, clock, broker, configuration, holds_reserve=False)
        self._tending = trio.CancelScope()

    async def tend(self) -> None:
        """For as long as this broker has it."""
        assert self._keeper is not None
        with self._tending:
            await self._keeper.tend()

    def commit(self) -> None:
        """The turn is over."""
        if self._keeper is not None:
            self._keeper.commit()

    def close(self) -> None:
        """The broker has no journal any more; everything it told is on disk."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            self._tending.cancel()
            keeper.close()
            keeper.broker.durability = keeper.broker.pager = None

    def forget(self) -> None:
        """Close, and delete what is there."""
        self.close()
        forget_journal(self.path)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (JournalError, OSError) as error:
            raise BrokerOptionsError(f"data: {why_unusable(self.path, error)}") from error
