"""Lakes in tests: filled without Spark, read as any program reads them, and made as the release before made them."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

from pyarrow import parquet

from leveret.pipeline.lake.ingest import IngestOptions, ingest
from leveret.pipeline.lake.lake import committed_files
from leveret.pipeline.lake.parts import WriteTask
from leveret.pipeline.progress import Progress
from leveret.pipeline.reading.positions import JournalPlan
from leveret.pipeline.reading.table_reader import TableReader
from leveret.pipeline.schemas import TABLES


def fill(journal: Path, lake: Path, **more: Any) -> dict[str, Any]:
    """An ingest by this process; its result."""
    return ingest(None, IngestOptions(str(journal), str(lake), **more), Progress("ingest", io.StringIO()))


def in_journal(journal: Path, table: str = "events") -> Counter[str]:
    """The rows that a lake of the journal must have."""
    reader = TableReader(str(journal), table, TABLES[table])
    return counted([row for batch in reader.all_batches() for row in batch.to_pylist()])


def in_lake(lake: Path, table: str = "events") -> Counter[str]:
    """The rows of the files that count, without `date` and what tells the node."""
    files = committed_files(str(lake), table)
    names = [one.name for one in TABLES[table]]
    read = [parquet.read_table(path, partitioning=None) for path in files]
    return counted([{name: row.get(name) for name in names} for rows in read for row in rows.to_pylist()])


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    """How often each row is there."""
    return Counter(json.dumps({name: str(row[name]) for name in sorted(row)}) for row in rows)


def fill_as_before(journal: Path, lake: Path, tables: tuple[str, ...] = tuple(TABLES)) -> None:
    """What Spark's file sink made of a journal: parts, its list of them by absolute paths, offsets and commits."""
    plan = JournalPlan(str(journal))
    end = plan.end()
    for table in tables:
        slices = plan.slices(plan.first(), end)
        work = WriteTask(str(journal), plan.directory, str(lake), (table,))
        made = [one for part in slices for one in work.write(part)]
        (lake / table / "_spark_metadata").mkdir(parents=True)
        entries = [json.dumps({"path": f"file://{lake}/{table}/{one.path}", "size": one.octets}) for one in made]
        (lake / table / "_spark_metadata" / "0").write_text("\n".join(["v1", *entries]))
        for log, text in (("offsets", f"v1\n{{}}\n{json.dumps(end.as_dict())}"), ("commits", "v1\n{}")):
            (lake / "_checkpoints" / table / log).mkdir(parents=True)
            (lake / "_checkpoints" / table / log / "0").write_text(text)
        (lake / "_checkpoints" / table / "metadata").write_text("{}")
