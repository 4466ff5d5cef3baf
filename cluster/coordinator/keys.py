"""The form of a cluster's keys in etcd: /leveret/NAME/0/KEY, with JSON as values. 0 is the number of the group.

Unknown fields are ignored, so that newer releases may add some. An unknown key, or a value that cannot be read, is an
error: another program writes there.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..agreement.view import (
    AGREED,
    INSYNC,
    JOURNAL,
    LEADER,
    NODE,
    PREFERRED,
    AgreedKey,
    InSync,
    Leader,
    NodeKey,
    Transaction,
    Value,
    View,
)
from .gateway import Json, octets64

Found = TypeVar("Found")


class NotOurs(Exception):
    """A key or a value that no node of a cluster wrote."""


class Keys:
    """Writes requests for the keys of one cluster, and reads answers."""

    def __init__(self, name: str) -> None:
        self.prefix = f"/leveret/{name}/0/"
        first = self.prefix.encode()
        #: The fields of a request that read or watch all keys.
        self.range: Json = {"key": octets64(first), "range_end": octets64(first[:-1] + bytes([first[-1] + 1]))}

    def request(self, transaction: Transaction, leases: Mapping[str, str]) -> Json:
        """etcd's request for a transaction. The answer has all keys after it. `leases`: key -> id of its lease."""
        puts = [self._put(key, encoded(value), leases.get(key)) for key, value in transaction.puts]
        deletes = [{"request_delete_range": {"key": self._key(key)}} for key in transaction.deletes]
        return self._transaction(
            [self._guard(key, revision) for key, revision in transaction.guards], [*puts, *deletes]
        )

    def registration(self, node: NodeKey, lease: str, revision: int) -> Json:
        """The request that writes a node's own key if that still has this revision; 0: if it is absent."""
        key = NODE + node.name
        return self._transaction([self._guard(key, revision)], [self._put(key, encoded(node), lease)])

    def view(self, revision: int, pairs: Iterable[Json]) -> View:
        """The view that an answer shows. `revision`, `pairs`: from the answer. Raises: NotOurs."""
        found: dict[str, Any] = {}
        nodes = []
        for pair in pairs:
            key = b64decode(pair["key"]).decode(errors="replace").removeprefix(self.prefix)
            try:
                if key.startswith(NODE):
                    nodes.append(_node(key.removeprefix(NODE), _Fields(b64decode(pair.get("value", "")))))
                else:
                    read = _READERS[key]
                    found[key] = read(_Fields(b64decode(pair.get("value", ""))), int(pair["mod_revision"]))
            except KeyError:
                raise NotOurs(f"etcd has the key {self.prefix}{key}, which no cluster of ours writes") from None
            except NotOurs as error:
                raise NotOurs(f"etcd's key {self.prefix}{key} {error}") from None
        nodes.sort(key=lambda node: node.name)
        return View(revision, nodes=tuple(nodes), **found)

    def node_revision(self, name: str, pairs: Iterable[Json]) -> int:
        """mod_revision of a node's key; 0: absent."""
        key = self._key(NODE + name)
        return next((int(pair["mod_revision"]) for pair in pairs if pair["key"] == key), 0)

    def _transaction(self, guards: list[Json], changes: list[Json]) -> Json:
        everything = {"request_range": self.range}
        return {"compare": guards, "success": [*changes, everything], "failure": [everything]}

    def _guard(self, key: str, revision: int) -> Json:
        field = ("MOD", "mod_revision") if revision else ("CREATE", "create_revision")
        return {"key": self._key(key), "target": field[0], "result": "EQUAL", field[1]: str(revision)}

    def _put(self, key: str, value: bytes, lease: str | None) -> Json:
        fields = {"key": self._key(key), "value": octets64(value)}
        return {"request_put": fields if lease is None else {**fields, "lease": lease}}

    def _key(self, key: str) -> str:
        return octets64((self.prefix + key).encode())


def encoded(value: Value | NodeKey) -> bytes:
    """A value as JSON."""
    fields: dict[str, object]
    match value:
        case InSync():
            nodes = sorted(node.hex() for node in value.nodes)
            fields = {"term": value.term, "nodes": nodes, "agreed": value.agreed, "level": value.level}
        case Leader():
            fields = {
                **{"term": value.term, "node": value.node_id.hex()},
                **{"name": value.name, "address": value.address},
            }
        case AgreedKey():
            fields = {"term": value.term, "lsn": value.lsn}
        case NodeKey():
            fields = {
                **{"node": value.node_id.hex(), "link": value.link, "term": value.term, "end": value.end},
                **{"journal": None if value.journal is None else value.journal.hex(), "level": value.level},
                **{"version": value.version, "fingerprint": value.fingerprint, "drained": value.is_drained},
                **{"reaches": sorted(value.reaches), "addresses": [list(pair) for pair in value.addresses]},
            }
        case _:
            fields = {"id": value.hex()}
    return json.dumps(fields).encode()


class _Fields:
    """Reads the fields of a JSON object. Raises: NotOurs, for a field that is missing or of another type."""

    def __init__(self, octets: bytes) -> None:
        try:
            self._found = json.loads(octets)
        except (ValueError, RecursionError):
            raise NotOurs(f"is not JSON: {octets[:60]!r}") from None
        if not isinstance(self._found, dict):
            raise NotOurs(f"is no JSON object: {octets[:60]!r}")

    def number(self, name: str) -> int:
        return _typed(name, int, self._found.get(name))

    def text(self, name: str) -> str:
        return _typed(name, str, self._found.get(name))

    def flag(self, name: str) -> bool:
        return _typed(name, bool, self._found.get(name))

    def texts(self, name: str) -> list[str]:
        return [_typed(name, str, one) for one in _typed(name, list, self._found.get(name))]

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        found = [_typed(name, list, one) for one in _typed(name, list, self._found.get(name))]
        if any([type(one) for one in pair] != [str, str] for pair in found):
            raise NotOurs(f"has an invalid {name}: {found!r:.60}")
        return tuple((pair[0], pair[1]) for pair in found)

    def identity(self, name: str) -> bytes:
        return self._identity(name, self.text(name))

    def identities(self, name: str) -> frozenset[bytes]:
        return frozenset(self._identity(name, one) for one in self.texts(name))

    def identity_or_none(self, name: str) -> bytes | None:
        return None if self._found.get(name) is None else self.identity(name)

    def _identity(self, name: str, text: str) -> bytes:
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise NotOurs(f"has an invalid {name}: {text!r:.60}") from None


def _typed(name: str, kind: type[Found], found: Any) -> Found:
    if type(found) is not kind:  # a bool is not a number
        raise NotOurs(f"has an invalid {name}: {found!r:.60}")
    return found


def _node(name: str, fields: _Fields) -> NodeKey:
    return NodeKey(
        name,
        fields.identity("node"),
        fields.text("link"),
        fields.identity_or_none("journal"),
        fields.number("term"),
        fields.number("end"),
        fields.number("level"),
        fields.text("version"),
        fields.text("fingerprint"),
        fields.flag("drained"),
        frozenset(fields.texts("reaches")),
        fields.pairs("addresses"),
    )


_READERS: dict[str, Callable[[_Fields, int], object]] = {
    JOURNAL: lambda fields, revision: fields.identity("id"),
    INSYNC: lambda fields, revision: InSync(
        fields.number("term"), fields.identities("nodes"), fields.number("agreed"), fields.number("level"), revision
    ),
    LEADER: lambda fields, revision: Leader(
        fields.number("term"), fields.identity("node"), fields.text("name"), fields.text("address"), revision
    ),
    AGREED: lambda fields, revision: AgreedKey(fields.number("term"), fields.number("lsn"), revision),
    PREFERRED: lambda fields, revision: fields.identity("id"),
}
