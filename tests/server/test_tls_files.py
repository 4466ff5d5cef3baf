"""What `[tls]` may say, what is wrong with it, and what happens when the files change under a running broker."""

import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pika
import pytest
from broker_process import BrokerProcess, leveret_serve
from certificates import Authority, configuration

from leveret.__main__ import main

TLS = "amqps://127.0.0.1:0"
ENCRYPTED_KEY = (
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
    "MIGjMF8GCSqGSIb3DQEFDTBSMDEGCSqGSIb3DQEFDDAkBBBzN0PVxxVFJyEQ+vPj\n"
    "-----END ENCRYPTED PRIVATE KEY-----\n"
)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """server.pem and server.key are there."""
    authority = Authority(tmp_path)
    authority.issue()
    return authority


def check(tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """`leveret check`: exit code and lines, without the directory."""
    file = tmp_path / "f.toml"
    file.write_text(config)
    code = main(["check", str(file)])
    return code, capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines()


FAULTS = [
    ("certificate", "none.pem", "2: certificate: 'none.pem' cannot be read: No such file or directory"),
    ("key", "none.key", "3: key: 'none.key' cannot be read: No such file or directory"),
    ("certificate", "ca.txt", "2: certificate: 'ca.txt' holds no certificate in PEM form"),
    ("certificate", "server.key", "2: certificate: 'server.key' holds no certificate in PEM form"),
    ("key", "server.pem", "3: key: 'server.pem' holds no private key in PEM form"),
    ("key", "other.key", "3: key: does not belong to the certificate"),
    ("key", ".", "3: key: '.' cannot be read: Is a directory"),
    ("verify", "required", "4: verify: 'required' needs client-ca: the authorities of clients' certificates"),
    ("verify", "perhaps", "4: verify: 'perhaps' is invalid, expected one of none, optional, required"),
    ("minimum", "1.1", "4: minimum: '1.1' is invalid, expected one of 1.2, 1.3"),
    ("ssl-cert-login-from", "name", "4: ssl-cert-login-from: 'name' is invalid, expected one of common-name,"),
]


@pytest.mark.parametrize("key, value, line", FAULTS)
def test_faults_have_a_place(
    tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str], key: str, value: str, line: str
) -> None:
    """FILE:LINE: KEY: what is wrong; paths are taken from the directory of the file that says them."""
    authority.issue("other")
    (tmp_path / "ca.txt").write_text("this is no certificate")
    code, lines = check(tmp_path, configuration(**{key: value}), capsys)
    assert code == 2
    assert lines[0].replace(f"{tmp_path}'", ".'").startswith(f"f.toml:{line}")


def test_more_faults(tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    """What is missing, what is broken, what wants a passphrase, and an address that needs what is not there."""
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (tmp_path / "broken.pem").write_text(broken)
    (tmp_path / "locked.key").write_text(ENCRYPTED_KEY)
    for config, line in (
        ("[tls]\nkey = 'server.key'\n", "f.toml:2: key: needs a certificate"),
        ("[tls]\nverify = 'required'\n", "f.toml:2: verify: needs a certificate"),
        ("[tls]\ncertificate = 'server.pem'\n", "f.toml:2: certificate: 'server.pem' holds no private key, and"),
        (configuration(certificate="broken.pem"), "f.toml:2: certificate: certificate and key cannot be used: "),
        (
            configuration(client_ca="broken.pem", verify="optional"),
            "f.toml:4: client-ca: 'broken.pem' cannot be used: ",
        ),
        (
            f"[broker]\nheartbeat = 5\nlisten = ['{TLS}']\n",
            f"f.toml:3: listen: '{TLS}': TLS needs a certificate: [tls] certificate is missing",
        ),
        ("[broker]\nproxy-protocol-from = '10.0.0.1/8'\n", "f.toml:2: proxy-protocol-from: '10.0.0.1/8' is invalid"),
        ("[broker]\nproxy-protocol-from = ['proxy']\n", "f.toml:2: proxy-protocol-from: ['proxy'] is invalid"),
    ):
        code, lines = check(tmp_path, config, capsys)
        assert (code, lines[0][: len(line)].replace(f"{tmp_path}/", "")) == (2, line)


def test_a_key_with_a_passphrase(tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    """Is a fault: nobody is asked at the terminal."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key((tmp_path / "server.key").read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    (tmp_path / "server.key").write_bytes(locked)
    code, lines = check(tmp_path, configuration(), capsys)
    assert code == 2
    assert lines == ["f.toml:3: key: 'server.key' needs a passphrase, which a service cannot type"]


def test_what_is_odd_but_usable(tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings, and `ok`."""
    ca = authority.file.name
    authority.issue("old", age_h=5)
    for config, warning in (
        (configuration(certificate="old.pem", key="old.key"), "f.toml:2: certificate: certificate has expired"),
        (configuration(client_ca=ca), 'f.toml:4: client-ca: without effect while verify is "none"'),
        (
            configuration() + '[broker]\nmechanisms = ["PLAIN", "EXTERNAL"]\n',
            'f.toml:2: verify: is "none", so nobody can log in by EXTERNAL',
        ),
    ):
        assert check(tmp_path, config, capsys) == (0, [f"warning: {warning}", "ok"])
    assert check(tmp_path, configuration(client_ca=ca, verify="optional", minimum="1.3"), capsys) == (0, ["ok"])
    (tmp_path / "server.key").chmod(0o644)
    warning = "f.toml:3: key: all users can read it (chmod 600)"
    assert check(tmp_path, configuration(), capsys) == (0, [f"warning: {warning}", "ok"])


def test_certificate_and_key_in_one_file(tmp_path: Path, authority: Authority) -> None:
    """As some tools write them; then there is no `key` to name."""
    (tmp_path / "both.pem").write_bytes((tmp_path / "server.pem").read_bytes() + (tmp_path / "server.key").read_bytes())
    with leveret_serve(tmp_path, config="[tls]\ncertificate = 'both.pem'\n", listen=(TLS,)) as broker:
        assert serial(broker, authority)


def test_serve_refuses_what_check_refuses(tmp_path: Path) -> None:
    """Exit 2, before anything listens; also for an address of the command line."""
    for arguments, line in (
        (["--config", "f.toml"], "f.toml:2: certificate: 'none.pem' cannot be read: No such file or directory"),
        (["--listen", TLS], f"leveret: --listen '{TLS}': TLS needs a certificate: [tls] certificate is missing"),
    ):
        (tmp_path / "f.toml").write_text("[tls]\ncertificate = 'none.pem'\n")
        served = subprocess.run(
            [sys.executable, "-m", "leveret", "serve", "--memory", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert (served.returncode, served.stderr.splitlines()) == (2, [line])


# -- while it runs --------------------------------------------------------------------------------------------------


def serial(broker: BrokerProcess, authority: Authority) -> str:
    """Of the certificate that a new connection is shown."""
    wire = socket.create_connection(("127.0.0.1", broker.port), timeout=60)
    with authority.trusting().wrap_socket(wire, server_hostname="localhost") as client:
        certificate = client.getpeercert()
        assert certificate is not None
        return str(certificate["serialNumber"])


@pytest.mark.parametrize("way", ["SIGHUP", "ctl", "by itself"])
def test_a_new_certificate_without_a_restart(tmp_path: Path, authority: Authority, way: str) -> None:
    """New connections are shown the new one; a connection that is there goes on as it is."""
    period = "50ms" if way == "by itself" else "1h"
    config = f"[broker]\nconfiguration-file-refresh-period = '{period}'\n" + configuration()
    with leveret_serve(tmp_path, config=config, listen=(TLS, "127.0.0.1:0")) as broker:
        options = pika.SSLOptions(authority.trusting(), "localhost")
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, ssl_options=options))
        channel = connection.channel()
        channel.queue_declare("q")
        first = serial(broker, authority)
        authority.issue()
        if way == "SIGHUP":
            broker.process.send_signal(signal.SIGHUP)
        elif way == "ctl":
            url = broker.lines[1].removeprefix("leveret ready ")
            assert main(["ctl", "--url", url, "reload"]) == 0
        broker.wait_for_log("configuration reloaded") if way != "ctl" else None
        second = serial(broker, authority)
        assert second != first
        channel.basic_publish("", "q", b"x")
        assert channel.basic_get("q", auto_ack=True)[2] == b"x"
        connection.close()


def test_files_that_do_not_fit_change_nothing(tmp_path: Path, authority: Authority) -> None:
    """A key without its certificate: the log says so, the old pair is shown on; then the right one comes."""
    config = "[broker]\nconfiguration-file-refresh-period = '50ms'\n" + configuration()
    with leveret_serve(tmp_path, config=config, listen=(TLS,)) as broker:
        first = serial(broker, authority)
        old_key = (tmp_path / "server.key").read_bytes()
        authority.issue("next")
        (tmp_path / "server.key").write_bytes((tmp_path / "next.key").read_bytes())
        broker.wait_for_log("leveret.toml:5: key: does not belong to the certificate")
        assert serial(broker, authority) == first
        (tmp_path / "server.pem").write_bytes((tmp_path / "next.pem").read_bytes())
        broker.wait_for_log("configuration reloaded")
        assert serial(broker, authority) != first
        assert old_key
        (tmp_path / "leveret.toml").write_text("[broker]\nconfiguration-file-refresh-period = '50ms'\n")
        broker.wait_for_log("[tls] certificate is missing, but there are listeners with TLS")
        assert serial(broker, authority) != first


def test_those_who_were_believed_are_not_any_more(tmp_path: Path, authority: Authority) -> None:
    """Another client-ca rules from the next connection on; nothing is resumed from before."""
    other = Authority(tmp_path)
    client = authority.issue("client", "c", common_name="guest")
    (tmp_path / "clients.pem").write_bytes(authority.file.read_bytes())
    config = configuration(client_ca="clients.pem", verify="required")
    with leveret_serve(tmp_path, config=config, listen=(TLS,)) as broker:
        context = authority.trusting(client, newest=ssl.TLSVersion.TLSv1_2)
        wire = socket.create_connection(("127.0.0.1", broker.port), timeout=60)
        with context.wrap_socket(wire, server_hostname="localhost") as connected:
            session = connected.session
        (tmp_path / "clients.pem").write_bytes(other.file.read_bytes())
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for_log("configuration reloaded")
        wire = socket.create_connection(("127.0.0.1", broker.port), timeout=60)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(wire, server_hostname="localhost", session=session)
        broker.wait_for_log("the peer's certificate is refused: self-signed certificate in certificate chain")
