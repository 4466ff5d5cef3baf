"""Whom a node follows, when it campaigns, and when it must not."""

from dataclasses import replace
from typing import Any

import pytest
from agreement_stage import A, B, C, Stage, leader, registered
from agreement_world import JOURNAL_ID, carry_out, named, node_id

from leveret.cluster.agreement import decisions as d
from leveret.cluster.agreement import events as e
from leveret.cluster.agreement.agreement import Agreement
from leveret.cluster.agreement.context import ETCD_ROLLED_BACK
from leveret.cluster.agreement.states import State
from leveret.cluster.agreement.timers import SECOND, Timers
from leveret.cluster.agreement.transactions import bootstrap, recover
from leveret.cluster.agreement.view import INSYNC, JOURNAL, LEADER, AgreedKey, InSync, Leader, NodeKey, Purpose, View
from leveret.journal.format.terms import FIRST_LSN, TermTable

B_LEADS = leader(1, 1, 3)
WITHOUT_A = InSync(1, frozenset({B, C}), 0, revision=3)


def following(**view: object) -> Stage:
    """In sync, and follows B."""
    stage = Stage(**{"leader": B_LEADS, **view})
    stage.read()
    return stage


def test_a_node_registers_and_follows_the_leader_whose_term_it_read() -> None:
    """Rule R6: it acknowledges to nobody else."""
    stage = Stage(leader=B_LEADS)
    assert stage.tell(e.Tick()) == [d.ReadKeys()]
    assert stage.read() == [d.Register(), d.Follow(B_LEADS), d.Acknowledge(True)]
    assert stage.state is State.IN_SYNC


def test_a_node_enters_and_leaves_the_set_as_the_leader_says() -> None:
    """It copies all the same."""
    stage = following(insync=WITHOUT_A)
    assert stage.state is State.FOLLOWING
    assert stage.read(insync=InSync(1, frozenset({A, B}), 0, revision=8)) == []
    assert stage.state is State.IN_SYNC
    assert stage.read(insync=InSync(1, frozenset({B}), 0, revision=9)) == []
    assert stage.state is State.FOLLOWING


def test_a_leader_of_a_lower_term_than_the_journal_has_is_not_followed() -> None:
    """Rule R6: etcd was rolled back."""
    stage = Stage(starts=((1, 1), (4, 6)), leader=B_LEADS)
    decided = stage.read()
    assert not any(isinstance(one, d.Follow) for one in decided)
    assert d.Note("does not follow b in term 1: its journal has 4") in decided


def test_a_candidate_stops_to_acknowledge_before_its_campaign_is_sent() -> None:
    """Rule R6. Decisions are carried out in their order."""
    stage = following()
    decided = stage.read(leader=None)
    assert [type(one) for one in decided] == [d.Acknowledge, d.Follow, d.Transact]
    assert decided[0] == d.Acknowledge(False) and stage.state is State.CAMPAIGNING
    assert dict(stage.sent.guards) == {LEADER: 0, INSYNC: 3} and stage.sent.put(LEADER).term == 2


def test_three_refused_connections_within_half_a_second_are_a_leader_that_is_gone() -> None:
    """Its lease is not waited for: the guard is its key."""
    stage = following()
    for _ in range(3):
        stage.tell(e.LeaderRefused())
        stage.now_ns += SECOND // 3
    assert stage.state is State.IN_SYNC, "two at most in half a second"
    stage.tell(e.LeaderRefused(), e.LeaderRefused())
    assert stage.state is State.CAMPAIGNING and dict(stage.sent.guards)[LEADER] == B_LEADS.revision


def test_refusals_of_the_leader_before_say_nothing_of_the_next_one() -> None:
    """Its lease is not over."""
    stage = following()
    stage.tell(e.LeaderRefused(), e.LeaderRefused())
    stage.read(leader=leader(2, 2, 9), insync=InSync(2, frozenset({A, B, C}), 0, revision=9))
    stage.tell(e.LeaderRefused())
    assert stage.state is State.IN_SYNC and stage.sent is None


def test_refusals_that_come_late_do_not_replace_the_own_key() -> None:
    """This node follows nobody: it waits for the end of the lease that it had before."""
    stage = Stage(leader=leader(0, 1, 3))
    assert not [one for one in stage.read() if isinstance(one, d.Follow)]
    stage.tell(*[e.LeaderRefused()] * 3)
    assert stage.state is State.IN_SYNC and stage.sent is None


def test_a_node_that_has_resigned_replaces_a_leader_that_is_gone_at_once() -> None:
    """It lets others go first when there is no leader; here the others are those that are gone."""
    stage = Stage().lead(B, C)
    stage.tell(e.DiskFailed(), e.Reopened(stage.terms, 10))
    stage.read(leader=leader(1, 3, 12), insync=InSync(3, frozenset({A, B, C}), 0, revision=12))
    stage.tell(*[e.LeaderRefused()] * 3)
    assert stage.state is State.CAMPAIGNING and dict(stage.sent.guards)[LEADER] == 12


def test_a_beacon_between_refusals_is_a_leader_that_lives() -> None:
    """Its listener was away for a moment."""
    stage = following()
    stage.tell(e.LeaderRefused(), e.LeaderRefused(), e.LeaderHeard(1, 5), e.LeaderRefused())
    assert stage.state is State.IN_SYNC


def test_the_winner_takes_over_in_its_term() -> None:
    """With the cluster's journal."""
    stage = following()
    stage.read(leader=None)
    assert stage.answer() == [d.TakeOver(2, JOURNAL_ID)]
    assert stage.state is State.TAKING_OVER


def test_the_loser_follows_the_winner() -> None:
    """And acknowledges again."""
    stage = following()
    stage.read(leader=None)
    winner = leader(2, 2, 9)
    stage.change(leader=winner, insync=InSync(2, frozenset({A, B, C}), 0, revision=9))
    assert stage.answer() == [d.Follow(winner), d.Acknowledge(True)]
    assert stage.state is State.IN_SYNC


def test_a_campaign_in_doubt_acknowledges_nothing_and_is_read_back() -> None:
    """It may be done later: so it is sent again, with the same guards, until one of them cannot hold any more."""
    stage = following()
    stage.read(leader=None)
    campaign = stage.sent
    assert stage.doubt() == [d.EndLease(), d.ReadKeys()]
    assert stage.read() == [d.Transact(campaign)]
    stage.doubt()
    winner = leader(2, 2, 9)
    decided = stage.read(leader=winner, insync=InSync(2, frozenset({A, B, C}), 0, revision=9))
    assert decided == [d.Follow(winner), d.Acknowledge(True)]


def test_a_candidate_asks_what_became_of_its_campaign_until_etcd_answers() -> None:
    """Else there would be no leader for ever where this node alone can lead."""
    stage = Stage()
    stage.read()
    stage.doubt()
    assert stage.advance(5).count(d.ReadKeys()) == 10


def test_a_candidate_whose_disk_was_put_back_waits_for_the_end_of_its_campaign() -> None:
    """As another node it would not know that it has won: nobody would lead until the end of that lease."""
    stage = Stage()
    stage.read()
    assert stage.state is State.CAMPAIGNING
    assert d.RejoinAsNew() not in stage.read(agreed=AgreedKey(1, 20, 9))
    assert d.RejoinAsNew() in stage.unreachable()


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_campaign_of_the_node_before_is_given_up(is_answered: bool) -> None:
    """A link that failed opened the directory again, under another node id, while the campaign was under way."""
    before = Stage()
    before.read()
    event = e.Answered(before.sent, True, before.etcd, 0) if is_answered else e.InDoubt(before.sent)
    stage = following()
    assert stage.tell(event) == [d.EndLease()] and stage.state is State.IN_SYNC


def test_a_campaign_that_was_in_doubt_and_lost_is_forgotten() -> None:
    """The next one is known to be lost as soon as etcd is not reached."""
    stage = following()
    stage.read(leader=None)
    stage.doubt()
    stage.read(leader=leader(2, 2, 9), insync=InSync(2, frozenset({A, B, C}), 0, revision=9))
    stage.read(leader=None)
    assert stage.state is State.CAMPAIGNING
    stage.unreachable()
    assert stage.state is State.IN_SYNC and stage.sent is None


def test_a_campaign_in_doubt_is_lost_when_another_node_has_led_meanwhile() -> None:
    """Though there is no leader now, as when it was sent: the set is another one."""
    stage = following()
    stage.read(leader=None)
    stage.doubt()
    stage.read(insync=InSync(2, frozenset({A, B, C}), 0, revision=9))
    assert stage.state is State.CAMPAIGNING
    assert stage.sent.put(LEADER).term == 3 and dict(stage.sent.guards)[INSYNC] == 9


def test_a_campaign_that_was_done_in_doubt_waits_for_the_end_of_its_lease() -> None:
    """Crash points: its own id and a dead lease. Then it campaigns again, in the next term."""
    stage = following()
    stage.read(leader=None)
    stage.doubt(is_done=True)
    stage.read()
    assert stage.state is State.IN_SYNC and stage.sent is None
    stage.advance(5)
    assert stage.sent is None
    stage.read(leader=None)
    assert stage.state is State.CAMPAIGNING and stage.sent.put(LEADER).term == 3


def test_a_node_that_starts_with_its_own_key_still_there_waits_for_its_end() -> None:
    """It led, was killed, and is back within the lease."""
    stage = Stage(leader=leader(0, 1, 3))
    stage.read()
    assert stage.state is State.IN_SYNC and stage.sent is None
    stage.read(leader=None)
    assert stage.state is State.CAMPAIGNING


def test_a_campaign_that_cannot_be_sent_is_tried_again_after_a_while() -> None:
    """etcd is not reached: it follows nobody meanwhile, and asks."""
    stage = following()
    stage.read(leader=None)
    stage.unreachable()
    assert stage.state is State.IN_SYNC and stage.sent is None
    stage.advance(0.5)
    assert stage.state is State.CAMPAIGNING


@pytest.mark.parametrize(
    "view, options, why",
    [
        ({"insync": WITHOUT_A}, {}, "it is not in sync"),
        ({}, {"starts": ((1, 1), (4, 6))}, "etcd's data were restored or deleted: see `leveret cluster recover`"),
        (
            {"insync": InSync(1, frozenset({A, B}), 0, level=1, revision=3)},
            {},
            "the journal is of level 1, and this node reads level 0: install the release of the other nodes",
        ),
    ],
)
def test_who_must_not_lead_does_not_campaign_and_says_why(view: dict, options: dict, why: str) -> None:
    """CL10, CL11, CL18: rules R2 and R10."""
    stage = Stage(**options, **view)
    stage.read()
    stage.advance(60)
    assert stage.sent is None and stage.agreement.obstacle == why
    assert stage.state in (State.FOLLOWING, State.IN_SYNC)


@pytest.mark.parametrize("state", [State.STARTING, State.IN_SYNC])
@pytest.mark.parametrize("leads", [None, B_LEADS])
def test_a_disk_that_was_put_back_is_that_of_another_node(state: State, leads: Leader | None) -> None:
    """Rule R10: with a part of what it lacks it could lead, as the key `agreed` is late. Nothing else is decided."""
    stage = Stage(leader=B_LEADS)
    if state is not State.STARTING:
        stage.read()
    assert stage.state is state
    decided = stage.read(agreed=AgreedKey(1, 11), leader=leads)
    text = "its journal ends at 10, and 11 was agreed: its disk was rolled back, so it joins as another node"
    followed = [] if state is State.STARTING else [d.Follow(None)]
    assert decided == [d.Acknowledge(False), *followed, d.Note(text), d.RejoinAsNew()]
    assert stage.tell(e.Durable(14)) == []
    assert stage.read(leader=None) == [] and stage.advance(60) == []


def put_back(**view: object) -> Stage:
    """It has joined B, whose journal is agreed below 14. This node's ends at 10, of which etcd knows 9."""
    stage = Stage(leader=B_LEADS, agreed=AgreedKey(1, 9), **view)
    stage.read()
    stage.tell(e.Joined(TermTable(A, ((1, 1),)), 10))
    return stage


def test_a_disk_that_was_put_back_is_found_by_what_was_agreed_when_the_set_changed() -> None:
    """Rule R10: the key `agreed` may be older, or not written yet."""
    stage = Stage(leader=B_LEADS, insync=InSync(1, frozenset({A, B, C}), 11, revision=3))
    assert d.RejoinAsNew() in stage.read()


@pytest.mark.parametrize("end", [10, 13])
def test_a_disk_that_was_put_back_is_found_by_what_the_leader_says_is_agreed(end: int) -> None:
    """Rule R10: the key `agreed` is late. Also when a part of what it lacks has come by then; as soon as etcd says
    that it was in the set.
    """
    stage = put_back()
    stage.tell(e.Durable(end))
    assert stage.tell(e.LeaderHeard(1, 14)) == [d.ReadKeys()]
    decided = stage.read(leader=None)
    text = f"its journal ends at {end}, and 14 was agreed: its disk was rolled back, so it joins as another node"
    assert decided == [d.Acknowledge(False), d.Follow(None), d.Note(text), d.RejoinAsNew()]
    assert stage.tell(e.Durable(14), e.LeaderHeard(1, 15)) == []
    assert stage.read(leader=None) == [] and stage.advance(60) == []


def test_a_node_keeps_its_place_that_has_what_is_agreed_or_is_not_waited_for() -> None:
    """Or that the leader has taken out of the set, which it hears later; and in again."""
    stage = put_back()
    stage.tell(e.Durable(14))
    assert stage.tell(e.LeaderHeard(1, 14), e.LeaderHeard(2, 15)) == []
    assert put_back(insync=WITHOUT_A).tell(e.LeaderHeard(1, 14)) == []
    for nodes in ({B, C}, {A, B}):
        stage = put_back()
        stage.tell(e.LeaderHeard(1, 14), e.Read(stage.etcd))
        stage.read(insync=InSync(1, frozenset(nodes), 0, revision=stage.etcd.revision + 1))
        assert not stage.agreement.follower.rejoins_as_new


def test_a_node_that_may_lack_what_is_agreed_does_not_campaign_before_etcd_has_told() -> None:
    """It asks until it is answered: a watch may be late."""
    stage = put_back()
    stage.tell(e.LeaderHeard(1, 14))
    stage.etcd = replace(stage.etcd, leader=None, revision=stage.etcd.revision + 1)
    stage.tell(e.Read(stage.etcd))
    assert stage.state is State.IN_SYNC and stage.sent is None
    assert d.ReadKeys() in stage.advance(1)
    stage.tell(e.Durable(14))
    stage.read()
    assert stage.state is State.CAMPAIGNING, "it lacks nothing any more"


def test_a_node_that_has_caught_up_asks_etcd_nothing_more() -> None:
    """It copied what it lacked before the answer: then it may lead at once."""
    stage = put_back()
    stage.tell(e.LeaderHeard(1, 14), e.Durable(14), e.LeaderHeard(1, 14))
    assert stage.advance(1) == []
    stage.change(leader=None)
    stage.tell(e.Read(stage.etcd))
    assert stage.state is State.CAMPAIGNING


def test_only_an_answer_to_a_later_question_says_that_a_disk_was_put_back() -> None:
    """An earlier one may show a set that the leader has changed since. Further beacons are no new beginning."""
    stage = put_back()
    stage.tell(e.LeaderHeard(1, 14))
    heard_ns = stage.now_ns
    assert stage.tell(e.Read(stage.etcd, heard_ns - 1)) == []
    assert stage.agreement.next_ns() == heard_ns + Timers().beacon_ns, "it asks again"
    stage.now_ns += SECOND // 4
    stage.tell(e.LeaderHeard(1, 15))
    assert d.RejoinAsNew() in stage.tell(e.Read(stage.etcd, heard_ns))
    assert stage.read() == [], "once"


def test_a_node_that_the_leader_refuses_leaves_its_directory_as_it_is() -> None:
    """An operator is to look at it, also if its disk was rolled back."""
    stage = put_back()
    stage.tell(e.LeaderHeard(1, 14), e.JoinRefused("it belongs to another cluster"))
    assert stage.state is State.REFUSED and stage.read() == []


def test_an_operator_may_begin_the_cluster_again_with_a_disk_that_was_put_back() -> None:
    """`leveret cluster recover`: what was agreed is forgotten."""
    stage = Stage(insync=WITHOUT_A, agreed=AgreedKey(1, 11))
    stage.read()
    assert stage.agreement.obstacle == "it is not in sync"
    stage.read(insync=InSync(2, frozenset({A}), 0, revision=9), agreed=None)
    stage.advance(60)
    assert stage.state is State.CAMPAIGNING


def test_a_node_that_sees_the_revision_of_etcd_fall_does_not_campaign() -> None:
    """Rule R10, CL09: until a term comes that is higher than all before."""
    stage = following()
    stage.now_ns += SECOND
    put_back = View(2, JOURNAL_ID, InSync(1, frozenset({A, B, C}), 0, revision=1))
    stage.tell(e.Read(put_back, stage.now_ns))
    assert not stage.sent and "restored or deleted" in stage.agreement.obstacle
    _, recovered = carried_out(put_back, A)
    stage.tell(e.Read(recovered, stage.now_ns))
    assert stage.state is State.CAMPAIGNING and stage.sent.put(LEADER).term == 3


def test_that_etcd_was_put_back_is_said_once() -> None:
    """Until it is recovered, however often it is read; the log shows it as an error."""
    stage = following()
    said = []
    for revision in (2, 1):
        stage.now_ns += SECOND
        put_back = View(revision, JOURNAL_ID, InSync(1, frozenset({A, B, C}), 0, revision=1))
        said += [one for one in stage.tell(e.Read(put_back, stage.now_ns)) if isinstance(one, d.Note) and one.is_grave]
    assert said == [d.Note(ETCD_ROLLED_BACK, is_grave=True)]


def test_a_journal_that_is_cut_does_not_end_the_doubt_of_an_etcd_that_was_put_back() -> None:
    """Rule R10: only a term above all that this node has ever seen does."""
    stage = following(leader=leader(1, 5, 3), insync=InSync(5, frozenset({A, B, C}), 0, revision=3))
    stage.now_ns += SECOND
    put_back = View(2, JOURNAL_ID, InSync(1, frozenset({A, B, C}), 0, revision=1), leader(1, 1, 2))
    stage.tell(e.Read(put_back, stage.now_ns), e.Joined(TermTable(A, ((1, 1),)), 10))
    stage.etcd = put_back
    stage.read(leader=None, insync=InSync(3, frozenset({A, B, C}), 0, revision=3))
    assert stage.sent is None and stage.agreement.obstacle == ETCD_ROLLED_BACK


def carried_out(view: View, one: bytes) -> tuple[bool, View]:
    """`leveret cluster recover`."""
    return carry_out(view, recover(view, one, 1, JOURNAL_ID))


def test_a_watch_that_comes_late_is_not_etcd_put_back() -> None:
    """Only an answer to a question that was asked since can be."""
    stage = following()
    late = View(2, JOURNAL_ID, InSync(1, frozenset({A, B}), 0, revision=1))
    stage.tell(e.Read(late), e.Read(late, stage.now_ns - SECOND))
    assert stage.agreement.context.view == stage.etcd and stage.agreement.obstacle is None


def test_the_preferred_node_campaigns_first_and_others_after_two_seconds() -> None:
    """It may have died meanwhile."""
    stage = following()
    stage.read(leader=None, preferred=C)
    stage.advance(1.9)
    assert stage.sent is None
    stage.advance(0.1)
    assert stage.state is State.CAMPAIGNING
    stage = following()
    stage.read(leader=None, preferred=A)
    assert stage.state is State.CAMPAIGNING


def test_the_wait_for_others_is_counted_from_the_loss_of_this_leader() -> None:
    """However often the keys are read meanwhile, and not from an earlier loss."""
    stage = following()
    stage.read(leader=None, preferred=C)
    stage.advance(1)
    stage.read(leader=leader(2, 2, 9), insync=InSync(2, frozenset({A, B, C}), 0, revision=9))
    stage.advance(5)
    stage.read(leader=None, preferred=C)
    for _ in range(3):
        stage.advance(0.5)
        stage.read()
        assert stage.sent is None
    stage.advance(0.5)
    assert stage.state is State.CAMPAIGNING


def test_a_node_whose_clock_is_wrong_lets_others_campaign_first() -> None:
    """CL19: expiries would move by the difference."""
    stage = following()
    stage.tell(e.LeaderHeard(1, 5, -600 * SECOND))
    stage.read(leader=None)
    stage.advance(5.9)
    assert stage.sent is None
    stage.advance(0.1)
    assert stage.state is State.CAMPAIGNING


def test_a_node_whose_clock_is_wrong_waits_for_the_lease_of_a_leader_that_is_gone() -> None:
    """CL19: the others, whose links are refused, too, campaign meanwhile."""
    stage = following()
    stage.tell(e.LeaderHeard(1, 5, 600 * SECOND), *[e.LeaderRefused()] * 3)
    assert stage.state is State.IN_SYNC and stage.sent is None


@pytest.mark.parametrize(
    "own, led, preferred, waits_s",
    [
        ("1-x", "1-x", None, 0), ("1-x", "1-y", None, 2), ("1-x", "1-y", C, 4), ("1-x", "1-y", A, 0),
        ("", "1-y", None, 0), ("1-x", "", None, 0), ("2-x", "1-y", None, 0), ("x", "y", None, 0),
    ],
)  # fmt: skip
def test_a_node_whose_configuration_differs_from_the_last_leaders_campaigns_last(
    own: str, led: str, preferred: bytes | None, waits_s: float
) -> None:
    """Unless an operator hands it the lead; fingerprints of two releases cannot be compared."""
    nodes = (*registered(0, fingerprint=own), *registered(1, fingerprint=led))
    stage = following(nodes=nodes)
    stage.read(leader=None, preferred=preferred, nodes=nodes[:1])  # the key of the leader's node goes with it
    if waits_s:
        stage.advance(waits_s - 0.1)
        assert stage.sent is None
        stage.advance(0.1)
    assert stage.state is State.CAMPAIGNING


def test_the_configuration_of_a_leader_whose_node_is_gone_is_remembered() -> None:
    """The key of its node may vanish before the key `leader` does."""
    nodes = (*registered(0, fingerprint="1-x"), *registered(1, fingerprint="1-y"))
    stage = following(nodes=nodes)
    stage.read(nodes=nodes[:1])
    stage.read(leader=None)
    assert stage.sent is None and stage.state is State.IN_SYNC


def test_a_node_that_is_configured_alike_again_campaigns_at_once() -> None:
    """It registers its new fingerprint."""
    stage = following(nodes=(*registered(0, fingerprint="1-x"), *registered(1, fingerprint="1-y")))
    stage.read(nodes=(*registered(0, fingerprint="1-y"), *registered(1, fingerprint="1-y")))
    stage.read(leader=None)
    assert stage.state is State.CAMPAIGNING


def test_a_node_whose_configuration_differs_waits_for_the_lease_of_a_leader_that_is_gone() -> None:
    """The others, whose links are refused, too, campaign meanwhile."""
    stage = following(nodes=(*registered(0, fingerprint="1-x"), *registered(1, fingerprint="1-y")))
    stage.tell(*[e.LeaderRefused()] * 3)
    assert stage.state is State.IN_SYNC and stage.sent is None


def test_a_drained_node_copies_and_does_not_campaign() -> None:
    """Until it is revived."""
    stage = following()
    assert stage.tell(e.Drain()) == [] and stage.state is State.DRAINED
    stage.read(leader=None)
    stage.advance(60)
    assert stage.sent is None
    winner = leader(2, 2, 9)
    assert stage.read(leader=winner) == [d.Follow(winner), d.Acknowledge(True)]
    stage.tell(e.Revive())
    assert stage.state is State.IN_SYNC


def test_a_node_that_is_not_in_sync_is_drained_too() -> None:
    """It does not enter the set as one that may lead."""
    stage = following(insync=WITHOUT_A)
    stage.tell(e.Drain())
    assert stage.state is State.DRAINED


def test_a_directory_of_another_broker_without_records_may_become_a_copy() -> None:
    """There is nothing to lose."""
    stage = Stage(journal_id=b"x" * 16, starts=(), end=FIRST_LSN, leader=B_LEADS, insync=WITHOUT_A)
    assert d.Follow(B_LEADS) in stage.read() and stage.state is State.FOLLOWING


def test_the_directory_of_another_broker_is_refused() -> None:
    """CL12: untouched."""
    stage = Stage(journal_id=b"x" * 16, leader=B_LEADS)
    why = f"this directory belongs to another journal ({(b'x' * 16).hex()}): move it away to join"
    assert d.Refuse(why) in stage.read() and stage.state is State.REFUSED
    assert not stage.of(d.Follow)[:-1] and stage.read(leader=None) == []


def test_a_directory_that_was_empty_belongs_to_the_journal_that_it_has_got() -> None:
    """Keys of another cluster, put in place of these, do not have it overwritten."""
    stage = Stage(journal_id=None, starts=()).lead(B, C)
    stage.tell(e.DiskFailed())
    stage.read(journal=b"other", leader=B_LEADS)
    stage.tell(e.Reopened(stage.terms, 10))
    assert stage.state is State.REFUSED


def test_a_refusal_of_the_leader_for_good_waits_for_an_operator() -> None:
    """A newer format, or whatever the leader says."""
    stage = following()
    assert stage.tell(e.JoinRefused("its link is newer"))[-1] == d.Refuse("its link is newer")
    assert stage.state is State.REFUSED and stage.agreement.next_ns() is None


def test_a_node_that_is_refused_copies_and_acknowledges_nothing_more() -> None:
    """Rule R6: an operator may move its directory away."""
    stage = following()
    decided = stage.tell(e.JoinRefused("its link is newer"))
    assert decided == [d.Acknowledge(False), d.Follow(None), d.Refuse("its link is newer")]


def test_a_name_that_is_taken_is_waited_for_and_then_refused() -> None:
    """It may be this node's own, of a directory that it had before (CL10): that lease ends."""
    other = NodeKey("a", b"o" * 16, "elsewhere:1")
    stage = Stage(leader=B_LEADS, nodes=(other,))
    assert not any(isinstance(one, d.Register) for one in stage.read())
    assert d.ReadKeys() in stage.decided, "it asks whether that lease is over"
    stage.advance(11)
    assert stage.state is State.STARTING
    stage.advance(1)
    assert stage.state is State.REFUSED
    stage = Stage(leader=B_LEADS, nodes=(other,))
    stage.read()
    assert d.Register() in stage.read(nodes=())


def test_a_directory_that_is_a_copy_of_another_node_s_is_refused() -> None:
    """Acknowledgements of one node would count for the other: the leader confirms what neither may have whole."""
    stage = Stage(leader=B_LEADS, nodes=(NodeKey("x", A, "x:1"),))
    assert not any(isinstance(one, d.Register) for one in stage.read())
    stage.advance(12)
    assert stage.state is State.REFUSED
    assert d.Refuse("this directory is a copy of that of node x, at x:1: move it away to join") in stage.decided
    stage = Stage(leader=B_LEADS, nodes=(NodeKey("x", A, "x:1"),))  # the name of this node was another before
    stage.read()
    assert d.Register() in stage.read(nodes=())


# -- the beginning ----------------------------------------------------------------------------------------------------


def empty(index: int) -> NodeKey:
    """A node without a journal."""
    return NodeKey("abc"[index], node_id(index), f"{'abc'[index]}:1")


def begin(*nodes: NodeKey, index: int = 0, journal: bytes | None = None) -> Agreement:
    """A node reads that there is no cluster yet."""
    agreement = Agreement(named(index, 3), Timers(), TermTable(node_id(index)), 1, journal, 0)
    agreement.handle(e.Read(View(4, nodes=nodes), 0), 0)
    return agreement


def test_a_cluster_begins_when_all_configured_nodes_are_there() -> None:
    """None of them has a journal: the first by name."""
    assert begin(empty(0), empty(1)).context.sent is None
    assert begin(empty(0), empty(1), empty(2)).context.sent.purpose is Purpose.BOOTSTRAP
    assert begin(empty(0), empty(1), empty(2), index=1).context.sent is None


def test_the_node_that_has_records_begins() -> None:
    """An empty node never does, if another has a journal."""
    nodes = (empty(0), *registered(1), empty(2))
    assert begin(*nodes).context.sent is None
    assert begin(*nodes, index=1, journal=JOURNAL_ID).context.sent is not None
    begun = begin(*registered(0, journal=b"o" * 16), empty(1), empty(2), journal=b"o" * 16).context.sent
    assert begun is not None and begun.put(JOURNAL) == b"o" * 16, "with its own journal"


def test_a_node_that_the_configuration_does_not_name_does_not_begin() -> None:
    """Though it is the first by name."""
    stranger = NodeKey("_", b"_" * 16, "_:1")
    assert begin(stranger, empty(0), empty(1), empty(2)).context.sent is not None


def test_a_journal_without_a_set_is_not_begun_anew() -> None:
    """An operator deleted one key, or etcd lost it: the journal of the cluster may have records."""
    stage = Stage(insync=None, nodes=(*registered(0), empty(1), empty(2)))
    stage.read()
    assert stage.sent is None and "recover" in stage.agreement.follower.noted


def test_a_node_that_waits_for_the_others_registers_once() -> None:
    """Each registration is a write to etcd."""
    stage = Stage(starts=(), end=1, journal_id=None, journal=None, insync=None, nodes=(empty(0),))
    assert d.Register() in stage.read()
    assert d.Register() not in stage.read(nodes=(empty(0), empty(1)))


def test_nobody_begins_where_several_have_a_journal() -> None:
    """CL09: etcd lost its data, or these are different brokers: `leveret cluster recover` asks."""
    agreement = begin(*registered(0, 1), empty(2), journal=JOURNAL_ID)
    assert agreement.context.sent is None and agreement.state is State.STARTING
    assert "recover" in agreement.follower.noted


def test_the_node_that_began_leads_the_first_term() -> None:
    """Its campaign follows at once."""
    stage = Stage(starts=(), end=1, journal_id=None, journal=None, insync=None, nodes=(empty(0), empty(1), empty(2)))
    stage.read()
    stage.answer()
    assert stage.etcd.journal == JOURNAL_ID and stage.etcd.insync.nodes == {A}
    assert stage.state is State.CAMPAIGNING
    assert stage.answer() == [d.TakeOver(1, JOURNAL_ID)]


def test_a_beginning_in_doubt_is_read_back() -> None:
    """It begins once."""
    stage = Stage(starts=(), end=1, journal_id=None, journal=None, insync=None, nodes=(empty(0), empty(1), empty(2)))
    stage.read()
    stage.doubt()
    stage.read()
    assert stage.sent.purpose is Purpose.BOOTSTRAP
    stage.doubt(is_done=True)
    stage.read()
    assert stage.state is State.CAMPAIGNING


def test_a_campaign_whose_first_sending_may_still_be_done_is_not_lost_with_the_second() -> None:
    """Until a guard fails this node follows nobody: it could lead without what it acknowledged meanwhile."""
    stage = Stage()
    stage.read()
    first = stage.sent
    stage.doubt()
    stage.advance(0.5)
    stage.read()
    assert stage.sent == first
    stage.advance(0.5)
    stage.tell(e.Answered(first, False))
    assert stage.state is State.CAMPAIGNING
    stage.read(leader=leader(1, 2, 8), insync=InSync(2, frozenset({A, B, C}), 0, revision=8))
    assert stage.state in (State.FOLLOWING, State.IN_SYNC)


def test_a_leader_of_the_term_before_the_own_is_not_followed() -> None:
    """Rule R6: this node has records of a later one."""
    stage = Stage(starts=((1, 1), (3, 5)))
    stage.read(leader=leader(1, 2, 6), insync=InSync(2, frozenset({A, B, C}), 0, revision=6))
    assert stage.of(d.Follow) == []


def test_a_drained_node_says_why_it_does_not_lead() -> None:
    """`ctl cluster` and the log show it."""
    stage = Stage(leader=leader(1, 1, 4))
    stage.read()
    assert stage.agreement.obstacle is None
    stage.tell(e.Drain())
    assert stage.state is State.DRAINED and stage.agreement.obstacle == "it is drained"


@pytest.mark.parametrize("there", [{"insync": None}, {"journal": None}, {}])
def test_a_cluster_that_has_begun_is_not_begun_again(there: dict[str, Any]) -> None:
    """A transaction that comes late would replace the set by one node, or the journal by another."""
    etcd = Stage(**there).etcd
    assert carry_out(etcd, bootstrap(named(0, 3), JOURNAL_ID, 0, 1)) == (False, etcd)
    empty = Stage(insync=None, journal=None).etcd
    assert carry_out(empty, bootstrap(named(0, 3), JOURNAL_ID, 0, 1))[0]


def test_nothing_is_recovered_while_a_node_leads() -> None:
    """It has what is confirmed, and the chosen node may not."""
    etcd = Stage(leader=B_LEADS).etcd
    assert carry_out(etcd, recover(etcd, A, 5, JOURNAL_ID)) == (False, etcd)


def test_recovering_forgets_what_etcd_remembers_to_be_agreed() -> None:
    """The chosen node may have less; it leads in a term above all that were seen."""
    etcd = Stage(agreed=AgreedKey(3, 100), insync=InSync(3, frozenset({B, C}), 90, revision=3)).etcd
    is_done, etcd = carry_out(etcd, recover(etcd, A, 5, JOURNAL_ID))
    assert is_done and etcd.agreed is None and etcd.insync.nodes == {A}
    stage = Stage(insync=etcd.insync)
    stage.etcd = etcd
    stage.read()
    assert stage.sent.put(LEADER).term == 7


def test_a_recovered_cluster_has_the_level_that_every_program_reads() -> None:
    """If etcd lost the set too, which knew it. What is in the journal raises it."""
    recovered = carry_out(View(1), recover(View(1), A, 5, JOURNAL_ID))[1].insync
    assert recovered is not None and recovered.level == 1
    known = View(1, JOURNAL_ID, InSync(3, frozenset({A, B}), 0, level=2, revision=1))
    assert carry_out(known, recover(known, A, 5, JOURNAL_ID))[1].insync.level == 2  # type: ignore[union-attr]


def test_a_node_whose_journal_has_what_it_does_not_know_copies_and_does_not_lead() -> None:
    """CL18: it is of an older release than the one that wrote it, and was restarted."""
    stage = Stage()
    stage.agreement.context.node = replace(stage.agreement.context.node, unknown="owners of messages")
    stage.read()
    stage.advance(60)
    why = "its journal holds owners of messages, of which this release does not know: install a newer one"
    assert stage.sent is None and stage.agreement.obstacle == why and stage.state is State.IN_SYNC


def test_a_cluster_begins_with_what_its_oldest_node_reads() -> None:
    """Which need not be the one that begins."""
    stage = Stage(starts=(), journal_id=None, end=1, journal=None, insync=None)
    stage.agreement.context.node = replace(stage.agreement.context.node, level=3)
    nodes = (*registered(0, 2, journal=None, level=3), *registered(1, journal=None, level=2))
    stage.read(nodes=tuple(sorted(nodes, key=lambda one: one.name)))
    sent = stage.sent
    assert sent is not None and isinstance(insync := sent.put("insync"), InSync) and insync.level == 2
