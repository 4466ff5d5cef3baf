"""A message's way from broker to broker: the same message id on the other, or the mark of a replay.

A shovel, a federation link or a bridge publishes on the next broker what it took from this one; if it keeps the message
id, that tells which it was. A replay gives a message without an id one of its own, which the lake's log of replays
tells. Ids of programs are in a lake only with contents.
"""

from collections.abc import Callable, Iterable, Sequence

from ..engines.protocol import Engine, rows
from ..lake.nodes import Node
from .tables import EmptyLake, NotRecorded, Tables
from .trace import FOUND_MAX, family, ids_of

#: Brokers in a row that are looked at; a ring of them ends by itself.
HOPS_MAX = 100
#: The texts of messages by which other nodes may know them.
NAMES = "SELECT msg_id, {message_id} AS message_id FROM payloads WHERE msg_id IN ({ids})"
SOUGHT = "SELECT DISTINCT msg_id FROM payloads WHERE {message_id} IN ({names}) ORDER BY msg_id LIMIT {most}"
Causes = dict[int, int]


class Trail:
    """`open_node`: makes the tables of a node, in place of those of another. `log`: rows of the lake's log of replays:
    (node, id of the replay, message). `untold`: nodes that cannot tell where the message went, and why."""

    def __init__(
        self, nodes: Sequence[Node], open_node: Callable[[Node], Tables], log: Iterable[tuple[str, str, int]]
    ) -> None:
        self._nodes = nodes
        self._open = open_node
        self.untold: dict[str, NotRecorded | EmptyLake] = {}
        self._replays: dict[str, list[tuple[int, str]]] = {}
        self._replayed: dict[str, dict[str, int]] = {}
        for node, replay_id, msg_id in sorted(set(log)):
            name = f"{replay_id}-{msg_id}"
            self._replays.setdefault(node, []).append((msg_id, name))
            self._replayed.setdefault(node, {})[name] = msg_id

    def follow(self, message: str, begin: Sequence[Node]) -> dict[str, Causes]:
        """Node -> its messages of this trail, each with the id of the message that it is a copy of (0: of none).

        Args:   message: as for `trace`. begin: the nodes where it is looked for first.
        Raises: NotRecorded, EmptyLake (no node could look for it), ValueError.
        """
        found: dict[str, Causes] = {}
        names: set[str] = set()
        for node in begin:
            try:
                tables = self._open(node)
                names |= self._take(tables, node, ids_of(tables, message), found)
            except (NotRecorded, EmptyLake) as error:
                self.untold[node.name] = error
        if len(self.untold) == len(begin):
            raise self.untold[begin[0].name]
        known: set[str] = set()
        for _ in range(HOPS_MAX):
            new = sorted(names - known)
            if not new:
                break
            known |= names
            for node in self._nodes:
                try:
                    tables = self._open(node)
                    names |= self._take(tables, node, self._called(tables, node, new), found)
                except (NotRecorded, EmptyLake) as error:
                    self.untold[node.name] = error
        return found

    def _called(self, tables: Tables, node: Node, names: Sequence[str]) -> list[int]:
        """The messages of a node that have one of these ids, or were replayed by it."""
        dialect = tables.engine.dialect
        texts = ", ".join(map(dialect.text, names))
        text = SOUGHT.format(message_id=dialect.member("properties_json", "message_id"), names=texts, most=FOUND_MAX)
        replayed = self._replayed.get(node.name, {})
        return [row["msg_id"] for row in rows(tables.engine, text)] + [
            replayed[one] for one in names if one in replayed
        ]

    def _take(self, tables: Tables, node: Node, ids: Sequence[int], found: dict[str, Causes]) -> set[str]:
        """Add messages of a node with their originals and copies. Returns the names by which others may know them."""
        own = found.setdefault(node.name, {})
        new = [one for one in ids if one not in own]
        if not new:
            return set()
        own |= family(tables, new)
        message_id = tables.engine.dialect.member("properties_json", "message_id")
        asked = NAMES.format(message_id=message_id, ids=", ".join(map(str, own)))
        names = {row["message_id"] for row in rows(tables.engine, asked) if row["message_id"]}
        return names | {name for msg_id, name in self._replays.get(node.name, ()) if msg_id in own}


def replays_in(engine: Engine, log: str, nodes: Sequence[Node]) -> list[tuple[str, str, int]]:
    """The log for a trail. Rows without a node are of the lake's only one of then: the first that was replayed from."""
    only = nodes[0].name
    return [
        (row["node"] or only, row["replay_id"], row["msg_id"])
        for row in rows(engine, f"SELECT DISTINCT node, replay_id, msg_id FROM {log}")
    ]
