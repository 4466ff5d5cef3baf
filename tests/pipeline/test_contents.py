"""What a lake says whose contents are not complete, and about a time that it does not reach."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from recorded_broker import RecordedBroker

from leveret.engine import Field
from leveret.pipeline.__main__ import main

TO_DEAD = {"x-dead-letter-exchange": Field("S", b""), "x-dead-letter-routing-key": Field("S", b"dead")}
#: Each message comes a minute after the one before. A harness's clock begins at 22:13:20.
MINUTES = ("22:13:20", "22:14:20", "22:15:20", "22:16:20")


class Story:
    """Messages that die one after the other, and ingests between them."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self._capsys = path, capsys
        self.one = RecordedBroker(path / "journal", segment_size=3000)
        self.one.declare("dead")
        self.one.declare("q", arguments=TO_DEAD)

    def death(self) -> None:
        """Of message N, with header n=N."""
        number = len(list(self.one.vhost.queues.named("dead").messages())) + 1
        self.one.publish("q", headers={"n": Field("S", b"%d" % number)})
        tag, *_ = self.one.session.get(self.one.vhost.queues.named("q"), no_ack=False) or (0,)
        self.one.session.reject(tag, requeue=False)
        self.one.settle()
        self.one.tick()
        self.one.clock.advance_ns(60 * 10**9)

    def ingest(self, *more: str) -> None:
        words = ["ingest", "--journal", str(self.path / "journal"), "--lake", str(self.path / "lake"), *more]
        assert main(words) == 0
        self._capsys.readouterr()

    def ask(self, job: str, *more: str, code: int = 0) -> dict[str, Any]:
        """The result of a job, and `said`: what it wrote on stderr."""
        assert main([job, "--lake", str(self.path / "lake"), "--format", "json", *more]) == code
        out, said = self._capsys.readouterr()
        return {**json.loads(out or "{}"), "said": said}


@pytest.fixture
def story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Story:
    return Story(tmp_path, capsys)


def outcomes(answer: dict[str, Any]) -> dict[str, int]:
    return {row["outcome"]: row["n"] for row in answer["table"]}


def test_contents_end_before_the_events(story: Story) -> None:
    """The last ingest was without --payloads: what arrived since counts as not recorded, and not as lost."""
    story.death()
    story.ingest("--payloads")
    assert "missing" not in story.ask("deadletters")
    story.death()
    story.ingest()
    found = story.ask("deadletters")
    assert outcomes(found) == {"arrived": 1, "not recorded": 1}
    assert "published up to record" in found["missing"] and "ingest --payloads` adds the newer" in found["missing"]
    assert found["missing"] in found["said"]
    assert story.ask("trace", "n=1")["rows"] > 0
    assert "published up to record" in story.ask("trace", "n=2", code=1)["said"]
    replayed = story.ask("replay", "--where", "queue = 'q'")
    assert (replayed["chosen"], "published up to record" in replayed["missing"]) == (1, True)
    assert "missing" not in story.ask("deadletters", "--until", f"2023-11-14T{MINUTES[1]}"), "they reach as far as that"
    story.ingest("--payloads")
    assert outcomes(story.ask("deadletters")) == {"arrived": 2}


def test_contents_begin_after_the_events(story: Story) -> None:
    """The journal had deleted its first records before the first ingest with --payloads."""
    story.death()
    story.ingest()
    for _ in range(3):
        story.death()
    story.one.checkpoint()
    story.one.tick()
    story.ingest()
    first, *_ = sorted((story.path / "journal").glob("*.log"))
    first.unlink()
    story.ingest("--payloads", "--past-deleted")
    found = story.ask("deadletters")
    assert outcomes(found)["arrived"] < 4 and outcomes(found)["not recorded"] == 4 - outcomes(found)["arrived"]
    assert "from record" in found["missing"] and "adds the newer" not in found["missing"]


def test_until_is_before_what_the_lake_has(story: Story) -> None:
    """Nothing then: no contents, no copies of later, and a sentence; an empty answer alone looks like good news."""
    story.death()
    story.death()
    story.ingest("--payloads")
    early = story.ask("audit", "--until", "2023-11-14T22:00")
    assert (early["fates"], early["rows"]) == ({}, 0)
    assert "nothing from before --until: its first record is of 2023-11-14T22:13:20Z" in early["missing"]
    before = ("--until", f"2023-11-14T{MINUTES[1]}")
    assert outcomes(story.ask("deadletters", *before)) == {"arrived": 1}
    assert "no message 'n=2'" in story.ask("trace", "n=2", *before, code=1)["said"]
    said = story.ask("replay", "--where", "true", "--until", "2023-11-14T22:00", code=1)["said"]
    assert "no contents from before --until" in said


def test_until_is_after_what_the_lake_has(story: Story) -> None:
    """Of a lake that nobody filled since: the answer may lack something, and says so."""
    story.death()
    story.death()
    story.ingest()
    for until, is_reached in ((MINUTES[1], True), (MINUTES[3], False)):
        found = story.ask("loss", "--until", f"2023-11-14T{until}")
        assert ("the last record in the lake is of 2023-11-14T22:14:20Z" in found.get("missing", "")) is not is_reached
        assert ("missing" in found["said"]) is not is_reached
