"""The pieces of a queue's recording, which are simulated in parallel, and the result that they have together.

A queue that was deleted and declared again is simulated as several ones (`Incarnation`). Each is cut at times at which
it was empty. If it is empty there in the simulation, too, the next piece depends on nothing but the credit that is left
(simulation.py). In the recording none is left, so each piece is first simulated without credit at its beginning. If
other settings leave credit, the pieces behind are simulated with unlimited credit, which tells how much each needs.
What fits neither, or begins where the queue is not empty, is simulated in one piece up to the end. So the result is the
same as without cuts.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from ..engines.protocol import Engine, Row, rows, value
from ..schemas import columns
from .lives import NEVER
from .simulation import UNLIMITED, Start

#: The fewest arrivals of a piece (some ten seconds of CPU), and the most pieces of a queue.
PIECE_ARRIVALS = 100_000
PIECES_MAX = 64
#: The number of times, evenly spread over the recording, at which a queue may be cut.
SLOTS = 2000
#: All queues, also those whose messages arrived before the lake.
QUEUES = """
SELECT vhost, queue, first_lsn, behind_lsn, sum(n) AS n
FROM (
    SELECT vhost, queue, first_lsn, behind_lsn, 1 AS n FROM arrived
    UNION ALL SELECT vhost, queue, first_lsn, behind_lsn, 0 AS n FROM handed
) AS met
GROUP BY vhost, queue, first_lsn, behind_lsn ORDER BY vhost, queue, first_lsn
"""
#: How many messages came and went, by slot, in queues with at least {least} arrivals.
MOVES = """
SELECT vhost, queue, first_lsn, behind_lsn, ms - ms % {slot_ms} AS slot, sum(came) AS came, sum(went) AS went
FROM (
    SELECT vhost, queue, first_lsn, behind_lsn, ms, 1 AS came, 0 AS went FROM arrived
    UNION ALL
    SELECT vhost, queue, first_lsn, behind_lsn, finished_ms AS ms, 0 AS came, 1 AS went
    FROM arrived WHERE finished_ms IS NOT NULL
) AS moves JOIN (
    SELECT vhost, queue, first_lsn FROM arrived GROUP BY vhost, queue, first_lsn HAVING count(*) >= {least}
) AS large USING (vhost, queue, first_lsn)
GROUP BY vhost, queue, first_lsn, behind_lsn, ms - ms % {slot_ms} ORDER BY vhost, queue, first_lsn, slot
"""
SPANS = columns(
    "vhost string, queue string, first_lsn bigint, behind_lsn bigint, begin_ms bigint, end_ms bigint, credit bigint"
)


class Incarnation(NamedTuple):
    """A queue from one declaration up to the next one: its records with first_lsn <= LSN < behind_lsn."""

    vhost: str
    queue: str
    first_lsn: int
    behind_lsn: int

    @classmethod
    def of(cls, row: Row) -> "Incarnation":
        return cls(*(row[name] for name in cls._fields))


class Span(NamedTuple):
    """A simulation: the steps with begin_ms <= ms < end_ms. `credit`: at its beginning, or UNLIMITED."""

    begin_ms: int
    end_ms: int
    credit: int


class Pieces:
    """The pieces of one queue. `done`: the results of the first ones, as far as they are known; `left`: the others."""

    def __init__(self, cuts: Sequence[int] = ()) -> None:
        self.done: list[Row] = []
        self._left = list(pairwise((0, *cuts, NEVER)))
        self._credit = 0  # at the beginning of the first piece of `left`
        self._known: dict[tuple[int, int], Row] = {}  # by begin_ms and credit

    def add(self, row: Row) -> None:
        """Add the result of a `Span`."""
        self._known[row["begin_ms"], row["credit"]] = row

    def next_spans(self) -> list[Span]:
        """What has to be simulated next; empty: `done` is the whole queue."""
        while self._left and (row := self._fitting()) is not None:
            self.done.append(row)
            self._credit = row["credit_left"] + self._credit * row["adds_credit"]
            del self._left[0]
        if not self._left:
            return []
        begin_ms = self._left[0][0]
        if not self._known:
            return [Span(*piece, 0) for piece in self._left]
        if self._credit and len(self._left) > 1 and (begin_ms, UNLIMITED) not in self._known:
            return [Span(*piece, UNLIMITED) for piece in self._left]
        self._left = [(begin_ms, NEVER)]
        self._known.clear()
        return [Span(begin_ms, NEVER, self._credit)]

    def _fitting(self) -> Row | None:
        """The result of the first piece of `left`, if the next piece can begin with what it leaves."""
        begin_ms = self._left[0][0]
        for credit in (self._credit, UNLIMITED):
            row = self._known.get((begin_ms, credit))
            if row and row["credit_needed"] <= self._credit and (row["is_quiet"] or len(self._left) == 1):
                return row
        return None


def cut(engine: Engine, starts: Sequence[Start], least: int) -> dict[Incarnation, Pieces]:
    """The pieces of each queue of the views `arrived` and `handed` (whatif.py).

    least: arrivals of a piece; 0: no queue is cut.
    """
    counts = {Incarnation.of(row): row["n"] for row in rows(engine, QUEUES)}
    found = {name: Pieces() for name in counts}
    if not least or max(counts.values(), default=0) < 2 * least:
        return found
    span_ms = value(engine, "SELECT max(ms) - min(ms) FROM arrived")
    moves = rows(engine, MOVES.format(slot_ms=span_ms // SLOTS + 1, least=2 * least))
    for name, slots in groupby(moves, key=Incarnation.of):
        found[name] = Pieces(_cuts(slots, starts, max(least, counts[name] // PIECES_MAX)))
    return found


def _cuts(slots: Iterable[Row], starts: Sequence[Start], least: int) -> list[int]:
    """Times at which a queue was empty and the broker not stopped. `slots`: rows of `MOVES`."""
    found: list[int] = []
    waiting = arrivals = 0
    for row in slots:
        ms = row["slot"]
        if waiting == 0 and arrivals >= least and not any(start.stop_ms < ms <= start.ms for start in starts):
            found.append(ms)
            arrivals = 0
        waiting += row["came"] - row["went"]
        arrivals += row["came"]
    return found
