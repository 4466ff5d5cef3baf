"""Commands about nodes as `leveret ctl` follows them: until they are done, refused, or the time is over."""

from collections.abc import Callable
from typing import Any

import pytest

from leveret.cli.control_client import ControlFailed, NotServed
from leveret.cli.node_commands import NodeCommands

WAITING = NotServed("h:1 accepts connections and does not serve them", is_over=False)

NO_ETCD = {"etcd": "etcd is not reached: http://h:2379: Connection refused"}


def status(leader: str | None, node: str | None = None, handover: object = None, **nodes: dict[str, Any]) -> Any:
    """A cluster as a node shows it, the leader if none is named; `nodes`: what is not as usual."""
    rows = [{"name": name, "state": "in_sync", "is-drained": False, **nodes.get(name, {})} for name in "abc"]
    facts = {"state": "following", "why": "no node leads", "term": 2, "handover": handover}
    return {"leader": leader, "node": node or leader, **facts, "nodes": rows}


class Cluster:
    """What is answered, one after the other; the last for ever. Time goes by only while it is waited for."""

    def __init__(self, *answers: Any, state: Any = None) -> None:
        self.answers, self.state, self.now_s = list(answers), state, 0.0
        self.asked: list[str] = []

    def ask(self, url: str, command: str, arguments: dict[str, Any], **options: Any) -> Any:
        """As `control_client.request`."""
        self.asked.append(command)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            self.now_s += options.get("start_s", 0)
            raise answer
        return answer

    def run(self, command: str, **arguments: str) -> Any:
        """A command line."""
        state: Callable[[str, float], Any] = lambda url, timeout_s: self.state  # noqa: E731
        clock: dict[str, Any] = {"pause": self._pause, "clock": lambda: self.now_s}
        return NodeCommands("amqp://h", ask=self.ask, state=state, **clock).run(command, arguments)

    def _pause(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_handover_is_done_when_another_node_says_that_it_leads() -> None:
    """The old leader closes the connection; for a while no node leads, or the new one does not serve yet."""
    lost = ControlFailed("CONNECTION_FORCED - this node no longer leads")
    cluster = Cluster(
        {"from": "a", "to": "b"}, status("a"), lost, WAITING, status("b", "c"), status("b"), state=status(None, "a")
    )
    assert cluster.run("handover") == {"from": "a", "to": "b", "term": 2}
    assert cluster.asked == ["handover", *["cluster"] * 5]


def test_a_handover_that_is_refused_later_says_why() -> None:
    """It had begun: its connection may have been closed or not."""
    refused = {"to": "b", "refused": "the other node did not acknowledge everything in time"}
    cluster = Cluster({"from": "a", "to": "b"}, status("a", handover={"to": "b"}), status("a", handover=refused))
    with pytest.raises(ControlFailed, match="not handed over: the other node did not acknowledge everything in time"):
        cluster.run("handover", node="b")


def test_another_node_than_the_one_that_was_asked_for() -> None:
    """It may be killed before it takes the lead."""
    with pytest.raises(ControlFailed, match="node a handed over to b, but c leads"):
        Cluster({"from": "a", "to": "b"}, status("c")).run("handover", node="b")


def test_a_command_that_is_not_done_in_time() -> None:
    """With the last reason."""
    cluster = Cluster({"from": "a", "to": "b"}, ControlFailed("cannot reach h:1: Connection refused"))
    late = "it has begun, and its end was not seen within 30 s"
    with pytest.raises(ControlFailed, match=f"{late}: cannot reach h:1: Connection refused"):
        cluster.run("handover")
    begun = {"node": "b", "is-drained": True}
    with pytest.raises(ControlFailed, match=f"^{late}$"):
        Cluster(begun, status("a")).run("drain", node="b")
    with pytest.raises(ControlFailed, match=f"^{late}: {NO_ETCD['etcd']}$"):  # b is drained, and cannot tell
        Cluster(begun, status("a") | NO_ETCD).run("drain", node="b")


def test_a_leader_is_drained_when_another_node_leads_and_has_it_drained() -> None:
    """Its key says so when it follows."""
    begun = {"node": "a", "from": "a", "to": "b"}
    cluster = Cluster(begun, status("a"), status("b"), status("b", a={"is-drained": True}))
    assert cluster.run("drain") == {"node": "a", "is-drained": True, "from": "a", "to": "b", "term": 2}
    with pytest.raises(ControlFailed, match="not drained: node b does not answer"):
        Cluster(begun, status("a", handover={"refused": "node b does not answer"})).run("drain")


@pytest.mark.parametrize(
    "command, begun, before, after",
    [
        ("drain", {"node": "b", "is-drained": True}, {}, {"is-drained": True}),
        ("revive", {"node": "b", "is-drained": False}, {"is-drained": True}, {}),
        ("forget", {"node": "b", "state": "absent"}, {"state": "lost"}, {"state": "absent"}),
    ],
)
def test_a_command_for_a_follower_is_done_when_its_key_says_so(
    command: str, begun: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    """The leader shows that."""
    cluster = Cluster(begun, status("a", b=before), status("a", b=after))
    assert cluster.run(command, node="b") == begun
    assert cluster.asked == [command, "cluster", "cluster"]


def test_only_the_leader_says_that_a_command_is_done() -> None:
    """What another node knows may be from before."""
    drained = {"b": {"is-drained": True}}
    cluster = Cluster({"node": "b"}, status("a", "c", **drained), status("a", "c", **drained), status("a", **drained))
    assert cluster.run("drain", node="b") == {"node": "b"}
    assert cluster.asked == ["drain", "cluster", "cluster", "cluster"]


def test_while_no_node_leads_the_node_that_is_asked_says_what_it_knows() -> None:
    """After two seconds of silence; whatever needs a leader is refused in words."""
    cluster = Cluster(WAITING, state=status(None, "c"))
    assert cluster.run("cluster")["node"] == "c" and cluster.now_s == 2
    for command in ("handover", "drain", "revive", "forget"):
        with pytest.raises(ControlFailed, match="no node leads; node c is following: no node leads; only the leader"):
            cluster.run(command, node="b")


def test_what_is_wrong_is_told_at_once_while_no_node_serves_clients() -> None:
    """An operator asks `status` first; an answer after half a minute, when the node closes him, is none."""
    assert Cluster({"trouble": []}).run("status") == {"trouble": []}
    for state, why in (
        (status(None, "c") | NO_ETCD, f"no node leads: {NO_ETCD['etcd']}; node c is following: no node leads; see"),
        (status("a", "c", a={"state": "suspended"}), "node a is suspended; node c is following: no node leads; see"),
        (status("a", "c") | {"state": "refused", "why": "w"}, "^node c is refused: w; see `ctl cluster`$"),
        (status("a", a={"state": "held"}) | {"state": "held", "why": "w"}, "^node a is held: w; see `ctl cluster`$"),
    ):
        cluster = Cluster(WAITING, state=state)
        with pytest.raises(ControlFailed, match=why):
            cluster.run("status")
        assert cluster.now_s == 2


def test_a_broker_that_is_slow_is_waited_for() -> None:
    """It is no node that says what it knows."""
    assert Cluster(WAITING, status("a")).run("cluster")["leader"] == "a"
    with pytest.raises(ControlFailed, match="no node of this cluster leads"):
        Cluster(NotServed("CONNECTION_FORCED - no node of this cluster leads", is_over=True)).run("cluster")


IN_SYNC = {"is-in-sync": True, "is-linked": True}
AWAY = {"state": "following", "is-in-sync": False, "is-linked": True, "lag": 7}


def in_sync(leader: str | None = "a", node: str | None = None, level: int = 1, **nodes: dict[str, Any]) -> Any:
    """All in sync but for what is said."""
    found = status(leader, node, **{name: IN_SYNC | nodes.get(name, {}) for name in "abc"})
    rows = found["nodes"]
    rows[0]["state"] = "leading" if rows[0]["state"] == "in_sync" else rows[0]["state"]
    return found | {"min-in-sync": 2, "level": level, "insync": [row["name"] for row in rows if row["is-in-sync"]]}


def test_a_script_waits_until_all_nodes_are_in_sync() -> None:
    """Through any node, whoever leads; a node that has just begun to lead has no links yet."""
    lost = ControlFailed("cannot reach h:1: Connection refused")
    unlinked = in_sync(c={"is-linked": False, "state": "lost"})
    cluster = Cluster(lost, WAITING, in_sync(None, "c"), unlinked, in_sync(c=AWAY), in_sync(), state=in_sync(None, "c"))
    assert cluster.run("cluster wait-in-sync") == {"is-ready": True, "leader": "a", "insync": ["a", "b", "c"]}
    assert Cluster(in_sync(c=AWAY)).run("cluster wait-in-sync", node="b")["is-ready"]


@pytest.mark.parametrize(
    "answer, node, why",
    [
        (in_sync(c=AWAY), None, "node c is following, 7 records behind"),
        (in_sync(b={"state": "lost", "is-linked": False}, c=AWAY), None, "node b is lost; node c is following, 7 rec"),
        (in_sync(c={"is-linked": False}), None, "node c is not linked$"),
        (in_sync(None, "c") | {"etcd": "answers"}, None, "no node leads$"),
        (in_sync(None, "c") | NO_ETCD, None, f"no node leads: {NO_ETCD['etcd']}$"),
        (in_sync("a", "c"), None, "node a leads, and does not answer yet"),
        (in_sync(a={"state": "held"}), "b", "node a is held: no node leads"),
        (ControlFailed("cannot reach h:1: Connection refused"), "b", "cannot reach h:1: Connection refused"),
    ],
)
def test_a_script_that_waits_in_vain_is_told_why(answer: Any, node: str | None, why: str) -> None:
    """And the exit code is 1: ControlFailed."""
    with pytest.raises(ControlFailed, match=f"not reached within 30 s: {why}"):
        Cluster(answer).run("cluster wait-in-sync", **({} if node is None else {"node": node}))


@pytest.mark.parametrize(
    "facts, node, why",
    [
        ({}, None, ""),
        ({"c": AWAY}, "c", ""),
        ({"c": AWAY}, "b", r"without node b 1 of 2 nodes would be in sync \(node c is following, 7 records behind\)"),
        ({"c": AWAY}, None, "without node a 1 of 2 .*; without node b 1 of 2"),
        ({"b": {"is-drained": True, "state": "drained"}}, "a", ""),
        ({"b": {"is-drained": True}, "c": {"is-drained": True}}, "a", "node a leads, and no other node in sync can"),
        ({"b": {"level": 1}, "c": {"level": 1}, "level": 2}, "a", "node a leads, and no other node in sync can"),
        ({"b": {"level": 1}, "c": {"level": 2}, "level": 2}, None, ""),
        (dict.fromkeys("abc", {"is-linked": False}), None, "no node is in sync"),
    ],
)
def test_whether_a_node_can_be_stopped(facts: dict[str, Any], node: str | None, why: str) -> None:
    """Publishers must not be blocked without it, and another node must be able to lead."""
    cluster, given = Cluster(in_sync(**facts)), {} if node is None else {"node": node}
    if not why:
        assert cluster.run("cluster wait-safe-to-stop", **given)["is-ready"]
        return
    with pytest.raises(ControlFailed, match=f"not reached within 30 s: {why}"):
        cluster.run("cluster wait-safe-to-stop", **given)


def test_no_node_can_be_stopped_while_etcd_is_not_reached() -> None:
    """The leader goes on without it, but no node could lead then. All are in sync."""
    found = in_sync() | NO_ETCD
    for given in ({}, {"node": "a"}, {"node": "c"}):
        with pytest.raises(ControlFailed, match=f"{NO_ETCD['etcd']}, so no node could lead after this one$"):
            Cluster(found).run("cluster wait-safe-to-stop", **given)
        assert Cluster(found).run("cluster wait-in-sync", **given)["is-ready"]


def test_a_node_that_there_is_not_is_not_waited_for() -> None:
    """A slip of the pen is told at once."""
    cluster = Cluster(in_sync())
    with pytest.raises(ControlFailed, match="there is no node d; nodes are a, b, c"):
        cluster.run("cluster wait-safe-to-stop", node="d")
    assert cluster.now_s == 0 and cluster.run("cluster wait-in-sync", node="rabbit@b")["is-ready"]


def test_the_level_is_raised_when_the_leader_says_so() -> None:
    """It is in etcd then. No node leads: refused."""
    cluster = Cluster({"level": 2, "before": 1}, in_sync(), in_sync(level=2))
    assert cluster.run("cluster raise-level", action="raise-level") == {"level": 2, "before": 1}
    assert cluster.asked == ["cluster"] * 3
    with pytest.raises(ControlFailed, match="no node leads; .*; only the leader can do this"):
        Cluster(WAITING, state=status(None, "c")).run("cluster raise-level", action="raise-level")


RELOADED = {"reloaded": True, "done": [], "warnings": [], "others": {"reloads": {"b": 1, "c": 4}, "not-asked": []}}


def test_a_reload_is_done_when_all_nodes_have_reloaded() -> None:
    """Each counts; the leader counts no others."""
    cluster = Cluster(
        RELOADED, status("a", b={"reloads": 1}, c={"reloads": 5}), status("a", b={"reloads": 2}, c={"reloads": 5})
    )
    assert cluster.run("reload") == {"reloaded": True, "done": [], "warnings": [], "nodes": "a, b, c"}
    assert cluster.asked == ["reload", "cluster", "cluster"]


def test_a_reload_tells_the_faults_of_each_node() -> None:
    """The others have their new configuration."""
    wrong = {"reloads": 2, "faults": ["leveret.toml:7: heartbeat: no number"]}
    cluster = Cluster(RELOADED, status("a", b=wrong, c={"reloads": 5, "faults": []}))
    with pytest.raises(ControlFailed, match="node b: leveret.toml:7: heartbeat"):
        cluster.run("reload")


def test_a_node_that_does_not_reload_is_named_when_the_time_is_over() -> None:
    """It was lost meanwhile."""
    with pytest.raises(ControlFailed, match="not all others within 30 s: not c"):
        Cluster(RELOADED, status("a", b={"reloads": 2}, c={"state": "lost"})).run("reload")


def test_a_reload_of_a_broker_alone_is_done_at_once() -> None:
    """As one of a cluster whose other nodes are away, which are named."""
    alone = {"reloaded": True, "done": ["x"], "warnings": []}
    assert Cluster(alone).run("reload") == alone
    away = {**alone, "others": {"reloads": {}, "not-asked": ["b"]}}
    assert Cluster(away, status("a")).run("reload") == {**alone, "nodes": "a", "not-connected": ["b"]}
