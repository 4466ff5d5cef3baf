"""The page of the report: what is in it as text, and what a browser makes of it."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_person import chromium
from sample_report import HOSTILE, at, empty_report, sample_report

from leveret.pipeline.report.fleet_page import render_fleet
from leveret.pipeline.report.markup import count, duration, octets
from leveret.pipeline.report.model import Part, Report, charts, windows
from leveret.pipeline.report.page import render


def figures_of(page: str) -> dict[str, Any]:
    """The JSON in a page."""
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    read: dict[str, Any] = json.loads(found[1])
    return read


def test_names_stay_texts() -> None:
    """In the HTML escaped, in the JSON without "<"; the policy allows exactly the programs that are there."""
    page = render(sample_report())
    assert "<img" not in page and page.count("</script>") == 3 and "\u202e" not in page
    assert "onerror=document.title" in page, "it is there, as a text"
    assert figures_of(page)["queues"][2] == {"name": f"{HOSTILE[:-1]}\\u202e in /", "colour": 2}
    policy = re.search(r'content-security-policy" content="([^"]*)"', page)
    assert policy is not None and policy[1].startswith("default-src 'none'") and "unsafe" not in policy[1]
    for program in re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", page, re.DOTALL):
        assert base64.b64encode(hashlib.sha256(program.encode()).digest()).decode() in policy[1]
    assert not re.search(r"(?:src|href)=\"?http|style=\"|@import|url\(", page), "nothing is fetched, nothing in line"


def test_what_there_is_not_is_said() -> None:
    """In words, for each section; sections of what need not exist are not there."""
    page = render(empty_report())
    for words in ("No fault", "No message was in a queue", "not recorded", "No message was removed", "No message died"):
        assert words in page
    for name in ("leases", "blocked"):
        assert f'id="{name}"' not in page and f'id="{name}"' in render(sample_report())
    assert "cut: the first" not in page and 'class="chart"' not in page


def test_a_hole_leaves_no_word_of_a_journal_without_fault() -> None:
    """What may be a fault is counted; faults beside it are shown as ever."""
    for unknown, words in ((1, "1 message is unknown"), (2, "2 messages are unknown")):
        page = render(replace(empty_report(), unknown=unknown))
        assert words in page and "No fault" not in page
    page = render(replace(sample_report(), unknown=3))
    assert "3 messages are unknown" in page and "1 fault." in page


def test_what_is_left_out_is_said() -> None:
    """Queues that are not drawn, rows that are not shown, history that was deleted."""
    page = render(sample_report())
    for words in ("5 of 12 queues", "The first 6 of 4\u202f321", "records 1 to 89 were deleted", "1 fault."):
        assert words in page, words
    some = replace(sample_report(), faults=Part(sample_report().faults.rows * 2, count=900))
    assert "900 faults." in render(some) and "The first 2 of 900 faults." in render(some)


def test_nodes_beside_each_other() -> None:
    """A row and a line for each, with a link to its page; sums on top; holes; the highest peak first."""
    east, west = sample_report(of_node=True), replace(empty_report(), unknown=2, totals={"published": 3})
    page = render_fleet(
        "lake", {"west <b>": west, "east": east}, {"west <b>": "r-west <b>.html", "east": "r-east.html"}
    )
    figures = figures_of(page)
    assert [one["name"] for one in figures["queues"]] == [
        "east",
        "west <b>",
    ] and "<b>1\u202f234\u202f570</b> pub" in page
    assert '<a href="r-east.html"><bdi>east</bdi></a></td><td><span class="fault">1 fault</span>' in page
    assert '<a href="r-west%20%3Cb%3E.html"><bdi>west &lt;b&gt;</bdi></a></td><td><span class="fault">2 unknown' in page
    assert figures["holes"] == [[at(60).timestamp(), at(70).timestamp()]] and "1000 to 1499" in page
    depths = [row for row in east.depth.rows if row["window_start"] == at(60)]
    assert figures["depth"]["peak"][0][60] == sum(row["depth_max"] for row in depths)
    assert figures["depth"]["peak"][1] == [None] * len(figures["times"])
    first = page[page.index('id="peaks"') :]
    assert re.search(r"<bdi>east</bdi></td><td><bdi>mail</bdi>.*?--lake &#x27;/a lake&#x27; 100</code>", first)
    many = {f"n{number}": east for number in range(12)}
    assert "8 of 12 nodes" in render_fleet("lake", many, {name: f"{name}.html" for name in many})


def test_a_node_without_an_event_in_this_time() -> None:
    """The windows of all nodes are those of the others: they do not begin in 1970."""
    east = sample_report(of_node=True)
    idle = replace(empty_report(), begin=0, end=0)
    page = render_fleet("lake", {"east": east, "idle": idle}, {"east": "east.html", "idle": "idle.html"})
    assert figures_of(page)["times"] == windows(east)
    assert "1970" not in page and "1970" not in render(idle) and "No event in this time." in render(idle)
    assert "No event in this time." in render_fleet("lake", {"idle": idle}, {"idle": "idle.html"})


def test_series() -> None:
    """All windows; a queue that was emptied has no messages, one before its first is not drawn; losses are added up."""
    report: Report = sample_report()
    found = charts(report)
    assert len(found["times"]) == 240 and found["times"] == windows(report)
    peak = found["depth"]["peak"]
    assert [line[0] is None for line in peak] == [False, True, True, True, True]
    assert peak[1][-1] == 0 and max(filter(None, peak[1])) > 9000
    twice = replace(report, losses=Part([{**report.losses.rows[0], "n": 2}, {**report.losses.rows[0], "n": 3}]))
    assert sum(charts(twice)["losses"][0]) == 5
    assert set(found["latency"]) == {"queue", "service", "e2e"} and set(found["latency"]["e2e"]) == {
        *("p50", "p95", "p99", "p999"),
    }


@pytest.mark.parametrize(
    "written, text",
    [
        (count(1234567), "1\u202f234\u202f567"), (count(None), ""), (duration(0.25), "0.25 ms"),
        (duration(1500), "1.5 s"), (duration(90_000), "1.5 min"), (duration(7 * 86_400_000), "7 d"),
        (octets(1023), "1023 B"),
        (octets(1536), "1.5 KiB"), (octets(5 << 40), "5 TiB"),
    ],
)  # fmt: skip
def test_values(written: str, text: str) -> None:
    """Short, with units."""
    assert written == text


def test_in_a_browser(tmp_path: Path) -> None:
    """Drawn in light and dark and on a phone; lines are chosen, time is zoomed; no name runs, no complaints."""
    page = tmp_path / "report.html"
    page.write_text(render(sample_report(8)))
    complaints: list[str] = []
    asked: list[str] = []
    with chromium() as browser:
        colours = set()
        for scheme, width in (("light", 1100), ("dark", 360)):
            with browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}) as context:
                tab = context.new_page()
                tab.on("console", lambda message: complaints.append(message.text))
                tab.on("pageerror", lambda error: complaints.append(str(error)))
                tab.on("request", lambda request: asked.append(request.url))
                tab.goto(page.as_uri())
                assert tab.title().startswith("Leveret: ") and tab.locator("img").count() == 0
                assert tab.locator(".chart canvas").count() == 6
                assert tab.evaluate("document.documentElement.scrollWidth") <= width
                colours.add(tab.evaluate(ONE_LINE))
                before = tab.evaluate(PICTURE, "latency.queue")
                tab.get_by_label("p50").check()
                assert tab.evaluate(PICTURE, "latency.queue") != before
                before = tab.evaluate(PICTURE, "depth.peak")
                tab.locator(".key").nth(0).click()
                assert tab.locator(".key").nth(0).get_attribute("aria-pressed") == "false"
                assert tab.evaluate(PICTURE, "depth.peak") != before
                for wanted in (["false", "true"], ["true", "true"]):
                    tab.locator(".key").nth(1).click(modifiers=["Control"])
                    pressed = tab.locator(".key").evaluate_all("keys => keys.map(key => key.ariaPressed)")
                    assert pressed[:2] == wanted and set(pressed) == set(wanted), "alone, or all of them"
                before = tab.evaluate(PICTURE, "latency.queue")
                over = tab.locator("[data-figures='depth.peak'] .u-over")
                over.drag_to(over, source_position={"x": 60, "y": 40}, target_position={"x": 160, "y": 40})
                assert tab.evaluate(PICTURE, "latency.queue") != before, "all charts show the same time"
                assert tab.evaluate("document.title") != "owned"
        assert len(colours) == 2, "the lines of light and dark are not the same"
        page.write_text(
            render_fleet("lake", {"a": sample_report(of_node=True), "b": empty_report()}, {"a": "", "b": ""})
        )
        with browser.new_context(viewport={"width": 360, "height": 800}) as context:
            tab = context.new_page()
            tab.on("console", lambda message: complaints.append(message.text))
            tab.on("pageerror", lambda error: complaints.append(str(error)))
            tab.goto(page.as_uri())
            assert tab.locator(".chart canvas").count() == 6
            assert tab.evaluate("document.documentElement.scrollWidth") <= 360
            before = tab.evaluate(PICTURE, "depth.peak")
            tab.locator("#peaks summary").first.click()
            assert tab.locator("#peaks code").first.is_visible()
            page.write_text(page.read_text().replace('"holes":[[', '"holes":[],"none":[['))
            tab.reload()
            assert tab.evaluate(PICTURE, "depth.peak") != before, "a hole is drawn"
        page.write_text(render(empty_report()))
        with browser.new_context() as context:
            tab = context.new_page()
            tab.on("pageerror", lambda error: complaints.append(str(error)))
            tab.goto(page.as_uri())
            assert tab.locator("section").count() == 7
    assert complaints == [] and set(asked) == {page.as_uri()}


ONE_LINE = "getComputedStyle(document.documentElement).getPropertyValue('--c0')"
PICTURE = "name => document.querySelector(`[data-figures='${name}'] canvas`).toDataURL()"
