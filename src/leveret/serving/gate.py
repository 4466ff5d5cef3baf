"""The gate of a cluster node: it accepts clients while the node does not lead, and holds them or passes them on.

Clients that it holds when the node begins to lead are handed to the node's frontends. The gate peeks at sockets and
does not read them, so that the server of a client gets all its octets. Where it terminates TLS, it keeps what it has
read (`GateClient.first`).
"""

import errno
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import trio
from pamqp import commands

from ..amqp_frontend.edge.arrival import Arrival
from ..amqp_frontend.edge.proxy_protocol import ProxyFault, peer_of
from ..amqp_frontend.edge.tls import TlsFault
from ..amqp_frontend.options import FrontendOptions
from ..amqp_frontend.wire.codec import encode_method
from ..cluster.link.clients import Passed
from ..cluster.link.relay import relay
from ..console.cluster import NOT_LED
from ..console.encoding import encoded
from .descriptors import descriptor_limits
from .gate_client import GateClient, Service, TlsStream
from .listeners import Listeners

logger = logging.getLogger("leveret.cluster")
amqp_logger = logging.getLogger("leveret.amqp")

#: Maximum clients that are answered, held or passed on at the same time. Another one is closed at once.
CLIENTS_MAX = 10_000
#: Maximum TLS handshakes at the same time, of up to 100 KiB each. One more cancels the oldest.
HANDSHAKES_MAX = 256
#: Seconds between two attempts to pass a client on: a leader that refuses clients may not serve yet.
RETRY_S = 0.1
#: Maximum seconds for which an HTTP request is held: a lost leader is replaced within them, and monitoring tools, which
#: wait for 15 s, get an answer with the reason.
HTTP_PATIENCE_S = 10.0
#: Seconds after which clients of a lost leader are closed; a leader that resigns closes them itself.
GRACE_S = 0.5
#: To see the path of an HTTP request: octets to peek at besides the path, and seconds to wait for them.
PEEKED, PEEK_S = 16, 5.0
#: Requests about this node, not about the broker: pages, and paths of the API.
_OWN_PAGES, _OWN_OF_API = (b"/metrics", b"/health/"), ("/api/health/", "/api/healthchecks/")
#: The first octets of `leveret ctl` at the AMQP port of a node that holds clients; no AMQP client sends them.
NODE_REQUEST = b"GET "
#: Seconds until a failed accept, or an incomplete request, is tried again.
_PAUSE_S = 0.1


#: Passes a client on to the leader. Returns when the connection is over, or the leader has refused it.
PassOn = Callable[[GateClient], Awaitable[Passed]]


@dataclass(slots=True, frozen=True)
class Frontends:
    """The channels through which this node's frontends take connections while it leads."""

    amqp: trio.MemorySendChannel[Arrival]
    console: trio.MemorySendChannel[Arrival]


def own_paths(prefix: str) -> tuple[bytes, ...]:
    """The paths of HTTP requests about this node. `prefix`: of the API."""
    return (*_OWN_PAGES, *(f"{prefix}{path}".encode() for path in _OWN_OF_API))


class Gate:
    """Accepts clients on the process's listeners while no broker of this process does.

    `patience_s`: how long a client is held; one of HTTP at most `HTTP_PATIENCE_S`. `answer`: answers HTTP requests
    about this node (metrics, health), with the paths `own_paths`, and those of `leveret ctl` at the AMQP port.
    `options`: of the AMQP frontend, for the next TLS handshake.
    """

    def __init__(
        self,
        listeners: Listeners,
        patience_s: Callable[[], float],
        answer: Callable[[GateClient], Awaitable[None]],
        *,
        options: Callable[[], FrontendOptions] = FrontendOptions,
        own_paths: Callable[[], tuple[bytes, ...]] = lambda: own_paths(""),
    ) -> None:
        self._listeners = listeners
        self._patience_s = patience_s
        self._answer = answer
        self._options = options
        self._own_paths = own_paths
        self._pass_on: PassOn | None = None  # None: there is no leader
        self.frontends: Frontends | None = None
        self._passing: dict[trio.CancelScope, None] = {}  # of clients that are passed on to the leader
        self._shaking: dict[trio.CancelScope, None] = {}  # of clients in their TLS handshake, oldest first
        self._may_accept = trio.Event()
        self._may_accept.set()
        self._accepting: set[trio.CancelScope] = set()  # of the tasks that wait for a client
        self._is_closed = False
        self._changed = trio.Event()
        self.clients = 0
        self._nursery: trio.Nursery

    # -- the destination of clients -----------------------------------------------------------------------------------

    def hold(self) -> None:
        """Hold clients: there is no leader."""
        self._set_destination(None, None)

    def pass_on(self, pass_on: PassOn) -> None:
        """Pass clients on to the leader."""
        self._set_destination(pass_on, None)

    def hand_over(self, frontends: Frontends) -> None:
        """Hand clients to this node's frontends."""
        self._set_destination(None, frontends)

    @asynccontextmanager
    async def lent_listeners(self) -> AsyncIterator[None]:
        """Lend the listeners to this node's frontends for the block, in which the gate accepts nothing."""
        self._may_accept = trio.Event()
        for scope in self._accepting:
            scope.cancel()
        while self._accepting:
            await trio.lowlevel.checkpoint()
        try:
            yield
        finally:
            self._may_accept.set()

    def close(self) -> None:
        """Refuse all clients, present and later ones: this node cannot join the cluster.

        Requests about the node are still answered.
        """
        self._is_closed = True
        self._set_destination(None, None)

    def _set_destination(self, pass_on: PassOn | None, frontends: Frontends | None) -> None:
        for scope in self._passing:
            scope.deadline = trio.current_time() + GRACE_S
        self._passing = {}
        self._pass_on, self.frontends = pass_on, frontends
        self._changed.set()
        self._changed = trio.Event()

    # -- accepting --------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept until cancelled."""
        listeners = self._listeners
        async with trio.open_nursery() as self._nursery:
            nursery = self._nursery
            for service, of_service in (
                (Service.AMQP, listeners.amqp),
                (Service.CONSOLE, listeners.console),
                (Service.METRICS, listeners.metrics),
            ):
                for listener, address in of_service.items():
                    listener.setblocking(False)
                    nursery.start_soon(partial(self._accept_from, nursery, listener, service, is_tls=address.is_tls))
            task_status.started()

    async def _accept_from(
        self, nursery: trio.Nursery, listener: socket.socket, service: Service, *, is_tls: bool
    ) -> None:
        while True:
            await self._may_accept.wait()
            if not await self._is_readable(listener):
                continue
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno != errno.ECONNABORTED:
                    logger.warning("a connection could not be accepted: %s", error.strerror or error)
                    await trio.sleep(_PAUSE_S)
                continue
            sock.setblocking(False)
            limit = descriptor_limits().connections
            if self.clients >= CLIENTS_MAX or (limit is not None and sock.fileno() >= limit):
                sock.close()
                continue
            nursery.start_soon(self._serve_client, GateClient(Arrival(sock, address, is_tls), service))

    async def _is_readable(self, listener: socket.socket) -> bool:
        """Wait for a client. Returns False if the listeners were lent meanwhile."""
        with trio.CancelScope() as scope:
            self._accepting.add(scope)
            try:
                await trio.lowlevel.wait_readable(listener)
            finally:
                self._accepting.discard(scope)
        return not scope.cancel_called

    def take(self, arrival: Arrival, wait: Callable[[], Awaitable[None]]) -> None:
        """Take over a client that this node's broker accepted while it is silent (see `Runtime`).

        A request about the node is answered at once; any other client gets a server after `wait`.
        """
        arrival.socket.setblocking(False)
        self._nursery.start_soon(self._serve_client, GateClient(arrival, Service.AMQP), wait)

    # -- one client -------------------------------------------------------------------------------------------------

    async def _serve_client(self, client: GateClient, wait: Callable[[], Awaitable[None]] | None = None) -> None:
        """Answer a client, or find a server for it; close its socket unless another part owns it."""
        self.clients += 1
        is_ours = True
        try:
            is_served = self.frontends is not None and wait is None and client.service is not Service.METRICS
            if client.must_shake_hands and not is_served:
                await self._shake_hands(client)
            if client.service is Service.METRICS or await self._asks_for_node(client):
                await self._answer(client)
            else:
                if wait is not None:
                    await wait()
                is_ours = await self._find_server(client)
        except (TlsFault, ProxyFault) as fault:
            what = "TLS" if isinstance(fault, TlsFault) else "PROXY header"
            level = logging.WARNING if client.service is Service.AMQP else logging.DEBUG  # as the frontends do
            amqp_logger.log(level, "%s: %s: %s", peer_of(client.address, client.local).name, what, fault)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client is gone
        finally:
            self.clients -= 1
            if is_ours:
                client.close()

    async def _shake_hands(self, client: GateClient) -> None:
        """Terminate a client's TLS; a newer client may cancel it. Raises: TlsFault, ProxyFault, OSError."""
        shaking = self._shaking
        if len(shaking) >= HANDSHAKES_MAX:
            oldest = next(iter(shaking))
            del shaking[oldest]
            oldest.cancel()
        with trio.CancelScope() as scope:
            shaking[scope] = None
            try:
                await client.terminate_tls(self._options())
            finally:
                shaking.pop(scope, None)
        if scope.cancelled_caught:
            raise TlsFault("handshake: cancelled, because newer clients need room")

    async def _asks_for_node(self, client: GateClient) -> bool:
        """Whether a client's first octets ask for this node's metrics, health or state."""
        if client.must_shake_hands:
            return False
        paths = self._own_paths()
        longest = max(map(len, paths))
        with trio.move_on_after(PEEK_S):
            while True:
                head = await client.peek(longest + PEEKED)
                if client.service is Service.AMQP:
                    return head.startswith(NODE_REQUEST)
                path = head.partition(b" ")[2]
                if not head or len(path) >= longest or b"\n" in head or len(head) >= longest + PEEKED:
                    return path.startswith(paths)
                await trio.sleep(_PAUSE_S)  # for the rest of its first line
        return False

    async def _find_server(self, client: GateClient) -> bool:
        """Hold a client until it is handed over, passed on or refused. Returns whether the gate owns the socket."""
        patience_s = self._patience_s()
        is_amqp = client.service is Service.AMQP
        until = trio.current_time() + (patience_s if is_amqp else min(patience_s, HTTP_PATIENCE_S))
        while True:
            changed = self._changed
            if self.frontends is not None:
                frontends = self.frontends
                try:
                    if is_amqp:
                        await frontends.amqp.send(client.arrival())
                    else:
                        await frontends.console.send(self._for_console(client))
                except (trio.BrokenResourceError, trio.ClosedResourceError):  # the broker has ended just now
                    if self.frontends is frontends:
                        return True
                    continue
                return False
            pause_s = float("inf")
            if self._pass_on is not None:
                if await self._pass_on_to_leader(client, self._pass_on):
                    return True
                pause_s = RETRY_S
            left_s = 0.0 if self._is_closed else until - trio.current_time()
            if left_s <= 0:
                why = self._why_refused()
                logger.warning("a client is refused: %s", why)
                client.send_goodbye(goodbye(client.service, why))
                return True
            with trio.move_on_after(min(pause_s, left_s)):
                await changed.wait()

    def _why_refused(self) -> str:
        if self._is_closed:
            return "this node cannot be one of the cluster"
        return NOT_LED if self._pass_on is None else "the node that leads does not serve clients"

    def _for_console(self, client: GateClient) -> Arrival:
        """The arrival for the console, which reads only sockets: terminated TLS is relayed through a socket pair."""
        arrival, stream = client.arrival(), client.stream() if client.tls is not None else None
        if not isinstance(stream, TlsStream):
            return arrival
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        other = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
        self._nursery.start_soon(_relay, stream, other, client)
        return replace(arrival, socket=ours)

    async def _pass_on_to_leader(self, client: GateClient, pass_on: PassOn) -> bool:
        """Returns whether the connection is over; False: the leader refused it."""
        passing, passed = self._passing, Passed.SERVED
        with trio.CancelScope() as scope:
            passing[scope] = None
            try:
                passed = await pass_on(client)
            finally:
                passing.pop(scope, None)
        return passed is Passed.SERVED


async def _relay(stream: TlsStream, other: trio.SocketStream, client: GateClient) -> None:
    try:
        await relay(stream, other, first=client.first)
    finally:
        other.socket.close()
        client.close()


def goodbye(service: Service, why: str) -> bytes:
    """The last answer to a client that is refused: connection.close with 320, or HTTP 503."""
    if service is Service.AMQP:
        return encode_method(0, commands.Connection.Close, 320, f"CONNECTION_FORCED - {why}", 0, 0)
    body = encoded({"error": "not_leading", "reason": why})
    head = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
