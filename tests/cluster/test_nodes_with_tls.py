"""Clients with TLS at any of three real nodes: EXTERNAL, health behind a prefix, new certificates, a takeover."""

import http.client
import json
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pika
import pytest
from certificates import Authority
from cluster_nodes import LOST, NAMES, SHORT_LEASE, ClusterNodes, others, started, until
from etcd_servers import ETCD, WHY_NOT, etcd_servers
from pika.credentials import ExternalCredentials

from leveret.interop.wire.loopback import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=WHY_NOT)]

#: Behind the keys of [management].
KEYS = """path-prefix = "/mq"
[broker]
mechanisms = ["PLAIN", "EXTERNAL"]
[tls]
certificate = "{directory}/{name}.pem"
key = "{directory}/{name}.key"
client-ca = "{ca}"
verify = "optional"
"""


class TlsNodes(ClusterNodes):
    """Each with a certificate of its own name."""

    authority: Authority
    amqps: dict[str, int]
    https: dict[str, int]

    def certify(self, name: str, common_name: str) -> None:
        """A new certificate for a node."""
        self.authority.issue(name, "localhost", "127.0.0.1", common_name=common_name)

    def context(self, client: str | None = None) -> ssl.SSLContext:
        """Of a client with a certificate, or without one."""
        certificate = None if client is None else self.authority.issue("client", "c", common_name=client)
        return self.authority.trusting(certificate)

    def log_in(self, name: str) -> pika.BlockingConnection:
        """A connection with EXTERNAL to a node, as soon as it is served."""
        given = pika.ConnectionParameters(
            "127.0.0.1", self.amqps[name], credentials=ExternalCredentials(),
            ssl_options=pika.SSLOptions(self.context("guest"), "127.0.0.1"), stack_timeout=30, socket_timeout=30,
        )  # fmt: skip

        def look() -> pika.BlockingConnection | None:
            try:
                return pika.BlockingConnection(given)
            except LOST:
                return None

        return until(look, f"a connection to {name}")

    def get(self, name: str, path: str) -> tuple[int, bytes]:
        """Status and body of an answer over https."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.https[name], timeout=60, context=self.context())
        with closing(connection):
            connection.request("GET", path, headers={"authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def shown(self, name: str) -> str:
        """The name in the certificate that a node shows."""
        with self.context().wrap_socket(_connected(self.amqps[name]), server_hostname="127.0.0.1") as sock:
            certificate: Any = sock.getpeercert()
            return str(dict(part[0] for part in certificate["subject"])["commonName"])


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsNodes]:
    directory = tmp_path_factory.mktemp("tls")
    (directory / "etcd").mkdir()
    (directory / "secret").write_text("0123456789abcdef")
    (directory / "secret").chmod(0o600)
    with etcd_servers(directory / "etcd", 1) as etcd:
        nodes = TlsNodes(directory, etcd, keys=f'{SHORT_LEASE}\nsecret-file = "{directory}/secret"')
        nodes.authority = Authority(directory)
        ports = free_ports(2 * len(NAMES))
        nodes.amqps, nodes.https = dict(zip(NAMES, ports)), dict(zip(NAMES, ports[len(NAMES) :]))
        for name in NAMES:
            nodes.certify(name, f"node-{name}")
            nodes.listen[name] = (f"amqps://127.0.0.1:{nodes.amqps[name]}",)
            nodes.console_listen[name] = f"https://127.0.0.1:{nodes.https[name]}"
            nodes.extra[name] = KEYS.format(name=name, directory=directory, ca=nodes.authority.file)
        with started(nodes):
            yield nodes


def a_follower(nodes: TlsNodes) -> str:
    leader = nodes.leader()
    return others(leader)[0]


def test_external_at_each_node(nodes: TlsNodes) -> None:
    """The user is the certificate's, and lists show where the client is connected and with what."""
    for name in NAMES:
        connection = nodes.log_in(name)
        with closing(connection):
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.basic_publish("", "q", name)

            def seen(name: str = name) -> Any:
                status, body = nodes.get(a_follower(nodes), "/mq/api/connections")
                assert status == 200, body
                return [one for one in json.loads(body) if one["node"] == f"rabbit@{name}" and one["ssl"]]

            (shown,) = until(seen, "the connection")
            assert (shown["user"], shown["auth_mechanism"]) == ("guest", "EXTERNAL")
            assert "CN=guest" in shown["peer_cert_subject"] and shown["ssl_protocol"].startswith("TLSv1.")


def test_health_and_metrics_of_each_node(nodes: TlsNodes) -> None:
    """Its own, with TLS, and checks behind the prefix; the leader asks for a login at its metrics."""
    for name in NAMES:
        for path in ("/mq/api/health/checks/is-in-service", "/health/live", "/health/ready", "/metrics"):
            assert nodes.get(name, path)[0] == 200, (name, path, nodes.log(name))
        page = nodes.get(name, "/metrics")[1].decode()
        assert f'rabbitmq_node="rabbit@{name}"' in page
    assert nodes.get(a_follower(nodes), "/api/health/checks/is-in-service")[0] == 404


def test_a_follower_takes_new_certificates(nodes: TlsNodes) -> None:
    """New connections see them; one that is there goes on."""
    name = a_follower(nodes)
    assert nodes.shown(name) == f"node-{name}"
    connection = nodes.log_in(name)
    with closing(connection):
        nodes.certify(name, "renewed")
        nodes.signal(name, signal.SIGHUP)
        until(lambda: nodes.shown(name) == "renewed", "the new certificate")
        connection.channel().queue_declare("q", durable=True, passive=True)


def test_clients_with_tls_are_held_until_a_node_leads(nodes: TlsNodes) -> None:
    """At each node, also at the one that leads next: it has their handshakes behind it."""
    before = nodes.leader()
    nodes.kill(before)
    connections = [nodes.log_in(name) for name in NAMES if name != before]
    assert nodes.leader(but=before)
    for connection in connections:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, passive=True)
        connection.close()
    nodes.start(before)
    nodes.await_in_sync()
