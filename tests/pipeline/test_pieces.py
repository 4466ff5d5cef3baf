"""What-if of a queue in pieces: where it is cut, and what is simulated again in one piece."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
import pyarrow
from recorded_broker import RecordedBroker

from leveret.engine import table_of_json
from leveret.pipeline.engines.protocol import rows
from leveret.pipeline.jobs import pieces
from leveret.pipeline.jobs.opening import open_tables
from leveret.pipeline.jobs.pieces import cut
from leveret.pipeline.jobs.simulation import Start
from leveret.pipeline.jobs.whatif import whatif
from leveret.pipeline.lake.ingest import IngestOptions, ingest
from leveret.pipeline.progress import Progress
from leveret.pipeline.schemas import arrow, columns

ARRIVED = columns(
    "vhost string, queue string, first_lsn bigint, behind_lsn bigint, ms bigint, finished_ms bigint?",
)
#: Each arrives at the first time and ends at the second one.
LIVES: dict[str, list[tuple[int, int | None]]] = {
    "short": [(0, 5), (10, 15), (20, 25), (30, 35)],
    "crossing": [(0, 5), (10, 25), (20, 22), (30, 35)],
    "left": [(0, 5), (10, None), (20, 25), (30, 35)],
    "few": [(0, 5), (10, 15)],
}


def arrived(engine: Any) -> None:
    """The views that `cut` reads, as `whatif` makes them."""
    found = [
        {"vhost": "/", "queue": queue, "first_lsn": 1, "behind_lsn": 99, "ms": ms, "finished_ms": finished_ms}
        for queue, lives in LIVES.items()
        for ms, finished_ms in lives
    ]
    engine.memory_table("arrived", pyarrow.Table.from_pylist(found, arrow(ARRIVED)))
    engine.memory_table("handed", pyarrow.Table.from_pylist([], arrow(ARRIVED)))


def begins(engine: Any, least: int, *starts: Start) -> dict[str, list[int]]:
    """When the pieces of each queue begin."""
    found = cut(engine, starts, least)
    return {name.queue: [span.begin_ms for span in one.next_spans()] for name, one in found.items()}


def test_where_a_queue_is_cut(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no message was in it. Not while the broker was stopped: leases that run then would end."""
    arrived(engine)
    every = {"short": [0, 10, 20, 30], "crossing": [0, 10, 30], "left": [0, 10], "few": [0, 10]}
    assert begins(engine, 0) == dict.fromkeys(LIVES, [0])
    assert begins(engine, 1) == every
    assert begins(engine, 2) == {**every, "short": [0, 20], "crossing": [0, 30], "left": [0], "few": [0]}
    assert begins(engine, 1, Start(20, 7, stopped_ms=15)) == {**every, "short": [0, 10, 30]}
    assert begins(engine, 1, Start(19, 7, stopped_ms=15)) == every
    monkeypatch.setattr(pieces, "PIECES_MAX", 2)
    assert begins(engine, 1)["short"] == [0, 20]


def test_what_other_settings_leave_in_the_queue(engine: Any, tmp_path: Path) -> None:
    """A message that had expired meets what arrives later: a cut between them would lose that."""
    one = RecordedBroker(tmp_path / "journal")
    one.declare("q", arguments=table_of_json({"x-message-ttl": 50}))
    one.publish("q")
    for ms in (200, 30, 30):
        one.clock.advance_ns(ms * 1_000_000)
        one.broker.advance()
        one.settle()
        one.publish("q")
        tag, *_ = one.session.get(one.vhost.queues.named("q"), no_ack=False) or (0,)
        one.session.reject(tag, requeue=False)
        one.settle()
    one.close()
    lake = str(tmp_path / "lake")
    ingest(None, IngestOptions(str(tmp_path / "journal"), lake, processes=1), Progress("ingest"))
    tables = open_tables(lake, engine)
    for settings, killed, left in (("", 3, 0), ('[[queue]]\nname = "q"\n', 2, 1)):
        found = rows(engine, whatif(tables, settings, 1))
        counts = {row["what"]: row["would_be"] for row in found}
        assert (counts["killed"], counts["acknowledged"], counts["open"]) == (killed, 3 - killed, left), settings
        assert found == rows(engine, whatif(tables, settings, 0))
