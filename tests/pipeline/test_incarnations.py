"""A queue that was deleted and declared again as another kind: each part of its story counts as what it was then."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from lakes import fill
from recorded_broker import RecordedBroker
from told_events import answered, told

from leveret.engine import table_of_json
from leveret.pipeline.__main__ import main
from leveret.pipeline.answers import Answer
from leveret.pipeline.engines.protocol import rows
from leveret.pipeline.jobs import report
from leveret.pipeline.jobs.audit import allowed
from leveret.pipeline.jobs.failures import loss, redelivery
from leveret.pipeline.jobs.opening import open_tables
from leveret.pipeline.jobs.report import ReportRequest
from leveret.pipeline.jobs.whatif import left_out, whatif
from leveret.pipeline.selection import Selection

STREAM, PLAIN = {"x-queue-type": "stream"}, {}
START = "settings_changed 0 reason={} vhost="
#: (Milliseconds, event). Message 1 is read twice, and 2 delivered twice, before and after a start and a takeover.
STORY = (
    (0, START), (0, "declared 0 q{first}"), (0, "published 1"), (0, "enqueued 1 q"),
    (1, "delivered 1 q attempt=1 consumer=a"), (2, "delivered 1 q attempt=1 consumer=b"), (3, "expired 1 q"),
    (4, "undeclared 0 q"), (5, "declared 0 q{second}"), (6, "published 2"), (6, "enqueued 2 q"),
    (7, "delivered 2 q attempt=1 consumer=a"), (8, START), (9, "led 0 reason=n2"),
    (9, "delivered 2 q attempt=1 consumer=b"), (10, "expired 2 q"),
)  # fmt: skip
OF_STREAM = " reason=" + json.dumps(STREAM, separators=(",", ":"))


@pytest.mark.parametrize(("first", "second", "plain"), [(OF_STREAM, "", 2), ("", OF_STREAM, 1)])
def test_each_message_counts_as_its_queue_was(engine: Any, first: str, second: str, plain: int) -> None:
    """What expires from a stream is discarded, from a plain queue lost; a stream's readers redeliver nothing."""
    lines = [f"{lsn} {ms} {what}" for lsn, (ms, what) in enumerate(STORY, 1)]
    lines = [line.replace("{first}", first).replace("{second}", second) for line in lines]
    tables = told(engine, *lines)
    (row,) = answered(tables, "loss", loss(tables))
    assert (row.n, row.bytes, row.discarded) == (1, 10, 1)
    again = {row.msg_id: row.redeliveries for row in answered(tables, "redelivery", redelivery(tables))}
    assert again == {plain: 1}
    shown = report._deliveries(ReportRequest("a story", Selection(), tables, lambda *_: Answer("audit"), ""))
    assert shown == [{"vhost": "/", "queue": "q", "deliveries": 2, "n": 1}]
    twice = {row.msg_id for row in answered(tables, "allowed", allowed(tables))}
    assert twice == ({2} if plain == 2 else set()), "of a plain queue, across the takeover"


def story(path: Path, *kinds: dict[str, Any]) -> None:
    """A queue that is each of these kinds in turn. Each time five messages come, and three are taken or read."""
    one = RecordedBroker(path)
    for kind in kinds:
        one.declare("q", arguments=table_of_json(kind))
        one.publish("q", 5)
        one.clock.advance_ns(2_000_000)
        reader = one.connect()
        more = {"x_stream_offset": "first"} if kind == STREAM else {}
        one.consume("q", by=reader, prefetch=3, **more)
        one.settle()
        for tag in sorted(reader.unacked)[:3]:
            reader.ack(tag)
        one.settle()
        reader.close()
        one.clock.advance_ns(2_000_000)
        one.vhost.queues.delete("q", one.client)
        one.settle()
        one.clock.advance_ns(2_000_000)
    one.close()


@pytest.mark.parametrize("kinds", [(STREAM, PLAIN), (PLAIN, STREAM), (PLAIN, STREAM, PLAIN)])
def test_what_was_no_stream_is_simulated(engine: Any, kinds: tuple[dict[str, Any], ...], tmp_path: Path) -> None:
    """And the stream is named, with its records."""
    story(tmp_path / "journal", *kinds)
    fill(tmp_path / "journal", tmp_path / "lake")
    tables = open_tables(str(tmp_path / "lake"), engine)
    found = {row["what"]: row for row in rows(engine, whatif(tables, ""))}
    assert found["enqueued"]["was"] == 5 * kinds.count(PLAIN)
    assert found["acknowledged"]["was"] == 3 * kinds.count(PLAIN)
    assert [row for row in found.values() if row["was"] != row["would_be"]] == []
    of_stream = "SELECT lsn FROM events WHERE kind = 'declared' AND reason LIKE '%stream%'"
    ((begin,),) = [tuple(row.values()) for row in rows(engine, of_stream)]
    assert f"keep what was read: q (/, from record {begin} " in left_out(tables)
    assert left_out(tables).endswith(" on)") == (kinds[-1] == STREAM)


def test_each_part_has_its_own_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ring of two, then of four, then none: by the last declaration alone, `--verify` would find differences."""
    story(tmp_path / "journal", {"x-ring-size": 2}, {"x-ring-size": 4}, PLAIN)
    words = ["whatif", "--journal", str(tmp_path / "journal"), "--lake", str(tmp_path / "lake"), "--format", "json"]
    assert main([*words, "--verify"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["compared"], answer["differing"]) == (8, 0)
    (tmp_path / "none.toml").write_text("")
    assert main([*words, "--settings", str(tmp_path / "none.toml")]) == 0
    found = {row["what"]: row for row in json.loads(capsys.readouterr().out)["table"]}
    assert (found["replaced"]["was"], found["replaced"]["would_be"]) == (4, 4)
