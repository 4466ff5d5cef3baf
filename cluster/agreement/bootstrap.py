"""How a cluster begins: which node writes the first in-sync set, when etcd has none."""

from .context import NodeContext
from .transactions import bootstrap
from .view import NodeKey, View


def choose_beginner(view: View, names: frozenset[str]) -> NodeKey | str:
    """The node that begins the cluster, or why none does yet, in words.

    All nodes that the configuration names must be registered: a node that comes later could have the records. A node
    with an empty directory begins only if no node has a journal. If several nodes have one, etcd lost its data, and an
    operator has to choose.
    """
    missing = sorted(name for name in names if view.node_named(name) is None)
    if missing:
        return f"the cluster has not begun: it needs all nodes, and waits for {', '.join(missing)}"
    with_journal = [one for one in view.nodes if one.journal is not None]
    if len(with_journal) > 1:
        with_journal.sort(key=lambda one: one.name)
        return f"{', '.join(one.name for one in with_journal)} have a journal each: see `leveret cluster recover`"
    candidates = with_journal or [one for one in view.nodes if one.name in names]
    return min(candidates, key=lambda one: one.name) if candidates else "no node is configured"


def begin(context: NodeContext, view: View) -> str | None:
    """Begin the cluster if this node has to. Returns why it does not; None: it does."""
    if view.journal is not None or view.insync is not None:
        return "the journal of the cluster has no set of nodes in sync: see `leveret cluster recover`"
    found = choose_beginner(view, context.node.names)
    if isinstance(found, str):
        return found
    if found.node_id != context.node.node_id:
        return f"the cluster has not begun: node {found.name} will begin it"
    if context.sent is None:
        journal_id = context.journal_id or context.node.new_journal_id
        level = min(one.level for one in view.nodes)
        context.transact(bootstrap(context.node, journal_id, context.terms.last_term, level))
    return None
