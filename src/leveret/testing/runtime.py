"""The loop of a test broker: engine, listener, deadlines, and the detection of quiet, inside one trio loop.

Only the engine's time is virtual: heartbeats, handshakes and closing use real time, as the clients do (unless
`virtual_heartbeats` is set). `activity` rises with every event in the loop; the broker is quiet when it has not risen
for a while.
Source: ruling 25.
"""

import logging
import os
import random
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import trio

from ..amqp_frontend.options import FrontendOptions
from ..configured.configured import Report
from ..configured.options import broker_options, frontend_options
from ..engine import Consumer, Deadlines, Session
from ..serving.addresses import Address, bind
from ..serving.composition import BuiltBroker, Data, DataUnusable, build_broker, default_users
from ..serving.descriptors import descriptor_limits
from ..serving.listeners import Listeners
from ..serving.runtime import DeadlineTimer, Runtime, SystemClock
from ..settings import Configuration
from ..settings.loopback import is_loopback
from .engine_clock import ClockMode, EngineClock
from .fault import FaultTable
from .options import BrokerOptionsError, RuntimeOptions
from .server import WatchedEndpoint, WatchedServer
from .tap import Tap

if TYPE_CHECKING:
    from ..journal import Journal
    from .data import DataDirectory

logger = logging.getLogger("leveret.testing")

BACKLOG = 1024
#: A pause LATE_FACTOR times as long as asked shows a busy machine. Up to LATE_ROUNDS_MAX such pauses do not count.
LATE_FACTOR = 3
LATE_ROUNDS_MAX = 10
#: Multiple of `quiet_ms` that a consumer gets to react to a delivery.
REACTION_FACTOR = 20


class WatchedRuntime(Runtime):
    """The event loop of a broker for tests: its engine, frontends, listener and clock. `reset` makes a new engine."""

    def __init__(self, options: RuntimeOptions, watch: Callable[["WatchedRuntime", bool], None]) -> None:
        self.options = options
        self._watch = watch  # called for each new engine; True: time starts again
        self.frontend_options: FrontendOptions = frontend_options(
            options.configuration, descriptor_max=descriptor_limits().connections
        )
        self.faults = FaultTable()
        self._changes: dict[object, Callable[[Configuration], Configuration]] = {}  # by the faults that make them
        self.tap: Tap | None = None
        self.activity = 0
        self.sent = 0  # rises when octets are sent to a client
        self._happened = trio.Event()
        self._is_awaited = False
        self._refusals = 0  # faults that refuse connections now
        self._given_up: dict[Session, int] = {}  # session -> tag; `quiet` waits for no reaction to lower ones
        self.system_clock = SystemClock()
        self.system_deadlines = Deadlines()
        self._data = _directory_of(options)
        self._system_timer = DeadlineTimer(self.system_clock, self.system_deadlines, self.end_turn)
        self.clock = self._new_clock(options.clock)
        self._built = self._build()
        super().__init__(self._built.broker, self._commit_of_data, sleeps=not self.clock.is_virtual)
        self._watch(self, True)
        self._amqp: dict[socket.socket, Address] = {}  # the listener, as the console shows it
        self._set_listener(bind(Address(options.host, options.port), BACKLOG))
        self.port: int = self.listener.getsockname()[1]
        self.console_listener = bind(Address("127.0.0.1", 0), BACKLOG) if options.management else None
        self.metrics_listener = bind(Address("127.0.0.1", 0), BACKLOG) if options.management else None
        self.nursery: trio.Nursery
        self.server: WatchedServer

    # -- the engine -------------------------------------------------------------------------------------------------

    def _new_clock(self, mode: ClockMode) -> EngineClock:
        start_ms = self.options.clock_start_ms
        if self._data is not None and start_ms is None and mode == "virtual":
            start_ms = self._data.ended_ms()
        return EngineClock(mode, start_ms)

    def _build(self) -> BuiltBroker:
        """Make a new broker from the configuration: empty, or restored from its directory."""
        seed = self.options.seed
        chance = random.random if seed is None else random.Random(seed).random
        data = None if self._data is None else Data(self._data.path, holds_reserve=False)
        users = default_users(from_anywhere=not is_loopback(self.options.host))
        try:
            built = build_broker(self.configuration, self.clock, chance, data, users=users)
        except DataUnusable as error:
            raise BrokerOptionsError(f"data: {error}") from error
        if self._data is not None:
            self._data.begin(built.supervisor)
        _log(built.report)
        return built

    @property
    def _commit_of_data(self) -> Callable[[], None] | None:
        return None if self._data is None else self._data.commit

    def apply_configuration(self) -> None:
        """Declare the objects of the configuration that do not exist."""
        _log(self._built.objects.apply(self.configuration))

    @property
    def configuration(self) -> Configuration:
        """The configuration of the start with the changes by faults."""
        changed = self.options.configuration
        for change in self._changes.values():
            changed = change(changed)
        return changed

    def change_configuration(self, owner: object, change: Callable[[Configuration], Configuration] | None) -> None:
        """Put a change of the configuration in force; None: undo the owner's change."""
        if change is None:
            self._changes.pop(owner, None)
        else:
            self._changes[owner] = change
        changed = self.configuration
        self.broker.reloading.replace_settings(changed.repository, broker_options(changed))
        self.end_turn()

    def reset(self, mode: ClockMode) -> None:
        """Reset the broker: no connections, and only the configured objects. O(connections)."""
        self.broker.context.listeners.clear()  # late events of the old engine are not recorded
        self.server.drop_all()
        self._end_engine(keeps_data=False)
        self.clock = self._new_clock(mode)
        self._built = self._build()
        self._use_new_engine(restarts_time=True)

    async def reset_vhost(self, name: str) -> None:
        """Reset one virtual host to what the configuration declares in it, and abort its connections."""
        await self.remove_vhost(name)
        self.broker.virtual_hosts.create(name)
        self.apply_configuration()
        self.end_turn()

    async def remove_vhost(self, name: str) -> None:
        """Abort the connections of a virtual host, and remove it with its content."""
        self.faults.clear_of(name, self)
        for endpoint in self.endpoints_of(name):
            endpoint.abort()
        while self.endpoints_of(name):
            await self.wait_for_activity()
        self.broker.virtual_hosts.delete(name)
        self.end_turn()
        await self.catch_up()

    @property
    def has_data(self) -> bool:
        """Whether the broker has a journal."""
        return self._data is not None

    def start_again(self, *, durable: bool) -> None:
        """Restart from the directory, or without `durable` from the configuration alone; time and history continue.

        All connections must have ended.
        """
        self.broker.end_turn()
        self._end_engine(keeps_data=durable)
        self.broker.context.listeners.clear()
        vhosts = list(self.broker.virtual_hosts)
        self._built = self._build()
        for name in vhosts:  # the test's virtual hosts survive even without their content
            self._built.broker.virtual_hosts.create(name)
        self._use_new_engine(restarts_time=False)

    def _end_engine(self, *, keeps_data: bool) -> None:
        if self._data is None:
            self._built.close()
        elif keeps_data:
            self._data.close()
        else:
            self._data.forget()

    def _use_new_engine(self, *, restarts_time: bool) -> None:
        """Serve the engine that was just built, and tend its data."""
        self.replace_broker(self._built.broker, self._commit_of_data, sleeps=not self.clock.is_virtual)
        self._watch(self, restarts_time)
        if self._data is not None:
            self.nursery.start_soon(self._data.tend)
        self.end_turn()

    # -- the listener -----------------------------------------------------------------------------------------------

    def _set_listener(self, listener: socket.socket) -> None:
        self.listener = listener
        self._amqp.clear()
        self._amqp[listener] = Address(self.options.host)

    def close_listener(self) -> None:
        """Refuse connections, and keep the port. Each call needs one of `open_listener`."""
        self._refusals += 1
        if self._refusals > 1:
            return
        self.server.stop_listening()
        trio.lowlevel.notify_closing(self.listener)
        self.listener.close()
        self._set_listener(_reserve(self.options.host, self.port))

    def open_listener(self) -> None:
        """Accept connections again, on the same port, unless another fault refuses them."""
        self._refusals -= 1
        if self._refusals:
            return
        self.listener.listen(BACKLOG)
        self.server.listen(self.listener)

    # -- activity -----------------------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """See `Runtime`. The end of a turn is activity."""
        self.note_activity()
        super().end_turn()

    def _do_more(self) -> bool:
        self.note_activity()
        return super()._do_more()

    def note_activity(self) -> None:
        """Record activity: the broker is not quiet."""
        self.activity += 1
        if self._is_awaited:
            self._is_awaited = False
            self._happened.set()
            self._happened = trio.Event()

    def note_sent(self) -> None:
        """Record that octets were sent to a client."""
        self.sent += 1
        self.note_activity()

    async def wait_for_activity(self) -> None:
        self._is_awaited = True
        await self._happened.wait()

    # -- the loop ---------------------------------------------------------------------------------------------------

    async def serve(self, started: Callable[[trio.Nursery], None], stopping: trio.Event) -> None:
        """The main function of the broker's thread."""
        try:
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                self.server = WatchedServer(self, lambda: self.frontend_options, nursery)
                nursery.start_soon(self.run)
                nursery.start_soon(self._system_timer.run)
                if self._data is not None:
                    nursery.start_soon(self._data.tend)
                self.server.listen(self.listener)
                if self.console_listener is not None and self.metrics_listener is not None:
                    await nursery.start(self._serve_console, self.console_listener, self.metrics_listener, stopping)
                started(nursery)
                await stopping.wait()
                self.server.stop_listening()
                await self.server.close_all()
                nursery.cancel_scope.cancel()
        finally:
            self._end_engine(keeps_data=True)
            self.broker.context.listeners.clear()
            self.listener.close()
            for listener in (self.console_listener, self.metrics_listener):
                if listener is not None:
                    listener.close()

    async def _serve_console(
        self,
        listener: socket.socket,
        metrics_listener: socket.socket,
        stopping: trio.Event,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve the console of the current engine, also after `reset`."""
        from ..serving.console_parts import ConsoleParts

        def journal() -> "Journal | None":
            supervisor = self._built.supervisor
            return None if supervisor is None else supervisor.journal

        loopback = Address("127.0.0.1", is_http=True)
        parts = ConsoleParts(
            lambda: self._built.control,
            lambda: self.configuration,
            self.clock.wall_ms(),
            None if self._data is None else self._data.path,
            Listeners(self._amqp, {listener: loopback}, {metrics_listener: loopback}),
            journal,
        )
        await parts.serve(self, stopping, task_status=task_status)

    # -- quiet ------------------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Read and handle everything that clients have sent so far. Virtual time does not move."""
        while True:
            before = self.activity
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            if self.activity == before:
                return

    async def quiet(self, turns: Callable[[], Awaitable[None]] | None = None) -> None:
        """Wait until nothing was read, sent, accepted or handled for `quiet_ms` of real time (ruling 25).

        It waits longer for a consumer that has not reacted to a delivery: on a busy machine it may not have run.
        `turns`: waits for some rounds of the clients' event loop.
        """
        pause_s = self.options.quiet_ms / 1000
        late, idle = 0, 0
        await self.catch_up()
        while self.server.endpoints:
            before, since = self.activity, trio.current_time()
            await trio.sleep(pause_s)
            is_late = trio.current_time() - since > LATE_FACTOR * pause_s + 0.001
            if turns is not None:
                await turns()
            await self.catch_up()
            if self.activity != before:
                idle = 0
            elif self.broker.context.awaiting or self.broker.scheduler.awaiting:
                pass  # confirms that wait for the disk are still unsent
            elif is_late and late < LATE_ROUNDS_MAX:
                late += 1
            elif idle < REACTION_FACTOR and self.awaits_reaction():
                idle += 1
            else:
                self._given_up = {session: session.next_tag for session in self._sessions()}
                return

    def awaits_reaction(self) -> bool:
        """Whether a consumer has an unacknowledged delivery that `quiet` has not given up."""
        for session in self._sessions():
            newest = next(reversed(session.unacked), 0)
            if newest >= self._given_up.get(session, 1) and isinstance(session.unacked[newest].holder, Consumer):
                return True
        return False

    def _sessions(self) -> Iterator[Session]:
        return (session for client in self.broker.connections for session in client.sessions)

    async def step_to(self, due_ns: int) -> bool:
        """Set virtual time to `due_ns`, and run what is due. Returns True if something was sent to clients."""
        sent_before = self.sent
        self.clock.move_to(due_ns)
        self.broker.advance()
        self.end_turn()
        await self.catch_up()
        return self.sent != sent_before

    def endpoints_of(self, vhost: str | None) -> list[WatchedEndpoint]:
        """Logged-in connections of a virtual host (None: of all), in order of connecting."""
        return [
            endpoint
            for endpoint in self.server.endpoints
            if endpoint.client is not None and (vhost is None or endpoint.client.vhost.name == vhost)
        ]


def _log(report: Report) -> None:
    """Log only the differences from the configuration; the test knows the rest."""
    for warning in report.warnings:
        logger.warning("%s", warning)


def _directory_of(options: RuntimeOptions) -> "DataDirectory | None":
    if options.data is None:
        return None
    from .data import DataDirectory  # loads the journal, which most tests do not need

    return DataDirectory(options.data)


def _reserve(host: str, port: int) -> socket.socket:
    """A socket that holds the port and does not listen: connections are refused."""
    reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name != "nt":  # on Windows it would share the port
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((host, port))
    return reserved
