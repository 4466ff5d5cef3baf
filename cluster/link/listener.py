"""A node's listener for links.

It is open in every state of the node, so a refused connection means that the node's process has ended. A leader serves
followers, and clients that they pass on; any other node answers No.
"""

import logging
import socket
from collections.abc import Callable, Sequence

import trio

from .challenge import ChallengeFault, Credentials
from .follower_links import FollowerLinks
from .frames import Accept, Client, FrameFault, Hello, No
from .introduction import accept
from .options import LinkOptions, LinkTls
from .relay import as_socket
from .stream import FOREVER, Declined, LinkFault, LinkStream, without_low_water

logger = logging.getLogger("leveret.cluster")

#: Seconds between two log lines about one host that is refused, and the number of hosts that are remembered for that. A
#: host may try many times a second.
REFUSAL_S, REFUSED_MAX = 60.0, 1000

#: Serves a client. Arguments: the non-blocking socket, octets already read from it, the PROXY header, the frontend that
#: the client wants, and the name of the node to which it is connected.
OnClient = Callable[[socket.socket, bytes, bytes, str, str], object]


class LinkListener:
    """Accepts links. `links`: serves followers; None while this node does not lead.

    takes_clients: whether clients are served now. A leader serves followers earlier.
    """

    def __init__(
        self,
        credentials: Credentials,
        name: str,
        on_client: OnClient,
        options: LinkOptions | None = None,
        *,
        tls: LinkTls | None = None,
        takes_clients: Callable[[], bool] = lambda: True,
    ) -> None:
        self.links: FollowerLinks | None = None
        self._credentials = credentials
        self._name = name
        self._on_client = on_client
        self._options = options or LinkOptions()
        self._tls = tls or LinkTls()
        self._takes_clients = takes_clients
        self._refused_s: dict[str, float] = {}  # host -> time of the last log line
        self._served: set[trio.CancelScope] = set()  # of all connections
        self._introducing: dict[trio.CancelScope, None] = {}  # of connections without Hello or Client yet; oldest first

    async def serve(
        self,
        listeners: Sequence[socket.socket],
        *,
        task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept links on bound and listening sockets until cancelled."""
        found = [trio.SocketListener(trio.socket.from_stdlib_socket(listener)) for listener in listeners]
        await trio.serve_listeners(self._serve_one, found, task_status=task_status)

    async def _serve_one(self, stream: trio.SocketStream) -> None:
        try:
            address = stream.socket.getpeername()
        except OSError:
            await trio.aclose_forcefully(stream)
            return
        peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unix socket"
        host = str(address[0]) if isinstance(address, tuple) else "127.0.0.1"
        scope = trio.CancelScope()
        self._served.add(scope)
        try:
            with scope:
                await self._introduce(stream, peer, host)
        except (Declined, FrameFault, ChallengeFault) as fault:
            is_usual = isinstance(fault, Declined) and not fault.is_final  # frequent while another node takes over
            is_warning = not is_usual and self._is_first_refusal(host)
            logger.log(logging.WARNING if is_warning else logging.DEBUG, "link of %s: %s", peer, fault)
        except LinkFault as fault:
            logger.info("link of %s: %s", peer, fault)
        except Exception:
            logger.exception("link of %s: internal error", peer)
        finally:
            self._served.discard(scope)
            await trio.aclose_forcefully(stream)

    def end_all(self) -> None:
        """End all connections. Nodes open new ones, and prove themselves again."""
        for scope in self._served:
            scope.cancel()

    def _is_first_refusal(self, host: str) -> bool:
        """Whether the log has no recent line about this host."""
        now_s = trio.current_time()
        self._refused_s = {one: at_s for one, at_s in self._refused_s.items() if now_s - at_s < REFUSAL_S}
        if host in self._refused_s or len(self._refused_s) >= REFUSED_MAX:
            return False
        self._refused_s[host] = now_s
        return True

    async def _introduce(self, stream: trio.SocketStream, peer: str, host: str) -> None:
        """Introduce a connection, and serve it as a follower's or a client's.

        Raises: LinkFault, FrameFault, ChallengeFault.
        """
        introducing, options = self._introducing, self._options
        if len(introducing) >= options.introductions_max:
            oldest = next(iter(introducing))  # a node is done in a few ms: a flood of strangers displaces strangers
            del introducing[oldest]
            oldest.cancel()
        with trio.move_on_after(options.introduction_s) as scope:
            introducing[scope] = None
            try:
                try:
                    link = await accept(without_low_water(stream), host, self._credentials, self._tls.server)
                except LinkFault as fault:
                    raise Declined(str(fault), is_final=True) from fault
                try:
                    request = await link.receive(Hello, Client, timeout_s=FOREVER)
                except LinkFault as fault:
                    logger.debug("link of %s: %s", peer, fault)  # another node's probe
                    return
            finally:
                introducing.pop(scope, None)
        if scope.cancelled_caught:
            raise Declined("it did not introduce itself in time, or made room for others", is_final=True)
        assert isinstance(request, (Hello, Client))
        if (request.cluster, request.group) != (self._credentials.cluster, self._credentials.group):
            mine = f"{self._credentials.cluster!r}, group {self._credentials.group}"
            await _decline(
                link, f"this node belongs to cluster {mine}, not {request.cluster!r}, group {request.group}", True
            )
            return
        links = self.links
        if links is None or links.is_closed:
            await _decline(link, f"node {self._name} does not lead", False)
        elif isinstance(request, Hello):
            await links.serve(link, request)
        elif not self._takes_clients():
            await _decline(link, f"node {self._name} does not serve clients yet", False)
        else:
            await self._serve_client(link, request)

    async def _serve_client(self, link: LinkStream, request: Client) -> None:
        await link.send(Accept())
        rest = link.take_rest()
        sock, relaying = as_socket(link.stream)
        try:
            self._on_client(sock, rest, request.header, request.service, request.name)
        except BaseException:
            sock.close()
            if relaying is not None:
                relaying.close()
            raise
        if relaying is not None:
            await relaying()


async def _decline(link: LinkStream, why: str, is_final: bool) -> None:
    """Answer No. Raises: Declined."""
    with trio.move_on_after(1):
        await link.send(No(why, is_final))
    raise Declined(why, is_final=is_final)
