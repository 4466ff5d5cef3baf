"""Files of other times than those asked for are not opened, and the answers are the same as if they were; what several
jobs of one start need is computed once, with the same answers."""

import io
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from lakes import fill
from recorded_broker import RecordedBroker

from leveret.engine import Field
from leveret.pipeline.jobs import opening
from leveret.pipeline.jobs.commands import OpenTables, run
from leveret.pipeline.lake.lake import committed_files, read_table
from leveret.pipeline.options import parse
from leveret.pipeline.progress import Progress

HOUR_NS = 3600 * 10**9
JOBS = ("audit", "latency", "depth", "redelivery", "loss", "fairness", "blocked", "deadletters")
#: The story begins on the 14th at 22:13:20, and has something every three hours, for three days.
MIDDLE, MIDNIGHT, BEFORE = "2023-11-15T13:13:20", "2023-11-16", "2023-11-14T22:13:20"


@pytest.fixture(scope="module", params=["a clock that goes on", "a clock that jumps back"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages that wait over midnight, come back, are pushed out; four ingests, so that days have several files."""
    path = tmp_path_factory.mktemp("pruning")
    one = RecordedBroker(path / "journal", segment_size=1 << 16)
    one.declare("q")
    one.declare("ring", arguments={"x-max-length": Field("l", 3)})
    for step in range(24):
        one.publish("q", 3)
        one.publish("ring", 2, persistent=step % 2 == 0)
        tag = one.session.get(one.vhost.queues.named("q"), no_ack=False)[0]
        one.session.reject(tag, requeue=step % 3 > 0)
        one.settle()
        one.get("q", 1)
        if step % 6 == 5:
            one.checkpoint()
            one.tick()
            fill(path / "journal", path / "lake")
        one.clock.advance_ns(3 * HOUR_NS)
        if step == 12 and "jumps" in request.param:
            one.clock.jump_wall_ms(-20 * 3_600_000)
    one.declare("late")
    one.publish("late")
    one.tick()
    fill(path / "journal", path / "lake")
    return path / "lake"


def answer(engine: Any, lake: Path, job: str, *arguments: str) -> tuple[Any, ...]:
    """Rows and facts."""
    found = run(engine, job, parse([job, "--lake", str(lake), *arguments]), Progress(job, io.StringIO()))
    assert found.main is not None
    return list(found.main.head()), {name: fact for name, fact in found.facts.items() if name != "seconds"}


@pytest.mark.parametrize("times", [("--until", MIDDLE), ("--since", MIDDLE, "--until", MIDNIGHT), ("--until", BEFORE)])
def test_the_same_answers(engine: Any, lake: Path, times: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each job, whatever the clock did."""
    # The files are chosen before an engine is asked, and for most jobs alike.
    jobs = ("depth",) if engine.name != "local" else JOBS if "--since" in times else ("audit", "depth", "latency")
    pruned = [answer(engine, lake, job, *times) for job in jobs]
    monkeypatch.setattr(opening, "committed_files", lambda lake, table, *_: committed_files(lake, table))
    monkeypatch.setattr(opening, "read_table", lambda spark, lake, table, *_: read_table(spark, lake, table))
    for job, found in zip(jobs, pruned, strict=True):
        assert found == answer(engine, lake, job, *times), job
    assert times[1] == BEFORE or all(rows for job, (rows, _) in zip(jobs, pruned, strict=True) if job == "depth")


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_other_files_are_not_opened(engine: Any, lake: Path, tmp_path: Path) -> None:
    """They are not even there: of later days for any job, of earlier ones for those that need nothing from them."""
    away = tmp_path / "away"
    for job, times, kept in (
        ("audit", ("--until", MIDDLE), {"2023-11-14", "2023-11-15"}),
        ("depth", ("--until", MIDNIGHT), {"2023-11-14", "2023-11-15"}),
        ("latency", ("--since", MIDNIGHT), {"2023-11-16", "2023-11-17"}),
    ):
        expected = answer(engine, lake, job, *times)
        hidden = [one for one in (lake / "events").glob("date=*") if one.name.removeprefix("date=") not in kept]
        assert hidden
        away.mkdir()
        for one in hidden:
            one.rename(away / one.name)
        try:
            with pytest.raises(ValueError, match="the lake's file is missing"):
                answer(engine, lake, job)
            assert answer(engine, lake, job, *times) == expected
        finally:
            for one in hidden:
                (away / one.name).rename(one)
            away.rmdir()


def test_a_queue_of_another_time_is_known(engine: Any, lake: Path) -> None:
    """It had nothing then; a name that the lake never knew is an error."""
    assert answer(engine, lake, "latency", "--queue", "q", "--since", "2099-01-01")[0] == []
    assert answer(engine, lake, "depth", "--queue", "late", "--until", MIDDLE)[0] == []
    with pytest.raises(ValueError, match="knows no queue 'nobody'"):
        answer(engine, lake, "depth", "--queue", "nobody", "--until", MIDDLE)


@pytest.mark.parametrize("engine", ["local"], indirect=True)
@pytest.mark.parametrize("chosen", [(), ("--queue", "ring", "--until", MIDNIGHT)])
def test_several_jobs_share(engine: Any, lake: Path, chosen: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The lives of messages are folded once, in whatever order the jobs are; each says what it says alone."""
    made: list[tuple[str, bool]] = []
    view = engine.view

    def counting(name: str, sql: str, *, cached: bool = False) -> None:
        made.append((name, cached))
        view(name, sql, cached=cached)

    jobs = ["depth", "audit", "loss"]
    alone = [answer(engine, lake, job, *chosen) for job in jobs]
    monkeypatch.setattr(engine, "view", counting)
    options = parse([",".join(jobs), "--lake", str(lake), *chosen])
    opened = OpenTables()
    for job, (rows, facts) in zip(jobs, alone, strict=True):
        found = run(engine, job, options, Progress(job, io.StringIO()), opened)
        assert found.main is not None
        assert list(found.main.head()) == rows, job
        assert {name: fact for name, fact in found.facts.items() if name != "seconds"} == facts
    assert [one for one in made if one[0] == "lives"] == [("lives", True)]
    assert sum(name == "whole_events" for name, _ in made) == 1
