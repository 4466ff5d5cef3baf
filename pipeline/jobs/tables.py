"""The tables that jobs read, as views of an engine; and checks of what the journal recorded.

Views: events, payloads, snapshots, checkpoints, segments, holes (schemas.py), or what was chosen of them; the same
without a choice with `whole_` in front of their names; `lives` (lives.py); and of jobs that need deliveries `recorded`,
the events of the segments with scope "all", and `recorded_lives`, theirs.
"""

from collections.abc import Mapping

from ..engines.protocol import Engine, Row, rows, value
from ..lake.lake import Retained, holes_text, missing_text
from ..schemas import TABLES
from .lives import KEPT, lives_of

#: An acknowledgement that removes nothing is recorded as kept; what was declared is known also before the first one.
LOG_QUEUES = """
SELECT vhost, queue FROM whole_events
WHERE queue <> '' AND (
    (kind = 'acked' AND (CAST(flags AS int) & {kept}) <> 0)
    OR CASE
        WHEN kind = 'declared' AND reason LIKE '{{%' THEN {queue_type} = 'stream' OR {is_kept} = 'true' ELSE false
    END
)
GROUP BY vhost, queue
"""


class NotRecorded(ValueError):
    """The journal does not record what a job needs; this must not be reported as zero."""


class EmptyLake(ValueError):
    """No ingest has filled it."""


class Tables:
    """The tables of a lake as views of an engine. `conditions`: SQL by table, for the rows that are chosen. `kept`:
    what retention has left. `has_holes`: whether the table `holes` has files. The views of one engine are those of the
    last `Tables`. `node`, `journal`: the node, if the lake has several. Raises: EmptyLake."""

    def __init__(
        self,
        engine: Engine,
        lake: str = "",
        conditions: Mapping[str, str] | None = None,
        kept: Retained | None = None,
        *,
        has_holes: bool = False,
        node: str = "",
        journal: str | None = None,
    ) -> None:
        self.engine = engine
        self._has_holes = has_holes
        self._holes: list[Row] | None = None
        self.lake = lake
        self.node, self.journal = node, journal
        self.kept = kept
        self._made: set[str] = set()
        #: Whether several jobs ask for the same: what they fold is computed once.
        self.is_shared = False
        self._part: tuple[Mapping[str, str], Tables] | None = None
        for name in TABLES:
            condition = (conditions or {}).get(name)
            engine.view(name, f"SELECT * FROM whole_{name}{f' WHERE {condition}' if condition else ''}")
        if not value(engine, "SELECT count(*) FROM segments"):
            raise EmptyLake(f"{lake} holds no events; `leveret pipeline ingest --journal DIR --lake {lake}` fills it")

    def part(self, conditions: Mapping[str, str]) -> "Tables":
        """What is chosen of the whole tables, whatever was chosen before; if that was the same, with its views."""
        if self._part is None or self._part[0] != conditions:
            chosen = Tables(
                self.engine,
                self.lake,
                conditions,
                self.kept,
                has_holes=self._has_holes,
                node=self.node,
                journal=self.journal,
            )
            self._part = conditions, chosen
            self._part[1].is_shared = self.is_shared
        return self._part[1]

    def scopes(self) -> set[str]:
        """durable, all, or both if the setting was changed."""
        return {row["scope"] for row in rows(self.engine, "SELECT DISTINCT scope FROM segments")}

    def first_lsn(self) -> int:
        """The first LSN that the lake has: 1 unless the journal had deleted segments before the first ingest, or older
        days were dropped from the lake."""
        return int(value(self.engine, "SELECT min(base_lsn) FROM segments") or 1)

    def missing_text(self) -> str | None:
        """What to say of records that were deleted before the first ingest, or dropped since; None: there are none."""
        return missing_text(self.first_lsn(), self.kept)

    def holes(self) -> list[Row]:
        """Rows of `holes`, in order."""
        if self._holes is None:
            asked = "SELECT * FROM holes ORDER BY first_lsn, last_lsn"
            self._holes = rows(self.engine, asked) if self._has_holes else []
        return self._holes

    def holes_text(self) -> str | None:
        """What to say of the holes; None: there are none."""
        return holes_text(self.holes()) if self.holes() else None

    def span(self) -> tuple[int, int]:
        """The times of the lake's first and last event, in seconds."""
        (row,) = rows(self.engine, "SELECT unix_seconds(min(ts)) AS a, unix_seconds(max(ts)) AS b FROM events")
        return int(row["a"] or 0), int(row["b"] or 0)

    def has_contents(self) -> bool:
        """Whether the lake has payloads."""
        return bool(rows(self.engine, "SELECT msg_id FROM payloads LIMIT 1"))

    def require_contents(self, job: str) -> None:
        """Raises: NotRecorded (the lake has no payloads)."""
        if not self.has_contents():
            raise NotRecorded(f"{job}: the lake has no contents; run `leveret pipeline ingest --payloads`")

    def require_deliveries(self, job: str) -> None:
        """Make the view `recorded`. Raises: NotRecorded."""
        scopes = self.scopes()
        if "all" not in scopes:
            raise NotRecorded(
                f'{job}: not recorded; deliveries are in the journal only with [journal] scope = "all", '
                'and this one was written with scope = "durable"'
            )
        if "recorded" not in self._made:
            some = " SEMI JOIN (SELECT segment FROM segments WHERE scope = 'all') AS whole USING (segment)"
            self.engine.view("recorded", f"SELECT * FROM events{'' if scopes == {'all'} else some}")
            self._made.add("recorded")

    def log_queues(self) -> str:
        """The name of the view of queues (vhost, queue) that keep messages which consumers have read: streams, and
        queues that are non-destructive."""
        if "log_queues" not in self._made:
            dialect = self.engine.dialect
            kind, keeps = (
                dialect.json_field("reason", "x-queue-type"),
                dialect.json_field("reason", "x-non-destructive"),
            )
            self.engine.view("log_queues", LOG_QUEUES.format(kind=kind, keeps=keeps, kept=KEPT))
            self._made.add("log_queues")
        return "log_queues"

    def lives_view(self, *, recorded: bool = False) -> str:
        """The name of the view of lives; `recorded`: of those in the view of that name."""
        whole = recorded and self.scopes() != {"all"}
        name = "recorded_lives" if whole else "lives"
        if name not in self._made:
            self.engine.view(name, lives_of("recorded" if whole else "events"), cached=self.is_shared)
            self._made.add(name)
        return name
