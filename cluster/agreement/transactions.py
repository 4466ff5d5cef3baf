"""The transactions by which the cluster decides, each with the guards that make it safe.

A campaign, and each change of the set by a leader, writes the key `insync` and guards its revision. So of two such
transactions that guard the same revision at most one is ever done, however late they arrive. `recover`, which an
operator orders, writes the key and guards only that nobody leads.
"""

from ...journal.format.needs import LEVEL_MIN
from .view import (
    AGREED,
    INSYNC,
    JOURNAL,
    LEADER,
    NODE,
    PREFERRED,
    AgreedKey,
    InSync,
    Leader,
    NodeIdentity,
    Purpose,
    Transaction,
    View,
)


def bootstrap(node: NodeIdentity, journal_id: bytes, term: int, level: int) -> Transaction:
    """Begin a cluster, with this node alone in sync.

    `term`: the last one of this node's term table. `level`: the highest that all registered nodes can read.
    """
    first = InSync(term, frozenset({node.node_id}), agreed=0, level=level)
    return Transaction(Purpose.BOOTSTRAP, ((JOURNAL, 0), (INSYNC, 0)), ((JOURNAL, journal_id), (INSYNC, first)))


def campaign(node: NodeIdentity, insync: InSync, replaced: Leader | None) -> Transaction:
    """Become the leader of the next term. `replaced`: the leader whose process is gone; None: there is no leader.

    The guard of `insync` proves that this node is in the set when the transaction is done: rule R2.
    """
    term = insync.term + 1
    leader = Leader(term, node.node_id, node.name, node.link)
    same_set = InSync(term, insync.nodes, insync.agreed, insync.level)
    guards = ((LEADER, replaced.revision if replaced else 0), (INSYNC, insync.revision))
    return Transaction(Purpose.CAMPAIGN, guards, ((LEADER, leader), (INSYNC, same_set)))


def change(leader: Leader, insync: InSync, nodes: frozenset[bytes], agreed: int, level: int) -> Transaction:
    """Shrink or grow the set, or raise the level of the journal; by the leader.

    Its purpose is GROW also where the set stays as it is.
    """
    purpose = Purpose.SHRINK if insync.nodes - nodes else Purpose.GROW
    guards = ((LEADER, leader.revision), (INSYNC, insync.revision))
    changed = InSync(insync.term, nodes, max(agreed, insync.agreed), max(level, insync.level))
    return Transaction(purpose, guards, ((INSYNC, changed),))


def progress(leader: Leader, written: AgreedKey | None, agreed: int) -> Transaction:
    """Write the agreed LSN, which a journal must reach before its node campaigns. `written`: the value to replace.

    `written` is guarded, so that a transaction that arrives late cannot lower what a later one wrote (rule R10).
    """
    guards = ((LEADER, leader.revision), (AGREED, written.revision if written else 0))
    return Transaction(Purpose.PROGRESS, guards, ((AGREED, AgreedKey(leader.term, agreed)),))


def hand_over(leader: Leader, to: bytes | None) -> Transaction:
    """Give up the lead. `to`: the node that shall campaign first; None: any."""
    puts = ((PREFERRED, to),) if to is not None else ()
    return Transaction(Purpose.HAND_OVER, ((LEADER, leader.revision),), puts, (LEADER,))


def forget(leader: Leader, name: str) -> Transaction:
    """Delete the key of a node whose process is gone, without waiting for the end of its lease."""
    return Transaction(Purpose.FORGET, ((LEADER, leader.revision),), (), (NODE + name,))


def recover(view: View, node_id: bytes, highest_term: int, journal_id: bytes) -> Transaction:
    """Begin the cluster again with the journal of one node, which an operator chose.

    This is for an etcd that lost its data, or a set that lost its last node. `highest_term`: of all that the nodes and
    etcd have seen. The other nodes' journals will be cut to this one, even if it ends below what was agreed.
    """
    term = max(highest_term, view.insync.term if view.insync else 0) + 1
    level = view.insync.level if view.insync else LEVEL_MIN
    alone = InSync(term, frozenset({node_id}), agreed=0, level=level)
    return Transaction(Purpose.RECOVER, ((LEADER, 0),), ((JOURNAL, journal_id), (INSYNC, alone)), (AGREED,))
