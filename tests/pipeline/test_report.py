"""The report of a lake: what it asks for, on both engines, and what stands in the page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from told_events import told

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
from leveret.pipeline.jobs.commands import JOBS, JobContext
from leveret.pipeline.jobs.report import fitted_width, window_width
from leveret.pipeline.jobs.tables import Tables
from leveret.pipeline.options import parse
from leveret.pipeline.progress import Progress

#: Message 1 dies in q and goes on as 2 to the dead-letter queue; 3 is acknowledged, 4 evicted.
STORY = (
    "1 0 published 1 address=x", "2 0 enqueued 1 q", "3 5 delivered 1 q attempt=1 consumer=c",
    "4 9 dead_lettered 1 q reason=rejected address=dlx", "5 9 published 2 address=dlx", "6 9 enqueued 2 dead",
    "7 10 published 3 address=x", "8 10 enqueued 3 q", "9 20 delivered 3 q attempt=1 consumer=c", "10 30 acked 3 q",
    "11 40 published 4 address=x", "12 40 enqueued 4 q", "13 50 evicted 4 q",
)  # fmt: skip


def reported(tables: Tables, directory: Path, *more: str) -> tuple[str, dict[str, Any]]:
    """The page, and the figures in it."""
    path = directory / "report.html"
    options = parse(["report", "--lake", "a lake", "--out", str(path), *more])
    JOBS["report"](JobContext("report", tables, options, Progress("report")))
    page = path.read_text()
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return page, json.loads(found[1])


@pytest.mark.parametrize(
    "begin, end, count", [(0, 59, 1), (0, 60 * 500 - 1, 1), (30, 60 * 500 + 10, 2), (7, 10**7, 334)]
)
def test_windows_cover_all_of_the_time(begin: int, end: int, count: int) -> None:
    """Wider ones where there are too many, never the oldest."""
    assert fitted_width(60, begin, end) == 60 * count


@pytest.mark.parametrize(
    "seconds, step", [(0, 1), (200, 1), (300, 2), (4 * 3600, 60), (7 * 86400, 3600), (10**9, 86400)]
)
def test_windows_fit_the_time(seconds: int, step: int) -> None:
    """Some 240 of a width that people count in, if nobody says how wide."""
    assert window_width(1000, 1000 + seconds) == step


def test_a_report(engine: Any, tmp_path: Path) -> None:
    """Every section has its rows; what there is not is said; the total of each kind."""
    page, figures = reported(told(engine, *STORY), tmp_path)
    for words in ("<b>4</b> published", "<b>1</b> dead-lettered", "<b>1</b> removed unread", "<b>1</b> left in queues"):
        assert words in page, words
    assert "No fault" in page and "1 acknowledged" in page and ">evicted<" in page
    assert [one["name"] for one in figures["queues"]] == ["q", "dead"], "most messages first"
    assert figures["losses"] == [[1], [0]] and figures["latency"]["e2e"]["p50"] == [[20], [None]]
    assert figures["depth"]["peak"] == [[1], [1]]
    assert 'id="blocked"' not in page and 'id="leases"' not in page
    page, figures = reported(told(engine, *STORY), tmp_path, "--queue", "dead")
    assert [one["name"] for one in figures["queues"]] == ["dead"] and "<b>1</b> enqueued" in page
    assert "</b> published" not in page, "that a message goes to this queue is not known then"


def test_peaks_and_the_newest(engine: Any, tmp_path: Path) -> None:
    """Of a thousand windows all are there, in wider ones; a peak within one; virtual hosts apart."""
    first = ["1 0 enqueued 1 q", "2 1 acked 1 q"]
    peak = [f"{n} 59900000 enqueued {n} q" for n in range(10, 17)]
    gone = [f"{n + 20} 59900500 acked {n} q" for n in range(10, 17)]
    tables = told(engine, *first, *peak, *gone, "99 59900600 enqueued 50 q vhost=other")
    page, figures = reported(tables, tmp_path, "--window", "60")
    assert "windows of 60 s would be too many to draw: they are of 120 s" in page
    assert [one["name"] for one in figures["queues"]] == ["q in /", "q in other"]
    assert len(figures["times"]) == 500 and [line[-1] for line in figures["depth"]["peak"]] == [7, 1]
    assert figures["depth"]["peak"][0][0] == 1 and "2026-01-01 16:38:20" in page


def test_what_was_not_recorded(engine: Any, tmp_path: Path) -> None:
    """Names are text whatever they hold; a journal without deliveries says so, and so does one that lacks its start."""
    evil = told(engine, *(line.replace(" q", " <script>q") for line in STORY), scope="durable", base_lsn=90)
    page, _ = reported(evil, tmp_path)
    assert page.count("not recorded; deliveries") == 3 and "records 1 to 89 were deleted" in page
    assert "&lt;script&gt;q" in page and page.count("<script") == 3
    page, figures = reported(told(engine), tmp_path)
    assert "No message was in a queue" in page and figures["queues"] == []
