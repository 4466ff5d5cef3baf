"""The identity of the other end of a connection, and how it logs in: SASL mechanisms.

Source: behaviour page 1.4.
"""

from collections.abc import Callable
from dataclasses import field
from typing import Any

from ...engine import Client, ConnectionInfo, FieldTableError, User, Users, VirtualHost, decode_bare_table, errors
from ...settings.frozen import frozen


class MalformedResponse(Exception):
    """The response does not have its mechanism's form: an error of the peer, not a refused login."""


@frozen
class Peer:
    """The peer before its login. `certified_name`: proven by a client certificate.

    `origin`: see `address_origin`. Half-open slots and failed logins are counted for each origin.
    """

    name: str
    is_loopback: bool
    certified_name: str | None = None
    is_secured: bool = False  # by TLS
    origin: str = field(default="", compare=False)

    def offered(self, mechanisms: tuple[str, ...]) -> tuple[str, ...]:
        """The enabled mechanisms to offer: EXTERNAL only over TLS, with or without a certificate.

        Without a certificate it is refused with a reason, which helps users more than a missing mechanism. Source:
        RabbitMQ.
        """
        if self.is_secured or "EXTERNAL" not in mechanisms:
            return mechanisms
        return tuple(name for name in mechanisms if name != "EXTERNAL")


def _plain(response: bytes, users: Users, peer: Peer, anonymous: str) -> User:
    parts = response.split(b"\x00")
    if len(parts) != 3 or parts[0]:
        raise MalformedResponse("PLAIN: not NUL user NUL password")
    try:
        name, password = parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:  # no user has such a name or password
        raise errors.LoginRefused(mechanism="PLAIN") from None
    return users.log_in(name, password, mechanism="PLAIN", is_loopback=peer.is_loopback, origin=peer.origin)


def _amqplain(response: bytes, users: Users, peer: Peer, anonymous: str) -> User:
    try:
        table = decode_bare_table(response)
        login, password = table["LOGIN"], table["PASSWORD"]
    except (FieldTableError, KeyError):
        raise MalformedResponse("AMQPLAIN: no table with LOGIN and PASSWORD") from None
    if login.tag != "S" or password.tag != "S":
        raise errors.LoginRefused(mechanism="AMQPLAIN")
    return users.log_in(
        login.text, password.text, mechanism="AMQPLAIN", is_loopback=peer.is_loopback, origin=peer.origin
    )


def _anonymous(response: bytes, users: Users, peer: Peer, anonymous: str) -> User:
    return users.identify(anonymous, mechanism="ANONYMOUS", is_loopback=peer.is_loopback)


def _external(response: bytes, users: Users, peer: Peer, anonymous: str) -> User:
    if peer.certified_name is None:
        raise errors.LoginRefused(mechanism="EXTERNAL")
    return users.identify(peer.certified_name, mechanism="EXTERNAL", is_loopback=peer.is_loopback)


#: Mechanism -> (response, users, peer, name of the anonymous user) -> user.
#: Each raises MalformedResponse or LoginRefused.
MECHANISMS: dict[str, Callable[[bytes, Users, Peer, str], User]] = {
    "PLAIN": _plain,
    "AMQPLAIN": _amqplain,
    "ANONYMOUS": _anonymous,
    "EXTERNAL": _external,
}


class Login:
    """The login of a connection. `user` is set by a login, `client` and `vhost` by connection.open. `site`: see
    `Arrival`.
    """

    __slots__ = ("capabilities", "client", "client_properties", "connection_info", "mechanism", "peer", "site", "user",
                 "vhost")  # fmt: skip

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.client_properties: dict[str, Any] = {}
        self.capabilities: frozenset[str] = frozenset()
        self.connection_info = ConnectionInfo("AMQP 0-9-1")
        self.mechanism = ""
        self.site: str | None = None
        self.user: User | None = None
        self.client: Client | None = None
        self.vhost: VirtualHost | None = None

    def note_properties(self, properties: dict[str, Any]) -> None:
        """Note the client properties of connection.start-ok, and the capabilities among them."""
        self.client_properties = properties
        capabilities = properties.get("capabilities")
        if capabilities is not None and isinstance(capabilities.value, dict):
            self.capabilities = frozenset(name for name, field in capabilities.value.items() if field.value is True)
