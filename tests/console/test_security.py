"""What keeps strangers out, and floods away: the rows of management page 20."""

import gzip
import json
import socket
from pathlib import Path

import pytest
from api_client import ApiClient, basic
from broker_process import leveret_serve

from leveret.console import connection as connections
from leveret.console import state
from leveret.console.connection import HEAD_MAX
from leveret.console.http_messages import Peer, Refusal
from leveret.console.login import Logins
from leveret.engine import Broker, ManualClock
from leveret.serving.composition import default_users
from leveret.testing import RunningBroker, start_broker

AWAY = Peer("192.0.2.1", False)


def _asked(api: ApiClient, text: str) -> bytes:
    """The whole answer to octets that are no request, or half of one."""
    with socket.create_connection(api.address) as peer:
        peer.sendall(text.encode("latin-1"))
        peer.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: peer.recv(65536), b""))


@pytest.mark.parametrize(
    "host, status",
    [
        ("evil.example", 421),
        ("evil.example:15672", 421),
        ("localhost", 200),
        ("127.0.0.1:15672", 200),
        ("[::1]:15672", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_names_that_somebody_else_pointed_here(api: ApiClient, host: str, status: int) -> None:
    """Host is an address, localhost, or listed (DNS rebinding)."""
    assert api.ask("GET", "whoami", headers={"host": host}).status == status


def test_listed_hosts_and_origins() -> None:
    """What `[management]` lists is answered."""
    with start_broker(
        management=True, config={"management": {"hosts": ["broker.example"], "cors-origins": ["https://ops.example"]}}
    ) as broker:
        api = ApiClient(broker.management_url)
        assert api.ask("GET", "whoami", headers={"host": "broker.example"}).status == 200
        assert api.ask("PUT", "queues/%2F/o", {}, headers={"origin": "https://ops.example"}).status == 201


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 201),
        ({}, 201),
    ],
)
def test_pages_elsewhere_change_nothing(api: ApiClient, headers: dict[str, str], status: int) -> None:
    """A browser adds the login by itself; the page that asks is named in these headers (CSRF)."""
    api.ask("DELETE", "queues/%2F/forged")
    answer = api.ask("PUT", "queues/%2F/forged", b"{}", headers={"content-type": "text/plain", **headers})
    assert answer.status == status


def test_a_page_from_here_may(api: ApiClient) -> None:
    """Its origin is the host that is asked."""
    host = f"127.0.0.1:{api.address[1]}"
    answer = api.ask("PUT", "queues/%2F/own", {}, headers={"host": host, "origin": f"http://{host}"})
    assert answer.status == 201


def test_no_header_for_origins_that_are_not_listed(api: ApiClient) -> None:
    """CORS is off."""
    answer = api.ask("GET", "whoami", headers={"origin": "http://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_every_answer_has_the_headers(api: ApiClient) -> None:
    """Also refusals and pages."""
    for path in ("overview", "nope", "/", "/api/index.html"):
        headers = api.ask("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "no-store" in headers["cache-control"]


@pytest.mark.parametrize("path", ["/%2e%2e/%2e%2e/etc/passwd", "/js/../../x", "/%5c..%5cx", "/\x00", "/api/..%2Fx"])
def test_paths_lead_nowhere_else(api: ApiClient, path: str) -> None:
    """Pages are looked up in a table."""
    raw = _asked(api, f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert raw.split(b" ")[1] in (b"404", b"400")


def test_bodies_have_an_end() -> None:
    """More than `max-body` is refused before it is read, and also if nobody said how long it is."""
    with start_broker(management=True, config={"management": {"max-body": 1000}}) as broker:
        api = ApiClient(broker.management_url)
        answer = api.ask("PUT", "queues/%2F/q", b" " * 2000)
        assert (answer.status, answer.reason) == (400, "the body is larger than 1000 octets")
        head = f"PUT /api/queues/%2F/q HTTP/1.1\r\nhost: localhost\r\nauthorization: {basic('guest', 'guest')}\r\n"
        chunk = "300\r\n" + " " * 0x300 + "\r\n"
        raw = _asked(api, head + "transfer-encoding: chunked\r\n\r\n" + chunk * 4 + "0\r\n\r\n")
        assert b" 400 " in raw.splitlines()[0]


def test_a_stranger_sends_no_body(api: ApiClient) -> None:
    """Who is not logged in is refused without a look at the body, and gets the answer all the same."""
    answer = api.ask("PUT", "queues/%2F/q", b" " * 1_000_000, user=None)
    assert answer.status == 401


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 5000,
        b'{"arguments":' + b'{"a":' * 150 + b"1" + b"}" * 151,
        b'{"a":' + b"1" * 5000 + b"}",
        b'{"a":NaN}',
        b"\xff\xfe",
        b'{"a":"\\ud800"}',
    ],
)
def test_json_that_would_cost_too_much(api: ApiClient, body: bytes) -> None:
    """Deep, long numbers, what is not JSON: 400, and the broker goes on."""
    answer = api.ask("PUT", "queues/%2F/json", body)
    assert (answer.status, answer.reason) == (400, "not_json")
    assert api.get("whoami")["name"] == "guest"


def test_one_key_twice_in_definitions(api: ApiClient) -> None:
    """Which of them is meant nobody knows."""
    answer = api.ask("POST", "definitions", b'{"queues":[],"queues":[]}', headers={"content-type": "application/json"})
    assert (answer.status, answer.reason) == (400, "failed_to_parse_json")


@pytest.mark.parametrize("end", ["\r\n\r\n", ""])
def test_heads_have_an_end(api: ApiClient, end: str) -> None:
    """More than 16 KiB of head is no request, and no more of it is kept while its end does not come."""
    raw = _asked(api, f"GET / HTTP/1.1\r\nhost: localhost\r\nx: {'y' * (HEAD_MAX + 1)}{end}")
    assert b" 431 " in raw.splitlines()[0]


@pytest.mark.parametrize(
    "text", ["nonsense\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/1.1\r\n bad\r\n\r\n", "\x16\x03\x01\x02"]
)
def test_what_is_no_http(api: ApiClient, text: str) -> None:
    """Answered or closed, and the broker goes on."""
    raw = _asked(api, text)
    assert not raw or raw.startswith(b"HTTP/1.1 4")
    assert api.get("whoami")["name"] == "guest"


def test_too_many_connections() -> None:
    """One more than allowed is closed; when another goes there is room again."""
    with start_broker(management=True, config={"management": {"max-connections": 2}}) as broker:
        api = ApiClient(broker.management_url)
        with socket.create_connection(api.address) as one, socket.create_connection(api.address) as two:
            for peer in (one, two):
                peer.sendall(b"OPTIONS /api/overview HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert peer.recv(100).startswith(b"HTTP/1.1 200")
            with socket.create_connection(api.address) as three:
                assert three.recv(100) == b""


def test_guest_only_from_here() -> None:
    """Whatever a proxy says: X-Forwarded-For means nothing."""
    broker = Broker(ManualClock(), default_users())
    with pytest.raises(Refusal, match="User can only log in via localhost"):
        Logins(lambda: broker).log_in(basic("guest", "guest"), AWAY)


def test_the_reason_of_a_close_is_only_text(api: ApiClient, broker: RunningBroker) -> None:
    """Control characters and formats do nothing; what is too long is cut."""
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    (name,) = (one["name"] for one in api.get("connections?columns=name"))
    quoted = name.replace(" ", "%20").replace(">", "%3E").replace(":", "%3A")
    answer = api.ask("DELETE", f"connections/{quoted}", headers={"x-reason": "%s%n \x01" + "x" * 400})
    assert answer.status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED - %s%n"):
        connection.process_data_events(time_limit=10)


def test_a_session_of_a_page(api: ApiClient) -> None:
    """An opaque cookie that scripts cannot read; it ends with the password, and when its owner logs out."""
    assert api.ask("PUT", "users/person", {"password": "p", "tags": "management"}).status == 201
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = api.ask("POST", "login", b"username=person&password=p", user=None, headers=form)
    cookie = answer.headers["set-cookie"]
    assert (answer.status, answer.json) == (200, "ok")
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "p:" not in cookie
    sent = {"cookie": cookie.partition(";")[0]}
    assert api.get("whoami", user=None, headers=sent)["name"] == "person"
    assert api.ask("PUT", "users/person", {"password": "q", "tags": "management"}).status == 204
    assert api.ask("GET", "whoami", user=None, headers=sent).status == 401
    answer = api.ask("POST", "login", b"username=person&password=q", user=None, headers=form)
    sent = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    assert api.ask("POST", "leveret/logout", user=None, headers=sent).status == 204
    assert api.ask("GET", "whoami", user=None, headers=sent).status == 401
    assert api.ask("POST", "login", b"username=person&password=no", user=None, headers=form).status == 401


def test_a_pattern_that_backtracks_elsewhere(api: ApiClient) -> None:
    """The linear-time engine: what is dear for others is not for us."""
    api.ask("PUT", f"queues/%2F/{'a' * 200}", {})
    page = api.get("queues?page=1&use_regex=true&name=%28a%2B%29%2B%24%21&columns=name")
    assert page["items"] == []
    evil = "^(a+)+!$"
    body = {"pattern": evil, "definition": {"max-length": 5}, "apply-to": "queues"}
    assert api.ask("PUT", "policies/%2F/evil", body).status == 201
    assert api.ask("PUT", "users/evil", {"password": "evil", "tags": "management"}).status == 201
    assert api.ask("PUT", "permissions/%2F/evil", dict.fromkeys(("configure", "write", "read"), evil)).status == 201
    name = "a" * 201
    assert api.ask("PUT", f"queues/%2F/{name}", {}).status == 201
    assert api.get(f"queues/%2F/{name}")["policy"] is None
    assert api.ask("PUT", f"queues/%2F/{name}b", {}, user="evil").status == 401
    assert api.ask("DELETE", "policies/%2F/evil").status == 204


@pytest.mark.parametrize("name", ['a%0d%0aset-cookie: x=1"; b', "..%2f..%2fetc", "%00"])
def test_the_name_of_a_download(api: ApiClient, name: str) -> None:
    """It is in a header: nothing in it begins another header or leaves its quotes, and it is no path."""
    answer = api.ask("GET", f"definitions?download={name.replace(' ', '%20')}")
    kind, _, file = answer.headers["content-disposition"].partition("; filename=")
    assert (answer.status, kind) == (200, "attachment") and "set-cookie" not in answer.headers
    assert file[0] == file[-1] == '"' and not set(file[1:-1]) & set('"\r\n\0/\\;')


@pytest.mark.parametrize(
    "parts",
    [
        [("other", "", "1")],
        [(f"field{number}", "", "1") for number in range(3)] + [("file", "", "{}")],
        [("file", f"x-long: {'y' * 17_000}\r\n", "{}")],
    ],
)
def test_forms_have_few_fields_with_short_heads(api: ApiClient, parts: list[tuple[str, str, str]]) -> None:
    """One file and two fields; anything else is refused, and nothing is imported."""
    text = "".join(
        f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n{head}\r\n{body}\r\n' for name, head, body in parts
    )
    kind = {"content-type": "multipart/form-data; boundary=B"}
    answer = api.ask("POST", "definitions", f"{text}--B--\r\n".encode(), headers=kind)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")


@pytest.mark.parametrize("tags", ["management", "policymaker", "monitoring", "monitoring,policymaker"])
def test_hashes_are_for_administrators(api: ApiClient, tags: str) -> None:
    """Whatever else a user may read, the hash of no password is in it, nor its own."""
    assert api.ask("PUT", "users/curious", {"password": "curious", "tags": tags}).status in (201, 204)
    paths = ["users", "users/guest", "users/curious", "definitions", "definitions/%2F", "all-configuration"]
    for path in [*paths, "whoami", "permissions", "leveret/versions", "leveret/preview/users/guest"]:
        answer = api.ask("GET", path, user="curious")
        assert b"password_hash" not in answer.body and b"hashing" not in answer.body, path
    assert "password_hash" in api.get("users/guest")


def test_names_with_markup_are_text(api: ApiClient) -> None:
    """JSON that no browser takes for a page."""
    name = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%E2%80%AE%00"
    assert api.ask("PUT", f"queues/%2F/{name}", {}).status == 201
    answer = api.ask("GET", f"queues/%2F/{name}?columns=name")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["name"] == "<img src=x onerror=alert(1)>\u202e\x00"
    packed = api.ask("GET", "queues", headers={"accept-encoding": "gzip"})
    assert "onerror" in json.dumps(json.loads(gzip.decompress(packed.body)))


def test_serve_listens_on_loopback(tmp_path: Path) -> None:
    """With the extra installed the console is there, after the AMQP lines, and only inside."""
    with leveret_serve(tmp_path, management="127.0.0.1:0") as broker:
        assert broker.lines[0].startswith("leveret ready amqp://")
        assert broker.lines[1].startswith("leveret ready http://127.0.0.1:")
        url = broker.lines[1].removeprefix("leveret ready ")
        assert ApiClient(url).get("whoami")["name"] == "guest"
        taken = url.removeprefix("http://").rstrip("/")
        config = f'[management]\nlisten = ["{taken}"]\n'
        (tmp_path / "other.toml").write_text(config)
        from leveret.__main__ import main

        assert main(["serve", "--memory", "--listen", "127.0.0.1:0", "--management", taken]) == 1
        assert broker.stop() == 0
    assert "no console" not in broker.log()


@pytest.mark.parametrize(
    "config, fault",
    [
        ('[management]\nlisten = ["0.0.0.0:15672"]\n', "2: listen: '0.0.0.0:15672': is outside loopback"),
        ('[management]\nlisten = ["nonsense"]\n', "2: listen: 'nonsense': expected HOST:PORT"),
        ("[management]\nbanana = 1\n", "banana: unknown key"),
        ('[management]\nlisten = ["https://127.0.0.1:0"]\n', "TLS needs a certificate: [tls] certificate is missing"),
        ('[management]\nmetrics = "https://127.0.0.1:0"\n', "TLS needs a certificate: [tls] certificate is missing"),
        ('[management]\nlisten = ["amqps://127.0.0.1:0"]\n', "expected HOST:PORT (port 0 to 65535), https://HOST:PORT"),
        ('[management]\nmetrics = "0.0.0.0:0"\n', "is outside loopback"),
        ('[management]\ntrusted-proxies = ["10.0.0.1/8"]\n', "a list of networks"),
    ],
)
def test_configuration_that_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: str, fault: str
) -> None:
    """Exit 2, and one line a fault; `check` says the same beforehand."""
    from leveret.__main__ import main

    file = tmp_path / "leveret.toml"
    file.write_text(config)
    assert main(["serve", "--memory", "--listen", "127.0.0.1:0", "--config", str(file)]) == 2
    assert fault in capsys.readouterr().err
    assert main(["check", str(file)]) == 2
    assert fault in capsys.readouterr().out


def test_without_the_extra(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What names the console says what to install; nothing else mentions it."""
    import importlib.util

    from leveret.__main__ import main
    from leveret.cli.configuration_files import console_addresses
    from leveret.settings import Configuration, load_configuration

    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == "h11" else found(name, *more))
    file = tmp_path / "leveret.toml"
    file.write_text('[management]\nnode = "rabbit@x"\n')
    assert main(["serve", "--memory", "--listen", "127.0.0.1:0", "--config", str(file)]) == 2
    assert (
        f'{file}:2: management: needs the console, expected: pip install "leveret[console]"' in capsys.readouterr().err
    )
    assert main(["serve", "--memory", "--listen", "127.0.0.1:0", "--management", "127.0.0.1:0"]) == 2
    assert "leveret: --management: needs the console" in capsys.readouterr().err
    assert console_addresses(None, Configuration()) == (None, [])
    off, _faults = load_configuration([("f", '[management]\nlisten = "off"\n')])
    assert console_addresses(None, off) == (None, [])


@pytest.mark.parametrize(
    "limit, text, answer",
    [
        ("HEAD_S", "", b""),
        ("HEAD_S", "GET /api/whoami HTTP/1.1\r\nhost: loc", b""),
        ("HEAD_S", "GET /api/whoami HTTP/1.1\r\nhost: localhost\r\n{login}\r\n", b" 200 "),
        ("BODY_S", "PUT /api/queues/%2F/q HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n{login}\r\n{", b" 408 "),
    ],
)
def test_slow_peers(api: ApiClient, monkeypatch: pytest.MonkeyPatch, limit: str, text: str, answer: bytes) -> None:
    """Who says nothing, half a head or half a body is given up, and so is who was answered and asks no more."""
    monkeypatch.setattr(connections, limit, 0.05)
    login = f"authorization: {basic('guest', 'guest')}\r\n"
    with socket.create_connection(api.address) as peer:
        peer.sendall(text.replace("{login}", login).encode())
        raw = b"".join(iter(lambda: peer.recv(65536), b""))
    assert answer in raw and bool(raw) == bool(answer)


def test_a_trickle_is_too_slow(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body may be slow for a while; then it must come at some speed, or it is given up though something came."""
    monkeypatch.setattr(connections, "GRACE_S", 0.0)
    monkeypatch.setattr(connections, "RATE_MIN", 10**9)
    monkeypatch.setattr(connections, "BODY_S", 3600.0)  # else the end of this time gives it up, too
    head = f"PUT /api/queues/%2F/q HTTP/1.1\r\nhost: localhost\r\nauthorization: {basic('guest', 'guest')}\r\n"
    with socket.create_connection(api.address, timeout=20) as peer:
        peer.sendall(f"{head}content-length: 900\r\n\r\n".encode())
        peer.sendall(b" ")
        assert b" 408 " in peer.recv(65536)


def test_requests_at_once(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than there is room for is told to come back, and gets its answer then."""
    monkeypatch.setattr(state, "REQUESTS_MAX", 0)
    answer = api.ask("GET", "whoami")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    monkeypatch.setattr(state, "REQUESTS_MAX", 1)
    assert api.ask("GET", "whoami").status == 200


def test_who_does_not_read_the_answer(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is given up after a while, in the middle of it."""
    for number in range(120):
        api.ask("PUT", f"queues/%2F/unread{number}", {})
    whole = len(api.ask("GET", "queues").body)
    monkeypatch.setattr(connections, "ANSWER_S", 0.05)
    request = f"GET /api/queues HTTP/1.1\r\nhost: localhost\r\nauthorization: {basic('guest', 'guest')}\r\n\r\n"
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(api.address)
        peer.sendall(request.encode() * 80)
        for _ in range(100):  # others are answered, and meanwhile the broker gives this one up
            assert api.ask("GET", "whoami").status == 200
        received = 0
        try:
            while data := peer.recv(65536):
                received += len(data)
        except ConnectionResetError:
            pass
    assert received < 80 * whole


def test_a_taken_port_is_a_warning_unless_it_was_named(caplog: pytest.LogCaptureFixture) -> None:
    """Who asked for it must have it."""
    from leveret.serving.addresses import Address, AddressTaken
    from leveret.serving.listeners import bind_console

    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = [Address("127.0.0.1", taken.getsockname()[1])]
        assert bind_console("console", listen, is_named=False) == {}
        assert "no console: cannot listen on 127.0.0.1" in caplog.text
        with pytest.raises(AddressTaken):
            bind_console("console", listen, is_named=True)


@pytest.mark.parametrize(
    ("head", "status"),
    [("GET / HTTP/1.1\r\nhost: localhost\r\nx: ", b" 431 "), ("GET / HTTP/1.1\r\n: no name\r\n\r\n", b" 400 ")],
)
def test_who_is_refused_while_it_still_sends_gets_the_answer(api: ApiClient, head: str, status: bytes) -> None:
    """What it sends after that is read and dropped: a connection that is reset would take the answer with it."""
    with socket.create_connection(api.address) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        peer.sendall(head.encode() + b"y" * 2 * HEAD_MAX)
        for _ in range(20):
            peer.sendall(b"y" * 2 * HEAD_MAX)
        peer.shutdown(socket.SHUT_WR)
        raw = b"".join(iter(lambda: peer.recv(65536), b""))
    assert status in raw.splitlines()[0]


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost:15672/api/whoami", "evil.example", 200),
        ("HTTPS://LOCALHOST/api/whoami", "localhost", 200),
        ("http://localhost", "localhost", 200),
        ("http://localhost?x=/api", "localhost", 200),
        ("http://evil.example/api/whoami", "localhost", 421),
        ("http://localhost:x@evil.example/api/whoami", "localhost", 404),
        ("http:///api/whoami", "localhost", 404),
        ("/http://localhost/api/whoami", "localhost", 404),
    ],
)
def test_targets_as_for_a_proxy(api: ApiClient, target: str, host: str, status: int) -> None:
    """They are accepted, and name the host, whatever the header says (RFC 9112, 3.2.2)."""
    login = f"authorization: {basic('guest', 'guest')}\r\n"
    raw = _asked(api, f"GET {target} HTTP/1.1\r\nhost: {host}\r\n{login}\r\n")
    assert int(raw.split(b" ")[1]) == status
    assert status != 200 or (b"administrator" in raw) == ("whoami" in target)


def test_the_length_of_a_stream_is_not_told(api: ApiClient) -> None:
    """HEAD has the headers of GET, and 0 would be wrong (RFC 9110, 8.6). The connection can be used again."""
    head = f"host: localhost\r\nauthorization: {basic('guest', 'guest')}\r\naccept: text/event-stream\r\n\r\n"
    raw = _asked(api, f"HEAD /api/leveret/events HTTP/1.1\r\n{head}OPTIONS /api/overview HTTP/1.1\r\n{head}")
    first, second, end = raw.split(b"\r\n\r\n")
    assert b" 200 " in first and b"text/event-stream" in first and b"content-length" not in first.lower()
    assert b" 200 " in second and end == b""
