"""report: one self-contained HTML page.

The plots are SVG drawn here: five simple kinds need no plotting library (matplotlib's SVG is some 50 times larger and
brings 60 MB of packages). The data from Spark are bounded: POINTS_MAX windows of QUEUES_MAX queues.
"""

from collections.abc import Sequence
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
    queues = [row[0] for row in folded.groupBy("queue").count().orderBy("count", ascending=False).head(QUEUES_MAX)]
    progress.say("lives")
    parts = [_audited(frames, folded)]
    progress.say("audit")
    parts.append(_section("Depth over time (messages at the end of each window)", _depths(folded, window_s, queues)))
    progress.say("depth")
    for title, job in (("Latency", _latencies), ("Redelivery and poison", _redeliveries)):
        try:
            parts.append(_section(title, job(frames, folded, window_s, queues)))
        except NotRecorded as error:
            parts.append(_section(title, f"<p>{escape(str(error))}</p>"))
        progress.say(title.split()[0].lower())
    parts.append(_section("Losses by cause (messages per window)", _losses(folded, window_s)))
    progress.say("loss")
    page = f"<!doctype html><html lang=en><meta charset=utf-8><title>Leveret: report</title><style>{STYLE}</style>"
    Path(path).write_text(f"{page}<h1>Report of the journal</h1>{''.join(parts)}</html>\n", encoding="utf-8")
    folded.unpersist()


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>{content}"


def _audited(frames: Frames, folded: Any) -> str:
    found = audit(frames, folded).limit(POISON_MAX).collect()
    if not found:
        return _section("Audit", f"<p>No fault in {folded.count():,} lives of messages in queues.</p>")
    columns = ("fault", "msg_id", "queue", "detail")
    return _section("Audit: faults", table(columns, [[row[name] for name in columns] for row in found]))


def _depths(folded: Any, window_s: int, queues: list[str]) -> str:
    rows = depth(folded, window_s).where(_in(queues)).orderBy("window_start").limit(POINTS_MAX * QUEUES_MAX).collect()
    return lines(_series(rows, "depth_end"))


def _latencies(frames: Frames, folded: Any, window_s: int, queues: list[str]) -> str:
    frames.with_deliveries("latency")
    rows = latency(folded, window_s).where(_in(queues)).orderBy("window_start").limit(POINTS_MAX * QUEUES_MAX).collect()
    plots = (("p50", "median"), ("p99", "99th percentile"))
    return "".join(
        f"<h3>From queue to ack, {name}, ms</h3>{lines(_series(rows, f'e2e_ms_{point}'))}" for point, name in plots
    )


def _redeliveries(frames: Frames, folded: Any, window_s: int, queues: list[str]) -> str:
    found = redelivery(frames)
    text = "least(attempts, 10) AS attempts"
    cells = found.selectExpr("queue", text).where(_in(queues)).groupBy("queue", "attempts").count().collect()
    worst = found.where("poison").orderBy("attempts", ascending=False).limit(POISON_MAX).collect()
    columns = ("queue", "msg_id", "attempts", "dead", "last_consumer", "last_reason")
    return (
        f"<h3>Messages by attempts (10: ten or more)</h3>{heat(cells)}<h3>Top poison messages</h3>"
        f"{table(columns, [[row[name] for name in columns] for row in worst])}"
    )


def _losses(folded: Any, window_s: int) -> str:
    rows = loss(folded, window_s).groupBy("window_start", "cause").agg({"n": "sum"}).orderBy("window_start")
    series: Series = {}
    for row in rows.limit(POINTS_MAX * QUEUES_MAX).collect():
        series.setdefault(row["cause"], []).append((row["window_start"].timestamp(), float(row["sum(n)"])))
    return lines(series)


def _in(queues: Sequence[str]) -> Any:
    from pyspark.sql import functions as F

    return F.col("queue").isin(*queues) if queues else F.lit(False)


def _series(rows: Sequence[Any], value: str) -> Series:
    series: Series = {}
    for row in rows:
        if row[value] is not None:
            series.setdefault(row["queue"], []).append((row["window_start"].timestamp(), float(row[value])))
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


def heat(cells: Sequence[Any]) -> str:
    """An SVG of queues by attempts, darker where there are more."""
    if not cells:
        return "<p>Nothing.</p>"
    queues = sorted({row["queue"] for row in cells})
    most = max(row["count"] for row in cells)
    drawn = [f'<text x="0" y="{20 * y + 14}">{escape(name[:24])}</text>' for y, name in enumerate(queues)]
    for row in cells:
        left, upper = 160 + 60 * row["attempts"], 20 * queues.index(row["queue"])
        share = 0.15 + 0.85 * row["count"] / most
        drawn.append(f'<rect x="{left}" y="{upper}" width="58" height="18" fill="#d9730d" fill-opacity="{share:.2f}"/>')
        drawn.append(f'<text x="{left + 29}" y="{upper + 13}" text-anchor="middle">{row["count"]:,}</text>')
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
