"""`leveret pipeline follow`: brokers that come, record, go and come back; each row once, in a lake that stays small."""

import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from lakes import in_journal, in_lake
from recorded_broker import RecordedBroker

from leveret.pipeline import follow_command
from leveret.pipeline.follow_command import JournalFollower
from leveret.pipeline.lake import compact, retention
from leveret.pipeline.lake.delta_tables import open_table
from leveret.pipeline.lake.lake import COMMIT_ORDER, committed_files, retained_in
from leveret.pipeline.lazy_engines import LazyEngines
from leveret.pipeline.options import Refused, parse
from leveret.pipeline.running import check, run, run_with

DAY_NS = 86_400 * 10**9
FIRST = date(2023, 11, 14)  # of the brokers' clock


def broker(path: Path) -> RecordedBroker:
    one = RecordedBroker(path / "journal", segment_size=6000)
    one.declare("q")
    return one


def go_on(one: RecordedBroker, passing_ns: int = 0) -> None:
    one.clock.advance_ns(passing_ns)
    one.publish("q", 5)
    one.get("q", 4)
    one.tick()


def follower(root: Path, *words: str) -> JournalFollower:
    options = parse(["follow", "--journal", str(root / "brokers"), "--lake", str(root / "lake"), *words])
    return JournalFollower(LazyEngines(options), options)


def said(capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Lines of JSON, and sentences."""
    lines = capsys.readouterr().err.splitlines()
    return [json.loads(one) for one in lines if one[0] == "{"], [one for one in lines if one[0] != "{"]


def versions(lake: Path) -> list[int]:
    return [open_table(str(lake), table).version() for table in COMMIT_ORDER]


def test_brokers_that_come_and_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is read when it has grown; one that cannot be is told of once, and keeps none back."""
    monkeypatch.setattr(compact, "SMALL_MAX", 3)
    lake, brokers = tmp_path / "lake", tmp_path / "brokers"
    a = broker(brokers / "a")
    go_on(a)
    followed = follower(tmp_path)
    followed.round()
    before = versions(lake)
    followed.round()
    assert versions(lake) == before, "nothing is new, so there is no commit"
    lines, sentences = said(capsys)
    assert [(one["step"], one["events"] > 0) for one in lines] == [("read", True)] and not sentences
    b = broker(brokers / "b")
    for _ in range(4):
        go_on(a)
        go_on(b)
        followed.round()
    steps = [(one["step"], one.get("node")) for one in said(capsys)[0]]
    assert steps.count(("read", "a")) == steps.count(("read", "b")) == 4 and ("compacted", None) in steps
    (brokers / "b").rename(tmp_path / "away")
    go_on(a)
    for _ in range(2):
        followed.round()
    assert in_lake(lake) == in_journal(brokers / "a") + in_journal(tmp_path / "away")
    (brokers / "b" / "journal").mkdir(parents=True)
    (brokers / "b" / "journal" / "format").write_text("{")
    assert said(capsys)[1] == []
    go_on(a)
    for _ in range(2):
        followed.round()
    assert len(said(capsys)[1]) == 1
    shutil.rmtree(brokers / "b")
    (tmp_path / "away").rename(brokers / "b")
    go_on(b)
    followed.round()
    for table in COMMIT_ORDER:
        assert in_lake(lake, table) == in_journal(brokers / "a", table) + in_journal(brokers / "b", table), table
    assert len(committed_files(str(lake), "events")) < 10


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_a_day_in_fast_motion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A round a minute; a broker comes, and is killed and started again every two hours: each row once, memory flat."""
    brokers = tmp_path / "brokers"
    there = {"a": broker(brokers / "a")}
    followed = follower(tmp_path, "--every", "60s")
    octets: list[int] = []
    for minute in range(24 * 60):
        if minute >= 120 and minute % 120 == 0:
            there["b"] = broker(brokers / "b")
        if minute >= 120 and minute % 120 == 90:
            there.pop("b").kill()
        for one in there.values():
            go_on(one, 60 * 10**9)
        followed.round()
        if minute % 60 == 59:
            octets.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    for table in COMMIT_ORDER:
        assert in_lake(tmp_path / "lake", table) == in_journal(brokers / "a", table) + in_journal(brokers / "b", table)
    assert said(capsys)[1] == []
    assert len(committed_files(str(tmp_path / "lake"), "events")) < 2 * compact.SMALL_MAX + 10
    assert max(octets[12:]) < 1.1 * max(octets[:12]), [one // 10**6 for one in octets]


def test_days_that_are_too_old(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a day; not before there is a lake."""
    days = [FIRST]
    monkeypatch.setattr(retention, "today", lambda: days[0])
    one = broker(tmp_path / "brokers" / "a")
    go_on(one)
    followed = follower(tmp_path, "--retain", "2d")
    followed.round()
    for _ in range(4):
        days[0] += timedelta(1)
        for _ in range(2):
            go_on(one, DAY_NS // 2)
            followed.round()
    assert [row["table"] for row in said(capsys)[0] if row["step"] == "dropped"].count("events") == 2
    kept = retained_in(str(tmp_path / "lake"))
    assert kept is not None and kept.day == days[0] - timedelta(2)


def test_until_it_is_told_to_end(tmp_path: Path) -> None:
    """SIGTERM is a good end: exit code 0, with what was read."""
    one = broker(tmp_path / "brokers" / "a")
    go_on(one)
    lake = tmp_path / "lake"
    command = [sys.executable, "-m", "leveret.pipeline", "follow", "--journal", str(tmp_path / "brokers" / "a")]
    with subprocess.Popen(
        [*command, "--lake", str(lake), "--every", "1h"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "LEVERET_PIPELINE_CHILD": ""},
    ) as process:  # fmt: skip
        assert process.stderr is not None and json.loads(process.stderr.readline())["step"] == "read"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    found = json.loads(out)
    assert (found["rounds"], found["rows"]["events"]) == (1, sum(in_journal(tmp_path / "brokers" / "a").values()))


def test_an_interrupt_in_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is a good end, too."""
    go_on(broker(tmp_path / "brokers" / "a"))
    options = parse(["follow", "--journal", str(tmp_path / "brokers"), "--lake", str(tmp_path / "lake")])

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(JournalFollower, "round", interrupted)
    options.sources = []
    assert run_with(LazyEngines(options), options, {}) == 0


def test_copies_of_one_broker_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Until one is gone; the others are read, and they are told of once."""
    brokers = tmp_path / "brokers"
    for name in "ab":
        go_on(broker(brokers / name))
    shutil.copytree(brokers / "b", brokers / "b.bak")
    followed = follower(tmp_path)
    for _ in range(2):
        followed.round()
    lines, sentences = said(capsys)
    assert [one["node"] for one in lines] == ["a"]
    assert len(sentences) == 1 and "b.bak" in sentences[0] and "have one id" in sentences[0]
    shutil.rmtree(brokers / "b.bak")
    followed.round()
    assert [one["node"] for one in said(capsys)[0]] == ["b"]


def test_failures_put_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A journal that fails again and again: after 1, 2, 4, ... rounds, and no more than five minutes. One that has
    been read begins anew."""
    go_on(broker(tmp_path / "brokers" / "a"))
    tried: list[int] = []
    followed = follower(tmp_path, "--every", "30s")

    def ingest(*_: object) -> dict[str, Any]:
        tried.append(followed._rounds)
        if followed._rounds == 26:
            return {"rows": {}, "lsn": 1, "seconds": 0}
        raise OSError(28, "No space left on device", "lake")

    monkeypatch.setattr(follow_command, "ingest_one", ingest)
    monkeypatch.setattr(follow_command, "_mark", lambda _: None)
    for _ in range(31):
        followed.round()
    assert tried == [1, 2, 4, 8, 16, 26, 27, 28, 30]
    assert said(capsys)[1] == ["leveret pipeline follow: lake: No space left on device"] * 2


def test_a_lost_cluster_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its session serves no further round."""
    go_on(broker(tmp_path / "brokers" / "a"))

    def ingest(*_: object) -> dict[str, Any]:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(follow_command, "ingest_one", ingest)
    words = ["--journal", str(tmp_path / "brokers"), "--lake", str(tmp_path / "lake"), "--master", "yarn"]
    assert run(parse(["follow", *words])) == 1
    assert "the cluster yarn is lost" in said(capsys)[1][0]


def test_a_failure_of_retention_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a success."""
    go_on(broker(tmp_path / "brokers" / "a"))
    followed = follower(tmp_path)
    results = iter([OSError(5, "bad", "lake"), OSError(5, "bad", "lake"), None, OSError(5, "bad", "lake")])

    def retain() -> None:
        if error := next(results):
            raise error

    monkeypatch.setattr(followed, "_ingest", lambda _: None)
    monkeypatch.setattr(followed, "_retain", retain)
    for _ in range(4):
        followed.round()
    assert said(capsys)[1] == ["leveret pipeline follow: lake: bad"] * 2


def test_a_copy_without_its_newest_segment_is_no_failure(tmp_path: Path) -> None:
    """It is not known whether it has grown."""
    path = tmp_path / "a"
    broker(path)
    assert follow_command._mark(str(path)) is not None
    for one in (path / "journal").glob("*.log"):
        one.unlink()
        one.symlink_to(tmp_path / "none")
    assert follow_command._mark(str(path)) is None and follow_command._mark(str(tmp_path / "none")) is None


def test_a_journal_that_is_not_there_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the start, either."""
    options = parse(["follow", "--journal", str(tmp_path / "brokers" / "a"), "--lake", str(tmp_path / "lake")])
    check(options)
    followed = JournalFollower(LazyEngines(options), options)
    for _ in range(2):
        followed.round()
    assert len(said(capsys)[1]) == 1
    go_on(broker(tmp_path / "brokers" / "a"))
    followed.round()
    assert [one["step"] for one in said(capsys)[0]] == ["read"]


@pytest.mark.parametrize("text", ["0s", "999ms", "8d", "200000d"])
def test_pauses_that_cannot_be(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """From a second to a week."""
    with pytest.raises(Refused):
        parse(["follow", "--journal", "a", "--lake", "b", "--every", text])
    assert "from 1s to 7d" in capsys.readouterr().err
