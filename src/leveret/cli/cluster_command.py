"""`leveret cluster etcd` sets up an etcd for a cluster; `recover` begins a cluster again after etcd lost its data."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..settings import Configuration
from ..settings.declared.cluster import nodes_of
from ..settings.faults import in_order
from ..settings.printable import printable
from .configuration_files import load, print_faults

if TYPE_CHECKING:
    from ..cluster.agreement.view import Transaction, View
    from ..cluster.coordinator.etcd import EtcdCoordinator

EXIT_OK, EXIT_FAILED = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    etcd = actions.add_parser("etcd", help="write units and configuration of the etcd that [cluster] names")
    etcd.add_argument("file", metavar="FILE", help="a node's configuration")
    etcd.add_argument("directory", metavar="DIR", help="where to write: a folder for each member")
    etcd.set_defaults(action=_etcd)
    recover = actions.add_parser("recover", help="list what each node has; begin the cluster again with one of them")
    recover.add_argument("file", metavar="FILE", help="a node's configuration")
    recover.add_argument("node", metavar="NODE", nargs="?", help="the node whose journal all others will copy")
    recover.add_argument("--yes", action="store_true", help="do not ask")
    recover.set_defaults(action=_recover)


def run(options: argparse.Namespace) -> int:
    configuration, faults = load([options.file])
    if not faults and not configuration.is_clustered:
        faults = [f"{options.file}: [cluster] is missing: this is not a node of a cluster"]
    if faults:
        return print_faults(in_order(faults, [options.file]))
    return int(options.action(options, configuration))


# -- etcd -------------------------------------------------------------------------------------------------------------


def _etcd(options: argparse.Namespace, configuration: Configuration) -> int:
    from .etcd_files import check_version, members_of, write_files

    try:
        members = members_of(configuration.cluster.etcd, nodes_of(configuration.cluster))
        written = write_files(Path(options.directory), configuration.cluster.name, members)
    except (ValueError, OSError) as error:
        print(printable(f"leveret cluster: {error}"), file=sys.stderr)
        return EXIT_FAILED
    print("\n".join(printable(str(file)) for file in written))
    is_usable, text = check_version()
    print(text)
    return EXIT_OK if is_usable else EXIT_FAILED


# -- recover ----------------------------------------------------------------------------------------------------------


def _recover(options: argparse.Namespace, configuration: Configuration) -> int:
    """List the nodes; with NODE, begin the cluster with that one."""
    from ..cluster.coordinator.errors import CoordinatorError, InDoubt
    from ..cluster.coordinator.etcd import EtcdCoordinator
    from ..serving.cluster_files import load_cluster

    files, faults, warnings = load_cluster(configuration)
    print("".join(f"warning: {printable(line)}\n" for line in warnings), end="", file=sys.stderr)
    if files is None:
        return print_faults(faults)
    coordinator = EtcdCoordinator(files.etcd, configuration.cluster.name)
    names = [node.name for node in nodes_of(configuration.cluster)]
    try:
        return _Recovery(coordinator, names).run(options.node, is_sure=options.yes)
    except InDoubt as error:
        print(f"leveret cluster: {error}: it may have been done; run it again to see", file=sys.stderr)
    except CoordinatorError as error:
        print(f"leveret cluster: {error}", file=sys.stderr)
    return EXIT_FAILED


class _Recovery:
    """Shows the contents of etcd, and begins the cluster with the node that the operator chooses."""

    def __init__(self, coordinator: "EtcdCoordinator", names: Sequence[str]) -> None:
        self._coordinator, self._names = coordinator, names

    def run(self, node: str | None, *, is_sure: bool) -> int:
        """List the nodes; with a node, begin the cluster with it. Returns the exit code. Raises: CoordinatorError."""
        import trio

        view = trio.run(self._coordinator.read)
        print("\n".join(map(printable, self._report(view))))
        if node is None:
            return EXIT_OK
        why = self._why_not(view, node)
        if why:
            print(f"leveret cluster: {why}", file=sys.stderr)
            return EXIT_FAILED
        if not is_sure and not self._is_confirmed(view, node):
            print("nothing was changed")
            return EXIT_FAILED
        is_done, _ = trio.run(self._coordinator.transact, self._transaction(view, node))
        print(f"{node} begins the cluster" if is_done else "nothing was changed: meanwhile a node leads")
        return EXIT_OK if is_done else EXIT_FAILED

    def _report(self, view: "View") -> Iterator[str]:
        members = frozenset() if view.insync is None else view.insync.nodes
        yield f"leader: {view.leader.name}, term {view.leader.term}" if view.leader else "leader: none"
        if view.insync is None:
            yield "in sync: etcd knows of none"
        else:
            known = [one.name for one in view.nodes if one.node_id in members]
            absent = len(members) - len(known)
            yield f"in sync: {', '.join([*known, f'{absent} unknown'] if absent else known)}"
        if view.agreed is not None:
            yield f"agreed: {view.agreed.lsn}, in term {view.agreed.term}"
        for name in self._names:
            one = view.node_named(name)
            if one is None:
                yield f"node {name}: absent"
            elif one.journal is None:
                yield f"node {name}: its directory is empty (id {one.node_id.hex()})"
            else:
                where = f"term {one.term}, end {one.end}, journal {one.journal.hex()}"
                yield f"node {name}: {where} (id {one.node_id.hex()})"
        with_journal = [one for one in view.nodes if one.journal is not None]
        if view.leader is None and with_journal:
            most = max(with_journal, key=lambda one: (one.term, one.end))
            yield f"{most.name} has the most: the highest term, and in it the highest end"

    def _why_not(self, view: "View", node: str) -> str:
        key = view.node_named(node)
        if view.leader is not None:
            return f"{view.leader.name} leads: there is nothing to recover"
        if key is None:
            return f"node {node} is absent: start it, and it waits for a leader"
        if key.journal is None:
            return f"the directory of node {node} is empty: all others would become empty"
        return ""

    def _is_confirmed(self, view: "View", node: str) -> bool:
        missing = [name for name in self._names if view.node_named(name) is None]
        if missing:
            print(f"absent: {', '.join(missing)}. What only they have is lost.")
        print(f"All other nodes will copy the journal of {node}; what they have beyond it is cut.")
        ask = f"Type the node's name ({node}) to begin with it, anything else changes nothing:\n"
        try:
            return input(ask).strip() == node
        except EOFError:  # standard input is closed, or was ended by Ctrl-D
            return False

    def _transaction(self, view: "View", node: str) -> "Transaction":
        from ..cluster.agreement.transactions import recover

        key = view.node_named(node)
        assert key is not None and key.journal is not None
        terms = [one.term for one in view.nodes] + ([view.agreed.term] if view.agreed else [])
        return recover(view, key.node_id, max(terms), key.journal)
