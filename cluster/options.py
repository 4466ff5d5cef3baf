"""The options of a node, from its configuration."""

from dataclasses import dataclass, field

from ..journal import REAL, Files
from ..journal.format.needs import LEVEL
from .agreement.timers import Timers
from .link.challenge import Credentials
from .link.options import Address, LinkOptions, LinkTls


@dataclass(slots=True, frozen=True)
class NodeOptions:
    """The options of a node. `path`: of the data directory.

    nodes: name -> address at which other nodes reach that node's link; this node is among them. level: the highest
    level of a journal that this program can read. addresses: where clients connect, as (kind, `HOST:PORT`).
    """

    name: str
    path: str
    credentials: Credentials
    nodes: dict[str, Address]
    timers: Timers = field(default_factory=Timers)
    link: LinkOptions = field(default_factory=LinkOptions)
    tls: LinkTls = field(default_factory=LinkTls)
    level: int = LEVEL
    min_in_sync: int = 2
    disk_stall_s: float = 5.0
    version: str = ""
    fingerprint: str = ""
    addresses: tuple[tuple[str, str], ...] = ()
    files: Files = REAL

    @property
    def address(self) -> Address:
        """The address at which other nodes reach this one's link."""
        return self.nodes[self.name]

    @property
    def others(self) -> dict[str, Address]:
        """The addresses of the other nodes' links, by name."""
        return {name: address for name, address in self.nodes.items() if name != self.name}
