"""How a node's links are made: addresses, limits, TLS."""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from ..resolver import Resolver


async def until_readable(fd: int, turn: Callable[[], str | None]) -> str:
    """Call `turn` whenever the descriptor is readable, until it returns a value. Returns: the value."""
    while True:
        await trio.lowlevel.wait_readable(fd)
        if (result := turn()) is not None:
            return result


@dataclass(slots=True, frozen=True)
class Address:
    """Where a node listens for links."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read a text that `str` made. Raises: ValueError."""
        host, _, port = text.rpartition(":")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))


@dataclass(slots=True, frozen=True)
class LinkOptions:
    """Times and limits of links.

    silence_s: a link is closed when nothing was heard for this long. introduction_s: the time in which a connection has
    to prove the secret and send Hello or Client. backlog_octets: maximum octets in memory for one follower. copy_rate:
    octets a second that are read from files for one follower; 0: no limit. until_readable: how a leader waits for what
    a follower sends.
    """

    beacon_s: float = 0.5
    silence_s: float = 3.0
    connect_s: float = 2.0
    introduction_s: float = 5.0
    retry_s: float = 0.15
    backlog_octets: int = 64 * 1024 * 1024
    copy_rate: int = 100 * 1024 * 1024
    introductions_max: int = 128
    resolver: Resolver = field(default_factory=Resolver, compare=False)
    until_readable: Callable[[int, Callable[[], str | None]], Awaitable[str]] = until_readable


class LinkTls:
    """The TLS contexts of links; None: links have no TLS.

    A context trusts all certificates that it ever read, so a reload replaces both contexts. trusted: the certificates
    that they trust, of authorities or of nodes. has_dropped: a reload removed one of these. expires_ms: wall times at
    which this node's certificate, and the others in its file, expire.
    """

    def __init__(
        self,
        server: ssl.SSLContext | None = None,
        client: ssl.SSLContext | None = None,
        trusted: frozenset[str] = frozenset(),
        expires_ms: tuple[int, ...] = (),
    ) -> None:
        self.server, self.client, self.trusted = server, client, trusted
        self.expires_ms = expires_ms
        self.has_dropped = False

    def doubt(self, wall_ms: int) -> str:
        """Why other nodes may close a link without giving a reason, in words; "": none is known."""
        is_over = min(self.expires_ms, default=wall_ms + 1) <= wall_ms
        return " (the certificate of this node has expired)" if is_over else ""

    def replace(self, fresh: "LinkTls") -> None:
        """Use the contexts of `fresh` for later links. Call it only if links have TLS."""
        if self.server is not None and fresh.server is not None:
            self.has_dropped |= not self.trusted <= fresh.trusted
            self.trusted = fresh.trusted
            self.server, self.client, self.expires_ms = fresh.server, fresh.client, fresh.expires_ms
