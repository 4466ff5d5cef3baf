"""A node's requests to the coordinator. Each runs as a task; the answers are events for the agreement."""

import logging
from collections.abc import Callable
from contextlib import suppress

import trio

from .agreement.events import Answered, Event, InDoubt, LeaseRenewed, Read
from .agreement.view import Transaction, View
from .coordinator import errors
from .coordinator.coordinator import Coordinator, Lease

logger = logging.getLogger("leveret.cluster")


class Requests:
    """Sends requests. `report` gets Read, Answered, InDoubt, LeaseRenewed. may_renew: see `Coordinator.keep_leases`."""

    def __init__(
        self,
        coordinator: Coordinator,
        report: Callable[[Event], object],
        may_renew: Callable[[Lease], bool],
        now_ns: Callable[[], int],
    ) -> None:
        self._coordinator = coordinator
        self._report = report
        self._may_renew = may_renew
        self._now_ns = now_ns
        self._is_reading = False
        self._nursery: trio.Nursery

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the keys and renew this node's leases, until cancelled. Other calls are possible once this runs."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._coordinator.watch, self._heard)
            self._nursery.start_soon(self._coordinator.keep_leases, self._may_renew, self._renewed)
            task_status.started()

    def _heard(self, view: View, asked_ns: int) -> None:
        self._report(Read(view, asked_ns))

    def _renewed(self, lease: Lease, asked_ns: int) -> None:
        if lease is Lease.LEADER:
            self._report(LeaseRenewed(asked_ns))

    def read_keys(self) -> None:
        """Read all keys, unless a read is under way."""
        if not self._is_reading:
            self._is_reading = True
            self._nursery.start_soon(self._read)

    async def _read(self) -> None:
        asked_ns = self._now_ns()
        try:
            view = await self._coordinator.read()
        except errors.CoordinatorError as error:
            logger.debug("the keys of the cluster were not read: %s", error)
            return
        finally:
            self._is_reading = False
        self._heard(view, asked_ns)

    def transact(self, transaction: Transaction) -> None:
        """Send a transaction, without waiting."""
        self._nursery.start_soon(self.send, transaction)

    async def send(self, transaction: Transaction) -> None:
        """Send a transaction. Returns when its answer, or `InDoubt`, is reported."""
        asked_ns = self._now_ns()
        try:
            is_done, view = await self._coordinator.transact(transaction)
        except errors.InDoubt as error:
            logger.warning("%s: no answer of the coordinator: %s", transaction.purpose.value, error)
            self._report(InDoubt(transaction))
        except errors.CoordinatorError as error:
            logger.warning("%s: %s", transaction.purpose.value, error)
            self._report(Answered(transaction, False, why=str(error)))
        else:
            self._report(Answered(transaction, is_done, view, asked_ns))

    def end_lead(self) -> None:
        """End the lease of the key `leader`."""
        self._nursery.start_soon(self._end_lead)

    async def _end_lead(self) -> None:
        with suppress(errors.CoordinatorError):
            await self._coordinator.end_lease(Lease.LEADER)
