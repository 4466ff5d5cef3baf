"""The campaigns of a node: whether it may lead, when it campaigns, and how a campaign ends."""

from .context import ETCD_ROLLED_BACK, NodeContext
from .decisions import EndLease
from .follower import Follower
from .states import State, Step
from .transactions import campaign
from .view import INSYNC, LEADER, View


def obstacle(context: NodeContext, view: View) -> str | None:
    """Why this node must not lead, in words; None: it may."""
    insync = view.insync
    if insync is None or not context.is_member:
        return "it is not in sync"
    if context.is_etcd_rolled_back or insync.term < context.terms.last_term:
        return ETCD_ROLLED_BACK
    if context.node.unknown:
        return f"its journal holds {context.node.unknown}, of which this release does not know: install a newer one"
    if insync.level > context.node.level:
        what = f"the journal is of level {insync.level}, and this node reads level {context.node.level}"
        return f"{what}: install the release of the other nodes"
    if context.is_drained:
        return "it is drained"
    if context.stall:
        return f"its {context.stall}"
    return None


class Candidate:
    """Sends the campaigns of a node. A campaign is a transaction. It ends when etcd answers, or when it did not reach
    etcd; after an attempt without an answer also when its guards (`transactions.py`) can no longer hold.

    may_still_win: a campaign of this node got no answer, and etcd may still elect the node.
    """

    def __init__(self, context: NodeContext, follower: Follower) -> None:
        self.context, self.follower = context, follower
        self.retry_ns = 0  # the earliest time of the next campaign, if etcd was not reached for the last one
        self.may_still_win = False

    def review(self) -> None:
        """Campaign if there is no leader, or its process has ended.

        Not while there is an `obstacle`, or while another node should campaign first. A leader whose process has ended
        is not replaced by a node with a wrong clock or another configuration, as long as etcd names that leader.
        """
        context, view = self.context, self.context.view
        if context.state is not State.IN_SYNC or view is None or context.sent is not None:
            return
        if self.follower.shortfall is not None:
            return  # etcd has to tell first whether this disk was restored from a backup
        may_replace = self.follower.is_leader_gone and not self._is_clock_wrong and not context.has_other_configuration
        if view.leader is not None and not may_replace:
            return
        why = obstacle(context, view)
        if why is not None:
            self.follower.note(f"does not campaign: {why}")
            return
        if context.now_ns >= (self.retry_ns if may_replace else self._earliest_ns(view)):
            self._campaign(view)

    @property
    def _is_clock_wrong(self) -> bool:
        """Whether this node lets others lead, because its clock differs too much from the last leader's."""
        return abs(self.context.clock_difference_ns) > self.context.timers.clock_difference_ns

    def _earliest_ns(self, view: View) -> int:
        """The time at which this node campaigns if there is no leader.

        It lets others go first if it has just resigned, if another node is preferred, if its clock is wrong, or if its
        configuration is not that of the last leader. Of these only a wrong clock makes the preferred node wait.
        """
        context, timers = self.context, self.context.timers
        since_ns = context.absent_since_ns or 0
        earliest_ns = self.retry_ns
        if view.preferred != context.node.node_id:
            earliest_ns = max(earliest_ns, context.abstains_until_ns)
            reasons_to_wait = (view.preferred is not None) + context.has_other_configuration
            if reasons_to_wait:
                earliest_ns = max(earliest_ns, since_ns + reasons_to_wait * timers.preferred_first_ns)
        if self._is_clock_wrong:
            earliest_ns = max(earliest_ns, since_ns + timers.lease_ns)
        return earliest_ns

    def _campaign(self, view: View) -> None:
        assert view.insync is not None
        self.follower.leave_leader()
        self.context.step(Step.CAMPAIGN)
        self.context.transact(campaign(self.context.node, view.insync, view.leader))

    def doubt(self) -> None:
        """Handle a campaign without an answer: give up the lease, so that other nodes need not wait for its end if etcd
        elected this node.
        """
        self.context.is_in_doubt = self.may_still_win = True
        self.context.decide(EndLease())
        self.context.read_keys()

    def fail(self, *, is_refused: bool) -> None:
        """Handle a campaign that was not done this time. An earlier attempt without an answer may have been done.

        `is_refused`: a guard did not hold, and never will; otherwise etcd was not reached.
        """
        if is_refused or not self.may_still_win:
            self._lose()
        else:
            self.context.is_in_doubt = True
        if not is_refused:
            self.retry_ns = self.context.now_ns + self.context.timers.beacon_ns

    def resolve(self, view: View) -> None:
        """End a campaign in doubt as lost if a guard can no longer hold; otherwise send it again.

        If etcd elected this node, the key `leader` names it, with a lease that the node gave up. The node then waits
        for the end of that lease, and meanwhile acknowledges like a follower.
        """
        sent, leader, insync = self.context.sent, view.leader, view.insync
        assert sent is not None and self.context.is_in_doubt
        guards = dict(sent.guards)
        is_possible = insync is not None and insync.revision == guards[INSYNC]
        if is_possible and (leader.revision if leader else 0) == guards[LEADER]:
            self.context.transact(sent)
        else:
            self._lose()

    def _lose(self) -> None:
        self.may_still_win = False
        self.context.conclude_transaction()
        self.context.step(Step.LOSE)

    def win(self) -> None:
        """This node leads the term of its campaign."""
        self.may_still_win = False
        self.context.conclude_transaction()
        self.context.step(Step.WIN)

    def times_ns(self) -> tuple[int, ...]:
        """The times at which the node's state must be reviewed."""
        context, view = self.context, self.context.view
        if context.state is State.CAMPAIGNING and context.is_in_doubt:
            return ((context.asked_ns or 0) + context.timers.beacon_ns,)
        if context.state is State.IN_SYNC and view is not None and view.leader is None:
            return (self._earliest_ns(view),)
        return (self.retry_ns,)
