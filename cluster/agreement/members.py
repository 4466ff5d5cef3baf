"""A leader's followers: what each has acknowledged, for which of them confirms wait, and so what is agreed."""

from dataclasses import dataclass

from .context import NodeContext
from .decisions import Agree
from .timers import Timers
from .view import InSync


@dataclass(slots=True)
class Member:
    """A follower that has, or should have, a link to this leader."""

    since_ns: int  # when the link was opened or closed, or the leader's broker began
    heard_ns: int  # when the last beacon or acknowledgement came
    acked_lsn: int = 0  # it has fsynced everything below, in this leader's term
    is_linked: bool = False
    is_gone: bool = False  # its process has ended: its machine refuses links, or its key vanished from etcd
    owed_lsn: int = 0  # it has to acknowledge everything below
    owed_ns: int | None = None  # since when it owes that acknowledgement; None: it owes none
    mark_lsn: int = 0  # the agreed LSN at `mark_ns`, see `check_pace`
    mark_ns: int = 0
    lost_lsn: int = 0  # since its disk was rolled back, it has to acknowledge everything below again

    def open(self, now_ns: int, end: int, agreed: int) -> None:
        """Note that it joined. `end`: the end of its journal, an LSN; below `acked_lsn` if its disk was rolled back."""
        self.since_ns = self.heard_ns = self.mark_ns = now_ns
        self.acked_lsn, self.mark_lsn = min(self.acked_lsn, end), agreed
        self.is_linked, self.is_gone, self.owed_ns = True, False, None

    @property
    def is_rolled_back(self) -> bool:
        """Whether it lacks records that it had acknowledged, so that it must not count as a node in sync."""
        return self.acked_lsn < self.lost_lsn

    def close(self, now_ns: int, timers: Timers) -> None:
        """Note that the member's link is gone; its process may still run. A member that was overdue stays overdue."""
        if self.is_linked:
            overdue_ns = self.overdue_ns(timers)
            self.is_linked, self.owed_ns = False, None
            self.since_ns = now_ns if overdue_ns > now_ns else overdue_ns - timers.join_patience_ns

    def owe(self, now_ns: int, lsn: int) -> None:
        """Expect an acknowledgement of everything below `lsn`, which the leader has fsynced."""
        if self.owed_ns is None and self.acked_lsn < lsn:
            self.owed_lsn, self.owed_ns = lsn, now_ns

    def acknowledge(self, now_ns: int, lsn: int) -> None:
        """Note that it has fsynced everything below `lsn`."""
        self.heard_ns = now_ns
        self.acked_lsn = max(self.acked_lsn, lsn)
        if self.owed_ns is not None and self.acked_lsn >= self.owed_lsn:
            self.owed_ns = None

    def check_pace(self, now_ns: int, agreed: int, within_ns: int) -> bool:
        """Return whether it is known to be at most `within_ns` behind what is agreed. If awaited, it delays confirms by
        that time.

        The time is measured from `mark_ns` until `mark_lsn` is acknowledged; then the next measurement begins.
        """
        if self.acked_lsn >= agreed:
            return True
        if self.acked_lsn < self.mark_lsn:
            return False
        behind_ns = now_ns - self.mark_ns
        self.mark_lsn, self.mark_ns = agreed, now_ns
        return behind_ns <= within_ns

    def overdue_ns(self, timers: Timers) -> int:
        """The time from which it counts as a node that does not answer."""
        if self.is_gone:
            return self.since_ns
        if not self.is_linked:
            return self.since_ns + timers.join_patience_ns
        owed_ns = self.heard_ns if self.owed_ns is None else min(self.heard_ns, self.owed_ns)
        return owed_ns + timers.ack_deadline_ns


class Members:
    """The followers of one leadership. What this node and all that it awaits have fsynced is agreed (rules R3, R4).

    It awaits three sets of nodes. `insync`: the set as etcd last showed it. `possible`: the nodes of transactions whose
    outcome is not known, since any of these sets may be in etcd. `entering`: followers that are about to enter the set.
    """

    __slots__ = ("agreed", "by_id", "context", "entering", "inherited_lsn", "insync", "possible")

    def __init__(self, context: NodeContext, insync: InSync) -> None:
        self.context, self.insync = context, insync
        self.agreed = 0  # until all awaited nodes have joined
        self.inherited_lsn = context.end  # everything that was agreed in earlier terms is below
        self.possible: frozenset[bytes] = frozenset()
        self.entering: set[bytes] = set()
        self.by_id: dict[bytes, Member] = {}

    def member(self, node_id: bytes) -> Member:
        """What is known about a follower."""
        found = self.by_id.get(node_id)
        if found is None:
            found = self.by_id[node_id] = Member(self.context.now_ns, self.context.now_ns)
        return found

    # -- events -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the time in which followers have to open their links: the broker runs."""
        for member in self.by_id.values():
            if not member.is_linked:
                member.since_ns = member.heard_ns = self.context.now_ns

    def open(self, node_id: bytes, end: int) -> None:
        """Note that a follower joined. `end`: LSN at which its journal ends.

        If it is in sync and `end` is below what is agreed, its disk was rolled back.
        """
        member = self.member(node_id)
        member.open(self.context.now_ns, end, self.known_agreed)
        if node_id in self.insync.nodes and end < max(self.agreed, self.context.agreed_in_etcd):
            member.lost_lsn = self.known_agreed
        member.owe(self.context.now_ns, self.context.end)

    def close(self, node_id: bytes, *, is_gone: bool) -> None:
        """Note that a follower's link is closed. `is_gone`: its process is known to have ended."""
        member = self.member(node_id)
        member.close(self.context.now_ns, self.context.timers)
        if is_gone or node_id in self.context.stopped:
            member.is_gone = True
        self.entering.discard(node_id)

    def hear(self, node_id: bytes) -> None:
        """Note that a beacon of a follower has come."""
        self.member(node_id).heard_ns = self.context.now_ns

    def acknowledge(self, node_id: bytes, lsn: int) -> None:
        """Note that a follower has fsynced everything below `lsn`."""
        member = self.member(node_id)
        if member.is_linked:
            member.acknowledge(self.context.now_ns, lsn)
            member.owe(self.context.now_ns, self.context.end)

    def sync(self) -> None:
        """Expect acknowledgements of everything that this node's own journal has fsynced."""
        for member in self.by_id.values():
            if member.is_linked:
                member.owe(self.context.now_ns, self.context.end)

    def take_stopped(self) -> None:
        """Note which nodes have stopped: those without a link are overdue at once."""
        for node_id in self.context.stopped:
            member = self.member(node_id)
            member.is_gone = not member.is_linked

    def take_set(self, insync: InSync) -> None:
        """Replace the set. Only this leader changes it, so a change in doubt was done, or can no longer be done."""
        self.insync, self.possible = insync, frozenset()
        self.entering -= insync.nodes

    # -- what is known now --------------------------------------------------------------------------------------------

    @property
    def known_agreed(self) -> int:
        """The LSN below which everything is agreed, or was in an earlier term."""
        return max(self.agreed, self.inherited_lsn)

    @property
    def awaited(self) -> frozenset[bytes]:
        """The other nodes that must acknowledge before anything is agreed."""
        return (self.insync.nodes | self.possible | self.entering) - {self.context.node.node_id}

    @property
    def insync_others(self) -> frozenset[bytes]:
        """The nodes in sync, without this one."""
        return self.insync.nodes - {self.context.node.node_id}

    @property
    def overdue(self) -> frozenset[bytes]:
        """The awaited nodes that do not answer, and nodes of the set that lack records that they had acknowledged.

        If such a node got some of these records again, it could lead, because the key `agreed` is late (rule R10).
        """
        now_ns, timers = self.context.now_ns, self.context.timers
        late = {one for one in self.awaited if self.member(one).overdue_ns(timers) <= now_ns}
        return frozenset(late | {one for one in self.insync_others if self.member(one).is_rolled_back})

    @property
    def linked_count(self) -> int:
        """The number of other nodes in sync that have a link."""
        return sum(1 for one in self.insync_others if self.member(one).is_linked)

    @property
    def silent_since_ns(self) -> int | None:
        """When the other node in sync that has been silent longest was last heard.

        None: all were heard just now, or there are none.
        """
        heard_ns = min((self.member(one).heard_ns for one in self.insync_others), default=None)
        return heard_ns if heard_ns is not None and heard_ns < self.context.now_ns else None

    def agree(self) -> None:
        """Raise the agreed LSN to what this node and all awaited ones have fsynced."""
        lsn = min([self.context.end, *(self.member(one).acked_lsn for one in self.awaited)])
        if lsn > self.agreed:
            self.agreed = lsn
            self.context.decide(Agree(lsn))

    def has_everything(self, node_id: bytes) -> bool:
        """Rule R4: a node enters the set when it has fsynced all that is agreed."""
        return self.member(node_id).acked_lsn >= self.known_agreed

    def let_enter(self) -> None:
        """Await followers that are close behind, so that they catch up with what is agreed."""
        now_ns, timers = self.context.now_ns, self.context.timers
        for node_id, member in self.by_id.items():
            if node_id in self.awaited or not member.is_linked or member.overdue_ns(timers) <= now_ns:
                continue
            if member.check_pace(now_ns, self.known_agreed, timers.grow_within_ns):
                self.entering.add(node_id)
