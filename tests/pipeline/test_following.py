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

from leveret.pipeline.following import Follower
from leveret.pipeline.lake import compact, retention
from leveret.pipeline.lake.lake import ALWAYS, committed_files, kept_in
from leveret.pipeline.lake.tables import open_table
from leveret.pipeline.options import parse
from leveret.pipeline.running import run_in
from leveret.pipeline.starting import Engines

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


def follower(root: Path, *words: str) -> Follower:
    options = parse(["follow", "--journal", str(root / "brokers"), "--lake", str(root / "lake"), *words])
    return Follower(Engines(options), options)


def said(capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Lines of JSON, and sentences."""
    lines = capsys.readouterr().err.splitlines()
    return [json.loads(one) for one in lines if one[0] == "{"], [one for one in lines if one[0] != "{"]


def versions(lake: Path) -> list[int]:
    return [open_table(str(lake), table).version() for table in ALWAYS]


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
    for table in ALWAYS:
        assert in_lake(lake, table) == in_journal(brokers / "a", table) + in_journal(brokers / "b", table), table
    assert len(committed_files(str(lake), "events")) < 10


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
    kept = kept_in(str(tmp_path / "lake"))
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

    monkeypatch.setattr(Follower, "round", interrupted)
    options.members = []
    assert run_in(Engines(options), options, {}) == 0
