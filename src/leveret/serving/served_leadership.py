"""The broker of this process while it leads a cluster. It serves on the listeners that the gate lends it."""

import math
from collections.abc import Mapping, Sequence

import trio

from ..amqp_frontend.edge.arrival import Arrival
from ..engine import ClusterEvent, EventKind
from ..journal import Journal
from .cluster_sites import ClusterSites
from .composition import BuiltBroker
from .gate import Frontends, Gate
from .node_report import LeaderFacts, NodeReport
from .served_broker import ServedBroker


class ServedLeadership:
    """The broker of this process that leads (`LeadingBroker`). `others`: the names of the other nodes."""

    def __init__(self, broker: ServedBroker, gate: Gate, others: Sequence[str], report: NodeReport) -> None:
        self.broker = broker
        self._report = report
        self.sites = ClusterSites(broker.built.broker, others, broker.runtime.end_turn)
        self._gate = gate

    @property
    def journal(self) -> Journal:
        supervisor = self.broker.built.supervisor
        assert supervisor is not None
        return supervisor.journal

    async def serve(self) -> None:
        amqp_out, amqp_in = trio.open_memory_channel[Arrival](math.inf)
        console_out, console_in = trio.open_memory_channel[Arrival](math.inf)
        self.arrivals = Frontends(amqp_out, console_out)
        runtime = self.broker.runtime
        runtime.divert = lambda arrival: self._gate.take(arrival, runtime.wait_while_suspended)
        self._report.leader_facts = leader_facts_of(self.broker.built, self.sites.refused)
        async with amqp_in, console_in, self._gate.lent_listeners():
            try:
                await self.broker.run(lambda: self._gate.hand_over(self.arrivals), lambda: None, amqp_in, console_in)
            except Exception:  # such as unreadable data: the process lives on as a node, without the broker
                self.resign()
                await self.close_unserved()
                raise
            finally:
                self._report.leader_facts = None

    def agree(self, lsn: int, *, at_once: bool) -> None:
        supervisor = self.broker.built.supervisor
        assert supervisor is not None
        supervisor.agree(lsn, at_once=at_once)

    def hold(self, reason: str) -> None:
        self.broker.runtime.resume()
        self.broker.built.broker.flow.raise_replication(reason)
        self.broker.runtime.end_turn()

    def resume(self) -> None:
        self.broker.runtime.resume()
        self.broker.built.broker.flow.end_replication()
        self.broker.runtime.end_turn()

    def suspend(self) -> None:
        self.broker.runtime.suspend()

    async def quiesce(self) -> int:
        runtime, broker = self.broker.runtime, self.broker.built.broker
        runtime.quiesce()
        while True:
            runtime.end_turn()
            if not broker.is_unfinished or runtime.has_resigned:
                return self.journal.next_lsn
            await trio.lowlevel.checkpoint()

    def resign(self) -> None:
        self.broker.runtime.resign()
        self.broker.abandon()

    async def close_unserved(self) -> None:
        await trio.to_thread.run_sync(self.broker.built.abandon)

    def set_sites(self, sites: Mapping[str, Mapping[str, object]]) -> None:
        self.sites.begin(sites)

    def add_site(self, node: str, site: Mapping[str, object]) -> None:
        self.sites.link_opened(node, site)

    def remove_site(self, node: str) -> None:
        self.sites.link_ended(node)

    def note(self, kind: EventKind, node: str, term: int, why: str) -> None:
        self.broker.built.broker.context.emit(ClusterEvent(kind, "", node, term, why))
        self.broker.runtime.end_turn()


def leader_facts_of(built: BuiltBroker, refused: Mapping[str, Sequence[str]]) -> LeaderFacts:
    """The facts that a leading broker adds to the report. `refused`: see `ClusterSites`."""
    from ..console.views.nodes import alarms_of

    def cluster_name() -> str:
        return str(built.control.run("cluster-name", {})["name"])

    return LeaderFacts(lambda: alarms_of(built.broker), cluster_name, refused)
