"""A leader's followers: what each has acknowledged, which of them confirms wait for, and so what is agreed."""

from dataclasses import dataclass

from .context import NodeContext
from .decisions import Agree
from .timers import Timers
from .view import InSync


@dataclass(slots=True)
class Member:
    """A follower that has, or should have, a link to this leader."""

    since_ns: int  # the link was opened or closed, or the leader's broker began
    heard_ns: int  # the last beacon or acknowledgement
    acked_lsn: int = 0  # it has fsynced everything below, in this leader's term
    is_linked: bool = False
    is_gone: bool = False  # its process has ended: its link refuses connections
    owed_lsn: int = 0  # it has to acknowledge everything below, ...
    owed_ns: int | None = None  # ... since this time; None: it owes nothing
    mark_lsn: int = 0  # what was agreed at `mark_ns`: tells how far behind a follower is that has acknowledged it
    mark_ns: int = 0
    lost_lsn: int = 0  # its disk was put back: it lacks records below that it had acknowledged; 0: it lacks none

    def open(self, now_ns: int, end: int, agreed: int) -> None:
        """It joined. A journal that ends before what it had acknowledged was put back."""
        self.since_ns = self.heard_ns = self.mark_ns = now_ns
        self.acked_lsn, self.mark_lsn = min(self.acked_lsn, end), agreed
        self.is_linked, self.is_gone, self.owed_ns = True, False, None

    @property
    def is_put_back(self) -> bool:
        """Whether it lacks records that it had acknowledged: it may not count as a member that has them."""
        return self.acked_lsn < self.lost_lsn

    def close(self, now_ns: int, timers: Timers) -> None:
        """Note that the member's link is gone; its process may still run. A member that was overdue stays overdue."""
        if self.is_linked:
            before_ns = self.overdue_ns(timers) - timers.join_patience_ns
            self.is_linked, self.since_ns, self.owed_ns = False, now_ns, None
            if before_ns + timers.join_patience_ns <= now_ns:
                self.since_ns = before_ns

    def owe(self, now_ns: int, lsn: int) -> None:
        """The leader has fsynced everything below `lsn`."""
        if self.owed_ns is None and self.acked_lsn < lsn:
            self.owed_lsn, self.owed_ns = lsn, now_ns

    def acknowledge(self, now_ns: int, lsn: int) -> None:
        """It has fsynced everything below `lsn`."""
        self.heard_ns = now_ns
        self.acked_lsn = max(self.acked_lsn, lsn)
        if self.owed_ns is not None and self.acked_lsn >= self.owed_lsn:
            self.owed_ns = None

    def is_close(self, now_ns: int, agreed: int, within_ns: int) -> bool:
        """Whether it is at most `within_ns` behind what is agreed: waiting for it stalls no confirm for longer."""
        if self.acked_lsn >= agreed:
            return True
        if self.acked_lsn < self.mark_lsn:
            return False
        is_close = now_ns - self.mark_ns <= within_ns
        self.mark_lsn, self.mark_ns = agreed, now_ns
        return is_close

    def overdue_ns(self, timers: Timers) -> int:
        """The time from which it counts as a member that does not answer."""
        if self.is_gone:
            return self.since_ns
        if not self.is_linked:
            return self.since_ns + timers.join_patience_ns
        owed_ns = self.heard_ns if self.owed_ns is None else min(self.heard_ns, self.owed_ns)
        return owed_ns + timers.ack_deadline_ns


class Members:
    """The followers of one leadership. Agreed is what all nodes that the leader awaits have fsynced (rules R3, R4).

    Three sets are kept apart. `insync` is the set as etcd last showed it. `possible` are nodes of transactions whose
    end is not known: any of these sets may be the one in etcd. `entering` are followers that are about to be taken in.
    """

    __slots__ = (
        "agreed",
        "by_id",
        "context",
        "entering",
        "inherited_lsn",
        "insync",
        "possible",
        "registered",
        "unregistered",
    )

    def __init__(self, context: NodeContext, insync: InSync) -> None:
        self.context, self.insync = context, insync
        self.agreed = 0  # nothing is known to be, until all members have joined
        self.inherited_lsn = context.end  # but what was agreed in earlier terms is below
        self.possible: frozenset[bytes] = frozenset()
        self.entering: set[bytes] = set()
        self.by_id: dict[bytes, Member] = {}
        view = context.view
        self.registered = frozenset(one.node_id for one in view.nodes) if view is not None else frozenset()  # in etcd
        self.unregistered: frozenset[bytes] = frozenset()  # nodes whose key vanished: they stopped, or are dead

    def of(self, node_id: bytes) -> Member:
        """What is known of a follower."""
        found = self.by_id.get(node_id)
        if found is None:
            found = self.by_id[node_id] = Member(self.context.now_ns, self.context.now_ns)
        return found

    # -- what is told of them -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The broker runs: members have `join-patience` from now to open their links."""
        for node_id in self.awaited:
            self.of(node_id)
        for member in self.by_id.values():
            if not member.is_linked:
                member.since_ns = member.heard_ns = self.context.now_ns

    def open(self, node_id: bytes, end: int) -> None:
        """A follower joined."""
        member = self.of(node_id)
        member.open(self.context.now_ns, end, self.known_agreed)
        if node_id in self.insync.nodes and end < max(self.agreed, self.context.known_agreed):
            member.lost_lsn = self.known_agreed
        member.owe(self.context.now_ns, self.context.end)

    def close(self, node_id: bytes, *, is_gone: bool) -> None:
        """The link of a follower is closed. `is_gone`: its process is known to have ended."""
        member = self.of(node_id)
        member.close(self.context.now_ns, self.context.timers)
        if not member.is_linked and (is_gone or node_id in self.unregistered):
            member.is_gone = True
        self.entering.discard(node_id)

    def acknowledge(self, node_id: bytes, lsn: int) -> None:
        """A follower has fsynced what this leader sent it."""
        member = self.of(node_id)
        if member.is_linked:
            member.acknowledge(self.context.now_ns, lsn)
            member.owe(self.context.now_ns, self.context.end)

    def sync(self) -> None:
        """This node's own journal is fsynced up to its end."""
        for member in self.by_id.values():
            if member.is_linked:
                member.owe(self.context.now_ns, self.context.end)

    def take_keys(self, registered: frozenset[bytes]) -> None:
        """Take the nodes with a key in etcd. A node that stops deletes its key: without a link it is not awaited."""
        if registered != self.registered:
            self.unregistered = (self.unregistered | (self.registered - registered)) - registered
            self.registered = registered
            for node_id in self.unregistered:
                member = self.of(node_id)
                member.is_gone = not member.is_linked

    def take_set(self, insync: InSync) -> None:
        """Take a changed set. This leader alone changes it, so a transaction in doubt can no longer be done."""
        self.insync, self.possible = insync, frozenset()
        self.entering -= insync.nodes

    # -- what follows -------------------------------------------------------------------------------------------------

    @property
    def known_agreed(self) -> int:
        """The LSN below which everything is agreed, or was in an earlier term."""
        return max(self.agreed, self.inherited_lsn)

    @property
    def awaited(self) -> frozenset[bytes]:
        """All other nodes without whose acknowledgement nothing is agreed."""
        return (self.insync.nodes | self.possible | self.entering) - {self.context.node.node_id}

    @property
    def insync_others(self) -> frozenset[bytes]:
        """The nodes in sync, without this one."""
        return self.insync.nodes - {self.context.node.node_id}

    @property
    def overdue(self) -> frozenset[bytes]:
        """The awaited nodes that do not answer, and those in the set that lack what they had acknowledged.

        With a part of that they could lead: their journals end behind the key `agreed`, which is late (rule R10).
        """
        now_ns, timers = self.context.now_ns, self.context.timers
        late = {one for one in self.awaited if self.of(one).overdue_ns(timers) <= now_ns}
        return frozenset(late | {one for one in self.insync_others if self.of(one).is_put_back})

    @property
    def linked_count(self) -> int:
        """The number of other nodes in sync that have a link."""
        return sum(1 for one in self.insync_others if self.of(one).is_linked)

    @property
    def silent_since_ns(self) -> int | None:
        """The time since which a member has not been heard; None: all were heard just now."""
        heard_ns = min((self.of(one).heard_ns for one in self.insync_others), default=None)
        return heard_ns if heard_ns is not None and heard_ns < self.context.now_ns else None

    def agree(self) -> None:
        """Decide what is agreed: what this node and all awaited ones have fsynced."""
        lsn = min([self.context.end, *(self.of(one).acked_lsn for one in self.awaited)])
        if lsn > self.agreed:
            self.agreed = lsn
            self.context.decide(Agree(lsn))

    def has_everything(self, node_id: bytes) -> bool:
        """Rule R4: a node enters the set when it has fsynced all that is agreed."""
        return self.of(node_id).acked_lsn >= self.known_agreed

    def let_enter(self) -> None:
        """Await followers that are close behind, so that they catch up with what is agreed."""
        now_ns, timers = self.context.now_ns, self.context.timers
        for node_id, member in self.by_id.items():
            if node_id in self.awaited or not member.is_linked or member.overdue_ns(timers) <= now_ns:
                continue
            if member.is_close(now_ns, self.known_agreed, timers.grow_within_ns):
                self.entering.add(node_id)
