"""Draw docs/pipeline-tables.md from the pipeline's schemas (a test compares): `python docs/draw_pipeline_tables.py >
docs/pipeline-tables.md`. What is said of a table or a column is its comment (`#:`) in the code.
"""

import re
from pathlib import Path

from leveret.pipeline import schemas
from leveret.pipeline.jobs import outputs

ROOM = Path(__file__).resolve().parents[1] / "pipeline"
JOBS = {
    "FAULTS": "audit: `faults`",
    "ALLOWED": "audit: `allowed`",
    "MESSAGE_FATE": "audit: `message_fate`",
    "REPLAY_LOG": "replay: `replay_log`, in the lake",
}


def comments(path: Path) -> dict[str, str]:
    """What the comments say before `NAME = ...`, `NAME: ... = ` or `Column("name"`; NAME.name for columns."""
    found: dict[str, str] = {}
    said: list[str] = []
    table = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text.startswith("#:"):
            said.append(text[2:].strip())
            continue
        if named := re.match(r"([A-Z_]+)(: \w+)? = ", line):
            table = named[1]
            found[table] = " ".join(said)
        elif column := re.match(r'Column\("(\w+)"', text):
            found[f"{table}.{column[1]}"] = " ".join(said)
        said = []
    return found


def table(columns: schemas.Columns, meanings: dict[str, str]) -> list[str]:
    """Rows: column, type, whether it may be null, what it means if a column's comment says it."""
    is_said = any(meanings.values())
    lines = ["| column | type | |" + (" |" if is_said else ""), "|---|---|---|" + ("---|" if is_said else "")]
    for one in columns:
        meaning = f" {meanings.get(one.name, '').replace('|', chr(92) + '|')} |" if is_said else ""
        lines.append(f"| `{one.name}` | {one.type} | {'may be null' if one.nullable else ''} |{meaning}")
    return lines


def section(title: str, columns: schemas.Columns, name: str, said: dict[str, str]) -> list[str]:
    """One table."""
    meanings = {one.name: said.get(f"{name}.{one.name}", "") for one in columns}
    text = [said[name], ""] if said.get(name) else []
    return [f"### {title}", "", *text, *table(columns, meanings), ""]


def page() -> str:
    """The whole page."""
    lines = [
        "# Tables of the data pipeline",
        "",
        "Drawn from `pipeline/schemas.py` and `pipeline/jobs/outputs.py` by `docs/draw_pipeline_tables.py`; do not",
        "edit. Times are microseconds since 1970, UTC. Tables of the lake by time are partitioned by `date`, the day",
        "of `ts`.",
        "",
        "Each table of the lake has two columns more, `node string` and `journal string`: the name of the broker or",
        "cluster whose row it is, and the id of its journal; null in rows that an older release wrote, which are of",
        "the lake's first node. Answers about several nodes have `node` as their first column.",
        "",
        "## In the lake",
        "",
    ]
    said = comments(ROOM / "schemas.py")
    for name, columns in schemas.TABLES.items():
        lines += section(f"`{name}`", columns, name.upper(), said)
    lines += section("`nodes`", schemas.NODES, "NODES", said)
    lines += ["## Answers of the jobs", ""]
    said = comments(ROOM / "jobs" / "outputs.py")
    for name in said:
        columns = getattr(outputs, name)
        if isinstance(columns, tuple) and columns and isinstance(columns[0], schemas.Column):
            lines += section(JOBS.get(name, f"`{name.lower()}`"), columns, name, said)
    return "\n".join(lines).rstrip()


if __name__ == "__main__":
    print(page())
