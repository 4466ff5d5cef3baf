"""The coordinator on etcd: each method sends requests to etcd's JSON gateway, in a thread.

Requests, the renewal of each lease, and the watch have a thread each. Threads that were abandoned end soon.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

import trio

from ..agreement.view import LEADER, PREFERRED, NodeKey, Transaction, View
from .coordinator import Lease
from .errors import CoordinatorError, InDoubt, UnfitCoordinator, Unreachable
from .gateway import EtcdAccess, Gateway, Json, Refused
from .keys import Keys, NotOurs

logger = logging.getLogger("leveret.cluster")

Result = TypeVar("Result")

#: What reading an answer raises if its fields are not etcd's.
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError)

_RANGE, _TRANSACTION, _WATCH = "/v3/kv/range", "/v3/kv/txn", "/v3/watch"
_GRANT, _RENEW, _REVOKE = "/v3/lease/grant", "/v3/lease/keepalive", "/v3/lease/revoke"

#: Seconds that a transaction may take: an election in etcd takes no longer.
CHANGE_SECONDS = 2.0
#: Seconds after which the member of a silent watch is asked for the keys: a member that is cut off from the others does
#: not know of changes. To ask costs a third of a new watch. After SILENCES_MAX silences a watch begins anew.
SILENCE_SECONDS, SILENCES_MAX = 2.0, 15
#: Seconds until a watch tries again when no member answered.
RETRY_SECONDS = 0.5
#: Seconds of the lease of the key `preferred`.
PREFERRED_SECONDS = 10


class EtcdCoordinator:
    """The coordinator of one node. `name`: of the cluster. `seconds`: the length of the node's leases."""

    def __init__(
        self, access: EtcdAccess, name: str, seconds: int = 6, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._access, self._clock = access, clock
        self.keys = Keys(name)
        self._seconds = seconds
        self._limiter = trio.CapacityLimiter(16)  # more than five: abandoned threads count until they end
        self._gateway = self.new_gateway()
        self._gateway_lock = trio.Lock()  # held by the task that uses `_gateway`
        self._leases: dict[Lease, str] = {}  # the leases that are renewed, and their ids
        self._leases_lock = threading.Lock()
        self.trouble = ""

    @property
    def last_answer_ns(self) -> int:
        return self._gateway.last_sent_ns

    def note_trouble(self, trouble: str, level: int = logging.WARNING) -> None:
        """Log once why etcd is not reached, and once that it answers again. `trouble`: "": it answers. Any thread."""
        if not trouble and self.trouble:
            logger.warning("etcd answers again")
        elif trouble and (not self.trouble or level > logging.WARNING and trouble != self.trouble):
            logger.log(level, "%s", trouble)
        self.trouble = trouble

    async def read(self) -> View:
        try:
            view = await self._request(self.view_from)
        except Unreachable as error:
            self.note_trouble(_not_reached(error))
            raise
        self.note_trouble("")
        return view

    async def transact(self, transaction: Transaction) -> tuple[bool, View]:
        return await self._request(lambda gateway: self._transact(gateway, transaction))

    async def register(self, node: NodeKey) -> bool:
        return await self._request(lambda gateway: self._register(gateway, node))

    async def keep_leases(self, may_renew: Callable[[Lease], bool], renewed: Callable[[Lease, int], None]) -> None:
        is_over = threading.Event()
        token = trio.lowlevel.current_trio_token()

        def tell(lease: Lease, asked_ns: int) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(lambda: None if is_over.is_set() else renewed(lease, asked_ns))

        async def keep(lease: Lease) -> None:
            gateway = self.new_gateway()
            try:
                await self._in_thread(lambda: self._renew_until(is_over, gateway, lease, may_renew, tell))
            finally:
                is_over.set()
                gateway.abort()

        async with trio.open_nursery() as nursery:
            for lease in Lease:  # a thread each: while etcd is slow, none waits for the answer to another
                nursery.start_soon(keep, lease)

    async def end_lease(self, lease: Lease) -> None:
        with self._leases_lock:
            lease_id = self._leases.pop(lease, None)
        if lease_id is not None:
            with suppress(Refused):  # the lease was over
                await self._request(lambda gateway: gateway.read(_REVOKE, {"ID": lease_id}))

    async def watch(self, heard: Callable[[View, int], None]) -> None:
        watching = _Watch(self, heard)
        try:
            await self._in_thread(watching.run)
        finally:
            watching.end()

    # -- in the loop --------------------------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        """Run `work` in a thread. A caller that is cancelled has to abort the gateway, which ends the thread."""
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)

    async def _request(self, work: Callable[[Gateway], Result]) -> Result:
        """Send a request when the one before is answered, so that a read after a transaction sees its effect."""
        async with self._gateway_lock:
            gateway = self._gateway
            try:
                return await self._in_thread(lambda: work(gateway))
            except trio.Cancelled:
                gateway.abort()
                self._gateway = self.new_gateway()
                self._gateway.last_sent_ns = gateway.last_sent_ns
                raise

    def new_gateway(self) -> Gateway:
        """A gateway for one more thread."""
        return Gateway(self._access, self._clock)

    # -- in threads ---------------------------------------------------------------------------------------------------

    def view_from(self, gateway: Gateway) -> View:
        """Read the keys."""
        try:
            answer = gateway.read(_RANGE, self.keys.range)
        except Refused as refused:
            raise UnfitCoordinator(f"etcd refuses to read: {refused.text}") from refused
        with _raising(UnfitCoordinator):
            return self._view_of(answer.get("kvs", []), int(answer["header"]["revision"]))

    def _view_of(self, pairs: list[Json], revision: int) -> View:
        try:
            return self.keys.view(revision, pairs)
        except NotOurs as error:
            raise UnfitCoordinator(str(error)) from error

    def _transact(self, gateway: Gateway, transaction: Transaction) -> tuple[bool, View]:
        leases = {}
        keys = [key for key, _ in transaction.puts]
        if LEADER in keys:
            leases[LEADER] = self._grant(gateway, Lease.LEADER)
        if PREFERRED in keys:
            leases[PREFERRED] = self._new_lease_id(gateway, PREFERRED_SECONDS)
        try:
            is_done, view, _ = self._change(gateway, self.keys.request(transaction, leases))
        except Refused as refused:
            raise Unreachable(f"etcd forgot a lease that it had just granted: {refused.text}") from refused
        if not is_done and LEADER in keys:
            self._forget(Lease.LEADER)
        return is_done, view

    def _register(self, gateway: Gateway, node: NodeKey) -> bool:
        lease_id = self._leases.get(Lease.NODE) or self._grant(gateway, Lease.NODE)
        revision = 0
        while True:
            try:
                is_done, view, pairs = self._change(gateway, self.keys.registration(node, lease_id, revision))
            except Refused:  # the lease was over
                lease_id = self._grant(gateway, Lease.NODE)
                continue
            if is_done:
                return True
            there = view.node_named(node.name)
            if there is not None and there.node_id != node.node_id:
                return False
            revision = self.keys.node_revision(node.name, pairs)

    def _change(self, gateway: Gateway, request: Json) -> tuple[bool, View, list[Json]]:
        """Send a transaction. Returns whether it was done, and all keys after it: as a view, and as etcd sent them.

        Raises: Refused: a lease is over.
        """
        try:
            answer = gateway.change(_TRANSACTION, request, CHANGE_SECONDS)
        except Refused as refused:
            if "lease not found" in refused.text:
                raise
            raise UnfitCoordinator(f"etcd refuses a transaction: {refused.text}") from refused
        with _raising(InDoubt):
            pairs = answer["responses"][-1]["response_range"].get("kvs", [])
            revision = int(answer["header"]["revision"])
            is_done = bool(answer.get("succeeded"))
        try:
            with _raising(UnfitCoordinator):
                view = self._view_of(pairs, revision)
        except UnfitCoordinator as error:
            if is_done:
                raise InDoubt(str(error)) from error
            raise
        return is_done, view, pairs

    def _new_lease_id(self, gateway: Gateway, seconds: int) -> str:
        try:
            with _raising(UnfitCoordinator):
                return str(gateway.read(_GRANT, {"TTL": str(seconds), "ID": "0"})["ID"])
        except Refused as refused:  # above all: its database has no space
            raise UnfitCoordinator(f"etcd refuses a lease: {refused.text}") from refused

    def _grant(self, gateway: Gateway, lease: Lease) -> str:
        lease_id = self._new_lease_id(gateway, self._seconds)
        with self._leases_lock:
            self._leases[lease] = lease_id
        return lease_id

    def _forget(self, lease: Lease, lease_id: str | None = None) -> None:
        """Forget a lease. `lease_id`: forget it only if it still has this id."""
        with self._leases_lock:
            if lease_id is None or self._leases.get(lease) == lease_id:
                self._leases.pop(lease, None)

    def _renew_until(
        self,
        is_over: threading.Event,
        gateway: Gateway,
        lease: Lease,
        may_renew: Callable[[Lease], bool],
        renewed: Callable[[Lease, int], None],
    ) -> None:
        while not is_over.is_set():
            asked_ns = self._clock()
            lease_id = self._leases.get(lease)
            if lease_id is not None and may_renew(lease) and self._renew(gateway, lease, lease_id):
                renewed(lease, asked_ns)
            is_over.wait(max(0.0, self._seconds / 3 - (self._clock() - asked_ns) / 1e9))

    def _renew(self, gateway: Gateway, lease: Lease, lease_id: str) -> bool:
        try:
            answer = gateway.read(_RENEW, {"ID": lease_id})
            with _raising(UnfitCoordinator):
                is_kept = int(answer.get("result", {}).get("TTL", 0)) > 0
        except (CoordinatorError, Refused) as error:
            logger.debug("the lease of the %s was not renewed: %s", lease.value, error)
            return False
        if not is_kept:
            self._forget(lease, lease_id)
        return is_kept


@contextmanager
def _raising(fault: type[CoordinatorError]) -> Iterator[None]:
    """Raise `fault` if an answer is JSON but not etcd's. Other errors would end the node."""
    try:
        yield
    except _MALFORMED as error:
        raise fault(f"an answer that is not etcd's: {type(error).__name__}: {error}") from error


def _not_reached(error: Unreachable) -> str:
    return f"etcd is not reached: {error}"


class _Watch:
    """A thread that reads the keys whenever etcd says that one has changed."""

    def __init__(self, coordinator: EtcdCoordinator, heard: Callable[[View, int], None]) -> None:
        self._coordinator, self._heard = coordinator, heard
        self._is_over = threading.Event()
        self._reading, self._listening = coordinator.new_gateway(), coordinator.new_gateway()
        self._view: View | None = None  # as read last
        self._silences = 0  # since the watch began, or told something

    def run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._read_and_report()
            except Unreachable as error:
                if not self._is_over.is_set():  # otherwise `end` aborted the request
                    self._coordinator.note_trouble(_not_reached(error))
                self._is_over.wait(RETRY_SECONDS)
            except (CoordinatorError, Refused) as error:
                self._coordinator.note_trouble(str(error), logging.ERROR)
                self._is_over.wait(RETRY_SECONDS)
            else:
                self._listen()

    def end(self) -> None:
        """End the thread. `heard` is not called after this. For the event loop."""
        self._is_over.set()
        self._reading.abort()
        self._listening.abort()

    def _listen(self) -> None:
        """Report changes until the watch misses one, or etcd ends it because its first revision is compacted."""
        assert self._view is not None
        keys, self._silences = self._coordinator.keys, 0
        request = {"create_request": {**keys.range, "start_revision": str(self._view.revision + 1)}}
        self._listening.turn_to(self._reading)
        try:
            for answer in self._listening.stream(_WATCH, request, SILENCE_SECONDS, self._tells_changes):
                if isinstance(answer, dict) and answer.get("canceled"):
                    break
                with _raising(UnfitCoordinator):
                    news = [int(event["kv"]["mod_revision"]) for event in answer.get("events", ())]
                self._silences = 0
                if news and max(news) > self._view.revision:
                    self._read_and_report()
        except (CoordinatorError, Refused) as error:
            logger.debug("the watch of etcd begins anew: %s", error)
        self._is_over.wait(0.02)  # for watches that end at once

    def _tells_changes(self) -> bool:
        """Whether a silent watch can be kept: its member answers, and the keys have not changed."""
        before = self._view
        self._silences += 1
        self._reading.turn_to(self._listening)
        self._read_and_report()
        is_same = before is not None and self._view is not None and _keys_of(self._view) == _keys_of(before)
        return is_same and self._reading.at_member_of(self._listening) and self._silences < SILENCES_MAX

    def _read_and_report(self) -> None:
        self._view = view = self._coordinator.view_from(self._reading)
        with suppress(trio.RunFinishedError, trio.Cancelled):
            trio.from_thread.run_sync(self._report, view, self._reading.last_sent_ns)
        self._coordinator.note_trouble("")

    def _report(self, view: View, asked_ns: int) -> None:
        if not self._is_over.is_set():
            self._heard(view, asked_ns)


def _keys_of(view: View) -> View:
    """The keys alone: the revision of etcd rises with other applications' keys, too."""
    return replace(view, revision=0)
