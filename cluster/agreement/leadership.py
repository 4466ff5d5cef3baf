"""A node that leads: whether it may serve, which nodes enter and leave the in-sync set, and when it resigns."""

from collections.abc import Iterable

from .context import ETCD_ROLLED_BACK, NodeContext
from .decisions import EndLease, HandoverRefused, Hold, LevelRaised, Quiesce, Resign, Resume, Suspend
from .handover import Handover, obstacle, successor
from .members import Members
from .states import BROKER_RUNS, State, Step
from .transactions import change, hand_over, progress
from .view import INSYNC, InSync, Leader, NodeKey, Purpose, Transaction, View

_CHANGES = {Purpose.SHRINK, Purpose.GROW}


class Leadership:
    """One term of this node as leader, from its campaign's success to its resignation."""

    def __init__(self, context: NodeContext, key: Leader, insync: InSync, asked_ns: int, resign_wait_ns: int) -> None:
        self.context, self.key = context, key
        self.members = Members(context, insync)
        self.handover: Handover | None = None
        self.handovers = 0  # attempts so far
        self.reason = ""  # why publishers are blocked
        self.proven_ns = asked_ns  # when etcd last said that this node led
        self.renewed_ns = asked_ns  # when etcd last renewed the lease
        self.began_ns = asked_ns  # when the broker began to run
        self.progress_ns = context.now_ns  # when the agreed LSN was last written to etcd
        self.resign_wait_ns = resign_wait_ns
        self.woke_ns = 0  # when this process last ran again after a standstill
        self.better_pair_since_ns: int | None = None  # since when `_better_pair` finds one
        self.wanted_level = insync.level  # the level to which the journal is to be raised
        self.calm_until_ns = 0  # until then an awaited acknowledgement moves the agreed LSN and nothing else
        self.catching_up: frozenset[bytes] = frozenset()  # followers with a link that are not awaited

    # -- events -------------------------------------------------------------------------------------------------------

    def begin(self, level: int) -> None:
        """The broker runs: serve, or block publishers. `level`: the lowest at which the journal can be read."""
        self.began_ns = self.context.now_ns
        self.raise_level(level)
        self.members.begin()
        self.members.agree()
        self._choose_state()

    def acknowledge(self, node_id: bytes, term: int, lsn: int) -> None:
        """Note that a follower has fsynced everything below `lsn`. Acknowledgements of other terms are ignored."""
        if term == self.key.term:
            self.members.acknowledge(node_id, lsn)

    def wake(self) -> None:
        """Note that this process, or its machine, stood still: another node may lead, until etcd denies it."""
        self.woke_ns = self.context.now_ns

    def renew(self, asked_ns: int) -> None:
        """Note that etcd renewed the lease. `asked_ns`: when this node asked for that."""
        self.renewed_ns = max(self.renewed_ns, asked_ns)

    def read(self, view: View, asked_ns: int | None) -> None:
        """Note what etcd says: whether this node leads, and which nodes are in sync."""
        if view.leader != self.key:
            return
        if asked_ns is not None:
            self.proven_ns = max(self.proven_ns, asked_ns)
        if view.insync is not None and view.insync.revision > self.members.insync.revision:
            self._take_set(view.insync)
        self.members.take_stopped()

    def _take_set(self, insync: InSync) -> None:
        if insync.level > self.members.insync.level:
            self.context.decide(LevelRaised(insync.level))
        self.members.take_set(insync)
        sent = self.context.sent
        if self.context.is_in_doubt and sent is not None and sent.purpose in _CHANGES:
            self.context.conclude_transaction()

    def raise_level(self, level: int) -> None:
        """Raise the level of the journal, as soon as no other transaction is under way."""
        self.wanted_level = max(self.wanted_level, level)

    def fail(self, sent: Transaction) -> None:
        """Note that a transaction was not done. A change of the set that was sent before may still be done."""
        if sent.purpose in _CHANGES and self.members.possible:
            self.context.is_in_doubt = True
        else:
            self.context.conclude_transaction()
        self.context.read_keys()

    # -- decisions ----------------------------------------------------------------------------------------------------

    def review(self) -> None:
        """Do whatever follows from what is known now."""
        context = self.context
        why = self._why_lost()
        if context.state is State.RESIGNING:
            return
        if why is not None:
            self.resign(why)
        elif context.state is not State.TAKING_OVER:
            self._serve()
        self.calm_until_ns = self._calm_until_ns()

    def _serve(self) -> None:
        self.members.agree()
        if self.handover is not None:
            self._review_handover(self.handover)
        if self.handover is not None or self.context.state is State.RESIGNING:
            return
        self._choose_state()
        if self.context.state in BROKER_RUNS:
            self._change_set()
            self._write_progress()
            self._read_keys_while_unsure()

    def _why_lost(self) -> str | None:
        """Why this node no longer leads according to etcd; None: it does, as far as etcd knows."""
        view, context = self.context.view, self.context
        if view is None or view.leader == self.key:
            return None
        if view.leader is not None and view.leader.term > self.key.term:
            return f"{view.leader.name} leads term {view.leader.term}"
        if view.insync is not None and view.insync.term > self.key.term:
            return f"term {view.insync.term} has begun"
        if context.is_etcd_rolled_back or view.insync is None or view.leader is not None:
            return None  # etcd's data were rolled back or deleted: no other node can lead, so this one continues
        sent = context.sent
        return "handed over" if sent is not None and sent.purpose is Purpose.HAND_OVER else "its lease is over"

    def _calm_until_ns(self) -> int:
        """The new `calm_until_ns`; 0: a node enters the set, publishers are blocked, or this node hands over."""
        context, timers, members = self.context, self.context.timers, self.members
        is_calm = context.state is State.LEADING and self.handover is None
        if not is_calm or members.possible or members.entering:
            return 0
        awaited = members.awaited
        self.catching_up = frozenset(
            node_id for node_id, member in members.by_id.items() if member.is_linked and node_id not in awaited
        )
        times = [self.progress_ns + timers.progress_ns]
        for member in map(members.member, awaited):
            times += (member.heard_ns + timers.suspend_after_ns // 2, member.overdue_ns(timers))
        return min(times)

    def _choose_state(self) -> None:
        context = self.context
        reason = self._hold_reason()
        if self._may_be_replaced():
            if context.state is not State.SUSPENDED:
                context.step(Step.SUSPEND)
                context.decide(Suspend())
            elif context.now_ns >= self._give_up_ns:
                self.resign("a node in sync is silent, and etcd does not say that this node leads")
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
            context.decide(Resume())
            self.better_pair_since_ns = None
        if context.state is State.LEADING and self.members.linked_count >= context.node.min_in_sync - 1:
            self.resign_wait_ns = context.timers.resign_after_ns

    @property
    def why(self) -> str:
        """Why this node serves all clients, or blocks publishers, in words."""
        if self.context.state is State.HELD:
            return self.reason
        if self.context.is_etcd_rolled_back:
            return ETCD_ROLLED_BACK
        absent = [one for one in self.members.insync_others if not self.members.member(one).is_linked]
        view = self.context.view
        keys = [view.node_with_id(one) for one in absent] if view is not None else []
        names = sorted(key.name for key in keys if key is not None)
        names += [f"{len(absent) - len(names)} more"] if len(names) < len(absent) else []
        return f"waits for nodes that were in sync: {', '.join(names)}" if names else "enough nodes are in sync"

    def _may_be_replaced(self) -> bool:
        """Whether silent nodes may follow another leader, and etcd has not named this node since they fell silent.

        After a standstill of this node all others count as silent, because what they sent may be old.
        """
        return self._is_unconfirmed or self.context.now_ns >= self._suspend_ns()

    @property
    def _is_unconfirmed(self) -> bool:
        """Whether etcd has not been read since this node woke."""
        return self.proven_ns < self.woke_ns

    def _suspend_ns(self) -> float:
        """The time at which this node must suspend its broker, if nothing is heard until then."""
        silent_ns = self.members.silent_since_ns
        if silent_ns is None:
            return float("inf")
        return max(silent_ns, self.proven_ns) + self.context.timers.suspend_after_ns

    @property
    def _give_up_ns(self) -> int:
        """The time at which this node resigns if it is still suspended.

        A takeover on a slow machine may take longer than a lease. Then this node asks etcd before it resigns: otherwise
        the next node might do the same, and so on.
        """
        return max(self.renewed_ns, self.began_ns) + 2 * self.context.timers.lease_ns

    def _hold_reason(self) -> str | None:
        """Why publishers must be blocked (rule R5); None: they need not be."""
        least, overdue = self.context.node.min_in_sync, self.members.overdue
        answering = len(self.members.insync.nodes - overdue)
        if answering < least:
            return f"replication: {answering} of {least} nodes in sync"
        if overdue and self.context.is_in_doubt:
            return "replication: a node in sync does not answer, and neither does etcd"
        return None

    def _resign_for_others(self) -> None:
        """Resign if an unreachable node in sync reaches another node: those two can serve (rule R5)."""
        context = self.context
        why = self._better_pair()
        if why is None:
            self.better_pair_since_ns = None
            return
        if self.better_pair_since_ns is None:
            self.better_pair_since_ns = context.now_ns
        if context.now_ns >= self.better_pair_since_ns + self.resign_wait_ns:
            self.resign_wait_ns *= 2
            self.resign(why)

    def _better_pair(self) -> str | None:
        """Why two other nodes could serve in place of this one, in words; None: they cannot."""
        view, own = self.context.view, self.context.node.name
        for node_id in sorted(self.members.overdue & self.members.insync.nodes):
            other = view.node_with_id(node_id) if view is not None else None
            if other is not None and view is not None and not other.is_drained and self._is_believed(other):
                reached = sorted(
                    name for name in other.reaches - {own, other.name} if view.node_named(name) is not None
                )
                if reached:
                    return f"{other.name} does not answer this node, and reaches {reached[0]}"
        return None

    def _is_believed(self, other: NodeKey) -> bool:
        """Whether a node that does not answer has written its `reaches` since it fell silent.

        A node that no longer reaches this one removes this one's name from its key. If the name stays, the other node
        may be dead: then its key vanishes when its lease is over. If the key is still there after that time, the other
        node lives and reaches this one, but does not follow it.
        """
        if self.context.node.name not in other.reaches:
            return True
        timers = self.context.timers
        return self.context.now_ns >= self.members.member(other.node_id).overdue_ns(timers) + 2 * timers.lease_ns

    # -- the set ------------------------------------------------------------------------------------------------------

    def _change_set(self) -> None:
        """Shrink the set, let nodes enter, and raise the level: one transaction at a time."""
        context, members = self.context, self.members
        overdue = members.overdue
        members.entering -= overdue - members.possible
        members.let_enter()
        view = context.view
        if context.sent is not None or context.is_etcd_rolled_back or view is None or view.leader != self.key:
            return
        staying = members.insync.nodes - overdue
        nodes = staying if len(staying) >= context.node.min_in_sync else members.insync.nodes
        nodes |= {one for one in members.entering if members.has_everything(one)}
        if nodes != members.insync.nodes or self.wanted_level > members.insync.level:
            assert context.node.node_id in nodes
            self._send_change(nodes)

    def _send_change(self, nodes: frozenset[bytes]) -> None:
        members = self.members
        members.possible |= nodes
        self.context.transact(change(self.key, members.insync, nodes, members.agreed, self.wanted_level))

    def resolve(self, view: View) -> None:
        """Send a change of the set again if the one in doubt was not done when the keys were read.

        The first one may still be done; both guard the same revision of the set, so at most one ever is.
        """
        context, members, sent = self.context, self.members, self.context.sent
        if sent is None or not context.is_in_doubt or view.leader != self.key or sent.purpose not in _CHANGES:
            return
        if view.insync is not None and view.insync.revision == dict(sent.guards)[INSYNC]:
            staying = members.insync.nodes - members.overdue
            self._send_change(staying if len(staying) >= context.node.min_in_sync else members.insync.nodes)
        else:
            context.conclude_transaction()  # the set has changed since: this change was done, or never will be

    def _write_progress(self) -> None:
        context, agreed = self.context, self.members.agreed
        is_due = context.now_ns >= self.progress_ns + context.timers.progress_ns
        if is_due and agreed > self._written_agreed and context.sent is None and not context.is_etcd_rolled_back:
            self.progress_ns = context.now_ns
            context.transact(progress(self.key, context.view.agreed if context.view else None, agreed))

    @property
    def _written_agreed(self) -> int:
        """The agreed LSN in etcd. This leader's own may be lower after a node's disk was rolled back."""
        view = self.context.view
        return view.agreed.lsn if view is not None and view.agreed is not None else 0

    def _read_keys_while_unsure(self) -> None:
        """Read the keys while a node is silent, a change is in doubt, or this node has just woken."""
        silent_ns, timers = self.members.silent_since_ns, self.context.timers
        is_silent = silent_ns is not None and self.context.now_ns >= silent_ns + timers.suspend_after_ns // 2
        if is_silent or self.context.is_in_doubt or self._is_unconfirmed:
            self.context.read_keys()

    # -- handing over -------------------------------------------------------------------------------------------------

    def can_hand_over_to_any(self, node_ids: Iterable[bytes]) -> bool:
        """Whether any of these nodes could be handed the lead now."""
        return any(obstacle(self.members, self.context.view, one) is None for one in node_ids)

    def begin_handover(self, to: bytes | None, *, is_leaving: bool, drains: bool) -> None:
        """Stop reading from clients, if there is a successor, or if this node is leaving."""
        context = self.context
        found = successor(self.members, to)
        if isinstance(found, str) and not is_leaving:
            context.decide(HandoverRefused(found))
            return
        deadline_ns = context.now_ns + context.timers.ack_deadline_ns
        self.handovers += 1
        to = None if isinstance(found, str) else found
        self.handover = Handover(to, is_leaving, drains, deadline_ns, self.handovers)
        context.decide(Quiesce(self.handovers))

    def _review_handover(self, handover: Handover) -> None:
        """Send the transaction when the successor has everything; give up at the deadline."""
        context = self.context
        if context.sent is not None and context.sent.purpose is Purpose.HAND_OVER:
            return
        if context.now_ns >= handover.deadline_ns:
            self.fail_handover("the other node did not acknowledge everything in time")
        elif context.sent is None and handover.is_ready(self.members):
            context.transact(hand_over(self.key, handover.to))

    def fail_handover(self, why: str) -> None:
        """Keep the lead and serve as before; but resign if this node is leaving."""
        context, handover = self.context, self.handover
        if handover is None:
            return
        if handover.is_leaving:
            self.resign(f"this node stops, and {why}")
            return
        self.handover = None
        context.decide(HandoverRefused(why))
        if context.state is State.LEADING:
            context.decide(Resume())
        elif context.state is State.HELD:
            context.decide(Hold(self.reason))

    def finish_handover(self) -> None:
        """Resign: the key `leader` is deleted, or may be deleted later."""
        view, handover = self.context.view, self.handover
        if handover is not None:
            key = view.node_with_id(handover.to) if view is not None and handover.to is not None else None
            self.resign(f"handed over to {key.name}" if key is not None else "handed over")

    # -- the end ------------------------------------------------------------------------------------------------------

    def resign(self, why: str) -> None:
        """Close the broker, give up the lease, and let others campaign first."""
        context = self.context
        context.is_drained |= self.handover is not None and self.handover.drains
        context.step(Step.RESIGN)
        context.conclude_transaction()
        context.abstains_until_ns = context.now_ns + context.timers.lease_ns
        self.calm_until_ns = 0  # nothing is agreed after this
        context.decide(Resign(why), EndLease())

    def times_ns(self) -> tuple[float, ...]:
        """The times at which the node's state must be reviewed."""
        timers, context, members = self.context.timers, self.context, self.members
        if context.state not in BROKER_RUNS:
            return ()
        times: list[float] = [members.member(one).overdue_ns(timers) for one in members.awaited]
        times.append(self._suspend_ns())
        silent_ns = members.silent_since_ns
        if silent_ns is not None:
            times.append(silent_ns + timers.suspend_after_ns // 2)
        if silent_ns is not None or context.is_in_doubt or self._is_unconfirmed:
            times.append((context.asked_ns or 0) + timers.beacon_ns)
        if context.state is State.SUSPENDED:
            times.append(self._give_up_ns)
        if self.better_pair_since_ns is not None:
            times.append(self.better_pair_since_ns + self.resign_wait_ns)
        if members.agreed > self._written_agreed:
            times.append(self.progress_ns + timers.progress_ns)
        if self.handover is not None:
            times.append(self.handover.deadline_ns)
        return tuple(times)
