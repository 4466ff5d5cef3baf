"""Damage is data: what is sound is in the lake, each hole is a row, jobs say so, and no fault is made of a hole.

On both engines; without Spark's Java but for those marked so.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from damage import blocks_of, harm, holes_in
from lakes import fill, in_journal, in_lake
from recorded_broker import QUEUES, recorded
from told_events import told

from leveret.journal import JournalError
from leveret.journal.disk.files import REAL
from leveret.journal.disk.segment import opened, segments_in
from leveret.journal.disk.segment_scan import SegmentScan
from leveret.journal.recovery.check import verify
from leveret.journal.recovery.repair import repair
from leveret.pipeline.__main__ import main
from leveret.pipeline.engines.protocol import rows
from leveret.pipeline.jobs.audit import audit, fates, unknown
from leveret.pipeline.jobs.opening import open_tables
from leveret.pipeline.lake.lake import committed_files
from leveret.pipeline.reading.positions import JournalPlan
from leveret.pipeline.reading.table_reader import TableReader
from leveret.pipeline.schemas import EVENTS, TABLES


def lsns_in(lake: Path) -> set[int]:
    """Of its events."""
    return {int(json.loads(row)["lsn"]) for row in in_lake(lake)}


def test_a_bad_block_is_a_hole(tmp_path: Path) -> None:
    """All other records are there, of the segments before it and behind it and of its own; it is told once."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    recorded(journal).close()
    whole = {int(json.loads(row)["lsn"]) for row in in_journal(journal)}
    base = segments_in(REAL, str(journal))[1]
    offset, first, behind = blocks_of(journal, base)[4]
    harm(journal, base, offset)
    with pytest.raises(JournalError, match=f"records {first} to {behind - 1} are lost"):
        fill(journal, lake, strict=True)
    assert not committed_files(str(lake), "events")
    result = fill(journal, lake)
    assert result["rows"]["holes"] == 1 and fill(journal, lake)["rows"]["holes"] == 0
    (hole,) = holes_in(lake)
    assert [hole[name] for name in ("first_lsn", "last_lsn", "why")] == [first, behind - 1, "a bad block"]
    assert (hole["file_offset"], hole["octets"]) == (offset, octets_of_bad(journal, base, offset))
    assert hole["journal"] == JournalPlan(str(journal)).journal_id
    assert hole["before_ts"] is not None and hole["before_ts"] <= hole["after_ts"]
    assert lsns_in(lake) == whole - set(range(first, behind))


def octets_of_bad(path: Path, base: int, offset: int) -> int:
    """Octets from a bad block to the whole one behind it."""
    with opened(REAL, str(path), base) as handle:
        scan = SegmentScan(REAL, handle, base)
        assert list(scan) and scan.position == offset
        later = scan.next_block()
        assert later is not None
    return later.offset - offset


def test_names_of_a_lost_block_are_found_elsewhere(tmp_path: Path) -> None:
    """The head of a segment defines its names; the next segment's does so, too."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    recorded(journal).close()
    base = segments_in(REAL, str(journal))[1]
    harm(journal, base, 0)
    fill(journal, lake)
    named = {json.loads(row)["queue"] for row in in_lake(lake)}
    assert named == {"", *QUEUES} and len(holes_in(lake)) == 1


@pytest.mark.parametrize("what", ["segment", "footer", "end", "tail"])
def test_what_is_missing_is_a_hole(what: str, tmp_path: Path) -> None:
    """A whole segment, its end, a damaged end of the open one below what was durable; a lost footer alone is none."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = recorded(journal)
    whole = {int(json.loads(row)["lsn"]) for row in in_journal(journal)}
    bases = segments_in(REAL, str(journal))
    base = bases[-1] if what == "tail" else bases[2]
    (file,) = journal.glob(f"*{base}.log")
    blocks = blocks_of(journal, base)
    lost: tuple[int, int] | None = (base, bases[3])
    if what == "segment":
        file.unlink()
    elif what == "footer":
        file.write_bytes(file.read_bytes()[:-10])
        lost = None
    elif what == "end":
        file.write_bytes(file.read_bytes()[: blocks[-4][0]])
        lost = (blocks[-4][1], bases[3] - 1)
    else:
        harm(journal, base, blocks[2][0])
        lost = blocks[2][1:]
    fill(journal, lake)
    assert [(row["first_lsn"], row["last_lsn"] + 1) for row in holes_in(lake)] == [lost] * (lost is not None)
    assert lsns_in(lake) == whole - set(range(*(lost or (0, 0))))
    one.publish("q", 2)
    one.tick()
    assert fill(journal, lake)["rows"] == {"holes": 0, "events": 4, "snapshots": 0, "checkpoints": 0, "segments": 0}


def test_a_stream_may_pass_over_damage(tmp_path: Path) -> None:
    """With failOnDataLoss=false; else its query fails. Read in small pieces it has the same rows."""
    recorded(tmp_path).close()
    base = segments_in(REAL, str(tmp_path))[1]
    for at in (2, 3, 7):
        harm(tmp_path, base, blocks_of_all(tmp_path, base)[at])
    with pytest.raises(JournalError, match="are lost"):
        in_journal(tmp_path)
    for table in ("events", "holes"):
        reader = TableReader(str(tmp_path), table, TABLES[table], strict=False)
        plan = reader.plan()
        at, end, pieces = plan.first(), plan.end(), []
        while at != end:
            following = plan.advance(at, end, 500)
            for part in reader.slices(plan, at, following):
                pieces += [row for batch in reader.batches(plan.directory, part) for row in batch.to_pylist()]
            at = following
        every = [row for batch in reader.all_batches() for row in batch.to_pylist()]
        names = [column.name for column in EVENTS if column.name in ("lsn", "msg_id", "kind", "queue")]
        if table == "holes":
            assert sum(row["last_lsn"] - row["first_lsn"] + 1 for row in pieces) == sum(
                row["last_lsn"] - row["first_lsn"] + 1 for row in every
            )
            assert len(every) == 2, "two bad blocks beside each other are one hole"
        else:
            assert [[row[name] for name in names] for row in pieces] == [[row[name] for name in names] for row in every]


def blocks_of_all(path: Path, base: int) -> list[int]:
    """Offsets of the blocks of a segment, also of those behind a bad one."""
    (file,) = path.glob(f"*{base}.log")
    data = file.read_bytes()
    found, at = [], data.find(b"LVJ1")
    while at >= 0:
        found.append(at - 4)
        at = data.find(b"LVJ1", at + 1)
    return found


def lose(journal: Path, chosen: Callable[[int], bool]) -> tuple[int, int]:
    """Harm the blocks of the second segment that are chosen by their place; the records that are lost."""
    base = segments_in(REAL, str(journal))[1]
    found = [one for at, one in enumerate(blocks_of(journal, base)) if chosen(at)]
    for offset, _, _ in found:
        harm(journal, base, offset)
    return found[0][1], found[-1][2] - 1


@pytest.mark.parametrize("how", ["damaged", "repaired"])
def test_the_audit_tells_unknown_from_wrong(how: str, tmp_path: Path, engine: Any) -> None:
    """What a hole may explain is no fault; what happened well before it or behind it still is one."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    recorded(journal, 16).close()
    first, last = lose(journal, lambda at: 3 <= at <= 9)
    if how == "repaired":
        repair(str(journal), str(tmp_path / "repaired"))
        journal = tmp_path / "repaired"
        assert verify(str(journal)).gaps == [(first, last + 1)]
    fill(journal, lake)
    tables = open_tables(str(lake), engine)
    assert [(row["first_lsn"], row["last_lsn"]) for row in tables.holes()] == [(first, last)]
    assert f"{last - first + 1} records are lost in a hole of the journal" in (tables.holes_text() or "")
    assert rows(engine, audit(tables).faults) == []
    found = rows(engine, unknown(tables))
    assert {row["fault"] for row in found} >= {"lost"} and all(
        f"; records {first} to {last}, which are lost, may tell more" in row["detail"] for row in found
    )
    fate = {(row["msg_id"], row["queue"]): row["fate"] for row in rows(engine, fates(tables))}
    assert {fate[row["msg_id"], row["queue"]] for row in found} <= {"unknown", "acked"} and "open" in fate.values()


#: Events around the lost records 10 to 19; snapshots at (begin, end); what is a fault, what is unknown.
AROUND: dict[str, tuple[tuple[str, ...], dict[tuple[int, int], list[int]], list[int], list[int]]] = {
    "taken in the hole": (("1 0 published 1", "2 0 enqueued 1 q"), {(30, 31): []}, [], [1]),
    "gone before the hole": (("1 0 published 1", "2 0 enqueued 1 q"), {(5, 6): []}, [1], []),
    "open behind the hole": (("1 0 published 1", "2 0 enqueued 1 q", "25 0 delivered 1 q"), {(30, 31): []}, [1], []),
    "in the queue behind it": (("1 0 published 1", "2 0 enqueued 1 q"), {(30, 31): [1]}, [], []),
    "published in the hole": (("1 0 published 1", "25 0 acked 2 q", "26 0 published 3"), {}, [], [2]),
    "published before it": (("1 0 published 1", "2 0 published 2", "25 0 acked 1 q"), {}, [1], []),
    "published behind it": (("1 0 published 1", "26 0 published 3", "28 0 acked 3 q"), {}, [3], []),
    "acked before it": (("1 0 published 1", "2 0 acked 2 q"), {}, [2], []),
    "came in the hole": (("1 0 published 1", "26 0 published 3"), {(30, 31): [2]}, [], [2]),
    "came before the hole": (("1 0 published 1", "2 0 published 2", "26 0 published 3"), {(30, 31): [1]}, [1], []),
    "acked, and there": (("1 0 published 1", "2 0 enqueued 1 q", "3 0 acked 1 q"), {(30, 31): [1]}, [1], []),
    "acked twice": (("1 0 published 1", "2 0 enqueued 1 q", "3 0 acked 1 q", "25 0 acked 1 q"), {}, [1], []),
    "a part of the checkpoint is lost": (("1 0 published 1", "2 0 enqueued 1 q"), {(8, 22): []}, [], []),
}


@pytest.mark.parametrize("what", AROUND)
def test_what_a_hole_may_explain(what: str, engine: Any) -> None:
    """A fault that came of records before the hole, or behind it, is one."""
    events, held, wrong, untold = AROUND[what]
    snapshots: Any = {span: {"q": ids} for span, ids in held.items()}
    tables = told(engine, *events, snapshots=snapshots, holes=[(10, 12), (13, 19)])
    assert [row["msg_id"] for row in rows(engine, audit(tables).faults)] == wrong
    assert [row["msg_id"] for row in rows(engine, unknown(tables))] == untold


def test_jobs_say_what_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr and in their results; the audit ends with 0; --strict stops; the page says so."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed (make spark)")
    journal, lake, page = tmp_path / "journal", tmp_path / "lake", tmp_path / "page.html"
    recorded(journal, 16).close()
    first, last = lose(journal, lambda at: 3 <= at <= 9)
    common = ["--journal", str(journal), "--lake", str(lake)]
    assert main(["audit", *common, "--strict"]) == 1
    assert f"records {first} to {last} are lost" in capsys.readouterr().err
    assert main(["audit,loss,depth", *common]) == 0
    said = capsys.readouterr()
    for line in said.out.splitlines():
        answer = json.loads(line)
        assert f"{last - first + 1} records are lost in a hole of the journal" in answer["holes"]
        assert f"{first} to {last} (a bad block, after 20" in answer["holes"]
    assert sum('"step": "holes"' in line for line in said.err.splitlines()) == 4  # of the ingest, too
    assert json.loads(said.out.splitlines()[0])["unknown"]["lost"] > 0
    assert main(["report", "--lake", str(lake), "--out", str(page)]) == 0
    assert "records are lost in a hole of the journal" in page.read_text()
    assert "unknown: a hole may explain" in page.read_text() and "No fault" not in page.read_text()
    assert main(["loss", "--lake", str(lake), "--until", "2023-11-14T22:13:21"]) == 0
    assert "holes" not in json.loads(capsys.readouterr().out.splitlines()[-1]), "it was later"


def test_a_lake_of_before_opens(tmp_path: Path, engine: Any) -> None:
    """Without the table: no hole is known; the next ingest looks for them in what is left of the journal."""
    import shutil

    journal, lake = tmp_path / "journal", tmp_path / "lake"
    recorded(journal).close()
    first, last = lose(journal, lambda at: at == 5)
    repair(str(journal), str(tmp_path / "repaired"))
    fill(tmp_path / "repaired", lake)
    shutil.rmtree(lake / "holes")
    tables = open_tables(str(lake), engine)
    assert tables.holes() == [] and rows(engine, audit(tables).faults) != []
    assert fill(tmp_path / "repaired", lake)["rows"]["holes"] == 1
    tables = open_tables(str(lake), engine)
    assert [(row["first_lsn"], row["last_lsn"]) for row in tables.holes()] == [(first, last)]
    assert rows(engine, audit(tables).faults) == []
