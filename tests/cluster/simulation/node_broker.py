"""The broker of a leadership in a simulated world, and the clock of a node's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from owners_book import OwnersBook

from leveret.journal import ClusterJournal, Journal, JournalOptions
from leveret.testing.harness import DATA, Harness

if TYPE_CHECKING:
    from .node import Node
    from .world import World

MS = 1_000_000
SMALL = JournalOptions(segment_size=20_000, preallocate_size=0)


class NodeBroker(Harness):
    """The broker of a leadership. Its journal writes when the node's disk has time for it."""

    took_over = True

    def __init__(self, node: Node, cluster: ClusterJournal) -> None:
        self.node, self.cluster, self.term = node, cluster, node.term
        self.is_served = self.is_suspended = self.is_held = self.is_closed = False
        self.book: OwnersBook | None = None
        self._due_ns: int | None = None
        sites = node.world.sites
        options = {} if sites is None else sites.options_of(node.name)
        super().__init__(journal=node.files, journal_options=SMALL, clock=node.clock, **options)

    def _open_journal(self) -> None:
        self.journal = Journal.open(DATA, self.clock, SMALL, files=self.files, threaded=False, cluster=self.cluster)
        self.recorder = self._make_recorder(self.broker, self.journal)
        self.recorder.hold_deliveries()

    def write_journal(self) -> None:
        self.journal.commit()
        self.node.write_soon()

    def end_turn(self) -> None:
        super().end_turn()
        if self.book is not None:
            self.book.turn_ended(self.journal.next_lsn, self.recorder.safe_lsn)
            self._plan_due()

    def _plan_due(self) -> None:
        """Have what is due done in time, unless the process stands still then."""
        due_ns, now_ns = self.broker.next_deadline_ns(), self.node.world.now_ns
        if due_ns is not None and (self._due_ns is None or due_ns < self._due_ns):
            self._due_ns = due_ns
            self.node.soon(max(due_ns - now_ns, 0), lambda: self._do_due(due_ns))

    def _do_due(self, due_ns: int) -> None:
        if self._due_ns == due_ns and self.node.broker is self and not self.is_closed:
            self._due_ns = None
            if self.is_suspended:
                self._due_ns = self.node.world.now_ns + 50 * MS
                self.node.soon(50 * MS, lambda: self._do_due(self._due_ns or 0))
            else:
                self.end_turn()

    def close_as_follower(self) -> None:
        """Write nothing more, and unlock the directory."""
        self.recorder.fail(for_good=True)
        assert self.journal.abandon()
        self.broker.context.storage.close()

    @property
    def is_connected(self) -> bool:
        """Whether clients are connected to it."""
        return not self.is_closed

    @property
    def answers(self) -> bool:
        """Whether it reads from clients and sends to them."""
        return self.is_served and not self.is_suspended and not self.is_closed


class NodeClock:
    """A machine's clock: what is monotonic is the world's time, its wall clock differs."""

    def __init__(self, world: World, difference_ms: int) -> None:
        self._clock, self.difference_ms = world.clock, difference_ms

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns()

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self.difference_ms
