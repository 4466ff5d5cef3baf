"""The interface of the coordinator. `etcd.py` implements it, and so does a model of the tests.

Any store with revisions, transactions, leases and watches can implement it; locks and elections are not needed.
"""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from ..agreement.view import NodeKey, Transaction, View


class Lease(Enum):
    """The leases of a node. When a lease is over, its keys vanish."""

    NODE = "node"  # of `node/NAME`
    LEADER = "leader"  # of `leader`: a new one for each term


class Coordinator(Protocol):
    """The store of a cluster's keys. Its errors: errors.py. `watch` and `keep_leases` are for one task each.

    Times are of this process's monotonic clock, and are taken when a request is sent: its answer is about that moment
    or a later one.
    """

    @property
    def last_answer_ns(self) -> int:
        """The time at which the last answered `read`, `transact` or `register` was sent; 0: none was answered."""

    @property
    def trouble(self) -> str:
        """Why the coordinator is not reached, in words; "": the last read, or the watch, did reach it."""

    async def read(self) -> View:
        """All keys, at a revision that is not older than this call. Raises: Unreachable, UnfitCoordinator."""

    async def transact(self, transaction: Transaction) -> tuple[bool, View]:
        """Returns whether the guards held and all was written, and the keys directly after.

        `leader` is put under a new lease of this node, `preferred` under one of 10 s, other keys under none.

        Raises: Unreachable: nothing was done. InDoubt: it may take effect, now or later. UnfitCoordinator.
        """

    async def register(self, node: NodeKey) -> bool:
        """Write this node's own key under its lease `NODE`, which is granted if there is none.

        Returns: False: another node has the name.
        Raises: as `transact`; after InDoubt it may be called again.
        """

    async def keep_leases(self, may_renew: Callable[[Lease], bool], renewed: Callable[[Lease, int], None]) -> None:
        """Renew this node's leases until cancelled, also while the event loop is busy.

        `may_renew` is called before each renewal, in another thread; `renewed` after it, in the loop, with the time of
        the request. A lease that is over is not renewed: its keys are missing in the next View, and the next put or
        `register` grants another.
        """

    async def end_lease(self, lease: Lease) -> None:
        """Stop renewing a lease; end it and its keys at once if the coordinator is reached.

        Raises: Unreachable, UnfitCoordinator: the lease runs out.
        """

    async def watch(self, heard: Callable[[View, int], None]) -> None:
        """Until cancelled, call `heard` with all keys and the time at which they were read: now and after each change.

        Several changes may be reported as one, and late, but the last one always is. Nothing is reported while the
        coordinator is not reached.
        """
