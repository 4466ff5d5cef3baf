"""The first messages of a link: TLS, then the proof of the shared secret.

At most 4 KiB of a stranger's octets are stored, the limit of `Prove`. Octets that are not a frame get no answer.
"""

import ssl
from enum import Enum, auto

import trio

from .challenge import ChallengeFault, ConnectorChallenge, Credentials, ListenerChallenge
from .frames import FrameFault, Greet, No, Proof, Prove
from .options import Address, LinkOptions
from .stream import FOREVER, LinkFault, LinkStream, Refused, without_low_water

# -- the side that accepted --------------------------------------------------------------------------------------------


async def accept(
    stream: trio.abc.Stream, host: str, credentials: Credentials, tls: ssl.SSLContext | None
) -> LinkStream:
    """Make a link of a connection that was accepted. `host`: address of its other end.

    The caller limits the time. Raises: LinkFault, FrameFault, ChallengeFault.
    """
    credentials.check_host(host, is_tls=tls is not None)
    link = LinkStream(await _secured(stream, tls, None))
    challenge = ListenerChallenge(credentials)
    await link.send(challenge.greet())
    prove = await link.receive(Prove, timeout_s=FOREVER)
    assert isinstance(prove, Prove)
    try:
        proof = challenge.answer(prove)
    except ChallengeFault as fault:
        await link.send(No(str(fault)))
        raise
    await link.send(proof)
    return link


async def _secured(stream: trio.abc.Stream, tls: ssl.SSLContext | None, host: str | None) -> trio.abc.Stream:
    """The stream with TLS, if there is a context. `host`: the name to check; None: this is the server's side.

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


async def connect(
    address: Address, credentials: Credentials, tls: ssl.SSLContext | None, options: LinkOptions
) -> LinkStream:
    """Connect to a node, and make a link of the connection.

    Raises: Refused, Declined, LinkFault, FrameFault, ChallengeFault.
    """
    with trio.move_on_after(options.connect_s) as connecting:
        sock = await _connected(address, credentials, options, is_tls=tls is not None)
    if connecting.cancelled_caught:
        raise LinkFault(f"{address} does not answer")
    stream = without_low_water(trio.SocketStream(sock))
    try:
        with trio.move_on_after(options.introduction_s) as introducing:
            link = LinkStream(await _secured(stream, tls, address.host))
            challenge = ConnectorChallenge(credentials)
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


async def _connected(
    address: Address, credentials: Credentials, options: LinkOptions, *, is_tls: bool
) -> trio.socket.SocketType:
    """A socket that is connected to one of the host's addresses. Each gets its share of the time that is left.

    Raises: Refused, LinkFault, ChallengeFault.
    """
    resolver = options.resolver
    found = resolver.numeric(address.host, address.port)
    if found is None:
        asked = address.host, address.port, options.connect_s / 2
        try:
            found = await trio.to_thread.run_sync(resolver.resolve, *asked, abandon_on_cancel=True)
        except OSError as error:
            raise LinkFault(f"{address}: {error.strerror or error}") from error
    fault: LinkFault = LinkFault(f"{address} has no address")
    silent: LinkFault | None = None  # an address that does not answer: its process may run, whatever others say
    for left, (family, kind, protocol, _, target) in zip(range(len(found), 0, -1), found):
        credentials.check_host(str(target[0]), is_tls=is_tls)
        try:
            sock = trio.socket.socket(family, kind, protocol)
        except OSError as error:  # no descriptor is free, or this system has no IPv6
            fault = LinkFault(f"{address}: {error.strerror or error}")
            continue
        try:
            with trio.move_on_after((trio.current_effective_deadline() - trio.current_time()) / left):
                await sock.connect(target)
                return sock
            silent = LinkFault(f"{address} does not answer")
        except ConnectionRefusedError:
            fault = Refused(f"{address} refuses connections")
        except OSError as error:
            fault = LinkFault(f"{address}: {error.strerror or error}")
        except BaseException:
            sock.close()
            raise
        sock.close()
    raise silent or fault


class Reach(Enum):
    """Whether a node with the same credentials answers at an address. REFUSED: the machine answers, but no process."""

    REACHED = auto()
    REFUSED = auto()
    UNREACHED = auto()


async def reach(address: Address, credentials: Credentials, tls: ssl.SSLContext | None, options: LinkOptions) -> Reach:
    """Try to reach a node, for `connect_s`. A node writes the results into etcd: so an unreachable leader resigns."""
    with trio.move_on_after(options.connect_s):
        try:
            link = await connect(address, credentials, tls, options)
        except Refused:
            return Reach.REFUSED
        except (LinkFault, FrameFault, ChallengeFault):
            return Reach.UNREACHED
        await link.close()
        return Reach.REACHED
    return Reach.UNREACHED
