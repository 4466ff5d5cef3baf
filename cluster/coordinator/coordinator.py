"""What a node asks of the coordinator: five verbs. etcd is behind them (`etcd.py`); a model of it is in the tests.

Whatever keeps keys with revisions, transactions on them, leases and watches can stand here; not its locks or elections.
"""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from ..agreement.view import NodeKey, Transaction, View


class Lease(Enum):
    """Leases that a node has: the keys under one vanish when it is over."""

    NODE = "node"  # of `node/NAME`
    LEADER = "leader"  # of `leader`: a new one for each term


class Coordinator(Protocol):
    """Errors are those of errors.py. One task at a time may be in `watch`, and one in `keep_leases`.

    Times are those of the monotonic clock of this process, at which a request was sent: what an answer says was true
    then, or later.
    """

    @property
    def last_answer_ns(self) -> int:
        """When the last request of the first three verbs that was answered was sent; 0: none was."""

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

        `may_renew` is asked before each renewal, in another thread. `renewed` is told in the loop of each that was
        done, and when it was asked for. A lease that is over is renewed no more: its keys are missing in the next View,
        and the next put or `register` grants another.
        """

    async def end_lease(self, lease: Lease) -> None:
        """Renew it no more, and end it at once if the coordinator is reached, with its keys.

        Raises: Unreachable, UnfitCoordinator: it ends by its time.
        """

    async def watch(self, heard: Callable[[View, int], None]) -> None:
        """Call `heard` with all keys, read now and after each change, and when they were asked for; until cancelled.

        Changes that follow each other may be heard as one, and late, but the last one is always heard. Nothing is heard
        while the coordinator is not reached.
        """
