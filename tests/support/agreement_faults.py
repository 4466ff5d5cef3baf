"""Rules of the cluster that are switched off on purpose, to see that the exploration finds it. In the product, none is.

A fault replaces a method of the machine, or breaks a rule that the edge keeps (`Rules`). `scope` is a small world in
which it shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from agreement_explorer import Scope
from agreement_world import Rules

from leveret.cluster.agreement.context import NodeContext
from leveret.cluster.agreement.follower import Follower
from leveret.cluster.agreement.members import Member, Members
from leveret.cluster.agreement.view import NodeIdentity
from leveret.journal.format.terms import TermTable


@dataclass(frozen=True)
class Fault:
    """One rule that is not kept."""

    name: str
    says: str  # a part of what the broken invariant says
    scope: Scope
    rules: Rules = Rules()
    replaced: tuple[tuple[type, str, Any], ...] = ()

    @contextmanager
    def planted(self) -> Iterator[None]:
        """While this is on, the machine does it wrong."""
        with ExitStack() as stack:
            for owner, name, instead in self.replaced:
                stack.enter_context(patch.object(owner, name, instead))
            yield


def _awaited_but_the_overdue(members: Members) -> frozenset[bytes]:
    me = members.context.node.node_id
    all_awaited = (members.insync.nodes | members.possible | members.entering) - {me}
    now_ns, timers = members.context.now_ns, members.context.timers
    return frozenset(one for one in all_awaited if members.member(one).overdue_ns(timers) > now_ns)


def _awaited_as_etcd_said_last(members: Members) -> frozenset[bytes]:
    return members.insync_others


def _overdue(members: Members) -> frozenset[bytes]:
    now_ns, timers = members.context.now_ns, members.context.timers
    return frozenset(one for one in members.insync_others if members.member(one).overdue_ns(timers) <= now_ns)


def _common_end_by_length(table: TermTable, other: TermTable, end: int, other_end: int) -> int:
    return min(end, other_end)


def _always(value: Any) -> property:
    """An attribute that never changes, whatever is written to it."""
    return property(lambda owner: value, lambda owner, other: None)


ONE_TERM = Scope(terms=1, writes=1, crashes=0, breaks=1, changes=2)

FAULTS = (
    Fault(
        "shrink after the confirm",
        "is in the set with",
        ONE_TERM,
        replaced=(
            (Members, "awaited", property(_awaited_but_the_overdue)),
            (Members, "overdue", property(_overdue)),
        ),
    ),
    Fault(
        "grow early: not waited for from before the transaction",
        "is in the set with",
        ONE_TERM,
        replaced=((Members, "awaited", property(_awaited_as_etcd_said_last)),),
    ),
    Fault(
        "grow early: before it has everything",
        "is in the set with",
        ONE_TERM,
        replaced=(
            (Member, "check_pace", lambda *how: True),
            (Members, "has_everything", lambda members, one: True),
        ),
    ),
    Fault(
        "grow early: a new leader asks for what it knows to be agreed",
        "is in the set with",
        Scope(writes=1, crashes=0, breaks=0, changes=2),
        replaced=((Members, "inherited_lsn", _always(0)),),
    ),
    Fault(
        "acknowledge before fsync",
        "is in the set with",
        Scope(terms=1, writes=1, crashes=1, breaks=0, changes=0, tails=True),
        Rules(acknowledges_after_fsync=False),
    ),
    Fault(
        "acknowledge after campaigning",
        "were agreed",
        Scope(writes=2, crashes=0, breaks=0, changes=0),
        replaced=((Follower, "leave_leader", lambda follower: None),),
    ),
    Fault(
        "no term table",
        "",
        Scope(writes=2, crashes=1, breaks=0, changes=0),
        replaced=((TermTable, "common_end", _common_end_by_length),),
    ),
    Fault(
        "shrink below min-in-sync",
        "the set shrinks from",
        Scope(terms=1, writes=0, crashes=0, breaks=2, changes=2),
        replaced=((NodeIdentity, "min_in_sync", _always(1)),),
    ),
    Fault(
        "a term that is in no term table",
        "",
        Scope(writes=2, crashes=1, breaks=0, changes=0),
        Rules(notes_its_term=False),
    ),
    Fault("no cut", "goes on from", Scope(writes=1, crashes=1, breaks=0, changes=0), Rules(cuts=False)),
    Fault(
        "delete before agreed",
        "deleted what is before",
        Scope(writes=1, crashes=1, breaks=0, changes=0),
        Rules(deletes_what_is_agreed=False),
    ),
    Fault(
        "campaign from outside the set",
        "leads from outside the set",
        Scope(writes=0, crashes=0, breaks=0, changes=0, outside=1),
        replaced=((NodeContext, "is_member", _always(True)),),
    ),
    Fault(
        "a change in doubt counts as not done",
        "is in the set with",
        Scope(terms=1, writes=1, crashes=0, breaks=1, changes=2, losses=1),
        replaced=((Members, "possible", _always(frozenset())),),
    ),
)
