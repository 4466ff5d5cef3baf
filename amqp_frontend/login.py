"""Who is at the other end of a connection, as far as it is known."""

from typing import Any

from ..engine import Client, Link, User, VirtualHost
from .sasl import Peer


class Login:
    """`peer` is known from the start, `user` when it has logged in, `client` and `vhost` when it has opened one."""

    __slots__ = ("capabilities", "client", "client_properties", "link", "mechanism", "peer", "user", "vhost")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.client_properties: dict[str, Any] = {}
        self.capabilities: frozenset[str] = frozenset()
        self.link = Link("AMQP 0-9-1")
        self.mechanism = ""
        self.user: User | None = None
        self.client: Client | None = None
        self.vhost: VirtualHost | None = None

    def introduced(self, properties: dict[str, Any]) -> None:
        """The client has said what it is, and what it can do."""
        self.client_properties = properties
        capabilities = properties.get("capabilities")
        if capabilities is not None and isinstance(capabilities.value, dict):
            self.capabilities = frozenset(name for name, field in capabilities.value.items() if field.value is True)
