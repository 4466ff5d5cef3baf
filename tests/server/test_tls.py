"""TLS through a real process and real clients: versions, certificates on both sides, EXTERNAL, goodbyes."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aio_pika
import pika
import pika.exceptions
import pytest
import trustme
from broker_process import BrokerProcess, leveret_serve
from certificates import Authority, configuration

from leveret.__main__ import main

TLS = "amqps://127.0.0.1:0"
BOTH = ("127.0.0.1:0", TLS)
HELLO = b"AMQP\x00\x00\x09\x01"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Whose certificate the broker of the test has."""
    authority = Authority(tmp_path)
    authority.issue()
    return authority


def port_of(broker: BrokerProcess, index: int = -1) -> int:
    """Of a listener, by its ready line."""
    return int(broker.lines[index].rstrip("/").rpartition(":")[2])


@contextmanager
def connected(port: int, context: ssl.SSLContext, **more: Any) -> Iterator[pika.BlockingConnection]:
    """pika over TLS."""
    options = pika.SSLOptions(context, "localhost")
    parameters = pika.ConnectionParameters("127.0.0.1", port, ssl_options=options, **more)
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


def round_trip(connection: pika.BlockingConnection, body: bytes = b"hello, hare") -> None:
    """A message through a queue."""
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("tls")
    channel.basic_publish("", "tls", body)
    assert channel.basic_get("tls", auto_ack=True)[2] == body


def secured(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A bare TLS connection."""
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=60), server_hostname="localhost")


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_pika_over_tls(tmp_path: Path, authority: Authority, version: str) -> None:
    """Both versions, bodies of many records; the ready line has the scheme and the real port."""
    newest = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}[version]
    context = authority.trusting(newest=newest)
    with leveret_serve(tmp_path, config=configuration(), listen=BOTH) as broker:
        assert broker.lines[0].startswith("leveret ready amqp://127.0.0.1:")
        assert broker.lines[1].startswith("leveret ready amqps://127.0.0.1:")
        with secured(port_of(broker), context) as bare:
            assert bare.version() == version
            assert bare.compression() is None
        with connected(port_of(broker), context) as connection:
            for size in (0, 1, 16_384, 5_000_000):
                round_trip(connection, bytes(size))
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port_of(broker, 0))) as plain:
            round_trip(plain)
        assert broker.stop() == 0
        assert "WARNING" not in broker.log().replace("everything is kept in memory", "")


def test_aio_pika_over_tls(tmp_path: Path, authority: Authority) -> None:
    """By URL, as its users write it."""

    async def run(port: int) -> None:
        url = f"amqps://guest:guest@localhost:{port}/?cafile={authority.file}"
        async with await aio_pika.connect_robust(url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("greetings")
            bodies = [bytes([number]) * 10_000 for number in range(100)]
            for body in bodies:
                await channel.default_exchange.publish(aio_pika.Message(body), routing_key="greetings")
            assert [(await queue.get(no_ack=True)).body for _ in bodies] == bodies

    with leveret_serve(tmp_path, config=configuration(), listen=(TLS,)) as broker:
        asyncio.run(run(port_of(broker)))


def test_a_consumer_over_tls_that_does_not_read(tmp_path: Path, authority: Authority) -> None:
    """What waits for it is bounded, others go on; once it reads, everything comes, in order."""
    with leveret_serve(tmp_path, config=configuration(), listen=(TLS,)) as broker:
        port, context = port_of(broker), authority.trusting()
        with connected(port, context, heartbeat=0) as slow, connected(port, context) as connection:
            channel = connection.channel()
            channel.queue_declare("flood")
            for number in range(3_000):
                channel.basic_publish("", "flood", number.to_bytes(4, "big") + bytes(10_000))
            got: list[int] = []
            consumer = slow.channel()
            consumer.basic_consume("flood", lambda *delivery: got.append(int.from_bytes(delivery[3][:4], "big")), True)
            round_trip(connection)
            while len(got) < 3_000:
                slow.process_data_events(time_limit=1)
            assert got == list(range(3_000))


@pytest.mark.parametrize(
    "minimum, newest, is_served",
    [("1.2", "TLSv1_1", False), ("1.2", "TLSv1_2", True), ("1.3", "TLSv1_2", False), ("1.3", "TLSv1_3", True)],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1:DeprecationWarning")  # how else to ask for what is too old
def test_the_minimum_version(tmp_path: Path, authority: Authority, minimum: str, newest: str, is_served: bool) -> None:
    """1.2 unless 1.3 is asked for; what is older is refused with a line that says so."""
    context = authority.trusting(newest=ssl.TLSVersion[newest])
    if newest == "TLSv1_1":
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.set_ciphers("ALL:@SECLEVEL=0")
    with leveret_serve(tmp_path, config=configuration(minimum=minimum), listen=(TLS,)) as broker:
        if is_served:
            secured(port_of(broker), context).close()
        else:
            with pytest.raises(ssl.SSLError):
                secured(port_of(broker), context)
            broker.wait_for_log("TLS: handshake: the peer offers no version of TLS that is new enough")


def test_old_ciphers_are_not_taken(tmp_path: Path, authority: Authority) -> None:
    """Under TLS 1.2: no CBC, and no key exchange without forward secrecy, which RabbitMQ still offers."""
    with leveret_serve(tmp_path, config=configuration(), listen=(TLS,)) as broker:
        context = authority.trusting(newest=ssl.TLSVersion.TLSv1_2)
        for ciphers in ("ECDHE-ECDSA-AES256-SHA384:ECDHE-RSA-AES256-SHA384", "DHE", "RSA"):
            context.set_ciphers(ciphers)
            with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
                secured(port_of(broker), context)
        broker.wait_for_log("TLS: handshake: the peer offers no cipher that is accepted here")
        for ciphers in ("ECDHE+AESGCM", "ECDHE+CHACHA20"):
            context.set_ciphers(ciphers)
            secured(port_of(broker), context).close()


def test_clients_that_do_not_believe_our_certificate(tmp_path: Path, authority: Authority) -> None:
    """Issued by somebody else, expired, or for another host: the client says so, and our log does."""
    stranger = Authority(tmp_path)
    authority.issue("old", age_h=3)
    authority.issue("other", "other.example")
    with leveret_serve(tmp_path, config=configuration(), listen=(TLS,)) as broker:
        with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
            secured(port_of(broker), stranger.trusting())
        broker.wait_for_log("TLS: handshake: the peer does not trust our certificate")
    for name, complaint in (("old", "certificate has expired"), ("other", "Hostname mismatch")):
        said = configuration(certificate=f"{name}.pem", key=f"{name}.key")
        with leveret_serve(tmp_path, config=said, listen=(TLS,)) as broker:
            with pytest.raises(ssl.SSLCertVerificationError, match=complaint):
                secured(port_of(broker), authority.trusting())
            if name == "old":
                assert "leveret.toml:2: certificate: certificate has expired" in broker.log()
                broker.wait_for_log("the peer refuses our certificate: it has expired")


# -- certificates of clients ----------------------------------------------------------------------------------------


def mutual(authority: Authority, **others: str) -> str:
    """A configuration that looks at clients' certificates, with EXTERNAL switched on."""
    said = {"client_ca": authority.file.name, "verify": "required", **others}
    return '[broker]\nmechanisms = ["PLAIN", "EXTERNAL"]\n' + configuration(**said)


def external(port: int, context: ssl.SSLContext) -> None:
    """Log in by certificate and do something."""
    credentials = pika.credentials.ExternalCredentials()
    with connected(port, context, credentials=credentials) as connection:
        round_trip(connection)


def test_required_certificates(tmp_path: Path, authority: Authority) -> None:
    """None, one of another authority, an expired one: refused with a reason. The right one is enough to log in."""
    stranger = Authority(tmp_path)
    guest = authority.issue("guest", "guest.example", common_name="guest")
    forged = stranger.issue("forged", "guest.example", common_name="guest")
    expired = authority.issue("expired", "guest.example", common_name="guest", age_h=3)
    with leveret_serve(tmp_path, config=mutual(authority), listen=(TLS,)) as broker:
        port = port_of(broker)
        for certificate, reason in (
            (None, "TLS: handshake: the peer shows no certificate, but one is required"),
            (forged, "TLS: handshake: the peer's certificate is refused: unable to get local issuer certificate"),
            (expired, "TLS: handshake: the peer's certificate is refused: certificate has expired"),
        ):
            with pytest.raises((pika.exceptions.AMQPConnectionError, OSError)):
                external(port, authority.trusting(certificate))
            broker.wait_for_log(reason)
        external(port, authority.trusting(guest))
        with connected(port, authority.trusting(guest)) as connection:  # PLAIN beside it
            round_trip(connection)


def test_optional_certificates(tmp_path: Path, authority: Authority) -> None:
    """Without one PLAIN works and EXTERNAL is 403; with one of nobody here it is 403 as well."""
    nobody = authority.issue("nobody", "x.example", common_name="nobody")
    guest = authority.issue("guest", "x.example", common_name="guest")
    with leveret_serve(tmp_path, config=mutual(authority, verify="optional"), listen=BOTH) as broker:
        port = port_of(broker)
        with connected(port, authority.trusting()) as connection:
            round_trip(connection)
        for certificate in (None, nobody):
            with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="403.*mechanism EXTERNAL"):
                external(port, authority.trusting(certificate))
        external(port, authority.trusting(guest))
        with pytest.raises(pika.exceptions.AMQPConnectionError):  # not offered without TLS
            credentials = pika.credentials.ExternalCredentials()
            pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port_of(broker, 0), credentials=credentials))


@pytest.mark.parametrize(
    "said",
    [
        {"ssl_cert_login_from": "distinguished-name"},
        {"ssl_cert_login_from": "subject-alternative-name"},
        {"ssl_cert_login_from": "subject-alternative-name", "ssl_cert_login_san_type": "email"},
    ],
)
def test_whom_real_certificates_name(tmp_path: Path, authority: Authority, said: dict[str, str]) -> None:
    """Parts of a certificate as OpenSSL gives them: `guest` by its alternative name, nobody by the whole subject."""
    certificate = authority.issue("client", "guest", "hare@example.org", common_name="whoever")
    with leveret_serve(tmp_path, "--log-level", "debug", config=mutual(authority, **said), listen=(TLS,)) as broker:
        if len(said) == 1 and said["ssl_cert_login_from"].startswith("subject"):
            external(port_of(broker), authority.trusting(certificate))
        else:
            with pytest.raises(pika.exceptions.ProbableAuthenticationError):
                external(port_of(broker), authority.trusting(certificate))
        name = broker.wait_for_log("certificate of").rpartition("certificate of ")[2]
        if said["ssl_cert_login_from"] == "distinguished-name":
            assert name.startswith("'CN=whoever,OU=Testing cert") and name.endswith(
                f",O=trustme v{trustme.__version__}'"
            )
        else:
            assert name == ("'hare@example.org'" if len(said) == 2 else "'guest'")


# -- ends -----------------------------------------------------------------------------------------------------------


def test_goodbyes_over_real_sockets(tmp_path: Path, authority: Authority) -> None:
    """The client's close_notify is answered; a broker that stops says connection.close 320, then close_notify."""
    with leveret_serve(tmp_path, config=configuration(), listen=(TLS,)) as broker:
        leaving = secured(port_of(broker), authority.trusting())
        leaving.sendall(HELLO)
        assert leaving.recv(1) == b"\x01"
        while leaving.pending():
            leaving.recv(4096)
        leaving.unwrap().close()  # waits for ours
        staying = secured(port_of(broker), authority.trusting())
        staying.sendall(b"AMQP\x00\x00\x09\x02")
        assert staying.recv(100) == HELLO
        assert staying.recv(100) == b""  # close_notify: a plain end would be an error here
        with connected(port_of(broker), authority.trusting()) as connection:
            assert broker.process.poll() is None
            broker.process.terminate()
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="320"):
                while True:
                    connection.process_data_events(time_limit=1)
        assert broker.process.wait(60) == 0


def test_data_and_close_notify_together(tmp_path: Path, authority: Authority) -> None:
    """A header and the goodbye in one segment: the answer comes, then the end, without waiting for the timeout."""
    config = configuration() + "[limits]\nhandshake-timeout = '1h'\nfirst-octet-timeout = '1h'\n"
    with leveret_serve(tmp_path, config=config, listen=(TLS,)) as broker:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = authority.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with socket.create_connection(("127.0.0.1", port_of(broker)), timeout=60) as wire:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    wire.sendall(outgoing.read())
                    incoming.write(wire.recv(65536))
            client.write(HELLO)
            with pytest.raises(ssl.SSLWantReadError):
                client.unwrap()
            wire.sendall(outgoing.read())
            while data := wire.recv(65536):
                incoming.write(data)
            assert client.read(3) == b"\x01\0\0"  # connection.start


CLUSTER = """\
[broker]
data = "data"
[cluster]
node = "a"
nodes = ["a=127.0.0.1:5680", "b=127.0.0.1:5681", "c=127.0.0.1:5682"]
etcd = ["http://127.0.0.1:2379"]
"""

# -- leveret ctl ----------------------------------------------------------------------------------------------------


def test_ctl_over_tls(tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    """With the authority it works; without, or with another's, it says why not; with a certificate where one is due.
    So do the other commands that ask a broker.
    """
    client = authority.issue("client", "c")
    config = configuration(client_ca=authority.file.name, verify="required")
    with leveret_serve(tmp_path, config=config, listen=(TLS,)) as broker:
        url = f"amqps://guest:guest@127.0.0.1:{port_of(broker)}/"
        own = ["--certificate", str(client), "--key", str(client.with_suffix(".key"))]
        assert main(["ctl", "--url", url, "--ca", str(authority.file), *own, "status"]) == 0
        assert "product: leveret" in capsys.readouterr().out
        assert main(["ctl", "--url", url, *own, "status"]) == 1
        assert "is not trusted: self-signed certificate in certificate chain (--ca FILE)" in capsys.readouterr().err
        assert main(["ctl", "--url", url, "--ca", str(tmp_path / "none"), "status"]) == 1
        assert capsys.readouterr().err == "leveret ctl: --ca, --certificate, --key: No such file or directory\n"
        assert main(["ctl", "--url", url, "--ca", str(authority.file), "status"]) == 1
        assert "cannot reach" in capsys.readouterr().err
        there = ["--url", url, "--ca", str(authority.file), *own]
        file = tmp_path / "other.toml"
        file.write_text(CLUSTER)
        assert main(["diff", "--live", str(file), *there]) == 1
        assert '[cluster] etcd: [] -> ["http://127.0.0.1:2379"]' in capsys.readouterr().out
        assert main(["check", "--cluster", str(file), *there]) == 2
        assert "this broker is not a node of a cluster" in capsys.readouterr().err
