"""EXTERNAL as RabbitMQ has it: the same questions to both brokers, the same answers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker_process import leveret_serve
from certificates import Authority, configuration
from pamqp import commands, frame

from leveret.interop.brokers.peers import WITHOUT_RABBITMQ, find_rabbitmq, rabbitmq
from leveret.interop.wire.loopback import free_ports

HELLO = b"AMQP\x00\x00\x09\x01"
RABBITMQ = pytest.param(
    "rabbitmq",
    marks=[pytest.mark.peer, pytest.mark.skipif(find_rabbitmq() is None, reason=WITHOUT_RABBITMQ)],
)
BROKERS = ["leveret", RABBITMQ]


@contextmanager
def external_broker(kind: str, directory: Path, ca: Path, login_from: str) -> Iterator[tuple[int, int]]:
    """Ports: plain, TLS. Certificates of clients are looked at where they are shown."""
    if kind == "leveret":
        said = configuration(client_ca=ca.name, verify="optional", ssl_cert_login_from=login_from)
        config = '[broker]\nmechanisms = ["PLAIN", "EXTERNAL"]\n' + said
        with leveret_serve(directory, config=config, listen=("127.0.0.1:0", "amqps://127.0.0.1:0")) as broker:
            plain, tls = (int(line.rstrip("/").rpartition(":")[2]) for line in broker.lines)
            yield plain, tls
        return
    (port,) = free_ports(1)
    config = "\n".join(
        [
            f"listeners.ssl.1 = 127.0.0.1:{port}",
            f"ssl_options.cacertfile = {ca}",
            f"ssl_options.certfile = {directory / 'server.pem'}",
            f"ssl_options.keyfile = {directory / 'server.key'}",
            "ssl_options.verify = verify_peer",
            "ssl_options.fail_if_no_peer_cert = false",
            "auth_mechanisms.1 = PLAIN",
            "auth_mechanisms.2 = EXTERNAL",
            f"ssl_cert_login_from = {login_from.replace('-', '_')}",
            "",
        ]
    )
    with rabbitmq(config=config, plugins=["rabbitmq_auth_mechanism_ssl"]) as peer:
        while True:  # it listens in the clear first
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                pass
        yield peer.port, port


def ask(wire: socket.socket, mechanism: str, response: str = "") -> tuple[set[str], str]:
    """What is offered, and what a login comes to: the name of a method or the text of a close."""
    wire.settimeout(60)
    wire.sendall(HELLO)
    start = b""
    while not start.endswith(b"\xce"):
        start += wire.recv(4096)
    properties = {"capabilities": {"authentication_failure_close": True}}
    wire.sendall(frame.marshal(commands.Connection.StartOk(properties, mechanism, response, "en_US"), 0))
    offered = set(frame.unmarshal(start)[2].mechanisms.split())
    try:
        answer = wire.recv(4096)
    except ConnectionResetError:
        answer = b""
    if not answer:
        return offered, "silence"
    method = frame.unmarshal(answer)[2]
    return offered, method.reply_text if isinstance(method, commands.Connection.Close) else method.name


@pytest.mark.parametrize("kind", BROKERS)
def test_external(tmp_path: Path, kind: str) -> None:
    """By common name: guest gets in, whatever it responds; nobody, and no certificate, are 403; not without TLS."""
    authority = Authority(tmp_path)
    authority.issue()
    guest = authority.issue("guest", "g", common_name="guest")
    nobody = authority.issue("nobody", "n", common_name="nobody")
    refused = (
        "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. "
        "For details see the broker logfile."
    )
    with external_broker(kind, tmp_path, authority.file, "common-name") as (plain, tls):
        for certificate, response, answer in (
            (guest, "", "Connection.Tune"),
            (guest, "somebody else", "Connection.Tune"),
            (nobody, "", refused),
            (None, "", refused),
        ):
            wire = socket.create_connection(("127.0.0.1", tls))
            with authority.trusting(certificate).wrap_socket(wire, server_hostname="localhost") as client:
                assert ask(client, "EXTERNAL", response) == ({"PLAIN", "EXTERNAL"}, answer)
        with socket.create_connection(("127.0.0.1", plain)) as wire:
            assert ask(wire, "EXTERNAL") == ({"PLAIN"}, "silence")


@pytest.mark.parametrize("kind", BROKERS)
def test_external_by_alternative_name(tmp_path: Path, kind: str) -> None:
    """The first DNS name."""
    authority = Authority(tmp_path)
    authority.issue()
    certificate = authority.issue("client", "guest", "another", common_name="whoever")
    with external_broker(kind, tmp_path, authority.file, "subject-alternative-name") as (_, tls):
        wire = socket.create_connection(("127.0.0.1", tls))
        with authority.trusting(certificate).wrap_socket(wire, server_hostname="localhost") as client:
            assert ask(client, "EXTERNAL") == ({"PLAIN", "EXTERNAL"}, "Connection.Tune")
