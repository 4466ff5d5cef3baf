"""A modelled etcd of one world: keys with revisions, leases, transactions. Each request is done at once."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from leveret.cluster.agreement.view import (
    AGREED,
    INSYNC,
    JOURNAL,
    LEADER,
    PREFERRED,
    AgreedKey,
    InSync,
    Leader,
    NodeKey,
    Transaction,
    View,
)

SECOND = 1_000_000_000


@dataclass(slots=True)
class _Pair:
    value: Any
    revision: int
    lease: int


class Etcd:
    """`now_ns`: the world's time. `on_change` is called when a key has changed, `on_campaign` before a campaign is won,
    with the new leader and the in-sync set as it was."""

    def __init__(
        self,
        now_ns: Callable[[], int],
        on_change: Callable[[], object],
        on_campaign: Callable[[Leader, InSync], object],
    ) -> None:
        self._now_ns = now_ns
        self._on_campaign = on_campaign
        self._on_change = on_change
        self._pairs: dict[str, _Pair] = {}
        self._leases: dict[int, tuple[int, int]] = {}  # id -> length, end
        self._lease_count = 0
        self.revision = 1

    def delete_all(self) -> None:
        """All data are gone: an operator began with an empty etcd."""
        self._pairs.clear()
        self._leases.clear()
        self.revision = 1
        self._on_change()

    def view(self) -> View:
        """All keys."""
        self.expire()

        def of(key: str) -> Any:
            pair = self._pairs.get(key)
            if pair is None:
                return None
            value = pair.value
            return replace(value, revision=pair.revision) if isinstance(value, InSync | Leader | AgreedKey) else value

        nodes = tuple(pair.value for key, pair in sorted(self._pairs.items()) if key.startswith("node/"))
        return View(self.revision, of(JOURNAL), of(INSYNC), of(LEADER), of(AGREED), of(PREFERRED), nodes)

    def transact(self, transaction: Transaction) -> tuple[bool, int, View]:
        """Whether it was done, the lease of `leader` if one was made, and the view behind it."""
        self.expire()
        lease = 0
        is_done = transaction.fits({key: pair.revision for key, pair in self._pairs.items()})
        if is_done:
            if (won := dict(transaction.puts).get(LEADER)) is not None:
                self._on_campaign(won, self._pairs[INSYNC].value)
            self.revision += 1
            for key, value in transaction.puts:
                made = self.grant(6 * SECOND) if key == LEADER else self.grant(10 * SECOND) if key == PREFERRED else 0
                lease = made if key == LEADER else lease
                self._pairs[key] = _Pair(value, self.revision, made)
            for key in transaction.deletes:
                self._pairs.pop(key, None)
            self._on_change()
        return is_done, lease, self.view()

    def register(self, key: NodeKey, lease: int) -> bool:
        """Write a node's key. False: another node has the name, or the lease is over."""
        self.expire()
        there = self._pairs.get(f"node/{key.name}")
        if lease not in self._leases or (there is not None and there.value.node_id != key.node_id):
            return False
        self.revision += 1
        self._pairs[f"node/{key.name}"] = _Pair(key, self.revision, lease)
        self._on_change()
        return True

    def grant(self, length_ns: int) -> int:
        """A lease."""
        self._lease_count += 1
        self._leases[self._lease_count] = (length_ns, self._now_ns() + length_ns)
        return self._lease_count

    def renew(self, lease: int) -> bool:
        """False: it is over."""
        self.expire()
        if lease not in self._leases:
            return False
        length_ns = self._leases[lease][0]
        self._leases[lease] = (length_ns, self._now_ns() + length_ns)
        return True

    def revoke(self, lease: int) -> None:
        """End a lease, and drop its keys."""
        if self._leases.pop(lease, None) is None:
            return
        gone = [key for key, pair in self._pairs.items() if pair.lease == lease]
        for key in gone:
            del self._pairs[key]
        if gone:
            self.revision += 1
            self._on_change()

    def expire(self) -> None:
        """End the leases whose time is over."""
        for lease in [one for one, (_, end_ns) in self._leases.items() if end_ns <= self._now_ns()]:
            self.revoke(lease)
