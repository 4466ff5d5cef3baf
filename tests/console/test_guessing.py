"""Guessing passwords, over many connections and by each way in: nothing tells a right guess."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import pika
import pytest
from api_client import ApiClient, Response

from leveret.engine import LoginThrottle, ManualClock
from leveret.engine.clock import MS
from leveret.engine.users.login_throttle import FREE_FAILURES
from leveret.serving.composition import default_users
from leveret.testing import RunningBroker, start_broker

FORM = {"content-type": "application/x-www-form-urlencoded"}


@dataclass
class _Guarded:
    """A broker whose failures last until its clock is told to go on."""

    broker: RunningBroker
    clock: ManualClock

    @property
    def api(self) -> ApiClient:
        return ApiClient(self.broker.management_url)

    def by_amqp(self, password: str) -> None:
        parameters = pika.URLParameters(self.broker.url)
        parameters.credentials = pika.PlainCredentials("guest", password)
        pika.BlockingConnection(parameters).close()

    def by_header(self, password: str, path: str = "whoami") -> Response:
        return self.api.ask("GET", path, password=password)

    def by_form(self, password: str) -> Response:
        body = f"username=guest&password={password}".encode()
        return self.api.ask("POST", "login", body, user=None, headers=FORM)


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Guarded]:
    """With a brake, as brokers that are served have one."""
    clock, users = ManualClock(), default_users()
    users.login_throttle = LoginThrottle(clock.monotonic_ns)
    monkeypatch.setattr("leveret.testing.runtime.default_users", lambda **_: users)
    with start_broker(management=True) as broker:
        yield _Guarded(broker, clock)


def test_ways_in_count_together(guarded: _Guarded) -> None:
    """A connection each: header, form, AMQP; then the right password and a wrong one are answered alike."""
    cookie = guarded.by_form("guest").headers["set-cookie"].partition(";")[0]
    for number in range(FREE_FAILURES - 1):
        assert (guarded.by_header if number % 2 else guarded.by_form)("wrong").status == 401
    for _ in range(2):
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            guarded.by_amqp("wrong")
    answers = [
        *(guarded.by_header(password, path) for password in ("wrong", "guest") for path in ("whoami", "/metrics")),
        *map(guarded.by_form, ("wrong", "guest")),
    ]
    for answer in answers:
        assert (answer.status, answer.json["error"], answer.headers["retry-after"]) == (
            429,
            "too_many_failed_logins",
            "1",
        )
        assert "www-authenticate" not in answer.headers
        assert answer.body == answers[0].body
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="Login was refused using authentication"):
        guarded.by_amqp("guest")
    assert guarded.api.ask("GET", "whoami", user=None, headers={"cookie": cookie}).status == 200
    assert guarded.by_header("wrong", "/health/ready").status == 200
    guarded.clock.advance_ns(200 * MS)
    guarded.by_amqp("guest")
    assert guarded.by_header("guest").status == 200
    assert guarded.by_header("wrong").status == 401  # free again


def test_guesses_at_once(guarded: _Guarded) -> None:
    """Many connections at one moment have no more tries than one: the free ones, and the one that begins the delay."""
    guesses = 40
    together = Barrier(guesses)

    def guess(number: int) -> int:
        together.wait(60)
        return (guarded.by_header if number % 2 else guarded.by_form)("wrong").status

    with ThreadPoolExecutor(guesses) as pool:
        answers = Counter(pool.map(guess, range(guesses)))
    assert answers[401] == FREE_FAILURES + 1
    assert set(answers) <= {401, 429, 503}  # 503: there are too many requests at this moment
    assert guarded.by_header("guest").status == 429
    guarded.clock.advance_ns(200 * MS)
    (counted,) = [one for one in guarded.api.get("auth/attempts/rabbit@localhost") if one["protocol"] == "http"]
    assert counted["auth_attempts_failed"] >= FREE_FAILURES + 1


def test_a_right_login_is_not_remembered(guarded: _Guarded) -> None:
    """The password that was right a moment ago is wrong after a change, and counts as a guess."""
    assert guarded.by_header("guest").status == 200
    assert guarded.api.ask("PUT", "users/guest", {"password": "other", "tags": "administrator"}).status == 204
    for _ in range(FREE_FAILURES + 1):
        assert guarded.by_header("guest").status == 401
    assert guarded.by_header("other").status == 429


def test_who_is_a_user_is_not_told(guarded: _Guarded) -> None:
    """A name that nobody has is refused as a wrong password is, and after as many tries."""
    for number in range(FREE_FAILURES + 3):
        known, unknown = (guarded.api.ask("GET", "whoami", user=name, password="wrong") for name in ("guest", "nobody"))
        assert (known.status, known.body) == (unknown.status, unknown.body), number
        assert known.headers.keys() == unknown.headers.keys()
    assert known.status == 429


def test_what_is_refused_is_not_counted_again(guarded: _Guarded) -> None:
    """Whoever tries all the time does not keep the others of his address out for ever."""
    for _ in range(FREE_FAILURES + 1):
        guarded.by_header("wrong")
    for _ in range(20):
        assert guarded.by_header("wrong").status == 429
    guarded.clock.advance_ns(200 * MS)
    assert guarded.by_header("guest").status == 200


def test_a_broker_for_tests_has_none() -> None:
    """Its tests may fail to log in as often as they like."""
    with start_broker(management=True) as broker:
        api = ApiClient(broker.management_url)
        for _ in range(FREE_FAILURES * 3):
            assert api.ask("GET", "whoami", password="wrong").status == 401


def test_a_broker_that_is_served_has_one() -> None:
    """Put together without users of a test."""
    from leveret.serving.composition import build_broker
    from leveret.settings import Configuration

    built = build_broker(Configuration(), ManualClock(), lambda: 0.5)
    assert built.broker.users.login_throttle is not None
    built.close()
