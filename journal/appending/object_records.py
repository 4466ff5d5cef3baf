"""Records of names and objects: queues, exchanges, bindings, virtual hosts, settings."""

from ..format.heap import (
    Bound,
    Declared,
    IdsSeen,
    encode_bound,
    encode_declared,
    encode_ids_seen,
    encode_text,
)
from ..format.needs import DUPLICATE_IDS, needs_of
from ..format.record import (
    BOUND,
    DECLARED,
    DURABLE,
    EXCHANGE,
    IDS_SEEN,
    QUEUE,
    RECORD_SIZE,
    RESTATED,
    SETTINGS_CHANGED,
    UNBOUND,
    UNDECLARED,
    Record,
)
from .turns import Turns

_IDS = frozenset({DUPLICATE_IDS})


class ObjectRecords:
    """Appends records of names and objects to the turn under way."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def _add(self, record: Record) -> int:
        turns = self._turns
        return (turns.block or turns.begin()).add(record)

    def define(self, what: int, vhost_id: int, name: str) -> int:
        """The id of a name (`VHOST`, `EXCHANGE`, `QUEUE`, `CONSUMER`, ... of record.py); assigned if it has none."""
        id_ = self._turns.names.id_of(what, vhost_id, name)
        return self.define_another(what, vhost_id, name) if id_ is None else id_

    def define_another(self, what: int, vhost_id: int, name: str) -> int:
        """Assign a new id to a name that may have one: several connections or consumers can have the same name."""
        id_, record = self._turns.names.new(what, vhost_id, name)
        self._add(record)
        return id_

    def forget(self, id_: int) -> None:
        """Stop defining a connection or consumer in new segments: it is gone."""
        self._turns.names.forget(id_)

    def retire(self, id_: int) -> None:
        """Retire the id of an exchange that left no `undeclared` record: later messages do not refer to it."""
        self._turns.names.retire(id_, self._turns.next_lsn)

    def declared(self, id_: int, declared: Declared, *, restated: bool = False) -> int:
        """Append that a queue, exchange, virtual host, ... exists. It is restored if it is durable. Returns the LSN."""
        return self._object(DECLARED, id_, declared, restated)

    def undeclared(self, id_: int, what: int, *, forgets: bool = True) -> int:
        """Append that an object was deleted with its bindings; earlier messages still find an exchange's name by id.

        A queue's messages are recorded as `deleted` before. A virtual host takes all its objects with it.
        `forgets=False`: later records still refer to the id.
        """
        lsn = self._object(UNDECLARED, id_, Declared(what, 0, "", b""), False)
        if forgets:
            self._turns.names.retire(id_, lsn)
        return lsn

    def _object(self, kind: int, id_: int, declared: Declared, restated: bool) -> int:
        what = declared.what
        self._turns.need(needs_of(declared))
        record = Record(
            kind,
            flags=(DURABLE if declared.properties & 1 else 0) | (RESTATED if restated else 0),
            arg=0 if what in (QUEUE, EXCHANGE) else id_,
            queue_id=id_ if what == QUEUE else 0,
            address_id=id_ if what == EXCHANGE else 0,
            heap=encode_declared(declared),
        )
        return self._add(record)

    def bound(self, source_id: int, bound: Bound, *, durable: bool = True, restated: bool = False) -> int:
        """Append a binding from an exchange. Returns the LSN."""
        return self._binding(BOUND, source_id, bound, (DURABLE if durable else 0) | (RESTATED if restated else 0))

    def unbound(self, source_id: int, bound: Bound, *, durable: bool = True) -> int:
        """Append that a binding was deleted. Returns the LSN."""
        return self._binding(UNBOUND, source_id, bound, DURABLE if durable else 0)

    def _binding(self, kind: int, source_id: int, bound: Bound, flags: int) -> int:
        queue_id = bound.target_id if bound.what == QUEUE else 0
        record = Record(kind, flags=flags, address_id=source_id, queue_id=queue_id, heap=encode_bound(bound))
        return self._add(record)

    def settings_changed(self, key: int, text: str) -> int:
        """Append the settings (JSON) of an object (`key`: its id, 0 for the broker). Returns the LSN."""
        return self._add(Record(SETTINGS_CHANGED, arg=key, flags=DURABLE, heap=encode_text(text)))

    def ids_seen(self, vhost_id: int, seen: IdsSeen, *, restated: bool = False) -> int:
        """Append duplicate ids that the broker remembers. Returns the octets of the record."""
        self._turns.need(_IDS)
        heap = encode_ids_seen(seen)
        message_id = 0 if restated else seen.ids[0][1]
        flags = DURABLE | (RESTATED if restated else 0)
        self._add(Record(IDS_SEEN, 0, message_id, vhost_id, flags, size=len(seen.ids), heap=heap))
        return RECORD_SIZE + len(heap)
