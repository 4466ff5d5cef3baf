"""What a node tells the others of itself, and whom they take for the leader that serves clients."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from leveret.cluster.agreement.states import State
from leveret.cluster.history import History
from leveret.serving.node_report import NodeReport
from leveret.serving.shared_configuration import SharedConfiguration
from leveret.serving.tls_files import NO_TLS
from leveret.settings import Configuration


def report_of(node: Any) -> NodeReport:
    """Of a node without links to followers."""
    shared = SharedConfiguration(b"a secret of the cluster", Configuration(), NO_TLS)
    current: Any = SimpleNamespace(faults=(), reloads=0)
    return NodeReport(lambda: node, ".", 0, "leveret", lambda: 0, lambda: 0, shared, current)


def node(name: str, state: State, *, leading: Any = None, followed: str | None = None, status: Any = None) -> Any:
    """As far as a report looks at it."""
    return SimpleNamespace(
        agreement=SimpleNamespace(state=state),
        history=History(0),
        leading=leading,
        following=SimpleNamespace(followed=followed, leader_status=status or {}),
        options=SimpleNamespace(name=name),
        view=None,
    )


@pytest.mark.parametrize(
    "state, is_served, serves",
    [
        (State.TAKING_OVER, False, False),
        (State.LEADING, True, True),
        (State.HELD, True, True),
        (State.SUSPENDED, True, False),
    ],
)
def test_followers_know_whether_their_leader_serves(state: State, is_served: bool, serves: bool) -> None:
    """Otherwise load balancers send clients to them, who wait: a leader that is suspended answers nobody."""

    async def status() -> dict[str, object]:
        return report_of(node("a", state, leading=SimpleNamespace(is_served=is_served, links=None))).status()

    told = trio.run(status)
    follower = report_of(node("b", State.IN_SYNC, followed="a", status=told))
    assert follower.leader == ("rabbit@a" if serves else None)


def test_lag_counts_from_this_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that led two hours ago does not take that time for the lag of a follower."""
    now_ms = 0
    monkeypatch.setattr("leveret.serving.node_report.SystemClock.wall_ms", lambda: now_ms)
    leader = node("a", State.LEADING)
    report = report_of(leader)
    lags = []
    for now_ms, end, acknowledged in ((0, 1000, 1000), (7_200_000, 5000, 4000), (7_202_000, 6000, 5500)):
        if now_ms < 7_202_000:
            leader.leading = SimpleNamespace(journal=SimpleNamespace())
        leader.leading.journal.next_lsn = end
        link: Any = SimpleNamespace(acknowledged_lsn=acknowledged, behind_octets=0, sent_octets=0)
        lags.append(report._behind(link)["lag_s"])
    assert lags == [0, 0, 2]


def test_a_follower_tells_each_alarm_once() -> None:
    """The leader tells it those of all followers, also its own of a moment ago."""
    told = {"alarms": ["memory"], "cluster-alarms": [["rabbit@b", "disk"], ["rabbit@c", "disk"], "nonsense"]}

    async def alarms(followed: str | None) -> list[tuple[str, str]]:
        return report_of(node("b", State.IN_SYNC, followed=followed, status=told)).alarms()

    assert trio.run(alarms, "a") == [("rabbit@a", "memory"), ("rabbit@c", "disk")]
    assert trio.run(alarms, None) == [], "there is no link: who knows"


def test_a_node_tells_on_what_it_heard_of_earlier_leaders() -> None:
    """A node that was started since then learns it from any other."""
    follower = node("b", State.IN_SYNC, followed="a", status={"led": [[5, 3, "c"]]})

    async def status() -> dict[str, object]:
        return report_of(follower).status()

    assert trio.run(status)["led"] == [[5, 3, "c"]]


def test_publishers_that_are_blocked_now_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only when they are blocked no more: an alarm on the sum would come too late."""
    monkeypatch.setattr("leveret.serving.node_report.SystemClock.wall_ms", lambda: 9_000)
    leader = node("a", State.HELD)
    leader.since_ms, leader.held_ms = 7_000, 1_000
    assert report_of(leader)._held_s() == 3.0
    leader.agreement.state = State.LEADING
    assert report_of(leader)._held_s() == 1.0


def test_a_leader_of_the_release_before_serves() -> None:
    """It does not tell."""
    assert report_of(node("b", State.IN_SYNC, followed="a", status={"clients": 1})).leader == "rabbit@a"
    assert report_of(node("b", State.IN_SYNC)).leader is None
