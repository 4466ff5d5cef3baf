"""The interface between a node and the code that builds and serves brokers: `src/leveret/serving`, or a model of it."""

from collections.abc import Mapping
from typing import Protocol

from ..engine import EventKind
from ..journal import ClusterJournal, Journal
from .agreement.view import Leader


class LeadingBroker(Protocol):
    """The broker of a node that leads. Its methods are for the event loop."""

    @property
    def journal(self) -> Journal:
        """The journal of the broker."""

    async def serve(self) -> None:
        """Serve clients until `resign`, then close everything without writing. Raises: whatever ends a broker."""

    def agree(self, lsn: int, *, at_once: bool) -> None:
        """Everything below `lsn` is agreed: send the answers that wait for that, soon or (`at_once`) in this call."""

    def hold(self, reason: str) -> None:
        """Block publishers. `reason`: for connection.blocked."""

    def resume(self) -> None:
        """Accept publishes again, read from clients again, and send to them again."""

    def suspend(self) -> None:
        """Read nothing from clients and send them nothing until `resume` or `hold`."""

    async def quiesce(self) -> int:
        """Read nothing from clients until `resume` or `hold`, and end all turns. Returns the journal's end, an LSN."""

    async def close_unserved(self) -> None:
        """Close everything without writing: for a broker that never served."""

    def resign(self) -> None:
        """Close the connections and write no more records: `serve` returns soon."""

    def set_sites(self, sites: Mapping[str, Mapping[str, object]]) -> None:
        """Set the other nodes that have links, with their sites (`NodeProcess.site`). Called before `serve`."""

    def add_site(self, node: str, site: Mapping[str, object]) -> None:
        """Add another node: it has opened a link. `site`: the description of its site."""

    def remove_site(self, node: str) -> None:
        """Remove another node: its link has ended. It may come back at once."""

    def note(self, kind: EventKind, node: str, term: int, why: str) -> None:
        """Record an event of the cluster. `node`: the name of the node concerned."""


class NodeProcess(Protocol):
    """The process around a node: it builds brokers and accepts clients."""

    def preload(self) -> None:
        """Import all modules that leading needs. Called in a thread while this node follows."""

    def build(self, cluster: ClusterJournal) -> LeadingBroker:
        """Open the journal and restore a broker from it. For a thread. Raises: JournalError, OSError, DataUnusable."""

    def site(self) -> Mapping[str, object]:
        """The site of this node's clients, as the leader's broker needs it: JSON of at most 512 KiB."""

    def hold_clients(self) -> None:
        """Let clients wait for a while: no node leads."""

    def pass_clients_on(self, leader: Leader) -> None:
        """Pass clients on to the leader."""

    def refuse_clients(self) -> None:
        """Close clients: this node cannot be part of the cluster."""
