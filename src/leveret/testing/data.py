"""The data directory of a test broker, with a journal as for `leveret serve --data`.

The journal has the wall time, so that delays and expiries of a virtual clock continue after a restart.
"""

import trio

from ..journal import JournalError, ended_us, forget_journal
from ..serving.supervisor import Supervisor, why_unusable
from .options import BrokerOptionsError


class DataDirectory:
    """A data directory, used by at most one broker at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._supervisor: Supervisor | None = None
        self._tending = trio.CancelScope()

    def ended_ms(self) -> int | None:
        """The wall time at the end of the last broker; None: there was none. Raises: BrokerOptionsError."""
        try:
            return ended_us(self.path) // 1000 or None
        except (JournalError, OSError) as error:
            raise BrokerOptionsError(f"data: {why_unusable(self.path, error)}") from error

    def begin(self, supervisor: Supervisor | None) -> None:
        """Give the directory to a new broker, with this supervisor of its journal."""
        self._supervisor = supervisor
        self._tending = trio.CancelScope()

    async def tend(self) -> None:
        """Run the journal's supervisor as long as this broker has the directory."""
        assert self._supervisor is not None
        with self._tending:
            await self._supervisor.tend()

    def commit(self) -> None:
        if self._supervisor is not None:
            self._supervisor.commit()

    def close(self) -> None:
        """Write and close the journal."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            self._tending.cancel()
            supervisor.close()
            storage = supervisor.broker.context.storage
            storage.durability = storage.pager = None

    def forget(self) -> None:
        """Close the journal and delete its files."""
        self.close()
        forget_journal(self.path)
