"""The console over TLS: certificates and when they end, cookies, what browsers are told.

Source: management page 9, 20, 21.
"""

import http.client
import json
import shutil
import socket
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from api_client import ApiClient, basic
from broker_process import BrokerProcess, leveret_serve
from certificates import Authority, configuration

from leveret.serving.certificates import expiry_of, expiry_times
from leveret.serving.console import certificates_of, listening
from leveret.serving.listeners import Listeners
from leveret.serving.tls_files import load_tls

NO_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n"
MANAGEMENT = '[management]\nlisten = ["https://127.0.0.1:0"]\nmetrics = "https://127.0.0.1:0"\n'


def _ask(
    port: int, context: ssl.SSLContext, path: str, *, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"authorization": basic("guest", "guest"), **sent})
        answer = connection.getresponse()
        raw = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, json.loads(raw) if "json" in found.get("content-type", "") else raw
    finally:
        connection.close()


def _ports(broker: BrokerProcess) -> list[int]:
    """Of the console and its metrics: their lines come after that of AMQP."""
    lines = [line.removeprefix("leveret ready ") for line in broker.lines]
    return [int(line.split(":")[2].partition("/")[0]) for line in lines if line.startswith("https://")]


def test_served_over_tls(tmp_path: Path) -> None:
    """The certificate is that of `[tls]`; browsers are told to come by TLS only, and the cookie is for TLS only."""
    authority = Authority(tmp_path)
    authority.issue()
    with leveret_serve(tmp_path, config=configuration() + MANAGEMENT, management=None) as broker:
        context = authority.trusting()
        console, metrics = _ports(broker)
        status, headers, value = _ask(console, context, "/api/overview")
        assert (status, value["product_name"]) == (200, "Leveret")
        assert headers["strict-transport-security"] == "max-age=31536000"
        assert {"https", "https/prometheus"} <= {one["protocol"] for one in value["listeners"]}
        assert _ask(console, context, "/api/health/checks/protocol-listener/https")[0] == 200
        assert b"rabbitmq_identity_info" in _ask(metrics, context, "/metrics")[2]
        form = "username=guest&password=guest"
        kind = "application/x-www-form-urlencoded"
        headers = _ask(console, context, "/api/login", method="POST", body=form, content_type=kind)[1]
        assert headers["set-cookie"].endswith("; Secure")
        with socket.create_connection(("127.0.0.1", console), timeout=30) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b"HTTP/1.1" not in b"".join(iter(lambda: plain.recv(65536), b""))
        assert _ask(console, context, "/api/whoami")[2]["name"] == "guest"  # and it goes on
        assert broker.stop() == 0
    assert "Traceback" not in broker.log()


def test_a_large_body_over_tls(tmp_path: Path) -> None:
    """Records of TLS are smaller than what is sent at once; who is refused before his body still gets the answer."""
    authority = Authority(tmp_path)
    authority.issue()
    with leveret_serve(tmp_path, config=configuration() + MANAGEMENT, management=None) as broker:
        context, port = authority.trusting(), _ports(broker)[0]
        rows = [{"vhost": "/", "name": f"q{number}", "durable": True, "arguments": {}} for number in range(3_000)]
        body = json.dumps({"queues": rows})
        kind = "application/json"
        status = _ask(port, context, "/api/definitions", method="POST", body=body, content_type=kind)[0]
        assert status == 204
        found = _ask(port, context, "/api/queues?disable_stats=true")[2]
        assert len(found) == 3_000
        refused = _ask(port, context, "/api/definitions", method="POST", body=body, authorization="Basic bm86bm8=")
        assert refused[0] == 401


def test_certificates_that_end(tmp_path: Path) -> None:
    """The check reads what listeners show: when it ends, and which file that is."""
    authority = Authority(tmp_path)
    authority.issue(age_h=-1)  # it is right from an hour on, for an hour
    text = configuration() + MANAGEMENT
    with leveret_serve(tmp_path, config=text, listen=("127.0.0.1:0", "amqps://127.0.0.1:0"), management=None) as broker:
        context = authority.trusting()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is not right yet
        port = _ports(broker)[0]
        check = "/api/health/checks/certificate-expiration"
        status, _, value = _ask(port, context, f"{check}/1/days")
        assert (status, value["reason"]) == (503, "Certificates expiring")
        rows = {row["protocol"]: row for row in value["expired"]}
        assert set(rows) == {"amqp/ssl", "https", "https/prometheus"}
        row = rows["https"]
        assert (row["node"], row["interface"], row["port"]) == ("rabbit@localhost", "127.0.0.1", port)
        assert row["certfile"] == str(tmp_path / "server.pem") and row["cacertfile_expires_on"] == []
        ends = datetime.strptime(row["certfile_expires_on"][0], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        assert timedelta(hours=1) < ends - datetime.now(UTC) < timedelta(hours=2, minutes=1)
        assert _ask(port, context, f"{check}/0/days")[0] == 200
        assert _ask(port, context, f"{check}/many/days")[0] == 400
        assert _ask(port, context, f"{check}/1/fortnights")[0] == 400


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_reads_the_same(tmp_path: Path) -> None:
    """As the command line of OpenSSL has it, of each certificate in a file, and of authorities."""
    authority = Authority(tmp_path)
    authority.issue()
    for file in (tmp_path / "server.pem", authority.file):
        shown = subprocess.run(
            ["openssl", "x509", "-enddate", "-noout", "-in", str(file)], capture_output=True, text=True, check=True
        ).stdout.strip()
        ends = ssl.cert_time_to_seconds(shown.removeprefix("notAfter="))
        assert expiry_times(file.read_text())[0] == ends * 1000
        assert expiry_times(NO_CERTIFICATE + file.read_text())[0] == ends * 1000, "what is none hides no other"
    config, faults = _loaded(tmp_path, configuration(verify="optional", client_ca=authority.file.name))
    assert faults == []
    tls = load_tls(config)
    (listener,) = [socket.create_server(("127.0.0.1", 0))]
    with listener:
        from leveret.serving.addresses import parse_address

        found = listening(Listeners({}, {listener: parse_address("https://127.0.0.1:0", is_http=True)}, {}))
        (row,) = certificates_of(tls, found)
    assert row.authority == str(authority.file) and len(row.authority_expires_ms) == 1
    assert certificates_of(tls, []) == []


def _loaded(directory: Path, text: str) -> Any:
    from leveret.cli.configuration_files import load

    file = directory / "loaded.toml"
    file.write_text(text)
    return load([str(file)])


@pytest.mark.parametrize("count", range(0, 60, 7))
def test_what_is_no_certificate(count: int) -> None:
    """Cut off anywhere, or nonsense: an error, never a time."""
    with pytest.raises((ValueError, IndexError)):
        expiry_of((b"\x30\x82\x01\x00\x30\x81\xf0\xa0\x03\x02\x01\x02" + bytes(60))[:count])
    assert expiry_times(NO_CERTIFICATE * 2) == ()


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return bytes((tag, len(content))) + content


@pytest.mark.parametrize("version", [b"", _der(0xA0, _der(2, b"\2"))])
@pytest.mark.parametrize(
    "tag, written, year",
    [(0x17, "991231235959Z", 1999), (0x17, "491231235959Z", 2049), (0x18, "20991231235959Z", 2099)],
)
def test_forms_of_times(version: bytes, tag: int, written: str, year: int) -> None:
    """Years of two digits are from 1950 to 2049 (RFC 5280); a certificate of version 1 does not say so."""
    validity = _der(0x30, _der(0x17, b"700101000000Z"), _der(tag, written.encode()))
    certificate = _der(0x30, _der(0x30, version, _der(2, b"\1"), _der(0x30), _der(0x30), validity))
    assert expiry_of(certificate) == datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1000


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets on this system")
def test_over_a_unix_socket(tmp_path: Path) -> None:
    """For a proxy on the same machine; the file is gone afterwards."""
    path = tmp_path / "console"
    with leveret_serve(tmp_path, management=f"unix:{path}") as broker:
        assert f"leveret ready unix:{path}" in broker.lines
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(30)
            peer.connect(str(path))
            heads = ("host: localhost", f"authorization: {basic('guest', 'guest')}", "connection: close")
            peer.sendall("\r\n".join(["GET /api/whoami HTTP/1.1", *heads, "", ""]).encode())
            assert b'"name":"guest"' in b"".join(iter(lambda: peer.recv(65536), b""))
        assert broker.stop() == 0
    assert not path.exists()


def test_passwords_are_in_no_log(tmp_path: Path) -> None:
    """Made, changed, right and wrong, by header and by form; nor in what a broker shows."""
    with leveret_serve(tmp_path, "--log-level", "debug", management="127.0.0.1:0") as broker:
        api = ApiClient(broker.lines[1].removeprefix("leveret ready "))
        assert api.ask("PUT", "users/person", {"password": "first-secret", "tags": "management"}).status == 201
        assert api.ask("PUT", "users/person", {"password": "second-secret", "tags": "management"}).status == 204
        assert api.ask("GET", "whoami", user="person", password="third-secret").status == 401
        form = {"content-type": "application/x-www-form-urlencoded"}
        body = b"username=person&password=fourth-secret"
        assert api.ask("POST", "login", body, user=None, headers=form).status == 401
        shown = b"".join(api.ask("GET", path).body for path in ("users", "definitions", "leveret/events", "overview"))
        assert b"secret" not in shown
        assert "password_hash" not in str(api.get("whoami", user="person", password="second-secret"))
        assert api.ask("GET", "users", user="person", password="second-secret").status == 401  # hashes: administrators
        assert broker.stop() == 0
    assert "secret" not in broker.log()
