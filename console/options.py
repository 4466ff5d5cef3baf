"""What the console is given: its configuration, what it knows of the process, and the table of commands.

The console imports nothing of the composition root: what it needs of it is handed in here.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ssl import SSLContext

    from .dispatcher import CommandRoute

Network = IPv4Network | IPv6Network

#: Work in short steps: the turn is ended after each, and others have theirs. Returns what it comes to.
Steps = Generator[None, None, Any]


class CommandRefused(Exception):
    """A command did nothing. `code`: the reply code of the engine's refusal, whose text is `reason`; 0: the command's
    own words."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class Control(Protocol):
    """The table of commands of the running broker: the only way in which the console changes anything."""

    def ask(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """Run a command that only reads. Raises: CommandRefused."""

    def steps(self, command: str, arguments: Mapping[str, Any]) -> Steps:
        """Run a command; the last step comes when what it did is safe. Also those that only read, and take long where
        there is much. Raises: CommandRefused."""

    def routes(self) -> "list[CommandRoute]":
        """The commands that have routes."""


@dataclass(slots=True, frozen=True)
class Listening:
    """One listener of the broker. `protocol` in RabbitMQ's words: amqp, amqp/ssl, http, https, ..."""

    protocol: str
    ip_address: str
    port: int
    is_tls: bool = False


@dataclass(slots=True, frozen=True)
class Certificate:
    """What a listener with TLS shows, and by whom it knows clients' certificates: paths, and the moments in wall time
    at which each certificate in them ends."""

    listening: Listening
    file: str
    expires_ms: tuple[int, ...]
    authority: str = ""
    authority_expires_ms: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class HostFacts:
    """What the operating system and the event loop say of the process; octets where they are memory or disk."""

    process_id: int
    descriptors: int
    descriptors_max: int
    memory: int
    memory_max: int
    disk_free: int
    processors: int
    tasks: int
    tasks_ready: int = 0
    context_switches: int = 0


@dataclass(slots=True, frozen=True)
class ConsoleOptions:
    """`version`: of RabbitMQ, as clients are to see it. `product_version`: our own.

    `hosts`: names that may stand in Host, beside addresses and localhost. `origins`: of pages elsewhere that may ask.
    `proxies`: whose word on who asks is taken. `tls`: for the next connection of a listener with TLS.
    """

    control: Control
    listeners: Callable[[], list[Listening]]
    machine: Callable[[], HostFacts]
    node: str = "rabbit@localhost"
    version: str = "3.10.8"
    product_version: str = ""
    python_version: str = ""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    proxies: tuple[Network, ...] = ()
    path_prefix: str = ""
    body_max: int = 20_000_000
    connections_max: int = 100
    started_ms: int = 0
    mechanisms: tuple[str, ...] = ("AMQPLAIN", "PLAIN")
    data: str | None = None  # directory of the journal
    disk_reserve: int = 0  # octets that the journal leaves free
    log_files: tuple[str, ...] = ()
    config_files: tuple[str, ...] = ()
    certificates: Callable[[], list[Certificate]] = field(default=list)
    tls: "SSLContext | None" = None
