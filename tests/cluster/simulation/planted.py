"""Faults that are planted into the product: a world must find each of them. Each takes pytest's `MonkeyPatch`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from leveret.cluster.agreement import candidate, leadership
from leveret.cluster.agreement.context import NodeContext
from leveret.cluster.agreement.follower import Follower
from leveret.cluster.leading import Leading
from leveret.journal.appending.journal import Journal
from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.journal.disk.segment_file import SegmentFile
from leveret.journal.format.terms import TermTable
from leveret.journal.recording.agreed_deliveries import AgreedDeliveries

from .node import NodeBroker

#: What the book of the rule says.
FOUND_BY = {
    "confirms_by_durable": r"ends at \d+; \d+ is confirmed",
    "cuts_by_the_end_alone": r"goes on at \d+",
    "shrinks_before_it_is_done": r"ends at \d+; \d+ is confirmed",
    "grows_early": r"agreed is cut",
    "campaigns_from_outside_the_set": r"leads, and is not in the set",
    "acknowledges_while_it_campaigns": r"acknowledges in term \d+, and was elected for term \d+",
    "acknowledges_before_the_fsync": r"had acknowledged \d+, and ends at \d+ after its start",
    "an_old_leader_still_sends": r"resigned, and still serves|still serves term",
    "ids_of_lost_leaders_are_used_again": r"ids mean two messages|the id \d+ means",
    "deletes_before_the_checkpoint_is_agreed": r"frees segments, and \d+ is agreed",
    "nothing_is_written_when_it_leads": r"goes on at \d+|ids mean two messages",
    "deliveries_do_not_wait": r"is seen before it is agreed",
    "a_takeover_counts_as_a_start": r"comes again without a flag",
}
Plant = Callable[[pytest.MonkeyPatch], None]
#: By name.
PLANTED: dict[str, Plant] = {}


def planted(plant: Plant) -> Plant:
    PLANTED[plant.__name__] = plant
    return plant


@planted
def confirms_by_durable(patch: pytest.MonkeyPatch) -> None:
    """An answer leaves when the own disk has it."""
    patch.setattr(SegmentFile, "committed_lsn", property(lambda self: self.durable_lsn))


@planted
def cuts_by_the_end_alone(patch: pytest.MonkeyPatch) -> None:
    """Not by the term table: what a lost leader had stays where another leader wrote something else."""
    patch.setattr(TermTable, "common_end", lambda self, other, end, other_end: min(end, other_end))
    patch.setattr(CopiedJournal, "set_terms", _set_any_terms)


def _set_any_terms(self: CopiedJournal, terms: TermTable) -> None:
    self.terms = terms
    self._files.put(f"{self.path}/terms", terms.octets)  # type: ignore[attr-defined]


@planted
def shrinks_before_it_is_done(patch: pytest.MonkeyPatch) -> None:
    """A member is not waited for any more when the transaction is sent."""
    send = leadership.Leadership._send_change

    def shrink(self: Any, nodes: frozenset[bytes]) -> None:
        send(self, nodes)
        self.insync = replace(self.insync, nodes=nodes)

    patch.setattr(leadership.Leadership, "_send_change", shrink)


@planted
def grows_early(patch: pytest.MonkeyPatch) -> None:
    """A follower enters the set before it has what is agreed."""
    patch.setattr(leadership.Leadership, "_has_everything", lambda self, node_id: True)
    patch.setattr(leadership.Member, "is_close", lambda self, *_: True)


@planted
def campaigns_from_outside_the_set(patch: pytest.MonkeyPatch) -> None:
    """Or with less than was agreed."""
    patch.setattr(candidate, "obstacle", lambda context, view: None if view.insync is not None else "none")
    patch.setattr(NodeContext, "is_member", property(lambda self: True))


@planted
def acknowledges_while_it_campaigns(patch: pytest.MonkeyPatch) -> None:
    """It goes on to follow the leader before."""
    patch.setattr(Follower, "leave_leader", lambda self: None)


@planted
def acknowledges_before_the_fsync(patch: pytest.MonkeyPatch) -> None:
    """Every second time the disk is not asked."""
    sync = CopiedJournal.sync
    count = 0

    def sometimes(self: Any) -> int:
        nonlocal count
        count += 1
        if count % 2:
            self._synced_lsn = self._blocks.lsn
            return int(self._synced_lsn)
        return sync(self)

    patch.setattr(CopiedJournal, "sync", sometimes)


@planted
def deliveries_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    """A client sees messages that the next leader may not have."""
    patch.setattr(AgreedDeliveries, "__call__", lambda self, event: None)


@planted
def a_takeover_counts_as_a_start(patch: pytest.MonkeyPatch) -> None:
    """Nothing that the leader before may have delivered has a flag."""
    patch.setattr(NodeBroker, "took_over", False)


@planted
def an_old_leader_still_sends(patch: pytest.MonkeyPatch) -> None:
    """It is not suspended, and does not end when another leads."""
    patch.setattr(NodeBroker, "answers", property(lambda self: self.is_served))
    patch.setattr(NodeBroker, "is_connected", property(lambda self: self.node.broker is self))
    patch.setattr(Leading, "resign", _keep_the_broker)


async def _keep_the_broker(self: Leading, why: str) -> None:
    self._close(why)
    await trio.sleep_forever()


@planted
def ids_of_lost_leaders_are_used_again(patch: pytest.MonkeyPatch) -> None:
    """A bookmark of a message that was cut means another one."""
    patch.setattr(TermTable, "terms_since", lambda self, lsn: 1)


@planted
def deletes_before_the_checkpoint_is_agreed(patch: pytest.MonkeyPatch) -> None:
    """The next leader has no such checkpoint, and not what was before it."""
    patch.setattr(SegmentFile, "trusted_lsn", property(lambda self: self.durable_lsn))


@planted
def nothing_is_written_when_it_leads(patch: pytest.MonkeyPatch) -> None:
    """The term is in no term table."""
    patch.setattr(TermTable, "with_term", lambda self, term, lsn: replace(self, starts=self.starts or ((1, 1),)))
    patch.setattr(Journal, "_go_by_cluster", staticmethod(lambda cluster, recovered: None))
