"""--queue, --vhost, --since and --node, with the jobs that other tests do not ask with them."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from recorded_broker import RecordedBroker

from leveret.pipeline.__main__ import main
from leveret.pipeline.lake.nodes import add_node, nodes_of

#: A harness's clock begins at 22:13:20 on 2023-11-14.
LATER = "2023-11-14T22:14"


def journal(path: Path, *queues: str) -> None:
    """Two messages of each queue, one a minute after the other."""
    one = RecordedBroker(path)
    for name in queues:
        one.declare(name)
    for _ in range(2):
        for name in queues:
            one.publish(name)
        one.clock.advance_ns(60 * 10**9)
    one.close()


def asked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*words, "--format", "json"]) == code
    answer: dict[str, Any] = json.loads(capsys.readouterr().out or "{}")
    return answer


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ((), 4),
        (("--queue", "a"), 2),
        (("--vhost", "/"), 4),
        (("--since", LATER), 2),
        (("--until", LATER), 2),
        (("--queue", "b", "--since", LATER), 1),
    ],
)
def test_a_replay_sends_only_what_is_selected(
    options: tuple[str, ...], chosen: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had ignored all of these but --until, and would have sent the messages of every queue."""
    journal(tmp_path / "journal", "a", "b")
    words = ["replay", "--journal", str(tmp_path / "journal"), "--lake", str(tmp_path / "lake")]
    assert asked(capsys, *words, "--where", "kind = 'enqueued' OR false", *options)["chosen"] == chosen


def test_a_report_of_a_queue_that_one_node_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page of that node is empty; a queue that no node has is still an error."""
    journal(tmp_path / "east", "a", "both")
    journal(tmp_path / "west", "b", "both")
    page = str(tmp_path / "report.html")
    words = ["report", "--lake", str(tmp_path / "lake"), "--out", page]
    journals = ["--journal", str(tmp_path / "east"), "--journal", str(tmp_path / "west")]
    assert main([*words, *journals, "--queue", "a"]) == 0
    assert (tmp_path / "report-east.html").exists() and (tmp_path / "report-west.html").exists()
    assert main([*words, "--queue", "c"]) == 1
    assert "knows no queue 'c'" in capsys.readouterr().err


def test_a_node_that_was_added_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By two ingests at once, where there is no lock: its messages count once."""
    lake = str(tmp_path / "lake")
    for name in ("east", "west"):
        journal(tmp_path / name, "q")
        assert main(["ingest", "--lake", lake, "--journal", f"{name}={tmp_path / name}"]) == 0
    (node,) = [one for one in nodes_of(lake) if one.name == "west"]
    add_node(lake, node)
    rows = asked(capsys, "depth", "--lake", lake)["table"]
    places = [(row["node"], row["window_start"]) for row in rows]
    assert len(places) == len(set(places)) and {node for node, _ in places} == {"east", "west"}
