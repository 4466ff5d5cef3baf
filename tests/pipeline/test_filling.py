"""What one node of a cluster has lost of the journal another one has: the hole of the lake is filled, each row once."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from damage import as_node_of_a_cluster, blocks_of, harm, holes_in
from lakes import fill, in_journal, in_lake
from recorded_broker import recorded

from leveret.journal.disk.files import REAL
from leveret.journal.disk.segment import segments_in
from leveret.pipeline.__main__ import main
from leveret.pipeline.lake import delta_tables as tables
from leveret.pipeline.lake import filling
from leveret.pipeline.lake.ingest import IngestOptions
from leveret.pipeline.lake.ingest import ingest as ingest_
from leveret.pipeline.lake.lake import COMMIT_ORDER
from leveret.pipeline.progress import Progress
from leveret.pipeline.reading.arrow_files import ArrowFiles
from leveret.pipeline.reading.positions import JournalPlan
from leveret.pipeline.schemas import TABLES

WITHOUT_HOLES = [table for table in TABLES if table != "holes"]


def copies(root: Path, count: int = 2) -> list[Path]:
    """Data directories of nodes of a cluster: several segments, with checkpoints."""
    recorded(root / "a" / "journal").close()
    as_node_of_a_cluster(root / "a")
    found = [root / name for name in "abc"[:count]]
    for path in found[1:]:
        shutil.copytree(root / "a", path)
    return found


def ingest(lake: Path, *places: Path, payloads: bool = True) -> None:
    given = [word for place in places for word in ("--journal", f"shop={place}")]
    assert main(["ingest", *given, "--lake", str(lake), *["--payloads"] * payloads]) == 0


def second_segment(data: Path) -> tuple[int, Path]:
    base = segments_in(REAL, str(data / "journal"))[1]
    return base, data / "journal" / f"{base:020d}.log"


def lose(data: Path, what: str) -> None:
    base, file = second_segment(data)
    blocks = blocks_of(data / "journal", base)
    if what == "segment":
        file.unlink()
    elif what == "end":
        file.write_bytes(file.read_bytes()[: blocks[-3][0]])
    else:
        for offset, _, _ in blocks[3:6]:
            harm(data / "journal", base, offset)


@pytest.mark.parametrize("what", ["blocks", "segment", "end"])
def test_a_hole_is_filled(what: str, tmp_path: Path) -> None:
    """By a copy that is named beside, at once or later; contents, too. What is filled is not read again."""
    whole, damaged = copies(tmp_path)
    lake = tmp_path / "lake"
    lose(damaged, what)
    ingest(lake, damaged)
    assert len(holes_in(lake)) == 1 and in_lake(lake) != in_journal(whole)
    for places in ((damaged, whole), (whole, damaged), (damaged,)):
        ingest(lake, *places)
        assert holes_in(lake) == [], places
        for table in WITHOUT_HOLES:
            assert in_lake(lake, table) == in_journal(whole, table), (table, places)
    ingest(tmp_path / "at once", damaged, whole)
    assert holes_in(tmp_path / "at once") == []
    assert in_lake(tmp_path / "at once") == in_journal(whole)


def test_pieces_of_a_hole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each copy fills what it has; what all have lost stays a hole, with its records; a later copy fills that."""
    sound, first, second = copies(tmp_path, 3)
    base, _ = second_segment(sound)
    blocks = blocks_of(sound / "journal", base)
    for data, chosen in ((first, blocks[2:8]), (second, blocks[4:6])):
        for offset, _, _ in chosen:
            harm(data / "journal", base, offset)
    lake = tmp_path / "lake"
    ingest(lake, first)
    spans = [(row["first_lsn"], row["last_lsn"] + 1) for row in holes_in(lake)]
    assert spans == [(blocks[2][1], blocks[7][2])]
    capsys.readouterr()
    ingest(lake, first, second)
    assert '"step": "filled", "events": ' in capsys.readouterr().err
    assert [(row["first_lsn"], row["last_lsn"] + 1) for row in holes_in(lake)] == [(blocks[4][1], blocks[5][2])]
    lost = in_journal(sound) - in_lake(lake)
    assert {int(json.loads(row)["lsn"]) for row in lost} <= set(range(blocks[4][1], blocks[5][2])) and lost
    ingest(lake, first, sound)
    assert holes_in(lake) == [] and in_lake(lake) == in_journal(sound)


def test_a_table_that_has_not_read_so_far(tmp_path: Path) -> None:
    """A hole waits for all tables of the lake: else one of them would lack it, or read it again."""
    whole, damaged = copies(tmp_path)
    lake = tmp_path / "lake"
    shutil.copytree(damaged, tmp_path / "early")
    for base in segments_in(REAL, str(damaged / "journal"))[1:]:
        (tmp_path / "early" / "journal" / f"{base:020d}.log").unlink()
    ingest(lake, tmp_path / "early")
    lose(damaged, "blocks")
    ingest(lake, damaged, payloads=False)
    ingest(lake, damaged, whole, payloads=False)
    assert len(holes_in(lake)) == 1
    ingest(lake, damaged, whole)
    assert holes_in(lake) == []
    for table in WITHOUT_HOLES:
        assert in_lake(lake, table) == in_journal(whole, table), table


def test_nothing_beyond_what_is_agreed(tmp_path: Path) -> None:
    """The end of a copy that not all nodes have fills nothing, whatever is there."""
    whole, _ = copies(tmp_path)
    end = JournalPlan(str(whole)).end().lsn
    last = segments_in(REAL, str(whole / "journal"))[-1]
    assert blocks_of(whole / "journal", last)[-1][2] > end > 100
    found = JournalPlan(str(whole), strict=False).whole_blocks(end - 100, end + 100)
    assert max(part.end_lsn for part in found) <= end


def test_a_broker_alone_is_filled_by_nothing(tmp_path: Path) -> None:
    """Its hole stays, also when it is read again."""
    whole, damaged = copies(tmp_path)
    lose(damaged, "blocks")
    lake = tmp_path / "lake"
    for _ in range(2):
        result: dict[str, Any] = fill(damaged, lake)
    assert len(holes_in(lake)) == 1 and result["rows"] == dict.fromkeys(COMMIT_ORDER, 0)
    assert in_lake(lake) < in_journal(whole)


@pytest.mark.parametrize(("is_stopped", "payloads"), [(False, False), (True, True)])
def test_a_broker_alone_is_filled_by_its_backup(
    is_stopped: bool, payloads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file that is put back: the next ingest has all, each row once; contents that it is asked for, too; also
    if it ends between the two."""
    whole, damaged = copies(tmp_path)
    lake = tmp_path / "lake"
    lose(damaged, "blocks")
    ingest(lake, damaged, payloads=False)
    shutil.copy(second_segment(whole)[1], second_segment(damaged)[1])
    if is_stopped:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(filling, "fill_holes", Mock(side_effect=KeyboardInterrupt))
            fill(damaged, lake, payloads=payloads)
    for _ in range(2):
        ingest(lake, damaged, payloads=payloads)
        assert holes_in(lake) == []
        for table in WITHOUT_HOLES if payloads else COMMIT_ORDER:
            assert table == "holes" or in_lake(lake, table) == in_journal(whole, table), table


@pytest.mark.parametrize(
    ("is_filled", "order"), [(True, ("damaged", "whole")), (True, ("damaged",)), (False, ("whole", "damaged"))]
)
def test_contents_that_are_asked_for_later(is_filled: bool, order: tuple[str, ...], tmp_path: Path) -> None:
    """A table that is made after a hole was met, or filled, has each row once, or there is a hole until it has."""
    whole, damaged = copies(tmp_path)
    lake = tmp_path / "lake"
    lose(damaged, "blocks")
    ingest(lake, damaged, payloads=False)
    if is_filled:
        ingest(lake, damaged, whole, payloads=False)
        assert holes_in(lake) == []
    ingest(lake, *({"whole": whole, "damaged": damaged}[name] for name in order))
    assert len(holes_in(lake)) == (order == ("damaged",))
    ingest(lake, damaged, whole)
    assert holes_in(lake) == []
    for table in WITHOUT_HOLES:
        assert in_lake(lake, table) == in_journal(whole, table), table


@pytest.mark.parametrize("is_cut", [False, True])
def test_contents_from_a_copy_that_has_a_part_of_a_hole(is_cut: bool, tmp_path: Path) -> None:
    """Asked for later: what it has comes once, with the rest of the hole, wherever a micro-batch ends."""
    whole, damaged, partly = copies(tmp_path, 3)
    lake = tmp_path / "lake"
    base, _ = second_segment(whole)
    blocks = blocks_of(whole / "journal", base)
    for data, chosen in ((damaged, blocks[2:9]), (partly, blocks[4:6])):
        for offset, _, _ in chosen:
            harm(data / "journal", base, offset)
    ingest(lake, damaged, payloads=False)
    given = ["--journal", f"shop={partly}", "--lake", str(lake), "--payloads"]
    assert main(["ingest", *given, *(["--max-bytes", "300"] if is_cut else [])]) == 0
    assert [(row["first_lsn"], row["last_lsn"] + 1) for row in holes_in(lake)] == [(blocks[4][1], blocks[5][2])]
    for places in ((partly, damaged), (partly, whole)):
        ingest(lake, *places)
    assert holes_in(lake) == []
    for table in WITHOUT_HOLES:
        assert in_lake(lake, table) == in_journal(whole, table), table


@pytest.mark.parametrize("what", ["read", "register"])
def test_a_copy_that_cannot_be_read(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Is told of once; the others fill."""
    damaged, bad, whole = copies(tmp_path, 3)
    lose(damaged, "blocks")
    if what == "read":
        _, file = second_segment(bad)
        file.unlink()
        file.mkdir()
    else:
        shutil.rmtree(bad / "journal" / "readers", ignore_errors=True)
        (bad / "journal" / "readers").write_text("")
    ingest(tmp_path / "lake", damaged, bad, whole)
    assert capsys.readouterr().err.count(f'"what": "{bad} fills no holes: ') == 1
    assert holes_in(tmp_path / "lake") == []
    assert in_lake(tmp_path / "lake", "payloads") == in_journal(whole, "payloads")


def test_what_no_copy_has_is_not_searched_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In `follow`: not before a copy's segments are others."""
    first, second = copies(tmp_path)
    whole = tmp_path / "whole"
    shutil.copytree(first, whole)
    for data in (first, second):
        lose(data, "blocks")
    searched: list[str] = []
    found = JournalPlan.whole_blocks

    def whole_of(plan: JournalPlan, first_lsn: int, end_lsn: int) -> Any:
        searched.append(plan.where)
        return found(plan, first_lsn, end_lsn)

    monkeypatch.setattr(JournalPlan, "whole_blocks", whole_of)
    lake = str(tmp_path / "lake")
    known: dict[Any, Any] = {}
    asked = IngestOptions(str(first), lake, node="shop", copies=(str(second),), searched=known)
    counts = []
    for _ in range(3):
        ingest_(None, asked, Progress("ingest"))
        counts.append(len(searched))
    assert counts == [2, 2, 2] and len(holes_in(tmp_path / "lake")) == 1
    shutil.copy(second_segment(whole)[1], second_segment(second)[1])
    ingest_(None, asked, Progress("ingest"))
    assert holes_in(tmp_path / "lake") == []


@pytest.mark.parametrize("where", ["commit", "part"])
def test_a_batch_that_fails_leaves_no_parts(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk does not get fuller by each attempt; what is committed stays."""
    (data,) = copies(tmp_path, 1)
    lake = tmp_path / "lake"

    def full(*_: object, **__: object) -> Any:
        raise OSError(28, "No space left on device", str(lake))

    with monkeypatch.context() as patched:
        if where == "part":
            patched.setattr(ArrowFiles, "make_durable", full)
        else:

            def commit(delta: Any, lake: str, table: str, *more: Any) -> Any:
                return full() if table == "snapshots" else tables.commit(delta, lake, table, *more)

            patched.setattr("leveret.pipeline.lake.ingest.commit", commit)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                ingest_(None, IngestOptions(str(data), str(lake)), Progress("ingest"))
    there = {path.parts[len(lake.parts)] for path in lake.rglob("*.parquet")}
    assert there == ({"events", "nodes"} if where == "commit" else set())
    fill(data, lake)
    assert in_lake(lake) == in_journal(data) and in_lake(lake, "snapshots") == in_journal(data, "snapshots")
