"""TLS, users of etcd, secrets, and what strangers send: two clusters of real nodes, in one etcd."""

import http.client
import json
import random
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from certificates import Authority
from cluster_nodes import NAMES, SHORT_LEASE, ClusterNodes, Publisher, assert_each_once, ctl, drain, started, until
from etcd_servers import ETCD, WHY_NOT, EtcdServers

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=WHY_NOT)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates, and the two clusters."""
    return tmp_path_factory.mktemp("strangers")


@pytest.fixture(scope="module")
def authority(directory: Path) -> Authority:
    """Of the nodes and of etcd."""
    authority = Authority(directory)
    for name in ("etcd", *NAMES):
        authority.issue(name, "127.0.0.1")
    return authority


@pytest.fixture(scope="module")
def etcd(directory: Path, authority: Authority) -> Iterator[EtcdServers]:
    """One member, with TLS that asks for certificates, and with users."""
    certificate = directory / "etcd.pem"
    options = ("--cert-file", str(certificate), "--key-file", str(certificate.with_suffix(".key")))
    options += ("--client-cert-auth", "--trusted-ca-file", str(authority.file), "--bcrypt-cost", "4")
    servers = EtcdServers(directory, 1, options, "https")
    servers.tls = authority.trusting(certificate)
    (directory / "password").write_text("pass\n")
    (directory / "password").chmod(0o600)
    try:
        servers.start_all()
        servers.enable_users("leveret", "pass", "/leveret/")
        yield servers
    finally:
        servers.close()


def etcd_keys(directory: Path, authority: Authority) -> str:
    """Keys of [cluster] and [cluster.etcd-tls]."""
    return (
        f'etcd-user = "leveret"\netcd-password-file = "{directory}/password"\n'
        f'[cluster.etcd-tls]\nca = "{authority.file}"\ncertificate = "{directory}/a.pem"\nkey = "{directory}/a.key"\n'
    )


@pytest.fixture(scope="module")
def first(directory: Path, authority: Authority, etcd: EtcdServers) -> Iterator[ClusterNodes]:
    """A cluster with TLS between nodes."""
    (directory / "first").mkdir()
    nodes = ClusterNodes(directory / "first", etcd, keys=f"{SHORT_LEASE}\n{etcd_keys(directory, authority)}")
    for name in NAMES:
        tls = f'ca = "{authority.file}"\ncertificate = "{directory}/{name}.pem"\nkey = "{directory}/{name}.key"\n'
        nodes.extra[name] = f"[cluster.tls]\n{tls}"
    with started(nodes):
        yield nodes


@pytest.fixture(scope="module")
def second(directory: Path, authority: Authority, etcd: EtcdServers) -> Iterator[ClusterNodes]:
    """A cluster of another name, with a secret."""
    place = directory / "second"
    place.mkdir()
    for name, secret in (("secret", "0123456789abcdef"), ("wrong", "0123456789abcdeg")):
        (place / name).write_text(secret)
        (place / name).chmod(0o600)
    keys = f'{SHORT_LEASE}\nsecret-file = "{place}/secret"\n{etcd_keys(directory, authority)}'
    with started(ClusterNodes(place, etcd, keys=keys, cluster="u")) as nodes:
        yield nodes


def test_two_clusters_in_one_etcd(first: ClusterNodes, second: ClusterNodes) -> None:
    """TLS and a secret, TLS and users of etcd: a takeover in one of them, and nothing happens in the other."""
    leaders = [nodes.leader() for nodes in (first, second)]
    with Publisher(first, NAMES) as publisher, Publisher(second, (leaders[1],)) as other:
        for one in (publisher, other):
            one.await_confirms(20)
        first.kill(leaders[0])
        assert first.leader(but=leaders[0])
        publisher.await_confirms(20)
        first.start(leaders[0])
        first.await_in_sync()
        other.await_confirms(20)
    assert second.leader() == leaders[1] and "in term 2" not in second.log(leaders[1])
    assert_each_once(publisher, drain(first, leaders[0]))
    assert_each_once(other, drain(second, leaders[1]))


def test_http_through_a_follower(first: ClusterNodes) -> None:
    """The leader's end of such a client is no TCP socket, as TLS of the link ends there."""
    name = next(one for one in NAMES if one != first.leader())
    first.kill(name)
    first.start(name)
    output = first.processes[name].stdout
    assert output is not None
    port = int(output.readline().rpartition(":")[2].strip("/\n"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(connection):
        connection.request("GET", "/api/overview", headers={"authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        assert connection.getresponse().status == 200
    first.await_in_sync()


def test_a_wrong_secret(second: ClusterNodes, directory: Path) -> None:
    """It is not let in, and both sides say so; the others go on."""
    leader = second.leader()
    name = next(one for one in NAMES if one != leader)
    keys = second.keys
    second.kill(name)
    second.keys = keys.replace("/secret", "/wrong")
    with Publisher(second, (leader,)) as publisher:
        second.start(name)
        until(lambda: name not in second.in_sync(), "the node out of the set")
        publisher.await_confirms(20)
        until(lambda: "secret" in second.log(name), "what it says of its secret")
        assert "secret" in second.log(leader)
        second.kill(name)
        second.keys = keys
        second.start(name)
        second.await_in_sync()
    assert_each_once(publisher, drain(second, leader))


@pytest.mark.parametrize("which", ["first", "second"])
def test_hostile_octets(which: str, request: pytest.FixtureRequest) -> None:
    """At the links of all nodes, with TLS and without: no node is disturbed."""
    nodes: ClusterNodes = request.getfixturevalue(which)
    chance = random.Random(7)
    said = {name: len(nodes.log(name)) for name in NAMES}
    with Publisher(nodes, NAMES) as publisher:
        publisher.await_confirms(10)
        open_ones = []
        for name in NAMES:
            for octets in (
                b"", b"\0", b"\xff" * 5, b"\0\0\0\x05\x01", b"\x7f\xff\xff\xff\x01", b"GET / HTTP/1.1\r\n\r\n",
                b"AMQP\0\0\x09\x01", b"\x16\x03\x01\x02\0" + bytes(100), b"\0\0\0\0" * 1000, chance.randbytes(100_000),
                *(chance.randbytes(chance.randrange(200)) for _ in range(40)),
            ):  # fmt: skip
                one = socket.create_connection(("127.0.0.1", nodes.links[name]))
                open_ones.append(one)
                with suppress(OSError):
                    one.sendall(octets)
        publisher.await_confirms(10)
        for one in open_ones:
            one.close()
        publisher.await_confirms(10)
        nodes.await_in_sync()
    assert_each_once(publisher, drain(nodes, "a"))
    for name in NAMES:
        assert "Traceback" not in nodes.log(name)[said[name] :]


def test_definitions_and_reload(second: ClusterNodes, directory: Path) -> None:
    """Both through a follower: what was imported is there after a takeover; a reload is the leader's."""
    leader = second.leader()
    follower = next(one for one in NAMES if one != leader)
    definitions = directory / "definitions.json"
    queue = {"name": "imported", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    definitions.write_text(json.dumps({"queues": [queue], "users": [{"name": "eve", "password": "x", "tags": ""}]}))
    assert ctl(second, follower, "definitions", "import", str(definitions))[0] == 0
    for name in NAMES:
        file = second.directory / name / "leveret.toml"
        file.write_text(file.read_text() + "[[address-setting]]\nmatch = 'aged'\nexpiry-delay = 1234\n")
        second.signal(name, signal.SIGHUP)
    until(lambda: "1234" in ctl(second, follower, "explain", "aged")[1], "the reload")
    second.kill(leader)
    taking_over = second.leader(but=leader)
    assert "imported" in ctl(second, taking_over, "queues")[1]
    assert "eve" in ctl(second, taking_over, "users")[1]
    assert "1234" in ctl(second, taking_over, "explain", "aged")[1]
    second.start(leader)
    second.await_in_sync()
