"""A model of etcd: linearizable keys, revisions, leases, transactions, watches; and a coordinator on it with weather.

The store reads and answers what etcd's gateway does, so that the coordinator's keys are in use; its time is that of
trio's clock. Weather of a node: members that are down, requests and answers that are lost, late watches.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio

from leveret.cluster.agreement.view import LEADER, PREFERRED, NodeKey, Transaction, View
from leveret.cluster.coordinator.coordinator import Lease
from leveret.cluster.coordinator.errors import InDoubt, UnfitCoordinator, Unreachable
from leveret.cluster.coordinator.etcd import PREFERRED_SECONDS
from leveret.cluster.coordinator.keys import Keys, NotOurs

Json = dict[str, Any]


def now_ns() -> int:
    """Of trio's clock."""
    return round(trio.current_time() * 1e9)


@dataclass(slots=True)
class _Pair:
    value: str
    create_revision: int
    mod_revision: int
    lease: str


class EtcdModel:
    """The keys that all members of an etcd agree on."""

    def __init__(self) -> None:
        self.revision = 1
        self._pairs: dict[bytes, _Pair] = {}
        self._leases: dict[str, tuple[int, int]] = {}  # id -> its length and its end, ns
        self._lease_count = 0
        self._changed = trio.Event()

    def read(self, request: Json) -> Json:
        """As /v3/kv/range."""
        self.expire()
        return {"header": {"revision": str(self.revision)}, "kvs": self._range(request)}

    def transact(self, request: Json) -> Json:
        """As /v3/kv/txn. Raises: LookupError: a lease is over; nothing is done."""
        self.expire()
        is_done = all(self._holds(guard) for guard in request.get("compare", ()))
        steps = request["success" if is_done else "failure"]
        for step in steps:
            if (lease := step.get("request_put", {}).get("lease")) is not None and lease not in self._leases:
                raise LookupError("requested lease not found")
        if any("request_range" not in step for step in steps):
            self.revision += 1
        answers = [self._step(step) for step in steps]
        self._tell()
        return {"header": {"revision": str(self.revision)}, "succeeded": is_done, "responses": answers}

    def grant(self, seconds: float) -> str:
        """As /v3/lease/grant: the lease's id."""
        self._lease_count += 1
        length_ns = int(seconds * 1e9)
        self._leases[str(self._lease_count)] = (length_ns, now_ns() + length_ns)
        return str(self._lease_count)

    def renew(self, lease: str) -> bool:
        """As /v3/lease/keepalive. False: it is over."""
        self.expire()
        if lease in self._leases:
            length_ns = self._leases[lease][0]
            self._leases[lease] = (length_ns, now_ns() + length_ns)
        return lease in self._leases

    def revoke(self, lease: str) -> None:
        """As /v3/lease/revoke."""
        if self._leases.pop(lease, None) is not None:
            self._drop([key for key, pair in self._pairs.items() if pair.lease == lease])

    def expire(self) -> None:
        """End the leases whose time is over, as any member does at the latest when it is asked."""
        for lease in [lease for lease, (_, end_ns) in self._leases.items() if end_ns <= now_ns()]:
            self.revoke(lease)

    def next_end_ns(self) -> int | None:
        """When the next lease ends."""
        return min((end_ns for _, end_ns in self._leases.values()), default=None)

    def put(self, key: str, value: bytes) -> None:
        """As somebody does by hand."""
        pair = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value).decode()}
        self.transact({"success": [{"request_put": pair}]})

    async def changed(self, revision: int) -> None:
        """Until the revision is another one, by a change or by the end of a lease."""
        while self.revision == revision:
            end_ns = self.next_end_ns()
            with trio.move_on_at(float("inf") if end_ns is None else end_ns / 1e9):
                await self._changed.wait()
            self.expire()
        await trio.lowlevel.checkpoint()

    def _step(self, step: Json) -> Json:
        if "request_range" in step:
            return {"response_range": {"kvs": self._range(step["request_range"])}}
        if "request_put" in step:
            put = step["request_put"]
            key = base64.b64decode(put["key"])
            created = self._pairs[key].create_revision if key in self._pairs else self.revision
            self._pairs[key] = _Pair(put["value"], created, self.revision, put.get("lease", ""))
        else:
            self._pairs.pop(base64.b64decode(step["request_delete_range"]["key"]), None)
        return {}

    def _range(self, request: Json) -> list[Json]:
        first, end = base64.b64decode(request["key"]), base64.b64decode(request["range_end"])
        found = sorted((key, pair) for key, pair in self._pairs.items() if first <= key < end)
        return [
            {"key": base64.b64encode(key).decode(), "value": pair.value, "mod_revision": str(pair.mod_revision)}
            for key, pair in found
        ]

    def _holds(self, guard: Json) -> bool:
        pair = self._pairs.get(base64.b64decode(guard["key"]))
        if guard["target"] == "CREATE":
            return (0 if pair is None else pair.create_revision) == int(guard["create_revision"])
        return (0 if pair is None else pair.mod_revision) == int(guard["mod_revision"])

    def _drop(self, keys: list[bytes]) -> None:
        for key in keys:
            del self._pairs[key]
        if keys:
            self.revision += 1
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class Weather:
    """Between a node and etcd. Each is asked for each request; a test or a seed replaces them."""

    def __init__(self) -> None:
        self.is_reached = True  # False: all members are down, or cut off
        self.seconds: Callable[[], float] = lambda: 0.0  # each way
        self.watch_seconds: Callable[[], float] = lambda: 0.0  # how late a watch is
        self.loses_request: Callable[[], bool] = lambda: False
        self.loses_answer: Callable[[], bool] = lambda: False
        self.patience_seconds = 2.0  # until a request without an answer is given up


class ModelCoordinator:
    """A `Coordinator` of one node on the model."""

    def __init__(self, etcd: EtcdModel, seconds: float = 6) -> None:
        self.weather = Weather()
        self.last_answer_ns = 0
        self.trouble = ""
        self._etcd, self._keys, self._seconds = etcd, Keys("leveret"), seconds
        self._leases: dict[Lease, str] = {}

    async def read(self) -> View:
        asked_ns, view = now_ns(), self._view(await self._ask(lambda: self._etcd.read(self._keys.range)))
        self.last_answer_ns = asked_ns
        return view

    async def transact(self, transaction: Transaction) -> tuple[bool, View]:
        keys, leases = [key for key, _ in transaction.puts], {}
        if LEADER in keys:
            leases[LEADER] = await self._grant(Lease.LEADER)
        if PREFERRED in keys:
            leases[PREFERRED] = await self._ask(lambda: self._etcd.grant(PREFERRED_SECONDS))
        asked_ns = now_ns()
        request = self._keys.request(transaction, leases)
        try:
            answer = await self._ask(lambda: self._etcd.transact(request), is_change=True)
        except LookupError as error:
            raise Unreachable(str(error)) from error
        self.last_answer_ns = asked_ns
        if LEADER in keys and not answer["succeeded"]:
            self._leases.pop(Lease.LEADER, None)
        return answer["succeeded"], self._view_of(answer)

    async def register(self, node: NodeKey) -> bool:
        revision = 0
        lease = self._leases.get(Lease.NODE) or await self._grant(Lease.NODE)
        while True:
            request = self._keys.registration(node, lease, revision)
            try:
                answer = await self._ask(lambda request=request: self._etcd.transact(request), is_change=True)
            except LookupError:
                lease = await self._grant(Lease.NODE)
                continue
            if answer["succeeded"]:
                return True
            there = self._view_of(answer).node_named(node.name)
            if there is not None and there.node_id != node.node_id:
                return False
            revision = self._keys.node_revision(node.name, answer["responses"][-1]["response_range"]["kvs"])

    async def keep_leases(self, may_renew: Callable[[Lease], bool], renewed: Callable[[Lease, int], None]) -> None:
        while True:
            for lease, kept in list(self._leases.items()):
                if may_renew(lease):
                    asked_ns = now_ns()
                    try:
                        is_kept = await self._ask(lambda kept=kept: self._etcd.renew(kept))
                    except Unreachable:
                        continue
                    if is_kept:
                        renewed(lease, asked_ns)
                    elif self._leases.get(lease) == kept:
                        del self._leases[lease]
            await _wait(self._seconds / 3)

    async def end_lease(self, lease: Lease) -> None:
        kept = self._leases.pop(lease, None)
        if kept is not None:
            await self._ask(lambda: self._etcd.revoke(kept))

    async def watch(self, heard: Callable[[View, int], None]) -> None:
        while True:
            asked_ns = now_ns()
            try:
                view = self._view(await self._ask(lambda: self._etcd.read(self._keys.range)))
            except (Unreachable, UnfitCoordinator) as error:
                self.trouble = str(error)
                await _wait(0.5)
                continue
            self.trouble = ""
            heard(view, asked_ns)
            await self._etcd.changed(view.revision)
            await _wait(self.weather.watch_seconds())

    async def _ask(self, work: Callable[[], Any], *, is_change: bool = False) -> Any:
        """A request to etcd in this weather: not sent, done without an answer, or answered."""
        weather = self.weather
        if not weather.is_reached:
            await _wait(weather.seconds())
            raise Unreachable("no member is reached")
        await _wait(weather.seconds())
        is_lost = weather.loses_request()
        answer = None if is_lost else work()
        if is_lost or weather.loses_answer() or not weather.is_reached:
            await _wait(weather.patience_seconds)
            raise InDoubt("no answer") if is_change else Unreachable("no answer")
        await _wait(weather.seconds())
        return answer

    async def _grant(self, lease: Lease) -> str:
        granted: str = await self._ask(lambda: self._etcd.grant(self._seconds))
        self._leases[lease] = granted
        return granted

    def _view_of(self, answer: Json) -> View:
        pairs = answer["responses"][-1]["response_range"]
        try:
            return self._view({**pairs, "header": answer["header"]})
        except UnfitCoordinator as error:
            if answer.get("succeeded"):
                raise InDoubt(str(error)) from error
            raise

    def _view(self, answer: Json) -> View:
        try:
            return self._keys.view(int(answer["header"]["revision"]), answer["kvs"])
        except NotOurs as error:
            raise UnfitCoordinator(str(error)) from error


async def _wait(seconds: float) -> None:
    if seconds > 0:
        with trio.move_on_after(seconds):
            await trio.sleep_forever()
    else:
        await trio.lowlevel.checkpoint()
