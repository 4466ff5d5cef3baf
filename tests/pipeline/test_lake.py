"""The lake's tables: what is committed is there once, wherever the lake is, for all readers of such tables. No Java."""

import io
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from deltalake import DeltaTable
from lakes import fill, fill_as_before, in_journal, in_lake
from pyarrow import parquet
from recorded_broker import RecordedBroker

from leveret.journal import JournalError, reader_offsets
from leveret.journal.disk.segment import path_of
from leveret.journal.recovery.check import verify
from leveret.pipeline.__main__ import main
from leveret.pipeline.lake import compact as compacting
from leveret.pipeline.lake import delta_tables as lake_tables
from leveret.pipeline.lake import parts
from leveret.pipeline.lake.compact import compact
from leveret.pipeline.lake.delta_tables import Part, commit, open_table, position_of
from leveret.pipeline.lake.ingest import IngestOptions, check_journal, ingest
from leveret.pipeline.lake.lake import (
    COMMIT_ORDER,
    LakeBusy,
    check_even,
    committed_files,
    is_lake,
    lake_lock,
    reader_name,
    rows_by_node,
)
from leveret.pipeline.lake.nodes import Node, add_node, nodes_of
from leveret.pipeline.progress import Progress
from leveret.pipeline.reading.positions import JournalPlan, Slice
from leveret.pipeline.schemas import EVENTS, TABLES

DAY_NS = 86_400_000_000_000
DAY_US = DAY_NS // 1000
FIRST_US = 1_700_000_000_000_000


def filled(path: Path, **more: Any) -> RecordedBroker:
    """A journal with some messages and a checkpoint."""
    one = RecordedBroker(path, **more)
    one.declare("q")
    one.publish("q", 20)
    one.get("q", 5)
    one.checkpoint()
    one.tick()
    return one


def agree(journal: Path, lake: Path, tables: tuple[str, ...] = COMMIT_ORDER) -> None:
    """Each table has each row of the journal once."""
    for table in tables:
        assert in_lake(lake, table) == in_journal(journal, table), table


def test_tables_have_what_the_journal_has(tmp_path: Path) -> None:
    """All of them, segment by segment; again: nothing; more: what is new. The journal keeps nothing more for them."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = filled(journal, segment_size=3000)
    assert not is_lake(str(lake)) and committed_files(str(lake), "events") == []
    first = fill(journal, lake, payloads=True)
    agree(journal, lake, tuple(TABLES))
    assert first["rows"]["events"] == rows_by_node(str(lake), "events").total() and not rows_by_node(
        str(tmp_path), "events"
    )
    assert first["rows"]["payloads"] == 20 and first["rows"]["segments"] > 1 and is_lake(str(lake))
    assert set(fill(journal, lake, payloads=True)["rows"].values()) == {0}
    one.publish("q", 5)
    one.close()
    assert fill(journal, lake, payloads=True)["rows"]["events"] == 10
    agree(journal, lake, tuple(TABLES))
    end = JournalPlan(str(journal)).end().lsn
    assert reader_offsets(str(journal)) == {reader_name(str(lake), table): end for table in TABLES}


def test_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each has written is committed at once."""
    monkeypatch.setattr(parts, "PARALLEL_OCTETS", 0)
    filled(tmp_path / "journal", segment_size=3000)
    fill(tmp_path / "journal", tmp_path / "lake", processes=2)
    agree(tmp_path / "journal", tmp_path / "lake")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_damaged_journal(processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strictly: said, from whichever process; what came before it in earlier batches stays, and nothing of the batch
    itself."""
    monkeypatch.setattr(parts, "PARALLEL_OCTETS", 0)
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = filled(journal, segment_size=3000)
    fill(journal, lake)
    before = in_lake(lake)
    one.publish("q", 60)
    one.close()
    path = sorted(journal.glob("*.log"))[-2]
    whole = path.read_bytes()
    path.write_bytes(whole[:900] + bytes([whole[900] ^ 1]) + whole[901:])
    fault = verify(str(journal)).faults[0]
    lost = f"segment {path.name}, offset {fault.offset}: a bad block; {fault.lost} are lost; `leveret journal verify"
    with pytest.raises(JournalError, match=re.escape(lost)):
        fill(journal, lake, processes=processes, strict=True)
    assert in_lake(lake) == before
    path.write_bytes(whole)
    fill(journal, lake, processes=processes)
    agree(journal, lake)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux to wait for processes of others")
def test_the_processes_end_with_the_ingest() -> None:
    """Also if it is killed while they work: a lake's files are nobody's then, and nothing goes on to write them."""
    program = (
        "import os, signal, sys; from multiprocessing import get_context; from concurrent.futures import *;"
        "from leveret.pipeline.lake.parts import _end_with_parent;"
        "pool = ProcessPoolExecutor(1, get_context('spawn'), initializer=_end_with_parent);"
        "print(pool.submit(os.getpid).result(), flush=True); pool.submit(signal.pause); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        worker = os.pidfd_open(int(process.stdout.readline()))
        try:
            process.kill()
            assert select.select([worker], [], [], 30)[0]
        finally:
            os.close(worker)


def test_a_table_that_was_left_behind(tmp_path: Path) -> None:
    """Killed between two commits, tables end at different places: each goes on from its own, in several batches."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = filled(journal, segment_size=3000)
    fill(journal, lake)
    shutil.copytree(lake / "snapshots", tmp_path / "snapshots")
    one.publish("q", 5)
    one.checkpoint()
    one.close()
    fill(journal, lake, max_bytes=1000)
    shutil.rmtree(lake / "snapshots")
    (tmp_path / "snapshots").rename(lake / "snapshots")
    assert {name: count > 0 for name, count in fill(journal, lake)["rows"].items() if count} == {"snapshots": True}
    agree(journal, lake)


@pytest.mark.parametrize("how", ["moved", "copied", "linked"])
def test_a_lake_somewhere_else(how: str, tmp_path: Path) -> None:
    """It is read where it is now, also read-only; the next ingest adds what is new and deletes nothing."""
    one = filled(tmp_path / "journal")
    old, new = tmp_path / "old", tmp_path / "with a space, é#"
    fill(tmp_path / "journal", old)
    if how == "moved":
        old.rename(new)
    elif how == "copied":
        shutil.copytree(old, new)
        shutil.rmtree(old)
    else:
        new.symlink_to(old)
    files = committed_files(str(new), "events")
    assert files and all(one.startswith(f"{new}/events/date=2023-11-14/part-") for one in files)
    agree(tmp_path / "journal", new)
    one.publish("q", 5)
    one.tick()
    assert fill(tmp_path / "journal", new)["rows"]["events"] == 10
    assert set(files) < set(committed_files(str(new), "events"))
    agree(tmp_path / "journal", new)
    assert set(fill(tmp_path / "journal", new)["rows"].values()) == {0}
    assert old.exists() == (how == "linked")


def test_a_lake_that_cannot_be_written(tmp_path: Path) -> None:
    """A mount that is read-only is as good as any to read."""
    filled(tmp_path / "journal")
    lake = tmp_path / "lake"
    fill(tmp_path / "journal", lake)
    for path in (lake, *lake.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        before = sorted(lake.rglob("*"))
        agree(tmp_path / "journal", lake)
        assert sorted(lake.rglob("*")) == before
    finally:
        for path in (lake, *lake.rglob("*")):
            path.chmod(0o755)


def test_a_part_of_a_lake_is_refused(tmp_path: Path) -> None:
    """Without its log, with a log that has a gap, or without one of its files: said, and nothing is deleted."""
    filled(tmp_path / "journal")
    lake = tmp_path / "lake"
    fill(tmp_path / "journal", lake)
    (name,) = committed_files(str(lake), "events")
    shutil.copytree(lake, tmp_path / "no log", ignore=shutil.ignore_patterns("_*"))
    shutil.copytree(lake, tmp_path / "gap")
    (tmp_path / "gap" / "events" / "_delta_log" / f"{0:020d}.json").unlink()
    shutil.copytree(lake, tmp_path / "no file")
    (tmp_path / "no file" / Path(name).relative_to(lake)).unlink()
    for copy, words in (("no log", "no ingest of this lake wrote it"), ("gap", "_delta_log: "), ("no file", "missing")):
        before = sorted((tmp_path / copy).rglob("*.parquet"))
        with pytest.raises(ValueError, match=words):
            committed_files(str(tmp_path / copy), "events")
        if copy != "no file":
            with pytest.raises(ValueError, match=words):
                fill(tmp_path / "journal", tmp_path / copy)
        assert sorted((tmp_path / copy).rglob("*.parquet")) == before


def test_a_lake_of_which_a_table_is_missing_or_behind(tmp_path: Path) -> None:
    """Half a copy would be answered with losses that never were; a file that was cut is said as such."""
    filled(tmp_path / "journal")
    lake = tmp_path / "lake"
    fill(tmp_path / "journal", lake)
    check_even(str(lake))
    for table in ("events", "snapshots", "checkpoints"):
        copy = tmp_path / f"no {table}"
        shutil.copytree(lake, copy)
        shutil.rmtree(copy / table)
        with pytest.raises(ValueError, match=f"no {table}/{table} is not filled as far as "):
            check_even(str(copy))
        fill(tmp_path / "journal", copy)
        check_even(str(copy))
        agree(tmp_path / "journal", copy)
    behind = tmp_path / "behind"
    shutil.copytree(lake, behind)
    max((behind / "events" / "_delta_log").glob("*.json")).unlink()
    with pytest.raises(ValueError, match="behind/events is not filled as far as snapshots, of record "):
        check_even(str(behind))
    (name,) = committed_files(str(lake), "events")
    os.truncate(name, 100)
    with pytest.raises(ValueError, match=r"parquet: the lake's file has 100 octets, not \d+; copy"):
        committed_files(str(lake), "events")


def test_a_lake_that_is_a_uri(tmp_path: Path) -> None:
    """The same through the libraries' own file systems, as for object stores."""
    one = filled(tmp_path / "journal")
    uri = (tmp_path / "with a space").as_uri()

    def run() -> int:
        options = IngestOptions((tmp_path / "journal").as_uri(), uri)
        return int(ingest(None, options, Progress("ingest", io.StringIO()))["rows"]["events"])

    assert run() > 0
    one.publish("q", 5)
    one.tick()
    assert run() == 10 and run() == 0
    assert all(path.startswith(f"{uri}/events/date=2023-11-14/part-") for path in committed_files(uri, "events"))
    agree(tmp_path / "journal", tmp_path / "with a space")
    assert compact(uri, Progress("compact", io.StringIO()), 0)["after"]["events"] == 1
    agree(tmp_path / "journal", tmp_path / "with a space")


def test_bad_names(tmp_path: Path) -> None:
    """A table that is not there, a table that no ingest made."""
    with pytest.raises(ValueError, match="there is no table 'event'; there are events"):
        committed_files(str(tmp_path), "event")
    assert committed_files(str(tmp_path / "100%"), "events") == []
    filled(tmp_path / "journal")
    fill(tmp_path / "journal", tmp_path / "lake")
    table = open_table(str(tmp_path / "lake"), "events")
    table.alter.set_table_description("another")
    with pytest.raises(JournalError, match="no ingest wrote this table"):
        fill(tmp_path / "journal", tmp_path / "lake")


@pytest.mark.parametrize("name", ["a%20b", "a[b", "a]b", "a\\b", "a^b", "a|b", "a\nb", "a\x7fb", "a\udcffb"])
def test_names_that_delta_cannot_have(name: str, tmp_path: Path) -> None:
    """It would look somewhere else, or panic: said before anything is made."""
    filled(tmp_path / "journal")
    with pytest.raises(ValueError, match="the path of a lake cannot have '.+' in it"):
        fill(tmp_path / "journal", tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


@pytest.mark.parametrize("name", ["journal", "journal/lake", "link/deep/lake"])
def test_a_lake_among_the_files_of_the_journal(name: str, tmp_path: Path) -> None:
    """Is refused: whoever deletes such a lake would delete the journal."""
    filled(tmp_path / "journal")
    (tmp_path / "link").symlink_to("journal")
    with pytest.raises(ValueError, match="in the directory of the journal"):
        check_journal(str(tmp_path / name), JournalPlan(str(tmp_path / "journal")))
    check_journal(str(tmp_path / "journal-lake"), JournalPlan(str(tmp_path / "journal")))


@pytest.mark.parametrize("how", ["another", "wiped", "shorter"])
def test_another_journal_is_refused(how: str, tmp_path: Path) -> None:
    """Also one of the same name, also one restored from before: no reader is registered with it, nothing is added."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = filled(journal)
    shutil.copytree(journal, tmp_path / "before")
    one.publish("q", 5)
    one.close()
    fill(journal, lake)
    shutil.rmtree(journal)
    words = "which the lake .* has read"
    if how == "shorter":
        shutil.copytree(tmp_path / "before", journal)
        words = "the journal ends before record .* up to which the lake .* has read"
    else:
        filled(journal).close()
    with pytest.raises(JournalError, match=words):
        fill(journal, lake)
    assert reader_offsets(str(journal)) == {}


def test_a_node_of_the_same_directory_without_rows(tmp_path: Path) -> None:
    """After an ingest was killed and the journal made anew: the name is taken, and another one is accepted."""
    add_node(str(tmp_path / "lake"), Node(tmp_path.name, "0" * 32))
    filled(tmp_path / "journal").close()
    with pytest.raises(JournalError, match="has journal 0+, this is journal .*give it another name"):
        fill(tmp_path / "journal", tmp_path / "lake")
    fill(tmp_path / "journal", tmp_path / "lake", node="anew")
    assert [one.name for one in nodes_of(str(tmp_path / "lake"))] == sorted(("anew", tmp_path.name))


def test_the_block_that_proved_the_last_records_is_lost(tmp_path: Path) -> None:
    """In a power cut, or cut off in a cluster. Nothing is added, and no older records are asked for."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = filled(journal)
    for _ in range(3):
        one.publish("q")
    fill(journal, lake)
    position = position_of(open_table(str(lake), "events"), JournalPlan(str(journal)).journal_id)
    assert position is not None
    os.truncate(path_of(str(journal), position.segment), position.offset)
    assert JournalPlan(str(journal)).end().place < position.place
    result = fill(journal, lake)
    assert result["lsn"] == position.lsn and not any(result["rows"].values())
    assert {reader_offsets(str(journal))[reader_name(str(lake), table)] for table in COMMIT_ORDER} == {position.lsn}


def test_one_ingest_at_a_time(tmp_path: Path) -> None:
    """By a lock; and where there is none, the commit of the second is refused, whatever it has written."""
    one = filled(tmp_path / "journal")
    lake = str(tmp_path / "lake")
    with lake_lock(lake), pytest.raises(LakeBusy, match="another ingest is at work"), lake_lock(lake):
        raise AssertionError
    fill(tmp_path / "journal", tmp_path / "lake")
    late = open_table(lake, "events")
    one.publish("q", 5)
    one.tick()
    fill(tmp_path / "journal", tmp_path / "lake")
    with pytest.raises(ValueError, match="another ingest is at work"):
        commit(late, lake, "events", [], JournalPlan(str(tmp_path / "journal")).end())
    agree(tmp_path / "journal", tmp_path / "lake")


def test_new_columns_are_null_in_older_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake of the release before: its next ingest adds them."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = filled(journal)
    with monkeypatch.context() as before:
        before.setitem(TABLES, "events", tuple(one for one in EVENTS if one.name != "size_bytes"))
        count = fill(journal, lake)["rows"]["events"]
    one.publish("q", 5)
    one.tick()
    fill(journal, lake)
    found = DeltaTable(lake / "events").to_pyarrow_table()
    assert found.column("size_bytes").null_count == count
    assert found.num_rows == count + 10 == sum(in_journal(journal).values())


def test_a_lake_of_a_later_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other columns stay, null in what this one adds."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = filled(journal)
    count = fill(journal, lake)["rows"]["events"]
    one.publish("q", 5)
    one.tick()
    monkeypatch.setitem(TABLES, "events", tuple(one for one in EVENTS if one.name != "size_bytes"))
    fill(journal, lake)
    found = DeltaTable(lake / "events").to_pyarrow_table()
    assert found.column("size_bytes").null_count == 10 and found.num_rows == count + 10


def test_an_empty_journal(tmp_path: Path) -> None:
    """Nothing is there yet; what comes then is added."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = RecordedBroker(journal)
    for path in journal.glob("*.log"):
        path.rename(path.with_suffix(".away"))
    assert set(fill(journal, lake)["rows"].values()) == {0}
    assert is_lake(str(lake)) and committed_files(str(lake), "events") == []
    for path in journal.glob("*.away"):
        path.rename(path.with_suffix(".log"))
    one.declare("q")
    one.publish("q", 5)
    one.tick()
    fill(journal, lake, payloads=True)
    agree(journal, lake, tuple(TABLES))


def test_other_readers_see_the_same(tmp_path: Path) -> None:
    """delta-rs by the table's own log, with `date`; what an ingest that was killed has left counts for nobody."""
    filled(tmp_path / "journal")
    fill(tmp_path / "journal", tmp_path / "lake")
    (part,) = map(Path, committed_files(str(tmp_path / "lake"), "events"))
    shutil.copy(part, part.with_name("part-of-a-killed-ingest.parquet"))
    found = DeltaTable(tmp_path / "lake" / "events").to_pyarrow_table()
    assert found.num_rows == sum(in_journal(tmp_path / "journal").values()) == sum(in_lake(tmp_path / "lake").values())
    assert {str(day) for day in found.column("date").to_pylist()} == {"2023-11-14"}


def test_a_lake_of_before_in_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """It has been moved since: read as it is, migrated, and then as any other; what its log lacks is said."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = filled(journal, segment_size=3000)
    fill_as_before(journal, tmp_path / "original")
    (tmp_path / "original").rename(lake)
    agree(journal, lake)
    assert rows_by_node(str(lake), "events").total() == sum(in_journal(journal).values())
    shutil.copytree(lake, tmp_path / "part")
    shutil.rmtree(tmp_path / "part" / "events" / "_spark_metadata")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for path, words in ((tmp_path / "part", "lacks batch 0"), (tmp_path / "none", "no lake here")):
        assert main(["migrate", "--lake", str(path)]) == 1
        assert words in capsys.readouterr().err
    assert main(["migrate", "--lake", str(lake)]) == 0
    said = json.loads(capsys.readouterr().out)["migrated"]
    assert set(said) == set(TABLES) and said["events"] > 1
    assert not list(lake.rglob("_spark_metadata")) and not (lake / "_checkpoints").exists()
    agree(journal, lake, tuple(TABLES))
    assert main(["migrate", "--lake", str(lake)]) == 0, "once more there is nothing to do"
    assert json.loads(capsys.readouterr().out)["migrated"] == {}
    one.publish("q", 5)
    one.close()
    assert fill(journal, lake, payloads=True)["rows"]["payloads"] == 5
    agree(journal, lake, tuple(TABLES))
    assert main(["compact", "--lake", str(lake), "--keep-hours", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["after"]["events"] == 1
    agree(journal, lake, tuple(TABLES))


def test_files_of_other_days_are_passed_over(tmp_path: Path) -> None:
    """By the statistics in the log: rows of three days, some of them in one segment."""
    one = RecordedBroker(tmp_path / "journal")
    one.declare("q")
    for _ in range(3):
        one.publish("q", 4)
        one.clock.advance_ns(DAY_NS)
    one.tick()
    fill(tmp_path / "journal", tmp_path / "lake")
    lake = str(tmp_path / "lake")
    assert len(committed_files(lake, "events")) == 3
    (second,) = committed_files(lake, "events", FIRST_US + DAY_US, FIRST_US + 2 * DAY_US)
    assert "date=2023-11-15" in second
    assert len(committed_files(lake, "events", since_us=FIRST_US + DAY_US)) == 2
    assert len(committed_files(lake, "events", until_us=FIRST_US + DAY_US)) == 1
    assert committed_files(lake, "events", until_us=FIRST_US) == []
    log = json.loads((tmp_path / "lake" / "events" / "_delta_log" / f"{1:020d}.json").read_text().splitlines()[1])
    statistics = json.loads(log["add"]["stats"])
    assert statistics["numRecords"] and statistics["maxValues"]["queue"] == "q"


def test_compaction(tmp_path: Path) -> None:
    """One file a day, the same rows in their order; what was replaced, or never counted, goes when it is old."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = filled(journal)
    for _ in range(3):
        fill(journal, lake)
        one.publish("q", 3)
        one.tick()
    before = committed_files(str(lake), "events")
    stray = Path(before[0]).with_name("part-stray.parquet")
    shutil.copy(before[0], stray)
    result = compact(str(lake), Progress("compact", io.StringIO()))
    assert (result["before"]["events"], result["after"]["events"], result["deleted"]) == (3, 1, 0)
    assert all(map(os.path.exists, before)), "a job may still read them"
    fill(journal, lake)
    assert len(committed_files(str(lake), "events")) == 2
    result = compact(str(lake), Progress("compact", io.StringIO()), 0)
    assert result["deleted"] and not stray.exists() and not any(map(os.path.exists, before))
    agree(journal, lake)
    (only,) = committed_files(str(lake), "events")
    lsns = parquet.read_table(only, partitioning=None).column("lsn").to_pylist()
    assert lsns == sorted(lsns)
    assert compact(str(lake), Progress("compact", io.StringIO()))["after"]["events"] == 1


@pytest.mark.parametrize("fails", ["reading", "committing"])
def test_a_compaction_that_fails(fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves no files behind: the disk may be full."""
    lake = tmp_path / "lake"
    one = filled(tmp_path / "journal")
    for _ in range(2):
        fill(tmp_path / "journal", lake)
        one.publish("q", 5)
        one.tick()
    fill(tmp_path / "journal", lake)
    before = set(lake.rglob("*.parquet"))

    def fail(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    if fails == "reading":
        monkeypatch.setattr(parts, "_conformed", fail)
    else:
        monkeypatch.setattr(compacting, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        compact(str(lake), Progress("compact", io.StringIO()))
    assert set(lake.rglob("*.parquet")) == before


def full(*_: object, **__: object) -> Any:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("step", ["open", "write_table", "close", "commit", "oldest day"])
def test_a_full_disk_leaves_no_files(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever step of the first file finds it full, and when a file is finished because another day needs one."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = filled(journal)
    if step == "oldest day":  # the nodes are known then
        fill(journal, lake)
        one.publish("q", 5)
        one.tick()
    before = set(lake.rglob("*.parquet"))
    make = parquet.ParquetWriter

    class Full(parquet.ParquetWriter):  # type: ignore[misc]
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            if step == "open":
                full()

    with monkeypatch.context() as patched:
        patched.setattr(parts.parquet, "ParquetWriter", Full)
        if step in ("write_table", "close"):
            patched.setattr(make, step, full)
        elif step == "commit":
            patched.setattr("leveret.pipeline.lake.nodes.create", full)
        elif step == "oldest day":
            patched.setattr(parts, "OPEN_MAX", 1)
            patched.setattr(parts, "_by_day", lambda batch: [("2026-01-01", batch), ("2026-01-02", batch)])
            patched.setattr(parts.ArrowFiles, "make_durable", full)
        with pytest.raises(OSError, match="No space left"):
            fill(journal, lake)
    assert set(lake.rglob("*.parquet")) == before
    fill(journal, lake)
    agree(journal, lake)


def test_a_process_that_fails_leaves_no_files_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of slices that were finished meanwhile are in no commit."""
    lake = tmp_path / "lake"
    (lake / "events").mkdir(parents=True)
    is_written = threading.Event()

    class Work:
        """Fails at the first slice when the second is written."""

        lake = str(tmp_path / "lake")

        def write(self, part: Slice) -> list[Part]:
            if part.segment == 1:
                assert is_written.wait(60)
                full()
            (lake / "events" / "second.parquet").touch()
            is_written.set()
            return [Part("events", "second.parquet", None, 1, 1, "{}")]

    monkeypatch.setattr(parts, "PARALLEL_OCTETS", 0)
    monkeypatch.setattr(parts, "ProcessPoolExecutor", lambda count, context, initializer: ThreadPoolExecutor(count))
    monkeypatch.setattr(parts, "as_completed", lambda pending: list(pending))
    work: Any = Work()
    with pytest.raises(OSError, match="No space left"):
        list(parts.by_processes(work, [Slice(one, 0, 1, 1, 2, True) for one in (1, 2)], 2))
    assert list(lake.rglob("*.parquet")) == []


def test_an_ingest_compacts_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a day has many small files; it goes on where it was."""
    monkeypatch.setattr(compacting, "SMALL_MAX", 2)
    one = filled(tmp_path / "journal")
    for _ in range(4):
        fill(tmp_path / "journal", tmp_path / "lake")
        one.publish("q", 3)
        one.tick()
    fill(tmp_path / "journal", tmp_path / "lake")
    assert len(committed_files(str(tmp_path / "lake"), "events")) <= 2
    agree(tmp_path / "journal", tmp_path / "lake")


def test_logs_are_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position outlives it."""
    monkeypatch.setitem(lake_tables.PROPERTIES, "delta.checkpointInterval", "2")
    one = filled(tmp_path / "journal")
    for _ in range(5):
        fill(tmp_path / "journal", tmp_path / "lake")
        one.publish("q", 3)
        one.tick()
    log = tmp_path / "lake" / "events" / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
    journal = JournalPlan(str(tmp_path / "journal")).journal_id
    position = position_of(open_table(str(tmp_path / "lake"), "events"), journal)
    newest = max(log.glob("*.checkpoint.parquet")).name[:20]
    for path in log.glob("*.json"):
        if path.name[:20] < newest:
            path.unlink()
    assert position_of(open_table(str(tmp_path / "lake"), "events"), journal) == position
    fill(tmp_path / "journal", tmp_path / "lake")
    agree(tmp_path / "journal", tmp_path / "lake")


def test_nothing_new_loads_next_to_nothing(tmp_path: Path) -> None:
    """Neither Spark, nor what decodes a journal; and nothing is written."""
    filled(tmp_path / "journal")
    fill(tmp_path / "journal", tmp_path / "lake")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    program = (
        "import sys; from leveret.pipeline.__main__ import main; code = main(sys.argv[1:]);"
        "print(sorted({'pyspark', 'pandas', 'pyarrow.parquet'} & set(sys.modules))); sys.exit(code)"
    )
    arguments = ["ingest", "--journal", str(tmp_path / "journal"), "--lake", str(tmp_path / "lake")]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result, modules = done.stdout.splitlines()
    assert modules == "[]"
    assert set(json.loads(result)["rows"].values()) == {0}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
