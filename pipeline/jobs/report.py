"""report: one self-contained HTML page.

The plots are SVG drawn here: five simple kinds need no plotting library (matplotlib's SVG is some 50 times larger and
brings 60 MB of packages). The data from Spark are bounded: POINTS_MAX windows of QUEUES_MAX queues. For a longer time
the windows are wider, and the page says so: none is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from html import escape
from pathlib import Path
from typing import Any

from ..progress import Progress
from .audit import audit
from .backlog import depth, loss
from .frames import Frames, NotRecorded
from .lives import lives
from .redelivery import redelivery
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


def write_report(frames: Frames, path: str, window_s: int, progress: Progress) -> None:
    """Compute, draw, write. Raises: OSError."""
    from pyspark import StorageLevel

    folded = lives(frames.events).persist(StorageLevel.MEMORY_AND_DISK)
    queues = Queues.largest(folded)
    begin, end = frames.span()
    width = fitting(window_s, begin, end)
    progress.say("lives")
    parts = [_scope_of(frames, window_s, width, begin, end, queues), _audited(frames, folded)]
    progress.say("audit")
    parts.append(_section("Depth over time (the most messages in each window)", _depths(folded, width, end, queues)))
    progress.say("depth")
    for title, job in (("Latency", _latencies), ("Redelivery and poison", _redeliveries)):
        try:
            parts.append(_section(title, job(frames, folded, width, queues)))
        except NotRecorded as error:
            parts.append(_section(title, f"<p>{escape(str(error))}</p>"))
        progress.say(title.split()[0].lower())
    parts.append(_section("Losses by cause (messages per window)", _losses(folded, width)))
    progress.say("loss")
    page = f"<!doctype html><html lang=en><meta charset=utf-8><title>Leveret: report</title><style>{STYLE}</style>"
    Path(path).write_text(f"{page}<h1>Report of the journal</h1>{''.join(parts)}</html>\n", encoding="utf-8")
    folded.unpersist()


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
    def largest(cls, folded: Any) -> "Queues":
        """Those with the most messages."""
        counted = folded.groupBy("vhost", "queue").count().orderBy("count", ascending=False)
        return cls(tuple((row[0], row[1]) for row in counted.head(QUEUES_MAX)), counted.count())

    def rows(self, frame: Any) -> Any:
        """Their rows."""
        from pyspark.sql import functions as F

        wanted = F.lit(False)
        for vhost, queue in self.chosen:
            wanted |= (F.col("vhost") == vhost) & (F.col("queue") == queue)
        return frame.where(wanted)

    def label(self, row: Any) -> str:
        """A queue's name, with its virtual host if there are several."""
        several = len({vhost for vhost, _ in self.chosen}) > 1
        return f"{row['queue']} in {row['vhost']}" if several else str(row["queue"])


def _scope_of(frames: Frames, asked_s: int, width_s: int, begin: int, end: int, queues: Queues) -> str:
    """What the page is about, and what it leaves out."""
    said = [f"From {_clock(begin)} to {_clock(end)}, in windows of {width_s} s."]
    if width_s != asked_s:
        said.append(f"Windows of {asked_s} s would be too many to draw.")
    if queues.count > len(queues.chosen):
        said.append(f"Of {queues.count:,} queues the {len(queues.chosen)} with the most messages are drawn.")
    missing = frames.missing()
    if missing:
        said.append(f"Not whole: {missing}.")
    return f"<p>{escape(' '.join(said))}</p>"


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>{content}"


def _audited(frames: Frames, folded: Any) -> str:
    found = audit(frames, folded).persist()
    count = found.count()
    if not count:
        return _section("Audit", f"<p>No fault in {folded.count():,} lives of messages in queues.</p>")
    columns = ("fault", "msg_id", "vhost", "queue", "detail")
    rows = [[row[name] for name in columns] for row in found.limit(POISON_MAX).collect()]
    found.unpersist()
    title = f"Audit: {count:,} faults" + (f", of which {len(rows)} are shown" if len(rows) < count else "")
    return _section(title, table(columns, rows))


def _depths(folded: Any, window_s: int, end: int, queues: Queues) -> str:
    return lines(_series(queues.rows(depth(folded, window_s, end)).collect(), "depth_max", queues))


def _latencies(frames: Frames, folded: Any, window_s: int, queues: Queues) -> str:
    frames.with_deliveries("latency")
    rows = queues.rows(latency(folded, window_s)).orderBy("window_start").collect()
    plots = (("p50", "median"), ("p99", "99th percentile"))
    return "".join(
        f"<h3>From queue to ack, {name}, ms</h3>{lines(_series(rows, f'e2e_ms_{point}', queues))}"
        for point, name in plots
    )


def _redeliveries(frames: Frames, folded: Any, window_s: int, queues: Queues) -> str:
    found = redelivery(frames)
    columns = ("vhost", "queue", "least(attempts, 10) AS attempts")
    cells = queues.rows(found.selectExpr(*columns)).groupBy("vhost", "queue", "attempts").count().collect()
    worst = found.where("poison").orderBy("attempts", ascending=False).limit(POISON_MAX).collect()
    shown = ("vhost", "queue", "msg_id", "attempts", "dead", "last_consumer", "last_reason")
    counts = {(queues.label(row), int(row["attempts"])): int(row["count"]) for row in cells}
    return (
        f"<h3>Messages by attempts (10: ten or more)</h3>{heat(counts)}<h3>Top poison messages</h3>"
        f"{table(shown, [[row[name] for name in shown] for row in worst])}"
    )


def _losses(folded: Any, window_s: int) -> str:
    rows = loss(folded, window_s).groupBy("window_start", "cause").agg({"n": "sum"}).orderBy("window_start")
    series: Series = {}
    for row in rows.collect():
        series.setdefault(row["cause"], []).append((row["window_start"].timestamp(), float(row["sum(n)"])))
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
