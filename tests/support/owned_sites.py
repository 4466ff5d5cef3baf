"""Three sites with one leased queue whose messages have owners, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leveret.engine import Queue, Session
from leveret.engine.leases.owners import Owners
from leveret.engine.leases.state import leases_of
from leveret.engine.messages.field_table import Field
from leveret.testing.harness import Harness, arguments_of

SITES = ("n1", "n2", "n3")


class OwnedSites(Harness):
    """A broker at n1 with a client at each site, and a distributed queue."""

    checks = True
    #: Arguments of the queue.
    arguments: dict[str, Any] = {"x_replication": "distributed"}

    def begin(self) -> None:
        super().begin()
        self.at = {site: self.connect(f"client at {site}", site=site) for site in SITES}
        self.events: list[tuple[str, str, object]] = []
        if "q" not in self.vhost.queues:
            self.queue(client=self.at["n1"].client, **self.arguments)
        self.broker.context.listeners.append(self._hear)

    def _hear(self, event: Any) -> None:
        if event.kind.value in ("transferred", "lease_ended"):
            self.events.append((event.kind.value, str(event.detail), list(event.messages)))

    def of_files(self, site: str, **arguments: Any) -> Queue:
        """The files of a site declare the queue, with these arguments beside those that it has."""
        table = {"x-queue-type": Field("S", b"amps"), **arguments_of({**self.arguments, **arguments})}
        return self.vhost.queues.declare("q", client=None, durable=True, arguments=table, site=site)

    def reader(self, site: str, tag: str = "", *, prefetch: int = 1, **arguments: Any) -> str:
        """A consumer at a site. Returns its tag."""
        self.consume(tag=tag or site, by=self.connect(site=site), prefetch=prefetch, **arguments)
        return tag or site

    def transfers(self) -> list[str]:
        return [detail for kind, detail, _ in self.events if kind == "transferred"]

    def client_of(self, tag: str) -> Session:
        return next(one.session for one in self.named().consumers if one.tag == tag)

    @property
    def owners(self) -> Owners:
        owners = leases_of(self.named()).owners
        assert owners is not None
        return owners

    def owner_of(self, id_: int) -> str:
        """The site that owns a message."""
        return self.owners.site_of(id_)


def owned_queue(
    journal: Path | None = None, groups: Sequence[str] = SITES, memory: int | None = None, **arguments: Any
) -> OwnedSites:
    """Sites with a queue of these arguments."""

    class Other(OwnedSites):
        pass

    Other.arguments = {"x_replication": "distributed", "x_max_backlog_per_consumer": 100, **arguments}
    return Other(kind="amps", site="n1", groups=dict.fromkeys(groups, ""), journal=journal, memory=memory)
