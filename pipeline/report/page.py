"""Renders a `Report` as one HTML file, which has the figures as JSON and the scripts to draw them. It fetches nothing.

Names are texts of clients: they are escaped in HTML, the JSON has no "<", and the page's content security policy allows
only its two scripts, by their digests. Charts need JavaScript. Tables do not; they show peaks, totals and the worst
windows, not each window.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from ...settings.printable import printable
from ...vendored import UPLOT_PROGRAM, UPLOT_STYLE, text
from .markup import bar, chart, choice, commands, count, duration, instant, number, octets, plain, table
from .model import Part, Report, Row, charts, peaks, second

HERE = Path(__file__).parent
COLOURS = 8
ATTEMPTS_SHOWN = 10
FATES = {
    "acked": "acknowledged",
    "open": "still in a queue",
    "ended": "ended with the broker (transient)",
    "dead_lettered": "dead-lettered",
}
PERCENTILES = (("p50", "p50"), ("p95", "p95"), ("p99", "p99"), ("p999", "p99.9"))
NOTHING = {
    "faults": "No fault: each message was in its queue once, in order, and left it once.",
    "depth": "No message was in a queue in this time.",
    "latency": "No message was delivered in this time.",
    "redelivery": "No message was delivered twice, and none died.",
    "losses": "No message was removed otherwise than by an acknowledgement.",
    "deadletters": "No message died.",
    "fairness": "No consumer got a message.",
}


def render(report: Report) -> str:
    """The page of one node as HTML."""
    page = Page(report)
    return document(report, page, page.body())


def document(report: Report, page: "Page", body: str) -> str:
    """The HTML of a page. `body`: its content."""
    style, uplot, program = (
        text(UPLOT_STYLE) + (HERE / "page.css").read_text(encoding="utf-8"),
        text(UPLOT_PROGRAM),
        (HERE / "page.js").read_text(encoding="utf-8"),
    )
    named = [{"name": printable(page.label(*key)), "colour": at % COLOURS} for at, key in enumerate(report.queues)]
    figures = json.dumps({**charts(report), "queues": named}, separators=(",", ":")).replace("<", "\\u003c")
    policy = (
        f"default-src 'none'; script-src {_digest(uplot)} {_digest(program)}; style-src {_digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    title = f"Leveret: {printable(report.source)}{f', {instant(report.begin)[:10]}' if report.end else ''}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="content-security-policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style></head>\n<body>\n{body}\n"
        f'<script type="application/json" id="figures">{figures}</script>\n'
        f"<script>{uplot}</script>\n<script>{program}</script>\n</body></html>\n"
    )


def holes_table(holes: Iterable[tuple[str, Row]]) -> str:
    """A table of holes. `holes`: (node, row). Without any name of a node the table has no column for nodes."""
    holes = list(holes)
    named = any(node for node, _ in holes)
    rows = [
        (*([plain(node)] if named else []), f"{row['first_lsn']} to {row['last_lsn']}", plain(row["why"]),
         *(instant(int(at.timestamp())) if at else "" for at in (row["before_ts"], row["after_ts"])),
         octets(row["octets"]))
        for node, row in holes
    ]  # fmt: skip
    return table((*(["node"] if named else []), "lost records", "why", "after", "before", "unreadable"), rows)


def charts_of_depth(title: str) -> str:
    return (
        chart(title, "depth.peak", "count", peaks=True)
        + choice("rates", (("in", "in"), ("out", "out")), "in", "Messages per second")
        + chart("", "rates", "rate")
    )


def charts_of_latency(of: str = "") -> str:
    return (
        choice("latency", PERCENTILES, "p99", "Percentile")
        + chart(f"Wait in the queue, to the first delivery{of}", "latency.queue", "ms")
        + chart(f"Service, from the last delivery to the acknowledgement{of}", "latency.service", "ms")
        + chart(f"The whole way, from the queue to the acknowledgement{of}", "latency.e2e", "ms")
    )


def traced(report: Report, queue: Row, why: str) -> str:
    """The examples of a queue, with the commands that trace them."""
    ids = [
        row["msg_id"]
        for row in report.examples.rows
        if (row["vhost"], row["queue"], row["why"]) == (queue["vhost"], queue["queue"], why)
    ]
    return commands(", ".join(map(str, ids)), [f"{report.trace} {one}" for one in ids])


def _digest(program: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()}'"


class Page:
    """Renders the parts of one report."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._place = {key: at for at, key in enumerate(report.queues)}
        rows = (*report.loss_totals.rows, *report.deadletters.rows, *report.fairness.rows, *report.faults.rows)
        vhosts = {vhost for vhost, _ in report.queues} | {row["vhost"] for row in rows}
        self._has_several_vhosts = len(vhosts) > 1

    def label(self, vhost: str, queue: str) -> str:
        """A queue's name, with the virtual host if there are several of these."""
        return f"{queue} in {vhost}" if self._has_several_vhosts else queue

    def swatch(self, vhost: str, queue: str) -> str:
        """The colour of a queue, for a table; grey if the queue is not drawn."""
        at = self._place.get((vhost, queue))
        colour = "other" if at is None else f"c{at % COLOURS}"
        return f'<span class="swatch {colour}"></span>'

    def queue(self, row: Row) -> str:
        """A queue's name with its colour, for a table."""
        return self.swatch(row["vhost"], row["queue"]) + plain(self.label(row["vhost"], row["queue"]))

    def message(self, msg_id: int) -> str:
        """A message's id, with the command that traces it."""
        return commands(str(msg_id), [f"{self._report.trace} {msg_id}"])

    def body(self) -> str:
        report = self._report
        parts = [
            self.head("queues"),
            self.section("Audit", "audit", self._audit()),
        ]
        if report.holes.rows:
            parts.insert(1, self.section("Holes", "holes", holes_table(("", row) for row in report.holes.rows)))
        for title, name, part, content in (
            ("Depth", "depth", report.depth, self._depth),
            ("Latency", "latency", report.latency, self._latency),
            ("Redelivery and poison", "redelivery", report.poison, self._redelivery),
            ("Losses", "losses", report.loss_totals, self._losses),
            ("Dead letters", "deadletters", report.deadletters, self._deadletters),
            ("Fairness", "fairness", report.fairness, self._fairness),
        ):
            parts.append(self.section(title, name, self._or_why(part, name) or content(part)))
        leases = [row for row in report.fairness.rows if row["leases_ended"]]
        if leases:
            parts.append(self.section("Leases that ended without an acknowledgement", "leases", self._leases(leases)))
        if report.blocked.rows:
            parts.append(self.section("Publishers that waited for room", "blocked", self._blocked()))
        return "\n".join(parts)

    def head(self, drawn_things: str) -> str:
        """The head of the page. `drawn_things`: queues or nodes."""
        report = self._report
        cards = "".join(f"<div><b>{count(n)}</b> {escape(name)}</div>" for name, n in report.totals.items())
        notes = "".join(f"<li>{escape(printable(note))}" for note in report.notes)
        some = f"{len(report.queues)} of {count(report.queue_count)} {drawn_things}"
        many = f"{some}, those with the most messages, are drawn."
        drawn = f'<p class="dim">{many}</p>' if report.queue_count > len(report.queues) else ""
        keys = "".join(
            f'<button type="button" class="key" aria-pressed="true" data-queue="{at}">'
            f'<span class="swatch c{at % COLOURS}"></span>{plain(self.label(*key))}</button>'
            for at, key in enumerate(report.queues)
        )
        span = f"{instant(report.begin)} to {instant(report.end)} UTC, {duration((report.end - report.begin) * 1000)},"
        windows = (
            f"{span} in windows of {duration(report.window_s * 1000)}." if report.end else "No event in this time."
        )
        hint = "A click hides it or shows it; with Ctrl it is shown alone"
        legend = f'<nav class="legend" aria-label="Drawn {drawn_things}" title="{hint}">{keys}</nav>' if keys else ""
        return (
            f'<header><p class="dim">Leveret, report of the journal</p><h1>{plain(report.source)}</h1>'
            f"<p>{windows}</p>"
            f'<div class="cards">{cards}</div>{f"<ul class=notes>{notes}</ul>" if notes else ""}</header>\n'
            "<noscript><p>Charts need JavaScript; the tables do not.</p></noscript>\n"
            f"{drawn}{legend}"
        )

    def section(self, title: str, name: str, content: str) -> str:
        return f'<section id="{name}"><h2>{escape(title)}</h2>\n{content}</section>'

    def _or_why(self, part: Part, name: str) -> str | None:
        """The text in place of a part without rows; None: the part has rows."""
        if part.why_not:
            return f'<p class="empty">{escape(printable(part.why_not))}.</p>'
        return None if part.rows else f'<p class="empty">{NOTHING[name]}</p>'

    def _audit(self) -> str:
        faults, fates = self._report.faults, self._report.fates
        total = sum(fates.values())
        words = ", ".join(f"{count(n)} {FATES.get(fate, fate)}" for fate, n in sorted(fates.items()))
        what = f"<p>{count(total)} messages in queues: {escape(words)}.</p>" if total else ""
        if unknown := self._report.unknown:
            messages = "1 message is" if unknown == 1 else f"{count(unknown)} messages are"
            what = f'<p class="fault">{messages} unknown: a hole may explain what became of them.</p>{what}'
            if not faults.rows:
                return what
        if faults.why_not or not faults.rows:
            return (self._or_why(faults, "faults") or "").replace('class="empty"', 'class="good"') + what
        return (
            f'<p class="fault">{count(faults.total)} fault{"s" if faults.total != 1 else ""}.</p>{what}'
            + table(
                ("fault", "message", "queue", "what"),
                [(plain(row["fault"]), self.message(row["msg_id"]), self.queue(row), plain(row["detail"]))
                 for row in faults.rows],
                right=(1,),
            )
            + _more_text(faults, "faults")
        )  # fmt: skip

    def _depth(self, part: Part) -> str:
        lasts: dict[tuple[str, str], Row] = {}
        for row in part.rows:
            key = (row["vhost"], row["queue"])
            if key not in lasts or second(row) >= second(lasts[key]):
                lasts[key] = row
        rows = [
            (self.queue(row), count(row["depth_max"]), instant(second(row)), traced(self._report, row, "peak"),
             count(lasts[key]["depth_end"]), octets(lasts[key]["bytes_end"]))
            for key, row in sorted(peaks(part.rows).items(), key=lambda one: -one[1]["depth_max"])
        ]  # fmt: skip
        head = ("queue", "peak", "in the window of", "its oldest messages", "at the end", "octets at the end")
        title = "Messages in the queue: the most in each window"
        return charts_of_depth(title) + table(head, rows, right=(1, 4, 5))

    def _latency(self, part: Part) -> str:
        worst: dict[tuple[str, str], dict[str, Any]] = {}
        for row in part.rows:
            one = worst.setdefault((row["vhost"], row["queue"]), {**row, "n": 0})
            one["n"] += row["n"]
            for name in (f"{what}_ms_{point}" for what in ("queue", "service", "e2e") for point in ("p50", "p99")):
                one[name] = max((value for value in (one[name], row[name]) if value is not None), default=None)
        shown = ("queue_ms_p50", "queue_ms_p99", "service_ms_p50", "service_ms_p99", "e2e_ms_p50", "e2e_ms_p99")
        rows = [
            (self.queue(row), count(row["n"]), *(duration(row[name]) for name in shown),
             traced(self._report, row, "slowest"))
            for row in worst.values()
        ]  # fmt: skip
        head = ("queue", "messages", "wait p50", "wait p99", "service p50", "service p99", "whole p50", "whole p99")
        worst_text = '<p class="dim">Of the worst window:</p>'
        return charts_of_latency() + worst_text + table((*head, "slowest message"), rows, right=range(1, 8))

    def _redelivery(self, part: Part) -> str:
        rows = [
            (self.queue(row), self.message(row["msg_id"]), count(row["attempts"]), count(row["requeues"]),
             "poison" if row["poison"] else "", "yes" if row["dead"] else "", plain(row["last_consumer"]),
             plain(row["last_reason"]), duration(max(row["backoff_ms"] or [0]) or None))
            for row in part.rows
        ]  # fmt: skip
        head = ("queue", "message", "attempts", "returns", "", "died", "last consumer", "last reason", "longest pause")
        return (
            self._attempts()
            + "<h3>Messages that failed most</h3>"
            + table(head, rows, right=(1, 2, 3, 8))
            + _more_text(part, "messages that were redelivered or died")
        )

    def _attempts(self) -> str:
        """A table of queues and numbers of deliveries. Darker cells have more messages."""
        counts: dict[tuple[str, str], list[int]] = {}
        for row in self._report.attempts.rows:
            line = counts.setdefault((row["vhost"], row["queue"]), [0] * (ATTEMPTS_SHOWN + 1))
            line[min(int(row["deliveries"]), ATTEMPTS_SHOWN)] += int(row["n"])
        if not counts:
            return ""
        most = max(max(line) for line in counts.values())
        rows = [
            (
                self.queue({"vhost": vhost, "queue": queue}),
                *(f'<span class="heat h{-(-9 * n // most)}">{count(n)}</span>' if n else "" for n in line[1:]),
            )
            for (vhost, queue), line in sorted(counts.items(), key=lambda one: -sum(one[1]))
        ]
        head = ("queue", *(str(n) for n in range(1, ATTEMPTS_SHOWN)), f"{ATTEMPTS_SHOWN} or more")
        return "<h3>Messages by their number of deliveries</h3>" + table(head, rows, right=range(1, len(head)))

    def _losses(self, part: Part) -> str:
        rows = [
            (
                self.queue(row),
                plain(row["cause"]),
                *(count(row[name]) for name in ("n", "moved", "refused", "discarded")),
                octets(row["bytes"]),
                duration(row["age_ms_max"]),
            )
            for row in part.rows
        ]
        return (
            chart("Messages lost, in each window", "losses", "count", bars=True)
            + table(
                ("queue", "cause", "lost", "moved on", "refused", "on purpose", "octets lost", "oldest"),
                rows,
                right=range(2, 8),
            )
            + _more_text(part, "queues and causes")
        )

    def _deadletters(self, part: Part) -> str:
        rows = [
            (self.queue(row), plain(row["reason"] or row["kind"]), count(row["n"]), plain(row["outcome"]),
             ", ".join(plain(one) for one in row["arrived_in"] or ()), plain(row["last_consumer"]),
             instant(int(row["last_ts"].timestamp())),
             commands(", ".join(map(str, row["samples"])), [f"{self._report.trace} {one}" for one in row["samples"]]))
            for row in part.rows
        ]  # fmt: skip
        head = ("queue", "why", "messages", "outcome", "copies in", "last consumer", "last", "some of them")
        return table(head, rows, right=(2,)) + _more_text(part, "kinds")

    def _fairness(self, part: Part) -> str:
        rows = [
            (self.queue(row), plain(row["consumer"] or "basic.get"), plain(row.get("connection") or row["conn_id"]),
             count(row["deliveries"]), bar(row["share"]), duration(row["service_ms_p50"]),
             duration(row["service_ms_p95"]))
            for row in part.rows
        ]  # fmt: skip
        head = ("queue", "consumer", "connection", "deliveries", "share", "service p50", "service p95")
        return table(head, rows, right=(3, 5, 6)) + _more_text(part, "consumers")

    def _leases(self, rows: Iterable[Row]) -> str:
        shown = [
            (self.queue(row), plain(row["consumer"]), count(row["leases_ended"]), count(row["acked"])) for row in rows
        ]
        return table(("queue", "consumer", "leases ended", "acknowledged"), shown, right=(2, 3))

    def _blocked(self) -> str:
        part = self._report.blocked
        rows = [
            (plain(row["connection"] or row["conn_id"]), plain(row["destination"]), plain(row["limit"]),
             instant(int(row["since"].timestamp())), duration(row["waited_ms"]) if row["until"] else "still waits")
            for row in part.rows
        ]  # fmt: skip
        return table(("connection", "destination", "limit", "since", "waited"), rows, right=(4,)) + _more_text(
            part, "waits"
        )


def _more_text(part: Part, what: str) -> str:
    if part.total <= len(part.rows):
        return ""
    return f'<p class="dim">The first {number(len(part.rows))} of {count(part.count)} {what}.</p>'
