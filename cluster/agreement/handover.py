"""A leader gives up in order: it stops reading, waits until its successor has everything, and deletes its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .context import NodeContext
from .decisions import HandoverRefused, Quiesce
from .timers import SECOND
from .transactions import hand_over
from .view import Purpose, View

if TYPE_CHECKING:
    from .leadership import Leadership

#: Nodes with a link for this time or longer count as equally settled: of them, the one with more of the journal leads.
SETTLED_NS = 30 * SECOND


def successor(leadership: Leadership, to: bytes | None) -> bytes | str:
    """The node that is to lead, or why there is none, in words: it must be in the set, answer, and be able to lead.

    A freshly started node is the last choice: it is still importing modules.
    """
    view = leadership.context.view
    if to is not None:
        return obstacle(leadership, view, to) or to
    others = leadership.insync.nodes & leadership.waited
    reasons = {one: obstacle(leadership, view, one) for one in others}
    able = [one for one in others if reasons[one] is None]
    if not able:
        return "; ".join(sorted(filter(None, reasons.values()))) or "no other node is in sync"
    now_ns = leadership.context.now_ns
    linked_ns = {one: min(now_ns - leadership.member(one).since_ns, SETTLED_NS) for one in able}
    return max(able, key=lambda one: (linked_ns[one], leadership.member(one).acked, one))


def obstacle(leadership: Leadership, view: View | None, node_id: bytes) -> str | None:
    """Why a node cannot be handed the lead, in words."""
    key = None if view is None else view.node_of(node_id)
    name = f"node {key.name}" if key is not None else "another node in sync"
    if node_id not in leadership.insync.nodes:
        return f"{name} is not in sync"
    if node_id in leadership.overdue:
        return f"{name} does not answer"
    if key is not None and key.is_drained:
        return f"{name} is drained"
    if key is not None and key.level < leadership.insync.level:
        return f"{name} cannot read the journal of a newer release"
    return None


class Handover:
    """One attempt. If the attempt fails, a node that stays leads on, not drained."""

    __slots__ = ("context", "deadline_ns", "drains", "end", "is_leaving", "to")

    def __init__(self, context: NodeContext, to: bytes | None, *, is_leaving: bool, drains: bool) -> None:
        self.context, self.to, self.is_leaving, self.drains = context, to, is_leaving, drains
        self.end: int | None = None  # of the journal, when nothing more will be written
        self.deadline_ns = context.now_ns + context.timers.ack_deadline_ns

    def review(self, leadership: Leadership) -> None:
        """Send the transaction when the successor has everything; give up at the deadline."""
        context = self.context
        if context.sent is not None and context.sent.purpose is Purpose.HAND_OVER:
            return
        if context.now_ns >= self.deadline_ns:
            self.fail(leadership, "the other node did not acknowledge everything in time")
        elif context.sent is None and self.end is not None and self._has_all(leadership, self.end):
            context.transact(hand_over(leadership.key, self.to))

    def _has_all(self, leadership: Leadership, end: int) -> bool:
        if self.context.end < end:
            return False
        return self.to is None or (leadership.agreed >= end and leadership.member(self.to).acked >= end)

    def fail(self, leadership: Leadership, why: str) -> None:
        """Lead on; a node that leaves resigns all the same."""
        if self.is_leaving:
            leadership.resign(f"this node stops, and {why}")
            return
        leadership.handover = None
        self.context.decide(HandoverRefused(why))
        leadership.go_on()

    def finish(self, leadership: Leadership) -> None:
        """`leader` is deleted, or will be: there is no way back."""
        view = self.context.view
        key = view.node_of(self.to) if view is not None and self.to is not None else None
        leadership.resign(f"handed over to {key.name}" if key is not None else "handed over")


def begin(leadership: Leadership, to: bytes | None, *, is_leaving: bool, drains: bool) -> None:
    """Stop reading, if there is a node to hand over to, or this one leaves in any case."""
    found = successor(leadership, to)
    if isinstance(found, str) and not is_leaving:
        leadership.context.decide(HandoverRefused(found))
        return
    chosen = None if isinstance(found, str) else found
    leadership.handover = Handover(leadership.context, chosen, is_leaving=is_leaving, drains=drains)
    leadership.context.decide(Quiesce())
