"""A node that leads: what is agreed, who is in sync, and whether it may serve.

Three things are kept apart. `insync` is the set as etcd last showed it. `possible` are nodes of transactions whose end
is not known: any of these sets may be the one in etcd. `entering` are followers that are about to be taken in. Agreed
is what all of them have acknowledged (rules R3, R4).
"""

from .context import NodeContext
from .decisions import Agree, EndLease, GoOn, Hold, LevelRaised, Resign, Suspend
from .handover import Handover
from .members import Member
from .states import BROKER_RUNS, State, Step
from .transactions import change, progress
from .view import INSYNC, InSync, Leader, NodeKey, Purpose, Transaction, View

_CHANGES = {Purpose.SHRINK, Purpose.GROW}


class Leadership:
    """One term of this node, from its campaign's success to its resignation."""

    __slots__ = (
        "agreed",
        "calm_until_ns",
        "context",
        "entering",
        "handover",
        "inherited",
        "insync",
        "key",
        "left",
        "members",
        "possible",
        "progress_ns",
        "proven_ns",
        "reason",
        "registered",
        "renewed_ns",
        "resign_wait_ns",
        "unreached_since_ns",
        "wanted_level",
        "woke_ns",
    )

    def __init__(self, context: NodeContext, key: Leader, insync: InSync, asked_ns: int, resign_wait_ns: int) -> None:
        self.context, self.key, self.insync = context, key, insync
        self.agreed = 0  # nothing is known to be, until all members have joined
        self.inherited = context.end  # but what was agreed in earlier terms is below
        self.possible: frozenset[bytes] = frozenset()
        self.entering: set[bytes] = set()
        self.members: dict[bytes, Member] = {}
        view = context.view
        self.registered = frozenset(one.node_id for one in view.nodes) if view is not None else frozenset()  # in etcd
        self.left: frozenset[bytes] = frozenset()  # nodes whose key is gone since: they stopped, or are dead
        self.handover: Handover | None = None
        self.reason = ""  # why publishers are held
        self.proven_ns = self.renewed_ns = asked_ns  # etcd said at this time that this node led; renewed the lease
        self.progress_ns = context.now_ns  # when etcd was told last what is agreed
        self.resign_wait_ns = resign_wait_ns
        self.woke_ns = 0  # this process stood still until then: what it hears may have lain there for as long
        self.unreached_since_ns: int | None = None  # since when a member that this node does not reach, reaches another
        self.wanted_level = insync.level  # to which the journal's is to be raised
        self.calm_until_ns = 0  # until then an acknowledgement moves what is agreed, and nothing else

    # -- what it is told ----------------------------------------------------------------------------------------------

    def begin(self, level: int) -> None:
        """The broker runs: serve, or hold publishers. Members have `join-patience` to open their links.

        `level`: of what is in the journal.
        """
        self.raise_level(level)
        for node_id in self.waited:
            self.member(node_id)
        for member in self.members.values():
            if not member.is_linked:
                member.since_ns = member.heard_ns = self.context.now_ns
        self.agree()
        self._choose_state()

    def member(self, node_id: bytes) -> Member:
        """What is known of a follower."""
        found = self.members.get(node_id)
        if found is None:
            found = self.members[node_id] = Member(self.context.now_ns, self.context.now_ns)
        return found

    def open(self, node_id: bytes, end: int) -> None:
        """A follower joined."""
        member, known = self.member(node_id), max(self.agreed, self.inherited)
        member.open(self.context.now_ns, end, known)
        if node_id in self.insync.nodes and end < max(self.agreed, self.context.known_agreed):
            member.lost = known
        member.owe(self.context.now_ns, self.context.end)

    def close(self, node_id: bytes, *, is_gone: bool) -> None:
        """The link of a follower is closed; perhaps its process is known to be gone."""
        member = self.member(node_id)
        member.close(self.context.now_ns, self.context.timers)
        if not member.is_linked and (is_gone or node_id in self.left):
            member.is_gone = True
        self.entering.discard(node_id)

    def acknowledge(self, node_id: bytes, term: int, lsn: int) -> None:
        """A follower has fsynced what this leader sent it; what it had of another term counts for nothing."""
        member = self.member(node_id)
        if term == self.key.term and member.is_linked:
            member.acknowledge(self.context.now_ns, lsn)
            member.owe(self.context.now_ns, self.context.end)

    def sync(self) -> None:
        """This node's own journal is fsynced up to its end."""
        for member in self.members.values():
            if member.is_linked:
                member.owe(self.context.now_ns, self.context.end)

    def wake(self) -> None:
        """This process, or its machine, stood still: another node may lead, until etcd denies it."""
        self.woke_ns, self.calm_until_ns = self.context.now_ns, 0

    def renew(self, asked_ns: int) -> None:
        """etcd renewed the lease."""
        self.renewed_ns = max(self.renewed_ns, asked_ns)

    def read(self, view: View, asked_ns: int | None) -> None:
        """etcd says whether this node leads, and who is in sync."""
        if view.leader != self.key:
            return
        if asked_ns is not None:
            self.proven_ns = max(self.proven_ns, asked_ns)
        if view.insync is not None and view.insync.revision > self.insync.revision:
            self._take_set(view.insync)
        self._note_keys(frozenset(one.node_id for one in view.nodes))

    def _note_keys(self, registered: frozenset[bytes]) -> None:
        """Note the nodes with a key in etcd. A node that stops deletes its key: it is not waited for without a link."""
        if registered != self.registered:
            self.left = (self.left | (self.registered - registered)) - registered
            self.registered = registered
            for node_id in self.left:
                member = self.member(node_id)
                member.is_gone = not member.is_linked

    def _take_set(self, insync: InSync) -> None:
        """Take a changed set. This leader alone changes it, so a transaction in doubt can no longer be done."""
        if insync.level > self.insync.level:
            self.context.decide(LevelRaised(insync.level))
        self.insync, self.possible = insync, frozenset()
        self.entering -= insync.nodes
        sent = self.context.sent
        if self.context.is_in_doubt and sent is not None and sent.purpose in _CHANGES:
            self.context.settle()

    def raise_level(self, level: int) -> None:
        """Raise the level of the journal, as soon as no other transaction is under way."""
        self.wanted_level = max(self.wanted_level, level)
        self.calm_until_ns = 0

    def fail(self, sent: Transaction) -> None:
        """A transaction was surely not done, or its answer will never come: a change of the set stays possible."""
        if sent.purpose in _CHANGES and self.possible:
            self.context.is_in_doubt = True
        else:
            self.context.settle()
        self.context.read_keys()

    # -- what follows -------------------------------------------------------------------------------------------------

    @property
    def waited(self) -> frozenset[bytes]:
        """All nodes without whose acknowledgement nothing is agreed, but this one."""
        return (self.insync.nodes | self.possible | self.entering) - {self.context.node.node_id}

    @property
    def overdue(self) -> frozenset[bytes]:
        """Those that are waited for in vain, and those in the set that lack what they had acknowledged.

        With a part of that they could lead: their journals end behind the key `agreed`, which is late (rule R10).
        """
        now_ns, timers = self.context.now_ns, self.context.timers
        late = {one for one in self.waited if self.member(one).overdue_ns(timers) <= now_ns}
        return frozenset(late | {one for one in self.insync.nodes & self.waited if self.member(one).is_put_back})

    def review(self) -> None:
        """Whatever follows from what is known now."""
        context = self.context
        why = self._lost()
        if context.state is State.RESIGNING:
            return
        if why is not None:
            self.resign(why)
        elif context.state is not State.TAKING_OVER:
            self._serve()
        self.calm_until_ns = self._calm_until_ns()

    def _serve(self) -> None:
        self.agree()
        if self.handover is not None:
            self.handover.review(self)
        if self.handover is not None or self.context.state is State.RESIGNING:
            return
        self._choose_state()
        if self.context.state in BROKER_RUNS:
            self._change_set()
            self._tell_progress()
            self._look_at_etcd()

    def _lost(self) -> str | None:
        """Why this node leads no more, as etcd says; None: as far as that says, it does."""
        view, context = self.context.view, self.context
        if view is None or view.leader == self.key:
            return None
        if view.leader is not None and view.leader.term > self.key.term:
            return f"{view.leader.name} leads term {view.leader.term}"
        if view.insync is not None and view.insync.term > self.key.term:
            return f"term {view.insync.term} has begun"
        if context.is_put_back or view.insync is None or view.leader is not None:
            return None  # the data of etcd were put back or deleted: nobody else can lead, so this one goes on
        sent = context.sent
        return "handed over" if sent is not None and sent.purpose is Purpose.HAND_OVER else "its lease is over"

    def _calm_until_ns(self) -> int:
        """See `calm_until_ns`; 0: an acknowledgement may let a node enter, end a handover, or let this node lead."""
        context, timers, waited = self.context, self.context.timers, self.waited
        is_calm = context.state is State.LEADING and context.sent is None and self.handover is None
        if not is_calm or self.possible or self.entering:
            return 0
        if any(member.is_linked for node_id, member in self.members.items() if node_id not in waited):
            return 0
        times = [self.progress_ns + timers.progress_ns]
        for member in map(self.member, waited):
            times += (member.heard_ns + timers.suspend_after_ns // 2, member.overdue_ns(timers))
        return min(times)

    def agree(self) -> None:
        """Decide what is agreed: what this node and all that are waited for have fsynced."""
        lsn = min([self.context.end, *(self.member(one).acked for one in self.waited)])
        if lsn > self.agreed:
            self.agreed = lsn
            self.context.decide(Agree(lsn))

    def _choose_state(self) -> None:
        context = self.context
        reason = self._hold_reason()
        if self._may_be_replaced():
            if context.state is not State.SUSPENDED:
                context.step(Step.SUSPEND)
                context.decide(Suspend())
            elif context.now_ns >= self.renewed_ns + 2 * context.timers.lease_ns:
                self.resign("a member is silent, and etcd was not reached for the length of the lease")
        elif reason is not None:
            if context.state is not State.HELD:
                context.step(Step.HOLD)
                context.decide(Hold(reason))
            elif reason != self.reason:
                context.decide(Hold(reason))
            self.reason = reason
            self._resign_for_others()
        elif context.state is not State.LEADING:
            context.step(Step.LEAD)
            context.decide(GoOn())
            self.unreached_since_ns = None
        if context.state is State.LEADING and self._linked_count() >= context.node.min_in_sync - 1:
            self.resign_wait_ns = context.timers.resign_after_ns

    def _linked_count(self) -> int:
        return sum(1 for one in self.insync.nodes & self.waited if self.member(one).is_linked)

    @property
    def why(self) -> str:
        """Why this node serves, or holds publishers, in words."""
        if self.context.state is State.HELD:
            return self.reason
        absent = frozenset(one for one in self.insync.nodes & self.waited if not self.member(one).is_linked)
        view = self.context.view
        keys = [view.node_of(one) for one in absent] if view is not None else []
        names = sorted(key.name for key in keys if key is not None)
        names += [f"{len(absent) - len(names)} more"] if len(names) < len(absent) else []
        return f"waits for nodes that were in sync: {', '.join(names)}" if names else "enough nodes are in sync"

    def go_on(self) -> None:
        """A handover failed: serve as before."""
        if self.context.state is State.LEADING:
            self.context.decide(GoOn())
        elif self.context.state is State.HELD:
            self.context.decide(Hold(self.reason))

    def _may_be_replaced(self) -> bool:
        """Whether a silent member could have let another node lead, as etcd has not denied it since.

        So could any member while this node slept: their beacons and acknowledgements of that time come afterwards.
        """
        return self._is_half_awake or self.context.now_ns >= self._suspend_ns()

    @property
    def _is_half_awake(self) -> bool:
        """Whether etcd was not read since this node woke."""
        return self.proven_ns < self.woke_ns

    def _silent_since_ns(self) -> int | None:
        """Since when a member has not been heard; a beacon's time is no silence."""
        heard_ns = min((self.member(one).heard_ns for one in self.insync.nodes & self.waited), default=None)
        return heard_ns if heard_ns is not None and heard_ns < self.context.now_ns else None

    def _suspend_ns(self) -> float:
        """When this node must suspend its broker, if nothing is heard until then."""
        silent_ns = self._silent_since_ns()
        if silent_ns is None:
            return float("inf")
        return max(silent_ns, self.proven_ns) + self.context.timers.suspend_after_ns

    def _hold_reason(self) -> str | None:
        """Why publishers must be held (rule R5); None: they need not."""
        least = self.context.node.min_in_sync
        answering = len(self.insync.nodes - self.overdue)
        if answering < least:
            return f"replication: {answering} of {least} nodes in sync"
        if self.overdue and self.context.is_in_doubt:
            return "replication: a node in sync does not answer, and neither does etcd"
        return None

    def _resign_for_others(self) -> None:
        """Resign if a member that this node does not reach, reaches another one: those two can serve (rule R5)."""
        context = self.context
        why = self._better_pair()
        if why is None:
            self.unreached_since_ns = None
            return
        if self.unreached_since_ns is None:
            self.unreached_since_ns = context.now_ns
        if context.now_ns >= self.unreached_since_ns + self.resign_wait_ns:
            self.resign_wait_ns *= 2
            self.resign(why)

    def _better_pair(self) -> str | None:
        view, own = self.context.view, self.context.node.name
        for node_id in sorted(self.overdue & self.insync.nodes):
            other = view.node_of(node_id) if view is not None else None
            if other is not None and view is not None and not other.is_drained and self._is_believed(other):
                reached = sorted(name for name in other.reaches - {own, other.name} if view.node(name) is not None)
                if reached:
                    return f"{other.name} does not answer this node, and reaches {reached[0]}"
        return None

    def _is_believed(self, other: NodeKey) -> bool:
        """Whether a member that does not answer has said since then which nodes it reaches.

        The key of a dead one stays until its lease is over, and names this node, which it reached when it lived. One
        that lives drops this node from its key, or it reaches it and still does not follow; then its key outlives the
        lease.
        """
        if self.context.node.name not in other.reaches:
            return True
        timers = self.context.timers
        return self.context.now_ns >= self.member(other.node_id).overdue_ns(timers) + 2 * timers.lease_ns

    # -- the set ------------------------------------------------------------------------------------------------------

    def _change_set(self) -> None:
        """Shrink first, grow last; one transaction at a time. With it goes a level that is to be raised."""
        context, me = self.context, self.context.node.node_id
        overdue = self.overdue
        self.entering -= overdue - self.possible
        self._let_enter()
        if context.sent is not None or context.is_put_back or context.view is None or context.view.leader != self.key:
            return
        staying = self.insync.nodes - overdue
        nodes = staying if len(staying) >= context.node.min_in_sync else self.insync.nodes
        nodes |= {one for one in self.entering if self._has_everything(one)}
        if nodes != self.insync.nodes or self.wanted_level > self.insync.level:
            assert me in nodes
            self._send_change(nodes)

    def _has_everything(self, node_id: bytes) -> bool:
        """Rule R4: a node enters the set when it has fsynced all that is agreed."""
        return self.member(node_id).acked >= max(self.agreed, self.inherited)

    def _send_change(self, nodes: frozenset[bytes]) -> None:
        self.possible |= nodes
        self.context.transact(change(self.key, self.insync, nodes, self.agreed, self.wanted_level))

    def _let_enter(self) -> None:
        """Wait for followers that are close behind, so that they catch up with what is agreed."""
        now_ns, within_ns = self.context.now_ns, self.context.timers.grow_within_ns
        for node_id, member in self.members.items():
            if node_id in self.waited or not member.is_linked or member.overdue_ns(self.context.timers) <= now_ns:
                continue
            if member.is_close(now_ns, max(self.agreed, self.inherited), within_ns):
                self.entering.add(node_id)

    def resolve(self, view: View) -> None:
        """A change in doubt was not done when the keys were read, but may be yet: the set is written anew.

        Whatever is written, is written over the same revision: so one of the two at most is ever done.
        """
        context, sent = self.context, self.context.sent
        if sent is None or not context.is_in_doubt or view.leader != self.key or sent.purpose not in _CHANGES:
            return
        if view.insync is not None and view.insync.revision == dict(sent.guards)[INSYNC]:
            staying = self.insync.nodes - self.overdue
            self._send_change(staying if len(staying) >= context.node.min_in_sync else self.insync.nodes)
        else:
            context.settle()  # the set had changed before its answer was missed

    def _tell_progress(self) -> None:
        context = self.context
        is_due = context.now_ns >= self.progress_ns + context.timers.progress_ns
        if is_due and self.agreed > self._told and context.sent is None and not context.is_put_back:
            self.progress_ns = context.now_ns
            context.transact(progress(self.key, context.view.agreed if context.view else None, self.agreed))

    @property
    def _told(self) -> int:
        """What etcd knows to be agreed. A member whose disk was put back may keep `agreed` below it for a while."""
        view = self.context.view
        return view.agreed.lsn if view is not None and view.agreed is not None else 0

    def _look_at_etcd(self) -> None:
        """Read the keys while a member is silent, a change is in doubt, or this node has just woken."""
        silent_ns, timers = self._silent_since_ns(), self.context.timers
        is_silent = silent_ns is not None and self.context.now_ns >= silent_ns + timers.suspend_after_ns // 2
        if is_silent or self.context.is_in_doubt or self._is_half_awake:
            self.context.read_keys()

    # -- the end ------------------------------------------------------------------------------------------------------

    def resign(self, why: str) -> None:
        """Close the broker, give up the lease, and let others campaign first."""
        context = self.context
        context.is_drained |= self.handover is not None and self.handover.drains
        context.step(Step.RESIGN)
        context.settle()
        context.abstains_until_ns = context.now_ns + context.timers.lease_ns
        self.calm_until_ns = 0  # nothing is agreed any more
        context.decide(Resign(why), EndLease())

    def times_ns(self) -> tuple[float, ...]:
        """The times at which the node's state has to be looked at again."""
        timers, context = self.context.timers, self.context
        if context.state not in BROKER_RUNS:
            return ()
        times: list[float] = [self.member(one).overdue_ns(timers) for one in self.waited]
        times.append(self._suspend_ns())
        silent_ns = self._silent_since_ns()
        if silent_ns is not None:
            times.append(silent_ns + timers.suspend_after_ns // 2)
        if silent_ns is not None or context.is_in_doubt or self._is_half_awake:
            times.append((context.asked_ns or 0) + timers.beacon_ns)
        if context.state is State.SUSPENDED:
            times.append(self.renewed_ns + 2 * timers.lease_ns)
        if self.unreached_since_ns is not None:
            times.append(self.unreached_since_ns + self.resign_wait_ns)
        if self.agreed > self._told:
            times.append(self.progress_ns + timers.progress_ns)
        if self.handover is not None:
            times.append(self.handover.deadline_ns)
        return tuple(times)
