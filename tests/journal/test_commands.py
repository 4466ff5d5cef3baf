"""`leveret journal verify`, `repair`, `cat`: exit codes and what they say."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_workload import ID, PATH, SMALL, Driver, model_of, opened, run_workload
from simulated_files import SimulatedFiles

from leveret.__main__ import main
from leveret.engine import ManualClock
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.engine.messages.field_table import Field
from leveret.journal import Journal, recover
from leveret.journal.recovery.check import verify
from leveret.journal.recovery.repair import repair


@pytest.fixture
def journal(tmp_path: Path) -> tuple[Path, Driver]:
    """A closed journal of a few segments on a real disk."""
    directory = tmp_path / "data" / "journal"
    driver = Driver(Journal.open(str(directory), ManualClock(), SMALL, threaded=False, new_id=ID))
    run_workload(driver)
    for _ in range(12):
        driver.publish([b"more" * 200], "a")
        driver.journal.wait(driver.journal.commit())
    driver.journal.close()
    return directory, driver


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def test_sound(journal: tuple[Path, Driver], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0; the broker's data directory does as well as the journal's."""
    directory, _ = journal
    assert len(segments(directory)) > 1
    assert main(["journal", "verify", str(directory)]) == 0
    assert "sound" in capsys.readouterr().out
    assert main(["journal", "verify", str(directory.parent), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["faults"] == []


def test_torn(journal: tuple[Path, Driver], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1 when a write was cut short and nothing else."""
    directory, _ = journal
    newest = segments(directory)[-1]
    newest.write_bytes(newest.read_bytes()[:-5])
    assert main(["journal", "verify", str(directory)]) == 1
    assert newest.name in capsys.readouterr().out


def test_damaged(journal: tuple[Path, Driver], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2; segment, offset, which records are lost."""
    directory, _ = journal
    first = segments(directory)[0]
    data = bytearray(first.read_bytes())
    data[1000] ^= 1
    first.write_bytes(data)
    assert main(["journal", "verify", str(directory), "--json"]) == 2
    (fault,) = json.loads(capsys.readouterr().out)["faults"]
    assert fault["segment"] == first.name and fault["offset"] <= 1000 and fault["lost"].startswith("records ")
    segments(directory)[1].unlink()
    assert main(["journal", "verify", str(directory)]) == 2
    assert "does not follow" in capsys.readouterr().out


def test_repair(journal: tuple[Path, Driver], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is whole is saved, what is lost is told, the result is sound and starts."""
    directory, driver = journal
    second = segments(directory)[1]
    data = bytearray(second.read_bytes())
    data[3000] ^= 1
    second.write_bytes(data)
    out = tmp_path / "out"
    assert main(["journal", "repair", str(directory), "--out", str(out)]) == 0
    assert "lost: records" in capsys.readouterr().out
    assert main(["journal", "verify", str(out)]) == 0
    assert "earlier repair" in capsys.readouterr().out
    again = Journal.open(str(out), ManualClock())
    found = model_of(again.recovered, again)
    assert 5 < len(found["a"]) <= len(driver.model["a"])
    assert found["b"] == driver.model["b"]
    again.close()
    assert main(["journal", "repair", str(directory), "--out", str(out)]) == 2
    assert "not empty" in capsys.readouterr().err


def test_cat(journal: tuple[Path, Driver], capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object a line, names beside ids."""
    directory, _ = journal
    assert main(["journal", "cat", str(directory), "--bodies"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["lsn"] for row in rows] == list(range(1, len(rows) + 1))
    published = next(row for row in rows if row["kind"] == "published")
    assert (published["body"], published["exchange"], published["queues"]) == ("one", "amq.direct", ["a", "b"])
    assert published["properties"] == {"delivery_mode": 2}
    enqueued = next(row for row in rows if row["kind"] == "enqueued")
    assert (enqueued["queue"], enqueued["vhost"], enqueued["flags"]) == ("a", "/", ["durable"])
    assert {"define", "head", "footer", "snapshot", "checkpoint", "bound", "purged"} <= {row["kind"] for row in rows}
    assert main(["journal", "cat", str(directory), "--from", "30"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["lsn"] == 30


def test_cat_of_numbers_that_json_does_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A client may publish them; every line is JSON, with null in their place."""
    directory = tmp_path / "data" / "journal"
    driver = Driver(Journal.open(str(directory), ManualClock(), SMALL, threaded=False, new_id=ID))
    driver.declare("a")
    table = {"n": Field("d", float("nan")), "many": Field("A", [Field("d", float("inf")), Field("d", 0.5)])}
    content = NATIVE.join(encode_header(1, {"headers": table}), b"x")
    driver.journal.messages.published(
        [1], driver.exchange, b"key", NATIVE.columns([content]), queue_ids=[driver.queue_ids["a"]]
    )
    driver.journal.wait(driver.journal.commit())
    driver.journal.close()
    assert main(["journal", "cat", str(directory), "--bodies"]) == 0
    (headers,) = (
        row["properties"]["headers"]
        for row in map(json.loads, capsys.readouterr().out.splitlines())
        if row["kind"] == "published"
    )
    assert headers == {"n": None, "many": [None, 0.5]}


@pytest.mark.parametrize("verb", ["verify", "cat", "repair"])
def test_no_journal_there(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence, no traceback."""
    (tmp_path / "x").mkdir()
    more = ["--out", str(tmp_path / "out")] if verb == "repair" else []
    for directory in (tmp_path / "x", tmp_path / "absent"):
        assert main(["journal", verb, str(directory), *more]) == 2
        assert "no journal here" in capsys.readouterr().err


def test_repair_without_the_format_file(journal: tuple[Path, Driver], tmp_path: Path) -> None:
    """The id is in the segments too."""
    directory, driver = journal
    (directory / "format").unlink()
    assert main(["journal", "repair", str(directory), "--out", str(tmp_path / "out")]) == 0
    again = Journal.open(str(tmp_path / "out"), ManualClock())
    assert model_of(again.recovered, again) == driver.model
    again.close()


def recorded() -> tuple[SimulatedFiles, Driver, list[str]]:
    files = SimulatedFiles()
    driver = Driver(opened(files))
    run_workload(driver)
    for _ in range(12):
        driver.publish([b"more" * 200], "a")
        driver.journal.wait(driver.journal.commit())
    driver.journal.close()
    return files, driver, sorted(name for name in files.names_now if name.endswith(".log"))


FILES, DRIVER, NAMES = recorded()


@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.integers(0, 10_000), st.sampled_from(["flip", "zero", "cut", "unlink"])),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_is_damaged_repair_gives_a_journal(damages: list[tuple[str, int, str]]) -> None:
    """Verify never crashes; repair's result is sound, and every message in it has its own body."""
    files = FILES.crash()
    for name, at, how in damages:
        if name not in files.names_now:
            continue
        data = bytearray(files.content(name))
        at = at % (len(data) or 1)
        if how == "unlink":
            files.unlink(name)
        elif how == "cut":
            files.put(name, bytes(data[:at]))
        elif data:
            data[at : at + (1 if how == "flip" else 600)] = (
                b"\xee" if how == "flip" else bytes(len(data[at : at + 600]))
            )
            files.put(name, bytes(data))
    verify(PATH, files)
    result = repair(PATH, "out", files)
    report = verify("out", files)
    assert not report.faults and not report.torn_bytes, report
    recovered = recover(files, "out")
    assert not recovered.torn_bytes
    journal = Journal.open("out", ManualClock(), SMALL, files=files, threaded=False)
    for queue_id, queue in journal.recovered.queues.items():
        for message in queue.messages():
            body = NATIVE.split(journal.contents.read(message.content_lsn))[1]
            assert len(body) == message.size, (queue_id, message)
    assert result.records >= 0
