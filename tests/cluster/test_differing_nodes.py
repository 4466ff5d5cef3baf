"""Configurations that differ, with three real nodes: they are named, a reload reaches all, who differs leads last."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from cluster_nodes import NAMES, SHORT_LEASE, ClusterNodes, others, started, until
from etcd_servers import ETCD, WHY_NOT, etcd_servers

from leveret.__main__ import main

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=WHY_NOT)]

QUEUE = {"name": "imported", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
#: No file is read by itself: only reloads that are asked for count here.
KEYS = f'{SHORT_LEASE}\nsecret-file = "{{directory}}/secret"'


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    """With one file of definitions for all, and a secret."""
    directory = tmp_path_factory.mktemp("differing")
    for name, text in (("etcd/", ""), ("secret", "0123456789abcdef"), ("definitions", json.dumps({"queues": [QUEUE]}))):
        if name.endswith("/"):
            (directory / name).mkdir()
        else:
            (directory / name).write_text(text)
    (directory / "secret").chmod(0o600)
    with etcd_servers(directory / "etcd", 1) as etcd:
        nodes = ClusterNodes(directory, etcd, keys=KEYS.format(directory=directory))
        own = f'[broker]\nconfiguration-file-refresh-period = -1\ndefinitions = "{directory}/definitions"\n'
        nodes.extra = dict.fromkeys(NAMES, own)
        with started(nodes):
            yield nodes


def leveret(nodes: ClusterNodes, *arguments: str, at: str, code: int = 0) -> str:
    """What a command prints."""
    url = f"amqp://guest:guest@127.0.0.1:{nodes.ports[at]}/"
    printed = io.StringIO()
    command, *rest = arguments
    with redirect_stdout(printed), redirect_stderr(printed):
        found = main([command, "--url", url, *rest])
    assert found == code, printed.getvalue()
    return printed.getvalue()


def append(nodes: ClusterNodes, name: str, text: str) -> Path:
    """Write something behind a node's file, or to a file that a new node would have."""
    file = nodes.directory / name / "leveret.toml"
    file.write_text(file.read_text() + text)
    return file


def roles(nodes: ClusterNodes) -> tuple[str, str, str]:
    """The leader, and the two others."""
    leader = nodes.leader()
    first, second = others(leader)
    return leader, first, second


def test_differences_are_named_and_a_reload_reaches_all(nodes: ClusterNodes) -> None:
    """By a command at any node, in logs, and before a file is used."""
    leader, follower, other = roles(nodes)
    assert "differs" not in leveret(nodes, "ctl", "cluster", "differences", at=follower)
    for name in (leader, follower):
        append(nodes, name, "[[address-setting]]\nmatch = 'aged'\nexpiry-delay = 1234\n")
    found = leveret(nodes, "check", str(nodes.directory / follower / "leveret.toml"), "--cluster", at=other)
    assert f"differs from node {leader}, which leads: match 'aged' (at {follower} alone)" in found
    assert "1234" in leveret(
        nodes, "diff", "--live", str(nodes.directory / follower / "leveret.toml"), at=other, code=1
    )

    assert f"nodes: {leader}, {follower}, {other}" in leveret(nodes, "ctl", "reload", at=other)
    assert leveret(nodes, "diff", "--live", str(nodes.directory / follower / "leveret.toml"), at=other) == "no change\n"
    until(
        lambda: f"match 'aged' (at {leader} alone)" in leveret(nodes, "ctl", "cluster", "differences", at=follower),
        "what differs",
    )
    until(lambda: f"of node {other} differs from that of node {leader}: match 'aged'" in nodes.log(leader), "a warning")
    until(lambda: f"of node {leader} differs from that of node {other}: match 'aged'" in nodes.log(other), "a warning")
    rows = json.loads(leveret(nodes, "ctl", "--json", "cluster", at=follower))["nodes"]
    assert {row["name"]: row.get("differences") for row in rows} == {
        leader: None, follower: [], other: [f"match 'aged' (at {leader} alone)"],
    }  # fmt: skip


def test_a_node_whose_file_has_a_fault_says_so(nodes: ClusterNodes) -> None:
    """The others reload; the fault is told by whichever node is asked."""
    _, follower, other = roles(nodes)
    file = nodes.directory / other / "leveret.toml"
    before = file.read_text()
    append(nodes, other, "[limits]\nconnections = 'none'\n")
    told = leveret(nodes, "ctl", "reload", at=follower, code=1)
    assert f"node {other}: " in told and "connections" in told
    assert "connections" in leveret(nodes, "ctl", "cluster", "differences", at=other)
    file.write_text(before)
    leveret(nodes, "ctl", "reload", at=follower)


def test_a_node_that_differs_leads_last_and_definitions_are_imported_once(nodes: ClusterNodes) -> None:
    """Also where the leader's process is gone; what was deleted stays deleted."""
    leader, follower, other = roles(nodes)
    assert "imported" in leveret(nodes, "ctl", "queues", at=follower)
    leveret(nodes, "ctl", "delete-queue", "imported", at=follower)
    nodes.await_in_sync()
    until(lambda: _fingerprints(nodes)[leader] == _fingerprints(nodes)[follower] != _fingerprints(nodes)[other], "keys")
    nodes.kill(leader)
    assert nodes.leader(but=leader) == follower
    assert "imported" not in leveret(nodes, "ctl", "queues", at=other)
    nodes.start(leader)
    nodes.await_in_sync()


def _fingerprints(nodes: ClusterNodes) -> dict[str, str]:
    view = nodes.view()
    assert view is not None
    return {one.name: one.fingerprint for one in view.nodes}


def test_a_node_that_differs_leads_when_an_operator_says_so(nodes: ClusterNodes) -> None:
    """A new configuration is tried on one node first."""
    leader, follower, other = roles(nodes)
    different = [name for name in (follower, other) if _fingerprints(nodes)[name] != _fingerprints(nodes)[leader]]
    assert different
    leveret(nodes, "ctl", "handover", different[0], at=follower)
    assert nodes.leader() == different[0]
    until(lambda: "differs" in leveret(nodes, "ctl", "cluster", "differences", at=leader), "what differs now")
