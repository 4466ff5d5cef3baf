"""Sessions of the page: a cookie instead of a password. Source: management page 20."""

import json
import random
import stat
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from all_routes import ROUTES
from api_client import ApiClient, Response
from sent_events import streaming, until

from leveret.console.api import EVENT_STREAM, UNATTENDED, Api
from leveret.console.http_messages import Peer, Refusal, Request
from leveret.console.resources.events import EventStream, is_still_monitor
from leveret.console.sampler import Sampler
from leveret.console.session_file import REVOKED_MAX
from leveret.console.sessions import COOKIE, IDLE_NS, LIFETIME_NS, SESSIONS_MAX, Sessions
from leveret.console.static_pages import StaticPages
from leveret.engine import MS, Broker, ManualClock, User, Users
from leveret.operator.steps import finished
from leveret.serving.composition import build_broker
from leveret.serving.console import console_options
from leveret.settings import Configuration
from leveret.testing import start_broker

MINUTE_NS = 60_000 * MS

OF_PAGE = {"x-requested-with": "leveret"}
FORM = "application/x-www-form-urlencoded"


def logged_in(api: ApiClient, user: str = "guest", password: str = "guest") -> str:
    """The cookie of a new session."""
    form = urlencode({"username": user, "password": password}).encode()
    answer = api.ask("POST", "login", form, user=None, headers={**OF_PAGE, "content-type": FORM})
    assert answer.status == 200, answer.body
    return answer.headers["set-cookie"].partition(";")[0]


def as_page(api: ApiClient, method: str, path: str, cookie: str, **headers: str) -> Response:
    """A request of the page: with the cookie, without a password."""
    return api.ask(method, path, user=None, headers={**OF_PAGE, "cookie": cookie, **headers})


def test_a_session(api: ApiClient) -> None:
    """It stands for a login, says whose it is, and ends by a logout."""
    cookie = logged_in(api)
    assert as_page(api, "GET", "whoami", cookie).json["name"] == "guest"
    assert as_page(api, "GET", "leveret/session", cookie).json == {
        "name": "guest",
        "tags": ["administrator"],
        "packages": ["leases"],
    }
    left = as_page(api, "POST", "leveret/logout", cookie)
    assert left.status == 204 and "Max-Age=0" in left.headers["set-cookie"]
    assert as_page(api, "GET", "whoami", cookie).status == 401
    assert as_page(api, "GET", "leveret/session", cookie).json == {}


def test_without_one(api: ApiClient) -> None:
    """The page asks before it shows a login: no fault, and no dialogue of the browser."""
    assert as_page(api, "GET", "leveret/session", "").json == {}
    refused = as_page(api, "GET", "whoami", f"{COOKIE}-{api.address[1]}=nonsense")
    assert refused.status == 401 and "www-authenticate" not in refused.headers


def test_a_wrong_password(api: ApiClient) -> None:
    """No cookie; and for the page no dialogue of the browser, which would hide its own words."""
    form = b"username=guest&password=wrong"
    for headers, asks in (({}, True), (OF_PAGE, False)):
        answer = api.ask("POST", "login", form, user=None, headers={**headers, "content-type": FORM})
        assert (answer.status, answer.reason) == (401, "Login failed")
        assert "set-cookie" not in answer.headers and ("www-authenticate" in answer.headers) is asks


def test_forms_of_other_pages(api: ApiClient) -> None:
    """What another origin sends with our cookie changes nothing."""
    cookie = logged_in(api)
    away = as_page(api, "DELETE", "queues/%2F/q", cookie, origin="http://evil.example")
    assert away.status == 403


def test_a_changed_password_ends_it(api: ApiClient) -> None:
    """So does the end of the user."""
    assert api.ask("PUT", "users/ann", {"password": "one", "tags": "monitoring"}).status == 201
    cookie = logged_in(api, user="ann", password="one")
    assert as_page(api, "GET", "whoami", cookie).json["name"] == "ann"
    assert api.ask("PUT", "users/ann", {"password": "two", "tags": "monitoring"}).status == 204
    assert as_page(api, "GET", "whoami", cookie).status == 401
    cookie = logged_in(api, user="ann", password="two")
    assert api.ask("DELETE", "users/ann").status == 204
    assert as_page(api, "GET", "whoami", cookie).status == 401


def sessions_of(clock: ManualClock, *users: User, directory: Path | None = None) -> Sessions:
    """Those of a broker, or of the one after a restart."""
    broker = Broker(clock, Users(users))
    return Sessions(clock.monotonic_ns, lambda: broker, lambda: None if directory is None else str(directory))


def test_it_ends_by_itself() -> None:
    """After an hour without a request, after eight in any case; and not too many are remembered."""
    clock, guest = ManualClock(), User("guest")
    sessions = sessions_of(clock, guest)
    idle = sessions.open(guest, "/api")
    clock.advance_ns(IDLE_NS)
    assert sessions.find(idle) is guest
    clock.advance_ns(IDLE_NS + MS)
    assert sessions.find(idle) is None
    began, busy = clock.monotonic_ns(), sessions.open(guest, "/api")
    while clock.monotonic_ns() + IDLE_NS <= began + LIFETIME_NS:
        clock.advance_ns(IDLE_NS)
        assert sessions.find(busy) is guest
    clock.advance_ns(MS)
    assert sessions.find(busy) is None
    first = sessions.open(guest, "/api")
    for _ in range(SESSIONS_MAX):
        sessions.open(guest, "/api")
    assert sessions.find(first) is guest  # by the age of its token
    assert len(sessions._known) == SESSIONS_MAX


def test_it_outlives_a_restart(tmp_path: Path) -> None:
    """With a journal: for an hour after its token was issued, which the page renews; never after a logout."""
    clock, guest = ManualClock(), User("guest")
    before = sessions_of(clock, guest, directory=tmp_path)
    kept, left = (before.open(guest, "/api").partition(";")[0] for _ in range(2))
    before.close(left, "/api")
    assert before.find(left) is None and before.renewed(kept, "/api") is None  # it is new
    clock.advance_ns(MINUTE_NS * 50)
    renewed = before.renewed(kept, "/api") or ""
    assert before.find(kept) is before.find(renewed) is guest and before.renewed(renewed, "/api") is None
    clock.advance_ns(MINUTE_NS * 20)
    after = sessions_of(clock, guest, directory=tmp_path)
    assert after.find(kept) is None  # the token is older than an hour
    assert after.find(renewed) is guest and after.find(left) is None
    after.close(renewed, "/api")
    assert sessions_of(clock, guest, directory=tmp_path).find(renewed) is None
    assert after.find(kept) is None  # an older token of the session that was left
    assert stat.S_IMODE((tmp_path / "sessions").stat().st_mode) == 0o600


def test_the_end_of_its_eight_hours_is_not_put_off(tmp_path: Path) -> None:
    """Neither by renewed tokens nor by restarts."""
    clock, guest = ManualClock(), User("guest")
    cookie = sessions_of(clock, guest, directory=tmp_path).open(guest, "/api")
    for minutes in range(40, 481, 40):
        clock.advance_ns(MINUTE_NS * 40)
        sessions = sessions_of(clock, guest, directory=tmp_path)
        assert sessions.find(cookie) is guest
        cookie = sessions.renewed(cookie, "/api") or ""
        assert f"Max-Age={(480 - minutes) * 60}" in cookie
    clock.advance_ns(MINUTE_NS)
    assert sessions_of(clock, guest, directory=tmp_path).find(cookie) is None


@pytest.mark.parametrize("back_ms, is_taken", [(50_000, True), (70_000, False)])
def test_a_token_from_the_future_is_taken_for_a_minute(tmp_path: Path, back_ms: int, is_taken: bool) -> None:
    """A clock is set back a little at a restart; a token of a later time would be valid for longer than an hour."""
    clock, guest = ManualClock(), User("guest")
    cookie = sessions_of(clock, guest, directory=tmp_path).open(guest, "/api")
    clock.jump_wall_ms(-back_ms)
    assert sessions_of(clock, guest, directory=tmp_path).find(cookie) is (guest if is_taken else None)


@pytest.mark.parametrize(
    "text",
    [
        "Z3Vlc3Q=.0.0.x.",  # no signature
        "Z3Vlc3Q=.0.0.x.AAAA",
        "Z3Vlc3Q=.0.0.x",
        "....",
        "Z3Vlc3Q=.-1.0.x.y",
        "\u0663.\u0663.\u0663.\u0663.\u0663",
        "%%%.0.0.x.y",
        "Z3Vlc3Q=." + "9" * 50 + ".0.x.y",
        "/w==.0.0.x.y",  # no UTF-8
    ],
)
def test_what_is_no_token_is_nobody(text: str) -> None:
    """Of a known user, of nobody, not at all."""
    sessions = sessions_of(ManualClock(), User("guest"))
    assert sessions.find(f"{COOKIE}={text}") is None
    sessions.close(f"{COOKIE}={text}", "/api")


def test_each_part_of_a_token_is_signed(tmp_path: Path) -> None:
    """Another user, times or id; and the signature of another broker."""
    clock, users = ManualClock(), [User("guest"), User("admin", tags=("administrator",))]
    clock.advance_ns(IDLE_NS * 9)
    sessions = sessions_of(clock, *users, directory=tmp_path)
    name, value = sessions.open(users[0], "/api").partition(";")[0].split("=", 1)
    parts = value.split(".")
    assert sessions.find(f"{name}={value}") is users[0]
    for index, other in ((0, "YWRtaW4="), (1, "1"), (2, str(int(parts[2]) + 1)), (3, "id")):
        changed = ".".join([*parts[:index], other, *parts[index + 1 :]])
        assert sessions.find(f"{name}={changed}") is None
    other_key = sessions_of(clock, *users).find(f"{name}={value}")
    assert other_key is None


@pytest.mark.parametrize("text", ['{"key": "short"', '{"key": "c2hvcnQ=", "revoked": {}}'])
def test_a_file_that_is_no_use_ends_all_sessions(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """It is said once, and replaced by the next login. No token is signed with a part of a key."""
    clock, guest = ManualClock(), User("guest")
    cookie = sessions_of(clock, guest, directory=tmp_path).open(guest, "/api")
    (tmp_path / "sessions").write_text(text)
    after = sessions_of(clock, guest, directory=tmp_path)
    assert after.find(cookie) is None and "all sessions of the page end" in caplog.text
    again = after.open(guest, "/api")
    assert sessions_of(clock, guest, directory=tmp_path).find(again) is guest


def test_no_logout_is_forgotten(tmp_path: Path) -> None:
    """However often a user logs out: neither his first logout nor those of others, here and after a restart. He can
    log in again, others stay logged in, and so does he where he logged in lately; what is remembered has a limit.
    """
    clock, ann, bob = ManualClock(), User("ann"), User("bob")
    sessions = sessions_of(clock, ann, bob, directory=tmp_path)
    kept, ended = (sessions.open(bob, "/api") for _ in range(2))
    sessions.close(ended, "/api")
    cookies = []
    recent = ""
    for number in range(3 * REVOKED_MAX):
        clock.advance_ns(MS)
        if number == 3 * REVOKED_MAX - REVOKED_MAX // 2:
            recent = sessions.open(ann, "/api")
        cookies.append(sessions.open(ann, "/api"))
        sessions.close(cookies[-1], "/api")
    clock.advance_ns(MS)
    again = sessions.open(ann, "/api")
    for now in (sessions, sessions_of(clock, ann, bob, directory=tmp_path)):
        assert [now.find(one) for one in (*cookies, ended)] == [None] * (len(cookies) + 1)
        assert now.find(kept) is bob and now.find(again) is now.find(recent) is ann
    size = (tmp_path / "sessions").stat().st_size
    assert size < 100 * (REVOKED_MAX + 2)
    clock.advance_ns(LIFETIME_NS)
    sessions.close(sessions.open(bob, "/api"), "/api")
    assert (tmp_path / "sessions").stat().st_size < size // 10  # what has expired is not kept


def test_the_oldest_sessions_end_where_too_many_were_left() -> None:
    """A user with more logouts than are remembered one by one: his sessions from before the first of them end, too."""
    clock, ann, bob = ManualClock(), User("ann"), User("bob")
    sessions = sessions_of(clock, ann, bob)
    oldest, of_other = sessions.open(ann, "/api"), sessions.open(bob, "/api")
    for _ in range(REVOKED_MAX):
        clock.advance_ns(MS)
        sessions.close(sessions.open(ann, "/api"), "/api")
    assert sessions.find(oldest) is ann
    sessions.close(sessions.open(ann, "/api"), "/api")
    assert sessions.find(oldest) is None and sessions.find(of_other) is bob


def test_a_file_of_an_older_release_keeps_its_logouts(tmp_path: Path) -> None:
    """It has the revoked sessions without their users."""
    clock, guest = ManualClock(), User("guest")
    sessions = sessions_of(clock, guest, directory=tmp_path)
    ended, kept = sessions.open(guest, "/api"), sessions.open(guest, "/api")
    id_ = ended.partition(";")[0].split(".")[3]
    file = tmp_path / "sessions"
    older = json.loads(file.read_text()) | {"revoked": {id_: clock.wall_ms() + LIFETIME_NS // MS}}
    file.write_text(json.dumps(older))
    for _ in range(2):  # after an update, and after the next logout
        sessions = sessions_of(clock, guest, directory=tmp_path)
        assert sessions.find(ended) is None and sessions.find(kept) is guest
        sessions.close(sessions.open(guest, "/api"), "/api")


def test_over_a_restart_of_a_broker(tmp_path: Path) -> None:
    """A person who is logged in goes on; who logged out, or got another password, does not."""
    with start_broker(management=True, data=tmp_path) as broker:
        api = ApiClient(broker.management_url)
        api.ask("PUT", "users/ann", {"password": "one", "tags": "monitoring"})
        cookies = [logged_in(api), logged_in(api), logged_in(api, "ann", "one")]
        as_page(api, "POST", "leveret/logout", cookies[1])
    with start_broker(management=True, data=tmp_path) as broker:
        api = ApiClient(broker.management_url)
        cookies = [f"{COOKIE}-{api.address[1]}={one.partition('=')[2]}" for one in cookies]
        assert [as_page(api, "GET", "whoami", one).status for one in cookies] == [200, 401, 200]
        api.ask("PUT", "users/ann", {"password": "one", "tags": "monitoring"})  # the same word is another hash
        assert as_page(api, "GET", "whoami", cookies[2]).status == 401


def test_a_stream_ends_with_its_session(api: ApiClient) -> None:
    """By a logout."""
    cookie = logged_in(api)
    with streaming(api, user=None, cookie=cookie) as events:
        until(events, "totals")
        as_page(api, "POST", "leveret/logout", cookie)
        assert until(events, "cut") == {"reason": "the login is no longer valid"}


def make_api(clock: ManualClock) -> Api:
    """An API without a server, with the user guest."""
    configuration = Configuration()
    built = build_broker(configuration, clock, random.Random(1).random, None)
    options = console_options(built.control, configuration, 0, None, list)
    return Api(lambda: built.broker, lambda: options, ROUTES, StaticPages(), Sampler(lambda: built.broker))


def test_whoever_could_not_log_in_has_no_session() -> None:
    """Without a tag of the console, or from afar where a user is for this machine only: a cookie gives no more."""
    api = make_api(ManualClock())
    (guest,) = api.broker.users
    cookie = api.sessions.open(guest, "/api")

    def ask(is_loopback: bool) -> User:
        peer = Peer("", is_loopback=is_loopback)
        return api.open(Request("GET", "/api/whoami", {}, {"host": "localhost", "cookie": cookie}, peer)).request.user

    assert ask(is_loopback=True) is guest
    with pytest.raises(Refusal, match="localhost"):
        ask(is_loopback=False)
    api.broker.connections.replace_user(replace(guest, tags=()))
    with pytest.raises(Refusal, match="management"):
        ask(is_loopback=True)


def test_a_page_that_is_left_open_ends_it() -> None:
    """Neither what it repeats by itself nor its streams put off the end of an idle session; whoever is there does."""
    clock = ManualClock()
    api = make_api(clock)
    (guest,) = api.broker.users
    left, used = (api.sessions.open(guest, "/api") for _ in range(2))

    def request(path: str, cookie: str, **headers: str) -> Request:
        sent = {"host": "localhost", "cookie": cookie, **headers}
        return Request("GET", f"/api/{path}", {}, sent, Peer("", is_loopback=True), user=guest)

    stream = EventStream(api, request("leveret/events", left), {"since": 0})
    for minutes in range(0, 60, 20):
        for path, headers in (
            ("whoami", {"x-requested-with": UNATTENDED}),
            ("leveret/session", {"x-requested-with": UNATTENDED}),
            ("leveret/events", {"accept": EVENT_STREAM}),
        ):
            assert (answer := finished(api.open(request(path, left, **headers)).steps(b""))).status == 200, minutes
            assert "set-cookie" not in dict(answer.headers)  # no newer token
        finished(api.open(request("whoami", used, **OF_PAGE)).steps(b""))
        assert is_still_monitor(api, request("leveret/events", left))
        clock.advance_ns(20 * MINUTE_NS + MS)
    with pytest.raises(Refusal):
        api.open(request("whoami", left, **OF_PAGE))
    assert b"event: cut" in (stream.piece() or b"")
    assert api.open(request("whoami", used, **OF_PAGE)).request.user is guest


def test_it_has_the_rights_that_the_user_has_now() -> None:
    """Tags that are taken away are gone at once, in sessions that began before, too."""
    before, after = User("ann", tags=("administrator",)), User("ann", tags=("management",))
    broker = Broker(ManualClock(), Users([before]))
    sessions = Sessions(lambda: 0, lambda: broker)
    cookie = sessions.open(before, "/api")
    broker.connections.replace_user(after)
    assert sessions.find(cookie) is after


def test_below_a_prefix() -> None:
    """The browser sends the cookie where the API is."""
    sessions = Sessions(lambda: 0, lambda: Broker(ManualClock()))
    assert "; Path=/rabbit/api; HttpOnly; SameSite=Strict; " in sessions.open(User("guest"), "/rabbit/api")
    assert "; Path=/rabbit/api; HttpOnly; SameSite=Strict; Max-Age=0" in sessions.close(None, "/rabbit/api")


def test_two_consoles_on_one_host(api: ApiClient) -> None:
    """Browsers send cookies to every port of a host: a console heeds that of its own port alone."""
    host, port = api.address
    cookie = logged_in(api)
    assert cookie.startswith(f"{COOKIE}-{port}=")
    others = f"{COOKIE}-{port + 1}=nonsense; {COOKIE}=nonsense"
    assert as_page(api, "GET", "whoami", f"{others}; {cookie}").status == 200
    assert as_page(api, "GET", "whoami", cookie, host=f"{host}:{port + 1}").status == 401
    assert as_page(api, "GET", "whoami", cookie.replace(f"-{port}=", "="), host=host).status == 200
    as_page(api, "POST", "leveret/logout", f"{others}; {cookie}")
    assert as_page(api, "GET", "whoami", cookie).status == 401
