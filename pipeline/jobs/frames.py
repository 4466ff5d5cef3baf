"""The tables that jobs read, as one value; and checks of what the journal recorded."""

from dataclasses import dataclass
from typing import Any

from ..lake.lake import missing, read_table

#: Milliseconds between two timestamps, with its microseconds.
MS_BETWEEN = "(unix_micros({end}) - unix_micros({begin})) / 1000.0"


class NotRecorded(ValueError):
    """The journal does not record what a job needs; this must not be reported as zero."""


@dataclass(frozen=True, slots=True)
class Frames:
    """DataFrames of the lake's tables (schemas.py)."""

    events: Any
    payloads: Any
    snapshots: Any
    checkpoints: Any
    segments: Any

    @classmethod
    def of_lake(cls, spark: Any, lake: str) -> "Frames":
        """The tables of a lake. Raises: ValueError (it is empty)."""
        frames = cls(
            *(read_table(spark, lake, name) for name in ("events", "payloads", "snapshots", "checkpoints", "segments"))
        )
        if frames.segments.isEmpty():
            raise ValueError(f"{lake} holds no events; `leveret pipeline ingest --journal DIR --lake {lake}` fills it")
        return frames

    def scopes(self) -> set[str]:
        """durable, all, or both if the setting was changed."""
        return {row[0] for row in self.segments.select("scope").distinct().collect()}

    def first_lsn(self) -> int:
        """The first LSN of the oldest segment: 1 unless retention deleted segments before the first ingest."""
        return int(self.segments.agg({"base_lsn": "min"}).first()[0] or 1)

    def missing(self) -> str | None:
        """What to say of records that were deleted before the first ingest; None if there are none."""
        return missing(self.first_lsn())

    def span(self) -> tuple[int, int]:
        """The times of the lake's first and last event, in seconds."""
        first, last = self.events.selectExpr("unix_seconds(min(ts))", "unix_seconds(max(ts))").first()
        return int(first or 0), int(last or 0)

    def with_deliveries(self, job: str) -> "Frames":
        """Only the part recorded with scope "all". Raises: NotRecorded."""
        scopes = self.scopes()
        if "all" not in scopes:
            raise NotRecorded(
                f'{job}: not recorded; deliveries are in the journal only with [journal] scope = "all", '
                'and this one was written with scope = "durable"'
            )
        if scopes == {"all"}:
            return self
        wanted = self.segments.where("scope = 'all'").select("segment")
        events = self.events.join(wanted.hint("broadcast"), "segment", "left_semi")
        return Frames(events, self.payloads, self.snapshots, self.checkpoints, self.segments)

    def with_payloads(self, job: str) -> "Frames":
        """Raises: NotRecorded."""
        if self.payloads.isEmpty():
            raise NotRecorded(f"{job}: the lake has no contents; run `leveret pipeline ingest --payloads`")
        return self
