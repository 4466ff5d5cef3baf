"""A node that does not lead: it registers, follows the leader, and says when it cannot."""

from dataclasses import dataclass

from ...journal.format.terms import FIRST_LSN
from .bootstrap import begin
from .context import NodeContext
from .decisions import Acknowledge, Follow, Note, Refuse, Register, RejoinAsNew
from .states import State, Step
from .view import Leader, View

_COPIES = {State.FOLLOWING, State.IN_SYNC, State.DRAINED}


@dataclass(slots=True, frozen=True)
class Shortfall:
    """This node lacks records although it is in sync: its journal ended at `end` when `agreed` was agreed.

    revision: of the in-sync set at that time.
    """

    end: int
    agreed: int
    revision: int
    since_ns: int


class Follower:
    """Follows the leader. It keeps a leader that etcd no longer names until there is another one."""

    def __init__(self, context: NodeContext) -> None:
        self.context = context
        self.followed: Leader | None = None
        self.rejoins_as_new = False
        self.shortfall: Shortfall | None = None  # if etcd says that this node is in the set, its disk was rolled back
        self.is_registered = False
        self.taken_since_ns: int | None = None  # since when another node has this one's name or id
        self.refusals_ns: tuple[int, ...] = ()  # the times at which the leader's link refused a connection
        self.noted = ""  # the last text of `note`

    def review(self) -> None:
        """Act on the newest view: begin the cluster, enter or leave the set, follow."""
        context, view = self.context, self.context.view
        if view is None:
            context.read_keys()
            return
        if context.is_member and context.end < context.agreed_in_etcd and context.state is not State.CAMPAIGNING:
            self._rejoin_as_new(context.end, context.agreed_in_etcd)
            return
        if self.shortfall is not None:
            context.read_keys()
        if context.state is State.STARTING and not (self._register_name(view) and self._fits(view)):
            return
        if context.state is State.STARTING:
            if view.insync is None:
                self.note(begin(context, view))
                return
            context.step(Step.FOLLOW)
        if context.is_drained and context.state in (State.FOLLOWING, State.IN_SYNC):
            context.step(Step.DRAIN)
        if context.state is State.FOLLOWING and context.is_member:
            context.step(Step.ENTER)
        elif context.state is State.IN_SYNC and view.insync is not None and not context.is_member:
            context.step(Step.LEAVE)
        if context.state in _COPIES:
            self._follow(view)

    def hear(self, term: int, agreed: int) -> None:
        """Compare this journal with what the leader says is agreed. A node in the set should have all of that."""
        context, leader, view = self.context, self.followed, self.context.view
        if leader is None or leader.term != term or context.state not in _COPIES:
            return
        if view is None or view.insync is None or not context.is_member or context.end >= agreed:
            self.shortfall = None
        elif self.shortfall is None:
            self.shortfall = Shortfall(context.end, agreed, view.insync.revision, context.now_ns)

    def read(self, view: View, asked_ns: int | None) -> None:
        """Decide by the set in etcd whether this node was in sync when it lacked agreed records."""
        shortfall = self.shortfall
        if shortfall is None or self.context.state not in _COPIES:
            return
        if view.insync is None or view.insync.revision != shortfall.revision or self.context.end >= shortfall.agreed:
            self.shortfall = None  # if this node still lacks something, the next beacon shows it
        elif asked_ns is not None and asked_ns >= shortfall.since_ns:
            self._rejoin_as_new(shortfall.end, shortfall.agreed)

    def _rejoin_as_new(self, end: int, agreed: int) -> None:
        """Leave the set and join anew: this node's disk was rolled back, and lacks acknowledged records (rule R10).

        With some of these records it could lead, because the key `agreed` is late. So it leaves before it copies any.
        """
        context = self.context
        self.rejoins_as_new, self.shortfall = True, None
        self.leave_leader()
        lacks = f"its journal ends at {end}, and {agreed} was agreed"
        self.note(f"{lacks}: its disk was rolled back, so it joins as another node")
        context.decide(RejoinAsNew())

    def _register_name(self, view: View) -> bool:
        """Register this node. False: its name or its id is taken.

        A dead node may hold it, or this one under the name that it had before, so wait for the end of that lease.
        """
        context = self.context
        name, node_id = context.node.name, context.node.node_id
        taken = next((one for one in view.nodes if (one.name == name) != (one.node_id == node_id)), None)
        if taken is not None:
            if self.taken_since_ns is None:
                self.taken_since_ns = context.now_ns
            if context.now_ns < self._refuse_ns():
                other = f"another node with the name {name}" if taken.name == name else f"the node id of {taken.name}"
                self.note(f"waits for the end of {other}, at {taken.link}")
                context.read_keys()
            elif taken.name == name:
                self.refuse(f"the name {name} is taken by another node, at {taken.link}")
            else:  # acknowledgements of one would count for the other
                where = f"node {taken.name}, at {taken.link}"
                self.refuse(f"this directory is a copy of that of {where}: move it away to join")
            return False
        self.taken_since_ns = None
        if not self.is_registered:
            self.is_registered = True
            context.decide(Register())
        return True

    def _refuse_ns(self) -> int:
        """The time at which another node with this name or id counts as alive: a dead node's key is gone by then."""
        return (self.taken_since_ns or 0) + 2 * self.context.timers.lease_ns

    def _fits(self, view: View) -> bool:
        """Whether this directory may become a copy of the cluster's journal; if not, this node is refused."""
        own = self.context.journal_id
        if own is None or view.journal is None or own == view.journal or self.context.end == FIRST_LSN:
            return True
        self.refuse(f"this directory belongs to another journal ({own.hex()}): move it away to join")
        return False

    def _follow(self, view: View) -> None:
        """Follow the leader that etcd names, unless this journal has a higher term than that leader (rule R6)."""
        context, leader = self.context, view.leader
        if leader is None or leader.node_id == context.node.node_id or leader == self.followed:
            return
        if leader.term < context.terms.last_term:
            self.note(f"does not follow {leader.name} in term {leader.term}: its journal has {context.terms.last_term}")
            return
        self.followed, self.refusals_ns = leader, ()
        context.decide(Follow(leader), Acknowledge(True))

    def leave_leader(self) -> None:
        """Stop copying and acknowledging, before a campaign is sent (rule R6)."""
        self.context.decide(Acknowledge(False))
        if self.followed is not None:
            self.context.decide(Follow(None))
        self.followed, self.refusals_ns = None, ()

    def note_refusal(self) -> None:
        """Remember that a connection to the leader was refused now."""
        recent = self.context.now_ns - self.context.timers.refused_within_ns
        self.refusals_ns = (*(at_ns for at_ns in self.refusals_ns if at_ns >= recent), self.context.now_ns)[-3:]

    @property
    def is_leader_gone(self) -> bool:
        """Whether the process of the leader that etcd names is gone, as far as this node can tell."""
        leader = self.context.leader
        return leader is not None and leader == self.followed and len(self.refusals_ns) == 3

    def refuse(self, why: str) -> None:
        """Stop following, and wait for an operator: this node cannot be part of the cluster."""
        self.leave_leader()
        self.context.step(Step.REFUSE)
        self.context.decide(Refuse(why))

    def note(self, text: str | None) -> None:
        """Log a text, unless it was the last one."""
        if text is not None and text != self.noted:
            self.noted = text
            self.context.decide(Note(text))

    def times_ns(self) -> tuple[int, ...]:
        """The times at which the node's state must be reviewed."""
        times: tuple[int, ...] = (self._refuse_ns(),) if self.taken_since_ns is not None else ()
        if self.shortfall is not None:
            times = (*times, (self.context.asked_ns or 0) + self.context.timers.beacon_ns)
        return times
