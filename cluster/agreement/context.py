"""What a node knows about itself and etcd, and its decisions: the state that the parts of the agreement share."""

from dataclasses import dataclass, field

from ...journal.format.terms import TermTable
from .decisions import Decision, Note, ReadKeys, Transact
from .states import NEXT, State, Step
from .timers import Timers
from .view import Leader, NodeIdentity, Transaction, View, fingerprints_differ

#: Why no node can lead after this one, if `is_etcd_rolled_back` is set.
ETCD_ROLLED_BACK = "etcd's data were restored or deleted: see `leveret cluster recover`"

#: Why a node must not lead while a write or an fsync does not return.
DISK_HANGS = "disk hangs"


@dataclass(slots=True)
class NodeContext:
    """The shared state. Fields that end in `_ns` are nanoseconds of the node's monotonic clock."""

    node: NodeIdentity
    timers: Timers
    terms: TermTable
    end: int  # LSN behind the last record that this node has fsynced
    journal_id: bytes | None  # None: the directory is empty
    now_ns: int
    state: State = State.STARTING
    view: View | None = None  # the newest one
    view_ns: int = 0  # when `view` came
    stopped: frozenset[bytes] = frozenset()  # nodes whose keys vanished from etcd: they have stopped, or are dead
    absent_since_ns: int | None = None  # since when the views say that no node leads
    abstains_until_ns: int = 0  # after a resignation others campaign first
    highest_term: int = 0  # of all that this node saw, in etcd and in its journal
    clock_difference_ns: int = 0  # the last leader's wall clock minus this node's
    leader_fingerprint: str = ""  # of the last leader's configuration
    is_etcd_rolled_back: bool = False  # etcd's data were restored or deleted
    is_drained: bool = False
    stall: str = ""  # why the journal cannot be used now, in words; "": it can
    sent: Transaction | None = None  # without an answer yet
    is_in_doubt: bool = False  # no answer to `sent` will come: etcd may have done it, or may do it later
    asked_ns: int | None = None  # when this node last asked for the keys
    decisions: list[Decision] = field(default_factory=list)

    def step(self, step: Step) -> None:
        """Change the state, as the table says. Raises: KeyError: the state has no such step."""
        self.state = NEXT[self.state][step]

    def decide(self, *decisions: Decision) -> None:
        """Append decisions, in the order in which they are to be carried out."""
        self.decisions += decisions

    def transact(self, transaction: Transaction) -> None:
        """Send a transaction. None may be under way."""
        self.sent, self.is_in_doubt = transaction, False
        self.decide(Transact(transaction))

    def conclude_transaction(self) -> None:
        """Forget the transaction that was sent: its outcome is known, or of no interest."""
        self.sent, self.is_in_doubt = None, False

    def read_keys(self) -> None:
        """Ask for the keys, at most once in `beacon_ns`."""
        if self.asked_ns is None or self.now_ns >= self.asked_ns + self.timers.beacon_ns:
            self.asked_ns = self.now_ns
            self.decide(ReadKeys())

    @property
    def leader(self) -> Leader | None:
        """The key `leader`, as it was last seen."""
        return self.view.leader if self.view is not None else None

    @property
    def is_member(self) -> bool:
        """Whether this node was in the in-sync set when that was last seen."""
        insync = self.view.insync if self.view is not None else None
        return insync is not None and self.node.node_id in insync.nodes

    @property
    def has_other_configuration(self) -> bool:
        """Whether this node's configuration, as it was registered, differs from the last leader's."""
        own = None if self.view is None else self.view.node_with_id(self.node.node_id)
        return own is not None and fingerprints_differ(own.fingerprint, self.leader_fingerprint)

    @property
    def agreed_in_etcd(self) -> int:
        """The agreed LSN in etcd, which is behind the leader's."""
        insync, progress = (self.view.insync, self.view.agreed) if self.view is not None else (None, None)
        return max(insync.agreed if insync else 0, progress.lsn if progress else 0)

    def note_terms(self, terms: TermTable, end: int) -> None:
        """Note the term table and the end of the journal after it was cut, copied or opened."""
        self.terms, self.end = terms, end
        self.highest_term = max(self.highest_term, terms.last_term)

    def is_older(self, view: View, asked_ns: int | None) -> bool:
        """Whether a view is older than the newest one. `asked_ns`: start of its read; None: a watch gave it.

        The answer to a read that began after the newest view came is not older, whatever its revision.
        """
        before = self.view
        is_lower = before is not None and view.revision < before.revision
        return is_lower and (asked_ns is None or asked_ns <= self.view_ns)

    def take_view(self, view: View, asked_ns: int | None) -> bool:
        """Replace the newest view. `asked_ns`: start of its read; None: a watch gave it. False: `view` is older.

        etcd's revision never falls, and the key `insync` is never deleted: if a later read shows that, etcd's data were
        rolled back (rule R10). They count as rolled back until a term above all earlier ones is seen.
        """
        before = self.view
        if self.is_older(view, asked_ns):
            return False
        if before is not None and (view.revision < before.revision or (before.insync and not view.insync)):
            if not self.is_etcd_rolled_back:
                self.decide(Note(ETCD_ROLLED_BACK, is_grave=True))
            self.is_etcd_rolled_back = True
        term = max(view.insync.term if view.insync else 0, view.leader.term if view.leader else 0)
        if term > self.highest_term:
            self.highest_term, self.is_etcd_rolled_back = term, False
        if view.leader is not None:
            self.absent_since_ns = None
            led = view.node_with_id(view.leader.node_id)
            self.leader_fingerprint = self.leader_fingerprint if led is None else led.fingerprint
        elif self.absent_since_ns is None:
            self.absent_since_ns = self.now_ns
        known = frozenset() if before is None else before.node_ids
        self.stopped = (self.stopped | known) - view.node_ids
        self.view, self.view_ns = view, self.now_ns
        return True
