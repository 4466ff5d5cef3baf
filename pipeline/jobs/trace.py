"""The job `trace`: the events of one message and its copies, on one broker and from broker to broker.

A shovel, a federation link or a bridge publishes messages of one broker on another one. If it keeps the property
message-id, that connects the two messages. A replay gives one to each message that has none; the lake's log of replays
lists these. The property message-id is in a lake only with contents.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..engines.protocol import Engine, rows
from ..lake.nodes import Node
from .outputs import TRACE, conform
from .tables import COPIES, EmptyLake, NotRecorded, Tables

#: The most generations of copies that are followed, since dead letters may loop.
GENERATIONS_MAX = 100
#: The most messages with one id or header that are traced.
FOUND_MAX = 1000


def find_messages(tables: Tables, message: str) -> list[int]:
    """The messages that a text names: by the broker's id (digits), correlation-id, message-id, or header (NAME=VALUE).

    All of these are tried, because a property may be digits or contain "=". In a lake without contents only the
    broker's id is. Raises: NotRecorded (the text is no such id, and there are no contents), ValueError (unusable text).
    """
    engine, dialect = tables.engine, tables.engine.dialect
    found: set[int] = set()
    if message.isascii() and message.isdecimal() and len(message) < 19:
        if rows(engine, f"SELECT lsn FROM events WHERE msg_id = {int(message)} AND msg_id > 0 LIMIT 1"):
            found.add(int(message))
        if not tables.has_contents():
            return sorted(found)
    tables.require_contents("a search by header or correlation id")
    wanted = dialect.text(message)
    tests = [f"{dialect.json_field('properties_json', name)} = {wanted}" for name in ("correlation_id", "message_id")]
    name, equals, value = message.partition("=")
    if equals:
        tests.append(f"{dialect.json_field('headers_json', name)} = {dialect.text(value)}")
    sought = f"SELECT DISTINCT msg_id FROM payloads WHERE {' OR '.join(tests)} ORDER BY msg_id LIMIT {FOUND_MAX}"
    return sorted(found | {row["msg_id"] for row in rows(engine, sought)})


def with_copies(tables: Tables, ids: list[int]) -> dict[int, int]:
    """Add all originals and copies to messages. Returns: id -> id of the original (0: none)."""
    known = dict.fromkeys(ids, 0)
    new = list(ids)
    for _ in range(GENERATIONS_MAX):
        if not new:
            break
        wanted = ", ".join(map(str, new))
        found = rows(
            tables.engine,
            f"SELECT * FROM ({COPIES}) AS copies WHERE copy_id IN ({wanted}) OR cause_id IN ({wanted})",
        )
        before = set(known)
        for row in found:
            known[row["copy_id"]] = row["cause_id"]
            known.setdefault(row["cause_id"], 0)
        new = [id_ for id_ in known if id_ not in before]
    return known


def trace(tables: Tables, message: str) -> str:
    """SQL of `TRACE` for the messages that a text names; it may have no rows. Raises: NotRecorded, ValueError."""
    return trace_messages(tables, with_copies(tables, find_messages(tables, message)))


def trace_messages(tables: Tables, causes: Mapping[int, int]) -> str:
    """SQL of `TRACE` for messages. `causes`: as `with_copies` returns them."""
    cases = " ".join(f"WHEN {id_} THEN {cause}" for id_, cause in causes.items() if cause)
    cause = f"CASE msg_id {cases} END" if cases else "NULL"
    among = f"msg_id IN ({', '.join(map(str, causes))})" if causes else "false"
    listed = ", ".join(f"{cause} AS cause_id" if one.name == "cause_id" else one.name for one in TRACE)
    return conform(tables.engine.dialect, f"SELECT {listed} FROM events WHERE {among}", TRACE)


#: The most brokers in a row. In a ring of brokers the search ends when no id is new.
HOPS_MAX = 100
#: SQL: the property message-id, by which other nodes may know a message.
MESSAGE_IDS = "SELECT msg_id, {message_id} AS message_id FROM payloads WHERE msg_id IN ({ids})"
WITH_MESSAGE_IDS = "SELECT DISTINCT msg_id FROM payloads WHERE {message_id} IN ({names}) ORDER BY msg_id LIMIT {most}"
Causes = dict[int, int]


class Trail:
    """Follows messages from node to node.

    open_node: opens the tables of a node, which replace those of another one. log: replays, as (node, id of the replay,
    message). unanswered: nodes that could not be searched, and why.
    """

    def __init__(
        self, nodes: Sequence[Node], open_node: Callable[[Node], Tables], log: Iterable[tuple[str, str, int]]
    ) -> None:
        self._nodes = nodes
        self._open = open_node
        self.unanswered: dict[str, NotRecorded | EmptyLake] = {}
        self._replays: dict[str, list[tuple[int, str]]] = {}
        self._replayed: dict[str, dict[str, int]] = {}
        for node, replay_id, msg_id in sorted(set(log)):
            name = f"{replay_id}-{msg_id}"
            self._replays.setdefault(node, []).append((msg_id, name))
            self._replayed.setdefault(node, {})[name] = msg_id

    def follow(self, message: str, begin: Sequence[Node]) -> dict[str, Causes]:
        """Search for a message and follow it. Returns: node -> its messages, as `with_copies` returns them.

        Args:   message: as for `trace`. begin: the nodes that are searched for it.
        Raises: NotRecorded, EmptyLake (no node could be searched), ValueError.
        """
        found: dict[str, Causes] = {}
        names: set[str] = set()
        for node in begin:
            try:
                tables = self._open(node)
                names |= self._add(tables, node, find_messages(tables, message), found)
            except (NotRecorded, EmptyLake) as error:
                self.unanswered[node.name] = error
        if len(self.unanswered) == len(begin):
            raise self.unanswered[begin[0].name]
        known: set[str] = set()
        for _ in range(HOPS_MAX):
            new = sorted(names - known)
            if not new:
                break
            known |= names
            for node in self._nodes:
                try:
                    tables = self._open(node)
                    names |= self._add(tables, node, self._messages_with_ids(tables, node, new), found)
                except (NotRecorded, EmptyLake) as error:
                    self.unanswered[node.name] = error
        return found

    def _messages_with_ids(self, tables: Tables, node: Node, names: Sequence[str]) -> list[int]:
        """The messages of a node that have one of these values of message-id, or were replayed with one."""
        dialect = tables.engine.dialect
        texts = ", ".join(map(dialect.text, names))
        text = WITH_MESSAGE_IDS.format(
            message_id=dialect.json_field("properties_json", "message_id"), names=texts, most=FOUND_MAX
        )
        replayed = self._replayed.get(node.name, {})
        return [row["msg_id"] for row in rows(tables.engine, text)] + [
            replayed[one] for one in names if one in replayed
        ]

    def _add(self, tables: Tables, node: Node, ids: Sequence[int], found: dict[str, Causes]) -> set[str]:
        """Add messages of a node to `found`, with originals and copies. Returns their values of message-id."""
        own = found.setdefault(node.name, {})
        new = [one for one in ids if one not in own]
        if not new:
            return set()
        own |= with_copies(tables, new)
        message_id = tables.engine.dialect.json_field("properties_json", "message_id")
        query = MESSAGE_IDS.format(message_id=message_id, ids=", ".join(map(str, own)))
        names = {row["message_id"] for row in rows(tables.engine, query) if row["message_id"]}
        return names | {name for msg_id, name in self._replays.get(node.name, ()) if msg_id in own}


def replays_in(engine: Engine, log: str, first: Node) -> list[tuple[str, str, int]]:
    """The replays for a `Trail`. Rows without a node are of the node `first`: the lake had only that one then."""
    return [
        (row["node"] or first.name, row["replay_id"], row["msg_id"])
        for row in rows(engine, f"SELECT DISTINCT node, replay_id, msg_id FROM {log}")
    ]
