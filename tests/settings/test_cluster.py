"""[cluster]: its keys, what must hold between them, and what is probably a mistake. Source: docs/cluster.md."""

import json
from pathlib import Path

import pytest

from leveret.__main__ import main
from leveret.settings import Configuration, load_configuration
from leveret.settings.declared.cluster import ClusterNode, cluster_name_of, node_of, nodes_of, own_host_port

WHOLE = """\
[cluster]
node = "b"
nodes = ["a=127.0.0.1:7001", "b=[::1]:7002", "c=localhost:7003"]
etcd = ["http://127.0.0.1:2379/", "https://[::1]:2380", "http://localhost"]
"""


def load(text: str) -> tuple[Configuration, list[str]]:
    """With its faults as lines."""
    configuration, faults = load_configuration([("f", text)])
    return configuration, list(map(str, faults))


def test_a_cluster_is_read() -> None:
    """Names, addresses and defaults; where it listens, unless it is said."""
    configuration, faults = load(WHOLE)
    keys = configuration.cluster
    assert (faults, configuration.is_clustered, configuration.warnings) == ([], True, ())
    nodes = (("a", "127.0.0.1", 7001), ("b", "::1", 7002), ("c", "localhost", 7003))
    assert nodes_of(keys) == tuple(ClusterNode(*node) for node in nodes)
    assert own_host_port(keys) == ("::1", 7002)
    assert own_host_port(load(WHOLE + 'listen = "127.0.0.2:1"')[0].cluster) == ("127.0.0.2", 1)
    assert keys.etcd == ("http://127.0.0.1:2379", "https://[::1]:2380", "http://localhost")
    assert (keys.name, keys.min_in_sync, keys.lease_ms, keys.link_backlog) == ("leveret", 2, 6000, 64 * 1024**2)
    assert load('[broker]\nproduct = "x"')[0].is_clustered is False


def test_the_names_for_tools() -> None:
    """rabbit@NAME, or the name itself if it has an @; without [cluster] those of a broker alone."""
    configuration, _ = load(WHOLE)
    assert (node_of(configuration), cluster_name_of(configuration)) == ("rabbit@b", "leveret")
    configuration, faults = load(WHOLE.replace('"b', '"rabbit@shop-1') + 'name = "shop"')
    assert (faults, node_of(configuration), cluster_name_of(configuration)) == ([], "rabbit@shop-1", "shop")
    assert cluster_name_of(load(WHOLE + '[broker]\ncluster-name = "mine"')[0]) == "mine"
    configuration, _ = load("")
    assert (node_of(configuration), cluster_name_of(configuration)) == ("rabbit@localhost", "leveret@localhost")


@pytest.mark.parametrize(
    "line, fault",
    [
        ('nodes = ["b=127.0.0.1:1", "rabbit@b=127.0.0.1:2"]', "f:3: nodes: two nodes are 'rabbit@b' for tools"),
        ('node = "d"', "f:2: node: 'd' is not among nodes: a, b, c"),
        ('nodes = ["b=127.0.0.1:1", "b=127.0.0.1:2"]', "f:3: nodes: two nodes are called 'b'"),
        ('nodes = ["a=127.0.0.1:1", "b=127.0.0.1:1"]', "f:3: nodes: two nodes have the address 127.0.0.1:1"),
        ('nodes = ["b=0.0.0.0:1"]', "f:3: nodes: other nodes cannot connect to 0.0.0.0: it is for listen alone"),
        ("min-in-sync = 4", "f:5: min-in-sync: 4 nodes cannot be in sync, there are 3"),
        ('etcd-user = "u"', "f:1: etcd-password-file: is missing, etcd-user needs it"),
        (
            'nodes = ["a=127.0.0.1:7001", "b=10.0.0.2:7002"]',
            "f:1: secret-file: is missing: 10.0.0.2:7002 is outside loopback, where anybody could join: expected a "
            "secret-file, or [cluster.tls]",
        ),
        (
            'listen = "0.0.0.0:7002"',
            "f:1: secret-file: is missing: 0.0.0.0:7002 is outside loopback, where anybody could join: expected a "
            "secret-file, or [cluster.tls]",
        ),
        (
            '[cluster.tls]\ncertificate = "c.pem"',
            "f:6: ca: is missing, nodes show each other their certificates",
        ),
        ('[cluster.etcd-tls]\nkey = "c.pem"', "f:6: certificate: is missing, key belongs to it"),
        (
            '[journal]\nfsync = "interval"',
            "f:6: fsync: is 'interval', a node of a cluster needs \"commit\": confirmed messages must be on disk",
        ),
        ('[broker]\ndata = ""', "f:6: data: is empty, a node of a cluster needs a data directory"),
    ],
)
def test_what_cannot_be(line: str, fault: str) -> None:
    """With the line of the key, else of the table."""
    key = line.partition(" ")[0]
    kept = [one for one in WHOLE.splitlines() if one.partition(" ")[0] != key]
    place = next((at for at, one in enumerate(WHOLE.splitlines()) if one.partition(" ")[0] == key), len(kept))
    assert fault in load("\n".join([*kept[:place], line, *kept[place:]]))[1]


def test_an_empty_table_is_a_cluster_without_all_that_it_needs() -> None:
    """Each is named at once."""
    configuration, faults = load("[cluster]")
    assert configuration.is_clustered
    assert [fault.split(" ")[:3] for fault in faults] == [["f:1:", "etcd:", "is"], ["f:1:", "nodes:", "is"]]


@pytest.mark.parametrize(
    "line, why",
    [
        ('node = "a/b"', "a name of at most 63 letters"),
        ('node = "a@_b"', "each part begins with a letter or digit"),
        ('name = "_a"', "that begins with a letter or digit"),
        ('nodes = ["a=h"]', "a list of nodes"),
        ('nodes = ["a=h:70000"]', "a list of nodes"),
        ('listen = "h"', 'an address "HOST:PORT"'),
        ('listen = "a..b:7000"', 'an address "HOST:PORT"'),
        (f'nodes = ["a={"h" * 64}.example:7000"]', "a list of nodes"),
        ('etcd = ["127.0.0.1:2379"]', "a list of http or https URLs without a path"),
        ('etcd = ["http://user:pw@h:1"]', "a list of http or https URLs without a path"),
        ('etcd = ["http://a..b:2379"]', "a list of http or https URLs without a path"),
        ('etcd = ["http://h:0"]', "a list of http or https URLs without a path"),
        ('etcd = ["http://h:65536"]', "a list of http or https URLs without a path"),
        ('lease = "1s"', "a duration of at least 2s"),
        ('lease = "soon"', "at least 2s"),
        ("suspend-after = 99", "a duration of at least 100ms"),
        ('link-backlog = "1KiB"', "at least 1048576"),
        ("copy-rate = 100", "at least 1MiB a second, or 0 for no limit"),
        ('copy-rate = "fast"', "at least 1MiB a second, or 0 for no limit"),
        ("min-in-sync = 0", "an integer from 1 to 16"),
        ('[cluster.tls]\ncertificat = "x"', "did you mean 'certificate'?"),
        ("tls = 1", "expected a table [cluster.tls]"),
    ],
)
def test_values_that_are_not_right(line: str, why: str) -> None:
    """Each says what is expected."""
    assert any(why in fault for fault in load(f"[cluster]\n{line}")[1])


def test_a_secret_or_tls_lets_nodes_be_elsewhere() -> None:
    """Either."""
    outside = WHOLE.replace("127.0.0.1:7001", "10.0.0.1:7001")
    assert load(outside + 'secret-file = "s"')[1] == []
    assert load(outside + '[cluster.tls]\nca = "a"\ncertificate = "c"')[1] == []


@pytest.mark.parametrize(
    "line, warning",
    [
        ("min-in-sync = 1", "min-in-sync: with 1, a confirmed message may be on one disk alone, and is lost with it"),
        ("min-in-sync = 3", "with 3 nodes, publishers are blocked while one of them is away"),
        ('suspend-after = "6s"', "suspend-after: is not below lease"),
        ('[management]\nnode = "rabbit@x"', "node: does nothing on a node of a cluster"),
    ],
)
def test_what_is_probably_a_mistake(line: str, warning: str) -> None:
    """A warning, and no fault."""
    configuration, faults = load(WHOLE + line)
    assert faults == []
    assert [one for one in configuration.warnings if warning in one] != []


def test_explain_shows_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each value with its line, and defaults in the units that people write."""
    file = tmp_path / "f.toml"
    file.write_text(WHOLE)
    assert main(["explain", str(file), "[cluster]"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["node", "=", '"b"', f"{file}:2:", "[cluster]"] in lines
    assert ["lease", "=", '"6s"', "default"] in lines
    assert ["transfer-after", "=", '"50ms"', "default"] in lines
    assert main(["explain", "--json", str(file), "[cluster.tls]"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {"name": "ca", "value": None, "rule": "default"}
    file.write_text("[management]\ntrusted-proxies = '10.0.0.0/8'\n")
    for options in ([], ["--json"]):
        assert main(["explain", *options, str(file), "[management]"]) == 0
        assert '["10.0.0.0/8"]' in capsys.readouterr().out
