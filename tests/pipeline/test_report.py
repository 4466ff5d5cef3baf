"""The report of a lake: what it asks for, on both engines, and what stands in the page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from told_events import told

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
from leveret.pipeline.engines.protocol import value
from leveret.pipeline.jobs.functions import JOBS, JobContext
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
    for words in ("<b>4</b> published", "<b>1</b> dead-lettered", "<b>1</b> discarded on purpose", "<b>1</b> lost"):
        assert words in page, words
    assert "No fault" in page and "1 acknowledged" in page and ">evicted<" in page
    assert [one["name"] for one in figures["queues"]] == ["q", "dead"], "most messages first"
    assert figures["losses"] == [[1], [0]] and figures["latency"]["e2e"]["p50"] == [[20], [None]]
    assert figures["depth"]["peak"] == [[1], [1]]
    assert 'id="blocked"' not in page and 'id="leases"' not in page
    page, figures = reported(told(engine, *STORY), tmp_path, "--queue", "dead")
    assert [one["name"] for one in figures["queues"]] == ["dead"] and "<b>1</b> enqueued" in page
    assert "</b> published" not in page, "that a message goes to this queue is not known then"


#: A stream that two read, of whom one returns a message; a message whose consumer leaves (the broker counts no
#: attempt); one that a lost consumer had; a refused, an expired and a purged one; a dead letter.
EVERY_END = (
    '1 0 settings_changed 0 reason={} vhost=', '2 0 declared 0 log reason={"x-queue-type":"stream"}',
    "3 0 published 1", "4 0 enqueued 1 log", "5 1 delivered 1 log attempt=1 consumer=a",
    "6 1 delivered 1 log attempt=1 consumer=b", "7 2 acked 1 log flags=2 consumer=a",
    "8 2 requeued 1 log attempt=1 reason=nacked", "9 3 delivered 1 log attempt=2 flags=33 consumer=b",
    "10 4 acked 1 log flags=2 consumer=b",
    "11 5 published 2", "12 5 enqueued 2 q", "13 6 delivered 2 q attempt=1 consumer=a",
    "14 7 requeued 2 q reason=closed", "15 8 delivered 2 q attempt=1 flags=33 consumer=b", "16 9 acked 2 q consumer=b",
    "17 10 published 3", "18 10 enqueued 3 q", "19 11 delivered 3 q attempt=1 consumer=b",
    "20 12 published 4", "21 12 dropped 4 q reason=maxlen",
    "22 13 published 5", "23 13 enqueued 5 q", "24 14 expired 5 q",
    "25 15 published 6", "26 15 enqueued 6 q", "27 16 purged 6 q",
    "28 17 published 7", "29 17 enqueued 7 q", "30 18 delivered 7 q attempt=1 consumer=b",
    "31 19 dead_lettered 7 q reason=rejected address=dlx", "32 19 published 8 address=dlx cause_id=7",
    "33 19 enqueued 8 dead",
)  # fmt: skip
STARTED_AGAIN = (
    "34 100 settings_changed 0 reason={} vhost=", "35 110 delivered 3 q attempt=1 consumer=c",
    "36 120 acked 3 q consumer=c",
)  # fmt: skip


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_total_means_what_it_means_in_the_jobs(engine: Any, tmp_path: Path, is_restarted: bool) -> None:
    """Also of streams, of consumers that left, and after a kill; and as the table of deliveries shows it."""
    tables = told(engine, *EVERY_END, *(STARTED_AGAIN if is_restarted else ()))
    page, _ = reported(tables, tmp_path)
    totals = {name: int(n) for n, name in re.findall(r"<div><b>([0-9]+)</b> ([a-z -]+)</div>", page)}
    assert totals == {
        "published": 8, "enqueued": 7, "delivered": 7 + is_restarted, "redelivered": 2 + is_restarted,
        "acknowledged": 1 + is_restarted, "read in streams": 2, "dead-lettered": 1, "lost": 1, "refused": 1,
        "discarded on purpose": 1, "left in queues": 3 - is_restarted,
    }  # fmt: skip

    def answer(job: str) -> Any:
        options = parse([job, "--lake", "a lake"])
        return JOBS[job](JobContext(job, tables.part({}), options, Progress(job)))

    fates = answer("audit").facts["fates"]
    assert (totals["acknowledged"], totals["dead-lettered"], totals["left in queues"]) == (
        fates["acked"], fates["dead_lettered"], fates["open"],
    )  # fmt: skip
    for total, job, found in (
        ("delivered", "fairness", "sum(deliveries)"), ("redelivered", "redelivery", "count_if(redeliveries > 0)"),
        ("lost", "loss", "sum(n)"), ("refused", "loss", "sum(refused)"),
        ("discarded on purpose", "loss", "sum(discarded)"),
    ):  # fmt: skip
        assert value(engine, f"SELECT {found} FROM {answer(job).main.name}") == totals[total], total
    gone = value(engine, f"SELECT sum(n + moved + refused + discarded) FROM {answer('loss').main.name}")
    assert gone == sum(fates.get(name, 0) for name in ("dropped", "expired", "purged", "dead_lettered"))
    answer("depth")
    last = "SELECT max_by(depth_end, window_start) AS depth_end FROM answer_depth GROUP BY vhost, queue"
    assert value(engine, f"SELECT sum(depth_end) FROM ({last}) AS last") == fates["open"]
    shown = re.findall(r'<tr><td><span class="swatch c\d"></span><bdi>q</bdi></td>(.*?)</tr>', page)
    by_count = [re.findall(r'<td class="n">(?:<span class="heat h\d">([0-9]+)</span>)?</td>', row) for row in shown]
    assert [row[:3] for row in by_count if len(row) == 10] == [["2", "1", ""] if not is_restarted else ["1", "2", ""]]


def test_what_to_paste_for_the_messages_of_a_peak(engine: Any, tmp_path: Path) -> None:
    """The oldest ones that were in the queue then, and the slowest one; with the lake's path as a shell reads it."""
    lines = [f"{n} {10_000 * n} enqueued {n} q" for n in range(1, 6)]
    lines += [f"{n + 10} 56000 delivered {n} q attempt=1" for n in range(1, 6)]
    lines += [f"{n + 20} {57_000 + 1000 * n} acked {n} q" for n in range(1, 6)]
    page, _ = reported(told(engine, *lines), tmp_path)
    trace = f"leveret pipeline trace --lake &#x27;{Path('a lake').absolute()}&#x27;"
    commands = re.findall(r"<details><summary>(.*?)</summary>(.*?)</details>", page)
    assert commands[0] == ("1, 2, 3", "".join(f"<code>{trace} {n}</code>" for n in (1, 2, 3)))
    assert commands[1] == ("1", f"<code>{trace} 1</code>")


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
