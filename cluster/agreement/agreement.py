"""The agreement of one node with its cluster: events in, decisions out.

Each event goes to the part that it concerns; then `review` of that part decides what follows. There are three parts:
`Follower`, while this node does not lead; `Candidate`, for its campaigns; `Leadership`, from a campaign's success to
the resignation. They share a `NodeContext`.
"""

from collections.abc import Callable
from typing import Any

from ...journal.format.terms import TermTable
from . import events as e
from .candidate import Candidate, obstacle
from .context import DISK_HANGS, NodeContext
from .decisions import Decision, EndLease, HandoverRefused, TakeOver
from .follower import Follower
from .leadership import Leadership
from .states import BROKER_RUNS, State, Step
from .timers import Timers
from .view import NodeIdentity, Purpose, Transaction, View

#: Events that usually move the agreed LSN and nothing else.
_MOVE_AGREED = {e.Acknowledged, e.Durable}
_LEADS = {State.TAKING_OVER, State.LEADING, State.HELD, State.SUSPENDED}


class Agreement:
    """The agreement of a running node. It has no clock: times come with events."""

    def __init__(
        self,
        node: NodeIdentity,
        timers: Timers,
        terms: TermTable,
        end: int,
        journal_id: bytes | None,
        now_ns: int,
        *,
        is_drained: bool = False,
    ) -> None:
        self.context = NodeContext(node, timers, terms, end, journal_id, now_ns, is_drained=is_drained)
        self.context.note_terms(terms, end)
        self.follower = Follower(self.context)
        self.candidate = Candidate(self.context, self.follower)
        self.leadership: Leadership | None = None
        self.resign_wait_ns = timers.resign_after_ns

    @property
    def state(self) -> State:
        """State of the node."""
        return self.context.state

    @property
    def agreed(self) -> int:
        """The agreed LSN while this node leads; else 0."""
        return self.leadership.members.agreed if self.leadership is not None else 0

    @property
    def obstacle(self) -> str | None:
        """Why this node would not campaign if there were no leader, in words; None: it would."""
        return obstacle(self.context, self.context.view) if self.context.view is not None else "etcd was not read yet"

    def handle(self, event: e.Event, now_ns: int) -> list[Decision]:
        """Take an event. Returns the decisions that follow, to be carried out in this order."""
        context = self.context
        has_slept = self._has_slept(now_ns)
        context.now_ns = max(context.now_ns, now_ns)
        if has_slept and self.leadership is not None:
            self.leadership.wake()
        kind = type(event)
        HANDLERS[kind](self, event)
        if kind in _MOVE_AGREED and self.leadership is not None and self.is_calm and not self._may_let_enter(event):
            self.leadership.members.agree()  # three such events come for a block; `_review` costs five times as much
        else:
            self._review()
        decisions, context.decisions = context.decisions, []
        return decisions

    def _has_slept(self, now_ns: int) -> bool:
        """Whether this leader is much too late for its last deadline, because its process or machine stood still.

        A takeover has no deadlines: there the time since the last event counts.
        """
        late_ns = self.context.timers.suspend_after_ns // 2
        if self.leadership is None or now_ns - self.context.now_ns <= late_ns:
            return False
        due_ns = self.context.now_ns if self.state is State.TAKING_OVER else self.next_ns()
        return due_ns is not None and now_ns - due_ns > late_ns

    def _may_let_enter(self, event: e.Event) -> bool:
        """Whether a follower that catches up has acknowledged more, so that it may be close enough to enter the set."""
        return isinstance(event, e.Acknowledged) and event.node_id in self.catching_up

    @property
    def catching_up(self) -> frozenset[bytes]:
        """Followers of this leader whose acknowledgements are not awaited."""
        return frozenset() if self.leadership is None else self.leadership.catching_up

    @property
    def is_calm(self) -> bool:
        """Whether this node leads, and nothing is due or under way. Followers may be catching up."""
        return self.leadership is not None and self.context.now_ns < self.leadership.calm_until_ns

    def next_ns(self) -> int | None:
        """The time at which `handle` needs a `Tick`; None: only other events can change something."""
        context = self.context
        if self.leadership is not None and self.is_calm:
            return self.leadership.calm_until_ns
        if context.view is None and context.state is not State.REFUSED:
            return context.now_ns if context.asked_ns is None else context.asked_ns + context.timers.beacon_ns
        times: tuple[float, ...] = (*self.follower.times_ns(), *self.candidate.times_ns())
        if self.leadership is not None:
            times = self.leadership.times_ns()
        later = [one for one in times if context.now_ns < one < float("inf")]
        return int(min(later)) if later else None

    def _review(self) -> None:
        if self.leadership is not None:
            self.leadership.review()
            return
        if self.context.state is State.REFUSED or self.follower.rejoins_as_new:
            return
        self.follower.review()
        if self.follower.rejoins_as_new:
            return
        self.candidate.review()
        if self.context.is_in_doubt:
            self.context.read_keys()

    # -- etcd ---------------------------------------------------------------------------------------------------------

    def _read(self, event: e.Read) -> None:
        self._take(event.view, event.asked_ns)

    def _take(self, view: View, asked_ns: int | None) -> None:
        context = self.context
        if not context.take_view(view, asked_ns):
            return
        if self.leadership is not None:
            self.leadership.read(view, asked_ns)
        else:
            self.follower.read(view, asked_ns)
        if context.is_in_doubt and asked_ns is not None:
            self._resolve(view)

    def _resolve(self, view: View) -> None:
        """Find out whether the transaction in doubt was done, or send it again."""
        sent = self.context.sent
        assert sent is not None
        if sent.purpose is Purpose.CAMPAIGN:
            self.candidate.resolve(view)
        elif self.leadership is not None:
            self.leadership.resolve(view)
        else:
            self.context.conclude_transaction()  # a bootstrap: the next review sees whether the cluster has begun

    def _answered(self, event: e.Answered) -> None:
        context, sent = self.context, self.context.sent
        if event.transaction != sent or context.is_in_doubt:
            self._give_up_stray(event.transaction)
            return  # it answers a transaction of an earlier leadership, or of the node id before
        if sent.purpose is Purpose.CAMPAIGN:
            self._campaigned(event)
        elif event.is_done or event.view is not None:
            context.conclude_transaction()
        elif self.leadership is not None:
            self.leadership.fail(sent)
        else:
            context.is_in_doubt = True
        if event.view is not None:
            self._take(event.view, event.asked_ns)
        if sent.purpose is Purpose.HAND_OVER and self.leadership is not None:
            if event.is_done:
                self.leadership.finish_handover()
            else:
                self.leadership.fail_handover(event.why or "its keys in etcd have changed meanwhile")

    def _campaigned(self, event: e.Answered) -> None:
        context, view = self.context, event.view
        if not event.is_done:
            self.candidate.fail(is_refused=view is not None)
            return
        assert view is not None and view.leader is not None and view.insync is not None and view.journal is not None
        self.candidate.win()
        context.journal_id = view.journal
        asked_ns = context.now_ns if event.asked_ns is None else event.asked_ns
        self.leadership = Leadership(context, view.leader, view.insync, asked_ns, self.resign_wait_ns)
        context.decide(TakeOver(view.leader.term, view.journal, view.insync.level))

    def _in_doubt(self, event: e.InDoubt) -> None:
        context = self.context
        if event.transaction != context.sent:
            self._give_up_stray(event.transaction)
            return
        if event.transaction.purpose is Purpose.CAMPAIGN:
            self.candidate.doubt()
        elif event.transaction.purpose is Purpose.PROGRESS:
            context.conclude_transaction()
        elif (
            self.leadership is not None
            and self.leadership.handover is not None
            and event.transaction.purpose is Purpose.HAND_OVER
        ):
            self.leadership.finish_handover()
        else:
            context.is_in_doubt = True
            context.read_keys()

    def _give_up_stray(self, transaction: Transaction) -> None:
        """Give up what a campaign may have won under the node id that this directory had before."""
        is_stray = self.leadership is None and self.context.state is not State.CAMPAIGNING
        if is_stray and transaction.purpose is Purpose.CAMPAIGN:
            self.context.decide(EndLease())

    # -- the journal and the disk -------------------------------------------------------------------------------------

    def _durable(self, event: e.Durable) -> None:
        self.context.end = max(self.context.end, event.lsn)
        if self.leadership is not None:
            self.leadership.members.sync()

    def _took_over(self, event: e.TookOver) -> None:
        self.context.note_terms(event.terms, self.context.end)
        if self.leadership is not None and self.context.state is State.TAKING_OVER:
            self.leadership.begin(event.level)

    def _takeover_failed(self, event: e.TakeoverFailed) -> None:
        if self.leadership is not None and self.context.state is State.TAKING_OVER:
            self.leadership.resign(event.why)

    def _reopened(self, event: e.Reopened) -> None:
        self.context.note_terms(event.terms, event.end)
        if self.context.state is State.RESIGNING:
            assert self.leadership is not None
            self.resign_wait_ns = self.leadership.resign_wait_ns
            self.leadership = None
            self.context.step(Step.RESTART)
            self.context.read_keys()

    def _disk_stalled(self, event: e.DiskStalled) -> None:
        self.context.stall = event.why or DISK_HANGS
        if self.leadership is not None and self.context.state in _LEADS:
            self.leadership.resign(f"the {event.why or DISK_HANGS}")

    def _disk_recovered(self, event: e.DiskRecovered) -> None:
        self.context.stall = ""

    def _disk_full(self, event: e.DiskFull) -> None:
        leadership = self.leadership
        if leadership is None or self.context.state not in BROKER_RUNS:
            return
        if leadership.can_hand_over_to_any(event.roomy):
            leadership.resign("its disk is full, and another node that can lead has room")

    def _disk_failed(self, event: e.DiskFailed) -> None:
        if self.leadership is not None and self.context.state in BROKER_RUNS:
            self.leadership.resign("its journal has failed")

    def _journal_damaged(self, event: e.JournalDamaged) -> None:
        """Resign if another node can lead. Otherwise keep serving: only this node may have the undamaged records."""
        leadership = self.leadership
        if leadership is None or self.context.state not in BROKER_RUNS:
            return
        if leadership.can_hand_over_to_any(leadership.members.insync_others):
            leadership.resign(f"its journal is damaged, and another node can lead: {event.damage}")

    # -- links --------------------------------------------------------------------------------------------------------

    def _joined(self, event: e.Joined) -> None:
        self.context.note_terms(event.terms, event.end)

    def _join_refused(self, event: e.JoinRefused) -> None:
        if self.context.state in (State.FOLLOWING, State.IN_SYNC, State.DRAINED):
            self.follower.refuse(event.why)

    def _leader_heard(self, event: e.LeaderHeard) -> None:
        self.follower.refusals_ns = ()
        self.context.clock_difference_ns = event.clock_difference_ns
        self.follower.hear(event.term, event.agreed)

    def _acknowledged(self, event: e.Acknowledged) -> None:
        if self.leadership is not None:
            self.leadership.acknowledge(event.node_id, event.term, event.lsn)

    # -- operators ----------------------------------------------------------------------------------------------------

    def _hand_over(self, event: e.HandOver) -> None:
        self._give_up_lead(event.to, is_leaving=event.is_leaving)

    def _give_up_lead(self, to: bytes | None, *, is_leaving: bool = False, drains: bool = False) -> None:
        leadership = self.leadership
        if leadership is None or self.context.state not in _LEADS:
            return
        if leadership.handover is not None and is_leaving:
            leadership.handover.is_leaving = True
        elif leadership.handover is not None:
            self.context.decide(HandoverRefused("this node is handing over already"))
        elif self.context.state is State.TAKING_OVER:
            self.context.decide(HandoverRefused("this node is just taking over"))
        else:
            leadership.begin_handover(to, is_leaving=is_leaving, drains=drains)

    def _quiesced(self, event: e.Quiesced) -> None:
        """Note the end of the journal, unless an earlier attempt, which was given up, asked for it."""
        handover = None if self.leadership is None else self.leadership.handover
        if handover is not None and handover.attempt == event.attempt:
            handover.end = event.end

    def _drain(self, event: e.Drain) -> None:
        """A leader is drained only once another node has the lead, so that the cluster always has one."""
        if self.leadership is None or self.context.state not in _LEADS:
            self.context.is_drained = True
        else:
            self._give_up_lead(None, drains=True)

    def _revive(self, event: e.Revive) -> None:
        self.context.is_drained = False
        if self.context.state is State.DRAINED:
            self.context.step(Step.REVIVE)


Handler = Callable[[Agreement, Any], object]


def _if_leading(act: Callable[[Leadership, Any], object]) -> Handler:
    """Let the leadership handle an event. Without one the event is ignored."""
    return lambda agreement, event: None if agreement.leadership is None else act(agreement.leadership, event)


HANDLERS: dict[type, Handler] = {
    e.Read: Agreement._read,
    e.Answered: Agreement._answered,
    e.InDoubt: Agreement._in_doubt,
    e.LeaseRenewed: _if_leading(lambda leadership, event: leadership.renew(event.asked_ns)),
    e.Tick: lambda agreement, event: None,
    e.Durable: Agreement._durable,
    e.TookOver: Agreement._took_over,
    e.TakeoverFailed: Agreement._takeover_failed,
    e.Reopened: Agreement._reopened,
    e.DiskStalled: Agreement._disk_stalled,
    e.DiskRecovered: Agreement._disk_recovered,
    e.DiskFull: Agreement._disk_full,
    e.DiskFailed: Agreement._disk_failed,
    e.JournalDamaged: Agreement._journal_damaged,
    e.Joined: Agreement._joined,
    e.JoinRefused: Agreement._join_refused,
    e.LeaderRefused: lambda agreement, event: agreement.follower.note_refusal(),
    e.LeaderHeard: Agreement._leader_heard,
    e.LinkOpened: _if_leading(lambda leadership, event: leadership.members.open(event.node_id, event.end)),
    e.LinkClosed: _if_leading(lambda leadership, event: leadership.members.close(event.node_id, is_gone=False)),
    e.FollowerRefused: _if_leading(lambda leadership, event: leadership.members.close(event.node_id, is_gone=True)),
    e.FollowerHeard: _if_leading(lambda leadership, event: leadership.members.hear(event.node_id)),
    e.Acknowledged: Agreement._acknowledged,
    e.HandOver: Agreement._hand_over,
    e.Quiesced: Agreement._quiesced,
    e.Drain: Agreement._drain,
    e.Revive: Agreement._revive,
    e.RaiseLevel: _if_leading(lambda leadership, event: leadership.raise_level(event.level)),
}
