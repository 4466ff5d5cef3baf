"""One table of a journal, with the reader's choice of columns, rows, and range.

Shared by both kinds of Spark readers and programs without Spark: slices, then batches of each.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..schemas import EVENTS, Columns, chosen, ddl
from .arrow_files import locate
from .positions import JournalPlan, Position, Slice
from .predicate import EVENT_CODES, TABLE_CODES, Predicate

#: A batch of a stream is not much larger than this, unless the option is set.
OPTIONS = (
    *("path", "journal", "table", "columns", "pushdown", "reader", "from", "until", "maxbytespertrigger"),
    "failondataloss",
)


@dataclass(slots=True)
class TableReader:
    """`where`: path or URI of the journal or of its data directory. `strict`: damage is an error, else passed over."""

    where: str
    table: str = "events"
    columns: Columns = EVENTS
    predicate: Predicate = field(default_factory=Predicate)
    strict: bool = True

    def plan(self) -> JournalPlan:
        """The readable part. Raises: ForeignDirectory, OSError."""
        return JournalPlan(self.where, strict=self.strict, past_deleted=not self.strict)

    def slices(self, plan: JournalPlan, start: Position, end: Position) -> list[Slice]:
        """The slices that can contain a row. Raises: JournalGone, Damaged, OSError."""
        if self.table == "holes":
            return plan.slices(start, end)
        codes = TABLE_CODES.get(self.table, EVENT_CODES)
        found = plan.slices(start, end, lambda segment: self.predicate.may_be_in(segment, codes))
        if self.table == "segments":
            return [part for part in found if part.start == 0]
        return found

    def batches(self, directory: str, part: Slice) -> Iterator[Any]:
        """The rows of a slice as Arrow batches. Raises: JournalGone, Damaged, OSError."""
        # Not above: Spark starts a Python for each query that only plans, and these load pandas.
        from .chunks import read_chunks
        from .events import EventDecoder
        from .other_tables import TableDecoder

        files, _ = locate(self.where)
        is_events = self.table == "events"
        decoder: EventDecoder | TableDecoder = (
            EventDecoder(self.columns, self.predicate) if is_events else TableDecoder(self.table, self.columns)
        )
        for chunk in read_chunks(files, directory, part, strict=self.strict):
            yield from decoder.batches(chunk)

    def all_batches(self) -> Iterator[Any]:
        """Everything that is durable now, without Spark."""
        plan = self.plan()
        for part in self.slices(plan, plan.first(), plan.end()):
            yield from self.batches(plan.directory, part)


def reader_of(options: Mapping[str, str], schema: Iterable[Any] = ()) -> TableReader:
    """A reader for the options of a data source (names in any case), and for the schema that Spark was asked for.

    Args:   schema: fields with `name`, `dataType`, `nullable`; none: all columns, or those of the option.
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
    return TableReader(where, table, columns, strict=is_strict)


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


def position_of(options: Mapping[str, str], name: str) -> Position | None:
    """A position given as an option, in JSON. Raises: ValueError, JournalError."""
    text = options.get(name)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"option {name}: {text!r} is no JSON") from error
    return Position.of(value)
