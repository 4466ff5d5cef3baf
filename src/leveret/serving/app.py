"""`leveret serve`: the process around a broker, with its listeners, signals, service manager and configuration."""

import logging
import os
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import trio

from ..configured.configured import Report
from ..engine import Unreadable
from ..operator.command_error import CommandError
from ..settings.printable import printable, printable_lines
from . import collector
from .addresses import AddressTaken, ConsoleAddresses
from .allocator import return_memory
from .composition import DataUnusable
from .frontends import Frontend, find_frontend
from .listeners import Listeners
from .options import ServeOptions
from .process_signals import RELOADS, STOPS, SignalQueue, ignore, open_signal_queue
from .reloading import CurrentConfiguration, log_report, reload, watch_files
from .served_broker import DefinitionsRefused, ServedBroker

if TYPE_CHECKING:
    from ..journal import ClusterJournal
    from .service_manager import ServiceManager

logger = logging.getLogger("leveret")


def serve(options: ServeOptions) -> int:
    """Run a broker until SIGTERM or SIGINT.

    Returns the exit code: 0; 1 when an address is taken, the data directory is or becomes unusable, or an invariant of
    the engine is broken; 2 when the file of definitions is refused.
    """
    frontend = find_frontend("amqp")
    ignore(RELOADS)  # the configuration was read just now, and opening the journal may take a while
    try:
        listeners = Listeners.bind(options)
    except AddressTaken as error:
        print(printable(f"leveret: {error}"), file=sys.stderr)
        return 1
    collector.set_up()
    errors: list[BaseException] = []
    try:
        trio.run(_serve, options, frontend, listeners)
    except* (DataUnusable, DefinitionsRefused, OSError) as group:
        errors += leaf_errors(group)
    except* Unreadable as group:
        errors += leaf_errors(group)
        hint = "" if options.data is None else ". `leveret journal verify` tells what is wrong"
        logger.critical("%s; the broker stops%s", errors[-1], hint)
    except* AssertionError as group:
        errors += leaf_errors(group)
        logger.critical("a fault of Leveret, please report it; the broker stops", exc_info=errors[-1])
    ignore((*STOPS, *RELOADS))  # the process is ending already
    listeners.close()
    for text in {str(error): None for error in errors}:
        print(printable_lines(f"leveret: {text}"), file=sys.stderr)
    if any(isinstance(error, DefinitionsRefused) for error in errors):
        return 2
    return 1 if errors else 0


def leaf_errors(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors in a group, at any depth."""
    return [
        leaf
        for one in group.exceptions
        for leaf in (leaf_errors(one) if isinstance(one, BaseExceptionGroup) else [one])
    ]


async def _serve(options: ServeOptions, frontend: Frontend, listeners: Listeners) -> None:
    process = ServingProcess(options, frontend, listeners)
    if options.configuration.is_clustered:
        from .served_node import ServedNode  # imports the room cluster/, which others do without

        reload = None if options.load is None else process.reload_now
        await process.run(ServedNode(process.current, options, listeners, process.build_broker, reload))
    else:
        await process.run(process.build_broker())


class Served(Protocol):
    """A broker, or a node of a cluster, which builds a broker each time that it leads."""

    stopping: trio.Event  # set before connections are closed

    async def run(self, on_serving: Callable[[], object], on_console: Callable[[], object]) -> None:
        """Serve until `stop`, or until the data directory is lost.

        Calls `on_serving` when AMQP clients are accepted, and `on_console` when HTTP clients are.
        """

    def stop(self) -> None:
        """Begin to stop; `run` returns when that is done."""


class ServingProcess:
    """The parts that live as long as the process: listeners, signals, service manager, the configuration, reloads."""

    def __init__(self, options: ServeOptions, frontend: Frontend, listeners: Listeners) -> None:
        self._options = options
        self._frontend = frontend
        self._listeners = listeners
        console = options.console or ConsoleAddresses([])
        self._needs_tls = any(address.is_tls for address in (*options.listen, *console.listen, *console.metrics))
        configuration = options.configuration
        log_report(Report(warnings=(*configuration.warnings, *options.tls.warnings)))
        self.current = CurrentConfiguration(configuration, options.tls)
        self._broker: Callable[[], ServedBroker | None] = lambda: None
        self._manager = _service_manager()
        self._accepts = trio.Event()  # clients are accepted

    def build_broker(self, cluster: "ClusterJournal | None" = None) -> ServedBroker:
        """Build the next broker of this process. Raises: as `ServedBroker`."""
        reload = None if self._options.load is None else self._reload
        broker = ServedBroker(self._options, self._frontend, self._listeners, self.current, reload, cluster)
        self._broker = weakref.ref(broker)  # a broker that has ended is freed before the next one is built
        return broker

    async def run(self, served: Served) -> None:
        """Serve until a signal, or the loss of the data directory.

        Raises, in groups: DataUnusable, DefinitionsRefused, Unreadable, OSError, AssertionError (a broken invariant).
        """
        options = self._options
        async with trio.open_nursery() as nursery:
            with open_signal_queue((*STOPS, *RELOADS)) as signals:
                nursery.start_soon(return_memory)
                nursery.start_soon(collector.collect)
                if options.watch is not None:
                    nursery.start_soon(watch_files, options.watch, self.current, self.reload_now)
                nursery.start_soon(self._handle_signals, signals, served)
                if self._manager is not None:
                    nursery.start_soon(self._tell_stopping, self._manager, served)
                    nursery.start_soon(self._manager.report_alive)
                await served.run(self._clients_accepted, self._console_started)
            nursery.cancel_scope.cancel()

    def _clients_accepted(self) -> None:
        self._accepts.set()
        for url in self._listeners.amqp_urls:
            self._options.ready(f"leveret ready {url}")
        self._tell_ready()

    def _console_started(self) -> None:
        for url in self._listeners.http_urls:
            self._options.ready(f"leveret ready {url}")

    async def _handle_signals(self, signals: SignalQueue, served: Served) -> None:
        await self._accepts.wait()
        async for number in signals:
            if number in STOPS:
                logger.info("stopping: %s", number.name)
                break
            self.reload_now(number.name)
        served.stop()

    @staticmethod
    async def _tell_stopping(manager: "ServiceManager", served: Served) -> None:
        await served.stopping.wait()
        manager.stopping()

    def _reload(self) -> Report:
        """Reload for the command `reload`, whose caller ends the turn."""
        options, broker = self._options, self._broker()
        assert options.load is not None
        objects = None if broker is None else broker.built.objects
        return reload(options.load, options.watch, self.current, objects, needs_tls=self._needs_tls)

    def reload_now(self, why: str) -> None:
        """Reload the configuration files, and log the result. Errors are logged, too, so that the process continues."""
        broker = self._broker()
        if self._manager is not None:
            self._manager.reloading()
        try:
            if broker is not None:
                broker.built.control.run("reload", {"here": True})
            elif faults := self._reload().faults:
                raise CommandError("; ".join(faults))
            logger.info("configuration reloaded: %s", why)
        except CommandError as error:
            logger.error("%s: %s", why, error)
        except Exception:
            logger.exception("%s: the configuration could not be reloaded", why)
        if broker is not None:
            broker.runtime.end_turn()
        self._tell_ready()

    def _tell_ready(self) -> None:
        if self._manager is not None:
            self._manager.ready(" ".join(self._listeners.amqp_urls))


def _service_manager() -> "ServiceManager | None":
    """The service manager that started the process, if it asked for notifications."""
    if "NOTIFY_SOCKET" not in os.environ:
        return None
    from .service_manager import ServiceManager

    return ServiceManager.from_environment(os.environ)
