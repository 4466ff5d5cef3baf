"""Which other nodes this node reaches: it probes their links every few seconds, and at once when a link was lost.

A node with an open link is not probed: it is reached. That is noted when the link opens. If this node died before
that, its key in etcd would not list the leader as reached: the leader would take itself for cut off, and resign (R5).
"""

from collections.abc import Callable

import trio

from .link.introduction import Reach, reach
from .options import NodeOptions

#: Seconds between two probes of a node.
PERIOD_S = 2.0
#: Probes of a node whose link was lost, and seconds between them, so that a process that has ended is noticed at once.
EAGER_PROBES, EAGER_PAUSE_S = 3, 0.1


class Reachability:
    """Probes other nodes. `reached`: names of those that are reached; `changed` is called when it changes.

    refused: called with the name of a node where no process listens. is_linked: whether a link to or from a node of
    this name is open.
    """

    def __init__(
        self,
        options: NodeOptions,
        changed: Callable[[], object],
        refused: Callable[[str], object],
        is_linked: Callable[[str], bool],
    ) -> None:
        self.reached: frozenset[str] = frozenset()
        self._options = options
        self._others = options.others
        self._changed = changed
        self._refused = refused
        self._is_linked = is_linked
        self._link_opened = trio.Event()

    async def run(self) -> None:
        """Probe all nodes, until cancelled."""
        async with trio.open_nursery() as nursery:
            for name in self._others:
                nursery.start_soon(self._keep_probing, name)

    async def _keep_probing(self, name: str) -> None:
        while True:
            link_opened = self._link_opened
            await self.probe(name)
            with trio.move_on_after(PERIOD_S):
                await link_opened.wait()

    def note_link(self) -> None:
        """Probe now: a link of this node has opened."""
        self._link_opened.set()
        self._link_opened = trio.Event()

    async def probe(self, name: str) -> Reach:
        """Probe one node."""
        if self._is_linked(name):
            found = Reach.REACHED
        else:
            found = await reach(
                self._others[name], self._options.credentials, self._options.tls.client, self._options.link
            )
        reached = self.reached | {name} if found is Reach.REACHED else self.reached - {name}
        if found is Reach.REFUSED:
            self._refused(name)
        if reached != self.reached:
            self.reached = reached
            self._changed()
        return found

    async def probe_eagerly(self, name: str) -> None:
        """Probe a node a few times in a row, or until it is reached."""
        for _ in range(EAGER_PROBES):
            if name not in self._others or await self.probe(name) is Reach.REACHED:
                return
            await trio.sleep(EAGER_PAUSE_S)
