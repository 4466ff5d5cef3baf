"""The door between a node and what builds and serves brokers: Leveret's front door, or a model in the tests."""

from collections.abc import Mapping
from typing import Protocol

from ..engine import EventKind
from ..journal import ClusterJournal, Journal
from .agreement.view import Leader


class LeadingBroker(Protocol):
    """A broker that leads. All but the constructor is for the event loop."""

    @property
    def journal(self) -> Journal:
        """The journal that it writes."""

    async def serve(self) -> None:
        """Serve clients until `resign`, then close everything without writing. Raises: as a broker that is served."""

    def agree(self, lsn: int, *, at_once: bool) -> None:
        """All nodes that are in sync have what is below `lsn`: send what waits for that, soon or before it returns."""

    def hold(self, reason: str) -> None:
        """Block publishers, and tell them why."""

    def go_on(self) -> None:
        """Take publishes; read from clients and send to them again."""

    def suspend(self) -> None:
        """Read nothing from clients and send them nothing until `go_on` or `hold`."""

    async def quiesce(self) -> int:
        """Read nothing from clients until `go_on` or `hold`, and end all turns. Returns the LSN behind them."""

    async def close_unserved(self) -> None:
        """End as `serve` does: for a broker that never served."""

    def resign(self) -> None:
        """Close the connections and write no more records: `serve` returns soon."""

    def sites_are(self, sites: Mapping[str, Mapping[str, object]]) -> None:
        """Before `serve`: the other nodes that have links, and what each says of its site (see `Front.site`)."""

    def site_came(self, node: str, site: Mapping[str, object]) -> None:
        """Another node has a link."""

    def site_left(self, node: str) -> None:
        """The link of another node has ended; it may come back at once."""

    def note(self, kind: EventKind, node: str, term: int, why: str) -> None:
        """Record an event of the cluster."""


class Front(Protocol):
    """The clients of this process, and brokers for it."""

    def preload(self) -> None:
        """Import all that leading needs; in a thread, while this node follows."""

    def build(self, cluster: ClusterJournal) -> LeadingBroker:
        """Open the journal and restore a broker from it; in a thread. Raises: JournalError, OSError, DataUnusable."""

    def site(self) -> Mapping[str, object]:
        """What this node says of its site to the broker of a leader: JSON of at most 512 KiB."""

    def hold_clients(self) -> None:
        """No node leads: hold clients for a while."""

    def pass_clients_on(self, leader: Leader) -> None:
        """Pass clients on to the leader."""

    def refuse_clients(self) -> None:
        """This node cannot be one of the cluster: close clients."""
