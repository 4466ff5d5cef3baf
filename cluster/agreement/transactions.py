"""The transactions by which the cluster decides, each with the guards that make it safe.

A campaign, and each change of the set, writes `insync` and guards its revision: so of two such transactions with the
same revision at most one is ever done, however late it arrives.
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

    `term`: the last one of its term table. `level`: what all nodes that are there can read.
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
    """Shrink or grow the set, or raise the level of the journal, by its leader."""
    purpose = Purpose.SHRINK if insync.nodes - nodes else Purpose.GROW
    guards = ((LEADER, leader.revision), (INSYNC, insync.revision))
    changed = InSync(insync.term, nodes, max(agreed, insync.agreed), max(level, insync.level))
    return Transaction(purpose, guards, ((INSYNC, changed),))


def progress(leader: Leader, told: AgreedKey | None, agreed: int) -> Transaction:
    """Write the agreed LSN, which a journal must reach before its node campaigns. `told`: the value that it replaces.

    The guard of that value keeps a transaction that comes late from lowering what a later one wrote (rule R10).
    """
    guards = ((LEADER, leader.revision), (AGREED, told.revision if told else 0))
    return Transaction(Purpose.PROGRESS, guards, ((AGREED, AgreedKey(leader.term, agreed)),))


def hand_over(leader: Leader, to: bytes | None) -> Transaction:
    """Give up the lead, in favor of one node, or of whichever is first."""
    puts = ((PREFERRED, to),) if to is not None else ()
    return Transaction(Purpose.HAND_OVER, ((LEADER, leader.revision),), puts, (LEADER,))


def forget(leader: Leader, name: str) -> Transaction:
    """Delete the key of a node whose process is gone before its lease is over."""
    return Transaction(Purpose.FORGET, ((LEADER, leader.revision),), (), (NODE + name,))


def recover(view: View, node_id: bytes, highest_term: int, journal_id: bytes) -> Transaction:
    """Let an operator choose the node with the journal, when etcd lost its data or the set lost its last member.

    `highest_term`: of all that the nodes and etcd have seen. The other nodes will be cut to that one's journal, which
    may end below what was agreed: that is forgotten.
    """
    term = max(highest_term, view.insync.term if view.insync else 0) + 1
    level = view.insync.level if view.insync else LEVEL_MIN
    alone = InSync(term, frozenset({node_id}), agreed=0, level=level)
    return Transaction(Purpose.RECOVER, ((LEADER, 0),), ((JOURNAL, journal_id), (INSYNC, alone)), (AGREED,))
