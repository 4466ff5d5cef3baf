"""Retention: drops the days of a lake that are too old, and notes the first record that each node keeps (`Retained`).

The commit that drops files of `events` also writes that note. Then the older files of the other tables are dropped; if
retention is killed before that, the next one drops them. Jobs ignore older rows in all tables.

A clock may jump, so the rows of a day may be anywhere in the journal. Therefore a file is dropped only if all its
records are before each record of the days that stay. Days in the future count only if there are no others.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from math import inf
from typing import Any

from ..progress import Progress
from .compact import KEEP_HOURS
from .delta_tables import CHECKPOINTS, Retained, absolute, drop, files_in, mark_of, open_table, retained_of, vacuum
from .lake import lake_lock
from .nodes import nodes_of

File = Mapping[str, Any]
#: Tables in the order in which they are changed -> the column whose statistics tell how old a file is.
LSN_COLUMNS = {
    "events": "lsn",
    "payloads": "lsn",
    "snapshots": "lsn",
    "checkpoints": "begin_lsn",
    "segments": "base_lsn",
    "holes": "last_lsn",
}


def today() -> date:
    """The present day in UTC."""
    return datetime.now(UTC).date()


def days_ago(days: int, now: date) -> date:
    """The first day to keep, so that nothing younger than `days` is dropped."""
    return now - timedelta(days=min(days, (now - date.min).days))


def retain(
    lake: str, before: date, progress: Progress, keep_hours: int = KEEP_HOURS, *, is_dry: bool = False
) -> dict[str, Any]:
    """Drop the days before `before`. Delete files that were replaced or dropped more than `keep_hours` ago.

    Args:   is_dry: change nothing, but return what would be dropped.
    Returns: dropped files and rows by table; the first record that stays.
    Raises: LakeBusy, ValueError (`before` is in the future; the lake cannot be changed), OSError.
    """
    lake = absolute(lake)
    if before > today():
        raise ValueError(f"{before} is in the future")
    if "://" not in lake and os.path.isdir(os.path.join(lake, CHECKPOINTS)):
        raise ValueError(f"{lake}: a lake of an older release: first `leveret pipeline migrate --lake {lake}`")
    if is_dry:
        return {**_drop_days(lake, before, progress, is_dry=True), "dry": True, "seconds": progress.seconds}
    with lake_lock(lake):
        result = _drop_days(lake, before, progress)
        deleted = 0
        for table in LSN_COLUMNS:
            delta = open_table(lake, table)
            deleted += 0 if delta is None else vacuum(delta, lake, table, keep_hours)
    return {**result, "deleted": deleted, "dry": False, "seconds": progress.seconds}


def retain_after_ingest(lake: str, days: int, progress: Progress) -> dict[str, int]:
    """Drop old days at the end of an ingest. Returns dropped rows by table.

    Their files are deleted by a later call that drops files of the same table, or by `retain` or `compact`.

    Raises: LakeBusy, ValueError, OSError.
    """
    lake = absolute(lake)
    with lake_lock(lake):
        result = _drop_days(lake, days_ago(days, today()), progress)
        for table, count in result["files"].items():
            if count:
                vacuum(open_table(lake, table), lake, table, KEEP_HOURS)
    rows: dict[str, int] = result["rows"]
    return rows


def _drop_days(lake: str, before: date, progress: Progress, *, is_dry: bool = False) -> dict[str, Any]:
    """Drop the days before `before`, node by node, of `events` first. Returns the result of `retain`."""
    files: dict[str, int] = {}
    rows: dict[str, int] = {}
    days: list[Any] = []
    begins: dict[str, int] = {}
    nodes = nodes_of(lake)
    for node in nodes:
        kept = None
        for table, column in LSN_COLUMNS.items():
            delta = open_table(lake, table)
            if delta is None:
                continue
            every = [one for one in files_in(delta) if len(nodes) == 1 or one["mark"] == mark_of(node.journal or "")]
            if table == "events":
                kept = retained_of(delta, node.journal)
                old, kept = _files_to_drop(every, before, kept)
            else:
                old = [] if kept is None else _files_before(every, column, kept.lsn)
            dropped_rows = sum(one["num_records"] for one in old)
            files[table], rows[table] = files.get(table, 0) + len(old), rows.get(table, 0) + dropped_rows
            days += [one["partition.date"] for one in old if one.get("partition.date")]
            if old and not is_dry:
                drop(delta, lake, table, old, kept if table == "events" else None, node.journal)
                more = {"node": node.name} if len(nodes) > 1 else {}
                progress.say("dropped", table=table, files=len(old), rows=dropped_rows, **more)
        begins[node.name] = 1 if kept is None else kept.lsn
    return {
        "lake": lake,
        "before": str(before),
        "first_day": str(min(days)) if days else None,
        "last_day": str(max(days)) if days else None,
        "files": files,
        "rows": rows,
        "kept_from_lsn": begins if len(nodes) > 1 else begins[nodes[0].name],
    }


def _files_to_drop(files: Sequence[File], before: date, kept: Retained | None) -> tuple[list[File], Retained | None]:
    """The files of `events` to drop, and the note to write with that commit."""
    young = [one for one in files if one["partition.date"] >= before]
    not_future = [one for one in young if one["partition.date"] <= today()] or young
    first = min((_least(one, "lsn") for one in not_future), default=inf)
    old = [one for one in files if _most(one, "lsn") < first]
    if not old:
        return old, kept
    lsn = max(int(_most(one, "lsn")) for one in old) + 1
    return old, Retained(lsn, before) if kept is None else Retained(max(lsn, kept.lsn), max(before, kept.day))


def _files_before(files: Sequence[File], column: str, lsn: int) -> list[File]:
    """The files whose rows are all before a record. The row of the segment that contains the record stays."""
    if column == "base_lsn":
        begun = [_most(one, column) if _most(one, column) <= lsn else _least(one, column) for one in files]
        lsn = int(max((at for at in begun if at <= lsn), default=0))
    return [one for one in files if _most(one, column) < lsn]


def _least(one: File, column: str) -> float:
    found = one.get(f"min.{column}")
    return 0 if found is None else found


def _most(one: File, column: str) -> float:
    found = one.get(f"max.{column}")
    return inf if found is None else found
