"""The tables that jobs read, as views of an engine, and checks of what the journal recorded.

The views `events`, `payloads`, `snapshots`, `checkpoints`, `segments` and `holes` (schemas.py) have the selected rows;
with the prefix `whole_` they have all rows. `lives`: see lives.py. For jobs that need deliveries there are `recorded`,
the events of segments with scope "all", and `recorded_lives`, the lives of these events.
"""

from collections.abc import Mapping
from copy import copy

from ..engines.protocol import Engine, Row, rows
from ..lake.delta_tables import Retained
from ..lake.lake import committed_files, holes_text, missing_text
from ..schemas import TABLES
from .lives import KEPT, NEVER, STARTED, lives_of

#: Acknowledgements in queues that keep the messages.
KEPT_ACKS = f"""
SELECT vhost, queue, lsn FROM whole_events WHERE kind = 'acked' AND queue <> '' AND (CAST(flags AS int) & {KEPT}) <> 0
"""
#: Each queue from one declaration up to the next one: a queue may be deleted, and declared again as another kind. What
#: was before the first declaration in the lake has begin_lsn 0.
INCARNATIONS = f"""
SELECT *, coalesce(lead(begin_lsn) OVER (PARTITION BY vhost, queue ORDER BY begin_lsn), {NEVER}) AS end_lsn
FROM (
    SELECT vhost, queue, lsn AS begin_lsn, coalesce(reason, '{{}}') AS arguments
    FROM whole_events WHERE kind = 'declared' AND queue <> ''
    UNION ALL
    SELECT DISTINCT vhost, queue, 0 AS begin_lsn, '{{}}' AS arguments
    FROM (
        SELECT vhost, queue FROM whole_events WHERE kind = 'declared' AND queue <> ''
        UNION ALL SELECT vhost, queue FROM ({KEPT_ACKS}) AS kept
    ) AS named
) AS begun
"""
#: Incarnations that keep acknowledged messages: the declaration says so, or some acknowledgement in them has the flag.
LOG_QUEUES = f"""
SELECT vhost, queue, begin_lsn, end_lsn FROM incarnations
WHERE CASE WHEN arguments LIKE '{{{{%' THEN {{queue_type}} = 'stream' OR {{is_kept}} = 'true' ELSE false END
UNION
SELECT incarnations.vhost, incarnations.queue, begin_lsn, end_lsn
FROM incarnations JOIN ({KEPT_ACKS}) AS kept
    ON kept.vhost = incarnations.vhost AND kept.queue = incarnations.queue AND lsn >= begin_lsn AND lsn < end_lsn
"""
#: Rows (vhost, queue, lsn, ...), each with its incarnation as first_lsn and behind_lsn. Without those of log queues.
WITHOUT_LOGS = f"""
SELECT found.*, coalesce(incarnations.begin_lsn, 0) AS first_lsn, coalesce(incarnations.end_lsn, {NEVER}) AS behind_lsn
FROM {{found}} AS found
LEFT JOIN incarnations ON incarnations.vhost = found.vhost AND incarnations.queue = found.queue
    AND lsn >= incarnations.begin_lsn AND lsn < incarnations.end_lsn
ANTI JOIN log_queues ON log_queues.vhost = found.vhost AND log_queues.queue = found.queue
    AND lsn >= log_queues.begin_lsn AND lsn < log_queues.end_lsn
"""
#: Copies of messages, as dead letters or by an operator, each with its original. A lake of an older release has them
#: only in the contents.
COPIES = """
SELECT msg_id AS copy_id, cause_id FROM whole_events WHERE kind = 'published' AND cause_id > 0
UNION
SELECT msg_id AS copy_id, cause_id FROM whole_payloads WHERE cause_id > 0
"""


class NotRecorded(ValueError):
    """The journal does not record what a job needs. It is an error, because an answer of zero would be wrong."""


class EmptyLake(ValueError):
    """No ingest has filled the lake."""


class Tables:
    """The tables of a lake as views of an engine, which replace the views of the `Tables` before.

    retained: what retention has left. has_holes: the table `holes` has files. node, journal: which one, if the lake
    has several nodes. Raises: EmptyLake.
    """

    def __init__(
        self,
        engine: Engine,
        lake: str = "",
        retained: Retained | None = None,
        *,
        has_holes: bool = False,
        node: str = "",
        journal: str | None = None,
    ) -> None:
        self.engine = engine
        self._has_holes = has_holes
        self.lake = lake
        self.node, self.journal = node, journal
        self.retained = retained
        self.is_shared = False  # several jobs read the lives: cache them
        self._select({})
        self._segments = rows(engine, "SELECT base_lsn, scope FROM segments")
        if not self._segments:
            raise EmptyLake(f"{lake} holds no events; `leveret pipeline ingest --journal DIR --lake {lake}` fills it")

    def _select(self, conditions: Mapping[str, str]) -> None:
        """Make the views of the selected rows."""
        self._holes: list[Row] | None = None
        self._marks: list[Row] | None = None
        self._checkpoints: list[Row] | None = None
        self._contents: tuple[int, int] | None = None
        self._made: set[str] = set()
        self._part: tuple[Mapping[str, str], Tables] | None = None
        for name in TABLES:
            condition = conditions.get(name)
            self.engine.view(name, f"SELECT * FROM whole_{name}{f' WHERE {condition}' if condition else ''}")

    def part(self, conditions: Mapping[str, str]) -> "Tables":
        """The selected rows, in place of these. `conditions`: table (not `segments`) -> SQL that selects rows.

        The part of the last call is reused for equal conditions.
        """
        if self._part is None or self._part[0] != conditions:
            chosen = copy(self)
            chosen._select(conditions)
            self._part = conditions, chosen
        return self._part[1]

    def scopes(self) -> set[str]:
        """The scopes of the segments: "durable", "all", or both."""
        return {row["scope"] for row in self._segments}

    def first_lsn(self) -> int:
        """The first LSN of the lake: above 1 if segments were deleted before the first ingest, or days were dropped."""
        return min(row["base_lsn"] for row in self._segments) or 1

    def starts(self) -> list[Row]:
        """The starts of a broker with scope "all": rows with lsn, ts. Transient messages end there."""
        return [row for row in self._marked() if row["kind"] != "led"]

    def takeovers(self) -> list[Row]:
        """The takeovers in a cluster: rows with lsn, ts, reason (the node). Empty for a single broker."""
        return [row for row in self._marked() if row["kind"] == "led"]

    def checkpoints(self) -> list[Row]:
        """The checkpoints: rows with begin_lsn, end_lsn, ts."""
        if self._checkpoints is None:
            query = "SELECT begin_lsn, end_lsn, ts FROM checkpoints ORDER BY begin_lsn"
            self._checkpoints = rows(self.engine, query)
        return self._checkpoints

    def _marked(self) -> list[Row]:
        if self._marks is None:
            marks = f"SELECT lsn, ts, kind, reason FROM events WHERE kind = 'led' OR ({STARTED}) ORDER BY lsn"
            self._marks = rows(self.engine, marks)
        return self._marks

    def missing_text(self) -> str | None:
        """A sentence about the records before the first LSN, which are missing; None: none are."""
        return missing_text(self.first_lsn(), self.retained)

    def holes(self) -> list[Row]:
        if self._holes is None:
            query = "SELECT * FROM holes ORDER BY first_lsn, last_lsn"
            self._holes = rows(self.engine, query) if self._has_holes else []
        return self._holes

    def holes_text(self) -> str | None:
        """A sentence about the holes; None: there are none."""
        return holes_text(self.holes()) if self.holes() else None

    def span(self) -> tuple[int, int]:
        """Seconds since 1970 of the first and last event."""
        (row,) = rows(self.engine, "SELECT unix_seconds(min(ts)) AS a, unix_seconds(max(ts)) AS b FROM events")
        return int(row["a"] or 0), int(row["b"] or 0)

    def has_contents(self) -> bool:
        return bool(rows(self.engine, "SELECT msg_id FROM payloads LIMIT 1"))

    def require_contents(self, what: str) -> None:
        """Raises: NotRecorded (the lake has no payloads). `what`: needs them."""
        if self.has_contents():
            return
        if self.lake and committed_files(self.lake, "payloads", journal=self.journal):
            raise NotRecorded(f"the lake has no contents from before --until, which {what} needs")
        raise NotRecorded(f"the lake has no contents, which {what} needs; run `leveret pipeline ingest --payloads`")

    def contents_span(self) -> tuple[int, int]:
        """(first, last): the lake has the contents of all messages that were published at first <= LSN <= last.

        It lacks others if some ingests were without --payloads, or if the journal had deleted their records before the
        first ingest with it. 0 and NEVER: nothing is lacking before or behind. Only with contents.
        """
        if self._contents is None:
            (known,) = rows(self.engine, "SELECT min(lsn) AS first, max(lsn) AS last FROM payloads")
            published = "SELECT min(lsn) AS first, max(lsn) AS last FROM events WHERE kind = 'published'"
            (every,) = rows(self.engine, published)
            is_late = every["first"] is not None and every["first"] < known["first"]
            is_behind = every["last"] is not None and every["last"] > known["last"]
            self._contents = known["first"] if is_late else 0, known["last"] if is_behind else NEVER
        return self._contents

    def contents_text(self) -> str | None:
        """A sentence about the contents that a lake with contents lacks; None: it lacks none, or has none at all."""
        if not self.has_contents() or self.contents_span() == (0, NEVER):
            return None
        first, last = self.contents_span()
        span = " ".join([f"from record {first} on"] * (first > 0) + [f"up to record {last}"] * (last < NEVER))
        fill = "; `leveret pipeline ingest --payloads` adds the newer ones" if last < NEVER else ""
        return f"contents are known only of messages that were published {span}{fill}"

    def require_deliveries(self) -> None:
        """Make the view `recorded`. Raises: NotRecorded."""
        scopes = self.scopes()
        if "all" not in scopes:
            raise NotRecorded(
                'not recorded; deliveries are in the journal only with [journal] scope = "all", '
                'and this one was written with scope = "durable"'
            )
        if "recorded" not in self._made:
            some = " SEMI JOIN (SELECT segment FROM segments WHERE scope = 'all') AS whole USING (segment)"
            self.engine.view("recorded", f"SELECT * FROM events{'' if scopes == {'all'} else some}")
            self._made.add("recorded")

    def incarnations(self) -> str:
        """The name of the view of `INCARNATIONS` (vhost, queue, begin_lsn, end_lsn, arguments)."""
        if "incarnations" not in self._made:
            self.engine.view("incarnations", INCARNATIONS)
            self._made.add("incarnations")
        return "incarnations"

    def log_queues(self) -> str:
        """The name of a view (vhost, queue, begin_lsn, end_lsn) of streams and non-destructive queues: they keep
        acknowledged messages. A queue may be one between some records only.
        """
        if "log_queues" not in self._made:
            self.incarnations()
            dialect = self.engine.dialect
            queue_type = dialect.json_field("arguments", "x-queue-type")
            is_kept = dialect.json_field("arguments", "x-non-destructive")
            self.engine.view("log_queues", LOG_QUEUES.format(queue_type=queue_type, is_kept=is_kept))
            self._made.add("log_queues")
        return "log_queues"

    def lives_view(self, *, recorded: bool = False) -> str:
        """The name of the view of lives. `recorded`: only of segments with scope "all"."""
        whole = recorded and self.scopes() != {"all"}
        name = "recorded_lives" if whole else "lives"
        if name not in self._made:
            self.engine.view(name, lives_of("recorded" if whole else "events"), cached=self.is_shared)
            self._made.add(name)
        return name
