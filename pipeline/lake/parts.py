"""Parts: the Parquet files in which the rows of one slice of the journal are added to the lake's tables.

    LAKE/events/date=2026-11-21/part-n3f0c0ffee123-00000000000000000001-....parquet

A part counts only when a commit names it. So any process may write it, and even twice: this process, several processes
of this machine, or the tasks of a Spark session.
"""

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from multiprocessing.connection import wait
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from ...journal import JournalError
from ...journal.format.errors import Damaged
from ..error_texts import one_line
from ..reading.arrow_files import ArrowFiles, locate
from ..reading.chunks import Chunk, read_chunks
from ..reading.events import EventDecoder
from ..reading.positions import Slice
from ..reading.predicate import Predicate
from ..reading.table_decoder import TableDecoder
from ..schemas import BY_DATE, STATISTICS, TABLES, arrow, stored
from .delta_tables import GROUP_ROWS, Part, files_in, mark_of, open_table, schema_of

#: A row group is written when it has GROUP_ROWS rows, or this many octets in memory.
GROUP_OCTETS = 64 * 1024 * 1024
#: Rows in one step of compaction.
BATCH_ROWS = 65_536
#: The most open files of one slice. Each day has one, and a clock that jumps may make many days.
OPEN_MAX = 16
#: Columns that mostly rise by one. Stored as differences they are small; with dictionaries they take 4/5 of a file.
RISING = ("lsn", "msg_id", "cause_id")
#: Columns with longer texts get no statistics.
WORD_MAX = 256
DAY_US = 86_400_000_000
EPOCH = date(1970, 1, 1)


@dataclass(slots=True, frozen=True)
class WriteTask:
    """Writes the rows of slices of a journal as new parts of tables.

    journal: path or URI, for its file system. directory: the journal's path in that file system. node: name and
    journal's id; the first node needs none.
    """

    journal: str
    directory: str
    lake: str
    tables: tuple[str, ...]
    strict: bool = True
    node: tuple[str, str] = ("", "")

    def write(self, part: Slice) -> list[Part]:
        """The parts of a slice. Raises: JournalError, OSError. Then files that were already written are deleted."""
        source, _ = locate(self.journal)
        target, root = locate(self.lake)
        writers = [_TableWriter(target, root, table, part, self.node) for table in self.tables]
        try:
            for chunk in read_chunks(source, self.directory, part, strict=self.strict):
                for one in writers:
                    one.add(chunk)
            return [made for one in writers for made in one.close()]
        except BaseException as error:
            for one in writers:
                one.delete()
            if isinstance(error, Damaged):
                raise JournalError(str(error)) from error  # Damaged itself cannot be pickled between processes
            raise


class _TableWriter:
    """Writes the parts of one table: a file for each day."""

    def __init__(self, files: ArrowFiles, root: str, table: str, part: Slice, node: tuple[str, str]) -> None:
        self._files = files
        self._root = f"{root}/{table}"
        self._table = table
        self._part = part
        columns = TABLES[table]
        self._schema = arrow(stored(table))
        self._of_node = [value or None for value in node][: len(self._schema) - len(columns)]
        self._mark = f"n{mark_of(node[1])}-" if node[1] else ""
        self._decoder: EventDecoder | TableDecoder = (
            EventDecoder(columns, Predicate()) if table == "events" else TableDecoder(table, columns)
        )
        self._open: dict[str | None, _PartWriter] = {}
        self._made: list[Part] = []

    def add(self, chunk: Chunk) -> None:
        """Add the rows of a chunk. Raises: Damaged, OSError."""
        for found in self._decoder.batches(chunk):
            more = [pa.repeat(pa.scalar(value, pa.string()), found.num_rows) for value in self._of_node]
            batch = pa.RecordBatch.from_arrays([*found.columns, *more], schema=self._schema)
            for day, rows in _by_day(batch) if self._table in BY_DATE else ((None, batch),):
                self._writer(day).add(rows)

    def _writer(self, day: str | None) -> "_PartWriter":
        found = self._open.get(day)
        if found is None:
            if len(self._open) == OPEN_MAX:
                oldest = next(iter(self._open))
                self._made.append(self._open[oldest].close())
                del self._open[oldest]
            name = f"part-{self._mark}{self._part.segment:020d}-{self._part.start}-{uuid4().hex}.parquet"
            path = name if day is None else f"date={day}/{name}"
            found = self._open[day] = _PartWriter(self._files, self._root, self._table, path, day, self._schema)
        return found

    def close(self) -> list[Part]:
        """Finish the files. Returns the parts; they are durable if they are on this machine. Raises: OSError."""
        self._made += [one.close() for one in self._open.values()]
        return self._made

    def delete(self) -> None:
        """Delete all files after an error, which no commit names. `vacuum` deletes what cannot be deleted now."""
        for one in self._open.values():
            one.delete()
        for part in self._made:
            with suppress(OSError):
                self._files.system.delete_file(f"{self._root}/{part.path}")


class _PartWriter:
    """Writes one file, with one row group in memory."""

    def __init__(self, files: ArrowFiles, root: str, table: str, path: str, day: str | None, schema: Any) -> None:
        self._files = files
        self._where = f"{root}/{path}"
        self._table, self.path, self._day = table, path, day
        self._waiting: list[Any] = []
        self._rows = self._octets = 0
        self._about: list[Any] = []
        self._schema = schema
        self._writer: Any = None
        try:
            with _with_path(self._where):
                files.make_directory(os.path.dirname(self._where))
                self._writer = parquet.ParquetWriter(
                    self._where,
                    schema,
                    filesystem=files.system,
                    compression="zstd",
                    column_encoding={name: "DELTA_BINARY_PACKED" for name in schema.names if name in RISING},
                    use_dictionary=[name for name in schema.names if name not in RISING],
                    metadata_collector=self._about,
                )
        except BaseException:
            self.delete()
            raise

    def add(self, batch: Any) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._octets += batch.nbytes
        if self._rows >= GROUP_ROWS or self._octets >= GROUP_OCTETS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting, self._schema)
            with _with_path(self._where):
                self._writer.write_table(rows, row_group_size=GROUP_ROWS)
        self._waiting, self._rows, self._octets = [], 0, 0

    def close(self) -> Part:
        self._flush()
        with _with_path(self._where):
            self._writer.close()
            octets = self._files.make_durable(self._where)
        (about,) = self._about
        return Part(self._table, self.path, self._day, about.num_rows, octets, statistics(about))

    def delete(self) -> None:
        """Delete the file after an error. `vacuum` deletes what cannot be deleted now."""
        if self._writer is not None:
            self._writer.is_open = False  # else pyarrow finishes the file when it is garbage, and prints errors
        with suppress(OSError):
            self._files.system.delete_file(self._where)


def delete_uncommitted(lake: str, parts: Sequence[Part]) -> None:
    """Delete parts that no commit names, in a lake on this machine. If its log cannot be read, `vacuum` will do it."""
    for table in {one.table for one in parts} if "://" not in lake else ():
        with suppress(OSError, ValueError):
            delta = open_table(lake, table)
            named = {one["path"] for one in files_in(delta)} if delta is not None else set()
            for one in parts:
                if one.table == table and one.path not in named:
                    os.unlink(f"{lake}/{table}/{one.path}")


@contextmanager
def deleted_if_it_fails(lake: str) -> Iterator[list[Part]]:
    """A list for parts. If the block fails, those that no commit names are deleted: the disk may be full."""
    parts: list[Part] = []
    try:
        yield parts
    except Exception:
        delete_uncommitted(lake, parts)
        raise


@contextmanager
def _with_path(path: str) -> Iterator[None]:
    """Add the path to errors. Raises: OSError."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno) if error.errno else one_line(str(error)), path) from error


def merge_parts(lake: str, table: str, day: str | None, mark: str, paths: Sequence[str]) -> Part:
    """Write one new part with the rows of several files, in this order. A row group at a time is in memory.

    Args:   day, mark: the same for all files. paths: relative to the table.
    Raises: OSError.
    """
    files, root = locate(lake)
    schema = schema_of(table, with_date=False)
    name = f"part-merged-n{mark}-{uuid4().hex}.parquet"
    writer = _PartWriter(files, f"{root}/{table}", table, name if day is None else f"date={day}/{name}", day, schema)
    try:
        for path in paths:
            with parquet.ParquetFile(f"{root}/{table}/{path}", filesystem=files.system) as one:
                for batch in one.iter_batches(BATCH_ROWS):
                    writer.add(_conformed(batch, schema))
        return writer.close()
    except BaseException:
        writer.delete()
        raise


def part_from_rows(lake: str, table: str, rows: Sequence[Any], mark: str = "") -> Part:
    """Write one new part with these rows. `mark`: of their node. Raises: OSError."""
    files, root = locate(lake)
    schema = schema_of(table, with_date=False)
    name = f"part-{f'n{mark}-' if mark else ''}{uuid4().hex}.parquet"
    writer = _PartWriter(files, f"{root}/{table}", table, name, None, schema)
    try:
        writer.add(pa.RecordBatch.from_pylist(list(rows), schema=schema))
        return writer.close()
    except BaseException:
        writer.delete()
        raise


def _conformed(batch: Any, schema: Any) -> Any:
    """A batch with exactly the columns of a schema. Columns that an older release did not write are null."""
    names = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _by_day(batch: Any) -> Iterator[tuple[str, Any]]:
    days: Any = batch.column("ts").cast(pa.int64()).to_numpy() // DAY_US
    for day in np.unique(days).tolist():
        rows = batch if days[0] == day and (days == day).all() else batch.filter(pa.array(days == day))
        yield (EPOCH + timedelta(days=day)).isoformat(), rows


def statistics(about: Any) -> str:
    """Delta's statistics of a file as JSON: rows, and the ranges of the columns STATISTICS. Readers skip files by them.

    Args: about: the file's Parquet metadata.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(about.num_columns):
        name = about.schema.column(index).path
        if name not in STATISTICS:
            continue
        found = [about.row_group(group).column(index).statistics for group in range(about.num_row_groups)]
        if not found or not all(one is not None and one.has_min_max and one.has_null_count for one in found):
            continue
        least, most = min(one.min for one in found), max(one.max for one in found)
        if isinstance(most, str) and max(len(least), len(most)) > WORD_MAX:
            continue
        nulls[name] = sum(one.null_count for one in found)
        low[name], high[name] = _text(least), _text(most, up=True)
    return json.dumps({"numRecords": about.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _text(value: Any, *, up: bool = False) -> Any:
    """A value as Delta's statistics have it: times in milliseconds, rounded up if `up`, else down."""
    if not isinstance(value, datetime):
        return value
    if up and value.microsecond % 1000:
        value += timedelta(milliseconds=1)
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"


#: The least octets of journal for which several processes are started.
PARALLEL_OCTETS = 32 * 1024 * 1024
Made = tuple[Slice, list[Part]]


def by_processes(work: WriteTask, slices: Sequence[Slice], processes: int) -> Iterator[Made]:
    """Write slices in several processes, or in this one if there is little to do. Yields each when it is done."""
    count = min(processes, len(slices))
    if count < 2 or sum(part.end - part.start for part in slices) < PARALLEL_OCTETS:
        for part in slices:
            yield part, work.write(part)
        return
    # No fork: the child would lack the threads of pyarrow and delta-rs.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, initializer=_end_with_parent) as pool:
        pending = {pool.submit(work.write, part): part for part in slices}
        try:
            for future in as_completed(pending):
                yield pending.pop(future), future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            ended = [future for future in pending if not future.cancelled() and future.exception() is None]
            delete_uncommitted(work.lake, [made for future in ended for made in future.result()])
            raise


def _end_with_parent() -> None:
    """End this process when its parent is gone, and leave interrupts to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def by_spark(work: WriteTask, slices: Sequence[Slice], spark: Any) -> Iterator[Made]:
    """Write each slice in a task of Spark. Tasks that Spark repeats leave parts that no commit names."""
    tasks = spark.sparkContext.parallelize([tuple(part) for part in slices], len(slices))
    found = tasks.map(lambda part: [tuple(one) for one in work.write(Slice(*part))]).collect()
    for part, made in zip(slices, found, strict=True):
        yield part, [Part(*one) for one in made]
