"""Commands about nodes as `leveret ctl` follows them: until they are done, refused, or the time is over."""

from collections.abc import Callable
from typing import Any

import pytest

from leveret.cli.control_client import ControlFailed, NotServed
from leveret.cli.node_commands import NodeCommands

WAITING = NotServed("h:1 accepts connections and does not serve them", is_over=False)


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
    lost = ControlFailed("CONNECTION_FORCED - this node does not lead any more")
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
    with pytest.raises(ControlFailed, match="not done within 30 s: cannot reach h:1: Connection refused"):
        cluster.run("handover")


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


def test_while_no_node_leads_the_node_that_is_asked_says_what_it_knows() -> None:
    """After two seconds of silence; whatever needs a leader is refused in words."""
    cluster = Cluster(WAITING, state=status(None, "c"))
    assert cluster.run("cluster")["node"] == "c" and cluster.now_s == 2
    for command in ("handover", "drain", "revive", "forget"):
        with pytest.raises(ControlFailed, match="no node leads, and .* node c is following: no node leads"):
            cluster.run(command, node="b")


def test_a_broker_that_is_slow_is_waited_for() -> None:
    """It is no node that says what it knows."""
    assert Cluster(WAITING, status("a")).run("cluster")["leader"] == "a"
    with pytest.raises(ControlFailed, match="no node of this cluster leads"):
        Cluster(NotServed("CONNECTION_FORCED - no node of this cluster leads", is_over=True)).run("cluster")
