"""The interface between a node and the code that builds and serves brokers: `src/leveret/serving`, or a model."""

from collections.abc import Mapping
from typing import Protocol

from ..engine import EventKind
from ..journal import ClusterJournal, Journal
from .agreement.view import Leader


class LeadingBroker(Protocol):
    """The broker of a node that leads. Its methods are for the event loop."""

    @property
    def journal(self) -> Journal:
        """The journal that it writes."""

    async def serve(self) -> None:
        """Serve clients until `resign`, then close everything without writing. Raises: whatever stops a broker."""

    def agree(self, lsn: int, *, at_once: bool) -> None:
        """Send the answers that wait for `lsn` to be agreed, soon or (`at_once`) before this returns."""

    def hold(self, reason: str) -> None:
        """Block publishers, with this reason."""

    def resume(self) -> None:
        """Accept publishes, and read from clients and send to them, again."""

    def suspend(self) -> None:
        """Read nothing from clients and send them nothing until `resume` or `hold`."""

    async def quiesce(self) -> int:
        """Read nothing from clients until `resume` or `hold`, and end all turns. Returns the LSN behind them."""

    async def close_unserved(self) -> None:
        """Close everything without writing: for a broker that never served."""

    def resign(self) -> None:
        """Close the connections and write no more records: `serve` returns soon."""

    def set_sites(self, sites: Mapping[str, Mapping[str, object]]) -> None:
        """Before `serve`: set the other nodes that have links, with their sites (`NodeProcess.site`)."""

    def add_site(self, node: str, site: Mapping[str, object]) -> None:
        """Add another node, which has opened a link."""

    def remove_site(self, node: str) -> None:
        """Remove another node, whose link has ended; it may come back at once."""

    def note(self, kind: EventKind, node: str, term: int, why: str) -> None:
        """Record an event of the cluster."""


class NodeProcess(Protocol):
    """The process around a node: it builds brokers, and has the clients."""

    def preload(self) -> None:
        """Import all that leading needs; in a thread, while this node follows."""

    def build(self, cluster: ClusterJournal) -> LeadingBroker:
        """Open the journal and restore a broker from it; in a thread. Raises: JournalError, OSError, DataUnusable."""

    def site(self) -> Mapping[str, object]:
        """This node's description of its site for the broker of a leader: JSON of at most 512 KiB."""

    def hold_clients(self) -> None:
        """No node leads: hold clients for a while."""

    def pass_clients_on(self, leader: Leader) -> None:
        """Pass clients on to the leader."""

    def refuse_clients(self) -> None:
        """This node cannot take part in the cluster: close clients."""
