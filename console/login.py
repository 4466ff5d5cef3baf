"""Who asks, and what the tags of a user allow. Source: management page 1.5, 20.

Hashes are of one round, as RabbitMQ's are: to check one takes microseconds, so that nothing is cached, and a changed
password counts at once.
"""

import base64
import binascii
from collections.abc import Callable

from ..engine import HTTP, Broker, User, errors
from .messages import CHALLENGE, Peer, Refusal, not_authorised

#: Tags with which the API may be used at all.
TAGS = frozenset({"administrator", "monitoring", "policymaker", "management"})
_MONITORS, _POLICYMAKERS = frozenset({"administrator", "monitoring"}), frozenset({"administrator", "policymaker"})
_NS_A_SECOND = 1_000_000_000


def is_administrator(user: User) -> bool:
    """Whether everything is open."""
    return "administrator" in user.tags


def is_monitor(user: User) -> bool:
    """Whether nodes, and all connections and channels, may be seen."""
    return not _MONITORS.isdisjoint(user.tags)


def is_policymaker(user: User) -> bool:
    """Whether policies and parameters may be set."""
    return not _POLICYMAKERS.isdisjoint(user.tags)


def has_vhost(user: User, vhost: str) -> bool:
    """Whether the user has a permission entry there."""
    return user.permissions is None or vhost in user.permissions


def may_see(user: User, vhost: str) -> bool:
    """Whether objects of a virtual host are shown."""
    return is_administrator(user) or has_vhost(user, vhost)


def credentials(header: str) -> tuple[str, str] | None:
    """Name and password of a Basic header; None: it is none."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None


def login_failed(*, challenges: bool = True) -> Refusal:
    """Wrong password or unknown user: nobody learns which."""
    return Refusal(401, "not_authorized", "Login failed", (CHALLENGE,) if challenges else ())


class Logins:
    """Checks logins."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker

    def log_in(self, header: str | None, peer: Peer, *, challenges: bool = True) -> User:
        """The user of an `authorization` header. Raises: Refusal.

        `challenges`: a browser may ask for a password; not for requests of the page itself.
        """
        challenge = (CHALLENGE,) if challenges else ()
        if header is None:
            raise Refusal(401, headers=challenge)
        found = credentials(header)
        user = None if found is None else self.check(*found, peer)
        if user is None:
            raise Refusal(401, "not_authorized", "Login failed", challenge)
        return self.admitted(user, peer)

    def check(self, name: str, password: str, peer: Peer) -> User | None:
        """The user whose password it is, wherever he is; None: it is not. Raises: Refusal, while none is looked at."""
        try:
            return self._broker().users.log_in(name, password, mechanism=HTTP, is_loopback=True, origin=peer.origin)
        except errors.LoginBraked as braked:
            wait_s = -(-braked.wait_ns // _NS_A_SECOND)
            headers = (("retry-after", str(wait_s)),)
            raise Refusal(
                429, "too_many_failed_logins", f"too many logins failed: try again in {wait_s} s", headers
            ) from None
        except errors.LoginRefused:
            return None

    def admitted(self, user: User, peer: Peer) -> User:
        """The user, if he may use the API from there. Raises: Refusal."""
        if user.loopback_only and not peer.is_loopback:
            raise not_authorised("User can only log in via localhost")
        if TAGS.isdisjoint(user.tags):
            raise not_authorised("Not management user")
        return user
