"""Faults that are planted into the product: a world must find each of them. Each takes pytest's `MonkeyPatch`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from leveret.cluster.agreement import candidate, leadership
from leveret.cluster.agreement.context import NodeContext
from leveret.cluster.agreement.follower import Follower
from leveret.cluster.agreement.members import Member, Members
from leveret.cluster.leading import Leading
from leveret.engine import declared_queues, sites
from leveret.engine.leases import by_site
from leveret.engine.leases.ending import LeasedSettlement
from leveret.engine.leases.kind import LEASED
from leveret.engine.leases.owners import Owners
from leveret.engine.leases.state import Leases
from leveret.engine.scopes import Scopes
from leveret.journal.appending.journal import Journal
from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.journal.disk import segment_scan
from leveret.journal.disk.segment_file import SegmentFile
from leveret.journal.format.block import HEADER, HEADER_SIZE, MAGIC, Block, Header
from leveret.journal.format.terms import TermTable
from leveret.journal.recording.recorder import AgreedDeliveries
from leveret.journal.recovery.replay import Replay

from .node_broker import NodeBroker

#: What the book of the rule says.
FOUND_BY = {
    "confirms_by_durable": r"ends at \d+; \d+ is confirmed|is seen before it is agreed",
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
    "rotten_octets_are_served": r"is not as it was published|can't decode",
    "deliveries_do_not_wait": r"is seen before it is agreed",
    "a_takeover_counts_as_a_start": r"comes again without a flag",
    "an_owner_is_forgotten_at_transfer": r"and goes to|it is \w+'s|is still there|wait at home",
    "a_transfer_is_not_recorded": r"belongs to \w+ after a takeover",
    "stranded_for_ever": r"could take it|does not deliver",
    "given_up_at_once": r"is given up",
    "backlogs_are_of_all_nodes": r"could take it",
    "a_backlog_has_no_end": r"leases at \w+, of \d+",
    "scopes_are_ignored_in_capture": r"captured \d+, which was published at",
    "scopes_are_ignored_at_declare": r"is in no scope of the world|sees \S+ as",
    "leases_of_a_lost_site_go_on": r"is leased at \w+, which is gone",
    "transfers_do_not_wait": r"leaves \w+ too early|where c could take it",
}
#: Faults of queues with owners: worlds that have them are looked at.
OF_SITES = tuple(FOUND_BY)[-10:]
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
        self.members.insync = replace(self.members.insync, nodes=nodes)

    patch.setattr(leadership.Leadership, "_send_change", shrink)


@planted
def grows_early(patch: pytest.MonkeyPatch) -> None:
    """A follower enters the set before it has what is agreed."""
    patch.setattr(Members, "has_everything", lambda self, node_id: True)
    patch.setattr(Member, "check_pace", lambda self, *_: True)


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
def rotten_octets_are_served(patch: pytest.MonkeyPatch) -> None:
    """Blocks that are read again are taken as they are."""

    def take(data: memoryview, position: int, offset: int) -> Block | None:
        if position + HEADER_SIZE > len(data):
            return None
        header = Header._make(HEADER.unpack_from(data, position))
        end = position + header.size
        is_whole = header.magic == MAGIC and header.size >= HEADER_SIZE and end <= len(data)
        return Block(offset, header, data[position:end]) if is_whole else None

    patch.setattr(segment_scan, "read_block", take)


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
    patch.setattr(Journal, "_apply_cluster", staticmethod(lambda cluster, recovered: None))


# -- owners -----------------------------------------------------------------------------------------------------------


@planted
def an_owner_is_forgotten_at_transfer(patch: pytest.MonkeyPatch) -> None:
    """A message that is given back belongs to the site before."""
    patch.setattr(Owners, "move", lambda self, ids, number: None)


@planted
def a_transfer_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """The next leader does not know of it."""
    patch.setattr(Replay, "_transferred", lambda self, fields, lsn, block: None)
    patch.setattr(Owners, "moved_octets", lambda self: b"")


@planted
def stranded_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Messages of a site that is gone wait for it."""

    def taken(leases: Any, owners: Any, number: int) -> bool:
        return owners.name_of(number) not in leases.queue.context.broker.sites.groups

    foreign, transfers = by_site._foreign_groups, by_site._transfers

    def some(leases: Any, groups: Any, owners: Any, free: Any) -> Any:
        found, waits = foreign(leases, groups, owners, free)
        kept = {site: {one: who for one, who in here.items() if not taken(leases, owners, one.expression.number)}
                for site, here in found.items()}  # fmt: skip
        return {site: here for site, here in kept.items() if here}, waits

    def none(leases: Any, owners: Any, free: Any, by_number: Any) -> Any:
        lost = [number for number in by_number if taken(leases, owners, number)]
        return [] if lost else transfers(leases, owners, free, by_number)

    patch.setattr(by_site, "_foreign_groups", some)
    patch.setattr(by_site, "_transfers", none)


@planted
def given_up_at_once(patch: pytest.MonkeyPatch) -> None:
    """A site that is gone for a moment is lost."""
    patch.setattr(sites, "GIVEN_UP_MS", 0)


@planted
def backlogs_are_of_all_nodes(patch: pytest.MonkeyPatch) -> None:
    """MaxBacklog counts the leases of all sites."""
    patch.setattr(Leases, "_leased_at", lambda self, site: len(self.book))


@planted
def a_backlog_has_no_end(patch: pytest.MonkeyPatch) -> None:
    """MaxBacklog counts no leases of a site."""
    patch.setattr(Leases, "_leased_at", lambda self, site: 0)


@planted
def scopes_are_ignored_in_capture(patch: pytest.MonkeyPatch) -> None:
    """Whoever publishes, each queue of the topic gets it."""
    patch.setattr(Scopes, "has", lambda self, queue, site: True)


@planted
def scopes_are_ignored_at_declare(patch: pytest.MonkeyPatch) -> None:
    """A LocalQueue is the same for all nodes."""
    unscoped = replace(LEASED, scoped=lambda context, name, arguments, site: (name, arguments))
    kind_of = declared_queues.kind_of_type
    patch.setattr(declared_queues, "kind_of_type", lambda name: unscoped if kind_of(name) is LEASED else kind_of(name))


@planted
def leases_of_a_lost_site_go_on(patch: pytest.MonkeyPatch) -> None:
    """Until its connections end."""
    patch.setattr(LeasedSettlement, "site_went", lambda self, site: self.sites_changed())


@planted
def transfers_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    """A message goes elsewhere as soon as its own site is busy."""
    patch.setattr(by_site, "_skips_wait", lambda leases, owners, number: True)
