"""A cluster is upgraded node by node while clients work, as docs/cluster.md tells an operator to do it.

The release before is the last commit of this repository whose programs know no level of the journal but their own: the
first ones with clusters were never released. The new release is this tree, and reads a level more by a switch of the
tests, since nothing in the journal is of a second level yet.
"""

import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest
from cluster_nodes import NAMES, ClusterNodes, Publisher, assert_each_once, cluster_nodes, drain, others, until
from etcd_servers import ETCD, WHY_NOT
from working_clients import WorkingClient, programs, working_clients

from leveret.__main__ import main
from leveret.journal.format.needs import LEVEL

ROOT = Path(__file__).parents[2]
RELEASE_BEFORE = "4e5fa303118c"
ODD = str(ROOT / "tests/support/odd_node.py")

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=WHY_NOT)]


@dataclass(frozen=True)
class Releases:
    """What stands before the command of a node of each release."""

    before: tuple[str, ...]
    this: tuple[str, ...] = (sys.executable, ODD, str(LEVEL + 1), "0")


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    """The release before is taken out of this repository."""
    archive = subprocess.run(["git", "archive", RELEASE_BEFORE], cwd=ROOT, capture_output=True)
    if archive.returncode:
        pytest.skip(f"commit {RELEASE_BEFORE} is not in this clone")
    place = tmp_path_factory.mktemp("release-before")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(place)
    before = ("env", f"PYTHONPATH={place}/src")
    where = [*before, sys.executable, "-c", "import leveret; print(leveret.__file__)"]
    assert subprocess.check_output(where, text=True).startswith(str(place))
    return Releases(before)


@pytest.fixture
def nodes(tmp_path: Path, releases: Releases) -> Iterator[ClusterNodes]:
    """Three nodes of the release before, with the usual timers."""
    with cluster_nodes(tmp_path, keys="") as nodes:
        nodes.commands = dict.fromkeys(NAMES, releases.before)
        nodes.start_all()
        nodes.await_in_sync()
        yield nodes


class Ctl:
    """`leveret ctl` of this release, through a node. `out`, `err`: of the last command."""

    def __init__(self, nodes: ClusterNodes, capsys: pytest.CaptureFixture[str]) -> None:
        self._nodes, self._capsys = nodes, capsys
        self.out = self.err = ""

    def __call__(self, through: str, *command: str, timeout_s: float = 60) -> int:
        self._capsys.readouterr()
        url = f"amqp://guest:guest@127.0.0.1:{self._nodes.ports[through]}/"
        code = main(["ctl", "--json", "--timeout", f"{timeout_s:g}", "--url", url, *command])
        self.out, self.err = self._capsys.readouterr()
        return code

    def levels(self) -> tuple[int, dict[str, int]]:
        """Of the journal, and what each node reads."""
        assert self("c", "cluster") == 0, self.err
        status = json.loads(self.out)
        return status["level"], {row["name"]: row["level"] for row in status["nodes"]}


def restart(name: str, nodes: ClusterNodes, ctl: Ctl, release: tuple[str, ...]) -> tuple[float, float]:
    """Stop a node when that is safe, and start another release. Returns when that began and ended."""
    other = next(one for one in NAMES if one != name)
    assert ctl(other, "cluster", "wait-safe-to-stop", name) == 0, ctl.err
    began_s = time.monotonic()
    assert nodes.stop(name) == 0
    nodes.commands[name] = release
    nodes.start(name)
    assert ctl(other, "cluster", "wait-in-sync") == 0, ctl.err
    return began_s, time.monotonic()


def await_confirms(clients: list[WorkingClient], count: int) -> None:
    """Wait until each client has so many confirms more."""
    wanted = [len(client.confirmed) + count for client in clients]

    def look() -> bool:
        for client in clients:
            assert not client.has_ended, (client.name, client.errors())
        return all(len(client.confirmed) >= least for client, least in zip(clients, wanted))

    until(look, "confirms of all clients")


def test_a_rolling_upgrade_with_six_clients_at_work(
    nodes: ClusterNodes, releases: Releases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Node by node, the leader last; then all again, as after a change of their files. Nothing is lost.

    How long there is no confirm is printed. The goal is 2 s a node, on a machine that does nothing else.
    """
    ctl = Ctl(nodes, capsys)
    (tmp_path / "clients").mkdir()
    commands = programs(tmp_path / "clients")
    with nodes.channel("a") as channel:
        for name in commands:
            channel.queue_declare(name, durable=True)
    gaps: dict[str, dict[str, float]] = {}
    with working_clients(commands, [nodes.ports[name] for name in NAMES]) as clients:
        await_confirms(clients, 20)
        for why in ("upgrade", "restart"):
            leader = nodes.leader()
            for name in (*(one for one in NAMES if one != leader), leader):
                began_s, ended_s = restart(name, nodes, ctl, releases.this)
                await_confirms(clients, 20)
                row = {client.name: round(client.longest_gap_s(began_s, ended_s), 2) for client in clients}
                assert max(row.values()) < 10, (name, row)
                role = "leader" if name == leader else "follower"
                gaps[f"{why} of the {role} {name}"] = {**row, "took": round(ended_s - began_s, 1)}
        confirmed = {client.name: {number for number, _ in client.confirmed} for client in clients}
    found = {name: [number for number, _ in drain(nodes, "b", name)] for name in commands}
    lost = {name: len(confirmed[name] - set(found[name])) for name in commands}
    twice = {name: len(found[name]) - len(set(found[name])) for name in commands}
    with capsys.disabled():
        print(f"\nrolling upgrade, {sum(map(len, confirmed.values()))} confirmed; lost: {lost}; twice: {twice}")
        print("longest time without a confirm, s:")
        print(*(f"  {name}: {json.dumps(row)}" for name, row in gaps.items()), sep="\n")
    assert not any(lost.values()), lost
    assert not any(count for name, count in twice.items() if name != "kombu"), "kombu alone publishes again"
    assert ctl.levels() == (LEVEL, dict.fromkeys(NAMES, LEVEL + 1))


def test_an_older_node_leads_until_the_level_is_raised(
    nodes: ClusterNodes, releases: Releases, capsys: pytest.CaptureFixture[str]
) -> None:
    """CL18. It joins, follows, leads. Later it copies: `ctl handover` and its log say why it does not lead."""
    ctl = Ctl(nodes, capsys)
    with Publisher(nodes, NAMES) as publisher:
        for name in ("b", "c"):
            restart(name, nodes, ctl, releases.this)
        assert nodes.leader() == "a" and ctl("b", "handover", "b") == 0
        publisher.await_confirms(20)
        publish_leased(nodes, "c", 20)
        assert ctl("c", "cluster", "raise-level") == 1
        why = f"not raised to level {LEVEL + 1}: node a (0.2.0) reads level {LEVEL}: upgrade it first"
        assert why in ctl.err
        assert ctl("c", "handover", "a") == 0, ctl.err
        publisher.await_confirms(20)
        assert nodes.leader() == "a", "the older release leads"
        with nodes.channel("b") as channel:
            leased = channel.queue_declare("jobs", passive=True).method
            assert leased.message_count == 20, "with what the newer one wrote of its leased queues"
        restart("a", nodes, ctl, releases.this)
        assert ctl("a", "cluster", "raise-level") == 0, ctl.err
        assert ctl.levels() == (LEVEL + 1, dict.fromkeys(NAMES, LEVEL + 1))
        leader = nodes.leader()
        older = others(leader)[0]
        restart(older, nodes, ctl, releases.before)
        publisher.await_confirms(20)
        assert ctl(leader, "handover", older) == 1
        assert f"node {older} cannot read the journal of a newer release" in ctl.err
        until(lambda: "needs a newer program than this one" in nodes.log(older), "what the older node says")
        put_unknown_feature(nodes, older, ctl, releases)
        publisher.await_confirms(20)
    assert_each_once(publisher, drain(nodes, leader))


def publish_leased(nodes: ClusterNodes, name: str, count: int) -> None:
    """Messages in a leased queue, whose records have owners and notes that the release before does not know."""
    with nodes.channel(name) as channel:
        channel.queue_declare("jobs", durable=True, arguments={"x-queue-type": "amps"})
        channel.confirm_delivery()
        for _ in range(count):
            channel.basic_publish("", "jobs", b"", pika.BasicProperties(delivery_mode=2))


def put_unknown_feature(nodes: ClusterNodes, name: str, ctl: Ctl, releases: Releases) -> None:
    """A node whose journal has what it does not know is restarted: it copies on."""
    assert nodes.stop(name) == 0
    path = nodes.data(name) / "format"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "needs": [*said["needs"], "time travel"]}) + "\n")
    nodes.commands[name] = releases.this
    nodes.start(name)
    assert ctl(name, "cluster", "wait-in-sync") == 0, ctl.err
    said_why = "the journal holds time travel, of which this release does not know: this node copies it"
    assert said_why in nodes.log(name)
