"""SASL EXTERNAL: whom a certificate names, and what happens when it names nobody. Source: behaviour page 1.4."""

from typing import Any

import pytest
from pair import Pair
from pamqp import commands
from peer import handshake, method

from leveret.amqp_frontend.edge.certificates import certificate_facts, user_name
from leveret.amqp_frontend.options import FrontendOptions
from leveret.amqp_frontend.peer.login import Peer

WITH_CAPABILITY = {"capabilities": {"authentication_failure_close": True}}
REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. For details see the broker logfile."
)


def subject(*parts: tuple[str, str] | list[tuple[str, str]], names: Any = ()) -> dict[str, Any]:
    """A certificate as `ssl` decodes it."""
    return {
        "subject": tuple(tuple(part if isinstance(part, list) else [part]) for part in parts),
        "subjectAltName": names,
    }


HARE = subject(("countryName", "DE"), ("organizationName", "Hares, Ltd"), ("commonName", "hare"))
NAMES = (
    ("DNS", "a.example"),
    ("email", "hare@example"),
    ("DNS", "b.example"),
    ("IP Address", "192.0.2.1"),
    ("URI", "x:y"),
)


@pytest.mark.parametrize(
    "certificate, login_from, san, name",
    [
        (HARE, "common-name", (), "hare"),
        (subject(("commonName", "a"), ("commonName", "b")), "common-name", (), "a,b"),
        (subject(("organizationName", "o")), "common-name", (), None),
        (subject(("commonName", "")), "common-name", (), None),
        ({}, "common-name", (), None),
        (HARE, "distinguished-name", (), "CN=hare,O=Hares\\, Ltd,C=DE"),
        (subject([("commonName", "a"), ("userId", "b")]), "distinguished-name", (), "CN=a+UID=b"),
        (subject(("1.2.3.4", "x")), "distinguished-name", (), "1.2.3.4=x"),
        (subject(("commonName", " a\u00e9\n ")), "distinguished-name", (), "CN=\\ a\\C3\\A9\\0A\\ "),
        (subject(("commonName", '#"+,;<>\\')), "distinguished-name", (), 'CN=\\#\\"\\+\\,\\;\\<\\>\\\\'),
        (subject(("commonName", " ")), "distinguished-name", (), "CN=\\ "),
        (subject(("commonName", "}~\x7f")), "distinguished-name", (), "CN=}\\7E\\7F"),
        ({}, "distinguished-name", (), None),
        (subject(names=NAMES), "subject-alternative-name", (), "a.example"),
        (subject(names=NAMES), "subject-alternative-name", ("dns", 1), "b.example"),
        (subject(names=NAMES), "subject-alternative-name", ("dns", 2), None),
        (subject(names=NAMES), "subject-alternative-name", ("email", 0), "hare@example"),
        (subject(names=NAMES), "subject-alternative-name", ("ip", 0), "192.0.2.1"),
        (subject(names=NAMES), "subject-alternative-name", ("uri", 0), "x:y"),
        ({}, "subject-alternative-name", (), None),
    ],
)
def test_whom_a_certificate_names(certificate: Any, login_from: str, san: tuple[Any, ...], name: str | None) -> None:
    """As RabbitMQ's ssl_cert_login_from; names in RFC 4514 form."""
    assert user_name(certificate, login_from, *san) == name


def answer(facts: Peer, properties: dict[str, Any] = WITH_CAPABILITY, response: str = "") -> Any:
    """connection.start and what follows a start-ok with EXTERNAL."""
    pair = Pair(FrontendOptions(mechanisms=("PLAIN", "EXTERNAL"), refused_login_delay_ms=0))
    peer = pair.open(None, facts=facts)
    peer.send(
        handshake()[0],
        method(0, commands.Connection.StartOk, client_properties=properties, mechanism="EXTERNAL", response=response),
    )
    return peer


def test_operators_see_whose_certificate_it_is_and_who_issued_it() -> None:
    """And from when to when it is valid; nothing, where it does not say that."""
    times = {"notBefore": "Jan  1 00:00:00 2026 GMT", "notAfter": "Jan  1 00:00:00 2027 GMT"}
    facts = certificate_facts({**HARE, **times, "issuer": subject(("commonName", "Hares' CA"))["subject"]})
    assert (facts.subject, facts.issuer) == ("CN=hare,O=Hares\\, Ltd,C=DE", "CN=Hares' CA")
    assert facts.validity == "2026-01-01T00:00:00Z - 2027-01-01T00:00:00Z"
    assert certificate_facts(HARE).validity == ""


@pytest.mark.parametrize("response", ["", "guest", "ignored\0whatever"])
def test_the_certificate_is_the_login(response: str) -> None:
    """The response is ignored: the name is the certificate's."""
    peer = answer(Peer("p", True, "guest", is_secured=True), response=response)
    assert peer.expect(commands.Connection.Start).mechanisms == "PLAIN EXTERNAL"
    peer.expect(commands.Connection.Tune)


@pytest.mark.parametrize(
    "facts",
    [
        Peer("no certificate", True, None, is_secured=True),
        Peer("nobody's certificate", True, "nobody", is_secured=True),
        Peer("guest from elsewhere", False, "guest", is_secured=True),
    ],
)
def test_refusals_are_403_for_those_who_understand_it(facts: Peer) -> None:
    """Offered over TLS even without a certificate, so that this can be said; others see silence and the end."""
    peer = answer(facts)
    assert "EXTERNAL" in peer.expect(commands.Connection.Start).mechanisms
    close = peer.expect(commands.Connection.Close)
    assert (close.reply_code, close.reply_text, close.class_id) == (403, REFUSED, 0)
    assert answer(facts, {}).is_closed


def test_without_tls_it_is_not_offered() -> None:
    """And one that uses it all the same meets silence, as with any mechanism that is not there."""
    peer = answer(Peer("plain", True, None))
    assert peer.expect(commands.Connection.Start).mechanisms == "PLAIN"
    peer.expect_nothing()
    assert peer.is_closed
