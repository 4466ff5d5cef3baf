"""The console as a server: it accepts connections within limits, and runs the sampler once a second.

Only this file, state.py and connection.py of this room are asynchronous. Source: management page 20; docs/frontends.md.
"""

import functools
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from ..settings.loopback import is_loopback
from .metrics.buckets import DELAYS, Buckets

if TYPE_CHECKING:
    from .http_messages import Peer
    from .metrics.facts import MetricsFacts
    from .node_facts import HostFacts
    from .options import ConsoleOptions
    from .sampler import Sampler
    from .slots import Slot, Slots
    from .state import ConsoleState, Runtime

logger = logging.getLogger("leveret.console")

#: Maximum connections of one address, unless it is this machine or a listed proxy. Maximum connections to metrics
#: ports.
ADDRESS_MAX, METRICS_MAX = 20, 50
_ACCEPT_PAUSE_S = 0.1
#: Maximum seconds for the TLS handshake, and for closing TLS.
HANDSHAKE_S, CLOSING_S = 5.0, 1.0
#: Maximum seconds for the answers to requests when the console ends, and seconds between two looks at them.
LAST_ANSWERS_S, _LAST_ANSWERS_PAUSE_S = 0.3, 0.01


class Arrival(Protocol):
    """A connection to the console that another listener or node has accepted."""

    @property
    def socket(self) -> socket.socket:
        """The socket, from which nothing has been read yet."""

    @property
    def address(self) -> object:
        """The client's address, as from `socket.accept`."""

    @property
    def is_tls(self) -> bool:
        """Whether the client begins with a TLS handshake."""

    @property
    def node(self) -> str:
        """The node of the cluster to which the client is connected; empty: this one."""

    @property
    def tls(self) -> object | None:
        """The client's TLS, if another node has decrypted it."""


Arrivals = trio.MemoryReceiveChannel[Arrival]


class Server:
    """Accepts and serves the connections of the console, and runs the sampler."""

    def __init__(
        self,
        runtime: "Runtime",
        options: "Callable[[], ConsoleOptions]",
        nursery: trio.Nursery,
        facts: "Callable[[Buckets], MetricsFacts] | None" = None,
        on_sampler: "Callable[[Sampler], object] | None" = None,
    ) -> None:
        self._on_sampler = on_sampler
        self.runtime = runtime
        self.options = options
        self.delays = Buckets(DELAYS)
        self._facts = facts
        self._sampler: Sampler | None = None
        self._state: ConsoleState | None = None
        self._nursery = nursery
        self._slots: dict[bool, Slots] = {}

    async def state(self) -> "ConsoleState":
        """The state that connections share. The first call loads it, in a thread since that takes 50 ms."""
        if self._state is None:
            make = await trio.to_thread.run_sync(_load, self.options)
            if self._state is None:  # no other task has loaded it meanwhile
                facts = None if self._facts is None else self._facts(self.delays)
                self._state = make(self.runtime, self.options, self.sampler(), facts)
        return self._state

    async def wait_for_last_answers(self) -> None:
        """Wait until all requests are answered, also those that waited for leadership: they are refused now."""
        while self._state is not None and self._state.requests > self._state.streams:
            await trio.sleep(_LAST_ANSWERS_PAUSE_S)

    def sampler(self) -> "Sampler":
        """The sampler, made on first use: when there is something to sample, or for the first connection."""
        if self._sampler is None:
            from .sampler import Sampler

            self._sampler = Sampler(lambda: self.runtime.broker, self._node)
            if self._on_sampler is not None:
                self._on_sampler(self._sampler)
        return self._sampler

    def _node(self) -> "tuple[HostFacts, int]":
        options = self.options()
        return options.host_facts(), len(options.listeners())

    async def accept_from(self, listener: socket.socket, *, is_metrics: bool, is_tls: bool = False) -> None:
        """Accept connections until cancelled. `is_metrics`: the listener is a metrics port."""
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                logger.warning("a connection could not be accepted: %s", error.strerror or error)
                await trio.sleep(_ACCEPT_PAUSE_S)
                continue
            await self._accepted(sock, address, is_metrics=is_metrics, is_tls=is_tls)

    async def take_arrivals(self, arrivals: Arrivals) -> None:
        """Serve connections that were accepted elsewhere, until cancelled."""
        async for one in arrivals:
            is_tls_done = one.tls is not None
            await self._accepted(
                *(one.socket, one.address), is_metrics=False, is_tls=one.is_tls, node=one.node, is_tls_done=is_tls_done
            )

    async def _accepted(
        self,
        sock: socket.socket,
        address: object,
        *,
        is_metrics: bool,
        is_tls: bool,
        node: str = "",
        is_tls_done: bool = False,
    ) -> None:
        try:
            await self.state()  # loads it with the first connection
        except Exception:
            logger.exception("the console cannot be loaded")
            sock.close()
            return
        from .proxies import is_trusted
        from .slots import NoSlot

        peer = peer_of(address, is_tls=is_tls or is_tls_done, node=node)
        options, scope = self.options(), trio.CancelScope()
        is_shared = peer.is_loopback or is_trusted(peer.address, options.proxies)
        slots = METRICS_MAX if is_metrics else options.connections_max
        try:
            of_kind = self._slots_of(is_metrics=is_metrics)
            slot = of_kind.enter(peer.origin, scope.cancel, slots=slots, is_shared=is_shared)
        except NoSlot as refusal:
            sock.close()
            logger.warning("%s: refused: %s", peer.address, refusal)
            return
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):  # no Unix socket
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        serve = functools.partial(self._serve, is_metrics=is_metrics, is_tls=is_tls)
        self._nursery.start_soon(serve, stream, peer, slot, scope)

    def _slots_of(self, *, is_metrics: bool) -> "Slots":
        """The slots of a kind of port. Metrics ports have their own: probes succeed while the console is busy."""
        if is_metrics not in self._slots:
            from .slots import Slots

            self._slots[is_metrics] = Slots(ADDRESS_MAX)
        return self._slots[is_metrics]

    async def _serve(
        self,
        stream: trio.abc.Stream,
        peer: "Peer",
        slot: "Slot",
        scope: trio.CancelScope,
        *,
        is_metrics: bool,
        is_tls: bool,
    ) -> None:
        from .connection import Connection

        try:
            with scope:
                if is_tls:
                    stream = await self._secured(stream)
                await Connection(await self.state(), stream, peer, slot, is_metrics=is_metrics).serve()
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            logger.debug("%s: %s", peer.address, error.__cause__ or error)  # the peer has gone, or does not speak TLS
        except Exception:
            logger.exception("%s: internal error", peer.address)
        finally:
            slot.leave()
            if scope.cancelled_caught:
                logger.debug("%s: closed: it has gone, or another connection took its slot", peer.address)
                await trio.aclose_forcefully(stream)
            else:
                with trio.move_on_after(CLOSING_S):
                    await stream.aclose()

    async def _secured(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """The stream with TLS, with the current certificate. Raises: OSError, trio.BrokenResourceError."""
        context = self.options().tls
        assert context is not None  # a configuration without a certificate is refused
        secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        with trio.move_on_after(HANDSHAKE_S) as scope:
            await secured.do_handshake()
        if scope.cancelled_caught:
            await trio.aclose_forcefully(stream)
            raise TimeoutError("handshake: not completed in time")
        return secured

    async def sample(self) -> None:
        """Take samples once a second until cancelled. The first one waits for a connection or a queue."""
        while self._sampler is None and not self._has_anything_to_sample():
            await trio.sleep(UNUSED_S)
        sampler = self.sampler()
        from .sampler import PERIOD_S

        while True:
            for _ in sampler.sample_all():
                await trio.lowlevel.checkpoint()
            await trio.sleep(PERIOD_S)

    def _has_anything_to_sample(self) -> bool:
        broker = self.runtime.broker
        return bool(broker.connections) or any(vhost.queues for vhost in broker.virtual_hosts.values())


def _load(options: "Callable[[], ConsoleOptions]") -> "type[ConsoleState]":
    from . import connection  # noqa: F401
    from .state import ConsoleState

    options()  # imports modules
    return ConsoleState


#: Seconds between two checks whether there is anything to sample.
UNUSED_S = 0.5
#: Seconds between two measurements of the event loop's delay.
DELAY_PERIOD_S = 1.0


async def watch_delays(delays: Buckets) -> None:
    """Measure how late sleeps end, because other tasks held the event loop."""
    while True:
        due_s = trio.current_time() + DELAY_PERIOD_S
        await trio.sleep_until(due_s)
        delays.add(max(0.0, trio.current_time() - due_s))


def peer_of(address: object, *, is_tls: bool = False, node: str = "") -> "Peer":
    """The client at an address from `socket.accept`. A Unix socket counts as loopback."""
    from .http_messages import Peer

    if not isinstance(address, tuple):
        return Peer("unix socket", True, node=node)
    host = str(address[0]).removeprefix("::ffff:")
    return Peer(host, is_loopback(host), is_tls, node)


async def serve(
    runtime: "Runtime",
    listeners: list[socket.socket],
    options: "Callable[[], ConsoleOptions]",
    *,
    metrics_listeners: Sequence[socket.socket] = (),
    tls_listeners: Sequence[socket.socket] = (),
    arrivals: Arrivals | None = None,
    facts: "Callable[[Buckets], MetricsFacts] | None" = None,
    on_sampler: "Callable[[Sampler], object] | None" = None,
    stopping: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the console on bound and listening sockets until `stopping` is set.

    `metrics_listeners`: metrics ports, which need no login. `tls_listeners`: those of all listeners that use TLS.
    `arrivals`: connections that were accepted elsewhere. `facts`: makes the facts for metrics from the event
    loop's delays. `on_sampler`: gets the sampler when there is one.

    This is the entry point `console` in the group `leveret.frontends`, see docs/frontends.md.
    """
    async with trio.open_nursery() as nursery:
        server = Server(runtime, options, nursery, facts, on_sampler)
        for listener in (*listeners, *metrics_listeners):
            listener.setblocking(False)
            is_metrics, is_tls = listener in metrics_listeners, listener in tls_listeners
            nursery.start_soon(functools.partial(server.accept_from, listener, is_metrics=is_metrics, is_tls=is_tls))
        if arrivals is not None:
            nursery.start_soon(server.take_arrivals, arrivals)
        if facts is not None:
            nursery.start_soon(watch_delays, server.delays)
        nursery.start_soon(server.sample)
        task_status.started()
        await stopping.wait()
        with trio.move_on_after(LAST_ANSWERS_S):
            await server.wait_for_last_answers()
        nursery.cancel_scope.cancel()
