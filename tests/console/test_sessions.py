"""Sessions of the page: a cookie instead of a password. Source: management page 20."""

from urllib.parse import urlencode

from api_client import ApiClient, Response

from leveret.console.sessions import COOKIE, IDLE_NS, LIFETIME_NS, SESSIONS_MAX, Sessions
from leveret.engine import Broker, ManualClock, User, Users

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


def test_it_ends_by_itself() -> None:
    """After an hour without a request, after eight in any case; and there are not too many."""
    now = [0]
    guest = User("guest")
    broker = Broker(ManualClock(), Users([guest]))
    sessions = Sessions(lambda: now[0], lambda: broker)
    idle = sessions.open(guest, "/api")
    now[0] = IDLE_NS
    assert sessions.find(idle) is guest
    now[0] += IDLE_NS + 1
    assert sessions.find(idle) is None
    began, busy = now[0], sessions.open(guest, "/api")
    while now[0] + IDLE_NS <= began + LIFETIME_NS:
        now[0] += IDLE_NS
        assert sessions.find(busy) is guest
    now[0] += 1
    assert sessions.find(busy) is None
    first = sessions.open(guest, "/api")
    for _ in range(SESSIONS_MAX):
        sessions.open(guest, "/api")
    assert sessions.find(first) is None


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
