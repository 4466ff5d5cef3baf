"""report: one self-contained HTML page.

The plots are SVG drawn here: five simple kinds need no plotting library (matplotlib's SVG is some 50 times larger and
brings 60 MB of packages). The data are bounded: POINTS_MAX windows of QUEUES_MAX queues. For a longer time
the windows are wider, and the page says so: none is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from html import escape
from pathlib import Path
from typing import Any

from ..engines.protocol import rows, value
from ..progress import Progress
from .audit import audit
from .backlog import depth, loss
from .outputs import ORDERS
from .redelivery import redelivery
from .tables import NotRecorded, Tables
from .timing import latency

WIDTH, HEIGHT, LEFT, BOTTOM = 860, 260, 70, 30
COLOURS = ("#0b6e99", "#d9730d", "#448361", "#ad1a72", "#6940a5", "#c29343", "#64473a", "#9b9a97")
QUEUES_MAX, POINTS_MAX, POISON_MAX = 8, 500, 20
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}"
    "svg{width:100%;height:auto}table{border-collapse:collapse}td,th{padding:.2em .8em .2em 0;text-align:left}"
    "text{font-size:11px;fill:#555}"
)
Series = dict[str, list[tuple[float, float]]]


def write_report(tables: Tables, path: str, window_s: int, progress: Progress) -> None:
    """Compute, draw, write. Raises: OSError."""
    tables.fold(kept=True)
    queues = Queues.largest(tables)
    begin, end = tables.span()
    width = fitting(window_s, begin, end)
    progress.say("lives")
    parts = [_scope_of(tables, window_s, width, begin, end, queues), _audited(tables)]
    progress.say("audit")
    parts.append(_section("Depth over time (the most messages in each window)", _depths(tables, width, queues)))
    progress.say("depth")
    for title, job in (("Latency", _latencies), ("Redelivery and poison", _redeliveries)):
        try:
            parts.append(_section(title, job(tables, width, queues)))
        except NotRecorded as error:
            parts.append(_section(title, f"<p>{escape(str(error))}</p>"))
        progress.say(title.split()[0].lower())
    parts.append(_section("Losses by cause (messages per window)", _losses(tables, width)))
    progress.say("loss")
    page = f"<!doctype html><html lang=en><meta charset=utf-8><title>Leveret: report</title><style>{STYLE}</style>"
    Path(path).write_text(f"{page}<h1>Report of the journal</h1>{''.join(parts)}</html>\n", encoding="utf-8")


def fitting(window_s: int, begin: int, end: int) -> int:
    """The width of windows of which POINTS_MAX cover the time: a multiple of `window_s` seconds."""
    count = end // window_s - begin // window_s + 1
    factor = -(-count // POINTS_MAX)
    while end // (window_s * factor) - begin // (window_s * factor) + 1 > POINTS_MAX:
        factor += 1  # windows are aligned, so there may be one more
    return window_s * factor


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues that are drawn, as (virtual host, queue), of so many in the lake."""

    chosen: tuple[tuple[str, str], ...]
    count: int

    @classmethod
    def largest(cls, tables: Tables) -> "Queues":
        """Those with the most messages."""
        counted = f"SELECT vhost, queue, count(*) AS n FROM {tables.fold()} GROUP BY vhost, queue"
        found = rows(tables.engine, f"SELECT * FROM ({counted}) AS counted ORDER BY n DESC, vhost, queue")
        return cls(tuple((row["vhost"], row["queue"]) for row in found[:QUEUES_MAX]), len(found))

    def of(self, tables: Tables, sql: str) -> str:
        """Their rows, of a query."""
        text = tables.engine.dialect.text
        own = (f"vhost = {text(vhost)} AND queue = {text(queue)}" for vhost, queue in self.chosen)
        return f"SELECT * FROM ({sql}) AS every WHERE {' OR '.join(own) or 'false'}"

    def label(self, row: Any) -> str:
        """A queue's name, with its virtual host if there are several."""
        several = len({vhost for vhost, _ in self.chosen}) > 1
        return f"{row['queue']} in {row['vhost']}" if several else str(row["queue"])


def _scope_of(tables: Tables, asked_s: int, width_s: int, begin: int, end: int, queues: Queues) -> str:
    """What the page is about, and what it leaves out."""
    said = [f"From {_clock(begin)} to {_clock(end)}, in windows of {width_s} s."]
    if width_s != asked_s:
        said.append(f"Windows of {asked_s} s would be too many to draw.")
    if queues.count > len(queues.chosen):
        said.append(f"Of {queues.count:,} queues the {len(queues.chosen)} with the most messages are drawn.")
    missing = tables.missing()
    if missing:
        said.append(f"Not whole: {missing}.")
    return f"<p>{escape(' '.join(said))}</p>"


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>{content}"


def _audited(tables: Tables) -> str:
    engine = tables.engine
    engine.view("report_faults", audit(tables), kept=True)
    count = value(engine, "SELECT count(*) FROM report_faults")
    if not count:
        lived = value(engine, f"SELECT count(*) FROM {tables.fold()}")
        return _section("Audit", f"<p>No fault in {lived:,} lives of messages in queues.</p>")
    columns = ("fault", "msg_id", "vhost", "queue", "detail")
    found = rows(engine, f"SELECT * FROM report_faults ORDER BY {ORDERS['audit']} LIMIT {POISON_MAX}")
    title = f"Audit: {count:,} faults" + (f", of which {len(found)} are shown" if len(found) < count else "")
    return _section(title, table(columns, [[row[name] for name in columns] for row in found]))


def _depths(tables: Tables, window_s: int, queues: Queues) -> str:
    found = rows(tables.engine, f"{queues.of(tables, depth(tables, window_s))} ORDER BY {ORDERS['depth']}")
    return lines(_series(found, "depth_max", queues))


def _latencies(tables: Tables, window_s: int, queues: Queues) -> str:
    found = rows(tables.engine, f"{queues.of(tables, latency(tables, window_s))} ORDER BY window_start")
    plots = (("p50", "median"), ("p99", "99th percentile"))
    return "".join(
        f"<h3>From queue to ack, {name}, ms</h3>{lines(_series(found, f'e2e_ms_{point}', queues))}"
        for point, name in plots
    )


def _redeliveries(tables: Tables, window_s: int, queues: Queues) -> str:
    engine = tables.engine
    engine.view("report_failing", redelivery(tables), kept=True)
    counted = (
        "SELECT vhost, queue, least(attempts, 10) AS attempts, count(*) AS n"
        f" FROM ({queues.of(tables, 'SELECT * FROM report_failing')}) AS own GROUP BY vhost, queue, least(attempts, 10)"
    )
    counts = {(queues.label(row), int(row["attempts"])): int(row["n"]) for row in rows(engine, counted)}
    worst = f"SELECT * FROM report_failing WHERE poison ORDER BY {ORDERS['redelivery']} LIMIT {POISON_MAX}"
    shown = ("vhost", "queue", "msg_id", "attempts", "dead", "last_consumer", "last_reason")
    return (
        f"<h3>Messages by attempts (10: ten or more)</h3>{heat(counts)}<h3>Top poison messages</h3>"
        f"{table(shown, [[row[name] for name in shown] for row in rows(engine, worst)])}"
    )


def _losses(tables: Tables, window_s: int) -> str:
    summed = f"SELECT window_start, cause, sum(n) AS n FROM ({loss(tables, window_s)}) AS one GROUP BY ALL"
    series: Series = {}
    for row in rows(tables.engine, f"SELECT * FROM ({summed}) AS summed ORDER BY window_start, cause"):
        series.setdefault(row["cause"], []).append((row["window_start"].timestamp(), float(row["n"])))
    return lines(series)


def _series(rows: Sequence[Any], value: str, queues: Queues) -> Series:
    series: Series = {}
    for row in rows:
        if row[value] is not None:
            series.setdefault(queues.label(row), []).append((row["window_start"].timestamp(), float(row[value])))
    return series


def lines(series: Series) -> str:
    """An SVG of a line for each name."""
    points = [point for line in series.values() for point in line]
    if not points:
        return "<p>Nothing.</p>"
    begin, end = min(x for x, _ in points), max(x for x, _ in points)
    top = max(y for _, y in points) or 1.0
    drawn = []
    for place, (name, line) in enumerate(sorted(series.items())):
        colour = COLOURS[place % len(COLOURS)]
        path = " ".join(
            f"{LEFT + (x - begin) / ((end - begin) or 1) * (WIDTH - LEFT - 10):.1f},"
            f"{(HEIGHT - BOTTOM) * (1 - y / top) + 10:.1f}"
            for x, y in line
        )
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if len(line) == 1:
            cx, cy = path.split(",")
            drawn.append(f'<circle cx="{cx}" cy="{cy}" r="3" fill="{colour}"/>')
        key = f'x="{LEFT + 10 + place * 95}" y="{HEIGHT + 8}"'
        drawn.append(f'<text {key} style="fill:{colour}">{escape(name[:14])}</text>')
    for share in (0, 0.5, 1):
        y = (HEIGHT - BOTTOM) * (1 - share) + 10
        drawn.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        drawn.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{top * share:,.6g}</text>')
    drawn.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">{_clock(begin)}</text>')
    drawn.append(f'<text x="{WIDTH}" y="{HEIGHT - 6}" text-anchor="end">{_clock(end)}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 14}" role="img">{"".join(drawn)}</svg>'


def _clock(seconds: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def heat(counts: Mapping[tuple[str, int], int]) -> str:
    """An SVG of queues by attempts, darker where there are more. `counts`: by (queue, attempts)."""
    if not counts:
        return "<p>Nothing.</p>"
    queues = sorted({name for name, _ in counts})
    most = max(counts.values())
    drawn = [f'<text x="0" y="{20 * y + 14}">{escape(name[:24])}</text>' for y, name in enumerate(queues)]
    for (name, attempts), count in counts.items():
        left, upper = 160 + 60 * attempts, 20 * queues.index(name)
        share = 0.15 + 0.85 * count / most
        drawn.append(f'<rect x="{left}" y="{upper}" width="58" height="18" fill="#d9730d" fill-opacity="{share:.2f}"/>')
        drawn.append(f'<text x="{left + 29}" y="{upper + 13}" text-anchor="middle">{count:,}</text>')
    foot = 20 * len(queues) + 14
    drawn += [f'<text x="{189 + 60 * n}" y="{foot}" text-anchor="middle">{n}</text>' for n in range(11)]
    return f'<svg viewBox="0 0 {WIDTH} {foot + 6}" role="img">{"".join(drawn)}</svg>'


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """An HTML table; names are escaped."""
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th>{escape(name)}" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape('' if v is None else str(v))}" for v in row) for row in rows)
    return f"<table><tr>{head}{body}</table>"
