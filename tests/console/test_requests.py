"""What holds for every request: paths, methods, logins, what is accepted. Source: management page 1."""

import socket
import tracemalloc
from collections.abc import Iterator
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import h11
import pytest
import trio
from all_routes import ROUTES
from api_client import ApiClient, basic

from leveret.console.connection import Connection
from leveret.console.dispatcher import Dispatcher
from leveret.console.http_messages import Peer, Request
from leveret.testing import RunningBroker, start_broker


@pytest.mark.parametrize(
    "path, pattern",
    [
        ("overview", "overview"),
        ("overview/", "overview"),
        ("queues/%2F/", "queues/V"),
        ("queues/%2f/a%2Fb", "queues/V/Q"),
        ("queues/detailed", "queues/detailed"),
        ("queues//", None),
        ("queues///orders", None),
        ("nope", None),
        ("", None),
        ("/queues", None),
        ("queues/%2F/q/nope", None),
    ],
)
def test_paths(path: str, pattern: str | None) -> None:
    """One trailing slash is allowed, an empty segment is no name, a literal word wins (management page 1.1)."""
    dispatcher = Dispatcher()
    dispatcher.add(ROUTES)
    found = dispatcher.find(path)
    assert (None if found is None else found[0].pattern) == pattern


def test_segments_are_decoded_once() -> None:
    """A plus is a plus, and what is encoded twice is decoded once."""
    dispatcher = Dispatcher()
    dispatcher.add(ROUTES)
    found = dispatcher.find("queues/%2F/a+b%2520c%2Fd")
    assert found is not None and found[1] == {"V": "/", "Q": "a+b%20c/d"}


@pytest.mark.parametrize(
    "segment, reason",
    [
        ("%ff", "the path has octets that are not UTF-8"),
        ("a%c3", "the path has octets that are not UTF-8"),
        ("%ed%a0%80", "the path has octets that are not UTF-8"),  # half of a surrogate pair
        ("%zz", "the path has a % that is not followed by two hexadecimal digits"),
        ("100%", "the path has a % that is not followed by two hexadecimal digits"),
        ("%u00e4", "the path has a % that is not followed by two hexadecimal digits"),
    ],
)
def test_paths_that_are_not_text(segment: str, reason: str, api: ApiClient) -> None:
    """They name nothing. They were about the queue whose name has U+FFFD, or the text as it is."""
    for name in ("\ufffd", "a\ufffd", "\ufffd\ufffd\ufffd", "%zz", "100%", "%u00e4"):
        assert api.ask("PUT", f"queues/%2F/{quote(name, safe='')}", {}).status in (201, 204)
    for method in ("GET", "PUT", "DELETE"):
        refused = api.ask(method, f"queues/%2F/{segment}", {} if method == "PUT" else None)
        assert (refused.status, refused.reason) == (400, reason)
    assert api.ask("DELETE", f"queues/%2F/{segment}/contents").status == 400
    assert api.ask("GET", f"nope/{segment}").status == 404
    assert len(api.get("queues/%2F?name=%EF%BF%BD&page=1")["items"]) == 3


def test_a_query_that_is_not_text(api: ApiClient) -> None:
    """It filters nothing."""
    refused = api.ask("GET", "queues?page=1&name=%ff")
    assert (refused.status, refused.reason) == (400, "the query has octets that are not UTF-8")


def test_methods(api: ApiClient) -> None:
    """405 and OPTIONS name what there is, and need no login (management page 1.2)."""
    answer = api.ask("POST", "queues/%2F/q", user=None)
    assert (answer.status, answer.headers["allow"]) == (405, "HEAD, GET, PUT, DELETE, OPTIONS")
    assert answer.body == b""
    answer = api.ask("OPTIONS", "queues", user=None)
    assert (answer.status, answer.headers["allow"]) == (200, "HEAD, GET, OPTIONS")
    assert api.ask("HEAD", "overview").body == b""
    for path in ("queues", "nope"):
        answer = api.ask("PROPFIND", path)
        assert (answer.status, answer.body) == (501, b"")


def test_a_password_with_a_colon_and_a_scheme_in_any_case(api: ApiClient) -> None:
    """The name ends at the first colon; the word Basic is written as each tool likes (RFC 7617)."""
    assert api.ask("PUT", "users/colon", {"password": "a:b", "tags": "management"}).status == 201
    for scheme in ("Basic", "basic", "BASIC"):
        headers = {"authorization": basic("colon", "a:b").replace("Basic", scheme)}
        assert api.get("whoami", user=None, headers=headers)["name"] == "colon"


@pytest.mark.parametrize(
    "user, password, reason",
    [
        (None, None, None),
        ("guest", "wrong", "Login failed"),
        ("nobody", "nobody", "Login failed"),
    ],
)
def test_logins_that_fail(api: ApiClient, user: str | None, password: str | None, reason: str | None) -> None:
    """401, and a browser may ask again; a page that asks by itself gets no dialogue (management page 1.5, 20)."""
    answer = api.ask("GET", "whoami", user=user, password=password)
    assert (answer.status, answer.reason) == (401, reason)
    assert answer.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'
    answer = api.ask("GET", "whoami", user=user, password=password, headers={"x-requested-with": "page"})
    assert answer.status == 401 and "www-authenticate" not in answer.headers


@pytest.mark.parametrize("header", ["Basic", "Basic !!", "Basic Zm9v", "Bearer abc", "Basic " + "A" * 4000, ""])
def test_headers_that_are_no_login(api: ApiClient, header: str) -> None:
    """Whatever stands there, it is a failed login."""
    answer = api.ask("GET", "whoami", user=None, headers={"authorization": header})
    assert (answer.status, answer.reason) == (401, "Login failed")


def test_unknown_paths_need_no_login(api: ApiClient) -> None:
    """404 with the text of RabbitMQ's router (management page 1.1)."""
    answer = api.ask("GET", "nope", user=None)
    assert (answer.status, answer.json) == (404, {"error": "Object Not Found", "reason": "Not Found"})


@pytest.mark.parametrize(
    "accept, status",
    [
        ("application/json", 200),
        ("*/*", 200),
        ("text/html, application/json;q=0.9", 200),
        ("text/html", 406),
        ("", 406),
        ("banana", 400),
    ],
)
def test_what_is_accepted(api: ApiClient, accept: str, status: int) -> None:
    """JSON or nothing (management page 1.4)."""
    assert api.ask("GET", "whoami", headers={"accept": accept}).status == status


def test_gzip(api: ApiClient) -> None:
    """Long answers are packed for who asks for it (management page 1.4)."""
    import gzip

    answer = api.ask("GET", "overview", headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer.body).startswith(b'{"management_version"')


def test_a_connection_is_kept_for_the_next_request(api: ApiClient) -> None:
    """Two requests at once, answered in their order."""
    head = f"GET /api/version HTTP/1.1\r\nhost: localhost\r\nauthorization: {basic('guest', 'guest')}\r\n"
    with socket.create_connection(api.address) as peer:
        peer.sendall((head + "\r\n" + head + "connection: close\r\n\r\n").encode())
        received = b"".join(iter(lambda: peer.recv(65536), b""))
    assert received.count(b"HTTP/1.1 200 OK") == 2


def test_a_broker_without_console_says_so() -> None:
    """`management_url` is only there with `management=True`."""
    with start_broker() as broker, pytest.raises(ValueError, match="management=True"):
        assert broker.management_url


def test_who_asks(api: ApiClient, broker: RunningBroker) -> None:
    """The name and the tags."""
    assert api.get("whoami") == {"name": "guest", "tags": ["administrator"]}
    assert api.get("overview")["node"] == "rabbit@localhost"
    assert broker.port in [one["port"] for one in api.get("overview")["listeners"] if one["protocol"] == "amqp"]


@pytest.mark.parametrize(
    "path, body",
    [
        ("vhost-limits/%2F/max-queues", b'{"value": 7}'),
        ("user-limits/guest/max-channels", b'{"value": 7}'),
        ("operator-policies/%2F/small", b'{"pattern": "^small", "definition": {"max-length": 7}}'),
        ("feature-flags/quorum_queue/enable", b""),
    ],
)
def test_routes_that_insist_on_json(api: ApiClient, path: str, body: bytes) -> None:
    """As with RabbitMQ; others take a body whatever its type is called (management page 1.3)."""
    for media in ({}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}):
        refused = api.ask("PUT", path, body, headers=media)
        assert (refused.status, refused.body) == (415, b"")
    taken = api.ask("PUT", path, body, headers={"content-type": "application/json; charset=utf-8"})
    assert taken.status in (201, 204)


@pytest.mark.parametrize(
    "media, is_taken",
    [
        ("text/plain", True),
        ("text/plain; charset=utf-8", True),
        ('a/b ; c="d; e"; f=g', True),
        ("banana", False),
        ("application/json;", False),
        ("a/b; c", False),
        ("a/b c", False),
    ],
)
def test_types_that_are_malformed(api: ApiClient, media: str, is_taken: bool) -> None:
    """Other words are taken, and the body is JSON all the same."""
    status = api.ask("PUT", "queues/%2F/of-a-type", b"{}", headers={"content-type": media}).status
    assert status in ((201, 204) if is_taken else (415,))


def test_a_body_in_tiny_chunks_takes_little_more_memory_than_its_octets() -> None:
    """Two octets each; as an object of its own each would take twenty times as much."""
    count = 50_000
    events: Iterator[object] = chain(repeat(h11.Data(data=b"xy"), count), [h11.EndOfMessage()])

    async def following() -> object:
        event = next(events)
        return h11.Data(data=bytearray(event.data)) if isinstance(event, h11.Data) else event

    connection: Any = SimpleNamespace(
        _next=following,
        _state=SimpleNamespace(add_unfinished=lambda octets: None),
        _http=SimpleNamespace(they_are_waiting_for_100_continue=False),
    )

    async def read() -> tuple[bytes, int]:
        tracemalloc.start()
        try:
            body = await Connection._body(connection, Request("PUT", "/", {}, {}, Peer("", True)), 1 << 20)
            return body, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    body, peak = trio.run(read)
    assert body == b"xy" * count
    assert peak < 6 * len(body)
