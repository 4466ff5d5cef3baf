"""The history of a cluster as one node knows it: which node led when, and why. It is in memory only.

A node sees changes in etcd while its process runs, and learns about earlier leaders over its links.
"""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass

from ..engine import EventKind
from .agreement.view import View

#: The number of changes that are kept, and of leaderships that are told to other nodes.
CHANGES_MAX, TOLD_MAX = 200, 16
#: Kind of a change: the key `leader` is gone.
LEFT = "left"
LED = EventKind.LED.value


@dataclass(slots=True, frozen=True)
class Change:
    """A change of the cluster. `kind`: an event of the journal, or `LEFT`. `node`: the leader; "": the set changed."""

    at_ms: int
    kind: str
    node: str
    term: int
    why: str


class History:
    """Collects changes of the leader, of the in-sync set, and of the state of this node."""

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.changes: list[Change] = []  # oldest first
        self._leader: tuple[int, str] | None = None  # term, name
        self._in_sync: str | None = None
        self._members: frozenset[bytes] = frozenset()  # of that set
        self._names: dict[bytes, str] = {}  # node id -> name, of all nodes that were ever registered

    def take_view(self, view: View, now_ms: int) -> None:
        """Add what has changed since the last view of etcd."""
        leader = None if view.leader is None else (view.leader.term, view.leader.name)
        before, self._leader = self._leader, leader
        if leader is None and before is not None:
            self.add(now_ms, LEFT, before[1], before[0], "its key in etcd is gone")
        elif leader is not None and leader != before:
            self.learn([[now_ms, *leader]])
        if view.insync is None:
            return
        self._names |= {one.node_id: one.name for one in view.nodes}
        members = view.insync.nodes
        left = sorted(self.name_of(one) or "a node that was never seen" for one in self._members - members)
        names = sorted(self._names[one] for one in members if one in self._names)
        in_sync = ", ".join([*names, *(["a node that was never seen"] if len(names) < len(members) else [])])
        if in_sync != self._in_sync:
            self._in_sync = in_sync
            term = 0 if leader is None else leader[0]
            without = f"; no longer {', '.join(left)}" if left else ""
            self.add(now_ms, EventKind.IN_SYNC_CHANGED.value, "", term, f"in sync: {in_sync}{without}")
        self._members = members

    def name_of(self, node_id: bytes) -> str | None:
        """The name under which a node was registered last; None: it was never seen."""
        return self._names.get(node_id)

    def add(self, at_ms: int, kind: str, node: str, term: int, why: str) -> None:
        """Add a change that this node has seen."""
        self._insert(Change(at_ms, kind, node, term, why))

    def _insert(self, change: Change) -> None:
        insort(self.changes, change, key=lambda one: one.at_ms)
        del self.changes[:-CHANGES_MAX]

    # -- between nodes ----------------------------------------------------------------------------------------------

    def _leaderships(self) -> Iterator[Change]:
        """The beginning of each term, oldest first."""
        terms: set[int] = set()
        for one in self.changes:
            if one.kind == LED and one.term not in terms:
                terms.add(one.term)
                yield one

    def recent_leaderships(self) -> list[list[object]]:
        """The last leaderships, for other nodes. A row: beginning (wall ms), term, node."""
        return [[one.at_ms, one.term, one.node] for one in self._leaderships()][-TOLD_MAX:]

    def learn(self, leaderships: object) -> None:
        """Add leaderships from another node's `recent_leaderships`. The earliest beginning that any node saw counts."""
        known = {one.term: one for one in self._leaderships()}
        for row in leaderships if isinstance(leaderships, list) else ():
            match row:
                case [int(at_ms), int(term), str(node)] if term not in known or at_ms < known[term].at_ms:
                    if (later := known.get(term)) in self.changes:
                        self.changes.remove(later)
                    known[term] = Change(at_ms, LED, node, term, "")
                    self._insert(known[term])
