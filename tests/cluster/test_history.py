"""What has become of a cluster, as a node sees it in etcd: who led when, and which nodes were in sync."""

from dataclasses import replace

from agreement_stage import A, B, C, Stage, leader, registered

from leveret.cluster.agreement.view import InSync, View
from leveret.cluster.history import CHANGES_MAX, TOLD_MAX, Change, History


def view(**changes: object) -> View:
    """Of three nodes, all in sync."""
    found = Stage(nodes=registered(0, 1, 2), leader=leader(1, 5, 4)).etcd
    return replace(found, insync=InSync(5, frozenset({A, B, C}), 9), **changes)  # type: ignore[arg-type]


def test_who_led_when() -> None:
    """A view that says the same is no change; a leader that is gone is one, and so is one that follows at once."""
    history = History(1)
    for now_ms, term, index in [(10, 5, 1), (11, 5, 1), (30, 6, 0), (31, 7, 0)]:
        history.take_view(view(leader=leader(index, term, 4)), now_ms)
        if now_ms == 11:
            history.take_view(view(leader=None), 20)
    assert [change for change in history.changes if change.kind != "in_sync_changed"] == [
        Change(10, "led", "b", 5, ""),
        Change(20, "left", "b", 5, "its key in etcd is gone"),
        Change(30, "led", "a", 6, ""),
        Change(31, "led", "a", 7, ""),
    ]


def test_which_nodes_were_in_sync() -> None:
    """By name, also while its registration has ended; of one that was never seen only that it is there."""
    history = History(1)
    history.take_view(view(), 10)
    history.take_view(view(), 11)
    history.take_view(replace(view(), insync=InSync(5, frozenset({A, B}), 9)), 12)
    history.take_view(replace(view(), nodes=registered(0), insync=InSync(5, frozenset({A, B}), 9)), 13)
    history.take_view(replace(view(), insync=None), 14)
    assert [(change.at_ms, change.why) for change in history.changes if change.kind == "in_sync_changed"] == [
        (10, "in sync: a, b, c"),
        (12, "in sync: a, b; no longer c"),
    ]
    history = History(1)
    history.take_view(replace(view(), nodes=registered(0), insync=InSync(5, frozenset({A, B}), 9)), 13)
    assert history.changes[-1].why == "in sync: a, a node that was never seen"


def test_a_node_that_has_just_started_hears_of_earlier_leaders() -> None:
    """In their order; of one that it has seen, too, if that began earlier. What makes no sense is left out."""
    old, new = History(1), History(50)
    for at_ms, term in [(10, 5), (20, 6), (60, 7)]:
        old.take_view(view(leader=leader(1, term, 4)), at_ms)
    new.take_view(view(leader=leader(1, 7, 4)), 61)
    new.learn([*old.recent_leaderships(), ["x", 9, "b"], [1, 2], None, [70, 8, 3]])
    new.learn({"led": 1})
    new.learn([[65, 7, "b"]])
    assert new.recent_leaderships() == old.recent_leaderships() == [[10, 5, "b"], [20, 6, "b"], [60, 7, "b"]]
    assert [change.at_ms for change in new.changes] == [10, 20, 60, 61]
    for term in range(8, 8 + 2 * TOLD_MAX):
        new.take_view(view(leader=leader(1, term, 4)), 100 + term)
    assert len(new.recent_leaderships()) == TOLD_MAX and new.recent_leaderships()[-1][1] == 7 + 2 * TOLD_MAX


def test_the_oldest_changes_are_dropped() -> None:
    """A cluster whose lead moves for days does not fill the memory."""
    history = History(1)
    for term in range(1, CHANGES_MAX + 11):
        history.take_view(view(leader=leader(1, term, 4)), term)
    assert len(history.changes) == CHANGES_MAX and history.changes[-1].term == CHANGES_MAX + 10


def test_that_a_leader_is_gone_is_told_once() -> None:
    """However often etcd is read meanwhile."""
    history = History(1)
    for now_ms in (1, 2, 3):
        history.take_view(view(leader=leader(1, 5, 4) if now_ms == 1 else None), now_ms)
    assert [change.at_ms for change in history.changes if change.kind == "left"] == [2]
