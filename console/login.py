"""Logins by name and password. Source: management page 1.5, 20.

A password is checked at each request, so a new one takes effect at once. A check takes microseconds, because the hash
has one round, as in RabbitMQ.
"""

import base64
import binascii
from collections.abc import Callable

from ..engine import HTTP, Broker, User, errors
from .http_messages import CHALLENGE, Peer, Refusal, not_authorised
from .permissions import TAGS, missing_tag

_NS_A_SECOND = 1_000_000_000


def credentials(header: str) -> tuple[str, str] | None:
    """Name and password of a Basic header; None: it is another header."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None


def login_failed(*, challenges: bool = True) -> Refusal:
    """The answer to a wrong password, and to an unknown user, which must not differ."""
    return Refusal(401, "not_authorized", "Login failed", (CHALLENGE,) if challenges else ())


class Logins:
    """Checks names, passwords and tags."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker

    def log_in(self, header: str | None, peer: Peer, *, challenges: bool = True) -> User:
        """The user of an `authorization` header. Raises: Refusal.

        `challenges`: make browsers ask for a password. That is wrong for requests of the page, which has a form.
        """
        if header is None:
            raise Refusal(401, headers=(CHALLENGE,) if challenges else ())
        found = credentials(header)
        user = None if found is None else self.check(*found, peer)
        if user is None:
            raise login_failed(challenges=challenges)
        return self.check_admitted(user, peer)

    def check(self, name: str, password: str, peer: Peer) -> User | None:
        """The user of this name and password; None: one of them is wrong. Raises: Refusal, while logins are throttled.

        Whether the user may log in from the peer's address is not checked here, see `check_admitted`.
        """
        try:
            return self._broker().users.log_in(name, password, mechanism=HTTP, is_loopback=True, origin=peer.origin)
        except errors.LoginThrottled as throttled:
            wait_s = -(-throttled.wait_ns // _NS_A_SECOND)
            headers = (("retry-after", str(wait_s)),)
            raise Refusal(
                429, "too_many_failed_logins", f"too many logins failed: try again in {wait_s} s", headers
            ) from None
        except errors.LoginRefused:
            return None

    def check_admitted(self, user: User, peer: Peer) -> User:
        """Check that the user may use the API from the peer's address. Raises: Refusal."""
        if user.loopback_only and not peer.is_loopback:
            raise not_authorised("User can only log in via localhost")
        if TAGS.isdisjoint(user.tags):
            raise not_authorised("Not management user", missing_tag(user, "management, policymaker, monitoring"))
        return user
