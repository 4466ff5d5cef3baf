"""One process of the broker: built as `leveret serve` builds it, served on simulated connections, stopped or killed."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from random import Random
from types import MappingProxyType
from typing import Any, cast
from unittest.mock import patch

import trio

from leveret.amqp_frontend.edge.arrival import Arrival
from leveret.amqp_frontend.edge.endpoint import Endpoint
from leveret.amqp_frontend.edge.server import STOP_TIMEOUT_S, Server
from leveret.amqp_frontend.options import FrontendOptions
from leveret.configured.configured import Report
from leveret.configured.options import frontend_options
from leveret.engine import Broker, Unreadable
from leveret.journal import DirectoryLost, WriterState
from leveret.journal.disk.writer import RETRY_SECONDS, Writer
from leveret.operator.operator import Operator
from leveret.serving import composition
from leveret.serving.composition import BuiltBroker, Data, build_broker
from leveret.serving.runtime import Runtime
from leveret.settings import Configuration

from .disk import DATA, MS, Disk, Struck
from .ledger import Broken
from .loop import SECOND, SimulatedClock, now_ns, pass_time
from .network import Network, SimulatedSocket
from .temp import SimulatedTempStore

DESCRIPTORS = 1 << 62
#: How often the disk looks for work of which no turn told it (segments to be deleted).
LOOK_S = 0.25


class SimulatedEndpoint(Endpoint):
    """A connection whose socket is simulated."""

    _server: SimulatedServer
    _refused_ns = 0  # when its login was

    def _answered(self, is_logged_in: bool) -> None:
        super()._answered(is_logged_in)
        if not is_logged_in:
            self._refused_ns = now_ns()

    def close(self) -> None:
        """See `Endpoint`. Raises: Broken, if the next password can be tried at once."""
        sock, stayed_ns = cast(SimulatedSocket, self.socket), now_ns() - self._refused_ns
        delay_ns = self.session.closing._options.refused_login_delay_ms * MS
        goes_on = self._server.accepts() and trio.current_effective_deadline() > -inf  # else the broker ends
        if self._refused_ns and stayed_ns < delay_ns and sock.is_connected and goes_on:
            raise Broken(f"a connection whose login was refused was closed {stayed_ns / MS} ms after that")
        super().close()

    async def wait_readable(self, descriptor: int) -> None:  # type: ignore[override]
        await cast(SimulatedSocket, self.socket).readable()

    async def wait_writable(self, sock: object) -> None:  # type: ignore[override]
        await cast(SimulatedSocket, self.socket).writable()


class SimulatedServer(Server):
    """The frontend's server, which is given its connections."""

    endpoint_type = SimulatedEndpoint

    def __init__(self, runtime: Runtime, options: Callable[[], FrontendOptions], nursery: trio.Nursery) -> None:
        super().__init__(runtime, options, nursery)
        self._send, self._receive = trio.open_memory_channel[SimulatedSocket](float("inf"))
        self.accepts: Callable[[], bool] = lambda: True

    def accept(self, sock: SimulatedSocket) -> None:
        """A new connection."""
        self._send.send_nowait(sock)

    async def accept_all(self) -> None:
        """Until cancelled."""
        async for sock in self._receive:
            peer = (sock.address, 40000 + sock.fileno() % 20000)
            await self._accepted(Arrival(cast(socket.socket, sock), peer, site=sock.site))


class Host:
    """One life of the broker, from its start on the disk to its end. `ended_by`: how it ended. `site`: where it is, of
    all sites (`groups`); empty: it has none.
    """

    def __init__(
        self,
        disk: Disk,
        network: Network,
        clock: SimulatedClock,
        chance: Random,
        configuration: Configuration,
        *,
        happened: Counter[str],
        site: str = "",
        groups: Mapping[str, str] = MappingProxyType({}),
        reload: Callable[[], Report] | None = None,
        on_turn: Callable[[Host], object] = lambda host: None,
    ) -> None:
        self.disk = disk
        self.network = network
        self.clock = clock
        self.configuration = configuration
        self.is_alive = False
        self.ended_by = ""
        self._on_turn = on_turn
        self._ended = trio.Event()
        self._work = trio.Event()
        self.scope = trio.CancelScope()
        self.site, sited = site, {"site": site, "groups": groups} if site else {}
        with patch.object(composition, "Broker", lambda *of, **named: Broker(*of, **{**named, **sited})):
            self.built: BuiltBroker = build_broker(
                configuration,
                clock,
                chance.random,
                Data(DATA, files=disk.files),
                operator=Operator(reload=reload),
            )
        supervisor = self.built.supervisor
        assert supervisor is not None
        self.supervisor = supervisor
        self.temp = SimulatedTempStore(lambda: not disk.is_full, happened)
        self.broker.context.storage.open_temp = lambda: self.temp
        pager: Any = self.broker.context.storage.pager
        pager.pause = lambda: None
        self.runtime = Runtime(self.broker, self._commit)
        self.server: SimulatedServer
        disk.strike = self._struck

    @property
    def broker(self) -> Broker:
        """Its engine."""
        return self.built.broker

    @property
    def writer(self) -> Writer:
        """The journal's, which this class gives its commits."""
        return self.supervisor.journal.writer

    @property
    def has_failed(self) -> bool:
        """Whether its journal takes nothing any more."""
        return self.writer.state is WriterState.FAILED

    @property
    def is_giving_up(self) -> bool:
        """Whether something could not be read back: it is nowhere until the broker has stopped, which is soon."""
        supervisor: Any = self.supervisor
        return supervisor._unreadable is not None

    def _commit(self) -> None:
        self.supervisor.commit()
        if self.is_alive:
            self._on_turn(self)
            if self.writer.backlog_bytes:
                self._work.set()

    async def run(self) -> None:
        """Until it is stopped or killed. Raises: what ended it otherwise."""
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    self.is_alive = True
                    self.runtime.end_turn()  # what the start left to do
                    self.server = SimulatedServer(self.runtime, self._options, nursery)
                    self.server.accepts = lambda: self.network.accept is not None
                    nursery.start_soon(self.runtime.run)
                    nursery.start_soon(self._tend)
                    nursery.start_soon(self._make_commits)
                    nursery.start_soon(self.server.accept_all)
                    self.network.accept = self.server.accept
                    await self._ended.wait()
                    self.network.accept = None
                    await self.server.stop(STOP_TIMEOUT_S)
                    nursery.cancel_scope.cancel()
                self.supervisor.close()
                self._on_turn(self)
        except* Struck:
            pass
        except* Unreadable:
            self.ended_by = "unreadable"
        self.is_alive = False
        self.network.lose_all()

    def _options(self) -> FrontendOptions:
        return frontend_options(self.configuration, descriptor_max=DESCRIPTORS)

    async def _tend(self) -> None:
        try:
            await self.supervisor.tend()
        except DirectoryLost:
            self.ended_by = self.ended_by or "directory lost"
            self._ended.set()

    async def _make_commits(self) -> None:
        """The journal's thread, as far as anybody can tell."""
        while True:
            if self.writer.take_now():
                await pass_time(self.disk.commit_ns(now_ns()) / SECOND)
                if not self.writer.commit_taken():
                    await pass_time(RETRY_SECONDS)
            else:
                self._work = trio.Event()
                with trio.move_on_after(LOOK_S):
                    await self._work.wait()

    def _struck(self) -> None:
        self.kill(self.disk.strike_as)

    def stop(self) -> None:
        """As SIGTERM does."""
        self.ended_by = self.ended_by or "stopped"
        self._ended.set()

    def kill(self, how: str = "killed") -> None:
        """As kill -9: nothing of what it holds goes anywhere any more."""
        if not self.is_alive:
            return
        self.ended_by = how
        self.is_alive = False
        self.network.lose_all()
        self.scope.cancel()
