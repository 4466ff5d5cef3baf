"""The console in this process: its options from the broker, the machine and the configuration.

Imported only with the extra `leveret[console]`. Source: management page 21.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import __version__
from ..amqp_frontend.wire.replies import reply_for
from ..console.cluster import ClusterFacts
from ..console.dispatcher import CommandRoute
from ..console.node_facts import Certificate, Listening
from ..console.options import CommandRefused, ConsoleOptions
from ..console.steps import Steps
from ..engine import EngineError, errors
from ..operator.command_error import CommandError
from ..operator.command_table import COMMANDS
from ..operator.control import ControlTable
from ..settings import Configuration
from ..settings.declared.cluster import node_of
from .listeners import Listeners
from .process_facts import PYTHON, host_facts_of
from .tls_files import NO_TLS, TlsFiles

#: The reply code for missing permissions.
ACCESS_REFUSED = 403


def refused(error: CommandError) -> CommandRefused:
    """The refusal of a command in the console's words, with the reply code that AMQP clients would get."""
    cause = error.__cause__
    if not isinstance(cause, EngineError):
        return CommandRefused(str(error))
    reply = reply_for(cause)
    is_forbidden = isinstance(cause, errors.AccessRefused)
    return CommandRefused(reply.text, ACCESS_REFUSED if is_forbidden else reply.code)


@dataclass(slots=True, frozen=True)
class Commands:
    """The table of commands, with the interface of the console (`console.options.Control`)."""

    table: ControlTable

    def ask(self, command: str, arguments: Mapping[str, Any]) -> Any:
        try:
            return self.table.ask(*_split(command, arguments))
        except CommandError as error:
            raise refused(error) from error

    def steps(self, command: str, arguments: Mapping[str, Any]) -> Steps:
        try:
            return (yield from self.table.steps(*_split(command, arguments)))
        except CommandError as error:
            raise refused(error) from error

    def as_caller(self, caller: str, steps: Steps) -> Steps:
        return self.table.as_caller(caller, steps)

    def routes(self) -> list[CommandRoute]:
        return [
            CommandRoute(
                command.words, command.http, {one.name: one.kind.word for one in command.arguments}, command.reads
            )
            for actions in COMMANDS.values()
            for command in actions.values()
            if command.http is not None
        ]


def _split(command: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    name, _, action = command.partition(" ")
    return name, {**arguments, **({"action": action} if action else {})}


def listening(listeners: Listeners) -> list[Listening]:
    """Listening sockets except Unix sockets, which have no port, with RabbitMQ's names of their protocols."""
    found = []
    for of_service, protocols in (
        (listeners.amqp, ("amqp", "amqp/ssl")),
        (listeners.console, ("http", "https")),
        (listeners.metrics, ("http/prometheus", "https/prometheus")),
    ):
        for listener, address in of_service.items():
            if not address.path:
                host, port = listener.getsockname()[:2]
                found.append(Listening(protocols[address.is_tls], host, port, address.is_tls))
    return found


def certificates_of(tls: TlsFiles, listeners: list[Listening]) -> list[Certificate]:
    """The certificates of each TLS listener, as read last."""
    from .certificates import expiry_times

    chain, authorities = tls.chain, tls.authorities
    if chain is None:
        return []
    expires = expiry_times(chain.text)
    authority = ("", ()) if authorities is None else (authorities.path, expiry_times(authorities.text))
    return [Certificate(one, chain.path, expires, *authority) for one in listeners if one.is_tls]


def console_options(
    table: ControlTable,
    configuration: Configuration,
    started_ms: int,
    data: str | None,
    listeners: Callable[[], list[Listening]],
    tls: TlsFiles = NO_TLS,
    files: tuple[str, ...] = (),
) -> ConsoleOptions:
    """The options of the console now. `data`: the directory of the journal. `files`: those of the configuration."""
    management = configuration.management

    def cluster() -> ClusterFacts | None:
        admin = table.operator.cluster
        return None if admin is None else admin.facts()

    return ConsoleOptions(
        control=Commands(table),
        listeners=listeners,
        host_facts=lambda: host_facts_of(data),
        node=node_of(configuration),
        version=configuration.profile.version,
        product_version=__version__,
        python_version=PYTHON,
        hosts=management.hosts,
        origins=management.cors_origins,
        proxies=management.trusted_proxies,
        path_prefix=management.path_prefix,
        body_max=management.max_body,
        connections_max=management.max_connections,
        started_ms=started_ms,
        mechanisms=configuration.broker.mechanisms,
        data=data,
        disk_reserve=0 if data is None else configuration.journal.reserve,
        config_files=files,
        certificates=lambda: certificates_of(tls, listeners()),
        tls=tls.context,
        cluster=cluster,
    )
