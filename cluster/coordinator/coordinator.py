"""The interface of the coordinator. `etcd.py` implements it; the tests have a model.

Any store with revisions, transactions, leases and watches can implement it: locks and elections are not needed.
"""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from ..agreement.view import NodeKey, Transaction, View


class Lease(Enum):
    """The leases of a node. The keys under a lease vanish when it is over."""

    NODE = "node"  # of `node/NAME`
    LEADER = "leader"  # of `leader`: a new one for each term


class Coordinator(Protocol):
    """Errors are those of errors.py. One task at a time may be in `watch`, and one in `keep_leases`.

    Times are those of this process's monotonic clock at which a request was sent: what its answer says was true then,
    or later.
    """

    @property
    def last_answer_ns(self) -> int:
        """The time at which the last answered `read`, `transact` or `register` was sent; 0: none was answered."""

    @property
    def trouble(self) -> str:
        """Why the coordinator is not reached, in words; "": it is, as far as reads and the watch know."""

    async def read(self) -> View:
        """All keys at one revision, not older than this call. Raises: Unreachable, UnfitCoordinator."""

    async def transact(self, transaction: Transaction) -> tuple[bool, View]:
        """Whether the guards held and all was written; and the keys directly after.

        `leader` is put under a new lease of this node, `preferred` under one of 10 s, the others under none.

        Raises: Unreachable: nothing was done. InDoubt: it may take effect, now or later. UnfitCoordinator.
        """

    async def register(self, node: NodeKey) -> bool:
        """Write this node's own key under its lease, which is granted if there is none.

        Returns: False: another node has the name.
        Raises: as `transact`; in doubt it may be called again.
        """

    async def keep_leases(self, may_renew: Callable[[Lease], bool], renewed: Callable[[Lease, int], None]) -> None:
        """Renew this node's leases until cancelled, also while the event loop is busy.

        `may_renew` is called before each renewal, in another thread; `renewed` after it, in the loop, with the time at
        which it was asked for. A lease that is over is not renewed: its keys are missing in the next View, and the next
        put or `register` grants another.
        """

    async def end_lease(self, lease: Lease) -> None:
        """Stop renewing it, and end it with its keys at once if the coordinator is reached.

        Raises: Unreachable, UnfitCoordinator: it ends by its time.
        """

    async def watch(self, heard: Callable[[View, int], None]) -> None:
        """Call `heard` with all keys, now and after each change, and the time of that read; until cancelled.

        Several changes may be reported as one, and late, but the last one is always reported. Nothing is reported while
        the coordinator is not reached.
        """
