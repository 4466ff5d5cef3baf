"""The directory of a test broker that has one: what is durable is in a journal there, as with `leveret serve --data`.

Wall time is part of it, so that delays and expiries of a virtual clock go on where they were.
"""

import trio

from ..journal import JournalError, ended_us, forget_journal
from ..serving.supervisor import Supervisor, why_unusable
from .options import BrokerOptionsError


class DataDirectory:
    """At most one broker at a time has it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._supervisor: Supervisor | None = None
        self._tending = trio.CancelScope()

    def ended_ms(self) -> int | None:
        """The wall time at which the last broker stopped using it; None: none did. Raises: BrokerOptionsError."""
        try:
            return ended_us(self.path) // 1000 or None
        except (JournalError, OSError) as error:
            raise BrokerOptionsError(f"data: {why_unusable(self.path, error)}") from error

    def begin(self, supervisor: Supervisor | None) -> None:
        """A new broker has it, with this keeper of its journal."""
        self._supervisor = supervisor
        self._tending = trio.CancelScope()

    async def tend(self) -> None:
        """For as long as this broker has it."""
        assert self._supervisor is not None
        with self._tending:
            await self._supervisor.tend()

    def commit(self) -> None:
        """The turn is over."""
        if self._supervisor is not None:
            self._supervisor.commit()

    def close(self) -> None:
        """The broker has no journal any more; everything that it confirmed is on disk."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            self._tending.cancel()
            supervisor.close()
            storage = supervisor.broker.context.storage
            storage.durability = storage.pager = None

    def forget(self) -> None:
        """Close, and delete what is there."""
        self.close()
        forget_journal(self.path)
