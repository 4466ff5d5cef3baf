"""`leveret cluster etcd` and `leveret cluster recover`, with real files and a real etcd."""

import io
import random
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from etcd_servers import ETCD, WHY_NOT, EtcdServers, etcd_servers

from leveret.__main__ import main
from leveret.cli.cluster_command import _Recovery
from leveret.cluster.agreement.transactions import campaign
from leveret.cluster.agreement.view import AGREED, AgreedKey, InSync, NodeIdentity, NodeKey, Purpose, Transaction, View
from leveret.cluster.coordinator.errors import Unreachable
from leveret.cluster.coordinator.etcd import EtcdCoordinator
from leveret.cluster.coordinator.gateway import EtcdAccess, Gateway

IDS = {name: name.encode() * 16 for name in "abc"}
JOURNAL = b"\x07" * 16


def configuration(directory: Path, etcd: tuple[str, ...]) -> Path:
    """Of node a."""
    urls = ", ".join(f'"{url}"' for url in etcd)
    nodes = ", ".join(f'"{name}=127.0.0.1:{port}"' for port, name in enumerate("abc", 7001))
    file = directory / "node.toml"
    file.write_text(f'[cluster]\nnode = "a"\nnodes = [{nodes}]\netcd = [{urls}]\n')
    return file


def pairs_of_ports(count: int) -> list[int]:
    """Ports that are free with the one after them, below those that the system gives to clients."""
    found: list[int] = []
    for port in random.sample(range(20_000, 32_000, 2), 1000):
        with suppress(OSError), ExitStack() as held:
            for one in (port, port + 1):
                held.enter_context(socket.socket()).bind(("127.0.0.1", one))
            found.append(port)
        if len(found) == count:
            break
    return found


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str]]:
    """Exit code, and all lines that were printed."""
    code = main(["cluster", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, [*captured.out.splitlines(), *captured.err.splitlines()]


def test_files_of_an_etcd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder for each member, named as the node on its machine; nothing is overwritten."""
    file = tmp_path / "node.toml"
    file.write_text(
        '[cluster]\nnode = "a"\nnodes = ["a=10.0.0.1:5680", "b=10.0.0.2:5680", "c=10.0.0.3:5680"]\n'
        'etcd = ["http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.9"]\nsecret-file = "s"\n'
    )
    code, lines = run(capsys, "etcd", file, tmp_path / "out")
    assert lines[:2] == [str(tmp_path / "out/a/etcd.yml"), str(tmp_path / "out/a/leveret-etcd.service")]
    text = (tmp_path / "out/etcd3/etcd.yml").read_text()
    assert "listen-client-urls: http://127.0.0.1:2379,http://10.0.0.9:2379\n" in text
    assert "initial-cluster: a=http://10.0.0.1:2380,b=http://10.0.0.2:2380,etcd3=http://10.0.0.9:2380\n" in text
    assert "data-dir: /var/lib/leveret-etcd/etcd3\n" in text  # several members may be on one machine
    assert "can decide which node leads" in (tmp_path / "out/README").read_text()
    assert run(capsys, "etcd", file, tmp_path / "out")[0] == 1


@pytest.mark.parametrize(
    "etcd, why",
    [
        (("https://h:1",), "needs certificates"),
        (("http://h:1", "http://i:1"), "expected 3 URLs"),
        (("http://h:7", "http://h:8", "http://h:9"), "port 8 of h is needed twice"),
        (("http://h", "http://h:2381", "http://h:2379"), "port 2379 of h is needed twice"),
    ],
)
def test_an_etcd_that_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], etcd: tuple[str, ...], why: str
) -> None:
    """In words."""
    code, lines = run(capsys, "etcd", configuration(tmp_path, etcd), tmp_path / "out")
    assert code == 1 and why in lines[-1]


@pytest.mark.parametrize("typed, is_wanted", [("a\n", True), ("yes\n", False), ("\n", False), ("", False)])
def test_recovery_asks_on_a_line_of_its_own(
    typed: str, is_wanted: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the operator types is on the next one, and so is what comes of it; an input without a line is no yes."""
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    recovery = _Recovery(SimpleNamespace(), ["a", "b"])  # type: ignore[arg-type]
    assert recovery._is_confirmed(View(7), "a") is is_wanted
    said = capsys.readouterr().out
    assert said.endswith("\nType the node's name (a) to begin with it, anything else changes nothing:\n")


def test_a_plain_broker_has_no_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither command is for it."""
    file = tmp_path / "plain.toml"
    file.write_text("[broker]\n")
    assert run(capsys, "recover", file) == (2, [f"{file}: [cluster] is missing: this is not a node of a cluster"])


@pytest.mark.skipif(ETCD is None, reason=WHY_NOT)
def test_etcd_starts_with_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three members on this machine; their version is said."""
    urls = tuple(f"http://127.0.0.1:{port}" for port in pairs_of_ports(3))
    code, lines = run(capsys, "etcd", configuration(tmp_path, urls), tmp_path / "out")
    assert code == 0 and re.search(r"is version \d\S+, which can be used", lines[-1])
    members = []
    try:
        for number in (1, 2, 3):
            file = tmp_path / f"out/etcd{number}/etcd.yml"
            file.write_text(file.read_text().replace("/var/lib/leveret-etcd", str(tmp_path / f"data{number}")))
            with (tmp_path / "log").open("ab") as log:
                members.append(subprocess.Popen([str(ETCD), "--config-file", file], stdout=log, stderr=log))
        with closing(Gateway(EtcdAccess(urls[:1], connect_seconds=5, answer_seconds=5))) as gateway:
            while True:
                try:
                    gateway.read("/v3/kv/range", {"key": "YQ=="})
                    break
                except Unreachable:
                    for member in members:
                        with suppress(subprocess.TimeoutExpired):
                            assert member.wait(0.02) is None, (tmp_path / "log").read_text()
    finally:
        for member in members:
            member.kill()
            member.wait()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServers]:
    """One member."""
    if ETCD is None:
        pytest.skip(WHY_NOT)
    with etcd_servers(tmp_path) as servers:
        yield servers


def test_recover(
    etcd: EtcdServers, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists what each node has, and begins the cluster with one that has a journal, when it is told to twice."""
    file = configuration(tmp_path, etcd.endpoints)
    access = EtcdAccess(etcd.endpoints, answer_seconds=10)
    coordinators = {name: EtcdCoordinator(access, "leveret", 600) for name in "abc"}

    def register(name: str, journal: bytes | None, term: int, end: int) -> None:
        assert trio.run(coordinators[name].register, NodeKey(name, IDS[name], "h:1", journal, term, end))

    register("a", JOURNAL, 4, 90)
    register("b", None, 0, 1)
    assert run(capsys, "recover", file) == (
        0,
        [
            "leader: none",
            "in sync: etcd knows of none",
            f"node a: term 4, end 90, journal {JOURNAL.hex()} (id {IDS['a'].hex()})",
            f"node b: its directory is empty (id {IDS['b'].hex()})",
            "node c: absent",
            "a has the most: the highest term, and in it the highest end",
        ],
    )
    assert "the directory of node b is empty" in run(capsys, "recover", file, "b", "--yes")[1][-1]
    assert "node c is absent" in run(capsys, "recover", file, "c", "--yes")[1][-1]
    monkeypatch.setattr("builtins.input", lambda prompt: "b")
    code, lines = run(capsys, "recover", file, "a")
    assert code == 1 and lines[-1] == "nothing was changed"
    assert lines[-3] == "absent: c. What only they have is lost."
    monkeypatch.setattr("builtins.input", lambda prompt: "a")
    trio.run(coordinators["a"].transact, Transaction(Purpose.PROGRESS, (), ((AGREED, AgreedKey(6, 200)),)))
    assert run(capsys, "recover", file, "a")[1][-1] == "a begins the cluster"
    view = trio.run(coordinators["a"].read)
    assert view.insync is not None and view.insync == InSync(7, frozenset({IDS["a"]}), 0, 1, view.insync.revision)
    assert (view.journal, view.agreed) == (JOURNAL, None)
    assert "in sync: a" in run(capsys, "recover", file)[1]
    leading = campaign(NodeIdentity("a", IDS["a"], "h:1"), view.insync, None)
    assert trio.run(coordinators["a"].transact, leading)[0]
    code, lines = run(capsys, "recover", file, "a", "--yes")
    assert code == 1 and lines[-1] == "leveret cluster: a leads: there is nothing to recover"
    etcd.kill(0)
    code, lines = run(capsys, "recover", file)
    assert code == 1 and "refused" in lines[-1]
