"""Ids of names: records refer to `queue 7`, and a DEFINE record holds its name. An id is never assigned twice.

A live name has one id; only connections and consumers may share a name. The id of a deleted exchange is retired: its
name stays while records of messages may refer to it.
"""

from .heap import Define, encode_define
from .record import DEFINE, DURABLE, EXCHANGE, VHOST, Record


class Names:
    """Maps live names to ids and back, and retired ids to names."""

    def __init__(self) -> None:
        self._by_id: dict[int, Define] = {}
        self._ids: dict[Define, int] = {}
        self._retired: dict[int, int] = {}  # id -> LSN before which records refer to it
        self.next_id = 1

    def set(self, id_: int, define: Define, retired_lsn: int = 0) -> None:
        """Define a name as a DEFINE record does; a later definition wins. `retired_lsn`: see `retire`; 0: alive."""
        self._by_id[id_] = define
        self.next_id = max(self.next_id, id_ + 1)
        if retired_lsn:
            self._retired[id_] = retired_lsn
        else:
            self._ids[define] = id_

    def clear(self) -> None:
        """Forget all names before a segment's head lists them again. `next_id` stays: ids are not assigned twice."""
        self._by_id.clear()
        self._ids.clear()
        self._retired.clear()

    def id_of(self, object_type: int, vhost_id: int, name: str) -> int | None:
        """The id, if the name has one."""
        return self._ids.get(Define(object_type, vhost_id, name))

    def new(self, object_type: int, vhost_id: int, name: str) -> tuple[int, Record]:
        """Assign an id to a name that has none. Returns the id, and the record that defines it."""
        define = Define(object_type, vhost_id, name)
        id_ = self.next_id
        self.set(id_, define)
        return id_, Record(DEFINE, arg=id_, flags=DURABLE, heap=encode_define(define))

    def forget(self, id_: int) -> None:
        """Remove the name of an id, so that the next segment does not define it; also all names in a virtual host."""
        define = self._by_id.pop(id_, None)
        if define is None:
            return
        if self._retired.pop(id_, 0):
            return
        if self._ids.get(define) == id_:
            del self._ids[define]
        if define.object_type == VHOST:
            for other in [other for other, inner in self._by_id.items() if inner.vhost_id == id_]:
                self.forget(other)

    def retire(self, id_: int, lsn: int) -> None:
        """Retire an exchange, since records before `lsn` refer to its id; forget any other object.

        The name may get another id. A higher LSN wins, because messages may be moved forward.
        """
        define = self._by_id.get(id_)
        if define is None:
            return
        if define.object_type != EXCHANGE:
            self.forget(id_)
            return
        if self._ids.get(define) == id_:
            del self._ids[define]
        self._retired[id_] = max(lsn, self._retired.get(id_, 0))

    def drop_retired(self, lsn: int) -> None:
        """Forget retired ids that no record from `lsn` on refers to. `lsn`: of the oldest live content. O(retired)."""
        for id_ in [id_ for id_, until in self._retired.items() if until <= lsn]:
            self.forget(id_)

    def is_retired(self, id_: int) -> bool:
        """Whether the object was deleted, but records may still refer to its name."""
        return id_ in self._retired

    def __getitem__(self, id_: int) -> Define:
        """The name and kind of an id. Raises: KeyError."""
        return self._by_id[id_]

    def __contains__(self, id_: int) -> bool:
        return id_ in self._by_id

    def __len__(self) -> int:
        return len(self._by_id)

    def text(self, id_: int) -> str:
        """The name of an id, or "#7" when it is not defined."""
        define = self._by_id.get(id_)
        return f"#{id_}" if define is None else define.name

    def vhost_text(self, id_: int) -> str:
        """The name of the id's virtual host; empty when it is not known."""
        define = self._by_id.get(id_)
        if define is None:
            return ""
        return define.name if define.object_type == VHOST else self.text(define.vhost_id) if define.vhost_id else ""

    def ids_of(self, *kinds: int) -> list[int]:
        """Ids of all names of these kinds of objects (none: of all kinds), retired ones as well."""
        return [id_ for id_, define in self._by_id.items() if not kinds or define.object_type in kinds]

    def columns(self) -> tuple[list[int], list[int], list[bytes]]:
        """All names as columns: ids, LSNs (see `retire`; 0: alive), heap entries of their DEFINE records.

        Ids rise: a virtual host has a lower id than its objects.
        """
        ids = sorted(self._by_id)
        return ids, [self._retired.get(id_, 0) for id_ in ids], [encode_define(self._by_id[id_]) for id_ in ids]
