"""Handing over the lead: the leader stops reading, waits until its successor has everything, and deletes its key."""

from dataclasses import dataclass

from .members import Members
from .timers import SECOND
from .view import View

#: Between nodes that have been linked for at least this time, the one with more of the journal is chosen.
SETTLED_NS = 30 * SECOND


@dataclass(slots=True)
class Handover:
    """One attempt of a leader to hand over. If it fails, the leader keeps the lead, unless it is leaving.

    to: the successor; None: there is none, and the leader is leaving. drains: the leader is drained when it resigns.
    attempt: its number in this leadership, from 1.
    """

    to: bytes | None
    is_leaving: bool
    drains: bool
    deadline_ns: int
    attempt: int
    end: int | None = None  # of the journal, when nothing more will be written

    def is_ready(self, members: Members) -> bool:
        """Whether this node and its successor have fsynced everything."""
        if self.end is None or members.context.end < self.end:
            return False
        return self.to is None or (members.agreed >= self.end and members.member(self.to).acked_lsn >= self.end)


def successor(members: Members, to: bytes | None) -> bytes | str:
    """The node that is to lead, or why there is none, in words. The node must be in sync, answer, and be able to lead.

    `to`: the only candidate; None: all other nodes are candidates. A node that has just started is the last choice: it
    still imports modules.
    """
    view = members.context.view
    if to is not None:
        return obstacle(members, view, to) or to
    reasons = {one: obstacle(members, view, one) for one in members.insync_others}
    able = [one for one, reason in reasons.items() if reason is None]
    if not able:
        return "; ".join(sorted(filter(None, reasons.values()))) or "no other node is in sync"
    now_ns = members.context.now_ns
    linked_ns = {one: min(now_ns - members.member(one).since_ns, SETTLED_NS) for one in able}
    return max(able, key=lambda one: (linked_ns[one], members.member(one).acked_lsn, one))


def obstacle(members: Members, view: View | None, node_id: bytes) -> str | None:
    """Why a node cannot be handed the lead, in words; None: it can."""
    key = None if view is None else view.node_with_id(node_id)
    name = f"node {key.name}" if key is not None else "another node in sync"
    if node_id not in members.insync.nodes:
        return f"{name} is not in sync"
    if node_id in members.overdue:
        return f"{name} does not answer"
    if key is not None and key.is_drained:
        return f"{name} is drained"
    if key is not None and key.level < members.insync.level:
        return f"{name} cannot read the journal of a newer release"
    return None
