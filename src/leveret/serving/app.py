"""The composition root: configuration, broker, frontends and signals put together for `leveret serve`."""

import gc
import logging
import os
import random
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import trio

from ..amqp_frontend.options import FrontendOptions
from ..configured.configured import ConfiguredObjects, Report, broker_options
from ..configured.configured_users import DEFAULT_GUEST
from ..control.command_arguments import CommandError
from ..control.control import EXCHANGE, ControlTable
from ..engine import Broker, Users
from ..engine.stores.tail import Unreadable
from ..settings import Configuration
from ..settings.printable import printable
from .addresses import Address, AddressTaken, bind, url_of
from .allocator import give_back
from .descriptors import descriptor_limits
from .file_watch import FileWatch, marks_of
from .log_budget import set_budget
from .process_signals import RELOADS, STOPS, SignalQueue, ignore, open_signal_queue
from .runtime import Runtime, SystemClock
from .tls_files import NO_TLS, TlsFiles, load_tls

if TYPE_CHECKING:
    from .keeper import Keeper

logger = logging.getLogger("leveret")

FRONTEND_GROUP = "leveret.frontends"
BACKLOG = 1024
#: The configuration files are not looked at more often than this, whatever the period.
PERIOD_MIN_MS = 50
#: A file that is being written is looked at again after this time at most.
SETTLING_S = 0.25

Frontend = Callable[..., Awaitable[None]]


class DataUnusable(Exception):
    """The data directory is locked, foreign or damaged; the message is for the operator."""


class FrontendMissing(Exception):
    """No installed distribution offers the frontend; the message is for the operator."""


@dataclass(slots=True)
class ServeOptions:
    """What `leveret serve` was asked for.

    `load` reads the configuration files again: (configuration, faults). `watch` knows them as they were before.
    `tls`: what the configuration's `[tls]` came to.
    `definitions`: a document in RabbitMQ's form, without faults, taken in at the start.
    """

    configuration: Configuration
    listen: list[Address]
    data: str | None = None  # a directory for the journal; None: everything in memory
    load: Callable[[], tuple[Configuration, list[str]]] | None = None
    watch: FileWatch | None = None
    tls: TlsFiles = NO_TLS
    definitions: object = None
    ready: Callable[[str], None] = field(default=lambda line: print(printable(line), flush=True))


def default_users() -> Users:
    """guest / guest: administrator, from loopback only."""
    return Users([DEFAULT_GUEST])


def frontend_options(configuration: Configuration, tls: TlsFiles = NO_TLS) -> FrontendOptions:
    """What the AMQP frontend needs of a configuration."""

    def broker(key: str) -> Any:
        return configuration.value("broker", key)

    def limit(key: str) -> Any:
        return configuration.value("limits", key)

    return FrontendOptions(
        heartbeat_s=-(-broker("heartbeat") // 1000),
        channel_max=limit("channels-per-connection") or broker("channel-max"),
        frame_max=broker("frame-max"),
        mechanisms=broker("mechanisms"),
        anonymous_user=broker("anonymous-user"),
        handshake_timeout_ms=limit("handshake-timeout"),
        first_octet_timeout_ms=limit("first-octet-timeout"),
        refused_login_delay_ms=broker("refused-login-delay"),
        half_open_max=limit("half-open-connections"),
        connections_max=limit("connections"),
        descriptor_max=descriptor_limits().connections,
        consumers_per_channel_max=limit("consumers-per-channel"),
        message_size_max=limit("message-size"),
        incomplete_max=limit("incomplete-per-connection"),
        honour_flow=configuration.profile.honours_flow,
        product=broker("product"),
        version=broker("product-version"),
        cluster_name=broker("cluster-name"),
        tls=tls.context,
        ssl_cert_login_from=configuration.value("tls", "ssl-cert-login-from"),
        ssl_cert_login_san_type=configuration.value("tls", "ssl-cert-login-san-type"),
        ssl_cert_login_san_index=configuration.value("tls", "ssl-cert-login-san-index"),
        proxy_protocol_from=broker("proxy-protocol-from"),
    )


def find_frontend(name: str) -> Frontend:
    """The frontend that is registered under `name`. Raises: FrontendMissing."""
    from importlib.metadata import entry_points  # 10 ms that the test broker need not pay

    for entry_point in entry_points(group=FRONTEND_GROUP, name=name):
        frontend: Frontend = entry_point.load()
        return frontend
    raise FrontendMissing(f"no frontend {name!r} is installed (entry points {FRONTEND_GROUP})")


def _open_journal(path: str, broker: Broker, configuration: Configuration) -> "Keeper":
    """Raises: DataUnusable."""
    from ..journal import JournalError  # not for who keeps everything in memory
    from .keeper import Keeper, why_unusable

    try:
        return Keeper.open(path, broker.clock, broker, configuration)
    except (JournalError, OSError) as error:
        raise DataUnusable(why_unusable(path, error)) from error


def serve(options: ServeOptions) -> int:
    """Run a broker until SIGTERM or SIGINT.

    Returns the exit code: 0, or 1 when an address is taken, or the data directory cannot be used (any more).
    """
    try:
        frontend = find_frontend("amqp")
    except FrontendMissing as error:
        print(printable(f"leveret: {error}"), file=sys.stderr)
        return 1
    ignore(RELOADS)  # the configuration has just been read, and the journal may take a while
    listeners: list[socket.socket] = []
    try:
        for address in options.listen:
            listeners.append(bind(address, BACKLOG))
    except AddressTaken as error:
        for listener in listeners:
            listener.close()
        print(printable(f"leveret: {error}"), file=sys.stderr)
        return 1
    # Start-up objects live for ever, messages come and go by counting: the collector would only get in the way
    # (0.39 us a queued message instead of 0.97; performance page 2).
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    errors: list[BaseException] = []
    try:
        trio.run(_serve, options, frontend, listeners)
    except* (DataUnusable, OSError) as group:
        errors += leaves(group)
    except* Unreadable as group:
        errors += leaves(group)
        logger.critical("%s; the broker stops. `leveret journal verify` tells what is wrong", errors[-1])
    ignore((*STOPS, *RELOADS))  # nothing is left to end
    for listener in listeners if errors else ():
        listener.close()
    for text in {str(error): None for error in errors}:
        print(printable(f"leveret: {text}"), file=sys.stderr)
    return 1 if errors else 0


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors in a group, however deep."""
    return [
        leaf for one in group.exceptions for leaf in (leaves(one) if isinstance(one, BaseExceptionGroup) else [one])
    ]


async def _serve(options: ServeOptions, frontend: Frontend, listeners: list[socket.socket]) -> None:
    configuration = options.configuration
    _log(Report(warnings=(*configuration.warnings, *options.tls.warnings)))
    tls_listeners = [listener for address, listener in zip(options.listen, listeners) if address.is_tls]

    def reload() -> Report:
        assert options.load is not None
        if options.watch is not None:
            options.watch.note_loaded(marks_of(options.watch.files))
        loaded, faults = options.load()
        tls = load_tls(loaded)
        faults += tls.faults
        if tls_listeners and tls.context is None and not faults:
            faults.append("leveret: [tls] certificate is gone, but there are listeners with TLS")
        if faults:
            return Report(faults=tuple(faults))
        known = (*current.configuration.warnings, *current.tls.warnings)
        current.replace(loaded, tls)
        report = objects.apply(loaded)
        news = tuple(warning for warning in (*loaded.warnings, *tls.warnings) if warning not in known)
        report = replace(report, warnings=(*news, *report.warnings))
        _log(report)
        return report

    control = ControlTable(
        reload=reload if options.load is not None else None,
        edge_status=_edge_status,
    )
    broker = Broker(
        SystemClock(),
        Users(),
        services={EXCHANGE: control.handle},
        settings=configuration.repository,
        options=broker_options(configuration),
        chance=random.random,
        unsent_max=configuration.value("limits", "unsent-per-connection"),
    )
    keeper = None
    if options.data is not None:
        keeper = _open_journal(options.data, broker, configuration)
    if not configuration.users and not any(broker.users):
        broker.replace_user(DEFAULT_GUEST)
    objects = ConfiguredObjects(broker, configuration)
    control.attach(broker, objects)
    _log(objects.apply(configuration))
    if options.definitions is not None:
        taken = control.definitions.take_in(options.definitions)
        _log(Report(warnings=tuple(taken["remarks"])))
    current = _Current(configuration, options.tls)
    runtime = Runtime(broker, keeper.commit if keeper is not None else None)
    runtime.end_turn()  # what the start left to do

    def reload_now(why: str) -> None:
        _reload_now(control, why)
        runtime.end_turn()

    stopping, ended = trio.Event(), trio.Event()
    lost: list[DataUnusable] = []

    async def tend(keeper: "Keeper", path: str) -> None:
        lost.append(await _tend(keeper, path))
        ended.set()

    async def heed(signals: SignalQueue) -> None:
        async for number in signals:
            if number in STOPS:
                logger.info("stopping: %s", number.name)
                break
            reload_now(number.name)
        ended.set()

    async with trio.open_nursery() as nursery:
        with open_signal_queue((*STOPS, *RELOADS)) as signals:
            nursery.start_soon(runtime.run)
            nursery.start_soon(give_back)
            if keeper is not None and options.data is not None:
                nursery.start_soon(tend, keeper, options.data)
            if options.watch is not None:
                nursery.start_soon(_watch_files, options.watch, current, reload_now)
            serving = trio.Event()

            async def run_frontend(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
                await frontend(
                    runtime,
                    [listener for listener in listeners if listener not in tls_listeners],
                    current.frontend_options,
                    **({"tls_listeners": tls_listeners} if tls_listeners else {}),
                    stopping=stopping,
                    task_status=task_status,
                )
                serving.set()

            await nursery.start(run_frontend)
            for address, listener in zip(options.listen, listeners):
                options.ready(f"leveret ready {url_of(address, listener)}")
            nursery.start_soon(heed, signals)
            await ended.wait()
        stopping.set()
        await serving.wait()
        nursery.cancel_scope.cancel()
    if keeper is not None:
        keeper.close()
    for address, listener in zip(options.listen, listeners):
        listener.close()
        if address.path:
            _remove(address.path)
    for error in lost:
        raise error


async def _tend(keeper: "Keeper", path: str) -> DataUnusable:
    """For as long as the broker runs. Returns: why it must stop. Raises: Unreadable."""
    from ..journal import DirectoryLost
    from .keeper import why_unusable

    try:
        await keeper.tend()
    except DirectoryLost as error:
        return DataUnusable(f"{why_unusable(path, error)}; the broker stops")
    raise AssertionError("it ends by being cancelled")


def _edge_status() -> dict[str, Any]:
    """What of `status` is of this process."""
    limits = descriptor_limits()
    return {
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "descriptors": {"limit": limits.process, "for-connections": limits.connections},
    }


class _Current:
    """The configuration in force: what a reload replaces, and new connections look at."""

    def __init__(self, configuration: Configuration, tls: TlsFiles) -> None:
        self.replaced = trio.Event()
        self.replace(configuration, tls)

    def replace(self, configuration: Configuration, tls: TlsFiles) -> None:
        """From now on this one counts."""
        self.configuration = configuration
        self.tls = tls
        self.certificates = FileWatch(tls.marks)
        self._frontend_options = frontend_options(configuration, tls)
        set_budget("leveret.amqp", configuration.value("limits", "log-lines-per-second"))
        self.replaced.set()
        self.replaced = trio.Event()

    def frontend_options(self) -> FrontendOptions:
        """For the next connection."""
        return self._frontend_options


async def _watch_files(watch: FileWatch, current: _Current, reload_now: Callable[[str], None]) -> None:
    """Reload when a configuration file, or a certificate, has changed (`configuration-file-refresh-period`)."""
    is_settling = False
    while True:
        period_ms = current.configuration.value("broker", "configuration-file-refresh-period")
        pause_s = max(period_ms, PERIOD_MIN_MS) / 1000 if period_ms >= 0 else float("inf")
        with trio.move_on_after(min(pause_s, SETTLING_S) if is_settling else pause_s):
            await current.replaced.wait()  # by hand: the period may be another one
            continue
        findings = [one.look(marks_of(one.files)) for one in (watch, current.certificates)]
        is_settling = any(finding.is_settling for finding in findings)
        for name in (name for finding in findings for name in finding.missing):
            logger.error("%s: FILE: is gone or cannot be looked at; the configuration stays as it is", name)
        if changed := [name for finding in findings for name in finding.changed]:
            reload_now(f"{', '.join(changed)} changed")


def _reload_now(control: ControlTable, why: str) -> None:
    """Reload, whatever comes of it: the broker goes on."""
    try:
        control.run("reload")
        logger.info("configuration reloaded: %s", why)
    except CommandError as error:
        logger.error("%s: %s", why, error)
    except Exception:
        logger.exception("%s: the configuration could not be reloaded", why)


def _log(report: Report) -> None:
    for line in report.done:
        logger.info("%s", line)
    for line in report.warnings:
        logger.warning("%s", line)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
