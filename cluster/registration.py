"""This node's own key in etcd, under its lease. It is written again whenever its value has changed."""

import logging
from collections.abc import Callable
from contextlib import suppress

import trio

from .agreement.view import NodeKey, View
from .coordinator import errors
from .coordinator.coordinator import Coordinator, Lease

logger = logging.getLogger("leveret.cluster")

#: Seconds after which the key is written again if only the node's journal has grown.
GROWN_S = 10.0
#: Seconds between a write that failed and the next attempt.
RETRY_S = 1.0


class Registration:
    """Writes this node's key. `key` returns the current value. Nothing is written before `begin`."""

    def __init__(self, coordinator: Coordinator, key: Callable[[], NodeKey]) -> None:
        self._coordinator = coordinator
        self._key = key
        self._is_begun = False
        self._written: NodeKey | None = None  # the value in etcd, as far as this node knows
        self._changed = trio.Event()
        self._writing = trio.Lock()

    def begin(self) -> None:
        """Register this node, whose name must be free. A later call writes the value again, even if it is unchanged."""
        self._is_begun, self._written = True, None
        self._changed.set()

    def wake(self) -> None:
        """Write the value soon, as it may have changed."""
        self._changed.set()

    def take_view(self, view: View) -> None:
        """Register again if the key has vanished from etcd."""
        if self._written is not None and view.node_named(self._written.name) is None:
            self._written = None  # its lease is over, or the leader deleted the key because this node seemed dead
            self._changed.set()

    async def run(self) -> None:
        """Keep the key up to date, until cancelled."""
        while True:
            with trio.move_on_after(GROWN_S):
                await self._changed.wait()
            self._changed = trio.Event()
            if not await self._write():
                await trio.sleep(RETRY_S)
                self._changed.set()

    async def _write(self) -> bool:
        """Write the value if it has changed. False: that failed, and has to be tried again."""
        async with self._writing:
            key = self._key()
            if not self._is_begun or key == self._written:
                return True
            try:
                if await self._coordinator.register(key):
                    self._written = key
                    return True
                logger.error("another node has the name %s", key.name)
            except errors.CoordinatorError as error:
                logger.debug("this node is not registered: %s", error)
            return False

    async def end(self) -> None:
        """End the key's lease, and write no key until `begin`. For a node that stops, or gets a new id."""
        self._is_begun = False
        async with self._writing:  # so that a write under way cannot register the old id again
            with suppress(errors.CoordinatorError):
                await self._coordinator.end_lease(Lease.NODE)
