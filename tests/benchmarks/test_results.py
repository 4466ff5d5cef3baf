"""The README's figures are those of the results that it cites, and no partial run replaces these."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RATIOS = "ratios [median, lowest, highest]"
ROW = re.compile(r"\| .*\(`([\w-]+)`\) \| ([\d.]+)x[^|]*\| ([\d.]+)x \|")


def scenarios() -> dict[str, dict[str, list[float]]]:
    """Load -> ratio -> median, lowest, highest."""
    kept = json.loads((ROOT / "benchmarks" / "results" / "latest.json").read_text())
    return {name: one[RATIOS] for name, one in kept["scenarios"].items()}


def is_shown(text: str, figure: float) -> bool:
    """Whether `text` is the figure, rounded to as many places."""
    return abs(float(text) - figure) <= 0.5 * 10 ** -len(text.partition(".")[2]) + 1e-9


def test_the_table_of_the_readme_is_that_of_the_results() -> None:
    """Each row; the load with a journal is in the table of benchmarks/README.md."""
    rows = [match.groups() for match in map(ROW.match, (ROOT / "README.md").read_text().splitlines()) if match]
    assert len(rows) == 10
    kept, page = scenarios(), (ROOT / "benchmarks" / "README.md").read_text()
    for name, rate, cpu in rows:
        if name in kept and name != "unique-stored":  # the results have it without a journal
            of = {what: kept[name][f"{what} leveret/rabbitmq"][0] for what in ("rate", "cpu")}
        else:
            (found,) = re.findall(rf"(?m)^\| {name} \| ([\d.]+)x [^|]*\| [^|]*\| ([\d.]+)x \|", page)
            of = {"rate": float(found[1]), "cpu": float(found[0])}
        assert is_shown(rate, of["rate"]) and is_shown(cpu, of["cpu"]), (name, rate, cpu, of)


def test_the_sentences_below_the_table_are_those_of_the_results() -> None:
    """Latency, the steady load, the backlog's memory."""
    text = " ".join((ROOT / "README.md").read_text().split())
    kept = scenarios()
    (ms, ratio) = re.findall(r"median latency is ([\d.]+) ms \(`unique-acked`\), ([\d.]+)x RabbitMQ's", text)[0]
    assert is_shown(ratio, kept["unique-acked"]["p50 leveret/rabbitmq"][0])
    table = (ROOT / "benchmarks" / "results" / "latest.md").read_text()
    (p50_us,) = re.findall(r"\| unique-acked .*\| .*p50 .*\| [^|]* p50 (\d+) ", table)
    assert is_shown(ms, int(p50_us) / 1000)
    (steady,) = re.findall(r"2,000 messages/s, [^.]+ Leveret uses ([\d.]+)x", text)
    assert is_shown(steady, kept["S6"]["cpu leveret/rabbitmq"][0])
    (octets,) = re.findall(r"takes (\d+) B each", text)
    assert re.search(rf"\| S7 .*\| [^|]*\] {octets} B each \|", table)


def test_the_table_for_people_is_that_of_the_same_run() -> None:
    """latest.md and latest.json are written together."""
    results = ROOT / "benchmarks" / "results"
    kept = json.loads((results / "latest.json").read_text())
    text = (results / "latest.md").read_text()
    assert kept["date"] in text and kept["command"] in text
    assert all(f"| {name} |" in text for name in kept["scenarios"])


@pytest.mark.parametrize(
    "options, name",
    [
        ("", "latest.json"),
        ("--only a", "partial.json"),
        ("--no-rabbitmq", "partial.json"),
        ("--rounds 1", "partial.json"),
        ("--scale 0.35", "partial.json"),
        ("--command x", "partial.json"),
        ("--only a,b,c --rounds 5", "latest.json"),
        ("--only a --out mine.json", "mine.json"),
    ],
)
def test_where_a_run_writes(tmp_path: Path, options: str, name: str) -> None:
    """Beside a file with two loads in three rounds at 0.7."""
    (tmp_path / "latest.json").write_text(json.dumps({"scenarios": {"a": 1, "b": 2}, "rounds": 3, "scale": 0.7}))
    source = f"""
import sys
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
from pathlib import Path
import compare
compare.SCENARIOS = dict.fromkeys("abc")
print(compare.results_file(compare._options({options.split()!r}), Path({str(tmp_path)!r})).name)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == name
