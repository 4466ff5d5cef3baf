"""The shared secret: proven by both sides, and nothing that was heard proves it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.cluster.link.challenge import (
    NONCE_SIZE,
    ChallengeFault,
    ConnectorChallenge,
    Credentials,
    ListenerChallenge,
    is_loopback,
)
from leveret.cluster.link.frames import Greet, Proof, Prove

SECRET = b"a secret of the cluster"
CIRCLE = Credentials("orders", 0, SECRET)


def meet(connecting: Credentials, accepting: Credentials) -> None:
    """A whole exchange. Raises: ChallengeFault."""
    listener, connector = ListenerChallenge(accepting), ConnectorChallenge(connecting)
    connector.check(listener.answer(connector.answer(listener.greet())))


@pytest.mark.parametrize("credentials", [CIRCLE, Credentials("orders"), Credentials("ö" * 50, 7, bytes(range(256)))])
def test_nodes_of_one_credentials_meet(credentials: Credentials) -> None:
    """With a secret, and without one."""
    meet(credentials, credentials)


OTHERS = [
    (Credentials("orders", 0, b"another secret, as long"), "another secret"),
    (Credentials("invoices", 0, SECRET), "another secret, or belongs to another cluster"),
    (Credentials("orders", 1, SECRET), "another secret, or belongs to another cluster"),
    (Credentials("orders"), "has no secret, this one has|has a secret, this one has none"),
]


@pytest.mark.parametrize("other, words", OTHERS)
def test_others_do_not(other: Credentials, words: str) -> None:
    """From whichever side they come."""
    for connecting, accepting in ((other, CIRCLE), (CIRCLE, other)):
        with pytest.raises(ChallengeFault, match=words):
            meet(connecting, accepting)


def test_a_reflected_proof_proves_nothing() -> None:
    """A listener that knows no secret sends back what the connector sent."""
    connector = ConnectorChallenge(CIRCLE)
    said = connector.answer(Greet(1, bytes(NONCE_SIZE)))
    with pytest.raises(ChallengeFault, match="has not proven"):
        connector.check(Proof(said.proof))


def test_a_connector_that_opens_a_second_connection_learns_nothing() -> None:
    """It passes the nonce of the listener to another connector, but can only be proven to with its own connection."""
    listener, victim = ListenerChallenge(CIRCLE), ListenerChallenge(CIRCLE)
    honest = ConnectorChallenge(CIRCLE)
    said = honest.answer(victim.greet())
    with pytest.raises(ChallengeFault, match="another secret"):
        listener.answer(said)


def test_a_proof_heard_yesterday_proves_nothing() -> None:
    """Both nonces are new with each connection."""
    listener, connector = ListenerChallenge(CIRCLE), ConnectorChallenge(CIRCLE)
    said = connector.answer(listener.greet())
    proof = listener.answer(said)
    with pytest.raises(ChallengeFault):
        ListenerChallenge(CIRCLE).answer(said)
    again = ConnectorChallenge(CIRCLE)
    again.answer(listener.greet())
    with pytest.raises(ChallengeFault):
        again.check(proof)


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_guesses_are_refused(nonce: bytes, proof: bytes) -> None:
    """Of whatever length, in both directions."""
    with pytest.raises(ChallengeFault):
        ListenerChallenge(CIRCLE).answer(Prove(1, nonce, proof))
    connector = ConnectorChallenge(CIRCLE)
    if len(nonce) == NONCE_SIZE:
        connector.answer(Greet(1, nonce))
    with pytest.raises(ChallengeFault):
        connector.check(Proof(proof))


def test_a_proof_of_nothing_is_not_taken_from_a_node_without_a_secret() -> None:
    """An empty secret has a HMAC, too: it must not count."""
    nameless = Credentials("orders")
    listener = ListenerChallenge(CIRCLE)
    with pytest.raises(ChallengeFault):
        listener.answer(Prove(1, bytes(NONCE_SIZE), nameless.proof(b"leveret link: connector", b"", bytes(NONCE_SIZE))))


def test_versions_before_the_oldest_are_refused() -> None:
    """A newer one is used as ours (CL18)."""
    with pytest.raises(ChallengeFault, match="version 0 of the link, this one 1 to 1"):
        ConnectorChallenge(CIRCLE).answer(Greet(0, bytes(NONCE_SIZE)))
    with pytest.raises(ChallengeFault, match="version 0 of the link"):
        ListenerChallenge(CIRCLE).answer(Prove(0, bytes(NONCE_SIZE), b""))
    assert ConnectorChallenge(CIRCLE).answer(Greet(9, bytes(NONCE_SIZE))).version == 1


def test_a_short_secret_is_refused() -> None:
    """It could be guessed by whoever sees one proof."""
    with pytest.raises(ValueError, match="15 octets: at least 16"):
        Credentials("orders", 0, b"x" * 15)


HOSTS = [
    ("127.0.0.1", True),
    ("127.8.9.1", True),
    ("::1", True),
    ("::ffff:127.0.0.1", True),
    ("192.0.2.1", False),
    ("::ffff:192.0.2.1", False),
    ("fe80::1%lo", False),
    ("localhost.example", False),
    ("", False),
]


@pytest.mark.parametrize("host, is_own", HOSTS)
def test_without_secret_and_tls_links_are_for_this_machine(host: str, is_own: bool) -> None:
    """With either of them any address will do."""
    assert is_loopback(host) is is_own
    CIRCLE.check_host(host, is_tls=False)
    Credentials("orders").check_host(host, is_tls=True)
    if is_own:
        Credentials("orders").check_host(host, is_tls=False)
    else:
        with pytest.raises(ChallengeFault, match="need cluster.secret-file or cluster.tls"):
            Credentials("orders").check_host(host, is_tls=False)


def test_two_clusters_have_no_proof_in_common() -> None:
    """Also where name and number together read the same."""
    one, other = Credentials("orders1", 0, SECRET), Credentials("orders", 10, SECRET)
    nonces = bytes(NONCE_SIZE), bytes(NONCE_SIZE)
    assert one.proof(b"role", *nonces) != other.proof(b"role", *nonces)


def test_a_side_whose_peer_has_no_secret_or_alone_has_one_says_so() -> None:
    """Before anything is proven, so that the operator of each sees what is missing where."""
    with pytest.raises(ChallengeFault, match="has a secret, this one has none"):
        ListenerChallenge(Credentials("orders")).answer(Prove(1, bytes(NONCE_SIZE), b"proof"))
    with pytest.raises(ChallengeFault, match="has no secret, this one has"):
        ConnectorChallenge(CIRCLE).answer(Greet(1, b""))
