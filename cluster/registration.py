"""This node's own key in etcd: under its lease, and written again whenever what it says has changed."""

import logging
from collections.abc import Callable
from contextlib import suppress

import trio

from .agreement.view import NodeKey, View
from .coordinator import errors
from .coordinator.coordinator import Coordinator, Lease

logger = logging.getLogger("leveret.cluster")

#: Seconds between two writes because the node's journal has grown.
GROWN_S = 10.0
#: Seconds until a write that failed is tried again.
AGAIN_S = 1.0


class Registration:
    """`key`: called for what there is to say. Nothing is written before `begin`."""

    def __init__(self, coordinator: Coordinator, key: Callable[[], NodeKey]) -> None:
        self._coordinator = coordinator
        self._key = key
        self._is_begun = False
        self._written: NodeKey | None = None  # as far as this node knows
        self._changed = trio.Event()
        self._writing = trio.Lock()

    def begin(self) -> None:
        """The name is free: register it, also if it was."""
        self._is_begun, self._written = True, None
        self._changed.set()

    def look(self) -> None:
        """What the key says may have changed: write it soon."""
        self._changed.set()

    def seen(self, view: View) -> None:
        """The keys, as etcd has them now."""
        if self._written is not None and view.node(self._written.name) is None:
            self._written = None  # its lease is over, or the leader took this node for a dead one
            self._changed.set()

    async def run(self) -> None:
        """Keep the key, until cancelled."""
        while True:
            with trio.move_on_after(GROWN_S):
                await self._changed.wait()
            self._changed = trio.Event()
            if not await self._write():
                await trio.sleep(AGAIN_S)
                self._changed.set()

    async def _write(self) -> bool:
        """Write what has changed. Returns whether that is done."""
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
        """Give the name back, with its lease: this node has another id from here on."""
        self._is_begun = False
        async with self._writing:  # else the old id could be registered once more, and kept
            with suppress(errors.CoordinatorError):
                await self._coordinator.end_lease(Lease.NODE)
