"""The nodes of a lake: the brokers, or clusters of brokers, whose journals it has.

    LAKE/nodes      a table with one file for each node, of one row, so that the table's log has all values

A node has a name and a journal's id; each row of the lake has both. A cluster is one node here, because its brokers
have copies of one journal. A lake of an older release has one node, without a name until the next ingest.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from .delta_tables import create, extend, files_in, journal_in_description, open_table

TABLE = "nodes"
#: The most octets of a name. Names are read from the log, which leaves out long texts (parts.py, `WORD_MAX`).
NAME_MAX = 200


class Node(NamedTuple):
    """A node of a lake. `journal`: the journal's id; None: the lake has Spark's own logs, and one node."""

    name: str
    journal: str | None


def nodes_of(lake: str) -> list[Node]:
    """The nodes of a lake in the order of their names, at least one. A single one may have no name.

    Raises: ValueError (a damaged log), OSError.
    """
    delta = open_table(lake, TABLE)
    if delta is not None:
        # Two ingests at the same time, in an object store, may both have added a node.
        return sorted({Node(one["min.node"], one["min.journal"]) for one in files_in(delta)})
    events = open_table(lake, "events")
    return [Node("", None if events is None else journal_in_description(events))]


def first_node(lake: str) -> Node:
    """The node that was alone in the lake before others were added. Raises: ValueError, OSError."""
    nodes, events = nodes_of(lake), open_table(lake, "events")
    journal = None if events is None else journal_in_description(events)
    return next((one for one in nodes if one.journal == journal), nodes[0])


def add_node(lake: str, node: Node) -> None:
    """Add a node to a lake. Raises: ValueError, OSError."""
    from .parts import deleted_if_it_fails, part_from_rows  # pyarrow is slow to import, and only an ingest adds nodes

    row, delta = {"node": node.name, "journal": node.journal, "ts": datetime.now(UTC)}, open_table(lake, TABLE)
    with deleted_if_it_fails(lake) as parts:
        parts.append(part_from_rows(lake, TABLE, [row]))
        if delta is None:
            create(lake, TABLE, None, parts)
        else:
            extend(delta, lake, TABLE, parts)


def chosen_nodes(lake: str, names: Iterable[str]) -> list[Node]:
    """The nodes with these names; all if there are no names. Raises: ValueError (an unknown name), OSError."""
    nodes = nodes_of(lake)
    known = {one.name for one in nodes}
    for name in names:
        if name not in known:
            there = ", ".join(filter(None, sorted(known))) or "one, which has no name until the next ingest"
            raise ValueError(f"the lake knows no node {name!r}; it has {there}")
    return [one for one in nodes if not names or one.name in names]


def check_name(name: str) -> None:
    """Raises: ValueError (it cannot be the name of a node)."""
    if not name or len(name.encode()) > NAME_MAX or not name.isprintable() or "/" in name:
        raise ValueError(
            f"{name!r} is not a name for a node: at most {NAME_MAX} octets, without / and control characters"
        )
