"""Ingest: adds the new records of the journal to the lake, exactly once. Everything else reads the lake.

One streaming query per table with the trigger "available now", so that each row is added exactly once, even after
kills. All tables end at the same place in the journal, `events` first, so that the events of each snapshot are always
there. Work is by partition (a segment); nothing is shuffled or collected. Source: Spark page 3.
"""

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..patience import patiently
from ..progress import Progress
from ..reading.positions import JournalPlan, Position
from ..reading.source import NAME
from ..schemas import BY_DATE
from .commits import check_journal, checkpoint_path, files_of, table_path
from .lake import absolute, has_begun, locked, missing, reader_name, sweep

ALWAYS = ("events", "snapshots", "checkpoints", "segments")
#: Octets of journal per micro-batch: each costs planning and a commit, and a kill repeats one.
MAX_BYTES = 4 * 1024**3


@dataclass(slots=True, frozen=True)
class IngestOptions:
    """`journal`, `lake`: paths or URIs. `payloads`: also store contents."""

    journal: str
    lake: str
    payloads: bool = False
    max_bytes: int = MAX_BYTES


def ingest(spark: Any, options: IngestOptions, progress: Progress) -> dict[str, Any]:
    """Bring the lake up to date with the journal. Returns the result: rows by table, the position.

    Raises: LakeBusy, JournalError (deleted, damaged, another journal), OSError, and Spark's exceptions.
    """
    plan = JournalPlan(options.journal)
    lake = absolute(options.lake)
    tables = (*ALWAYS, *(("payloads",) if options.payloads else ()))
    with locked(lake):
        check_journal(files_of(spark, lake), lake, plan)
        _register_new(plan, lake, tables)
        is_new = not has_begun(spark, lake, "events")
        lost = missing(plan.first().lsn) if is_new else None
        target = plan.end()
        progress.say("begin", journal=plan.directory, lake=lake, lsn=target.lsn)
        if lost:
            progress.say("missing", what=lost)
        rows: dict[str, int] = {}
        reached = plan.readers()
        for table in tables:
            if reached[reader_name(lake, table)] == target.lsn and has_begun(spark, lake, table):
                rows[table] = 0  # nothing new: saves the start of a query
                continue
            swept = sweep(lake, table)
            if swept:
                progress.say("swept", table=table, files=swept)
            run = partial(_run, spark, options, lake, table, target, progress)
            rows[table] = patiently(run, progress, table=table)  # what was written stays, and counts once
            plan.files.register(plan.directory, reader_name(lake, table), target.lsn)
    result = {"lake": lake, "lsn": target.lsn, "rows": rows, "seconds": progress.seconds}
    return {**result, "missing": lost} if lost else result


def _register_new(plan: JournalPlan, lake: str, tables: tuple[str, ...]) -> None:
    """All tables at once, before anything is read: segments must not be deleted while another table is filled."""
    known = plan.readers()
    for table in tables:
        name = reader_name(lake, table)
        if name not in known:
            plan.files.register(plan.directory, name, 0)


def _run(spark: Any, options: IngestOptions, lake: str, table: str, target: Position, progress: Progress) -> int:
    """Fill one table up to the target. Returns the number of new rows."""
    stream = (
        spark.readStream.format(NAME)
        .option("table", table)
        .option("reader", reader_name(lake, table))
        .option("until", json.dumps(target.as_dict()))
        .option("maxBytesPerTrigger", str(options.max_bytes))
        .load(absolute(options.journal))
    )
    if table in BY_DATE:
        stream = stream.selectExpr("*", "to_date(ts) AS date")
    writer = stream.writeStream.format("parquet").queryName(f"ingest {table}")
    writer = writer.option("checkpointLocation", checkpoint_path(lake, table)).option("path", table_path(lake, table))
    if table in BY_DATE:
        writer = writer.partitionBy("date")
    query = writer.trigger(availableNow=True).start()
    rows, seen = 0, -1
    try:
        while True:
            ended = query.awaitTermination(1)
            for batch in query.recentProgress:
                if batch["batchId"] > seen:
                    seen = batch["batchId"]
                    rows += batch["numInputRows"]
                    if batch["numInputRows"]:
                        progress.say("batch", table=table, batch=seen, rows=batch["numInputRows"])
            if ended:
                return rows
    finally:
        if query.isActive:
            query.stop()
