"""Who logs in with what: every mechanism, right and wrong responses of every form. Behaviour page 1.4."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leveret.amqp_frontend.peer.login import MECHANISMS, MalformedResponse, Peer
from leveret.engine import LoginThrottle, ManualClock, Users, errors
from leveret.engine.messages.field_table import Field, FieldTable, encode_table
from leveret.engine.users.login_throttle import FREE_FAILURES
from leveret.testing.harness import GUEST

HERE = Peer("here", True, "guest", is_secured=True)
ELSEWHERE = Peer("elsewhere", False, "guest", is_secured=True)
NO_CERTIFICATE = Peer("here", True, None, is_secured=True)


def table(**fields: Field) -> bytes:
    """Without its size, as AMQPLAIN has it."""
    found: FieldTable = dict(fields)
    return encode_table(found)[4:]


GUEST_S, WRONG_S = Field("S", b"guest"), Field("S", b"sesame")
ROWS: list[tuple[str, bytes, Peer, str]] = [
    ("PLAIN", b"\0guest\0guest", HERE, "in"),
    ("PLAIN", b"\0guest\0guest", ELSEWHERE, "refused"),
    ("PLAIN", b"\0guest\0sesame", HERE, "refused"),
    ("PLAIN", b"\0nobody\0guest", HERE, "refused"),
    ("PLAIN", b"\0guest\0", HERE, "refused"),
    ("PLAIN", b"\0\0guest", HERE, "refused"),
    ("PLAIN", b"guest\0guest", HERE, "malformed"),
    ("PLAIN", b"guest\0guest\0guest", HERE, "malformed"),
    ("PLAIN", b"\0guest\0guest\0", HERE, "malformed"),
    ("PLAIN", b"", HERE, "malformed"),
    ("PLAIN", b"\0guest", HERE, "malformed"),
    ("PLAIN", b"\0gu\xffest\0guest", HERE, "refused"),
    ("PLAIN", b"\0guest\0gu\xffest", HERE, "refused"),
    ("AMQPLAIN", table(LOGIN=GUEST_S, PASSWORD=GUEST_S), HERE, "in"),
    ("AMQPLAIN", table(PASSWORD=GUEST_S, OTHER=Field("I", 1), LOGIN=GUEST_S), HERE, "in"),
    ("AMQPLAIN", table(LOGIN=GUEST_S, PASSWORD=GUEST_S), ELSEWHERE, "refused"),
    ("AMQPLAIN", table(LOGIN=GUEST_S, PASSWORD=WRONG_S), HERE, "refused"),
    ("AMQPLAIN", table(LOGIN=WRONG_S, PASSWORD=GUEST_S), HERE, "refused"),
    ("AMQPLAIN", table(LOGIN=GUEST_S, PASSWORD=Field("I", 1)), HERE, "refused"),
    ("AMQPLAIN", table(LOGIN=Field("I", 1), PASSWORD=GUEST_S), HERE, "refused"),
    ("AMQPLAIN", table(LOGIN=GUEST_S, PASSWORD=Field("V", None)), HERE, "refused"),
    ("AMQPLAIN", table(LOGIN=GUEST_S), HERE, "malformed"),
    ("AMQPLAIN", table(PASSWORD=GUEST_S), HERE, "malformed"),
    ("AMQPLAIN", b"", HERE, "malformed"),
    ("AMQPLAIN", b"\0guest\0guest", HERE, "malformed"),
    ("AMQPLAIN", table(LOGIN=GUEST_S, PASSWORD=GUEST_S)[:-1], HERE, "malformed"),
    ("ANONYMOUS", b"", HERE, "in"),
    ("ANONYMOUS", b"whatever", HERE, "in"),
    ("ANONYMOUS", b"", ELSEWHERE, "refused"),
    ("EXTERNAL", b"", HERE, "in"),
    ("EXTERNAL", b"nobody", HERE, "in"),
    ("EXTERNAL", b"guest", NO_CERTIFICATE, "refused"),
    ("EXTERNAL", b"", ELSEWHERE, "refused"),
    ("EXTERNAL", b"", Peer("here", True, "nobody", is_secured=True), "refused"),
]


@pytest.mark.parametrize(("mechanism", "response", "peer", "outcome"), ROWS)
def test_each_response(mechanism: str, response: bytes, peer: Peer, outcome: str) -> None:
    """In, refused without saying why, or of no form at all."""
    users = Users([GUEST])
    try:
        user = MECHANISMS[mechanism](response, users, peer, "guest")
    except MalformedResponse:
        assert outcome == "malformed"
    except errors.LoginRefused as refusal:
        assert outcome == "refused" and vars(refusal)["mechanism"] == mechanism
    else:
        assert outcome == "in" and user.name == "guest"


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [("PLAIN", b"\0guest\0sesame"), ("AMQPLAIN", table(LOGIN=GUEST_S, PASSWORD=WRONG_S))],
)
def test_failures_slow_down_their_own_origin(mechanism: str, response: bytes) -> None:
    """Whoever guesses from one place does not keep the user out of another one."""
    users = Users([GUEST], LoginThrottle(ManualClock().monotonic_ns))
    for _ in range(FREE_FAILURES + 1):
        with pytest.raises(errors.LoginRefused):
            MECHANISMS[mechanism](response, users, replace(HERE, origin="one"), "guest")
    with pytest.raises(errors.LoginThrottled):
        MECHANISMS[mechanism](response, users, replace(HERE, origin="one"), "guest")
    right = response.replace(b"sesame", b"guest") if mechanism == "PLAIN" else table(LOGIN=GUEST_S, PASSWORD=GUEST_S)
    assert MECHANISMS[mechanism](right, users, replace(HERE, origin="other"), "guest").name == "guest"


@pytest.mark.parametrize(("is_secured", "offered"), [(True, ("PLAIN", "EXTERNAL")), (False, ("PLAIN",))])
def test_external_is_offered_over_tls_alone(is_secured: bool, offered: tuple[str, ...]) -> None:
    """With a certificate or without: it is refused then with a reason."""
    for name in (None, "guest"):
        assert Peer("p", True, name, is_secured=is_secured).offered(("PLAIN", "EXTERNAL")) == offered
    assert Peer("p", True, "guest", is_secured=is_secured).offered(("AMQPLAIN", "PLAIN")) == ("AMQPLAIN", "PLAIN")
