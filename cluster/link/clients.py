"""Passes the clients of a follower on to the leader, each over its own link.

The leader serves such a link like a client's connection, under the client's own address (client_header.py).
"""

import socket
from enum import Enum, auto

import trio

from .challenge import ChallengeFault, Credentials
from .frames import VERSION, Accept, Client, FrameFault
from .introduction import connect
from .options import Address, LinkOptions, LinkTls
from .relay import relay
from .stream import LinkFault


class Passed(Enum):
    """How passing a client on ended. REFUSED: nothing was sent to the client or read from it; it can be tried again."""

    SERVED = auto()
    REFUSED = auto()


class ClientPasser:
    """Passes the clients of one node on."""

    def __init__(
        self, credentials: Credentials, name: str, options: LinkOptions, *, tls: LinkTls | None = None
    ) -> None:
        self._credentials = credentials
        self._name = name
        self._options = options
        self._tls = tls or LinkTls()
        self._passed: set[trio.CancelScope] = set()

    def end_all(self) -> None:
        """Close all clients that are passed on, after trust in a certificate was withdrawn.

        Later links are opened with the new TLS files.
        """
        for scope in self._passed:
            scope.cancel()

    async def pass_on(
        self,
        client: socket.socket | trio.abc.Stream,
        first: bytes,
        leader: Address,
        header: bytes,
        service: str = "amqp",
    ) -> Passed:
        """Pass a client on until both sides have ended, or one broke; then close it. A REFUSED client stays open.

        first: octets already read from the client. header: of `client_header`. service: the frontend that it wants.
        """
        options, credentials, tls = self._options, self._credentials, self._tls.client
        try:
            link = await connect(leader, credentials, tls, options)
        except (LinkFault, FrameFault, ChallengeFault):
            return Passed.REFUSED
        if isinstance(client, socket.socket):
            client = trio.SocketStream(trio.socket.from_stdlib_socket(client))
        is_served, scope = False, trio.CancelScope()
        try:
            request = Client(VERSION, credentials.cluster, credentials.group, self._name, service, header)
            try:
                await link.send(request)
                await link.receive(Accept, timeout_s=options.introduction_s)
            except (LinkFault, FrameFault):
                return Passed.REFUSED
            is_served = self._tls.client is tls  # otherwise the TLS files were replaced meanwhile
            if not is_served:
                return Passed.REFUSED
            self._passed.add(scope)
            with scope:
                await relay(client, link.stream, first=first, early=link.take_rest())
            return Passed.SERVED
        finally:
            self._passed.discard(scope)
            with trio.CancelScope(shield=True):
                await link.close()
                if is_served:
                    await trio.aclose_forcefully(client)
