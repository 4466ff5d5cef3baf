"""The term table: which leader of a cluster wrote which records of a journal. The file `terms` of its directory.

A term is the number of a leadership. One leader writes a term, so two journals whose tables have the same term with the
same first LSN hold the same octets until that term ends in one of them.
Source: docs/journal-format.md, "The directory of a node of a cluster".
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .errors import JournalError

#: Octets of a node's id.
NODE_ID_SIZE = 16
#: LSN of the first record of every journal.
FIRST_LSN = 1


@dataclass(frozen=True, slots=True)
class TermTable:
    """The node's id (made with its directory), and the first LSN of each term; terms rise.

    A term without records has the first LSN of the next term, or one that the journal has not reached. Records before
    the first term were written before there was a cluster.

    Raises: ValueError, when terms do not rise, or first LSNs fall.
    """

    node_id: bytes
    starts: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if len(self.node_id) != NODE_ID_SIZE:
            raise ValueError(f"a node's id has {NODE_ID_SIZE} octets, not {len(self.node_id)}")
        last_term, last_lsn = 0, FIRST_LSN
        for term, first_lsn in self.starts:
            if term <= last_term or first_lsn < last_lsn:
                raise ValueError(f"term {term} from record {first_lsn} on cannot follow {last_term} from {last_lsn} on")
            last_term, last_lsn = term, first_lsn

    @property
    def last_term(self) -> int:
        """The highest term; 0: there is none."""
        return self.starts[-1][0] if self.starts else 0

    def term_at(self, lsn: int) -> int:
        """The term that a record belongs to; 0: it was written before the first term."""
        return max((term for term, first_lsn in self.starts if first_lsn <= lsn), default=0)

    def terms_since(self, lsn: int) -> int:
        """The number of leaderships since the record before `lsn`, also of those without a record here."""
        return self.last_term - self.term_at(lsn - 1)

    def end_of(self, term: int, end: int) -> int:
        """LSN after the last record of a term, in a journal that ends before `end`. Raises: KeyError."""
        terms = [one for one, _ in self.starts]
        if term not in terms:
            raise KeyError(term)
        later = self.starts[terms.index(term) + 1 :]
        return min(later[0][1], end) if later else end

    def with_term(self, term: int, first_lsn: int) -> "TermTable":
        """The table of a new leader: with its own term, whose first record is the next one of this journal.

        Terms that begin after that record are dropped: an earlier leader announced them, but wrote no record here.
        Raises: ValueError: the term is not above those of the table.
        """
        if term <= self.last_term:
            raise ValueError(f"term {term} cannot follow term {self.last_term}")
        kept = tuple(one for one in self.starts if one[1] <= first_lsn)
        return replace(self, starts=(*kept, (term, first_lsn)))

    def with_starts_of(self, leader: "TermTable") -> "TermTable":
        """The terms of the leader that this node copies, under this node's id."""
        return replace(self, starts=leader.starts)

    def cut_to(self, lsn: int) -> "TermTable":
        """The table of this journal when it is cut at `lsn`: without the terms that begin there or later."""
        return replace(self, starts=tuple(one for one in self.starts if one[1] < lsn))

    def common_end(self, other: "TermTable", end: int, other_end: int) -> int:
        """The LSN up to which both journals hold the same records (rule R8): a journal is cut there, nowhere else.

        It is the smaller end of the last term that both tables have; without such a term the first LSN, as nothing
        proves that any records are the same. `end`, `other_end`: LSNs after the last records of the journals.
        """
        theirs = frozenset(other.starts)
        for term, first_lsn in reversed(self.starts):
            if (term, first_lsn) in theirs:
                return min(self.end_of(term, end), other.end_of(term, other_end))
        return FIRST_LSN

    @property
    def octets(self) -> bytes:
        """Content of the file: JSON, one line."""
        return json.dumps({"node": self.node_id.hex(), "terms": [list(one) for one in self.starts]}).encode() + b"\n"

    @classmethod
    def from_octets(cls, octets: bytes) -> "TermTable":
        """The inverse. Raises: JournalError."""
        try:
            fields = json.loads(octets)
            return cls(bytes.fromhex(fields["node"]), tuple(_starts(fields["terms"])))
        except (ValueError, KeyError, TypeError) as error:
            raise JournalError(f"a term table that cannot be understood: {error}") from error


def _starts(rows: Iterable[Iterable[int]]) -> Iterable[tuple[int, int]]:
    """Raises: TypeError, ValueError."""
    for term, first_lsn in rows:
        if type(term) is not int or type(first_lsn) is not int:
            raise TypeError("a term or an LSN that is not an integer")
        yield term, first_lsn
