"""Certificates of links and of etcd are read again with the configuration, for new connections."""

import ssl
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority

from leveret.serving import cluster_files
from leveret.serving.cluster_files import ClusterFiles, load_cluster
from leveret.serving.reloading import CurrentConfiguration, reload
from leveret.serving.tls_files import NO_TLS
from leveret.settings import Configuration, load_configuration

KEYS = """
[broker]
data = "data"
[cluster]
node = "a"
nodes = ["a=127.0.0.1:5680", "b=127.0.0.1:5681"]
etcd = ["https://127.0.0.1:2379"]
[cluster.tls]
ca = "{ca}"
certificate = "node.pem"
key = "node.key"
[cluster.etcd-tls]
ca = "{ca}"
certificate = "node.pem"
key = "node.key"
"""


class Node:
    """The files of a node."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.authority.issue("node", "127.0.0.1", common_name="first")
        self.file = str(directory / "leveret.toml")
        self.text = KEYS.format(ca=self.authority.file)
        found, faults, _ = load_cluster(self.load()[0])
        assert found is not None, faults
        self.files: ClusterFiles = found
        self.current = CurrentConfiguration(self.load()[0], NO_TLS)
        self.current.join(self.files)

    def load(self) -> tuple[Configuration, list[str]]:
        """As `serve` reads its files."""
        configuration, faults = load_configuration([(self.file, self.text)])
        return configuration, [str(fault) for fault in faults]

    def reload(self) -> tuple[str, ...]:
        """The faults of a reload."""
        return reload(self.load, None, self.current, None, needs_tls=False).faults

    def shown(self) -> str:
        """Whose certificate a link shows to one that is opened now."""
        assert self.files.tls.server is not None
        client = self.authority.trusting(self.directory / "node.pem")
        to_us, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        sides = (
            client.wrap_bio(to_client, to_us, server_hostname="127.0.0.1"),
            self.files.tls.server.wrap_bio(to_us, to_client, server_side=True),
        )
        for side in sides * 4:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
        certificate: Any = sides[0].getpeercert()
        return str([value for part in certificate["subject"] for name, value in part if name == "commonName"][0])


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_new_links_have_the_new_certificate(node: Node) -> None:
    """And new connections to etcd; the files are watched like those of [tls]."""
    etcd = node.files.etcd.tls
    assert node.shown() == "first"
    node.authority.issue("node", "127.0.0.1", common_name="second")
    assert {Path(name).name for name in node.current.certificates.files} >= {"node.pem", "node.key"}
    assert node.reload() == () and node.shown() == "second"
    assert node.files.etcd.tls not in (None, etcd)


def test_the_files_for_etcd_are_watched_too(node: Node) -> None:
    """Else a node loses etcd when the certificate expires with which it was started."""
    node.authority.issue("etcd", "127.0.0.1", common_name="a client of etcd")
    links, table, etcd = node.text.rpartition("[cluster.etcd-tls]")
    node.text = links + table + etcd.replace("node.", "etcd.")
    watched = {Path(name).name for name in node.files.marks(node.load()[0])}
    assert watched >= {"node.pem", "node.key", "etcd.pem", "etcd.key"}


def test_an_authority_that_was_removed_is_trusted_no_more(node: Node) -> None:
    """One that is added is taken at once, as when a new authority takes the place of another."""
    file = Path(node.authority.file)
    first = file.read_text()
    (node.directory / "other").mkdir()
    second = Authority(node.directory / "other").file.read_text()
    file.write_text(first + second)
    assert node.reload() == () and not node.files.tls.has_dropped
    file.write_text(second)
    assert node.reload() == () and node.files.tls.has_dropped
    assert node.files.tls.server is not None and node.files.tls.client is not None
    assert [one.cert_store_stats()["x509_ca"] for one in (node.files.tls.server, node.files.tls.client)] == [1, 1]


def test_a_certificate_of_a_node_that_was_removed_is_trusted_no_more(node: Node) -> None:
    """It stands there itself, and is no authority; told until the links have ended, whatever the next reload reads."""
    file = Path(node.authority.file)
    first, pinned = file.read_text(), (node.directory / "node.pem").read_text()
    file.write_text(first + pinned)
    assert node.reload() == () and not node.files.tls.has_dropped
    file.write_text("A word of explanation.\n" + first)
    for _ in range(2):
        assert node.reload() == () and node.files.tls.has_dropped


@pytest.mark.parametrize("name", ["node.pem", "node.key"])
def test_files_that_cannot_be_used_change_nothing(node: Node, name: str) -> None:
    """The reload names the file and the line."""
    node.authority.issue("node", "127.0.0.1", common_name="second")
    (node.directory / name).write_text("no certificate")
    (fault,) = node.reload()
    assert f"{node.file}:11: certificate" in fault and name.removesuffix(".key") in fault or "node.pem" in fault
    node.authority.issue("node", "127.0.0.1", common_name="third")
    assert node.reload() == () and node.shown() == "third"


def test_a_certificate_that_vanishes_while_it_is_read_is_a_fault(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a tool that deletes the old file before it writes the new one: the node goes on with what it has."""
    find_trusted = cluster_files._Files._trusted

    def vanish(files: Any) -> frozenset[str]:
        (node.directory / "node.pem").unlink()
        return find_trusted(files)

    monkeypatch.setattr(cluster_files._Files, "_trusted", vanish)
    (fault,) = node.reload()
    assert "node.pem' cannot be read: No such file or directory" in fault


def test_a_fault_elsewhere_changes_no_certificate(node: Node) -> None:
    """As everything else, they are put in force together or not at all."""
    node.authority.issue("node", "127.0.0.1", common_name="second")
    node.text += "[journal]\nfsync = 3\n"
    assert node.reload() and node.shown() == "first"


def test_a_node_whose_configuration_is_of_a_single_broker_now_keeps_its_files(node: Node) -> None:
    """It has to be started anew for that."""
    node.text = "[broker]\n"
    assert node.reload() == () and node.shown() == "first"
