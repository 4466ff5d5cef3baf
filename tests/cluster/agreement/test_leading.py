"""What a leader agrees to, whom it waits for, and when it stops to serve."""

from dataclasses import replace
from typing import Any

import pytest
from agreement_stage import A, B, C, Stage, beat, leader, registered
from agreement_world import JOURNAL_ID, carry_out, name_of

from leveret.cluster.agreement import decisions as d
from leveret.cluster.agreement import events as e
from leveret.cluster.agreement.context import ETCD_ROLLED_BACK
from leveret.cluster.agreement.states import State
from leveret.cluster.agreement.timers import SECOND
from leveret.cluster.agreement.transactions import forget
from leveret.cluster.agreement.view import AGREED, INSYNC, LEADER, PREFERRED, AgreedKey, InSync, Purpose, View
from leveret.journal.format.errors import Damaged
from leveret.journal.format.terms import TermTable

HELD = "replication: 1 of 2 nodes in sync"


def test_agreed_is_what_all_nodes_in_sync_have_fsynced() -> None:
    """The leader included: its own disk may be the slowest."""
    stage = Stage().lead(B, C)
    assert stage.tell(stage.acknowledged(B, 12), stage.acknowledged(C, 11)) == []
    assert stage.tell(e.Durable(13)) == [d.Agree(11)]
    assert stage.tell(stage.acknowledged(C, 13)) == [d.Agree(12)]


def test_an_acknowledgement_of_another_term_counts_for_nothing() -> None:
    """Records of a lost leader may have the same LSN."""
    stage = Stage().lead(B, C)
    stage.tell(e.Durable(12), stage.acknowledged(C, 12))
    assert stage.tell(e.Acknowledged(B, 1, 12)) == []


def test_a_silent_member_is_waited_for_until_etcd_has_it_out_of_the_set() -> None:
    """CL05, rule R3: confirms stall for `ack-deadline`, and go on when the answer is there, not before."""
    stage = Stage().lead(B, C)
    stage.tell(e.Durable(12), stage.acknowledged(B, 12))
    beat(stage, 1.5, B)
    assert (stage.state, stage.sent) == (State.LEADING, None)
    beat(stage, 0.5, B)
    assert stage.sent is not None and stage.sent.purpose is Purpose.SHRINK
    assert stage.of(d.Agree) == [] and stage.agreement.agreed == 10
    assert stage.answer() == [d.Agree(12)]
    assert stage.etcd.insync.nodes == {A, B} and stage.etcd.insync.agreed == 10
    assert stage.state is State.LEADING


def test_a_slow_disk_of_a_follower_is_no_reason_to_wait_for_longer() -> None:
    """CL05: its beacons come, its acknowledgements do not."""
    stage = Stage().lead(B, C)
    stage.tell(e.Durable(12), stage.acknowledged(B, 12))
    beat(stage, 2, B, C)
    assert stage.sent.put(INSYNC).nodes == {A, B}


def test_a_member_that_is_always_behind_is_not_waited_for() -> None:
    """It acknowledges a part, or owes something again and again: the first thing that it owes counts."""
    for acknowledges in (False, True):
        stage = Stage().lead(B, C)
        stage.tell(e.Durable(20))
        for lsn in range(21, 24):
            stage.advance(0.5)
            told = [stage.acknowledged(C, lsn - 10)] if acknowledges else []
            stage.tell(e.FollowerHeard(C), *told, e.Durable(lsn), stage.acknowledged(B, lsn))
            assert stage.sent is None
        stage.advance(0.5)
        assert stage.sent is not None and stage.sent.put(INSYNC).nodes == {A, B}


def test_a_member_owes_the_rest_from_when_it_has_acknowledged_a_part() -> None:
    """Though nothing more is written."""
    stage = Stage().lead(B, C)
    stage.tell(e.Durable(11), e.Durable(12), stage.acknowledged(B, 12), stage.acknowledged(C, 11))
    beat(stage, 1.5, B, C)
    assert stage.sent is None
    beat(stage, 0.5, B, C)
    assert stage.sent is not None and stage.sent.put(INSYNC).nodes == {A, B}


def test_a_member_that_was_silent_already_gets_no_more_time_for_what_is_written_now() -> None:
    """Its silence counts, though it owes something only since a moment."""
    stage = Stage().lead(B, C)
    beat(stage, 1.5, B)
    stage.tell(e.Durable(12), stage.acknowledged(B, 12))
    beat(stage, 0.5, B)
    assert stage.sent is not None and stage.sent.put(INSYNC).nodes == {A, B}


def test_a_member_that_joins_and_acknowledges_nothing_is_not_waited_for() -> None:
    """Also when nothing is written meanwhile: what earlier leaders had agreed is known only by its word."""
    stage = Stage().lead(C)
    stage.tell(e.LinkOpened(B, 10))
    beat(stage, 1.5, B, C)
    assert not stage.sent and stage.agreement.agreed == 0
    beat(stage, 0.5, B, C)
    assert stage.sent.put(INSYNC).nodes == {A, C}
    assert stage.answer() == [d.Agree(10)]


def test_members_have_their_time_to_join_from_when_the_broker_runs() -> None:
    """However long that took, and though their links were open before, and closed."""
    stage = Stage()
    stage.read()
    stage.answer()
    stage.tell(e.LinkOpened(B, 10), e.LinkClosed(B))
    beat(stage, 30)
    stage.tell(e.TookOver(stage.terms.with_term(2, 10)))
    assert stage.sent is None and stage.of(d.Resign) == []


def test_a_follower_whose_process_is_gone_leaves_at_once() -> None:
    """Its link is closed, and refuses a connection."""
    stage = Stage().lead(B, C)
    stage.tell(e.LinkClosed(C))
    assert not stage.sent
    stage.tell(e.FollowerRefused(C))
    assert stage.sent.put(INSYNC).nodes == {A, B}


@pytest.mark.parametrize("is_late", [False, True])
def test_the_next_leader_does_not_wait_for_one_that_has_stopped(is_late: bool) -> None:
    """Its key vanishes after the next one has won, or before that one campaigns."""
    others = registered(0, 2)
    stage = Stage(nodes=registered(0, 1, 2), leader=leader(1, 3, 9))
    stage.read()
    stage.change(**({} if is_late else {"nodes": others}))
    stage.read(leader=None, preferred=A)
    stage.answer()
    stage.read(nodes=others)
    stage.tell(e.TookOver(stage.terms.with_term(stage.etcd.leader.term, 10)))
    stage.join(C)
    assert stage.sent.put(INSYNC).nodes == {A, C}


def test_a_follower_comes_back_in_sync_by_itself() -> None:
    """CL05: rule R4, it is waited for from before the transaction is sent."""
    stage = Stage().lead(B, C)
    stage.lose(C)
    stage.tell(e.Durable(14), stage.acknowledged(B, 14))
    assert stage.agreement.agreed == 14
    stage.tell(e.LinkOpened(C, 10))
    assert not stage.sent
    stage.tell(stage.acknowledged(C, 14))
    assert stage.sent.purpose is Purpose.GROW
    assert stage.tell(e.Durable(16), stage.acknowledged(B, 16)) == []
    assert stage.answer() == []
    assert stage.etcd.insync.nodes == {A, B, C}
    assert stage.tell(stage.acknowledged(C, 15)) == [d.Agree(15)]


def test_a_follower_that_is_close_behind_is_waited_for_so_that_it_can_enter_under_load() -> None:
    """Else it would be behind for ever, as it acknowledges what the others have acknowledged before."""
    stage = Stage().lead(B)
    stage.lose(C)
    stage.tell(e.LinkOpened(C, 10))
    lsn = 10
    for _ in range(10):  # each time C has what was agreed the time before
        lsn += 1
        stage.tell(e.Durable(lsn), stage.acknowledged(B, lsn), stage.acknowledged(C, lsn - 1))
        if stage.sent is not None:
            break
        stage.advance(0.05)
    assert stage.sent is not None and stage.sent.put(INSYNC).nodes == {A, B, C}


def test_a_follower_enters_with_the_acknowledgement_that_it_needs() -> None:
    """And not at the next beacon: where it is the second node in sync, publishers are held until then."""
    stage = Stage().lead(B)
    stage.lose(C)
    stage.tell(e.LinkOpened(C, 9), e.Durable(11), stage.acknowledged(B, 11), stage.acknowledged(C, 10))
    assert stage.sent is None
    stage.tell(stage.acknowledged(C, 11))
    assert stage.sent is not None and stage.sent.purpose is Purpose.GROW


def test_a_follower_that_is_far_behind_is_not_waited_for() -> None:
    """Confirms would wait until it has copied all."""
    stage = Stage().lead(B)
    stage.lose(C)
    stage.tell(e.Durable(100), stage.acknowledged(B, 100), e.LinkOpened(C, 10), stage.acknowledged(C, 11))
    assert stage.tell(e.Durable(101), stage.acknowledged(B, 101)) == [d.Agree(101)]


def test_a_leader_is_calm_again_when_a_follower_has_entered() -> None:
    """What is agreed is then told at once, and nothing is computed for each acknowledgement."""
    stage = Stage().lead(B)
    stage.lose(C)
    stage.join(C)
    assert stage.sent.purpose is Purpose.GROW and not stage.agreement.is_calm
    stage.answer()
    stage.tell(e.Tick())
    assert stage.agreement.is_calm


def test_a_leader_is_calm_while_a_follower_catches_up() -> None:
    """Publishers pay nothing for it; its own acknowledgements show when it may enter."""
    stage = Stage().lead(B)
    stage.lose(C)
    stage.tell(e.Durable(100), stage.acknowledged(B, 100), e.LinkOpened(C, 10), stage.acknowledged(C, 11))
    assert stage.agreement.is_calm and stage.agreement.catching_up == {C}
    for lsn in range(101, 120):
        assert stage.tell(e.Durable(lsn), stage.acknowledged(B, lsn)) == [d.Agree(lsn)]
    assert stage.agreement.is_calm and not stage.sent
    stage.tell(stage.acknowledged(C, 119))
    assert stage.sent.purpose is Purpose.GROW and not stage.agreement.is_calm
    stage.answer()
    stage.tell(e.Tick())
    assert stage.agreement.is_calm and not stage.agreement.catching_up


@pytest.mark.parametrize("goes", [True, False], ids=["goes", "hangs"])
def test_a_node_that_is_to_enter_is_not_waited_for(goes: bool) -> None:
    """Confirms go on without it at once if it goes, and soon if it hangs: it had all that was agreed, so it would be
    taken for one that is close behind again and again."""
    stage = Stage().lead(B)
    stage.lose(C)
    stage.tell(e.Durable(12), stage.acknowledged(B, 12))
    beat(stage, 6, B)
    assert stage.sent.purpose is Purpose.PROGRESS  # etcd takes its time
    stage.join(C, 12)
    stage.tell(*[e.LinkClosed(C)] * goes, e.Durable(14))
    told = stage.tell(stage.acknowledged(B, 14))
    assert (told == [d.Agree(14)], stage.agreement.agreed) == ((True, 14) if goes else (False, 12))
    beat(stage, 3, B)
    assert stage.agreement.agreed == 14


def test_a_new_leader_takes_nobody_in_that_has_less_than_itself() -> None:
    """Rule R4: what earlier leaders had agreed it does not know, but that it is below the end of its journal."""
    stage = Stage(insync=InSync(1, frozenset({A, B}), 0, revision=3)).lead()
    stage.tell(e.LinkOpened(C, 4), stage.acknowledged(C, 9))
    assert not stage.sent
    stage.tell(stage.acknowledged(C, 10))
    assert stage.sent.put(INSYNC).nodes == {A, B, C}


def test_a_member_that_does_not_join_a_new_leader_is_shrunk_away_after_join_patience() -> None:
    """Until then publishers wait for it."""
    stage = Stage().lead(B)
    assert stage.agreement.agreed == 0
    beat(stage, 0.5, B)
    assert not stage.sent
    beat(stage, 0.5, B)
    assert stage.sent.put(INSYNC).nodes == {A, B}
    assert stage.answer() == [d.Agree(10)]


def test_without_two_of_three_nothing_is_confirmed_and_publishers_are_held() -> None:
    """CL03, rule R5: the set is kept; one node back, and it goes on."""
    stage = Stage().lead(B, C)
    stage.tell(e.LinkClosed(B), e.FollowerRefused(B), e.Durable(12))
    stage.doubt()
    assert stage.tell(e.LinkClosed(C), e.FollowerRefused(C)) == [d.Hold(HELD)]
    assert stage.state is State.HELD
    assert stage.read() != [] and stage.sent.put(INSYNC).nodes == {A, B, C}, "not below two"
    stage.answer()
    assert stage.of(d.Agree) == [] and stage.etcd.insync.nodes == {A, B, C}
    decided = stage.join(B, 12)
    assert d.Resume() in decided and stage.state is State.LEADING
    assert stage.sent.put(INSYNC).nodes == {A, B}
    assert stage.answer() == [d.Agree(12)]


def test_a_cluster_that_just_began_holds_publishers_until_a_second_node_is_in_sync() -> None:
    """The set is the node that began."""
    stage = Stage(starts=(), insync=InSync(0, frozenset({A}), 0, revision=3)).lead()
    assert stage.of(d.Hold) == [d.Hold(HELD)] and stage.agreement.agreed == 10
    stage.join(B)
    assert stage.state is State.HELD and stage.sent.put(INSYNC).nodes == {A, B}
    assert stage.answer() == [d.Resume()]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_change_in_doubt_waits_for_the_nodes_of_both_sets(is_done: bool) -> None:
    """Rule R3: no answer is no answer. The keys are read back, and while nothing changed, the set is written anew."""
    stage = Stage().lead(B, C)
    stage.tell(e.LinkClosed(C), e.FollowerRefused(C), e.Durable(12), stage.acknowledged(B, 12))
    assert d.ReadKeys() in stage.doubt(is_done=is_done)
    assert stage.tell(stage.acknowledged(B, 13)) == [] and stage.agreement.agreed == 10
    stage.read()
    if not is_done:
        assert stage.of(d.Agree) == [], "it may still be done"
        assert stage.answer() == [d.Agree(12)]
    assert stage.agreement.agreed == 12 and stage.etcd.insync.nodes == {A, B}


def test_a_leader_asks_what_became_of_a_change_until_etcd_answers() -> None:
    """Though no other node is there, whose beacons would remind it: else publishers would be held for ever."""
    stage = Stage().lead(B, C)
    stage.tell(e.LinkClosed(B), e.LinkClosed(C), e.FollowerRefused(B))
    stage.doubt()
    stage.tell(e.FollowerRefused(C))
    assert stage.advance(5).count(d.ReadKeys()) == 10


def test_a_change_that_did_not_reach_etcd_is_sent_again_when_etcd_answers() -> None:
    """And not at once, again and again."""
    stage = Stage().lead(B, C)
    stage.tell(e.LinkClosed(C), e.FollowerRefused(C))
    decided = stage.unreachable() + stage.tell(e.FollowerHeard(B))
    assert d.Transact not in map(type, decided) and d.ReadKeys() in decided
    stage.read()
    assert stage.sent.put(INSYNC).nodes == {A, B}
    stage.answer()
    assert stage.etcd.insync.nodes == {A, B} and stage.sent is None


def test_publishers_are_held_while_neither_a_member_nor_etcd_answers() -> None:
    """What they send could not be confirmed: it would only pile up."""
    stage = Stage().lead(B, C)
    stage.tell(e.LinkClosed(C), e.FollowerRefused(C))
    stage.doubt()
    assert stage.state is State.HELD
    assert stage.of(d.Hold) == [d.Hold("replication: a node in sync does not answer, and neither does etcd")]


def test_a_node_whose_entry_is_in_doubt_is_waited_for_even_when_it_is_gone() -> None:
    """The transaction may be done an hour later: so the set is written without it before it is forgotten."""
    stage = Stage().lead(B)
    stage.lose(C)
    stage.join(C)
    grow = stage.sent
    stage.doubt()
    stage.tell(e.LinkClosed(C), e.FollowerRefused(C), e.Durable(12), stage.acknowledged(B, 12))
    assert stage.agreement.agreed == 10
    stage.read()
    assert stage.sent.put(INSYNC).nodes == {A, B} and stage.agreement.agreed == 10
    assert stage.answer() == [d.Agree(12)]
    assert not grow.fits({INSYNC: stage.etcd.insync.revision, LEADER: stage.etcd.leader.revision})


def test_a_change_whose_end_was_seen_before_its_answer_was_missed_is_over() -> None:
    """Else no other change would ever be sent."""
    stage = Stage().lead(B, C)
    stage.tell(e.LinkClosed(C), e.FollowerRefused(C))
    shrink = stage.sent
    _, stage.etcd = carry_out(stage.etcd, shrink)
    stage.read()
    stage.tell(e.InDoubt(shrink))
    stage.read()
    stage.join(C)
    assert stage.sent.purpose is Purpose.GROW


def test_while_all_members_answer_etcd_is_not_needed() -> None:
    """CL08: it is gone for an hour, and nothing else happens."""
    stage = Stage().lead(B, C)
    stage.is_reached = False
    beat(stage, 3600, B, C)
    assert stage.of(d.Suspend) == stage.of(d.Resign) == stage.of(d.Hold) == []
    stage.tell(e.Durable(12), stage.acknowledged(B, 12), stage.acknowledged(C, 12))
    assert stage.agreement.agreed == 12 and stage.state is State.LEADING


def test_a_leader_without_etcd_whose_member_is_silent_suspends_its_clients() -> None:
    """After `suspend-after`: that member could have let another node lead."""
    stage = Stage().lead(B, C)
    stage.is_reached = False
    beat(stage, 1.5, B, C)
    beat(stage, 2, B)
    assert stage.of(d.Suspend) == [d.Suspend()] and stage.state is State.SUSPENDED
    assert stage.of(d.ReadKeys) != []


def test_a_suspended_leader_goes_on_when_etcd_says_that_it_leads() -> None:
    """Its own key, read from etcd; or the member is back."""
    stage = Stage().lead(B, C)
    stage.is_reached = False
    beat(stage, 3, B)
    stage.unreachable()
    assert stage.state is State.SUSPENDED
    stage.read()
    assert stage.state in (State.LEADING, State.HELD)


def test_a_suspended_leader_goes_on_when_the_member_is_back() -> None:
    """It has the link still, so it follows."""
    stage = Stage().lead(B, C)
    stage.is_reached = False
    beat(stage, 3, B)
    stage.unreachable()
    stage.tell(e.FollowerHeard(C))
    assert stage.state is State.LEADING and d.Resume() in stage.decided


def test_a_suspended_leader_resigns_when_its_lease_is_over_for_its_length() -> None:
    """By its own clock: 6 s of lease, and 6 s more."""
    stage = Stage().lead(B, C)
    stage.is_reached = False
    beat(stage, 2.5, B)
    stage.unreachable()
    stage.tell(e.LeaseRenewed(stage.now_ns - SECOND))
    beat(stage, 10.5, B)
    assert stage.state is State.SUSPENDED
    beat(stage, 1, B)
    assert stage.state is State.RESIGNING and len(stage.of(d.Resign)) == 1


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"leader": leader(1, 3, 9), "insync": InSync(3, frozenset({A, B}), 0, revision=9)}, "b leads term 3"),
        ({"leader": None}, "its lease is over"),
        ({"leader": None, "insync": InSync(9, frozenset({B}), 0, revision=9)}, "term 9 has begun"),
    ],
)
def test_a_leader_that_reads_that_it_leads_no_more_resigns(changes: dict, why: str) -> None:
    """CL04: the first that a node which slept hears from etcd."""
    stage = Stage().lead(B, C)
    assert stage.read(**changes) == [d.Resign(why), d.EndLease()]
    assert stage.state is State.RESIGNING
    assert stage.tell(e.Durable(12), stage.acknowledged(B, 12), stage.acknowledged(C, 12)) == [], "nothing is agreed"


def test_a_leader_that_slept_agrees_to_nothing_that_it_does_not_have_from_all() -> None:
    """CL04: neither time nor etcd is asked: one of the set leads now, and acknowledges nothing more."""
    stage = Stage().lead(B, C)
    stage.now_ns += 20 * SECOND
    stage.tell(e.Durable(12), stage.acknowledged(B, 12))
    assert stage.of(d.Agree) == []


def test_a_leader_that_slept_serves_nobody_until_etcd_says_that_it_leads() -> None:
    """CL04: the beacons and acknowledgements that lay in its sockets meanwhile prove nothing."""
    stage = Stage().lead(B, C)
    stage.now_ns += 5 * SECOND
    stage.tell(e.FollowerHeard(B), e.FollowerHeard(C), stage.acknowledged(B, 10), stage.acknowledged(C, 10), e.Tick())
    assert stage.of(d.Suspend) == [d.Suspend()] and stage.state is State.SUSPENDED
    assert d.ReadKeys() in stage.decided
    stage.read()
    assert stage.state is State.LEADING


def test_a_leader_that_slept_asks_etcd_until_it_answers() -> None:
    """Though all members answer again: what they say may have been in its sockets."""
    stage = Stage().lead(B, C)
    stage.is_reached = False
    stage.now_ns += 5 * SECOND
    stage.tell(e.FollowerHeard(B), e.FollowerHeard(C))
    assert beat(stage, 3, B, C).count(d.ReadKeys()) >= 5 and stage.state is State.SUSPENDED


def test_a_leader_that_was_busy_for_a_moment_serves_on() -> None:
    """Less than half of `suspend-after` late: nobody can lead in so short a time."""
    stage = Stage().lead(B, C)
    stage.is_reached = False
    beat(stage, 1, B, C)
    stage.now_ns += SECOND
    stage.tell(e.FollowerHeard(B), e.FollowerHeard(C), e.Tick())
    assert stage.of(d.Suspend) == []


def test_a_node_that_slept_while_it_took_over_serves_nobody_before_etcd_says_that_it_leads() -> None:
    """The lease that it won may be over."""
    stage = Stage()
    stage.read()
    stage.answer()
    stage.now_ns += 5 * SECOND
    stage.tell(e.TookOver(stage.terms.with_term(2, 10)))
    assert stage.state is State.SUSPENDED and stage.of(d.Resume) == []
    stage.read()
    assert stage.state in (State.LEADING, State.HELD)


@pytest.mark.parametrize("answers", [True, False])
def test_a_takeover_that_took_longer_than_two_leases_asks_etcd_before_it_resigns(*, answers: bool) -> None:
    """On a full machine the next node would take as long: candidate after candidate would resign."""
    stage = Stage()
    stage.read()
    stage.answer()
    stage.now_ns += 13 * SECOND
    stage.tell(e.TookOver(stage.terms.with_term(2, 10)), e.Tick())
    assert stage.state is State.SUSPENDED and d.ReadKeys() in stage.decided
    if answers:
        stage.read()
        assert stage.state in (State.LEADING, State.HELD)
    else:
        stage.advance(11)
        assert stage.state is State.SUSPENDED
        stage.advance(2)
        assert stage.state is State.RESIGNING


@pytest.mark.parametrize("ending", [e.TookOver(TermTable(A, ((1, 1), (2, 10))), 10), e.TakeoverFailed("no memory")])
def test_a_takeover_that_ends_when_the_disk_hangs_changes_nothing(ending: e.Event) -> None:
    """The node has resigned already."""
    stage = Stage()
    stage.read()
    stage.answer()
    assert stage.tell(e.DiskStalled()) == [d.Resign("the disk hangs"), d.EndLease()]
    assert stage.tell(ending) == [] and stage.state is State.RESIGNING


def test_a_node_that_takes_over_hands_nothing_over() -> None:
    """Its broker does not run yet: nothing could be read to its end."""
    stage = Stage(nodes=registered(0, 1, 2))
    stage.read()
    stage.answer()
    assert stage.tell(e.HandOver(B)) == [d.HandoverRefused("this node is just taking over")]


def test_the_data_of_etcd_are_deleted_and_the_leader_goes_on() -> None:
    """CL09: nobody else can lead. It does not change the set meanwhile."""
    stage = Stage().lead(B, C)
    stage.now_ns += SECOND
    stage.etcd = type(stage.etcd)(1)
    assert stage.read() == [d.Note(ETCD_ROLLED_BACK, is_grave=True), d.ReadKeys()]
    assert stage.agreement.leadership.why == ETCD_ROLLED_BACK and d.Note not in map(type, stage.read())
    stage.tell(e.Durable(12), stage.acknowledged(B, 12), stage.acknowledged(C, 12))
    assert stage.agreement.agreed == 12
    stage.tell(e.LinkClosed(C), e.FollowerRefused(C))
    assert stage.sent is None and stage.state is State.LEADING


def test_the_keys_are_deleted_from_an_etcd_that_others_use() -> None:
    """Its revision rises, and the keys are gone all the same: an operator is told, until the cluster is recovered."""
    stage = Stage().lead(B, C)
    stage.now_ns += SECOND
    nothing = {"journal": None, "insync": None, "leader": None, "nodes": ()}
    assert d.Note(ETCD_ROLLED_BACK, is_grave=True) in stage.read(**nothing)
    assert stage.state is State.LEADING and stage.agreement.context.is_etcd_rolled_back
    term = stage.agreement.leadership.key.term
    stage.read(journal=JOURNAL_ID, insync=InSync(term + 1, frozenset({A}), 0, revision=9))
    assert stage.state is State.RESIGNING and not stage.agreement.context.is_etcd_rolled_back


def test_a_leader_that_cannot_reach_a_member_which_reaches_another_resigns() -> None:
    """CL07, rule R5: those two can serve. The wait doubles, so that nobody plays ping-pong."""
    stage = Stage(insync=InSync(1, frozenset({A, B}), 0, revision=3)).lead(B)
    stage.tell(e.LinkClosed(B))
    stage.read(nodes=(*registered(0, 2), *registered(1, reaches=frozenset({"c"}))))
    beat(stage, 1)
    assert stage.state is State.HELD
    beat(stage, 2)
    assert stage.state is State.RESIGNING
    assert stage.of(d.Resign) == [d.Resign("b does not answer this node, and reaches c")]
    assert stage.agreement.leadership.resign_wait_ns == 4 * SECOND


def test_the_wait_of_a_leader_that_resigned_for_others_is_kept() -> None:
    """When it leads again, and they still do; until its members follow it."""
    stage = Stage(insync=InSync(1, frozenset({A, B}), 0, revision=3)).lead(B)
    stage.tell(e.LinkClosed(B))
    reaches = (*registered(0, 2), *registered(1, reaches=frozenset({"c"})))
    stage.read(nodes=reaches)
    beat(stage, 3)
    assert stage.state is State.RESIGNING
    stage.tell(e.Reopened(stage.terms, 10))
    stage.read(leader=None)
    beat(stage, 7)
    stage.answer()
    assert stage.agreement.leadership.resign_wait_ns == 4 * SECOND

    stage.tell(e.TookOver(stage.terms.with_term(stage.etcd.leader.term, 10), 10))
    stage.join(B)
    assert stage.state is State.LEADING and stage.agreement.leadership.resign_wait_ns == 2 * SECOND


def test_a_leader_that_served_again_waits_its_whole_time_before_it_resigns_for_others() -> None:
    """A network that fails for a second now and then moves no clients."""
    stage = Stage(insync=InSync(1, frozenset({A, B}), 0, revision=3)).lead(B)
    reaches = (*registered(0, 2), *registered(1, reaches=frozenset({"c"})))
    for _ in range(3):
        stage.tell(e.LinkClosed(B))
        stage.read(nodes=reaches)
        beat(stage, 2.5)
        assert stage.state is State.HELD
        stage.join(B)
        assert stage.state is State.LEADING


def test_a_leader_does_not_resign_for_a_node_that_is_drained() -> None:
    """That one does not lead."""
    stage = Stage(insync=InSync(1, frozenset({A, B}), 0, revision=3)).lead(B)
    stage.tell(e.LinkClosed(B))
    stage.read(nodes=(*registered(0, 2), *registered(1, reaches=frozenset({"c"}), is_drained=True)))
    beat(stage, 30)
    assert stage.state is State.HELD


def test_a_leader_whose_members_are_killed_at_once_holds_publishers_and_goes_on() -> None:
    """CL03, rule R5: their keys say that they reach each other until their leases are over. Nobody could lead."""
    stage = Stage().lead(B, C)
    stage.read(nodes=tuple(registered(one, reaches=frozenset({"a", "b", "c"}) - {name_of(one)})[0] for one in range(3)))
    stage.tell(e.LinkClosed(B), e.LinkClosed(C), e.FollowerRefused(B), e.FollowerRefused(C))
    assert stage.state is State.HELD and stage.agreement.leadership.why == HELD
    beat(stage, 6)
    stage.read(nodes=registered(0))
    beat(stage, 60)
    assert stage.state is State.HELD and stage.agreement.leadership.resign_wait_ns == 2 * SECOND
    stage.join(B)
    assert stage.state is State.LEADING


def test_members_that_live_and_do_not_follow_are_believed_when_dead_ones_would_be_forgotten() -> None:
    """They reach this node, but octets of its journal do not reach them: two leases after their links were lost."""
    stage = Stage().lead(B, C)
    stage.read(nodes=tuple(registered(one, reaches=frozenset({"a", "b", "c"}) - {name_of(one)})[0] for one in range(3)))
    stage.tell(e.LinkClosed(B), e.LinkClosed(C))
    beat(stage, 12)
    assert stage.state is State.HELD
    beat(stage, 3.5)
    assert stage.state is State.RESIGNING


def test_a_member_that_was_silent_stays_overdue_when_its_link_is_closed() -> None:
    """Its silence was the reason: publishers that are blocked would else be let go on for `join-patience`."""
    stage = Stage(insync=InSync(1, frozenset({A, B}), 0, revision=3)).lead(B)
    beat(stage, 2.5)
    assert stage.state is State.HELD
    stage.tell(e.LinkClosed(B))
    assert stage.state is State.HELD and stage.of(d.Resume) == []


def test_a_leader_says_which_nodes_it_waits_for() -> None:
    """A new leader serves at once, for `join-patience`; "enough nodes are in sync" it says when they are there."""
    stage = Stage(nodes=registered(0, 1)).lead()
    assert stage.state is State.LEADING
    assert stage.agreement.leadership.why == "waits for nodes that were in sync: b, 1 more"
    stage.join(B)
    stage.join(C)
    assert stage.agreement.leadership.why == "enough nodes are in sync"


def test_a_leader_that_holds_because_nobody_is_there_does_not_resign() -> None:
    """CL03: nobody could do better."""
    stage = Stage(insync=InSync(1, frozenset({A, B}), 0, revision=3)).lead(B)
    stage.tell(e.LinkClosed(B))
    for _ in range(60):
        stage.advance(0.5)
        stage.read()
    assert stage.state is State.HELD


def test_a_leader_whose_disk_hangs_resigns_and_ends_its_lease() -> None:
    """CL06: else it would lead for ever."""
    stage = Stage().lead(B, C)
    assert stage.tell(e.DiskStalled()) == [d.Resign("the disk hangs"), d.EndLease()]
    stage.tell(e.Reopened(stage.terms, 10))
    stage.read(leader=None)
    stage.advance(30)
    assert stage.state is State.IN_SYNC and stage.agreement.obstacle == "its disk hangs"
    stage.tell(e.DiskStalled("data directory d: Permission denied"))
    assert stage.agreement.obstacle == "its data directory d: Permission denied"
    stage.tell(e.DiskRecovered())
    assert stage.state is State.CAMPAIGNING


def test_a_leader_whose_disk_is_full_resigns_if_a_node_in_sync_has_room() -> None:
    """CL21: else another one could take no more than this one."""
    stage = Stage().lead(B)
    assert stage.tell(e.DiskFull(frozenset())) == stage.tell(e.DiskFull(frozenset({bytes(16)}))) == []
    assert stage.tell(e.DiskFull(frozenset({B}))) == [
        d.Resign("its disk is full, and another node that can lead has room"),
        d.EndLease(),
    ]
    assert stage.tell(e.DiskFull(frozenset({B})), e.DiskFailed()) == []


def test_a_leader_that_has_just_resigned_agrees_to_nothing() -> None:
    """Although nothing was due or under way: acknowledgements that were under way come after its resignation."""
    stage = Stage().lead(B, C)
    stage.tell(e.Durable(12), stage.acknowledged(B, 12), stage.acknowledged(C, 11))
    assert stage.agreement.is_calm
    stage.tell(e.DiskFailed())
    assert stage.state is State.RESIGNING and not stage.agreement.is_calm
    assert stage.tell(stage.acknowledged(C, 12)) == [] and stage.agreement.next_ns() is None


@pytest.mark.parametrize("obstacle", [{"is_drained": True}, {"level": -1}], ids=["drained", "older"])
def test_a_leader_with_a_full_disk_does_not_resign_for_a_node_that_cannot_lead(obstacle: dict[str, Any]) -> None:
    """It would lead again itself, after all its clients were thrown off."""
    stage = Stage().lead(B)
    stage.read(nodes=(*registered(0), *registered(1, **obstacle)))
    assert stage.tell(e.DiskFull(frozenset({B}))) == []
    stage.read(nodes=registered(0, 1))
    assert d.EndLease() in stage.tell(e.DiskFull(frozenset({B})))


def test_a_leader_with_a_full_disk_does_not_resign_for_a_silent_node() -> None:
    """It is in the set for as long as etcd has not taken it out."""
    stage = Stage().lead(B, C)
    stage.tell(e.LinkClosed(C), e.FollowerRefused(C))
    assert C in stage.etcd.insync.nodes
    assert stage.tell(e.DiskFull(frozenset({C}))) == []


def test_a_leader_whose_journal_has_failed_resigns() -> None:
    """It takes nothing any more, until it is opened anew."""
    assert Stage().lead(B, C).tell(e.DiskFailed()) == [d.Resign("its journal has failed"), d.EndLease()]


DAMAGED = e.JournalDamaged(Damaged("00000000000000000001.log", 500, "a block with a wrong CRC"))


def test_a_leader_whose_journal_has_rotted_resigns() -> None:
    """CL20: another node has it whole, and this one is copied anew."""
    why = f"its journal is damaged, and another node can lead: {DAMAGED.damage}"
    assert Stage().lead(B, C).tell(DAMAGED) == [d.Resign(why), d.EndLease()]


def test_a_leader_whose_journal_has_rotted_goes_on_while_no_other_node_can_lead() -> None:
    """It alone may have what was confirmed last."""
    stage = Stage(nodes=registered(0, 1, is_drained=True)).lead(B)
    beat(stage, 2, B)
    assert stage.sent.put(INSYNC).nodes == {A, B}
    stage.answer()
    assert stage.tell(DAMAGED) == [] and stage.state is State.LEADING


def test_what_is_agreed_is_told_to_etcd_every_five_seconds() -> None:
    """Rule R10 needs it."""
    stage = Stage().lead(B, C)
    beat(stage, 4.5, B, C)
    assert not stage.sent
    beat(stage, 0.5, B, C)
    assert stage.sent.put(AGREED).lsn == 10
    stage.answer()
    beat(stage, 60, B, C)
    assert stage.sent is None, "nothing new"


def test_what_etcd_was_told_to_be_agreed_is_never_lowered_by_a_transaction_that_comes_late() -> None:
    """Rule R10: of two that were sent over one revision of the key, one at most is done."""
    stage = Stage().lead(B, C)
    beat(stage, 5, B, C)
    late = stage.sent
    stage.doubt()
    stage.tell(e.Durable(20), stage.acknowledged(B, 20), stage.acknowledged(C, 20))
    beat(stage, 5, B, C)
    stage.answer()
    assert stage.etcd.agreed.lsn == 20 and carry_out(stage.etcd, late) == (False, stage.etcd)


def test_what_was_agreed_when_the_set_changed_is_not_lowered_by_a_leader_that_knows_less() -> None:
    """Rule R10: a new one knows of nothing before all members have joined."""
    stage = Stage(insync=InSync(1, frozenset({A, B, C}), 9, revision=3)).lead()
    stage.tell(e.LinkOpened(B, 10))
    beat(stage, 1, B)
    assert stage.agreement.agreed == 0
    assert stage.sent.put(INSYNC).nodes == {A, B} and stage.sent.put(INSYNC).agreed == 9


def test_a_leader_that_stops_without_a_successor_waits_for_its_own_disk() -> None:
    """It leads again, or the next leader is cut to what it has."""
    stage = Stage(insync=InSync(1, frozenset({A}), 0, revision=3)).lead()
    assert stage.tell(e.HandOver(is_leaving=True)) == [d.Quiesce(1)]
    stage.tell(e.Quiesced(1, 12))
    assert not stage.sent
    stage.tell(e.Durable(12))
    assert stage.sent.purpose is Purpose.HAND_OVER


def test_what_is_agreed_is_told_by_the_leader_alone() -> None:
    """Rule R10: of one that was replaced meanwhile, nothing is written, nor is a node forgotten."""
    stage = Stage().lead(B, C)
    key = stage.etcd.leader
    beat(stage, 5, B, C)
    stage.change(leader=leader(1, 3, 9))
    for late in (stage.sent, forget(key, "c")):
        assert carry_out(stage.etcd, late) == (False, stage.etcd)


def test_a_member_whose_disk_was_put_back_does_not_lower_what_etcd_was_told() -> None:
    """Rule R10: else it could lead when it has half of what is agreed."""
    stage = Stage(agreed=AgreedKey(1, 10), insync=InSync(1, frozenset({A, B}), 0, revision=3)).lead()
    beat(stage, 4.5)
    stage.join(B, 5)
    beat(stage, 1, B)
    assert stage.agreement.agreed == 5 and not stage.sent
    stage.tell(e.Durable(12), stage.acknowledged(B, 12))
    beat(stage, 5, B)
    assert stage.sent.put(AGREED).lsn == 12


def handed_over(to: bytes | None = None, *, is_leaving: bool = False) -> Stage:
    """A leader that has stopped to read: its journal ends before 12."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B, C)
    assert stage.tell(e.HandOver(to, is_leaving)) == [d.Quiesce(1)]
    stage.tell(e.Quiesced(1, 12), e.Durable(12))
    return stage


def test_a_handover_waits_until_the_other_node_has_everything() -> None:
    """CL17: and until everything is agreed, so that all confirms leave."""
    stage = handed_over(B)
    stage.tell(stage.acknowledged(B, 12))
    assert not stage.sent
    stage.tell(stage.acknowledged(C, 12))
    assert stage.sent.purpose is Purpose.HAND_OVER and stage.sent.put(PREFERRED) == B
    assert stage.answer() == [d.Resign("handed over to b"), d.EndLease()]
    assert stage.etcd.leader is None


def test_a_handover_that_takes_too_long_is_given_up() -> None:
    """An operator asked for it: the leader goes on."""
    stage = handed_over(B)
    stage.tell(stage.acknowledged(C, 12))
    beat(stage, 2, B, C)
    assert d.Resume() in stage.decided and stage.state is State.LEADING
    assert d.HandoverRefused("the other node did not acknowledge everything in time") in stage.decided
    assert stage.sent is None or stage.sent.purpose is Purpose.SHRINK


def test_the_end_of_an_attempt_that_was_given_up_does_not_count_for_the_next_one() -> None:
    """Its broker has served meanwhile: the successor would lack what was written since."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B, C)
    assert stage.tell(e.HandOver(B)) == [d.Quiesce(1)]
    beat(stage, 2, B, C)
    assert stage.state is State.LEADING
    assert stage.tell(e.HandOver(B)) == [d.Quiesce(2)]
    stage.tell(e.Quiesced(1, 10))
    assert stage.sent is None
    stage.tell(e.Quiesced(2, 10))
    assert stage.sent is not None and stage.sent.purpose is Purpose.HAND_OVER


def test_a_handover_goes_on_though_a_third_node_falls_silent() -> None:
    """The set is not changed meanwhile: the lead goes to a node that is there."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B, C)
    beat(stage, 1.5, B)
    stage.tell(e.HandOver(B))
    beat(stage, 1, B)
    stage.tell(e.Quiesced(1, 10))
    assert stage.sent is not None and stage.sent.purpose is Purpose.HAND_OVER


def test_a_leader_that_holds_publishers_serves_the_others_when_its_handover_fails() -> None:
    """All clients were stopped for it."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B, C)
    stage.tell(e.LinkClosed(C), e.FollowerRefused(C))
    stage.doubt()
    assert stage.state is State.HELD
    assert d.Quiesce(1) in stage.tell(e.HandOver(B), e.Quiesced(1, 10))
    stage.is_reached = False
    decided = beat(stage, 2, B)
    assert d.HandoverRefused("the other node did not acknowledge everything in time") in decided
    assert d.Hold("replication: a node in sync does not answer, and neither does etcd") in decided


def test_a_leader_whose_handover_fails_serves_nobody_if_another_may_lead() -> None:
    """Its members and etcd have been silent meanwhile: it is suspended at once, not at the next event."""
    stage = Stage().lead(B, C)
    stage.now_ns += SECOND
    stage.tell(e.HandOver(B), e.Quiesced(1, 12))
    stage.now_ns += 2 * SECOND
    stage.tell(e.Tick())
    assert [type(one) for one in stage.decided if isinstance(one, (d.Resume, d.Suspend))] == [d.Resume, d.Suspend]
    assert stage.state is State.SUSPENDED


def test_a_node_that_leaves_hands_over_or_resigns() -> None:
    """SIGTERM does not wait for others."""
    stage = handed_over(is_leaving=True)
    stage.advance(2)
    assert stage.state is State.RESIGNING and d.EndLease() in stage.decided


def test_a_node_alone_leaves_without_a_successor() -> None:
    """It deletes its key all the same, when its own disk has everything."""
    stage = Stage(starts=(), insync=InSync(0, frozenset({A}), 0, revision=3)).lead()
    assert d.Quiesce(1) in stage.tell(e.HandOver(is_leaving=True))
    stage.tell(e.Quiesced(1, 10))
    assert stage.sent.puts == () and stage.sent.deletes == (LEADER,)


@pytest.mark.parametrize(
    "to, why",
    [
        (None, "node b is drained; node c does not answer"),
        (B, "node b is drained"),
        (C, "node c does not answer"),
    ],
)
def test_nobody_hands_over_to_a_node_that_cannot_lead(to: bytes | None, why: str) -> None:
    """B is drained, C silent."""
    stage = Stage(nodes=(*registered(0, 2), *registered(1, is_drained=True))).lead(B)
    beat(stage, 1, B)
    assert stage.tell(e.HandOver(to)) == [d.HandoverRefused(why)]


def test_a_leader_that_is_drained_hands_over_and_follows() -> None:
    """It does not campaign until it is revived."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B, C)
    stage.tell(e.Drain(), e.Quiesced(1, 10))
    stage.answer()
    stage.tell(e.Reopened(stage.terms, 10))
    stage.read()
    assert stage.state is State.DRAINED
    stage.advance(60)
    assert stage.state is State.DRAINED and stage.sent is None
    stage.tell(e.Revive())
    assert stage.state is State.CAMPAIGNING


def test_a_leader_that_hears_first_that_its_key_is_deleted_is_drained_all_the_same() -> None:
    """The watch may be quicker than the answer to the transaction."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B, C)
    stage.tell(e.Drain(), e.Quiesced(1, 10))
    stage.read(leader=None, preferred=B)
    assert stage.of(d.Resign) == [d.Resign("handed over")]
    stage.tell(e.Reopened(stage.terms, 10))
    stage.read()
    assert stage.state is State.DRAINED


def test_a_node_that_is_handed_the_lead_back_campaigns_at_once() -> None:
    """Else a lease length would pass without a leader: so long others campaign first after it resigned."""
    stage = handed_over(B)
    stage.tell(stage.acknowledged(B, 12), stage.acknowledged(C, 12))
    stage.answer()
    stage.tell(e.Reopened(stage.terms, 12))
    stage.read(leader=leader(1, 3, 9), insync=InSync(3, frozenset({A, B, C}), 0, revision=9), preferred=None)
    stage.read(leader=None, preferred=A)
    assert stage.state is State.CAMPAIGNING


def test_a_leader_that_no_node_can_succeed_is_not_drained() -> None:
    """The operator is told so. A flag that stayed would leave the cluster without a leader when this one resigns."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B)
    beat(stage, 1, B)
    stage.tell(e.LinkClosed(B), e.FollowerRefused(B))
    assert stage.tell(e.Drain()) == [d.HandoverRefused("node b does not answer; node c does not answer")]
    stage.join(B)
    stage.tell(e.Drain())
    beat(stage, 2, B)
    assert d.HandoverRefused("the other node did not acknowledge everything in time") in stage.decided
    stage.tell(e.DiskStalled(), e.DiskRecovered(), e.Reopened(stage.terms, 10))
    stage.read(leader=None)
    stage.advance(6)
    assert stage.state is State.CAMPAIGNING


def test_a_node_that_leaves_while_it_hands_over_leaves_in_any_case() -> None:
    """SIGTERM after `handover`; another `handover` meanwhile is refused."""
    stage = handed_over(B)
    assert stage.tell(e.HandOver(C)) == [d.HandoverRefused("this node is handing over already")]
    assert stage.tell(e.HandOver(is_leaving=True)) == []
    stage.advance(2)
    assert stage.state is State.RESIGNING


def test_a_takeover_that_fails_ends_in_a_resignation() -> None:
    """And others campaign before it does so again."""
    stage = Stage()
    stage.read()
    stage.answer()
    assert stage.tell(e.TakeoverFailed("no memory")) == [d.Resign("no memory"), d.EndLease()]
    stage.tell(e.Reopened(stage.terms, 10))
    stage.read(leader=None)
    assert stage.state is State.IN_SYNC
    stage.advance(6)
    assert stage.state is State.CAMPAIGNING


# -- acknowledgements that do not count --------------------------------------------------------------------------------


def test_an_acknowledgement_behind_the_end_of_its_link_counts_for_nothing() -> None:
    """The node may have cut its journal since, for another leader."""
    stage = Stage().lead(B, C)
    stage.tell(e.LinkClosed(C), e.Durable(12), stage.acknowledged(B, 12))
    assert stage.tell(stage.acknowledged(C, 12)) == []


def test_a_follower_that_comes_back_with_less_is_waited_for_again() -> None:
    """Its disk was rolled back: what it had acknowledged is gone."""
    stage = Stage().lead(B, C)
    stage.tell(stage.acknowledged(C, 12), e.LinkClosed(C), e.LinkOpened(C, 5))
    assert stage.tell(e.Durable(12), stage.acknowledged(B, 12)) == []
    assert stage.tell(stage.acknowledged(C, 12)) == [d.Agree(12)]


def test_a_follower_that_comes_back_with_less_leaves_the_set_until_it_has_all() -> None:
    """Rule R10: with a part of what it lost it could lead."""
    stage = Stage().lead(B, C)
    stage.tell(e.Durable(12), stage.acknowledged(B, 12), stage.acknowledged(C, 12), e.LinkClosed(C))
    stage.tell(e.LinkOpened(C, 5), stage.acknowledged(C, 11))
    assert stage.sent.put(INSYNC).nodes == {A, B}
    stage.answer()
    stage.tell(stage.acknowledged(C, 12))
    assert stage.sent.put(INSYNC).nodes == {A, B, C}


def test_an_acknowledgement_of_less_takes_nothing_back() -> None:
    """Confirms do not stall for it."""
    stage = Stage().lead(B, C)
    stage.tell(stage.acknowledged(C, 12), stage.acknowledged(C, 11))
    assert stage.tell(e.Durable(12), stage.acknowledged(B, 12)) == [d.Agree(12)]


def test_a_follower_enters_with_everything_that_is_agreed_and_no_earlier() -> None:
    """Rule R4, under load: it is waited for when it is close behind, and taken in when it has caught up."""
    stage = Stage().lead(B)
    stage.lose(C)
    stage.tell(e.LinkOpened(C, 10))
    has = 10
    for lsn in range(11, 31):
        stage.tell(e.Durable(lsn), stage.acknowledged(B, lsn))
        if stage.sent is None:
            has = max(10, lsn - 2)
            stage.tell(stage.acknowledged(C, has))
        if stage.sent is not None:
            break
        stage.advance(0.05)
    assert stage.sent is not None and stage.sent.put(INSYNC).nodes == {A, B, C}
    assert has >= stage.sent.put(INSYNC).agreed == stage.agreement.agreed


# -- what proves that a node leads -------------------------------------------------------------------------------------


def test_a_watch_proves_nothing_to_a_leader_that_is_cut_off() -> None:
    """It may come late: another node may lead by now."""
    stage = Stage().lead(B, C)
    stage.is_reached = False
    stage.advance(1.9)
    stage.tell(e.Read(stage.etcd, None))
    assert stage.state is not State.SUSPENDED
    stage.advance(0.2)
    assert stage.state is State.SUSPENDED


def test_an_answer_of_etcd_proves_what_was_when_it_was_asked() -> None:
    """It may have lain in a socket: another node may lead since."""
    stage = Stage().lead(B, C)
    stage.is_reached = False
    asked_ns = stage.now_ns
    stage.advance(1.9)
    stage.tell(e.Read(stage.etcd, asked_ns))
    stage.advance(0.2)
    assert stage.state is State.SUSPENDED


def test_a_slow_follower_is_shrunk_away_at_its_deadline_and_not_at_the_next_beacon() -> None:
    """Confirms stall for `ack-deadline`, whatever else happens meanwhile."""
    stage = Stage().lead(B, C)
    stage.advance(0.25)
    beat(stage, 0.5, B, C)
    stage.tell(e.Durable(12), stage.acknowledged(B, 12))
    stage.advance(0.25)
    beat(stage, 1.5, B, C)
    stage.tell(stage.acknowledged(B, 12))
    assert stage.sent is None and stage.agreement.next_ns() <= stage.now_ns + SECOND // 4
    stage.advance(0.25)
    assert stage.sent is not None and stage.sent.put(INSYNC).nodes == {A, B}


def test_a_leader_whose_etcd_was_put_back_waits_for_all_that_it_took_in_and_writes_nothing() -> None:
    """A backup of etcd has an older set. An operator is to see what it has; nobody else can lead."""
    stage = Stage(insync=InSync(1, frozenset({A, B}), 0, revision=3)).lead(B)
    before = stage.etcd
    stage.tell(e.LinkOpened(C, 10), stage.acknowledged(C, 10))
    stage.answer()
    assert stage.etcd.insync.nodes == {A, B, C}
    stage.now_ns += SECOND
    stage.etcd = before
    stage.tell(e.FollowerHeard(B), e.LinkClosed(C), e.Read(before, stage.now_ns))
    assert d.Agree(12) not in stage.tell(e.Durable(12), stage.acknowledged(B, 12))
    stage.tell(e.LinkOpened(C, 10))
    assert d.Agree(12) in stage.tell(stage.acknowledged(C, 12))
    beat(stage, 6, B, C)
    assert stage.sent is None


def test_a_leader_goes_on_though_etcd_was_put_back_to_a_time_without_a_leader() -> None:
    """Nobody else can lead: the nodes see that its revision fell."""
    stage = Stage().lead(B, C)
    stage.now_ns += SECOND
    stage.tell(e.Read(replace(stage.etcd, revision=2, leader=None), stage.now_ns))
    assert stage.state is State.LEADING


def test_a_leader_without_its_key_in_etcd_is_suspended_when_a_member_is_silent() -> None:
    """etcd, which has lost its data, answers each question and never says that this node leads: an operator may have
    chosen another one, which the silent member follows.
    """
    stage = Stage().lead(B, C)
    stage.now_ns += SECOND
    stage.etcd = View(2, insync=replace(stage.etcd.insync, revision=99))
    stage.tell(e.FollowerHeard(B), e.FollowerHeard(C), e.Read(stage.etcd, stage.now_ns))
    assert stage.state is State.LEADING
    assert beat(stage, 3, B).count(d.ReadKeys()) > 1
    assert stage.state is State.SUSPENDED


def test_a_leader_whose_key_is_in_a_backup_of_etcd_changes_nothing_there() -> None:
    """Its revisions are given again to other changes: a guard of them would prove nothing."""
    stage = Stage().lead(B, C)
    backup = stage.etcd
    beat(stage, 1, B, C)
    stage.read(agreed=AgreedKey(2, 10, revision=stage.etcd.revision + 1))
    beat(stage, 1, B, C)
    stage.etcd = backup
    stage.tell(e.Read(backup, stage.now_ns), e.LinkClosed(C), e.FollowerRefused(C))
    beat(stage, 3, B)
    assert stage.sent is None and stage.agreement.leadership is not None
    assert d.Agree(12) not in stage.tell(e.Durable(12), stage.acknowledged(B, 12))


# -- transactions that arrive late -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["not done", "in doubt"])
def test_what_becomes_of_a_question_of_a_leadership_that_is_over_says_nothing_of_a_campaign(ending: str) -> None:
    """Rule R6: a candidate that took its campaign for lost would acknowledge again, and might win."""
    stage = Stage().lead(B, C)
    stage.tell(e.LinkClosed(C), e.FollowerRefused(C))
    change = stage.sent
    stage.tell(e.DiskFailed())
    stage.tell(e.Reopened(stage.terms, 10))
    stage.read(leader=None)
    beat(stage, 7)
    campaign = stage.sent
    assert stage.state is State.CAMPAIGNING and campaign not in (None, change)
    assert stage.tell(e.Answered(change, False) if ending == "not done" else e.InDoubt(change)) == []
    assert stage.state is State.CAMPAIGNING and stage.sent is campaign


def test_what_is_agreed_is_not_told_while_a_change_of_the_set_is_under_way() -> None:
    """Its answer would be taken for that of another question, and the set stay in doubt."""
    stage = Stage().lead(B, C)
    stage.tell(e.LinkClosed(C), e.FollowerRefused(C))
    change = stage.sent
    stage.tell(e.Durable(12), stage.acknowledged(B, 12), stage.acknowledged(C, 12))
    for _ in range(12):
        stage.advance(0.5)
        stage.tell(e.FollowerHeard(B))
    assert stage.sent is change


def test_a_change_of_a_leader_whose_lease_is_over_is_not_done() -> None:
    """The next one decides who is in the set."""
    stage = Stage().lead(B, C)
    stage.tell(e.LinkClosed(C), e.FollowerRefused(C))
    sent = stage.sent
    assert sent is not None and sent.purpose is Purpose.SHRINK
    stage.change(leader=None)
    assert carry_out(stage.etcd, sent)[0] is False


def test_a_handover_that_arrives_late_leaves_the_next_leader_alone() -> None:
    """Its clients are not thrown off."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B, C)
    stage.tell(e.HandOver(B), e.Quiesced(1, 10))
    sent = stage.sent
    assert sent is not None and sent.purpose is Purpose.HAND_OVER
    stage.change(leader=leader(2, 3, stage.etcd.revision + 1))
    assert carry_out(stage.etcd, sent)[0] is False


def test_a_handover_that_does_not_reach_etcd_says_what_is_wrong_with_it() -> None:
    """And the leader leads on."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B, C)
    stage.tell(e.HandOver(B), e.Quiesced(1, 10))
    assert d.HandoverRefused("http://h:2379: Connection refused") in stage.unreachable(
        "http://h:2379: Connection refused"
    )
    assert stage.state is State.LEADING


def test_the_level_of_the_journal_is_raised_in_etcd_first() -> None:
    """Records that older nodes cannot read may be written when no older node can take the lead any more."""
    stage = Stage(insync=InSync(1, frozenset({A, B}), 0, level=1, revision=3))
    stage.agreement.context.node = replace(stage.agreement.context.node, level=2)
    stage.lead(B)
    assert stage.agreement.leadership.members.insync.level == 1, "whoever leads, the level stays"
    assert stage.tell(e.RaiseLevel(2)) == [d.Transact(stage.sent)]
    assert stage.sent.put("insync").level == 2 and stage.sent.put("insync").nodes == {A, B}
    assert d.LevelRaised(2) in stage.answer() and stage.sent is None
    assert stage.tell(e.RaiseLevel(1)) == [], "it never falls"


@pytest.mark.parametrize("is_done", [True, False])
def test_a_level_that_may_have_been_raised_is_raised(is_done: bool) -> None:
    """The answer was lost: the keys are read, and what was not done is sent again."""
    stage = Stage(insync=InSync(1, frozenset({A, B}), 0, level=1, revision=3))
    stage.agreement.context.node = replace(stage.agreement.context.node, level=2)
    stage.lead(B)
    stage.tell(e.RaiseLevel(2))
    stage.doubt(is_done=is_done)
    decided = stage.read()
    decided += stage.answer() if not is_done else []
    assert d.LevelRaised(2) in decided and stage.etcd.insync.level == 2 and stage.sent is None


def test_a_level_waits_for_the_set_and_a_node_that_follows_raises_none() -> None:
    """One transaction at a time; one that leads no more is asked in vain."""
    stage = Stage(insync=InSync(1, frozenset({A, B, C}), 0, level=1, revision=3))
    stage.agreement.context.node = replace(stage.agreement.context.node, level=2)
    stage.lead(B, C)
    stage.tell(e.LinkClosed(C), e.FollowerRefused(C))
    shrink = stage.sent
    assert stage.tell(e.RaiseLevel(2)) == [] and stage.sent is shrink
    stage.answer()
    assert stage.sent.put("insync") == InSync(2, frozenset({A, B}), 10, level=2)
    follower = Stage()
    follower.read(leader=leader(1, 2, 6))
    assert follower.tell(e.RaiseLevel(2)) == [] and follower.sent is None


def test_what_is_in_the_journal_raises_the_level() -> None:
    """The journal of a broker that was alone, or etcd lost its data."""
    stage = Stage(insync=InSync(1, frozenset({A}), 0, level=1, revision=3))
    stage.agreement.context.node = replace(stage.agreement.context.node, level=2)
    stage.read()
    stage.answer()
    stage.tell(e.TookOver(stage.terms.with_term(2, 10), 2))
    assert stage.sent.put("insync").level == 2


def test_a_node_that_stops_is_not_waited_for() -> None:
    """Its key goes before its link; a process may still accept connections for a while when both are gone."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B, C)
    stage.read(nodes=registered(0, 1))
    assert not stage.sent, "its link is open: it acknowledges"
    stage.tell(e.LinkClosed(C))
    assert stage.sent.put(INSYNC).nodes == {A, B}


def test_a_leader_that_handed_over_and_stops_is_not_waited_for() -> None:
    """Its link to the next leader was never open."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B)
    stage.advance(0.1)
    stage.read(nodes=registered(0, 1))
    assert stage.sent.put(INSYNC).nodes == {A, B}


def test_a_node_that_is_back_or_not_yet_there_has_its_time_to_join() -> None:
    """Its key was not seen to go, or it has come again."""
    stage = Stage(nodes=registered(0, 1)).lead(B)
    stage.read(nodes=registered(0, 1))
    assert not stage.sent
    stage.read(nodes=registered(0, 1, 2))
    stage.join(C)
    stage.read(nodes=registered(0, 1))
    stage.read(nodes=registered(0, 1, 2))
    stage.tell(e.LinkClosed(C))
    assert not stage.sent
    stage.advance(1.1)
    assert stage.sent.put(INSYNC).nodes == {A, B}


def test_a_node_that_has_just_begun_is_not_handed_the_lead() -> None:
    """In an upgrade the followers are restarted first: one of them, and then the leader is stopped."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B, C)
    stage.tell(e.LinkClosed(C))
    stage.advance(0.5)
    stage.join(C)
    stage.tell(e.HandOver(is_leaving=True))
    assert stage.agreement.leadership.handover.to == B
    settled = Stage(nodes=registered(0, 1, 2)).lead(B, C)
    beat(settled, 5, B, C)
    settled.tell(e.LinkClosed(C))
    settled.join(C)
    beat(settled, 31, B, C)
    settled.tell(e.Durable(12), settled.acknowledged(C, 12), e.HandOver(is_leaving=True))
    assert settled.agreement.leadership.handover.to == C
