"""Renders the reports of several nodes as one page: the nodes beside each other, with a link to the page of each."""

from collections.abc import Iterable, Mapping
from html import escape
from urllib.parse import quote

from .markup import chart, count, instant, plain, table
from .model import Report, Row, fleet, peaks, second
from .page import NOTHING, Page, charts_of_depth, charts_of_latency, document, holes_table, traced

PEAKS_SHOWN = 20


def render_fleet(source: str, nodes: Mapping[str, Report], pages: Mapping[str, str], notes: Iterable[str] = ()) -> str:
    """The page of several nodes as HTML.

    Args:   nodes: name -> report, at least one, all with the same width of windows. pages: name -> file of its page, in
            the same directory.
    """
    report = fleet(source, nodes, list(notes))
    page = Page(report)
    return document(report, page, _body(page, report, nodes, pages))


def _body(page: Page, report: Report, nodes: Mapping[str, Report], pages: Mapping[str, str]) -> str:
    totals = list(report.totals)
    head = ("node", "audit", "lost records", *totals, "from", "to")
    rows = [
        (
            f'{page.swatch("", name)}<a href="{escape(quote(pages[name]))}">{plain(name)}</a>',
            _verdict(one), count(_lost_records(one.holes.rows)) if one.holes.rows else "",
            *(count(one.totals.get(total)) for total in totals),
            *(instant(at) if one.end else "" for at in (one.begin, one.end)),
        )
        for name, one in sorted(nodes.items())
    ]  # fmt: skip
    holes = [(name, row) for name, one in sorted(nodes.items()) for row in one.holes.rows]
    parts = [
        page.head("nodes"),
        page.section("Nodes", "nodes", table(head, rows, right=range(2, 3 + len(totals)))),
        *([page.section("Holes", "holes", holes_table(holes))] if holes else []),
        page.section("Depth", "depth", charts_of_depth("Messages in all queues, at the end of each window")),
        page.section("Latency", "latency", charts_of_latency(" of the slowest queue") if report.latency.rows else
                     '<p class="empty">No message was delivered in this time, or deliveries were not recorded.</p>'),
        page.section("Losses", "losses", chart("Messages lost, in each window", "losses", "count", bars=True)),
        page.section("Highest peaks", "peaks", _peaks_of_nodes(nodes)),
    ]  # fmt: skip
    return "\n".join(parts)


def _verdict(report: Report) -> str:
    """The result of a node's audit in a few words."""
    faults = report.faults.total
    words = [f"{count(faults)} fault{'s' if faults != 1 else ''}"] if faults else []
    words += [f"{count(report.unknown)} unknown"] if report.unknown else []
    return f'<span class="fault">{", ".join(words)}</span>' if words else '<span class="good">no fault</span>'


def _lost_records(rows: Iterable[Row]) -> int:
    return sum(row["last_lsn"] - row["first_lsn"] + 1 for row in rows)


def _peaks_of_nodes(nodes: Mapping[str, Report]) -> str:
    found = [
        (row["depth_max"], name, row)
        for name, one in nodes.items()
        for row in peaks(one.depth.rows).values()
        if row["depth_max"]
    ]
    found.sort(key=lambda one: (-one[0], one[1], one[2]["vhost"], one[2]["queue"]))
    rows = [
        (plain(name), plain(row["queue"]), plain(row["vhost"]), count(most), instant(second(row)),
         traced(nodes[name], row, "peak"))
        for most, name, row in found[:PEAKS_SHOWN]
    ]  # fmt: skip
    head = ("node", "queue", "virtual host", "peak", "in the window of", "its oldest messages")
    return table(head, rows, right=(3,)) if rows else f'<p class="empty">{NOTHING["depth"]}</p>'
