"""`leveret ctl cluster`, `handover`, `drain`, `revive`, `forget`: which node each is for, and what is printed."""

import re
from typing import Any

import pytest

from leveret.cli.ctl_command import RABBITMQCTL, _read, as_text
from leveret.operator.command_error import CommandError
from leveret.operator.command_table import COMMANDS, find
from leveret.operator.operator import Operator


def node(name: str, **facts: Any) -> dict[str, Any]:
    """A node that copies."""
    known = {
        "id": "ab" * 16,
        "state": "in_sync",
        "is-linked": True,
        "is-drained": False,
        "term": 3,
        "end": 90,
        "lag": 10,
    }
    return {"name": name, **known, "reaches": ["a", "b"], "addresses": ["amqp://h:1"], "status": {"memory": 1}, **facts}


class Desk:
    """The node that leads. `asked`: what it was asked for."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.nodes = list(nodes)
        self.asked: list[tuple[str, str | None]] = []

    def status(self) -> dict[str, Any]:
        how = {"state": "leading", "since-ms": 1_795_891_072_383, "why": "it won"}
        return {"leader": "a", "node": "a", "term": 3, "agreed": 90, "insync": ["a", "b"], **how, "nodes": self.nodes}

    def history(self) -> dict[str, Any]:
        change = {"at-ms": 1_795_891_072_383, "what": "led", "node": "a", "term": 3, "why": ""}
        return {"node": "a", "since-ms": 1_795_891_072_383, "changes": [change]}

    def handover(self, node: str | None) -> dict[str, Any]:
        return self._note("handover", node)

    def drain(self, node: str) -> dict[str, Any]:
        return self._note("drain", node)

    def revive(self, node: str) -> dict[str, Any]:
        return self._note("revive", node)

    def raise_level(self) -> dict[str, Any]:
        return self._note("raise-level", None)

    def forget(self, node: str) -> dict[str, Any]:
        return self._note("forget", node)

    def _note(self, what: str, node: str | None) -> dict[str, Any]:
        self.asked.append((what, node))
        return {}


def call(desk: Desk | None, word: str, **arguments: str) -> Any:
    """As `leveret ctl` does."""
    operator = Operator()
    operator.cluster = desk
    return find(word, {}).call(operator, arguments)


@pytest.mark.parametrize("word", ["cluster", "handover", "drain", "revive", "forget"])
def test_a_plain_broker_says_that_it_is_no_node(word: str) -> None:
    """In words, whatever is asked for."""
    with pytest.raises(CommandError, match="this broker is not a node of a cluster"):
        call(None, word, **({"node": "b"} if word == "forget" else {}))


@pytest.mark.parametrize(
    "word, given, asked",
    [
        ("handover", {}, None),
        ("handover", {"node": "b"}, "b"),
        ("drain", {}, "a"),
        ("drain", {"node": "b"}, "b"),
        ("revive", {}, "b"),
        ("revive", {"node": "c"}, "c"),
        ("forget", {"node": "c"}, "c"),
    ],
)
def test_the_node_of_a_command(word: str, given: dict[str, str], asked: str | None) -> None:
    """Without one: any, the leader, the one that is drained."""
    desk = Desk(node("a"), node("b", **{"is-drained": True}), {"name": "c", "state": "absent"})
    call(desk, word, **given)
    assert desk.asked == [(word, asked)]


@pytest.mark.parametrize("drained, why", [("bc", "which of b, c?"), ("", "no node is drained")])
def test_the_node_to_revive_is_named_unless_one_alone_is_drained(drained: str, why: str) -> None:
    """Another one could be switched off just now."""
    desk = Desk(*(node(name, **{"is-drained": name in drained}) for name in "abc"))
    with pytest.raises(CommandError) as refused:
        call(desk, "revive")
    assert (str(refused.value), desk.asked) == (why, [])


def ready(*reasons: str) -> dict[str, Any]:
    """The answer to a command that waits."""
    return {"is-ready": not reasons, "reasons": list(reasons)}


@pytest.mark.parametrize(
    "line, command, asked, result",
    [
        (["cluster", "raise-level"], "cluster raise-level", [("raise-level", None)], {}),
        (["cluster", "wait-in-sync"], "cluster wait-in-sync", [], ready("node c is absent")),
        (["cluster", "wait-in-sync", "b"], "cluster wait-in-sync", [], ready()),
        (["cluster", "wait-safe-to-stop", "node=c"], "cluster wait-safe-to-stop", [], ready()),
    ],
)
def test_what_follows_the_word_cluster(line: list[str], command: str, asked: list[Any], result: Any) -> None:
    """A script that asks a broker without `leveret ctl` gets the reasons at once."""
    name, given = _read(line[0], line[1:], None)
    found = find(name, given)
    member = {"is-in-sync": True}
    desk = Desk(node("a", state="leading", **member), node("b", **member), {"name": "c", "state": "absent"})
    operator = Operator()
    operator.cluster = desk
    assert (found.words, found.call(operator, given), desk.asked) == (command, result, asked)


@pytest.mark.parametrize(
    "line, words",
    [
        ("cluster_status", "cluster"),
        ("set_cluster_name shop", "cluster-name"),
        ("forget_cluster_node rabbit@c", "forget"),
        ("await_online_quorum_plus_one", "cluster wait-safe-to-stop"),
        ("await_online_synchronized_mirror b", "cluster wait-safe-to-stop"),
        ("drain rabbit@c", "drain"),
        ("revive", "revive"),
        ("list_users", "users list"),
        ("add_user anna password=x", "users add"),
        ("set_permissions anna .* .* .*", "permissions set"),
        ("list_vhosts", "vhosts list"),
        ("purge_queue orders", "purge"),
    ],
)
def test_words_of_rabbitmq(line: str, words: str) -> None:
    """The night shift knows them; arguments have rabbitmqctl's order."""
    word, *items = line.split()
    name, given = _read(word, items, "/" if word == "set_permissions" else None)
    assert find(name, given).words == words


def test_each_word_of_rabbitmq_is_a_command() -> None:
    """Nothing is mapped to a command that there is no more."""
    for command, *action in RABBITMQCTL.values():
        assert action[0] in COMMANDS[command] if action else COMMANDS[command]


def test_a_word_behind_cluster_that_is_none() -> None:
    """The others are named."""
    expected = "cluster: unknown action 'rase-level', did you mean 'raise-level'.*expected one of wait-in-sync, "
    with pytest.raises(CommandError, match=expected):
        _read("cluster", ["rase-level"], None)


def test_which_drained_node_is_meant() -> None:
    """One has to be named where there are two, or none."""
    drained = {"is-drained": True}
    with pytest.raises(CommandError, match=r"which of a, b\?"):
        call(Desk(node("a", **drained), node("b", **drained)), "revive")
    with pytest.raises(CommandError, match="no node is drained"):
        call(Desk(node("a")), "revive")


def test_the_text_of_a_cluster() -> None:
    """A line for each fact, and for each node what tells whether it is well."""
    status = call(Desk(node("a"), {"name": "c", "state": "absent", "link": "h:7"}), "cluster")
    lines = as_text(status, "cluster").splitlines()
    assert re.fullmatch(r"state: node a is leading since 2026-11-2\d \d\d:\d\d:52[+-]\d\d:\d\d: it won", lines.pop(4))
    assert lines == [
        "leader: a",
        "term: 3",
        "agreed: 90",
        "insync: a, b",
        "nodes: ",
        "  name  state    is-linked  term  end  lag  reaches  addresses",
        "  a     in_sync  true       3     90   10   a b      amqp://h:1",
        "  c     absent",
    ]


def test_the_history_is_a_table_with_times() -> None:
    """In the time zone of the operator."""
    name, given = _read("cluster", ["history"], None)
    operator = Operator()
    operator.cluster = Desk(node("a"))
    text = as_text(find(name, given).call(operator, given), name)
    assert re.fullmatch(
        r"known: to node a since [-0-9]{10} [:0-9]{8}\S+\n"
        r"changes: *\n  at +what +node +term\n  [-0-9]{10} [:0-9]{8}\S+ +led +a +3",
        text,
    )
