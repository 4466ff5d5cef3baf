"""Who asks behind a proxy, and pages of other origins. Source: management page 20, 21."""

from collections.abc import Iterator
from ipaddress import ip_network

import pytest
from api_client import ApiClient

from leveret.console.http_messages import Peer
from leveret.console.proxies import client_behind
from leveret.testing import start_broker

PROXIES = (ip_network("10.0.0.0/8"), ip_network("127.0.0.1/32"), ip_network("2001:db8::/32"))
LISTED = "https://ops.example"


@pytest.mark.parametrize(
    "peer, forwarded, scheme, address, is_loopback, is_secure",
    [
        ("192.0.2.9", "127.0.0.1", "https", "192.0.2.9", False, False),  # whoever says so of himself
        ("10.0.0.1", "203.0.113.7", "http", "203.0.113.7", False, False),
        ("10.0.0.1", "127.0.0.1, 203.0.113.7, 10.0.0.2", "https", "203.0.113.7", False, True),
        ("10.0.0.1", "203.0.113.7:4711", "", "203.0.113.7", False, False),
        ("10.0.0.1", "[2001:db9::1]:4711", "", "2001:db9::1", False, False),
        ("10.0.0.1", "::ffff:203.0.113.7", "", "203.0.113.7", False, False),
        ("10.0.0.1", "127.0.0.1", "", "127.0.0.1", True, False),  # the first of the chain, as our proxies say
        ("127.0.0.1", "10.0.0.5, 10.0.0.2", "", "10.0.0.5", False, False),
        ("10.0.0.1", "unknown", "", "unknown", False, False),
        ("127.0.0.1", "guest@127.0.0.1", "", "guest@127.0.0.1", False, False),
        ("127.0.0.1", "", "HTTPS", "127.0.0.1", True, True),
        ("2001:db8::1", "203.0.113.7", "", "203.0.113.7", False, False),
    ],
)
def test_who_asks(peer: str, forwarded: str, scheme: str, address: str, is_loopback: bool, is_secure: bool) -> None:
    """The last address that is none of our proxies; only what they add is believed."""
    is_inside = peer.startswith("127.")
    assert client_behind(Peer(peer, is_inside), forwarded, scheme, PROXIES) == Peer(address, is_loopback, is_secure)


def test_a_proxy_that_speaks_tls_with_the_console() -> None:
    """Its connection is secure, whatever it says of the client's."""
    assert client_behind(Peer("10.0.0.1", False, True), "203.0.113.7", "", PROXIES).is_secure


@pytest.fixture(scope="module")
def api() -> Iterator[ApiClient]:
    """Behind a proxy on this machine, and asked by pages of one other origin."""
    keys = {"trusted-proxies": ["127.0.0.1"], "cors-origins": [LISTED]}
    with start_broker(management=True, config={"management": keys}) as broker:
        yield ApiClient(broker.management_url)


def test_guest_through_a_proxy(api: ApiClient) -> None:
    """Who comes from elsewhere does not become a neighbour by the way."""
    assert api.ask("GET", "whoami").status == 200
    answer = api.ask("GET", "whoami", headers={"x-forwarded-for": "203.0.113.7"})
    assert (answer.status, answer.reason) == (401, "User can only log in via localhost")
    assert api.ask("GET", "whoami", headers={"x-forwarded-for": "127.0.0.1"}).status == 200


def test_names_of_objects_through_a_proxy(api: ApiClient) -> None:
    """What a proxy hands on is from outside: metrics by object need a login there."""
    headers = {"x-forwarded-for": "203.0.113.7"}
    assert api.ask("GET", "/metrics/per-object", headers=headers).status == 401


def test_tls_that_a_proxy_ends(api: ApiClient) -> None:
    """The cookie is for TLS only, and the browser is told to keep to it."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    body = b"username=guest&password=guest"
    answer = api.ask("POST", "login", body, user=None, headers={**form, "x-forwarded-proto": "https"})
    assert answer.headers["set-cookie"].endswith("; Secure") and "strict-transport-security" in answer.headers
    answer = api.ask("POST", "login", body, user=None, headers=form)
    assert "Secure" not in answer.headers["set-cookie"] and "strict-transport-security" not in answer.headers


def test_below_a_prefix() -> None:
    """A proxy passes on one path of its site: all else is not served, and redirects stay below it."""
    with start_broker(management=True, config={"management": {"path-prefix": "/mq"}}) as broker:
        api = ApiClient(broker.management_url)
        assert api.ask("GET", "/mq/api/whoami").json["name"] == "guest"
        assert [api.ask("GET", path).status for path in ("/api/whoami", "/", "/mqapi/whoami")] == [404] * 3
        moved = api.ask("GET", "/mq/stats")
        assert (moved.status, moved.headers["location"]) == (301, "/mq/api/index.html")


def test_who_says_so_of_himself() -> None:
    """Without the list a header means nothing."""
    with start_broker(management=True) as broker:
        api = ApiClient(broker.management_url)
        headers = {"x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "https"}
        answer = api.ask("GET", "whoami", headers=headers)
        assert answer.status == 200 and "strict-transport-security" not in answer.headers


@pytest.mark.parametrize("path, status", [("whoami", 200), ("nope", 404), ("queues/%2F/none", 404)])
def test_a_listed_origin_reads_answers(api: ApiClient, path: str, status: int) -> None:
    """Refusals as well: or its script would not learn why."""
    answer = api.ask("GET", path, headers={"origin": LISTED})
    assert answer.status == status
    assert answer.headers["access-control-allow-origin"] == LISTED
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert "origin" in answer.headers["vary"]


def test_a_browser_asks_beforehand(api: ApiClient) -> None:
    """Methods of the path, and what a script may send; without a login, as browsers send none."""
    headers = {"origin": LISTED, "access-control-request-method": "PUT"}
    answer = api.ask("OPTIONS", "queues/%2F/q", user=None, headers=headers)
    assert answer.status == 200
    assert answer.headers["access-control-allow-methods"] == "HEAD, GET, PUT, DELETE, OPTIONS"
    assert "authorization" in answer.headers["access-control-allow-headers"]
    other = api.ask("OPTIONS", "queues/%2F/q", user=None, headers={**headers, "origin": "https://evil.example"})
    assert not [name for name in other.headers if name.startswith("access-control")]


def test_any_origin_reads_without_a_login_of_the_browser() -> None:
    """`*` never comes with credentials, and lets nobody change anything."""
    with start_broker(management=True, config={"management": {"cors-origins": ["*"]}}) as broker:
        api = ApiClient(broker.management_url)
        answer = api.ask("GET", "whoami", headers={"origin": "https://any.example"})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers
        for origin in ("https://any.example", "*"):
            assert api.ask("PUT", "queues/%2F/q", {}, headers={"origin": origin}).status == 403
