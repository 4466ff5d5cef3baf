"""Guessing passwords is slow, for those who guess; the table of it is bounded."""

import pytest

from leveret.engine import LoginThrottle, ManualClock, User, Users, hash_password
from leveret.engine.clock import MS
from leveret.engine.errors import LoginRefused, LoginThrottled
from leveret.engine.users.login_throttle import FORGOTTEN_NS, FREE_FAILURES, NAMES_MAX, REMEMBERED_MAX


class _Guesses:
    """Logins of `a`, whose password is `right`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.login_throttle = LoginThrottle(self.clock.monotonic_ns)
        self.users = Users(
            [User("a", hash_password("right", b"salt")), User("b", hash_password("right", b"salt"))],
            self.login_throttle,
        )

    def log_in(self, password: str, name: str = "a", origin: str = "x", mechanism: str = "PLAIN") -> int | None:
        """0: right; None: wrong; how long nothing is looked at, in ms."""
        try:
            self.users.log_in(name, password, mechanism=mechanism, is_loopback=False, origin=origin)
        except LoginThrottled as braked:
            return braked.wait_ns // MS
        except LoginRefused:
            return None
        return 0

    def fail(self, times: int, **options: str) -> None:
        for _ in range(times):
            assert self.log_in("wrong", **options) is None


def test_waits_get_longer() -> None:
    """The first few are free, then it doubles, up to a limit."""
    guesses = _Guesses()
    guesses.fail(FREE_FAILURES)
    waits = []
    for _ in range(8):
        guesses.fail(1)
        wait_ms = guesses.log_in("wrong")
        assert wait_ms
        waits.append(wait_ms)
        guesses.clock.advance_ns(wait_ms * MS)
    assert waits == [200, 400, 800, 1600, 3200, 5000, 5000, 5000]


def test_the_right_password_tells_nothing_while_it_waits() -> None:
    """The same refusal, which makes nothing longer; afterwards it is right, and all is forgotten."""
    guesses = _Guesses()
    guesses.fail(FREE_FAILURES + 1)
    for mechanism in ("PLAIN", "AMQPLAIN", "HTTP"):
        assert guesses.log_in("right", mechanism=mechanism) == guesses.log_in("wrong", mechanism=mechanism) == 200
    assert guesses.users.attempts == {"http": [0, 2], "amqp091": [0, FREE_FAILURES + 1 + 4]}  # they failed all the same
    guesses.clock.advance_ns(200 * MS)
    assert guesses.log_in("right") == 0
    assert len(guesses.login_throttle) == 0
    guesses.fail(FREE_FAILURES)


def test_others_are_free() -> None:
    """The user from elsewhere, another user from there; users that do not exist are counted alike."""
    guesses = _Guesses()
    guesses.fail(FREE_FAILURES + 1)
    assert guesses.log_in("right", origin="y") == 0
    assert guesses.log_in("right", name="b") == 0
    guesses.fail(FREE_FAILURES + 1, name="nobody")
    assert guesses.log_in("wrong", name="nobody") == 200


def test_an_old_failure_is_forgotten() -> None:
    """Who errs once in a while never waits."""
    guesses = _Guesses()
    for _ in range(FREE_FAILURES * 3):
        guesses.fail(1)
        guesses.clock.advance_ns(FORGOTTEN_NS + 1)
    guesses.fail(FREE_FAILURES - 1)


def test_many_names_are_no_way_round() -> None:
    """Names that are made up push nothing out of the table; beyond some they wait together, and a success of one of
    them does not end it for the others."""
    guesses = _Guesses()
    guesses.fail(FREE_FAILURES + 1)
    for number in range(NAMES_MAX - 1):
        guesses.fail(1, name=f"n{number}")
    assert guesses.log_in("right") == 200
    guesses.fail(FREE_FAILURES + 1, name="more")
    assert guesses.log_in("right", name="b") == 200
    guesses.clock.advance_ns(200 * MS)
    assert guesses.log_in("right", name="b") == 0
    guesses.fail(1, name="still more")
    assert guesses.log_in("wrong", name="another") == 400


def test_the_table_is_bounded() -> None:
    """Whatever comes: origins, names, and how long these are."""
    guesses = _Guesses()
    for number in range(REMEMBERED_MAX + 10):
        guesses.login_throttle.failed("x" * 10_000, f"origin {number}")
    assert len(guesses.login_throttle) == REMEMBERED_MAX
    assert guesses.login_throttle.wait_ns("x" * 10_000, "origin 0") == 0
    guesses.fail(FREE_FAILURES + 1)  # a full table still slows down those who guess now
    assert guesses.log_in("wrong") == 200
    for number in range(NAMES_MAX * 3):
        guesses.login_throttle.failed(f"name {number}", "one")
    assert len(guesses.login_throttle) == REMEMBERED_MAX


def test_without_a_brake() -> None:
    """A broker for tests is asked with wrong passwords as often as one likes."""
    users = Users([User("a", hash_password("right", b"salt"))])
    for _ in range(FREE_FAILURES * 3):
        with pytest.raises(LoginRefused) as refused:
            users.log_in("a", "wrong", mechanism="PLAIN", is_loopback=False)
        assert type(refused.value) is LoginRefused
