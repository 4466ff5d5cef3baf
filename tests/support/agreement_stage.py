"""One node's agreement, told by hand what happens, and what it decided."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agreement_world import JOURNAL_ID, carry_out, name_of, named, node_id

from leveret.cluster.agreement import decisions as d
from leveret.cluster.agreement import events as e
from leveret.cluster.agreement.agreement import Agreement
from leveret.cluster.agreement.states import State
from leveret.cluster.agreement.timers import SECOND, Timers
from leveret.cluster.agreement.view import InSync, Leader, NodeKey, Transaction, View
from leveret.journal.format.terms import TermTable

A, B, C = (node_id(index) for index in range(3))


def leader(index: int, term: int, revision: int) -> Leader:
    """The key `leader` of a node."""
    return Leader(term, node_id(index), name_of(index), f"{name_of(index)}:1", revision)


def registered(*indices: int, **changes: Any) -> tuple[NodeKey, ...]:
    """Keys `node/NAME` of nodes that have the cluster's journal."""
    common = {"journal": JOURNAL_ID, **changes}
    return tuple(NodeKey(name_of(index), node_id(index), f"{name_of(index)}:1", **common) for index in indices)


class Stage:
    """The node `a` of three, and etcd as it should be."""

    def __init__(self, *, starts: tuple = ((1, 1),), end: int = 10, journal_id: bytes | None = JOURNAL_ID, **view: Any):
        self.now_ns = 10 * SECOND
        self.etcd = View(5, **{"journal": JOURNAL_ID, "insync": InSync(1, frozenset({A, B, C}), 0, revision=3), **view})
        self.terms = TermTable(A, starts)
        self.agreement = Agreement(named(0, 3), Timers(), self.terms, end, journal_id, self.now_ns)
        self.decided: list[d.Decision] = []
        self.is_reached = True  # etcd, when time goes by

    @property
    def state(self) -> State:
        """Of the node."""
        return self.agreement.state

    def tell(self, *told: e.Event) -> list[d.Decision]:
        """Events, one after the other. Returns all decisions."""
        self.decided = [one for event in told for one in self.agreement.handle(event, self.now_ns)]
        return self.decided

    def read(self, **changes: Any) -> list[d.Decision]:
        """The node reads etcd, after some keys have changed."""
        self.change(**changes)
        return self.tell(e.Read(self.etcd, self.now_ns))

    def change(self, **changes: Any) -> None:
        """Keys change, and nobody is told."""
        self.etcd = replace(self.etcd, revision=self.etcd.revision + 1, **changes) if changes else self.etcd

    def advance(self, seconds: float) -> list[d.Decision]:
        """Time goes by, and each time that the node waits for is told."""
        end_ns, decided = self.now_ns + round(seconds * SECOND), []
        while (due_ns := self.agreement.next_ns()) is not None and due_ns <= end_ns:
            assert due_ns > self.now_ns, "a tick that changes nothing is wanted again at once"
            self.now_ns = due_ns
            decided += self.tell(e.Tick())
        self.now_ns = end_ns
        self.decided = decided + self.tell(e.Tick())
        return self.decided

    @property
    def sent(self) -> Transaction | None:
        """The transaction that is on its way."""
        return self.agreement.context.sent

    def answer(self) -> list[d.Decision]:
        """etcd carries it out, and answers."""
        sent = self.sent
        assert sent is not None
        is_done, self.etcd = carry_out(self.etcd, sent)
        return self.tell(e.Answered(sent, is_done, self.etcd, self.now_ns))

    def unreachable(self, why: str = "") -> list[d.Decision]:
        """It could not be sent."""
        assert self.sent is not None
        return self.tell(e.Answered(self.sent, False, why=why))

    def doubt(self, *, is_done: bool = False) -> list[d.Decision]:
        """No answer comes; etcd carried it out, or did not."""
        sent = self.sent
        assert sent is not None
        if is_done:
            _, self.etcd = carry_out(self.etcd, sent)
        return self.tell(e.InDoubt(sent))

    def lead(self, *linked: bytes) -> Stage:
        """The node leads, and these have joined and acknowledged everything."""
        self.read()
        assert self.state is State.CAMPAIGNING, self.state
        self.answer()
        self.tell(e.TookOver(self.terms.with_term(self.etcd.leader.term, 10)))
        for one in linked:
            self.join(one)
        return self

    def join(self, one: bytes, end: int = 10) -> list[d.Decision]:
        """A follower joins, and acknowledges everything."""
        return self.tell(e.LinkOpened(one, end), self.acknowledged(one, end))

    def lose(self, one: bytes) -> None:
        """The process of a follower has ended; it leaves the in-sync set."""
        self.tell(e.LinkClosed(one), e.FollowerRefused(one))
        self.answer()

    def acknowledged(self, one: bytes, lsn: int) -> e.Acknowledged:
        """In the term of this leader."""
        return e.Acknowledged(one, self.agreement.leadership.key.term, lsn)

    def of(self, kind: type) -> list[Any]:
        """Decisions of a kind, of those that came last."""
        return [one for one in self.decided if isinstance(one, kind)]


def beat(stage: Stage, seconds: float, *alive: bytes) -> list[d.Decision]:
    """Time goes by while these nodes say that they live, twice a second."""
    decided = []
    for _ in range(round(seconds * 2)):
        decided += stage.advance(0.5)
        if stage.is_reached and stage.of(d.ReadKeys):
            decided += stage.read()
        for one in alive:
            decided += stage.tell(e.FollowerHeard(one))
    stage.decided = decided
    return decided
