"""The first seconds of a link: TLS, the shared secret. Then both sides exchange messages.

Source: reference 5. Nothing that a stranger sends is stored beyond the 4 KiB of a `Prove`, and nothing is answered to
what is no frame.
"""

import math
import socket
import ssl
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import trio

from ..resolver import Resolver
from .challenge import ChallengeFault, Circle, ConnectorChallenge, ListenerChallenge
from .frames import Decoder, FrameFault, Greet, Message, No, Proof, Prove, encode

#: Octets of one read.
READ_SIZE = 256 * 1024
#: The time limit of one message of the introduction, whose time is limited as a whole.
FOREVER = math.inf


@dataclass(slots=True, frozen=True)
class LinkOptions:
    """Times and limits of links.

    silence_s: a link is closed when nothing was heard for this long. introduction_s: until a connection has proven the
    secret and said what it wants. backlog_octets: of one follower, in memory. copy_rate: octets a second that are read
    from files for one follower.
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


class LinkTls:
    """The contexts of links; None: links have no TLS. A context trusts all authorities that it ever read, so a reload
    puts others in the place of both. `trusted`: what they trust; authorities, or certificates of nodes themselves.
    `has_dropped`: such a reload took one of these away.
    """

    def __init__(
        self,
        server: ssl.SSLContext | None = None,
        client: ssl.SSLContext | None = None,
        trusted: frozenset[str] = frozenset(),
    ) -> None:
        self.server, self.client, self.trusted = server, client, trusted
        self.has_dropped = False

    def replace(self, fresh: "LinkTls") -> None:
        """Take the contexts of `fresh` for later links. Call it only if links have TLS."""
        if self.server is not None and fresh.server is not None:
            self.has_dropped |= not self.trusted <= fresh.trusted
            self.trusted = fresh.trusted
            self.server, self.client = fresh.server, fresh.client


class LinkFault(Exception):
    """The link ended, for the reason in the text."""


class Refused(LinkFault):
    """The other machine refuses the connection: no process listens there."""


class Declined(LinkFault):
    """The other node answered No. `is_final`: it will again, until an operator has changed something."""

    def __init__(self, why: str, *, is_final: bool) -> None:
        super().__init__(why)
        self.is_final = is_final


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


def without_low_water(stream: trio.SocketStream) -> trio.SocketStream:
    """Undo what trio sets for interactive streams: a socket that is not writable again before it has only 16 KiB left.

    Measured with a follower that catches up: 0.73 ms of the leader's CPU for 1 MiB, with it 0.98.
    """
    if (option := getattr(socket, "TCP_NOTSENT_LOWAT", None)) is not None:
        try:
            stream.setsockopt(socket.IPPROTO_TCP, option, b"\xff\xff\xff\xff")
        except OSError:  # no TCP
            pass
    return stream


class LinkStream:
    """Messages over a stream. One task may receive; any may send."""

    __slots__ = ("_decoder", "_messages", "_sending", "peer", "stream")

    def __init__(self, stream: trio.abc.Stream, peer: str) -> None:
        self.stream = stream
        self.peer = peer
        self._decoder = Decoder()
        self._messages = self._decoder.messages()
        self._sending = trio.Lock()

    async def send(self, *messages: Message) -> None:
        """Send messages, one behind the other. Raises: LinkFault."""
        await self.send_octets(b"".join(map(encode, messages)))

    async def send_octets(self, octets: bytes) -> None:
        """Send whole frames. Raises: LinkFault."""
        async with self._sending:
            try:
                await self.stream.send_all(octets)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise LinkFault("the connection was lost") from error

    async def receive(self, *expected: type[Any], timeout_s: float) -> Message:
        """The next message. `timeout_s`: of silence; any octet ends it.

        Raises: LinkFault; Declined when the message is a No; FrameFault when it is none of `expected`.
        """
        decoder = self._decoder
        decoder.expect(No, *expected)
        while (message := next(self._messages, None)) is None:
            with trio.move_on_after(timeout_s) as scope:
                data = await self._read()
            if scope.cancelled_caught:
                raise LinkFault(f"nothing was heard for {timeout_s:g} s")
            if not data:
                decoder.end()
                raise LinkFault("the other node closed the connection")
            decoder.receive(data)
            self._messages = decoder.messages()
        if isinstance(message, No):
            raise Declined(message.why, is_final=message.is_final)
        return message

    async def _read(self) -> bytes:
        try:
            return bytes(await self.stream.receive_some(READ_SIZE))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise LinkFault("the connection was lost") from error

    def take_rest(self) -> bytes:
        """Octets that were received behind the last message."""
        return self._decoder.take_rest()

    async def close(self) -> None:
        """Close the connection without waiting for the other side."""
        await trio.aclose_forcefully(self.stream)


# -- the side that accepted --------------------------------------------------------------------------------------------


async def accept(
    stream: trio.abc.Stream, peer: str, host: str, circle: Circle, tls: ssl.SSLContext | None
) -> LinkStream:
    """Introduce a connection that was accepted. `host`: address of its other end.

    The caller limits the time. Raises: LinkFault, FrameFault, ChallengeFault.
    """
    circle.check_host(host, is_tls=tls is not None)
    link = LinkStream(await _secured(stream, tls, None), peer)
    challenge = ListenerChallenge(circle)
    await link.send(challenge.greet())
    said = await link.receive(Prove, timeout_s=FOREVER)
    assert isinstance(said, Prove)
    try:
        proof = challenge.answer(said)
    except ChallengeFault as fault:
        await link.send(No(str(fault)))
        raise
    await link.send(proof)
    return link


async def _secured(stream: trio.abc.Stream, tls: ssl.SSLContext | None, host: str | None) -> trio.abc.Stream:
    """TLS over the stream, if there is a context. `host`: the name to check; None: this is the server's side.

    Raises: LinkFault.
    """
    if tls is None:
        return stream
    secured = trio.SSLStream(stream, tls, server_hostname=host, server_side=host is None, https_compatible=True)
    try:
        await secured.do_handshake()
    except trio.BrokenResourceError as error:
        raise LinkFault(f"TLS: {error.__cause__ or error}") from error
    return secured


# -- the side that connects --------------------------------------------------------------------------------------------


async def connect(address: Address, circle: Circle, tls: ssl.SSLContext | None, options: LinkOptions) -> LinkStream:
    """Connect to a node and introduce the connection.

    Raises: Refused, Declined, LinkFault, FrameFault, ChallengeFault.
    """
    with trio.move_on_after(options.connect_s) as connecting:
        sock = await _connected(address, circle, options, is_tls=tls is not None)
    if connecting.cancelled_caught:
        raise LinkFault(f"{address} does not answer")
    stream = without_low_water(trio.SocketStream(sock))
    try:
        with trio.move_on_after(options.introduction_s) as introducing:
            link = LinkStream(await _secured(stream, tls, address.host), str(address))
            challenge = ConnectorChallenge(circle)
            greet = await link.receive(Greet, timeout_s=FOREVER)
            assert isinstance(greet, Greet)
            await link.send(challenge.answer(greet))
            proof = await link.receive(Proof, timeout_s=FOREVER)
            assert isinstance(proof, Proof)
            challenge.check(proof)
            return link
        assert introducing.cancelled_caught
        raise LinkFault(f"{address} did not introduce itself within {options.introduction_s:g} s")
    except BaseException:
        sock.close()
        raise


async def _connected(address: Address, circle: Circle, options: LinkOptions, *, is_tls: bool) -> trio.socket.SocketType:
    """A socket that is connected to one of the host's addresses. Raises: Refused, LinkFault, ChallengeFault."""
    resolver = options.resolver
    found = resolver.numeric(address.host, address.port)
    if found is None:
        asked = address.host, address.port, options.connect_s / 2
        try:
            found = await trio.to_thread.run_sync(resolver.resolve, *asked, abandon_on_cancel=True)
        except OSError as error:
            raise LinkFault(f"{address}: {error.strerror or error}") from error
    fault: LinkFault = LinkFault(f"{address} has no address")
    for family, kind, protocol, _, target in found:
        circle.check_host(str(target[0]), is_tls=is_tls)
        sock = trio.socket.socket(family, kind, protocol)
        try:
            await sock.connect(target)
            return sock
        except ConnectionRefusedError:
            fault = Refused(f"{address} refuses connections")
        except OSError as error:
            fault = LinkFault(f"{address}: {error.strerror or error}")
        except BaseException:
            sock.close()
            raise
        sock.close()
    raise fault


class Reach(Enum):
    """Whether a node of this circle answers at an address. REFUSED: no process listens there."""

    REACHED = auto()
    REFUSED = auto()
    UNREACHED = auto()


async def reach(address: Address, circle: Circle, tls: ssl.SSLContext | None, options: LinkOptions) -> Reach:
    """Try to reach a node, for `connect_s`: a leader that is cut off resigns when it hears that others miss it."""
    with trio.move_on_after(options.connect_s):
        try:
            link = await connect(address, circle, tls, options)
        except Refused:
            return Reach.REFUSED
        except (LinkFault, FrameFault, ChallengeFault):
            return Reach.UNREACHED
        await link.close()
        return Reach.REACHED
    return Reach.UNREACHED
