"""`leveret serve`: a broker built, served on its listeners until a signal ends it, and closed."""

import logging
import os
import random
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from ..configured.configured import Report
from ..engine import Unreadable
from ..settings import Configuration
from ..settings.printable import printable, printable_lines
from . import collector
from .addresses import Address, AddressTaken, bind, url_of
from .allocator import return_memory
from .composition import Data, DataUnusable, build_broker
from .descriptors import descriptor_limits
from .file_watch import FileWatch
from .flow_log import log_flow
from .process_signals import RELOADS, STOPS, SignalQueue, ignore, open_signal_queue
from .reloading import CurrentConfiguration, Load, log_report, reload, run_reload, watch_files
from .runtime import Runtime, SystemClock
from .tls_files import NO_TLS, TlsFiles

if TYPE_CHECKING:
    from ..operator.json_file import JsonFile
    from .console_parts import ConsoleParts
    from .service_manager import ServiceManager

logger = logging.getLogger("leveret")

FRONTEND_GROUP = "leveret.frontends"
BACKLOG = 1024

Frontend = Callable[..., Awaitable[None]]


class FrontendMissing(Exception):
    """No installed distribution offers the frontend; the message is for the operator."""


class DefinitionsRefused(Exception):
    """The file of definitions is wrong; the message is for the operator."""


@dataclass(slots=True, frozen=True)
class ConsoleAddresses:
    """The addresses of the console and of its metrics. `.._named`: named explicitly, so that failing to listen there is
    an error; else the listener is left out.
    """

    listen: list[Address]
    is_named: bool = False
    metrics: list[Address] = field(default_factory=list)
    metrics_named: bool = False


@dataclass(slots=True)
class ServeOptions:
    """The options of `leveret serve`.

    `load` reads the configuration files again. `watch` knows their state before that.
    `tls`: from the configuration's `[tls]`.
    `definitions`: a file in RabbitMQ's form, imported at the start.
    `console`: its addresses; None: no console.
    `is_forced`, `rebuilds_queues`, `log_lines`: see `build_broker`.
    `checks_invariants`: the broker stops when an invariant of its engine is broken.
    """

    configuration: Configuration
    listen: list[Address]
    data: str | None = None  # a directory for the journal; None: everything in memory
    load: Load | None = None
    watch: FileWatch | None = None
    tls: TlsFiles = NO_TLS
    definitions: "JsonFile | None" = None
    console: "ConsoleAddresses | None" = None
    is_forced: bool = False
    rebuilds_queues: bool = False
    checks_invariants: bool = False
    log_lines: Callable[[], list[dict[str, Any]]] | None = None
    ready: Callable[[str], None] = field(default=lambda line: print(printable(line), flush=True))


def find_frontend(name: str) -> Frontend:
    """The frontend that is registered under `name`. Raises: FrontendMissing."""
    if name == "amqp":  # our own comes with this distribution: searching it would take a tenth of the start
        from ..amqp_frontend.edge.server import serve as serve_amqp

        return serve_amqp
    if name == "console":
        from ..console.server import serve as serve_console

        return serve_console
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=FRONTEND_GROUP, name=name):
        frontend: Frontend = entry_point.load()
        return frontend
    raise FrontendMissing(f"no frontend {name!r} is installed (entry points {FRONTEND_GROUP})")


def serve(options: ServeOptions) -> int:
    """Run a broker until SIGTERM or SIGINT.

    Returns the exit code: 0; 1 when an address is taken, the data directory is or becomes unusable, or an invariant of
    the engine is broken; 2 when the file of definitions is refused.
    """
    try:
        frontend = find_frontend("amqp")
    except FrontendMissing as error:
        return _refused(error)
    ignore(RELOADS)  # the configuration was read just now, and opening the journal may take a while
    try:
        listeners = _bind_all(options.listen)
        console = options.console or ConsoleAddresses([])
        console_listeners = _bind_console("console", console.listen, is_named=console.is_named)
        metrics_listeners = _bind_console("metrics", console.metrics, is_named=console.metrics_named)
    except AddressTaken as error:
        return _refused(error)
    collector.set_up()
    errors: list[BaseException] = []
    try:
        trio.run(_serve, options, frontend, listeners, console_listeners, metrics_listeners)
    except* (DataUnusable, DefinitionsRefused, OSError) as group:
        errors += leaf_errors(group)
    except* Unreadable as group:
        errors += leaf_errors(group)
        hint = "" if options.data is None else ". `leveret journal verify` tells what is wrong"
        logger.critical("%s; the broker stops%s", errors[-1], hint)
    except* AssertionError as group:
        errors += leaf_errors(group)
        logger.critical("a fault of Leveret, please report it; the broker stops", exc_info=errors[-1])
    ignore((*STOPS, *RELOADS))  # nothing is left to end
    for listener in (*listeners, *console_listeners, *metrics_listeners) if errors else ():
        listener.close()
    for text in {str(error): None for error in errors}:
        print(printable_lines(f"leveret: {text}"), file=sys.stderr)
    if any(isinstance(error, DefinitionsRefused) for error in errors):
        return 2
    return 1 if errors else 0


def _refused(error: Exception) -> int:
    print(printable(f"leveret: {error}"), file=sys.stderr)
    return 1


def _bind_all(addresses: list[Address]) -> list[socket.socket]:
    """A listener for each address, in order; if one cannot be bound, none stays. Raises: AddressTaken."""
    listeners: list[socket.socket] = []
    try:
        for address in addresses:
            listeners.append(bind(address, BACKLOG))
    except AddressTaken:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _bind_console(what: str, addresses: list[Address], *, is_named: bool) -> list[socket.socket]:
    """Listeners of the console; none if an address is taken that was not named explicitly. Raises: AddressTaken."""
    try:
        return _bind_all(addresses)
    except AddressTaken as error:
        if is_named:
            raise
        logger.warning("no %s: %s", what, error)
        return []


def leaf_errors(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors in a group, at any depth."""
    return [
        leaf
        for one in group.exceptions
        for leaf in (leaf_errors(one) if isinstance(one, BaseExceptionGroup) else [one])
    ]


async def _serve(
    options: ServeOptions,
    frontend: Frontend,
    listeners: list[socket.socket],
    console_listeners: list[socket.socket],
    metrics_listeners: list[socket.socket],
) -> None:
    await _Serving(options, frontend, listeners, console_listeners, metrics_listeners).run()


class _Serving:
    """One broker in this process: built by the constructor, served and closed by `run`. Raises: DataUnusable."""

    def __init__(
        self,
        options: ServeOptions,
        frontend: Frontend,
        listeners: list[socket.socket],
        console_listeners: list[socket.socket],
        metrics_listeners: list[socket.socket],
    ) -> None:
        self._options = options
        self._frontend = frontend
        self._listeners = listeners
        self._console_listeners = console_listeners
        self._metrics_listeners = metrics_listeners
        self._tls_listeners = [listener for address, listener in zip(options.listen, listeners) if address.is_tls]
        console = options.console or ConsoleAddresses([])
        self._needs_tls = any(address.is_tls for address in (*options.listen, *console.listen, *console.metrics))
        configuration = options.configuration
        log_report(Report(warnings=(*configuration.warnings, *options.tls.warnings)))
        self._built = built = build_broker(
            configuration,
            SystemClock(),
            random.random,
            None if options.data is None else Data(options.data),
            reload=None if options.load is None else self._reload,
            edge_status=_edge_status,
            log_lines=options.log_lines,
            is_forced=options.is_forced,
            rebuilds_all=options.rebuilds_queues,
        )
        log_report(built.report)
        log_flow(built.broker)
        if options.definitions is not None:
            log_report(Report(warnings=tuple(self._import(options.definitions))))
        self._current = CurrentConfiguration(configuration, options.tls)
        self._runtime = Runtime(built.broker, built.supervisor.commit if built.supervisor is not None else None)
        self._runtime.end_turn()  # unfinished work of the start
        self._ended, self._stopping, self._has_served = trio.Event(), trio.Event(), trio.Event()
        self._lost: DataUnusable | Unreadable | None = None  # the reason why it had to stop
        if built.supervisor is None:
            built.broker.context.storage.on_unreadable = self._stop_for
        self._manager = _service_manager()

    def _import(self, file: "JsonFile") -> list[str]:
        """Import definitions. Returns the entries that were left out. Raises: DefinitionsRefused."""
        from ..operator.definitions_reader import DefinitionsFault

        is_whole = self._options.configuration.broker.definitions_all_or_nothing
        try:
            imported = self._built.control.definitions.take_in(file.value, is_whole=is_whole)
        except DefinitionsFault as fault:
            raise DefinitionsRefused("\n".join(file.placed(fault.faults))) from None
        return file.placed([*(f"{one} (left out)" for one in imported["faults"]), *imported["remarks"]])

    async def run(self) -> None:
        """Run until a signal, or the loss of the data directory. Raises: DataUnusable, Unreadable."""
        options = self._options
        async with trio.open_nursery() as nursery:
            with open_signal_queue((*STOPS, *RELOADS)) as signals:
                nursery.start_soon(self._runtime.run)
                nursery.start_soon(return_memory)
                nursery.start_soon(collector.collect)
                if options.checks_invariants:
                    from .debugging import check_invariants

                    nursery.start_soon(check_invariants, self._built.broker)
                if self._built.supervisor is not None:
                    nursery.start_soon(self._tend_journal)
                if options.watch is not None:
                    nursery.start_soon(watch_files, options.watch, self._current, self._reload_now)
                await nursery.start(self._run_frontend)
                for address, listener in zip(options.listen, self._listeners):
                    options.ready(f"leveret ready {url_of(address, listener)}")
                self._tell_ready()
                if self._manager is not None:
                    nursery.start_soon(self._manager.report_alive)
                nursery.start_soon(self._handle_signals, signals)
                if self._console_listeners or self._metrics_listeners:
                    nursery.start_soon(self._run_console)
                await self._ended.wait()
            if self._manager is not None:
                self._manager.stopping()
            self._stopping.set()
            await self._has_served.wait()
            nursery.cancel_scope.cancel()
        self._close()
        if self._lost is not None:
            raise self._lost

    async def _run_frontend(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        tls_listeners = self._tls_listeners
        await self._frontend(
            self._runtime,
            [listener for listener in self._listeners if listener not in tls_listeners],
            self._current.frontend_options,
            **({"tls_listeners": tls_listeners} if tls_listeners else {}),
            stopping=self._stopping,
            task_status=task_status,
        )
        self._has_served.set()

    async def _run_console(self) -> None:
        """Start the console after AMQP: its imports must not keep clients waiting."""
        from .console_parts import ConsoleParts

        options, supervisor = self._options, self._built.supervisor
        assert options.console is not None
        parts = ConsoleParts(
            lambda: self._built.control,
            lambda: self._current.configuration,
            self._built.broker.context.clock.wall_ms(),
            options.data,
            dict(zip(self._listeners, options.listen)),
            dict(zip(self._console_listeners, options.console.listen)),
            dict(zip(self._metrics_listeners, options.console.metrics)),
            lambda: None if supervisor is None else supervisor.journal,
            lambda: self._current.tls,
            lambda: () if options.watch is None else options.watch.files,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(self._serve_console, parts)
            for listener, address in parts.http.items():
                options.ready(f"leveret ready {url_of(address, listener)}")
            for listener, address in parts.metrics.items():
                options.ready(f"leveret ready {url_of(address, listener)}{'' if address.path else 'metrics'}")

    async def _serve_console(
        self, parts: "ConsoleParts", task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await find_frontend("console")(
            self._runtime,
            self._console_listeners,
            parts.options,
            metrics_listeners=self._metrics_listeners,
            tls_listeners=parts.over_tls,
            facts=parts.facts,
            stopping=self._stopping,
            task_status=task_status,
        )

    async def _handle_signals(self, signals: SignalQueue) -> None:
        async for number in signals:
            if number in STOPS:
                logger.info("stopping: %s", number.name)
                break
            self._reload_now(number.name)
        self._ended.set()

    async def _tend_journal(self) -> None:
        """Serve the journal as long as the broker runs. Raises: Unreadable."""
        from ..journal import DirectoryLost
        from .supervisor import why_unusable

        supervisor, path = self._built.supervisor, self._options.data
        assert supervisor is not None and path is not None
        try:
            await supervisor.tend()
        except DirectoryLost as error:
            self._lost = DataUnusable(f"{why_unusable(path, error)}; the broker stops")
            self._ended.set()

    def _stop_for(self, error: Unreadable) -> None:
        """Stop, because spooled messages are lost, as after a failure of the journal."""
        self._lost = error
        self._ended.set()

    def _reload(self) -> Report:
        """Reload for a command, which ends the turn itself."""
        options = self._options
        assert options.load is not None
        return reload(options.load, options.watch, self._current, self._built.objects, needs_tls=self._needs_tls)

    def _reload_now(self, why: str) -> None:
        if self._manager is not None:
            self._manager.reloading()
        run_reload(self._built.control, why)
        self._runtime.end_turn()
        self._tell_ready()

    def _tell_ready(self) -> None:
        if self._manager is not None:
            urls = (url_of(address, listener) for address, listener in zip(self._options.listen, self._listeners))
            self._manager.ready(" ".join(urls))

    def _close(self) -> None:
        self._built.close()
        for address, listener in zip(self._options.listen, self._listeners):
            listener.close()
            if address.path:
                _remove(address.path)
        console = self._options.console or ConsoleAddresses([])
        for address, listener in (
            *zip(console.listen, self._console_listeners),
            *zip(console.metrics, self._metrics_listeners),
        ):
            listener.close()
            if address.path:
                _remove(address.path)


def _service_manager() -> "ServiceManager | None":
    """The service manager that started the process, if it asked for notifications."""
    if "NOTIFY_SOCKET" not in os.environ:
        return None
    from .service_manager import ServiceManager

    return ServiceManager.from_environment(os.environ)


def _edge_status() -> dict[str, Any]:
    """The part of `status` about this process."""
    limits = descriptor_limits()
    return {
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "descriptors": {"limit": limits.process, "for-connections": limits.connections},
    }


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
