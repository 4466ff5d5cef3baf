"""What `src/leveret/serving` passes to the console: configuration, facts about the process, and commands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Any, Protocol

from .cluster import ClusterFacts
from .node_facts import Certificate, HostFacts, Listening
from .steps import Steps

if TYPE_CHECKING:
    from ssl import SSLContext

    from .dispatcher import CommandRoute

Network = IPv4Network | IPv6Network


class CommandRefused(Exception):
    """A command was refused. `code`: the AMQP reply code if the engine refused it, else 0. `reason`: why, in words."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class Control(Protocol):
    """Runs commands on the broker. The console changes the broker only by commands."""

    def ask(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """Run a read-only command. Raises: CommandRefused."""

    def steps(self, command: str, arguments: Mapping[str, Any]) -> Steps:
        """Run a command in steps. They end when its effects are on disk. Raises: CommandRefused."""

    def as_caller(self, caller: str, steps: Steps) -> Steps:
        """The same steps. Their commands are recorded in the history of changes as those of `caller`."""

    def routes(self) -> "list[CommandRoute]":
        """The commands that have a route."""


@dataclass(slots=True, frozen=True)
class ConsoleOptions:
    """The configuration of the console, and facts about the node.

    `version`: RabbitMQ's, as clients see it. `product_version`: Leveret's.
    `hosts`: names that are accepted in the header `host`, besides addresses and localhost.
    `origins`: of other pages that may use the API. `proxies`: networks of proxies that are trusted to name the client.
    `tls`: the context of TLS listeners; a reload makes new options for later connections. `cluster`: returns None
    without a cluster.
    """

    control: Control
    listeners: Callable[[], list[Listening]]
    host_facts: Callable[[], HostFacts]
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
    config_files: tuple[str, ...] = ()
    certificates: Callable[[], list[Certificate]] = field(default=list)
    tls: "SSLContext | None" = None
    cluster: Callable[[], ClusterFacts | None] = lambda: None
