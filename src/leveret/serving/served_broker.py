"""One broker from its start to its end: built, served on the listeners of the process, closed.

A process may serve several, one after the other. After `run` the broker has no task, deadline, descriptor, connection
or thread left.
"""

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ..amqp_frontend.edge.poller import Poller, Wakeup, nothing_to_do, poller_of_this_run
from ..configured.configured import Report
from ..engine import Broker, Unreadable
from ..operator.operator import Operator
from ..operator.steps import finished
from .composition import BuiltBroker, Data, DataUnusable, build_broker
from .descriptors import descriptor_limits
from .flow_log import log_flow
from .frontends import Frontend
from .listeners import Listeners
from .options import ServeOptions
from .reloading import CurrentConfiguration, log_report
from .runtime import Runtime, SystemClock

if TYPE_CHECKING:
    from ..amqp_frontend.edge.server import Arrivals
    from ..journal import ClusterJournal
    from ..journal.disk.writer import Writer
    from ..operator.json_file import JsonFile

logger = logging.getLogger("leveret")


#: The global parameter with the digest of the definitions that a cluster has imported; RabbitMQ's name for it.
IMPORTED = ("", "", "imported_definition_hash_value")
#: Seconds between two checks of the engine's invariants with --debug.
CHECK_INTERVAL_S = 1.0
#: Maximum messages of a queue that is checked in full (microseconds a message); of a longer one only the counts are.
CHECKED_MESSAGES_MAX = 10_000


class DefinitionsRefused(Exception):
    """The file of definitions is wrong; the message is for the operator."""


class ServedBroker:
    """The constructor builds the broker, `run` serves and closes it. Raises: DataUnusable, DefinitionsRefused.

    `reload`: reloads the configuration of the process for a command; None: there are no files.
    `cluster`: set if this node leads a cluster; the constructor may then run in a thread beside the event loop.
    """

    def __init__(
        self,
        options: ServeOptions,
        frontend: Frontend,
        listeners: Listeners,
        current: CurrentConfiguration,
        reload: Callable[[], Report] | None = None,
        cluster: "ClusterJournal | None" = None,
    ) -> None:
        self._options = options
        self._frontend = frontend
        self._listeners = listeners
        self._current = current
        self.built: BuiltBroker = build_broker(
            current.configuration,
            SystemClock(),
            random.random,
            None if options.data is None else Data(options.data, cluster=cluster),
            operator=Operator(
                reload=reload, load=options.load, process_status=_process_status, log_lines=options.log_lines
            ),
            is_forced=options.is_forced,
            rebuilds_all=options.rebuilds_queues,
        )
        supervisor = self.built.supervisor
        try:
            log_report(self.built.report)
            log_flow(self.built.broker)
            if options.definitions is not None and (cluster is None or self._is_first_import(options.definitions)):
                log_report(Report(warnings=tuple(self._import(options.definitions))))
                if cluster is not None:
                    self.built.broker.parameters.set(IMPORTED, digest_of(options.definitions))
            self.runtime = Runtime(self.built.broker, supervisor.commit if supervisor is not None else None)
            self.runtime.end_turn()  # unfinished work of the start
        except BaseException:
            if cluster is not None:  # this process lives on: unlock the directory
                self.built.abandon()
            raise
        self.stopping, self._has_served = trio.Event(), trio.Event()
        self._is_abandoned = False
        self._lost: DataUnusable | Unreadable | None = None  # why the broker had to stop
        if supervisor is None:
            self.built.broker.context.storage.on_unreadable = self._stop_for

    def _is_first_import(self, file: "JsonFile") -> bool:
        """Whether the cluster never imported definitions. A takeover does not import again what operators deleted."""
        known = self.built.broker.parameters.get(IMPORTED)
        if known is not None and known != digest_of(file):
            hint = "the cluster has imported another file, see `leveret ctl definitions import`"
            logger.warning("%s: is not imported: %s", file.name, hint)
        return known is None

    def _import(self, file: "JsonFile") -> list[str]:
        """Import definitions. Returns lines about entries that were left out or changed. Raises: DefinitionsRefused."""
        from ..operator.definitions import import_steps
        from ..operator.definitions_reader import DefinitionsFault

        is_whole = self._current.configuration.broker.definitions_all_or_nothing
        try:
            imported = finished(import_steps(self.built.broker, file.value, is_whole=is_whole))
        except DefinitionsFault as fault:
            raise DefinitionsRefused("\n".join(file.placed(fault.faults))) from None
        return file.placed([*(f"{one} (left out)" for one in imported["faults"]), *imported["remarks"]])

    async def run(
        self,
        on_serving: Callable[[], object],
        on_console: Callable[[], object],
        arrivals: "Arrivals | None" = None,
        console_arrivals: "Arrivals | None" = None,
    ) -> None:
        """Serve until `stop`, or the loss of the data directory, then close. Raises: DataUnusable, Unreadable.

        `on_serving` is called when clients are accepted, `on_console` when the console has started. `arrivals`,
        `console_arrivals`: clients that were accepted elsewhere.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.runtime.run)
            if self._options.checks_invariants:
                nursery.start_soon(check_invariants, self.built.broker)
            if self.built.supervisor is not None:
                nursery.start_soon(self._tend_journal, self._request_report(nursery))
            await nursery.start(self._run_frontend, arrivals)
            on_serving()
            if self._listeners.console or self._listeners.metrics:
                nursery.start_soon(self._run_console, on_console, console_arrivals)
            await self._has_served.wait()
            nursery.cancel_scope.cancel()
        if self._is_abandoned:
            await trio.to_thread.run_sync(self.built.abandon, abandon_on_cancel=True)  # a write may hang
        else:
            self.built.close()
        if self._lost is not None:
            raise self._lost

    def stop(self) -> None:
        """Close the connections; `run` returns when that is done."""
        self.stopping.set()

    def abandon(self) -> None:
        """Like `stop`, but write no more records, because this node no longer leads."""
        self._is_abandoned = True
        self.stopping.set()

    async def _run_frontend(
        self, arrivals: "Arrivals | None", task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        tls_listeners = self._listeners.amqp_tls
        await self._frontend(
            self.runtime,
            self._listeners.amqp_plain,
            self._current.frontend_options,
            **({"tls_listeners": tls_listeners} if tls_listeners else {}),
            **({} if arrivals is None else {"arrivals": arrivals}),
            stopping=self.stopping,
            task_status=task_status,
        )
        self._has_served.set()

    async def _run_console(self, on_console: Callable[[], object], arrivals: "Arrivals | None") -> None:
        """Start the console after AMQP: its imports must not keep clients waiting."""
        from .console_parts import ConsoleParts

        options, supervisor = self._options, self.built.supervisor
        parts = ConsoleParts(
            lambda: self.built.control,
            lambda: self._current.configuration,
            self.built.broker.context.clock.wall_ms(),
            options.data,
            self._listeners,
            lambda: None if supervisor is None else supervisor.journal,
            lambda: self._current.tls,
            lambda: () if options.watch is None else options.watch.files,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(parts.serve, self.runtime, self.stopping, arrivals)
            on_console()

    def _request_report(self, nursery: trio.Nursery) -> Callable[[], object] | None:
        """The callback for `Supervisor.tend` that wakes this event loop; None: trio can do it."""
        supervisor, poller = self.built.supervisor, poller_of_this_run()
        if supervisor is None or poller is None:
            return None
        wakeup = Wakeup(poller, supervisor.committed)
        nursery.start_soon(_report_commits, supervisor.journal.writer, poller, wakeup)
        return wakeup.request

    async def _tend_journal(self, request_report: Callable[[], object] | None) -> None:
        """Run the journal's supervisor as long as the broker runs. Raises: Unreadable."""
        from ..journal import DirectoryLost
        from .supervisor import why_unusable

        supervisor, path = self.built.supervisor, self._options.data
        assert supervisor is not None and path is not None
        try:
            await supervisor.tend(request_report)
        except DirectoryLost as error:
            self._lost = DataUnusable(f"{why_unusable(path, error)}; the broker stops")
            self.stop()

    def _stop_for(self, error: Unreadable) -> None:
        """Stop because spooled messages cannot be read; `run` raises the error."""
        self._lost = error
        self.stop()


async def _report_commits(writer: "Writer", poller: Poller, wakeup: Wakeup) -> None:
    """Have commits reported, and small ones made without a thread where that is possible, until cancelled."""
    from ..journal.disk.kernel_sync import kernel_sync

    if writer.file.syncs_each_commit and (in_kernel := kernel_sync(wakeup.eventfd)) is not None:
        writer.let_kernel_sync(in_kernel)
        poller.before_wait = writer.commit_small
    try:
        await wakeup.run()
    finally:
        poller.before_wait = nothing_to_do
        writer.stop_kernel_sync()


async def check_invariants(broker: Broker) -> None:
    """Check every `CHECK_INTERVAL_S` seconds, and once more when cancelled. Raises: InvariantBroken."""
    from ..engine.invariants import check_broker  # only with --debug

    is_over = False
    while not is_over:
        try:
            await trio.sleep(CHECK_INTERVAL_S)
        except trio.Cancelled:
            is_over = True
        check_broker(broker, messages_max=CHECKED_MESSAGES_MAX)


def digest_of(file: "JsonFile") -> str:
    """The digest of a file of definitions."""
    import hashlib  # only a broker with a cluster needs these
    import json

    return hashlib.sha256(json.dumps(file.value, sort_keys=True).encode()).hexdigest()


def _process_status() -> dict[str, Any]:
    """The part of `status` about this process."""
    limits = descriptor_limits()
    return {
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "descriptors": {"limit": limits.process, "for-connections": limits.connections},
    }
