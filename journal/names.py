"""Ids for names: records say `queue 7`, and a DEFINE record says what queue 7 is called. Ids are never given twice."""

from collections.abc import Iterator

from .heap import Define, encode_define
from .record import DEFINE, DURABLE, VHOST, Record


class Names:
    """The names that are alive, both ways."""

    __slots__ = ("_by_id", "_ids", "next_id")

    def __init__(self) -> None:
        self._by_id: dict[int, Define] = {}
        self._ids: dict[Define, int] = {}
        self.next_id = 1

    def set(self, id_: int, define: Define) -> None:
        """As a record says. A later one wins."""
        self._by_id[id_] = define
        self._ids[define] = id_
        self.next_id = max(self.next_id, id_ + 1)

    def id_of(self, what: int, vhost_id: int, name: str) -> int | None:
        """The id, if the name has one."""
        return self._ids.get(Define(what, vhost_id, name))

    def new(self, what: int, vhost_id: int, name: str) -> tuple[int, Record]:
        """An id for a name that has none, and the record that says so."""
        define = Define(what, vhost_id, name)
        id_ = self.next_id
        self.set(id_, define)
        return id_, define_record(id_, define)

    def forget(self, id_: int) -> None:
        """The thing is gone: the next segment does not define it."""
        define = self._by_id.pop(id_, None)
        if define is not None and self._ids.get(define) == id_:
            del self._ids[define]

    def __getitem__(self, id_: int) -> Define:
        """What an id stands for. Raises: KeyError."""
        return self._by_id[id_]

    def __contains__(self, id_: int) -> bool:
        return id_ in self._by_id

    def __len__(self) -> int:
        return len(self._by_id)

    def text(self, id_: int) -> str:
        """Its name, or "#7" when it is not defined."""
        define = self._by_id.get(id_)
        return f"#{id_}" if define is None else define.name

    def vhost_text(self, id_: int) -> str:
        """The name of the virtual host that it is in; empty when that is not known."""
        define = self._by_id.get(id_)
        if define is None:
            return ""
        return define.name if define.what == VHOST else self.text(define.vhost_id) if define.vhost_id else ""

    def ids_of(self, *kinds: int) -> list[int]:
        """Ids of all names of these kinds of objects."""
        return [id_ for id_, define in self._by_id.items() if define.what in kinds]

    def records(self) -> Iterator[Record]:
        """A DEFINE for each live name: virtual hosts have lower ids than what is in them."""
        return (define_record(id_, define) for id_, define in sorted(self._by_id.items()))


def define_record(id_: int, define: Define) -> Record:
    """The record that gives an id its name."""
    return Record(DEFINE, arg=id_, flags=DURABLE, heap=encode_define(define))
