"""Reads one table of a journal slice by slice, with Spark or without: chosen columns and rows of a range."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..schemas import EVENTS, Columns, chosen, ddl
from .arrow_files import locate
from .positions import JournalPlan, Position, Slice
from .predicate import EVENT_CODES, TABLE_CODES, Predicate

#: The options in lower case: their names may have any case.
OPTIONS = (
    *("path", "journal", "table", "columns", "pushdown", "reader", "failondataloss", "minpartitions"),
    *("startingoffsets", "startingtimestamp", "endingoffsets", "endingtimestamp"),
    *("maxbytespertrigger", "maxoffsetspertrigger"),
)
EARLIEST, LATEST = "earliest", "latest"
#: The beginning or end of a range: a position, microseconds since 1970, EARLIEST or LATEST.
Bound = Position | int | str


@dataclass(slots=True)
class TableReader:
    """Reads one table. `where`: path or URI of the journal or of its data directory.

    strict: damage is an error; otherwise it is skipped. least: the minimum number of slices, as far as there are
    blocks; without effect for the tables `holes` and `segments`.
    """

    where: str
    table: str = "events"
    columns: Columns = EVENTS
    predicate: Predicate = field(default_factory=Predicate)
    strict: bool = True
    least: int = 1

    def plan(self) -> JournalPlan:
        """The readable part of the journal. Raises: ForeignDirectory, OSError."""
        return JournalPlan(self.where, strict=self.strict, past_deleted=not self.strict)

    def slices(self, plan: JournalPlan, start: Position, end: Position) -> list[Slice]:
        """The slices that may contain a row. Raises: JournalGone, Damaged, OSError."""
        if self.table == "holes":
            return plan.slices(start, end)
        codes = TABLE_CODES.get(self.table, EVENT_CODES)
        found = plan.slices(start, end, lambda segment: self.predicate.may_be_in(segment, codes))
        if self.table == "segments":
            return [part for part in found if part.start == 0]
        return plan.split(found, self.least)

    def batches(self, directory: str, part: Slice) -> Iterator[Any]:
        """The rows of a slice as Arrow batches. Raises: JournalGone, Damaged, OSError."""
        # These load pandas, which a process that only plans a query does not need.
        from .chunks import read_chunks
        from .events import EventDecoder
        from .table_decoder import TableDecoder

        files, _ = locate(self.where)
        is_events = self.table == "events"
        decoder: EventDecoder | TableDecoder = (
            EventDecoder(self.columns, self.predicate) if is_events else TableDecoder(self.table, self.columns)
        )
        for chunk in read_chunks(files, directory, part, strict=self.strict):
            yield from decoder.batches(chunk)

    def all_batches(self) -> Iterator[Any]:
        """All rows that are durable now, as Arrow batches. Needs no Spark."""
        plan = self.plan()
        for part in self.slices(plan, plan.first(), plan.end()):
            yield from self.batches(plan.directory, part)


def reader_of(options: Mapping[str, str], schema: Iterable[Any] = ()) -> TableReader:
    """The reader for options of the data source. Their names may have any case.

    Args:   schema: of `.schema(...)`, fields with `name`, `dataType`, `nullable`. Empty: the option `columns` counts.
    Raises: ValueError.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in OPTIONS:
            raise ValueError(f"leveret_journal has no option {name!r}; it has {', '.join(OPTIONS)}")
    where = given.get("journal") or given.get("path")
    if not where:
        raise ValueError("say which journal: .load(PATH), or option journal")
    table = given.get("table", "events")
    names = given.get("columns")
    wanted = None if names is None else [name.strip() for name in names.split(",") if name.strip()]
    columns = _columns_of(table, schema) or chosen(table, wanted)
    is_strict = str(given.get("failondataloss", "true")).lower() == "true"
    return TableReader(where, table, columns, strict=is_strict, least=number_of(given, "minpartitions", 1))


def number_of(options: Mapping[str, str], name: str, otherwise: int) -> int:
    """A whole number above 0 from an option. Raises: ValueError."""
    text = options.get(name, str(otherwise))
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"option {name}: {text!r} is not a whole number above 0")
    return int(text)


def _columns_of(table: str, schema: Iterable[Any]) -> Columns:
    """The columns that a schema names, in its order. Raises: ValueError (the table has no such columns)."""
    found = []
    for field_ in schema:
        (known,) = chosen(table, [field_.name])
        type_ = field_.dataType.simpleString()
        if type_ != known.type or (known.nullable and not field_.nullable):
            wanted = f"{type_}{'' if field_.nullable else ' NOT NULL'}"
            raise ValueError(f"column {known.name!r} of table {table!r} is {ddl((known,))}, not {wanted}")
        found.append(known._replace(nullable=field_.nullable))
    return tuple(found)


def bound_of(options: Mapping[str, str], side: str, otherwise: str) -> Bound:
    """The beginning or end of a range, from the option {side}Timestamp, else {side}Offsets. `side`: starting, ending.

    Raises: ValueError, JournalError."""
    moment = options.get(f"{side}Timestamp")
    if moment is not None:
        if not moment.isdecimal():
            raise ValueError(f"option {side}Timestamp: {moment!r} is not a number of milliseconds since 1970")
        return int(moment) * 1000
    text = options.get(f"{side}Offsets", otherwise)
    if text in (EARLIEST, LATEST):
        return text
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"option {side}Offsets: {text!r} is neither earliest, latest nor JSON") from error
    return Position.from_dict(value)


def bounds_of(options: Mapping[str, str]) -> tuple[Bound, Bound]:
    """The beginning and end of a batch. Raises: ValueError (also if no row can be between them), JournalError."""
    start, end = bound_of(options, "starting", EARLIEST), bound_of(options, "ending", LATEST)
    if start == LATEST:
        raise ValueError("option startingOffsets: a batch that begins with latest has no rows")
    if end == EARLIEST:
        raise ValueError("option endingOffsets: a batch that ends with earliest has no rows")
    if isinstance(start, int) and isinstance(end, int) and start > end:
        raise ValueError("option endingTimestamp: it is before startingTimestamp")
    return start, end


def bound_position(plan: JournalPlan, bound: Bound) -> Position:
    """The position of a bound. Raises: JournalError (a position in another journal), Damaged, OSError."""
    if isinstance(bound, Position):
        plan.check(bound)
        return bound
    if isinstance(bound, int):
        return plan.position_at(bound)
    return plan.first() if bound == EARLIEST else plan.end()
